"""Ranks: processes that train together, each on a GPU of its own. Rank 0 is the stage's process, which starts the rest.

A rank receives commands over a pipe, and obeys them in order. It reads parameters from memory that
all ranks see. The ranks meet inside their kernels, and in `Group.gather` while they prepare.
"""

from __future__ import annotations

import math
import os
import pickle
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from signal import Signals
from threading import Lock, Thread
from typing import Any

import numpy as np

from common.cuda.clock import fence
from common.data.dataset import Split
from common.errors import MisfitError
from common.problem import Float32Array, Params, Problem
from common.process_group import die_with_parent
from common.trainer import Trainer, wait_of

ROOT = Path(__file__).parents[1]
ANSWER_LIMIT_S = 100.0  # a rank compiles and tunes meanwhile
GRACE_S = 3.0  # in which the stage may say by itself that a rank is lost, and one that a signal stopped may go on


class RankError(Exception):
    """Another rank failed, has ended or does not answer."""


@dataclass
class Group:
    """The ranks that train together, as one of them sees it; rank 0 is the first."""

    rank: int
    ranks: int
    gather: Callable[[Any], list[Any]]
    """Exchange a value with all ranks while preparing: returns every rank's, in order. All must call it."""
    kept: dict[str, Any] = field(default_factory=dict)
    """Parts keep here what all trainers of a process share, such as memory that other ranks have opened."""


Build = Callable[[Group, Problem, Split], Trainer]
"""Prepares a rank's trainer of its share of each batch. It can be pickled."""


@lru_cache(maxsize=1)
def _shared(file: int, size: int) -> Float32Array:
    """So many floats of a file that all ranks see; kept, since Linux takes long to find and map its pages."""
    with open(file, "r+b", closefd=False) as pages:
        return np.asarray(np.memmap(pages, np.float32, "r+", shape=size))


def shared_params(file: int, shapes: Sequence[tuple[int, ...]], layers: int) -> Params:
    """Parameters of these shapes at the file's begin, in the order of `arrays`; those of before are overwritten."""
    *begins, size = np.cumsum([0, *map(math.prod, shapes)]).tolist()
    parts = np.split(_shared(file, size), begins[1:])
    return Params.of([part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)], layers)


class Others:
    """The ranks from 1 on, as rank 0 sees them."""

    def __init__(self, links: Sequence[Connection], file: int) -> None:
        self.links, self._file = links, file
        self.group = Group(0, 1 + len(links), self._gather)

    def tell(self, *command: Any) -> None:
        """Send every rank the same command; raises RankError if one has ended."""
        told = pickle.dumps(command, pickle.HIGHEST_PROTOCOL)
        for rank, link in enumerate(self.links, 1):
            with _present(rank):
                link.send_bytes(told)

    def tell_each(self, *command: Any, own: Callable[[int], Any]) -> None:
        """Send every rank the command, with a part of its own."""
        for rank, link in enumerate(self.links, 1):
            with _present(rank):
                link.send((*command, *own(rank)))

    def load(self, key: int, params: Params) -> None:
        """Have every rank load a copy of these; no other may be made before all answer that they have done so."""
        given = [array.shape for array in params.arrays], len(params.weights)
        for shared, array in zip(shared_params(self._file, *given).arrays, params.arrays, strict=True):
            shared[...] = array
        self.tell("load", key, *given)

    def answers(self) -> list[Any]:
        """The next answer of every rank; raises a rank's MisfitError, or RankError if it failed or does not answer."""
        return [self._answer(rank, link) for rank, link in enumerate(self.links, 1)]

    def _answer(self, rank: int, link: Connection) -> Any:
        with _present(rank):
            if not link.poll(ANSWER_LIMIT_S):
                raise RankError(f"rank {rank} gave no answer within {ANSWER_LIMIT_S:g} s")
            answer = link.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _gather(self, value: Any) -> list[Any]:
        values = [value, *self.answers()]
        self.tell(values)
        return values


