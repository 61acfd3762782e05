"""The worker's end of a channel to the runner, which gives the turn and the seeds, and knows a run's begin and end.

A stage's process holds no seed before the run that starts from it, and nothing from which one follows. Which of the
timed runs is judged it learns after the last. The runner's end is `ladder.processes.seed_server`.
"""

from __future__ import annotations

import socket
from typing import Literal

import msgspec

MESSAGE_BYTES = 4096  # at most
CLOCK = "-clock"  # added to the address of the socket that takes the marks
MARKS = {"begin": b"begin", "end": b"end"}
REFUSED = "the runner gives each run's seed once, in order; the stage's process asked otherwise: leave its seeds alone"


class Message(msgspec.Struct, frozen=True):
    """What the worker asks for, or reports: see `RunSeeds`."""

    what: Literal["turn", "untimed", "timed", "shared", "finished"]
    number: int = 0
    of: int = 0


class SeedError(Exception):
    """The runner refused a seed."""


class RunSeeds:
    """A connection to the runner's `SeedServer` at this address."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(in_no_folder(address))
        self._clock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._clock.connect(in_no_folder(address + CLOCK))

    def await_turn(self, *, on_gpu: bool) -> int:
        """Return when no other process of the run works, with the number of those that wait with a context on the GPU.

        `on_gpu` says whether this process has a context there.
        """
        return int.from_bytes(self._answer(Message("turn", int(on_gpu))))

    def untimed(self) -> int:
        """A seed for a run that is not judged."""
        return self._seed(Message("untimed"))

    def timed(self, run: int, runs: int) -> int:
        """The seed of this one of `runs` timed runs, counted from 0; each once, after the one before has ended."""
        return self._seed(Message("timed", run, runs))

    def shared(self, run: int) -> int:
        """The seed of one of SHARED_RUNS, which all stages of a round share."""
        return self._seed(Message("shared", run))

    def stamp(self, mark: Literal["begin", "end"]) -> None:
        """Have Linux note the time. The runner reads it with the next request, so that it does not wake up now."""
        self._clock.send(MARKS[mark])

    def finished(self) -> list[int]:
        """End the timed runs; returns the runs whose parameters to keep, the judged one first."""
        return msgspec.msgpack.decode(self._answer(Message("finished")), type=list[int])

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
        self._clock.close()

    def _seed(self, message: Message) -> int:
        return int.from_bytes(self._answer(message))

    def _answer(self, message: Message) -> bytes:
        self._socket.send(msgspec.msgpack.encode(message))
        answer = self._socket.recv(MESSAGE_BYTES)
        if not answer:
            raise SeedError(REFUSED)
        return answer


def in_no_folder(address: str) -> str:
    """Linux's name of a socket that has no file, and so no limit to the length of its folder's path."""
    return f"\0{address}"
