"""Joules per epoch, by the counter that NVML keeps of the whole GPU: a stage trains on after its timed runs.

The counter moves some ten times a second. So training lasts for seconds, and begins and ends where the counter moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ladder.records.run import Energy

LEAST_S = 5.0  # of training; two such loops of a process agree within 1.3 %
IDLE_S = 1.0  # of no work, before which the GPU waits as long
APART_S = 0.005  # readings of the counter, at least
STILL_S = 2.0  # after which a counter that has not moved counts as none

Read = Callable[[], float | None]
Clock = Callable[[], float]


class CounterError(Exception):
    """The counter does not move, or NVML refuses to read it; the message says which."""


def energy_of(
    train: Callable[[int], None], epoch_s: float, a_run: int, read: Read, clock: Clock = time.perf_counter
) -> Energy:
    """What training draws, and the GPU without work; raises CounterError.

    `train` trains for a number of epochs and waits for them: `a_run`, the epochs of a timed run, and fewer near the
    counter's moves, by `epoch_s`, an epoch's time in seconds. `read` gives the counter in joules.
    """
    trained, few = 0, max(1, min(a_run, round(APART_S / epoch_s))) if epoch_s > 0 else 1

    def go_on(epochs: int = few) -> None:
        nonlocal trained
        train(epochs)
        trained += epochs

    began, first = _next_move(read, go_on, clock)
    trained = 0
    while clock() - began < LEAST_S:
        go_on(a_run)
    ended, last = _next_move(read, go_on, clock)
    time.sleep(IDLE_S)
    idle_began, idle_first = _next_move(read, _rest, clock)
    time.sleep(IDLE_S)
    idle_ended, idle_last = _next_move(read, _rest, clock)
    return Energy(
        joules=(last - first) / trained,
        watts=(last - first) / (ended - began),
        idle_w=(idle_last - idle_first) / (idle_ended - idle_began),
        seconds=ended - began,
    )


def _rest() -> None:
    time.sleep(APART_S)


def _next_move(read: Read, meanwhile: Callable[[], None], clock: Clock) -> tuple[float, float]:
    """The time at which the counter moves, and its reading then."""
    before, began = read(), clock()
    while before is not None:
        meanwhile()
        now = read()
        if now is not None and now != before:
            return clock(), now
        if clock() - began > STILL_S:
            raise CounterError("NVML's counter of energy stands still")
    raise CounterError("NVML does not count this GPU's energy")
