"""One launch of each primitive, and the tensors that it leaves: the harness only measures primitives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[np.uint32]
BLOCKS, THREADS = 4, 256
CLUSTER = 8  # blocks
READS_AT_ONCE = 8  # primitives.cu


@dataclass(frozen=True)
class Launch:
    """Arguments in the kernel's order, and the expected values of the tensors that it changes."""

    grid: int = BLOCKS  # clusters, if there is a cluster
    block: int = THREADS
    args: Mapping[str, Array | int] = field(default_factory=dict)
    left: Mapping[str, Array] = field(default_factory=dict)
    cluster: int | None = None
    cooperative: bool = False


def launch_of(kernel: str, random: Generator) -> Launch:
    """The launch of a primitive; LookupError if there is none."""
    value = random.integers(0, 1 << 31, BLOCKS * THREADS, dtype=np.uint32)
    data = np.zeros((2 * READS_AT_ONCE * BLOCKS * THREADS, 4), np.uint32)  # two rounds of reads, then again
    data[THREADS + 1, 2] = 1  # the sum of one thread makes it write
    first_half = (np.arange(len(data)) < len(data) // 2).astype(np.uint32)[:, None]  # is updated twice by three batches
    order = random.permutation(1000).astype(np.uint32)
    following = np.empty_like(order)
    following[order] = np.roll(order, -1)
    steps = 700
    start = int(np.flatnonzero(order == 0)[0])
    end = order[(start + steps) % len(order)]
    launches = {
        "empty": Launch(),
        "pass_on": Launch(args={"value": value}, left={"value": value + 1}),
        "pass_on_early": Launch(args={"value": value}, left={"value": value + 1}),
        "block_barrier": Launch(args={"rounds": 5}),
        "grid_barrier": Launch(
            args={"arrived": _words(0), "rounds": 5}, left={"arrived": _words(5 * BLOCKS)}, cooperative=True
        ),
        "cluster_barrier": Launch(1, args={"rounds": 5}, cluster=CLUSTER),
        "cluster_hop": Launch(1, args={"rounds": 5}, cluster=CLUSTER),
        "follow_chain": Launch(
            1, 1, args={"next": following, "end": _words(0), "steps": steps}, left={"end": _words(int(end))}
        ),
        "read_repeatedly": Launch(
            args={"data": data, "sink": _words(0), "count": len(data), "batches": 2}, left={"sink": _words(1)}
        ),
        "update_repeatedly": Launch(
            args={"data": data, "count": len(data), "batches": 3}, left={"data": data + first_half + np.uint32(1)}
        ),
        "peer_hop": Launch(
            1,
            1,
            args={"own": _words(8), "other": _words(7), "first": 1, "before": 7, "rounds": 1},
            left={"other": _words(8)},
        ),
    }
    if kernel not in launches:
        raise LookupError(f"{kernel}: has no launch in tests/kernels/primitive_launches.py")
    return launches[kernel]


def _words(word: int) -> Array:
    return np.full(1, word, np.uint32)
