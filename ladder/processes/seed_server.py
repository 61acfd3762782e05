"""The runner's end of the channel by which a worker asks for its turn and for seeds: see `ladder.measure.seeds`."""

from __future__ import annotations

import os
import secrets
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Self

import msgspec

from ladder.measure.protocol import SHARED_RUNS
from ladder.measure.seeds import CLOCK, MARKS, MESSAGE_BYTES, Message, in_no_folder

SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
TIMESPEC = struct.Struct("ll")
CREDENTIALS = struct.Struct("3i")  # of the process at the other end of a socket: its id comes first
JUDGED_RUN = 0  # its number
KEPT_BYTES = 1 << 28  # of the timed runs' parameters, on disk until they are checked; the judged run's at least


@dataclass
class Attempt:
    """What one worker was given, and when its runs began and ended."""

    judged: int | None = None
    """The place of the judged run among the timed ones; drawn with the first seed."""
    seeds: list[int] = field(default_factory=list)
    """Of the timed runs, in order."""
    kept: list[int] = field(default_factory=list)
    """The runs whose parameters are on disk, the judged one first."""
    stamped_s: list[float | None] = field(default_factory=list)
    """The seconds of warm-ups and timed runs, by Linux; None where it noted no times."""
    warmups: int = 0
    began: float | None = None


class SeedServer(Thread):
    """Serves one worker after the other, such as a second attempt at the same job, inside its context.

    The judged run and the short runs start from parameters that all stages of a round share: the oracle repeats them.
    `shared_seed` gives their seeds by number. Every other seed is drawn now and never again: results of an earlier
    attempt or of another stage fit none.

    With `held`, a worker that asks for its turn waits until `give_turn`.
    """

    def __init__(self, shared_seed: Callable[[int], int], parameter_bytes: int, *, held: bool = False) -> None:
        super().__init__(daemon=True)
        self.attempt = Attempt()
        self.waits_on_gpu = False
        """Whether the worker waits for its turn and has a context on the GPU."""
        self.waits = Event()
        """Set when the worker has asked for its turn."""
        self._turn, self._others = Event(), 0
        self._worker: int | None = None  # a descriptor that can be read once the worker has ended
        if not held:
            self._turn.set()
        self.address = f"ladder-{secrets.token_hex(16)}"
        self._shared_seed, self._parameter_bytes = shared_seed, parameter_bytes
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(in_no_folder(self.address))
        self._listener.listen()
        self._clock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._clock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._clock.bind(in_no_folder(self.address + CLOCK))
        self._ended, self._end = socket.socketpair()

    def __enter__(self) -> Self:
        self.start()
        return self

    def give_turn(self, others: int) -> None:
        """Let the worker go on; `others` wait with a context on the GPU."""
        self._others, self.waits_on_gpu = others, False
        self._turn.set()

    @property
    def worker_has_ended(self) -> bool:
        """Whether the first worker has ended, and so left the GPU; False where Linux does not tell."""
        return self._worker is not None and bool(select.select([self._worker], [], [], 0)[0])

    def __exit__(self, *_: object) -> None:
        self._turn.set()
        self._end.close()
        self.join()
        for connection in (self._listener, self._clock, self._ended):
            connection.close()
        if self._worker is not None:
            os.close(self._worker)
            self._worker = None

    def run(self) -> None:
        """Serve until the context ends."""
        while self._readable(self._listener):
            connection, _ = self._listener.accept()
            with connection:
                told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
                if self._worker is None:
                    with suppress(OSError):  # Linux before 5.3
                        self._worker = os.pidfd_open(CREDENTIALS.unpack(told)[0])
                self._read_clock()  # marks of an earlier worker
                self.attempt = Attempt()
                while self._readable(connection) and self._serve(connection):
                    pass

    def _readable(self, source: socket.socket) -> bool:
        """Wait for the source; False if the context ends first."""
        ready, _, _ = select.select([source, self._ended], [], [])
        return self._ended not in ready

    def _serve(self, connection: socket.socket) -> bool:
        """Answer one message; False for one that is out of order, and at the end of the connection."""
        try:
            raw = connection.recv(MESSAGE_BYTES)
            self._read_clock()
            if raw and (answer := self._answer(msgspec.msgpack.decode(raw, type=Message))) is not None:
                connection.send(answer)
                return True
        except (OSError, msgspec.DecodeError):
            pass
        return False

    def _read_clock(self) -> None:
        """Take the marks that have come in, with the times at which Linux received them."""
        while True:
            try:
                mark, stamps, _, _ = self._clock.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(TIMESPEC.size))
            except BlockingIOError:
                return
            seconds, nanoseconds = TIMESPEC.unpack(stamps[0][2]) if stamps else (0, 0)
            at, attempt = seconds + nanoseconds / 1e9, self.attempt
            if mark == MARKS["begin"]:
                attempt.began = at
            elif attempt.began is not None:
                took = at - attempt.began  # not positive without times, and where somebody sets the clock
                attempt.stamped_s.append(took if took > 0 else None)
                attempt.began = None

    def _answer(self, message: Message) -> bytes | None:
        """The answer; None for a message that is out of order."""
        attempt = self.attempt
        match message.what:
            case "turn":
                self.waits_on_gpu = bool(message.number) and not self._turn.is_set()
                self.waits.set()
                self._turn.wait()
                return self._others.to_bytes(4)
            case "untimed":
                return secrets.token_bytes(16)
            case "shared" if message.number in SHARED_RUNS:
                return self._shared_seed(message.number).to_bytes(16)
            case "timed" if message.number == len(attempt.seeds) and not attempt.kept:
                return self._timed_seed(message.of)
            case "finished" if attempt.judged is not None and not attempt.kept:
                others = [run for run in range(len(attempt.seeds)) if run != attempt.judged]
                room = max(0, KEPT_BYTES // self._parameter_bytes - 1)
                attempt.kept = [attempt.judged, *secrets.SystemRandom().sample(others, min(room, len(others)))]
                return msgspec.msgpack.encode(attempt.kept)
        return None

    def _timed_seed(self, runs: int) -> bytes | None:
        """The next timed run's seed, of `runs`; None if the run before has not ended."""
        attempt = self.attempt
        if attempt.judged is None:
            attempt.judged, attempt.warmups = secrets.randbelow(max(runs, 1)), len(attempt.stamped_s)
        if attempt.began is not None or len(attempt.stamped_s) != attempt.warmups + len(attempt.seeds):
            return None
        is_judged = len(attempt.seeds) == attempt.judged
        attempt.seeds.append(self._shared_seed(JUDGED_RUN) if is_judged else secrets.randbits(128))
        return attempt.seeds[-1].to_bytes(16)
