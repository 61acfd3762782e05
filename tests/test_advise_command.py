"""`advise --measure`: the same screen, with times that a short run of the stages that decide has measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from common.cuda.driver import DeviceInfo
from ladder.records.run import load
from ladder.run import outlook
from reports.facts import advice
from run_ladder import main
from tests.common.data.idx_writer import quartet_arrays, write_files

BRIEFLY = ["--epochs=1", "--max-steps=2", "--rounds=1", "--repeats=1", "--budget=0.1", "--remeasure=0"]


@pytest.mark.jax
def test_it_measures_the_stages_that_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = write_files(tmp_path / "digits", quartet_arrays(400, 50, (28, 28), 10))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outlook, "devices", lambda: [DeviceInfo("NVIDIA H200", (9, 0), 1, "0")])
    # PyTorch and the rungs only take longer, or are skipped without a GPU.
    monkeypatch.setattr(advice, "deciding", lambda found: [one for one in found.stages if one.name == "jax-scan"])
    assert (
        main(["advise", "--hidden=16", "--batch-size=32", "--measure", "--json", f"--data-dir={digits}", *BRIEFLY]) == 0
    )
    facts = json.loads(capsys.readouterr().out)
    (folder,) = (tmp_path / "runs").iterdir()
    results = load(folder)
    assert [stage.name for stage in results.stages] == facts["deciding"] == ["jax-scan"]
    assert (results.problem.hidden, results.problem.batch_size) == ([16], 32)
    timed = {stage.name: stage.timing.step_us for stage in results.stages if stage.timing}
    assert timed
    assert {stage["name"]: stage["measured_us"] for stage in facts["stages"] if stage["measured_us"]} == pytest.approx(
        timed, rel=1e-3
    )
