"""JAX shard_map: the epoch of `jax-scan`, with each batch divided among the GPUs.

Why: `jax.shard_map` is how JAX writes what each device does. The compiler sees the sum over devices, and can place it.

Change: none; it is a reference, not a rung. One process drives all GPUs. Batches are divided among them, and each has
all layers. It takes the gradients of its share, then by NCCL their mean over all GPUs, and makes the update of all.

Expect: `jax-scan` takes 265 us for 784-256-10 in batches of 8,192 on an H100, so half of it and 20 for NCCL: 150. In
batches of 128 NCCL alone takes as long as half a step, so it loses.

Found: at 8,192 images it takes a sixth longer than expected; why is not explained. At 32,768 it is the fastest of the
references, and ahead of `ddp-peer` (study `two-gpus`). `ddp-halves` stays several times as fast.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from common.cuda.nccl import without_multicast
from common.errors import MisfitError
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from stages.engine.stage import Stage
from stages.references.jax_scan import JaxScanTrainer, Product, epoch_of, untuned

AXIS = "gpus"


class JaxShardTrainer(JaxScanTrainer):
    """`JaxScanTrainer` on the first `problem.gpus` devices."""

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str | None:  # noqa: ARG003
        """Why it cannot divide the batches; None if it can."""
        is_even = problem.batch_size % problem.gpus == 0
        return None if is_even else f"divides batches evenly; choose a multiple of {problem.gpus} images"

    def _placements(self) -> tuple[Any, Any]:
        jax, gpus = self._jax, self._problem.gpus
        without_multicast()
        if len(devices := jax.devices()) < gpus:
            raise MisfitError(f"JAX sees {len(devices)} of {gpus} GPUs")
        self._mesh, self.detail = jax.sharding.Mesh(devices[:gpus], (AXIS,)), f"{gpus} GPUs"
        layers, batches = (jax.sharding.NamedSharding(self._mesh, jax.P(*axes)) for axes in ((), (None, AXIS)))
        return layers, batches

    def _written(self, product: Product, unroll: int) -> Any:
        jax, epoch = self._jax, epoch_of(self._problem, product, unroll, over=AXIS)

        def on_all(layers: Any, images: Any, labels: Any, *, with_totals: bool) -> Any:
            def on_one(*share: Any) -> Any:
                layers, totals = epoch(*share, with_totals=with_totals)
                return layers, jax.lax.psum(totals, AXIS)

            each, divided = jax.P(), jax.P(None, AXIS)
            specs = {"in_specs": (each, divided, divided), "out_specs": each}
            # Unchecked: JAX would add up gradients by itself, which the step then could not write.
            return jax.shard_map(on_one, mesh=self._mesh, check_vma=False, **specs)(layers, images, labels)

        return on_all

    def _metrics(self, loss: Any, accuracy: Any) -> EpochMetrics:
        return super()._metrics(loss / self._problem.gpus, accuracy)  # a sum of means over shares

    def replicas(self) -> list[Params]:
        """The current parameters of each GPU."""

        def on(gpu: int, part: int) -> tuple[Any, ...]:
            return tuple(np.array(layer[part].addressable_shards[gpu].data) for layer in self._layers)

        return [Params(on(gpu, 0), on(gpu, 1)) for gpu in range(self._problem.gpus)]


STAGE = Stage(
    "jax-shard",
    "JAX, an epoch in a scan, by shard_map",
    "reference",
    "float32",
    ("two-gpus", "jax"),
    JaxShardTrainer,
    first_updates_within=untuned,
    takes_gpus=True,
)
