"""Timing of interchangeable candidates on this GPU; choices are kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from common.choice import TuningCache, await_turn, first_fastest

LAUNCHES_PER_TURN, TURNS = 20, 7  # a graph replays the launches, so the host's time does not count
TURN_S = 2e-3  # target length of a turn; a longer launch is a turn of its own
SKIP_TIME_RATIO = 4.0  # a launch longer than TURN_S gets one turn if it takes this many times the fastest

Enqueue = Callable[[], None]


class Capturing(Protocol):
    """A GPU with a stream that can be captured: `common.cuda.gpu.Gpu`."""

    stream: Any

    def capture(self, enqueue: Enqueue) -> Enqueue:
        """Record what `enqueue` enqueues; return a function that replays it."""


class Trials:
    """Choices about one subject, shared by all trainers and processes: the judged kernels are the timed ones.

    `before` each timed launch something else may be enqueued, such as a flush of L2; its own time does not count.
    """

    def __init__(self, gpu: Capturing, subject: str, before: Enqueue | None = None) -> None:
        self._gpu = gpu
        self._before = before
        self._choices = TuningCache(subject)

    def fastest(self, purpose: str, candidates: Sequence[Enqueue]) -> int:
        """Index of the fastest candidate; an earlier one wins unless a later one is clearly faster.

        Candidates must be repeatable. Call each once before, if its first call does extra work.
        """
        best = self._choices.get(purpose)
        if best is None:
            await_turn()
            self._choices.reload()  # a process whose turn came before may have needed the same choice
            best = self._choices.get(purpose)
        if best is None or not 0 <= best < len(candidates):
            best = self._choices.keep(purpose, first_fastest(self._seconds(candidates)))
        return best

    def _seconds(self, candidates: Sequence[Enqueue]) -> list[float]:
        before = self._before
        if before is None:
            return seconds(self._gpu, candidates)

        def both(candidate: Enqueue) -> None:
            before()
            candidate()

        before()  # its first call may allocate memory, which none may while it is captured
        own_s, *all_s = seconds(self._gpu, [before, *(partial(both, candidate) for candidate in candidates)])
        return [max(time - own_s, 0.0) for time in all_s]


def seconds(gpu: Capturing, candidates: Sequence[Enqueue]) -> list[float]:
    """Seconds per launch of each candidate, the least of all turns."""
    return [min(times) for times in sweep(gpu, candidates)]


def sweep(gpu: Capturing, candidates: Sequence[Enqueue]) -> list[list[float]]:
    """Seconds per launch of each candidate in several turns; only one turn for much slower ones."""
    samples_s = samples(gpu, candidates, [1] * len(candidates), 1)
    rough = [time for (time,) in samples_s]
    repeated = [i for i, time in enumerate(rough) if time < TURN_S or time < SKIP_TIME_RATIO * min(rough)]
    launches = [min(max(int(TURN_S / rough[i]), 1), LAUNCHES_PER_TURN) for i in repeated]
    for i, times in zip(repeated, samples(gpu, [candidates[i] for i in repeated], launches, TURNS), strict=True):
        samples_s[i] = times
    return samples_s


def samples(gpu: Capturing, candidates: Sequence[Enqueue], launches: Sequence[int], turns: int) -> list[list[float]]:
    """Seconds per launch of each candidate, `launches` in a row on the device; in turns, so clocks favour none."""
    import cupy

    def several(enqueue: Enqueue, count: int) -> None:
        for _ in range(count):
            enqueue()

    await_turn()
    replays = [gpu.capture(partial(several, *each)) for each in zip(candidates, launches, strict=True)]
    times: list[list[float]] = [[] for _ in replays]
    for turn in range(-1, turns):  # turn -1 warms up
        for index, replay in enumerate(replays):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(gpu.stream)
            replay()
            end.record(gpu.stream)
            end.synchronize()
            if turn >= 0:
                times[index].append(float(cupy.cuda.get_elapsed_time(begin, end)) / 1e3 / launches[index])
    return times
