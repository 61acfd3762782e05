"""JAX vmap: `jax.vmap` of the scanned epoch trains several networks.

Why: `vmap` makes batched products of a program that is written for one network, which is why people who train many
small networks use JAX.

Change: none; it is a reference, not a rung. It is `jax-scan` with stacks of parameters. All networks see the same
batches, so the data are not stacked.

Expect: on an H100 16.2 us per step for seven softmax regressions and 28.7 for sixty-four, 55 for seven of 784-128x3-10
in batches of 32: trials of an earlier day.

Found: it is a little faster than in the earlier trials. All networks share the images, so that sixty-four softmax
regressions take about twice as long as seven (study `fleet`). It is ahead of `fleet-graph` at every recorded point, and
takes twice as long as `fleet-cluster` or more.
"""

from __future__ import annotations

from typing import Any

from common.trainer import EpochMetrics
from stages.engine.stage import Stage
from stages.references.jax_scan import JaxScanTrainer, Product, epoch_of, untuned


class JaxVmapTrainer(JaxScanTrainer):
    """`JaxScanTrainer` over layers [(K, I, O), (K, O)]."""

    def _written(self, product: Product, unroll: int) -> Any:
        import jax

        problem = self._problem
        rates = jax.numpy.array(problem.rates) if problem.learning_rates else None

        def epoch(layers: Any, images: Any, labels: Any, *, with_totals: bool) -> Any:
            def of_one(layers: Any, rate: Any) -> Any:
                return epoch_of(problem, product, unroll, rate)(layers, images, labels, with_totals=with_totals)

            return jax.vmap(of_one, in_axes=(0, None if rates is None else 0))(layers, rates)

        return epoch

    def _metrics(self, loss: Any, accuracy: Any) -> EpochMetrics:
        of_each = zip(loss.tolist(), accuracy.tolist(), strict=True)
        return EpochMetrics.over([EpochMetrics(*one) for one in of_each])


STAGE = Stage(
    "jax-vmap",
    "JAX, networks by vmap of a scan",
    "reference",
    "float32",
    ("jax",),
    JaxVmapTrainer,
    first_updates_within=untuned,
    is_fleet=True,
)
