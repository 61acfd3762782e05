"""Large batch, plain products: the library only multiplies, and adds each product to the weights.

Why: large-batch-wide takes 138 us at 94-2831-390-1720-1429-3 in batches of 389, where arithmetic takes 13. The library
has ReLU's backward mask only in kernels of older chips, which take up to twice as long as a plain product, and longer
still beside weight gradients. The update reads 18 MB of gradients that products have just written.

Change: launch. Products back have no epilogue; a kernel of our own sets what ReLU cut off to 0. A product of the weight
gradients adds to a padded float32 copy of the weights, minus the learning rate times. These products follow the last
one back, each on its own branch of the graph, and one kernel rounds all weights. Parameters are copied once an epoch.

Expect: products back take 8 us instead of 14, a mask 2, and the rounding 8 instead of 27, while the products that add
take 3 more: 94-2831-390-1720-1429-3 at 389 images 95 us, 94-2600-2191-17-414-52 at 138 81, 191-1166-192-135-1662-29 at
751 61, 368-527-1495-25-56-24 at 325 48, 413-1040-87-688-8 at 730 45, 342-2059-199-4 at 184 31.

Predict: on H200: 94-2831-390-1720-1429-3, batch 389: 95 us; 94-2600-2191-17-414-52, batch 138: 81 us.

Found: as predicted, the first two take 96.7 and 81.3 us, 1.33 and 1.38 times as fast as large-batch-wide. The others
take 5 to 18% longer than expected, and two no less than large-batch-wide: a mask of 1.4 to 1.9 us takes back what a
small product saves. Gradients that begin as soon as they can make steps up to 8% longer.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from common.cost import Weights
from stages.engine.parts import blocks, float32, int32
from stages.engine.recipe import Metrics, RunStep
from stages.engine.workspace import Array, Setup
from stages.large_batch import large_batch_wide
from stages.large_batch.large_batch_wide import ROWS, THREADS, WideEpoch, macros

EACH = 8  # padded_plain.cu: numbers of a thread


class PlainEpoch(WideEpoch):
    """An epoch on padded matrices whose weight gradients are added to the weights, not written."""

    weights: ClassVar[Weights | None] = "updated"

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None:
        begins = setup.tensors.parameters.weight_begins, setup.tensors.parameters.bias_begins
        kernel = partial(setup.kernel, "large_batch/padded_plain.cu", macros=macros(setup.problem, *begins))
        self._mask, self._round, self._move = kernel("mask_padded"), kernel("round_padded"), kernel("move_padded")
        super().__init__(setup, step, metrics)
        for layer, weights in zip(setup.problem.layers[:-1], self._by_layer, strict=False):
            weights[layer.fan_in, layer.fan_out] = 1

    def _epoch(self, with_totals: bool) -> None:
        """Take over the parameters, which may be new, train on every batch, and give them back."""
        self._enqueue_move(back=False)
        self._round_all(with_totals=False)
        for batch in self._batches:
            self._step(*batch, with_totals)
        self._enqueue_move(back=True)

    def _step(self, images: Array, labels: Array, with_totals: bool) -> None:
        inputs, batch = [images, *self._outputs], self._problem.batch_size
        for layer, fusion in enumerate(self._forward):
            self._product(inputs[layer], self._weights[layer], inputs[layer + 1], False, False, 1.0, 0.0, fusion)
        self._product(inputs[-1], self._weights[-1], self._logits, False, False, 1.0, 0.0)
        totals = self._block_totals, int32(batch), float32(self._scale / batch), int32(with_totals)
        self._softmax(blocks(batch, ROWS), THREADS, self._logits, labels, self._douts[-1], *totals)
        for layer in reversed(range(1, len(inputs))):
            below, columns = self._douts[layer - 1], inputs[layer].shape[1]
            self._product(self._douts[layer], self._weights[layer], below, False, True, 1.0, 0.0)
            sizes = map(int32, (batch, columns, self._problem.hidden[layer - 1]))
            self._mask(blocks(batch * columns, EACH * THREADS), THREADS, inputs[layer], below, *sizes)
        rate = self._problem.learning_rate / self._scale
        for layer, weights in enumerate(self._by_layer):
            with self._device.beside(layer):
                self._product(inputs[layer], self._douts[layer], weights, True, False, -rate, 1.0)
        self._device.join()
        self._round_all(with_totals)

    def _round_all(self, with_totals: bool) -> None:
        arrays = self._gradients, self._halves, self._block_totals, self._tensors.totals
        sizes = map(int32, (self._gradients.size, len(self._block_totals), with_totals))
        self._round(blocks(self._gradients.size, EACH * THREADS), THREADS, *arrays, *sizes)

    def _enqueue_move(self, back: bool) -> None:
        parameters = self._tensors.parameters.flat
        self._move(self._update_blocks, THREADS, parameters, self._gradients, int32(back))


STAGE = large_batch_wide.STAGE.climb(
    "large-batch-plain",
    "Large batch, plain products",
    words="plain products, which add to the weights",
    launch=PlainEpoch,
)
