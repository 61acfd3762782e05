"""Runs work in a forked process, caps what it prints, and ends and names what it leaves behind.

So does `python -m ladder.processes.supervised PARENT ENDING COMMAND ...`, the keeper of a command: SIGTERM ends the
command. The exit code, or the signal, is the command's; the file ENDING says what it left behind.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import NoReturn

import msgspec

from common.process_group import adopt_orphans, die_with_parent, end_orphans, kill_group
from common.streams import flush_output

LOG_HEAD, LOG_TAIL = 512 << 10, 512 << 10  # bytes kept of a log: its beginning, and its end with the traceback
DRAIN_S = 1.0  # for the rest of a log after all who wrote to it have ended


class Ending(msgspec.Struct, frozen=True):
    """How a supervised process ended, apart from its exit code."""

    left: list[str] = []  # processes that it left behind
    stopped_s: float = 0.0  # for which a signal had stopped it


def read_ending(path: Path) -> Ending:
    """The ending in a file; a missing or damaged one is empty."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Ending)
    except (OSError, ValueError):
        return Ending()


class Supervised:
    """`work` in a forked process and session of its own, which writes to the open file `log`.

    This process must have called `adopt_orphans`, and has no other children.
    """

    def __init__(self, work: Callable[[], int], log: int) -> None:
        source, sink = os.pipe()
        parent = os.getpid()
        sys.stdout.flush()
        self.id = os.fork()
        if self.id == 0:
            os.close(source)
            _work(work, sink, parent)
        os.close(sink)
        self._log = CappedLog(source, log)
        self._log.start()

    def wait(self, ending: Path) -> int:
        """Wait for the end, clean up, write the `Ending` to this file, and return the exit code, -N after signal N."""
        code, stopped_s = self._wait()
        left = [f"process {name}" for name in end_orphans(self.id)]
        self._log.join(DRAIN_S)
        try:
            ending.write_bytes(msgspec.json.encode(Ending(left, stopped_s)))
        except OSError:  # a full disk is the worker's result's to report
            traceback.print_exc()
        return code

    def _wait(self) -> tuple[int, float]:
        """The exit code, and the seconds for which the process was stopped."""
        stopped_s, stopped_at = 0.0, None
        while True:
            _, status = os.waitpid(self.id, os.WUNTRACED | os.WCONTINUED)
            if os.WIFSTOPPED(status):
                stopped_at = time.monotonic()
                continue
            stopped_s += time.monotonic() - stopped_at if stopped_at is not None else 0.0
            stopped_at = None
            if not os.WIFCONTINUED(status):
                return os.waitstatus_to_exitcode(status), stopped_s


def _work(work: Callable[[], int], sink: int, parent: int) -> NoReturn:
    """Do the work in this forked process, and exit with its code."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent(parent)
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        for file, descriptor in ((null, 0), (sink, 1), (sink, 2)):
            os.dup2(file, descriptor)
        os.close(sink)
        code = work()
        flush_output()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # skips the libraries' teardown, which may crash and change the code


class CappedLog(Thread):
    """Copies a pipe to a file until its end; of long output only the beginning and the end."""

    def __init__(self, source: int, log: int) -> None:
        super().__init__(daemon=True)
        self._source, self._log = source, log

    def run(self) -> None:
        """Copy; a file that cannot be written to does not hold up the process at the other end."""
        room, tail, dropped = LOG_HEAD, b"", 0
        while chunk := os.read(self._source, 1 << 16):
            head, rest = chunk[:room], chunk[room:]
            room -= self._write(head)
            kept = tail + rest
            tail = kept[-LOG_TAIL:]
            dropped += len(kept) - len(tail)
        if dropped:
            self._write(b"\n... %d bytes are left out: a log keeps its beginning and its end ...\n" % dropped)
        self._write(tail)
        os.close(self._source)

    def _write(self, text: bytes) -> int:
        view = memoryview(text)
        try:
            while view:
                view = view[os.write(self._log, view) :]
        except OSError:  # the disk is full; results say so
            pass
        return len(text)


def main(parent: int, ending: Path, command: list[str]) -> int:
    """Run the command until it ends; returns its exit code, or ends by the signal that ended it."""
    die_with_parent(parent)
    adopt_orphans()
    kept = Supervised(lambda: _become(command), sys.stdout.fileno())
    signal.signal(signal.SIGTERM, lambda *_: kill_group(kept.id))
    code = kept.wait(ending)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left its own
        with suppress(OSError):  # SIGKILL has no other handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _become(command: list[str]) -> NoReturn:
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
