"""Replays recorded calls of kernels without Python between them, on one thread or on several that meet at barriers."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from common.cpu.compiled import atomic_add, atomic_load, atomic_store, call, kernel, words

LINE = 8  # words in a cache line: numbers of different threads keep apart
SPINS = 4000  # before a waiting thread gives its core away, some tens of microseconds


@kernel()
def replay(row):
    """Call kernels in order. Row: address of pairs (kernel, its row), number of pairs."""
    calls = words(row[0], 2 * row[1])
    for at in range(row[1]):
        call(calls[2 * at], calls[2 * at + 1])


@kernel()
def barrier(row):
    """Wait for all threads. Row: address of the arrivals, address of the rounds, number of threads, sched_yield.

    The last thread to arrive begins the next round; the others wait for that. A thread that waits for long gives its
    core away, so that more threads than cores cannot block one another.
    """
    arrived, rounds, threads = row[0], row[1], row[2]
    before = atomic_load(rounds)
    if atomic_add(arrived, 1) == threads - 1:
        atomic_store(arrived, 0)
        atomic_add(rounds, 1)
        return
    spins = 0
    while atomic_load(rounds) == before:
        spins += 1
        if spins > SPINS:
            call(row[3], 0)
