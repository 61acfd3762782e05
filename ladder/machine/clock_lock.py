"""Locks the GPU's clock during a run, and unlocks it however the run ends.

A guard process does both: `python -m ladder.machine.clock_lock MHZ`. It has its own session and ignores the signals
by which a terminal or a batch system ends a program. It reads a pipe whose other end only the run holds: when the run
ends, is interrupted or is killed, the pipe closes and the guard resets the clocks. If guard and run are killed
together, as when a container stops, the clocks stay locked until `nvidia-smi --reset-gpu-clocks`.
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
    """Lock the GPU's SM clock at `mhz` inside the context; None changes nothing. A failed reset becomes a note.

    Raises UsageError without a GPU, without permission, or for a clock that the GPU does not support.
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
            raise UsageError(f"--lock-clocks {mhz}: {answer or 'its guard process ended'}; leave the option out")
        yield
    finally:
        answer, _ = guard.communicate()  # closes the pipe that the guard reads
        if is_locked and answer.strip() != RESET:
            _reset_without_guard(note)


def _reset_without_guard(note: Callable[[str], None]) -> None:
    """Reset the clocks from this process, after the guard was killed or failed to."""
    try:
        with GpuMonitor() as monitor:
            monitor.reset_clocks()
    except ClockError as error:
        note(f"the GPU's clocks may still be locked ({error}); nvidia-smi --reset-gpu-clocks resets them")


def guard(mhz: int) -> int:
    """Lock the clock, print LOCKED, wait until standard input closes, reset, print RESET; on failure print why."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    with GpuMonitor() as monitor:
        try:
            monitor.lock_clocks(mhz)
        except ClockError as error:
            _answer(str(error))
            return 1
        try:
            _answer(LOCKED)
            sys.stdin.read()
        finally:
            monitor.reset_clocks()
    _answer(RESET)
    return 0


def _answer(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1])))
