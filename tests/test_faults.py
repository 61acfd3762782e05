"""Faults of real machines: the user reads one line, and no measurement is lost.

Killed and hanging workers are in tests/ladder/run/test_runner.py, interrupts in test_interrupt.py, files without
results in test_command_line.py, damaged caches in tests/common, and a GPU that breaks in tests/gpu/test_faults.py.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import IO, Any

import pytest

from ladder.processes import compute_pool
from ladder.records.run import load
from ladder.records.study import load_study
from ladder.run import bounds, preflight
from ladder.run.folders import alone_in
from ladder.run.preflight import dataset_of
from ladder.verify import oracle_runs
from run_ladder import main
from stages.registry import load_all
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.ladder.harness import NUMPY, Watcher, prepare

SMALL = [
    "--remeasure=0", "--batch-size=20", "--epochs=2", "--rounds=1", "--repeats=3", "--budget=1", "--profile=none",
    "--out=run",
]  # fmt: skip
PLAN = """
stages = "numpy"
batch_size = 20
epochs = 2
rounds = 1
repeats = 3
budget = 1
remeasure = 0
profile = "none"
[vary]
hidden = [3, 5]
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, a ladder of two stages, and small data found by default."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LADDER_DATA_DIR", str(write_files(tmp_path / "data", quartet_arrays(200, 50, (6, 6), 4))))
    monkeypatch.setattr("ladder.run.entries.load_all", lambda: load_all([NUMPY, "tests.planted:CANNOT_VALIDATE"]))
    return tmp_path


def test_two_runs_in_one_folder_are_refused_unmeasured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "run").mkdir()
    with alone_in(here / "run"):
        assert main(SMALL) == 2
    line = "another run is writing there; wait for it, or choose another --out"
    assert capsys.readouterr().err == f"run_ladder.py: run: {line}\n"
    assert main(SMALL) == 0
    with alone_in(here / "run"):
        assert main(["--resume=run"]) == 2
    assert line in capsys.readouterr().err
    files = ["figures", "logs", "report.html", "report.md", "results.json", "sources.json.gz"]
    assert sorted(path.name for path in (here / "run").iterdir()) == files


