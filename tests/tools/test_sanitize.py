"""What `tools/sanitize.sh` runs and what it ends with; its compute-sanitizer only pretends."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tools.machine import write_program

ROOT = Path(__file__).parents[2]
TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
PYTHON = '#!/bin/sh\necho "${LADDER_SANITIZER:-nothing} watches: $*" >> log\nexit "${TESTS_FAIL:-0}"\n'
SANITIZER = """#!/bin/sh
echo "$2" >> tools-run
if [ "$2" = "$BAD" ]; then echo "========= Invalid __global__ write of size 4 bytes" > "$6"; exit 9; fi
shift 6
[ "$1" != --report-api-errors ] || shift 2
exec "$@"
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder in ("tools", ".venv/bin", "bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "sanitize.sh", tmp_path / "tools")
    write_program(tmp_path / ".venv" / "bin" / "python", PYTHON)
    write_program(tmp_path / "bin" / "compute-sanitizer", SANITIZER)
    return tmp_path


def run(tree: Path, *tools: str, path: str = "bin:/usr/bin:/bin", **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": ":".join(str(tree / p) if p == "bin" else p for p in path.split(":")), "CUDA_HOME": "/none"}
    return subprocess.run(
        [tree / "tools" / "sanitize.sh", *tools], env=environment | variables, capture_output=True, text=True
    )


def test_every_tool_watches_the_kernels_tests_and_the_first_run_is_plain(tree: Path) -> None:
    done = run(tree)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tree / "tools-run").read_text().split() == TOOLS
    plain, *watched = (tree / "log").read_text().splitlines()
    assert plain.startswith("nothing watches: -m pytest")
    assert all(
        line.startswith(f"{tool} watches: -m pytest")
        and line.endswith(
            "test_primitive_kernels.py tests/gpu/test_streamed.py tests/gpu/test_ring.py tests/gpu/test_last_layer.py"
        )
        for tool, line in zip(TOOLS, watched, strict=True)
    )
    assert [line for line in done.stdout.splitlines() if "clean" in line and "NOT" not in line][3].startswith(
        "sanitize: synccheck: clean ("
    )


def test_a_finding_is_shown_and_the_other_tools_still_run(tree: Path) -> None:
    done = run(tree, BAD="racecheck")
    assert done.returncode == 1
    assert "Invalid __global__ write" in done.stdout
    assert "sanitize: racecheck: NOT clean, see above" in done.stdout
    assert (tree / "tools-run").read_text().split() == TOOLS


def test_tests_that_fail_by_themselves_are_no_finding(tree: Path) -> None:
    assert run(tree, TESTS_FAIL="1").returncode == 1
    assert not (tree / "tools-run").exists()


def test_what_cannot_be_run_is_said_in_a_line(tree: Path) -> None:
    done = run(tree, "memchek")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "there is no tool memchek; name memcheck" in done.stderr
    (tree / "bin" / "compute-sanitizer").unlink()
    if shutil.which("compute-sanitizer", path="/usr/bin:/bin") is None:
        done = run(tree)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "no compute-sanitizer on the PATH" in done.stderr
