"""Scripts of `torch --write` on a GPU: they agree with the usual loop, captured and compiled as their rung is."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ladder.torch_model.export import training_file
from ladder.torch_model.plan import planned
from stages.torch.registry import rung_named
from tests.examples.test_torch_examples import FOLDER, NAMES
from tests.ladder.torch_model import scripts
from tests.ladder.torch_model.test_export import GRAPHS

pytestmark = [pytest.mark.gpu, pytest.mark.torch]
RUNGS = ["fused-optimizer", "workers", "step-graph", "compiled-graph", *GRAPHS[1:3]]


@pytest.mark.parametrize("name", NAMES)
def test_a_written_script_trains_as_the_usual_loop_does(name: str, tmp_path: Path) -> None:
    model = tmp_path / f"{name}.py"
    model.write_text((FOLDER / f"{name}.py").read_text())
    facts = planned(model, []).facts
    assert facts is not None
    files = []
    for rung in RUNGS:
        files.append(tmp_path / f"{rung.replace('-', '_')}.py")
        files[-1].write_text(training_file(model, rung_named(rung).step, facts, rung, tmp_path))
    ran = {}
    for rung, file in zip(RUNGS, files, strict=True):  # a process each: a stream or a pool of one must not help another
        done = subprocess.run(
            [sys.executable, scripts.__file__, str(tmp_path), shlex.join([str(file), "--verify"])],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{rung}: {done.stderr}"
        ran[rung] = json.loads(done.stdout.splitlines()[-1])
    assert {rung: status for rung, (status, _) in ran.items()} == dict.fromkeys(RUNGS, 0), ran
    trained = subprocess.run(
        [sys.executable, str(tmp_path / "step_graph.py"), "--epochs", "1"], capture_output=True, text=True
    )
    assert trained.returncode == 0, trained.stderr
    assert "\nepoch 1: loss " in trained.stdout
