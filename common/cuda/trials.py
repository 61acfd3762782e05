"""The fastest of several ways to do the same on this GPU: tried out once, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import cupy

from common.cuda.tuning import Choices

LAUNCHES, TURNS = 20, 5  # of each candidate: so many in a graph, lest the host be what is timed, in so many turns
CLEARLY = 0.98  # of the time of one that comes before it: less is noise, and would differ between processes

Enqueue = Callable[[], None]


class Capturing(Protocol):
    """A GPU with a stream that can be captured: `common.cuda.gpu.Gpu`."""

    stream: Any

    def capture(self, enqueue: Enqueue) -> Enqueue:
        """Record what is enqueued, and return what replays it."""


class Trials:
    """Choices about one subject, for all trainers and all processes alike, so that what is judged is what is timed."""

    def __init__(self, gpu: Capturing, subject: str) -> None:
        self._gpu = gpu
        self._choices = Choices(subject)

    def fastest(self, purpose: str, candidates: Sequence[Enqueue]) -> int:
        """Which candidate is the fastest; likelier ones first, which win where nobody is clearly faster.

        Each must do the same whenever it is repeated, and have been called before if its first call does more.
        """
        best = self._choices.get(purpose)
        if best is None or not 0 <= best < len(candidates):
            times = seconds(self._gpu, candidates)
            best = 0
            for candidate, time in enumerate(times):
                if time < CLEARLY * times[best]:
                    best = candidate
            self._choices.keep(purpose, best)
        return best


def seconds(gpu: Capturing, candidates: Sequence[Enqueue]) -> list[float]:
    """The best time of a launch of each, of several in a row on the device; in turns, so that clocks favour none."""

    def several(enqueue: Enqueue) -> None:
        for _ in range(LAUNCHES):
            enqueue()

    replays = [gpu.capture(partial(several, candidate)) for candidate in candidates]
    times = [float("inf")] * len(replays)
    for turn in range(-1, TURNS):  # one before they count, to warm up
        for index, replay in enumerate(replays):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(gpu.stream)
            replay()
            end.record(gpu.stream)
            end.synchronize()
            if turn >= 0:
                times[index] = min(times[index], float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3 / LAUNCHES)
    return times
