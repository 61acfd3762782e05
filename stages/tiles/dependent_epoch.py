"""An epoch as a graph whose kernels start before their predecessor ends (common/cuda/dependent_launch.py)."""

from __future__ import annotations

from typing import ClassVar

from stages.classic.r6_cuda_graph import GraphEpoch
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Setup


class DependentEpoch(GraphEpoch):
    """A captured epoch of kernels that start early and wait for their predecessor."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "sm_90")
    are_dependents: ClassVar[bool] = True  # less than a node's time lies between kernels

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:
        with setup.device.dependent():
            images, labels = next(iter(setup.tensors.batches))
            step(images, labels, with_totals=True)  # loads the waiting kernels before the capture
            super().__init__(setup, step, metrics)