@contextmanager
def _present(rank: int) -> Iterator[None]:
    """Inside, a broken connection means that the rank has ended."""
    try:
        yield
    except (EOFError, OSError) as error:
        raise RankError(f"rank {rank} has ended") from error


_started: Others | None = None
_ending = Lock()
_tell_loss: Callable[[Exception], None] = traceback.print_exception


def tell_losses_by(tell: Callable[[Exception], None]) -> None:
    """Have this process call the function with the reason, just before it ends because a rank is lost."""
    global _tell_loss
    _tell_loss = tell


def start_others(ranks: int) -> Others:
    """The other ranks of this process, started at the first call; they end with it.

    If one ends before, or is stopped, this process ends: a kernel would wait for its messages without an end.
    """
    global _started
    if _started is None:
        links, file = [], os.memfd_create("ranks")
        for rank in range(1, ranks):
            own, its = socket.socketpair()
            numbers = its.fileno(), file, rank, ranks, os.getpid()
            command = [sys.executable, "-m", "common.ranks", *map(str, numbers)]
            process = subprocess.Popen(command, cwd=ROOT, pass_fds=numbers[:2])
            its.close()
            links.append(Connection(own.detach()))
            Thread(target=_end_with, args=(rank, process.pid, links[-1]), daemon=True).start()
        _started = Others(links, file)
    assert _started.group.ranks == ranks, "a process has one group"
    return _started


def _end_with(rank: int, process: int, link: Connection) -> None:
    """End this process when the rank has ended, or is stopped and does not go on; its last word says why."""
    states, lost = os.WEXITED | os.WSTOPPED | os.WNOWAIT, None
    while lost is None:
        os.waitid(os.P_PID, process, states)
        time.sleep(GRACE_S)
        lost = os.waitid(os.P_PID, process, states | os.WNOHANG)
    by = lost.si_status if lost.si_code == os.CLD_EXITED else Signals(lost.si_status).name
    how = {os.CLD_EXITED: "has ended with exit code", os.CLD_STOPPED: "was stopped by"}
    error: Exception = RankError(f"rank {rank} {how.get(lost.si_code, 'was killed by')} {by}")
    with suppress(EOFError, OSError):
        while link.poll():
            error = said if isinstance(said := link.recv(), Exception) else error
    _ending.acquire()  # the first loss is reported, and no later one
    _tell_loss(error)
    os._exit(1)


def serve(link: Connection, file: int, rank: int, ranks: int) -> None:
    """Do what rank 0 says, until it hangs up. A failure is the answer that it reads next, and the last."""

    def gather(value: Any) -> list[Any]:
        link.send(value)
        (values,) = link.recv()
        assert isinstance(values, list)
        return values

    group = Group(rank, ranks, gather)
    trainers: dict[int, Trainer] = {}
    while True:
        try:
            received = link.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            command, key, *given = pickle.loads(received)
            if command == "build":
                build, problem, split = given
                trainers[key] = build(group, problem, split)
                link.send(None)
            elif command == "load":
                trainers[key].load_params(shared_params(file, *given))
            elif command == "epoch":
                trainers[key].run_epoch(*given)
                if (seen := trainers[key].last_metrics()) is not None:
                    link.send(seen)
            elif command == "wait":
                wait_of(trainers[key])()
                fence()
                link.send(None)
            elif command == "read":
                link.send(trainers[key].read_params())
            elif command == "close":
                trainers.pop(key).close()
        except (EOFError, BrokenPipeError):
            return  # rank 0 has ended, and says why
        except Exception as error:
            traceback.print_exc()
            told = RankError(f"rank {rank}: {type(error).__name__}: {error}")
            link.send(error if isinstance(error, MisfitError) else told)
            return


if __name__ == "__main__":
    descriptor, shared, its_rank, of_ranks, parent = map(int, sys.argv[1:])
    die_with_parent(parent)
    from common import ranks as this  # pickled commands know the module by its name

    this.serve(Connection(descriptor), shared, its_rank, of_ranks)
    sys.stderr.flush()
    os._exit(0)  # a library that crashes while it is torn down cannot change the exit code
