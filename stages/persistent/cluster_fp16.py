"""Persistent cluster, float16: each factor is one float16 instead of the sum of two.

Why: two halves a factor keep float32's class. They double the instructions of the first layer's passes and the bytes
of every message, and have to be split in every phase.

Change: launch. The same kernel, compiled for one half a factor. A fragment's sixteen rows hold sixteen units instead
of eight in two halves, and partial sums travel as float16. Weights and sums stay float32. float16 has three bits more
than bfloat16 at no cost here: images are exact in it, and these networks' numbers stay far below its limit. For
networks with hidden layers only.

Expect: 5 us per step for 784-256-10 with batches of 128, 5.8 us for 784-128-128-128-10 with batches of 32.

Predict: on H200: 784-256-10, batch 128: 5 us; 784-128x3-10, batch 32: 5.8 us.

Found: both networks beat their estimates: messages have half the bytes and no factor is split any more, so update and
exchange gain as much as the products. 784-256-10 gains more than 784-128x3-10, whose narrow layers spend more of a step
on hops between blocks, which fewer bytes hardly shorten.
"""

from __future__ import annotations

from typing import ClassVar

from common.cost import Arithmetic
from common.problem import Problem
from stages.engine.recipe import Precision
from stages.persistent import cluster_plan, persistent_cluster
from stages.persistent.persistent_cluster import ClusterEpoch


class Float16Cluster(ClusterEpoch):
    """An epoch by one cluster of blocks in float16, for networks with hidden layers."""

    precision: ClassVar[Precision] = "float16"
    halves: ClassVar[int] = cluster_plan.ROUNDED
    arithmetic: ClassVar[tuple[Arithmetic, ...]] = (Arithmetic("float16", multiprocessors=cluster_plan.BLOCKS),)

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem with `steps` steps an epoch does not fit; empty if it fits."""
        if not problem.hidden:
            return "Needs at least one hidden layer."
        return super().misfit(problem, steps)


STAGE = persistent_cluster.STAGE.climb(
    "cluster-fp16", "Persistent cluster, float16", words="the same in float16", launch=Float16Cluster
)
