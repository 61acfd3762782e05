"""What `tools/record_aa.sh` records and keeps; its Python only pretends to measure."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ladder.options.commands import Run
from ladder.options.parsers import parse
from tests.tools.machine import write_program

ROOT = Path(__file__).parents[2]
FAKE_PYTHON = """#!/bin/sh
case "$1" in
-c) echo "$GPU_NAME" ;;
-m) echo "$*" >> log ;;
run_ladder.py)
    echo "$*" >> log
    [ "$3" = "$BAD" ] && exit 1
    while [ "$1" != --out ]; do stages=$3; shift; done
    mkdir -p "$2" && echo "$2" > "$2/results.json" ;;
esac
"""


def record(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    for folder in ("tools", ".venv/bin", "results/aa"):
        (root / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "record_aa.sh", root / "tools")
    write_program(root / ".venv" / "bin" / "python", FAKE_PYTHON)
    variables = os.environ | {"GPU_NAME": "NVIDIA H200", "BAD": ""} | environment
    return subprocess.run(
        [root / "tools" / "record_aa.sh", *arguments], env=variables, capture_output=True, text=True, check=False
    )


def test_both_machines_are_recorded_and_the_document_is_updated(tmp_path: Path) -> None:
    done = record(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    kept = {path.name: gzip.decompress(path.read_bytes()) for path in (tmp_path / "results" / "aa").iterdir()}
    assert kept == {"cpu.json.gz": b"runs/aa/cpu\n", "h200.json.gz": b"runs/aa/gpu\n"}
    *runs, last = (tmp_path / "log").read_text().splitlines()
    assert last == "-m tools.aa_study"
    asked = [command.options for line in runs if isinstance(command := parse(line.split()[1:]), Run)]
    three = ("naive", "cuda-graph", "fused-epilogue")
    assert [(one.stages, one.rounds) for one in asked] == [(("numpy",), 96), (three, 24)]


@pytest.mark.parametrize(
    ("environment", "code"), [({"GPU_NAME": ""}, 2), ({"BAD": "naive,cuda-graph,fused-epilogue"}, 1)]
)
def test_nothing_is_kept_of_what_was_not_recorded_whole(tmp_path: Path, environment: dict[str, str], code: int) -> None:
    assert record(tmp_path, **environment).returncode == code
    assert list((tmp_path / "results" / "aa").iterdir()) == []


def test_a_machine_without_a_gpu_records_cpu_rungs(tmp_path: Path) -> None:
    assert record(tmp_path, "cpu", GPU_NAME="").returncode == 0
    assert [path.name for path in (tmp_path / "results" / "aa").iterdir()] == ["cpu-rungs.json.gz"]
    run, last = (tmp_path / "log").read_text().splitlines()
    assert last == "-m tools.aa_study"
    asked = parse(run.split()[1:])
    assert isinstance(asked, Run)
    assert (asked.options.stages, asked.options.rounds) == (("cpu-one-call..cpu-resident",), 24)
