"""The fork server process: `python -m ladder.processes.fork_server NEED ...` imports libraries, then forks workers.

Importing libraries takes seconds, longer than measuring most stages. A worker forked after the imports is as fresh as
one that is started: no device has been used and no stage's code has run. If a library does more when imported, such as
initialising CUDA, the fork server ends and workers are started one by one; if PyTorch's compiler may have done so, it
first starts over without that. Each round has its own fork servers, so that rounds differ in their memory layout.

Between server and worker stands a keeper, forked as well, so that several workers can live at a time. It ends the
worker on SIGTERM, and ends what the worker left behind.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from common.cuda import driver
from common.process_group import adopt_orphans, die_with_parent, kill_group
from ladder.machine.environment import import_packages
from ladder.measure import worker
from ladder.measure.protocol import ENDING
from ladder.processes.supervised import Supervised


class ForkRequest(msgspec.Struct, frozen=True):
    """A request for a worker that runs the job in `folder` and writes its output to `log`."""

    folder: str
    log: str


def main(parent: int, needs: list[str]) -> None:
    """Import the libraries of these needs and say so, then fork a keeper with a worker for each request.

    The answers are lines: `ready`; `K started` with the id of a keeper; `K CODE` when its worker has ended, or `K lost`
    when something has ended the keeper.
    """
    die_with_parent(parent)
    answers = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keeps the output of libraries out of the answers
    os.environ["TORCH_WARM_POOL"] = "0"  # PyTorch would start compilers, and a thread that no fork inherits
    import_packages(needs)
    if driver.initialised():
        _start_over_without_compiler(parent, needs, answers)
        raise SystemExit("a library initialised CUDA on import: forked processes could not use a device")
    os.write(answers, b"ready\n")
    gc.freeze()  # a worker's garbage collection must not copy every shared page
    signal.signal(signal.SIGCHLD, lambda *_: _reap(answers))
    server = os.getpid()
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=ForkRequest)
        keeper = os.fork()
        if keeper == 0:
            _keep(request, answers, server)
        os.write(answers, b"%d started\n" % keeper)


def _start_over_without_compiler(parent: int, needs: list[str], answers: int) -> None:
    """Become a server that leaves the import of PyTorch's compiler to each worker; return if this one did so."""
    if "torch-cuda" in needs:
        os.dup2(answers, sys.stdout.fileno())
        left = ["torch" if need == "torch-cuda" else need for need in needs]
        os.execv(sys.executable, [sys.executable, "-m", "ladder.processes.fork_server", str(parent), *left])


def _reap(answers: int) -> None:
    """Report keepers that have ended without an exit code."""
    with suppress(ChildProcessError):  # there is none
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            keeper, status = ended
            if status:
                os.write(answers, b"%d lost\n" % keeper)


def _keep(request: ForkRequest, answers: int, server: int) -> NoReturn:
    """Fork the worker, wait for its end, and report its exit code, all in this forked process."""
    failed = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        die_with_parent(server)
        adopt_orphans()
        with Path(request.log).open("wb") as log:
            worker = Supervised(partial(_run_worker, Path(request.folder), answers), log.fileno())
            signal.signal(signal.SIGTERM, lambda *_: kill_group(worker.id))
            code = worker.wait(Path(request.folder) / ENDING)
        os.write(answers, b"%d %d\n" % (os.getpid(), code))
        failed = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(failed)


def _run_worker(folder: Path, answers: int) -> int:
    """Run the job in this forked process."""
    os.close(answers)
    return worker.main(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
