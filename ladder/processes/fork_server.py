"""Forks a process for each job: `python -m ladder.processes.fork_server NEED ...` imports, then forks.

Libraries take seconds to import, more than most stages take to be measured. A fork of a process that has imported them,
and has done nothing else, is as fresh as one that was started: no device has been touched, no code of a stage has run.
Where it cannot be had, because a library does more than that on being imported, processes are started one by one.
A round has fork servers of its own, so that rounds do not share where memory happens to lie.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import msgspec

from common.cuda import driver
from common.process_group import die_with_parent
from ladder.machine.environment import import_packages
from ladder.measure import worker


class ForkRequest(msgspec.Struct, frozen=True):
    """What a new process is to do: the job in this folder; what it prints goes to the log."""

    folder: str
    log: str


def main(needs: list[str]) -> None:
    """Import what stages with these needs import, then answer every request with a process and its exit code."""
    die_with_parent()
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    import_packages(needs)
    if driver.initialised():
        raise SystemExit("a library has initialised CUDA on being imported: no fork could use a device")
    os.write(answers, b"0\n")  # ready
    gc.freeze()  # so that collecting garbage in one of the children does not copy every page
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=ForkRequest)
        child = os.fork()
        if child == 0:
            os.close(answers)
            _do(request)
        os.write(answers, b"%d\n" % child)
        _, status = os.waitpid(child, 0)
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))


def _do(request: ForkRequest) -> NoReturn:
    """Be the worker, in a session of its own, and end with its exit code."""
    code = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        for file, place in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(file, place)
        code = worker.main(Path(request.folder))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # a library that falls over while it is torn down has no say any more


if __name__ == "__main__":
    main(sys.argv[1:])
