"""Large batch, dependent launch: the two kernels of our own are launched before the library's products end.

Why: at 512 images each of the four kernels takes 2.5 to 3.6 us, and a quarter of the images makes a step only 1.2 us
shorter. Part of the rest is the time between kernels, as in dependent-launch. There the edges beside the library's
products stayed ordinary. Here every edge has a product at one end.

Change: launch. Both kernels are compiled with the two instructions of dependent-launch and captured as programmatic
dependents of the products in front of them. Each waits until that product is complete before it reads or writes. The
products' own edges stay ordinary.

Expect: 0.7 us a step less than large-batch-fp16, at any batch: two of four launches are early. The first versions of
both kernels gained 0.7 us at 512 and 0.8 at 2,048 and 8,192.

Predict: on H200: 784-256-10, batch 8192: 0.5 to 1 us less than large-batch-fp16; 784-256-10, batch 2048: 0.5 to 1 us
less than large-batch-fp16; 784-256-10, batch 512: 0.5 to 1 us less than large-batch-fp16.

Found: in a trial on an H200, 27.2 us instead of 28.2 at 8,192, 16.0 instead of 17.0 at 2,048 and 12.3 instead of 13.0
at 512, with the same bits. Recorded on an H200 at f86008a nothing is left of it: 27.8 instead of 28.0, 16.1 instead of
16.0 and 13.1 instead of 12.8. Two halves a number gained 0.7 to 1.3 us. Another way to hide a launch was slower by 1.1
to 1.8: the last layer's update on a branch beside the weight gradient. On an H100, trials lost at 8,192 images: 30.3 us
instead of 29.9, and in 784-128x3-10 38.8 instead of 36.5. A verified run of one process took 37.9 instead of 37.7 there
(docs/notebook/large-batch.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

from stages.engine.workspace import Setup
from stages.large_batch import r2_large_batch_fp16
from stages.large_batch.r2_large_batch_fp16 import Float16Epoch


class DependentFloat16Epoch(Float16Epoch):
    """An epoch in float16 whose own kernels start early and wait for the product in front of them."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_90")
    are_dependents: ClassVar[bool] = True  # less than a node's time lies between kernels

    def kernel(self, setup: Setup, name: str, macros: tuple[tuple[str, str], ...], shared_bytes: int = 0) -> Any:
        """A kernel of our own, by name, launched early."""
        return super().kernel(setup, name, macros, shared_bytes).dependent()


STAGE = r2_large_batch_fp16.STAGE.climb(
    "large-batch-dependent",
    "Large batch, dependent launch",
    words="two of its kernels start early",
    launch=DependentFloat16Epoch,
)
