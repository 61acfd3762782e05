"""What the session and its worker processes tell each other, over a socket in the run's scratch folder."""

from __future__ import annotations

from typing import Any

import msgspec

from ladder.records.run import Process
from ladder.records.torch_run import ModelRecord, TorchCheck
from ladder.torch_model.facts import ModelFacts


class TorchJob(msgspec.Struct, frozen=True):
    """What a worker is to do; it lies in the worker's folder."""

    model: str  # the user's file
    epochs: int | None
    rungs: list[str]
    round: int
    repeats: int
    address: str  # of the session's socket
    reference: str  # the file of the reference; who needs it and finds none makes it
    is_first: bool = False  # of the run: the turn is its own from the beginning
    has_others: bool = False  # processes of the same round, which compare with what the first one adds to the reference
    judged: list[str] = []  # those of the rungs whose training is compared
    is_timed: bool = False  # waits for an order after each rung, which may be to time it


class Message(msgspec.Struct, frozen=True, tag=True):
    """From a worker to the session."""


class Described(Message, frozen=True):
    """The user's file fits the contract."""

    model: ModelRecord
    epochs: int
    facts: ModelFacts | None = None  # None where they cannot be found out


class Refused(Message, frozen=True):
    """The user's file does not fit; the line says why."""

    line: str


class Tried(Message, frozen=True):
    """Eager's first steps, before it is judged."""

    step_s: float


class Judging(Message, frozen=True):
    """One of the trainings begins that make the reference."""

    run: int  # from 1 on
    runs: int


class Referenced(Message, frozen=True):
    """The reference is there."""

    kind: str
    is_repeatable: bool
    waits: list[str]


class Judged(Message, frozen=True):
    """A rung is prepared and compared, or cannot be."""

    rung: str
    misfit: str = ""  # why the model cannot have it
    error: str = ""  # what it raised
    checks: list[TorchCheck] = []
    error_ratio: float | None = None
    same_bits: bool = False
    began: float = 0.0  # by the clock that all processes share, when the rung was built
    first_step_s: float = 0.0
    peak_mib: float | None = None
    notes: list[str] = []


class Timed(Message, frozen=True):
    """A rung's timed runs."""

    rung: str
    measured: Process
    steps: int
    host_s: list[float]
    step_joules: float | None = None


class Failed(Message, frozen=True):
    """A rung raised while it was timed."""

    rung: str
    error: str


class Done(Message, frozen=True):
    """All rungs of the process are done; it ends."""


class Time(msgspec.Struct, frozen=True, tag=True):
    """From the session: time this rung now. An empty name means none: go on."""

    rung: str
    energy_s: float = 0.0
    waiting: int = 0  # other processes of the session on the GPU


ANY = Described | Refused | Tried | Judging | Referenced | Judged | Timed | Failed | Done


def encoded(message: Any) -> bytes:
    """A message's bytes."""
    return msgspec.msgpack.encode(message)


def read(raw: bytes) -> ANY:
    """A worker's message."""
    message: ANY = msgspec.msgpack.decode(raw, type=ANY)
    return message


def read_order(raw: bytes) -> Time:
    """The session's message."""
    return msgspec.msgpack.decode(raw, type=Time)
