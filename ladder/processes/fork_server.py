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
from functools import partial
from pathlib import Path

import msgspec

from common.cuda import driver
from common.process_group import adopt_orphans, die_with_parent
from ladder.machine.environment import import_packages
from ladder.measure import worker
from ladder.measure.protocol import ENDING
from ladder.processes.supervised import Supervised


class ForkRequest(msgspec.Struct, frozen=True):
    """A request for a worker that runs the job in `folder` and writes its output to `log`."""

    folder: str
    log: str


def main(parent: int, needs: list[str]) -> None:
    """Import the libraries of these needs, answer 0, then answer each request with the worker's id and exit code."""
    die_with_parent(parent)
    adopt_orphans()
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps the output of libraries out of the answers
    import_packages(needs)
    if driver.initialised():
        raise SystemExit("a library initialised CUDA on import: forked processes could not use a device")
    os.write(answers, b"0\n")  # ready
    gc.freeze()  # a worker's garbage collection must not copy every shared page
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=ForkRequest)
        with Path(request.log).open("wb") as log:
            child = Supervised(partial(_run_worker, Path(request.folder), answers), log.fileno())
            os.write(answers, b"%d\n" % child.id)
            code = child.wait(Path(request.folder) / ENDING)
        os.write(answers, b"%d\n" % code)


def _run_worker(folder: Path, answers: int) -> int:
    """Run the job in this forked process."""
    os.close(answers)
    return worker.main(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
