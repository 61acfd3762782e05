"""Two runs in one folder: the second is refused, and a killed run releases its lock."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import UsageError
from ladder.run.folders import alone_in

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
        assert list(tmp_path.iterdir()) == []


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
