"""A persistent cluster, in float16: factors are rounded to one float16 where persistent-cluster has two.

Why: as for persistent-cluster. Two halves to a factor keep float32's class, and cost twice the instructions of the
first layer's passes, twice the bytes of every message, and their splitting, in every phase between two messages.

Change: launch. The same kernel, compiled for one half: a fragment's sixteen rows are units, which were eight in two
halves, and parts of sums travel as float16. Weights and sums stay float32. Not bfloat16, since images are float16
already, exactly, and three more bits are free: numbers of these networks keep far from where float16 ends. Networks
with hidden layers only.

Expect: 5 us a step for 784-256-10 with batches of 128, 5.8 us for 784-128-128-128-10 with batches of 32.

Found: 4.20 and 5.12 us on an H200, where persistent-cluster takes 6.14 and 6.56: 16 and 12 % less than expected,
since the update and the exchange gain as much as the products do (docs/notes.md).
"""

from __future__ import annotations

from typing import ClassVar

from common.problem import Problem
from stages.engine.recipe import Precision
from stages.persistent import cluster_plan, r1_persistent_cluster
from stages.persistent.r1_persistent_cluster import ClusterEpoch


class Float16Cluster(ClusterEpoch):
    """An epoch by one cluster of blocks, for networks with hidden layers."""

    precision: ClassVar[Precision] = "float16"
    rung: ClassVar[str] = "cluster-fp16"
    halves: ClassVar[int] = cluster_plan.ROUNDED

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:
        """Why a problem of so many steps an epoch does not fit, and what to try; empty if it does."""
        if not problem.hidden:
            return f"no hidden layers: it takes networks that have some; try {r1_persistent_cluster.STAGE.name}"
        return super().misfit(problem, steps)


STAGE = r1_persistent_cluster.STAGE.climb("cluster-fp16", "Persistent cluster, float16", launch=Float16Cluster)
