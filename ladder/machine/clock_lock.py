"""The GPU's clock held at one frequency while a run lasts, and let go whatever ends the run.

A guard does both: `python -m ladder.machine.clock_lock MHZ`, a process in a session of its own, which ignores what a
terminal or a batch system sends to end a program. It waits at a pipe whose other end the run alone has. When the run
is over, was interrupted or was killed, the pipe ends, and the guard resets the clocks. What kills the guard and the
run at once, such as a container's end, nothing here survives: `nvidia-smi --reset-gpu-clocks` is for that.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import UsageError
from ladder.machine.gpu_monitor import ClockError, GpuMonitor

ROOT = Path(__file__).parents[2]
LOCKED, RESET = "locked", "reset"


@contextmanager
def locked_clocks(mhz: int | None, note: Callable[[str], None]) -> Iterator[None]:
    """Hold the GPU's SM clock at so many MHz inside; None leaves it as it is. What cannot be undone becomes a note.

    Raises UsageError without a GPU, without the permission, or for a clock that the GPU does not have.
    """
    if mhz is None:
        yield
        return
    guard = subprocess.Popen(
        [sys.executable, "-m", "ladder.machine.clock_lock", str(mhz)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    is_locked = False
    try:
        assert guard.stdout is not None
        answer = guard.stdout.readline().strip()
        is_locked = answer == LOCKED
        if not is_locked:
            raise UsageError(f"--lock-clocks {mhz}: {answer or 'its guard process ended'}; leave it out")
        yield
    finally:
        said, _ = guard.communicate()  # closes the pipe that the guard waits at
        if is_locked and said.strip() != RESET:
            _reset_without_guard(note)


def _reset_without_guard(note: Callable[[str], None]) -> None:
    """What is left to do where the guard was killed, or refused."""
    try:
        with GpuMonitor() as monitor:
            monitor.reset_clocks()
    except ClockError as error:
        note(f"the GPU's clocks may still be locked ({error}); nvidia-smi --reset-gpu-clocks resets them")


def guard(mhz: int) -> int:
    """Lock, say so, wait for the end of standard input, reset, say so; or say in a line why not."""
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.SIG_IGN)
    with GpuMonitor() as monitor:
        try:
            monitor.lock_clocks(mhz)
        except ClockError as error:
            _say(str(error))
            return 1
        try:
            _say(LOCKED)
            sys.stdin.read()
        finally:
            monitor.reset_clocks()
    _say(RESET)
    return 0


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1])))
