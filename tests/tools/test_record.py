"""What `tools/record.sh` measures, keeps and ends with; its Python only pretends to measure."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ladder.options.commands import Run
from ladder.options.parsers import parse
from stages.registry import load_all, select
from tests.tools.machine import write_program

ROOT = Path(__file__).parents[2]
PROBLEMS = ("logistic", "hidden-256", "hidden-128-128-128")

# Notes what it is asked for and which records are new by then; leaves a run's files, and fails for problem $BAD.
FAKE_PYTHON = (
    f"""#!/bin/sh
case "$1" in
-c) echo "$GPUS $GPU_NAME" ;;
-m) exec env "PYTHONPATH={ROOT}" "{sys.executable}" "$@" ;;
"""
    + """
run_ladder.py)
    echo "$* with $(cat results/reference/*/*/results.json | grep -c new) kept" >> log
    mkdir -p "$3/logs" "$3/profiles" && echo new > "$3/results.json" && touch "$3/profiles/naive.nsys-rep"
    if [ "${3##*/}" = "$BAD" ]; then exit "$STATUS"; fi ;;
esac
"""
)


class Tree:
    """A checkout whose H200 has a record of every problem."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("tools", ".venv/bin"):
            (root / folder).mkdir(parents=True)
        shutil.copy(ROOT / "tools" / "record.sh", root / "tools")
        write_program(root / "tools" / "test_gpu.sh", '#!/bin/sh\necho "tests by $1" >> log\nexit "$TESTS"\n')
        self.python = write_program(root / ".venv" / "bin" / "python", FAKE_PYTHON)
        for problem in PROBLEMS:
            (root / "results" / "reference" / "h200" / problem).mkdir(parents=True)
            self.record(problem).write_text("old\n")

    def record(self, problem: str, gpu: str = "h200") -> Path:
        return self.root / "results" / "reference" / gpu / problem / "results.json"

    def records(self) -> list[str]:
        return [self.record(problem).read_text().strip() for problem in PROBLEMS]

    def run(self, *problems: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.root / "tools" / "record.sh"), *problems]
        variables = (
            os.environ | {"GPUS": "1", "GPU_NAME": "NVIDIA H200", "BAD": "", "STATUS": "0", "TESTS": "0"} | environment
        )
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    def log(self) -> list[str]:
        file = self.root / "log"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_every_problem_is_measured_before_the_first_record_is_replaced(tree: Tree) -> None:
    left_over = tree.root / "runs" / "record" / "h200" / "logistic" / "results.json"
    left_over.parent.mkdir(parents=True)
    left_over.write_text("interrupted")
    ended = tree.run()
    assert ended.returncode == 0
    run = "run_ladder.py --out runs/record/h200/"
    assert tree.log() == [
        "tests by .venv/bin/python",
        f"{run}logistic --stages all --profile nsys,cupti --nsys-stages ladder,references with 0 kept",
        f"{run}hidden-256 --stages all --hidden 256 with 0 kept",
        f"{run}hidden-128-128-128 --stages all --hidden 128,128,128 --batch-size 32 with 0 kept",
    ]
    assert re.sub(r"\d+", "N", ended.stdout).splitlines() == [
        f"{part} took N s" for part in ("tests", *(re.sub(r"\d+", "N", problem) for problem in PROBLEMS))
    ]
    assert tree.records() == ["new", "new", "new"]
    assert not list((tree.root / "results").rglob("logs"))
    assert not list((tree.root / "results").rglob("profiles"))
    assert not list((tree.root / "runs").rglob("*.json"))


def test_beside_others_nothing_is_measured_again_for_their_sake(tree: Tree) -> None:
    assert tree.run(GPUS="4").returncode == 0
    assert all("--remeasure 0 with" in line for line in tree.log()[1:])


def test_nothing_is_measured_when_the_tests_fail(tree: Tree) -> None:
    assert tree.run(TESTS="1").returncode == 3
    assert tree.log() == ["tests by .venv/bin/python"]
    assert tree.records() == ["old", "old", "old"]


def test_every_problem_there_is_can_be_asked_for() -> None:
    script = (ROOT / "tools" / "record.sh").read_text()
    beyond = re.search(r'beyond="(.*)"', script)
    assert beyond is not None
    problems = re.findall(r'^    \[(.*)\]="(.*)"$', script, re.MULTILINE)
    assert len(problems) > len(PROBLEMS)
    for problem, options in problems:
        command = parse(options.replace("$beyond", beyond[1]).split())
        assert isinstance(command, Run)
        asked = command.options
        assert select(asked.stages, load_all())
        assert problem == ("hidden-" + "-".join(map(str, asked.hidden)) if asked.hidden else "logistic")


def test_only_the_problems_that_are_named_are_replaced(tree: Tree) -> None:
    assert tree.run("hidden-256").returncode == 0
    assert tree.records() == ["old", "new", "old"]


@pytest.mark.parametrize("bad", PROBLEMS)
def test_a_run_with_a_crashed_stage_is_kept_and_the_status_tells(tree: Tree, bad: str) -> None:
    assert tree.run(BAD=bad, STATUS="1").returncode == 1
    assert tree.records() == ["new", "new", "new"]
    assert not list((tree.root / "results").rglob("logs"))
    assert not list((tree.root / "results").rglob("profiles"))


@pytest.mark.parametrize("status", [2, 130])
def test_a_run_that_was_refused_or_interrupted_ends_it_all_and_nothing_is_replaced(tree: Tree, status: int) -> None:
    assert tree.run(BAD="hidden-256", STATUS=str(status)).returncode == status
    assert len(tree.log()) == 3
    assert tree.records() == ["old", "old", "old"]


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("NVIDIA GeForce RTX 4070 Ti", "rtx-4070-ti"),
        ("Tesla T4", "tesla-t4"),
        ("NVIDIA A100-SXM4 (MIG 1g.5gb)", "a100-sxm4-mig-1g-5gb"),
    ],
)
def test_the_folder_has_the_whole_name_of_the_gpu(tree: Tree, name: str, slug: str) -> None:
    assert tree.run("logistic", GPU_NAME=name).returncode == 0
    assert tree.record("logistic", slug).read_text() == "new\n"


def test_without_a_gpu_it_is_one_line(tree: Tree) -> None:
    write_program(tree.python, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    ended = tree.run(PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="")
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", "record: no NVIDIA GPU here\n")


def test_a_problem_there_is_not_is_told_before_anything_is_measured(tree: Tree) -> None:
    ended = tree.run("logistic", "hidden-9")
    assert (ended.returncode, ended.stderr) == (2, "record: there is no problem hidden-9\n")
    assert tree.log() == []
