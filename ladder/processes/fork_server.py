"""The fork server process: `python -m ladder.processes.fork_server NEED ...` imports libraries, then forks workers.

Importing libraries takes seconds, longer than measuring most stages. A worker forked after the imports is as fresh as
one that is started: no device has been used and no stage's code has run. If a library does more when imported, such as
initialising CUDA, the fork server ends and workers are started one by one. Each round has its own fork servers, so
that rounds differ in their memory layout.
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
    """A request for a worker that runs the job in `folder` and writes its output to `log`."""

    folder: str
    log: str


def main(needs: list[str]) -> None:
    """Import the libraries of these needs, answer 0, then answer each request with the worker's id and exit code."""
    die_with_parent()
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps the output of libraries out of the answers
    import_packages(needs)
    if driver.initialised():
        raise SystemExit("a library initialised CUDA on import: forked processes could not use a device")
    os.write(answers, b"0\n")  # ready
    gc.freeze()  # a worker's garbage collection must not copy every shared page
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=ForkRequest)
        child = os.fork()
        if child == 0:
            os.close(answers)
            _run_worker(request)
        os.write(answers, b"%d\n" % child)
        _, status = os.waitpid(child, 0)
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(status))


def _run_worker(request: ForkRequest) -> NoReturn:
    """Run the job in this forked process, in its own session, and exit with the worker's code."""
    code = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        for file, descriptor in ((null, 0), (log, 1), (log, 2)):
            os.dup2(file, descriptor)
        code = worker.main(Path(request.folder))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)  # skips the libraries' teardown, which may crash and change the code


if __name__ == "__main__":
    main(sys.argv[1:])
