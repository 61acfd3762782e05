"""A full disk, wherever it is met: one line with the file, the place and the way on, which then works.

Each run has a tiny file system of its own, in a namespace of its own; the size decides which write is the one too many.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ladder.records.run import load
from tests.common.data.idx_writer import quartet_arrays, write_files

ROOT = Path(__file__).parent.parent
SMALL = "--batch-size=20 --epochs=2 --rounds=1 --repeats=3 --budget=1 --remeasure=0 --profile=none"
PROGRAM = """
import sys
import run_ladder
from ladder.run import entries
from ladder.run import folders
from stages.registry import load_all

folders.SPARE_BYTES = {spare}
entries.load_all = lambda: load_all(["stages.references.numpy_cpu:STAGE", "tests.planted:PRINTS"])
if __name__ == "__main__":
    sys.exit(run_ladder.main(sys.argv[1:]))
"""
IN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
can_mount = subprocess.run([*IN_NAMESPACE, "mount -t tmpfs tmpfs /mnt"], capture_output=True, check=False)
pytestmark = pytest.mark.skipif(can_mount.returncode != 0, reason="this machine does not let its users mount")


def run(folder: Path, size: str, script: str, *, scratch: str = "", spare: int = -(1 << 30)) -> tuple[str, list[str]]:
    """Run a shell script beside a file system `tiny` of this size; its output, and the ladder's lines of refusal."""
    (folder / "tiny").mkdir(exist_ok=True)
    (folder / "program.py").write_text(PROGRAM.format(spare=spare))
    data = write_files(folder / "data", quartet_arrays(200, 50, (6, 6), 4))
    environment = {"PYTHONPATH": str(ROOT), "LADDER_DATA_DIR": str(data), "TMPDIR": str(folder / scratch)}
    script = f"mount -t tmpfs -o size={size} tmpfs tiny\n{script}".replace("LADDER ", f"{sys.executable} program.py ")
    done = subprocess.run(
        [*IN_NAMESPACE, script],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if line.startswith("run_ladder.py: ")]


@pytest.mark.parametrize("size", ["16k", "60k"], ids=["results", "report"])
def test_a_run_that_fills_the_disk_of_its_results_says_how_to_go_on(size: str, tmp_path: Path) -> None:
    script = f"""
    LADDER {SMALL} --out tiny/run; echo "status $?"
    mount -o remount,size=20m tmpfs tiny
    LADDER --resume tiny/run || LADDER {SMALL} --out tiny/run; echo "status $?"
    cp -r tiny/run kept
    """
    out, refusals = run(tmp_path, size, script)
    first, second = re.findall(r"^status (\d)", out, re.MULTILINE)
    assert (first, second) == ("2", "0")
    assert "No space left on device" in refusals[0]
    assert f"{tmp_path}/tiny" in refusals[0] or "--out tiny/run" in refusals[0]
    if "--out" not in refusals[0]:
        assert re.search(rf"tiny/run/\S+: No space left on device; free some below {tmp_path}/tiny, then ", refusals[0])
        assert "then continue with: " in refusals[0]
        assert refusals[0].endswith("/run_ladder.py --resume tiny/run")
    assert [stage.status for stage in load(tmp_path / "kept").stages] == ["passed", "passed"]


def test_a_full_cache_is_named_and_costs_no_stage(tmp_path: Path) -> None:
    out, refusals = run(tmp_path, "1m", f'LADDER_CACHE_DIR=tiny/cache LADDER {SMALL} --out run 2>&1; echo "status $?"')
    assert refusals == []
    assert out.endswith("status 0\n")
    assert " ".join(out.split()).count("tiny/cache: No space left on device; this run keeps compiled code in its ") == 1


@pytest.mark.parametrize(
    ("size", "hidden", "file"),
    [("8k", 5, "dataset/"), ("40k", 5, "numpy.1/result.msgpack"), ("80k", 200, "numpy.1/")],
    ids=["data set", "result", "parameters"],
)
def test_a_disk_full_of_scratch_is_told_with_the_way_on(size: str, hidden: int, file: str, tmp_path: Path) -> None:
    script = f"""
    LADDER {SMALL} --hidden {hidden} --out run; echo "status $?"
    mount -o remount,size=20m tmpfs tiny
    LADDER --resume run; echo "status $?"
    """
    out, refusals = run(tmp_path, size, script, scratch="tiny")
    first, second = re.findall(r"^status (\d)", out, re.MULTILINE)
    assert second == "0"
    if first == "2":
        (said,) = refusals
        assert said.endswith("/run_ladder.py --resume run")
    else:
        assert first == "1"
        said = " ".join(out.split())
        assert "then continue with --resume; TMPDIR names another folder" in said
    assert f"/{file}" in said.replace(" ", "")
    assert f"No space left on device; free some below {tmp_path}/tiny, then " in said
    assert [stage.status for stage in load(tmp_path / "run").stages] == ["passed", "passed"]


def test_scratch_files_go_where_there_is_room(tmp_path: Path) -> None:
    script = f"""
    LADDER {SMALL} --out run; echo "status $?"
    ls -A tiny | wc -l
    """
    out, refusals = run(tmp_path, "8k", script, scratch="tiny", spare=1 << 20)
    assert "status 0" in out  # in the cache
    assert refusals == []


def test_a_machine_without_room_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    script = f"export LADDER_CACHE_DIR=tiny\nLADDER {SMALL} --out tiny/run; echo status $?; ls tiny/run/logs"
    out, (refusal,) = run(tmp_path, "128k", script, scratch="tiny", spare=1 << 20)
    assert "status 2" in out
    assert "temporary files: no folder has room for 1.0 MiB (" in refusal
    assert f"{tmp_path}/tiny has 0.1 MiB" in refusal
    assert refusal.endswith("free some, or name one by TMPDIR")