@pytest.mark.usefixtures("in_process")
def test_a_point_is_not_resumed_while_its_study_is_measured(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "plan.toml").write_text(PLAN)
    assert main(["study", "plan.toml", "--out", "study"]) == 0
    capsys.readouterr()
    with alone_in(here / "study"):
        assert main(["--resume", "study/hidden-3"]) == 2
    line = "another run is writing there; wait for it, or choose another --out"
    assert capsys.readouterr().err == f"run_ladder.py: study: {line}\n"
    assert main(["--resume", "study/hidden-3"]) == 0


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("command", [SMALL, ["study", "plan.toml", "--out", "run"]], ids=["run", "study"])
def test_a_run_is_refused_if_another_begins_in_its_folder_meanwhile(
    command: list[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "plan.toml").write_text(PLAN)

    loader = f"ladder.{'study.study_session' if 'study' in command else 'run.preflight'}.dataset_of"

    def overtaken(**options: Any) -> Any:
        monkeypatch.setattr(loader, dataset_of)
        assert main(command) == 0
        return dataset_of(**options)

    monkeypatch.setattr(loader, overtaken)
    assert main(command) == 2
    assert "choose another --out" in capsys.readouterr().err


@pytest.mark.usefixtures("in_process")
def test_a_measured_point_whose_results_are_gone_waits(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "plan.toml").write_text(PLAN)
    assert main(["study", "plan.toml", "--out", "study"]) == 0
    (here / "study" / "hidden-3" / "results.json").unlink()
    assert main(["report", "study"]) == 0
    assert "hidden 3: not complete yet" in " ".join(capsys.readouterr().out.split())
    assert main(["study", "--resume", "study"]) == 0
    assert (here / "study" / "hidden-3" / "results.json").exists()


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("saves", [0, 2], ids=["at once", "after a stage"])
def test_a_full_disk_keeps_saved_results_and_the_run_can_be_resumed(
    here: Path, saves: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left, fsync = [saves], os.fsync

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        assert main(SMALL) == 2
    results = here / "run" / "results.json"
    said = rf"run_ladder\.py: {results}: No space left on device; free some below /\S*, then continue with: "
    assert re.fullmatch(rf"{said}\S+ \S+/run_ladder\.py --resume run\n", capsys.readouterr().err)
    if not saves:
        assert not (here / "run" / "results.json").exists()
        return
    before = load(here / "run")
    assert [stage.status for stage in before.stages].count("passed") == saves - 1
    assert main(["--resume=run"]) == 0
    after = load(here / "run")
    assert [stage.status for stage in after.stages] == ["passed", "passed"]
    assert after.stages[: saves - 1] == before.stages[: saves - 1]


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; allow more by `ulimit -n 4096`, then"),
        (MemoryError(), "Cannot allocate memory; free some, or raise the limit that `ulimit -v` shows, then"),
        (
            RuntimeError("can't start new thread"),
            "can't start new thread; raise the limits that `ulimit -u` and `ulimit -v` show, then",
        ),
    ],
)
def test_a_limit_of_the_machine_keeps_saved_results_and_tells_the_way_on(
    here: Path, error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved: list[int] = []

    def limited(descriptor: int) -> None:
        saved.append(descriptor)
        if len(saved) > 2:
            raise error

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", limited)
        assert main(SMALL) == 2
    told = capsys.readouterr().err
    assert told.startswith("run_ladder.py: ")
    assert f"{said} continue with: " in told
    assert told.endswith("/run_ladder.py --resume run\n")
    assert told.count("\n") == 1
    assert [stage.status for stage in load(here / "run").stages].count("passed") == 1
    assert main(["--resume=run"]) == 0


def test_memory_that_ends_before_anything_is_measured_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ends(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("ladder.run.preflight.dataset_of", ends)
    assert main(["--stages=numpy"]) == 2
    said = "Cannot allocate memory; free some, or raise the limit that `ulimit -v` shows, then repeat the command"
    assert capsys.readouterr().err == f"run_ladder.py: {said}\n"


def test_without_a_place_for_semaphores_the_way_out_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")  # Linux names no file

    monkeypatch.setattr(compute_pool, "ProcessPoolExecutor", none)
    monkeypatch.setattr(oracle_runs, "LITTLE_WORK", 0)
    assert main(SMALL) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("run_ladder.py: /dev/shm: No such file or directory; ")
    assert told.endswith("mount a tmpfs there, or give the container one (--shm-size)")
    assert (here / "run" / "results.json").exists()


def no_space(files: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `files` files of this name be written whole; the next meets a full disk."""
    left, opened = [files], Path.open

    def full(path: Path, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
        if path.name.startswith(f"{name}.") and path.suffix == ".part" and "w" in mode:
            left[0] -= 1
            if left[0] < 0:
                path.touch()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return opened(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("name", ["report.md", "ladder.svg"])
def test_a_full_disk_at_the_report_costs_only_the_report(
    here: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as disk:
        no_space(0, name, disk)
        assert main(SMALL) == 2
    said = capsys.readouterr().err
    assert said.startswith("run_ladder.py: ")
    assert f"{name}: No space left on device; free some below /" in said
    assert said.endswith("/run_ladder.py --resume run\n")
    assert [stage.status for stage in load(here / "run").stages] == ["passed", "passed"]
    assert not list((here / "run").rglob("*.part"))
    assert main(["report", "run"]) == 0
    assert (here / "run" / "report.md").exists()


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("saves", [0, 2, 4], ids=["at once", "after a point", "after the last"])
def test_a_full_disk_at_a_study_s_index_loses_no_point(
    here: Path, saves: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "plan.toml").write_text(PLAN)
    with monkeypatch.context() as disk:
        no_space(saves, "study.json", disk)
        assert main(["study", "plan.toml", "--out=run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("run_ladder.py: run/study.json: No space left on device; free some below /")
    assert said.endswith("/run_ladder.py study --resume run\n")
    assert not list((here / "run").rglob("*.part"))
    if not saves:
        assert list((here / "run").iterdir()) == []
        return
    before = {path: path.read_bytes() for path in (here / "run").glob("*/results.json")}
    assert len(before) == saves // 2
    assert main(["study", "--resume=run"]) == 0
    assert [point.status for point in load_study(here / "run").points] == ["measured", "measured"]
    assert all(path.read_bytes() == whole for path, whole in before.items())


def test_a_worker_that_crashes_in_c_leaves_a_row_and_the_next_one_runs(tmp_path: Path) -> None:
    segfault, full, numpy = prepare(
        tmp_path, "tests.planted:SEGFAULT", "tests.planted:DISK_FULL", NUMPY
    ).run(Watcher()).stages  # fmt: skip
    assert (segfault.status, segfault.reason) == ("crashed", "killed by SIGSEGV; see logs/segfault.1.log")
    assert full.status == "crashed"
    assert str(full.reason).startswith("OSError: [Errno 28] No space left on device (planted.py, line ")
    assert str(full.reason).endswith("; see logs/disk-full.1.log")
    assert numpy.status == "passed"


def test_a_gpu_lost_before_a_stage_runs_costs_only_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (preflight, bounds):  # it was there when the run began
        monkeypatch.setattr(module, "missing", lambda needs: None)
    naive, numpy = prepare(tmp_path, "stages.classic.naive:STAGE", NUMPY).run(Watcher()).stages
    assert (naive.status, numpy.status) == ("crashed", "passed")
    assert naive.reason
