"""What `tools/record_studies.sh` measures, keeps and ends with; its Python only pretends to measure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.machine import write_program

ROOT = Path(__file__).parents[2]

# Notes what it is asked for; leaves a study's files in the folder of its last argument, and fails for study $BAD.
FAKE_PYTHON = (
    f"""#!/bin/sh
case "$1" in
-c) echo "$GPUS $GPU_NAME" ;;
-m) exec env "PYTHONPATH={ROOT}" "{sys.executable}" "$@" ;;
"""
    + """
run_ladder.py)
    echo "$*" >> log
    for folder; do :; done
    mkdir -p "$folder/logs" "$folder/point/logs" "$folder/point/profiles" && echo new > "$folder/study.json"
    touch "$folder/point/results.json"
    if [ "${folder##*/}" = "$BAD" ]; then exit "$STATUS"; fi ;;
esac
"""
)


class Tree:
    """A checkout with two studies, of which one is recorded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("tools", ".venv/bin", "experiments"):
            (root / folder).mkdir(parents=True)
        shutil.copy(ROOT / "tools" / "record_studies.sh", root / "tools")
        write_program(root / ".venv" / "bin" / "python", FAKE_PYTHON)
        for name in ("depth", "size"):
            (root / "experiments" / f"{name}.toml").touch()
        (root / "results/reference/h200/studies/depth/older-point").mkdir(parents=True)

    def run(self, *studies: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = os.environ | {"GPUS": "1", "GPU_NAME": "NVIDIA H200", "BAD": "", "STATUS": "0"} | environment
        command = [str(self.root / "tools" / "record_studies.sh"), *studies]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    def log(self) -> list[str]:
        file = self.root / "log"
        return file.read_text().splitlines() if file.exists() else []

    def kept(self) -> set[str]:
        found = (self.root / "results/reference/h200/studies").rglob("*")
        return {str(path.relative_to(self.root / "results/reference/h200/studies")) for path in found}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_every_study_is_measured_and_replaces_its_record(tree: Tree) -> None:
    assert tree.run().returncode == 0
    begin, out = "run_ladder.py study experiments/", "--out runs/record/h200/studies/"
    assert tree.log() == [f"{begin}depth.toml {out}depth", f"{begin}size.toml {out}size"]
    assert tree.kept() == {
        name + rest for name in ("depth", "size") for rest in ("", "/study.json", "/point", "/point/results.json")
    }


def test_the_longest_is_begun_first_and_each_once(tree: Tree) -> None:
    (tree.root / "experiments" / "hidden-size.toml").touch()
    assert tree.run().returncode == 0
    assert [line.rpartition("/")[2] for line in tree.log()] == ["hidden-size", "depth", "size"]


def test_beside_others_nothing_is_measured_again_for_their_sake(tree: Tree) -> None:
    assert tree.run("depth", GPUS="2").returncode == 0
    out = "runs/record/h200/studies/depth"
    assert tree.log() == [f"run_ladder.py study experiments/depth.toml --remeasure 0 --out {out}"]


def test_a_named_one_alone_and_where_it_stopped(tree: Tree) -> None:
    assert tree.run("size", BAD="size", STATUS="130").returncode == 130
    assert tree.kept() == {"depth", "depth/older-point"}
    assert tree.run("size").returncode == 0
    assert tree.log()[-1] == "run_ladder.py study --resume runs/record/h200/studies/size"
    assert {"size/study.json", "depth/older-point"} <= tree.kept()


def test_a_stage_that_fails_is_recorded_and_told(tree: Tree) -> None:
    assert tree.run(BAD="depth", STATUS="1").returncode == 1
    assert {"depth/study.json", "size/study.json"} <= tree.kept()


def test_what_cannot_be_recorded_is_refused(tree: Tree) -> None:
    unknown = tree.run("dept")
    assert (unknown.returncode, unknown.stderr) == (2, "record: there is no study experiments/dept.toml\n")
    without = tree.run(GPU_NAME="")
    assert (without.returncode, without.stderr) == (2, "record: no NVIDIA GPU here\n")
    assert tree.log() == []
