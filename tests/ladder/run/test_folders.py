"""The folder of a run's results and its lock; the one of its passing files, and what becomes of a killed run's."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.cache import cache_folder
from common.errors import UsageError
from ladder.doctor import doctor
from ladder.run import folders
from ladder.run.bench import Finished
from ladder.run.folders import PREFIX, alone_in, make_folder, scratch_folder
from ladder.run.verdicts import Verdicts
from tests.ladder.harness import NUMPY, Watcher, prepare, small_dataset

ROOT = Path(__file__).parents[3]
HOLDER = "import sys, time\nfrom pathlib import Path\nfrom ladder.run.folders import alone_in\n" + (
    "with alone_in(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
)


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock of the folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_run_is_refused_and_a_killed_one_releases_the_lock(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(UsageError) as refused, alone_in(tmp_path):
        pass
    assert str(refused.value) == (f"{tmp_path}: another run is writing there; wait for it, or choose another --out")
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with pytest.raises(RuntimeError), alone_in(tmp_path):
        raise RuntimeError
    with alone_in(tmp_path), alone_in(tmp_path / "gone"):
        assert list(tmp_path.iterdir()) == [tmp_path / "temporary"]


def test_where_folders_cannot_be_locked_a_file_in_them_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_on_nfs(descriptor: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, how)

    flock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", as_on_nfs)
    with alone_in(tmp_path), pytest.raises(UsageError, match="another run is writing there"), alone_in(tmp_path):
        pass
    with alone_in(tmp_path):
        pass


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def test_it_lies_in_the_temporary_folder_and_is_gone_afterwards(tmp_path: Path, temporary: Path) -> None:
    with scratch_folder(tmp_path, 1) as scratch:
        assert scratch.parent == temporary
        (scratch / "file").touch()
    assert list(temporary.iterdir()) == []


def test_without_room_there_the_cache_is_next_and_then_the_run_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/self")
    with scratch_folder(tmp_path, 1) as scratch:
        assert scratch.parent == tmp_path / "cache" / "scratch"
    monkeypatch.setenv("LADDER_CACHE_DIR", "/proc/self/cache")
    with scratch_folder(tmp_path, 1) as scratch:
        assert scratch.parent == tmp_path
    with (
        pytest.raises(UsageError, match=r"no folder has room for .* MiB \(.* has .* MiB"),
        scratch_folder(tmp_path, 1 << 60),
    ):
        pass


def test_it_holds_the_cache_where_nothing_else_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    blocked = tmp_path / "file" / "cache"
    monkeypatch.setenv("LADDER_CACHE_DIR", str(blocked))
    monkeypatch.setenv("CUPY_CACHE_DIR", "mine")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    assert [row.found for row in doctor() if row.what == "cache"] == [f"{blocked} cannot be written to"]
    with scratch_folder(tmp_path, 1) as scratch:
        assert cache_folder("numba").is_relative_to(scratch)
        assert Path(os.environ["TRITON_CACHE_DIR"]).is_relative_to(scratch)
        assert os.environ["CUPY_CACHE_DIR"] == "mine"
        assert not [row for row in doctor() if row.what == "cache"]
    assert cache_folder("numba") == blocked / "numba"
    assert "TRITON_CACHE_DIR" not in os.environ


def test_without_any_temporary_folder_the_run_s_own_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(folders, "gettempdir", none)
    monkeypatch.setenv("LADDER_CACHE_DIR", "/proc/self/cache")
    with scratch_folder(tmp_path, 1) as scratch:
        assert scratch.parent == tmp_path


def test_a_killed_run_s_folder_is_removed_and_a_living_run_s_is_not(tmp_path: Path, temporary: Path) -> None:
    killed = temporary / f"{PREFIX}killed"
    (killed / "dataset").mkdir(parents=True)
    with scratch_folder(tmp_path, 1) as living:
        assert not killed.exists()
        with scratch_folder(tmp_path, 1):
            assert living.exists()


def test_a_run_needs_room_for_its_data_and_parameters(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 0
    record = Verdicts.record

    def sizes(self: Verdicts, finished: Finished) -> None:
        nonlocal most
        files = [file for file in temporary.rglob("*.npy") if file.is_file()]
        most = max(most, sum(file.stat().st_size for file in files))
        record(self, finished)

    monkeypatch.setattr(Verdicts, "record", sizes)
    (tmp_path / "run").mkdir()
    runner = prepare(tmp_path / "run", NUMPY)
    runner.run(Watcher())
    headers = 32 * 128  # four arrays of the data, two of each set of parameters
    assert small_dataset().nbytes < most <= runner.orders.scratch_bytes + headers
    assert not list((tmp_path / "run").rglob("*.npy"))


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stopped = SimpleNamespace(now=lambda: datetime(2026, 1, 2, 3, 4, 5))
    monkeypatch.setattr(folders, "datetime", stopped)
    found = [str(make_folder(None, "plan-")) for _ in range(3)]
    assert found == ["runs/plan-20260102-030405", "runs/plan-20260102-030405-2", "runs/plan-20260102-030405-3"]
    assert str(make_folder(None)) == "runs/20260102-030405"
    assert make_folder(tmp_path) == tmp_path
