"""The fastest of several ways to do the same on this GPU: tried out once, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import cupy

from common.cuda.tuning_cache import CLEARLY, Choices

LAUNCHES, TURNS = 20, 5  # of each candidate: so many in a graph, lest the host be what is timed, in so many turns
TURN_S = 2e-3  # a turn of a sweep may take about so long, or a launch
SWEEP_TURNS = 7
HOPELESS = 4.0  # times the fastest: a launch that takes a turn by itself is not repeated then

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
    """The best time of a launch of each, of several in a row on the device."""
    return [min(times) for times in samples(gpu, candidates, [LAUNCHES] * len(candidates), TURNS)]


def sweep(gpu: Capturing, candidates: Sequence[Enqueue]) -> list[list[float]]:
    """The seconds of a launch of each in several turns, of which there is one for those that are slow by far."""
    found = samples(gpu, candidates, [1] * len(candidates), 1)
    rough = [time for (time,) in found]
    hopeful = [i for i, time in enumerate(rough) if time < TURN_S or time < HOPELESS * min(rough)]
    launches = [min(max(int(TURN_S / rough[i]), 1), LAUNCHES) for i in hopeful]
    for i, times in zip(hopeful, samples(gpu, [candidates[i] for i in hopeful], launches, SWEEP_TURNS), strict=True):
        found[i] = times
    return found


def samples(gpu: Capturing, candidates: Sequence[Enqueue], launches: Sequence[int], turns: int) -> list[list[float]]:
    """The seconds of a launch of each, of so many in a row on the device; in turns, so that clocks favour none."""

    def several(enqueue: Enqueue, count: int) -> None:
        for _ in range(count):
            enqueue()

    replays = [gpu.capture(partial(several, *each)) for each in zip(candidates, launches, strict=True)]
    times: list[list[float]] = [[] for _ in replays]
    for turn in range(-1, turns):  # one before they count, to warm up
        for index, replay in enumerate(replays):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(gpu.stream)
            replay()
            end.record(gpu.stream)
            end.synchronize()
            if turn >= 0:
                times[index].append(float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3 / launches[index])
    return times
