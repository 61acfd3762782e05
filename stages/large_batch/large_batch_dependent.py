"""Large batch, dependent launch: the two hand-written kernels are launched before the library's products end.

Why: at 512 images each of the four kernels takes 2.5 to 3.6 us, and a quarter of the images makes a step only 1.2 us
shorter. Part of the rest is the time between kernels, as in dependent-launch. There the edges beside the library's
products stayed ordinary. Here every edge has a product at one end.

Change: launch. Both kernels are compiled with the two instructions of dependent-launch and captured as programmatic
dependents of the products in front of them. Each waits until that product is complete before it reads or writes. The
products' own edges stay ordinary.

Expect: 0.7 us per step less than large-batch-fp16, at any batch: two of four launches are early. The first versions of
both kernels gained 0.7 us at 512 and 0.8 at 2,048 and 8,192.

Predict: on H200: 784-256-10, batch 8192: 0.5 to 1 us less than large-batch-fp16; 784-256-10, batch 2048: 0.5 to 1 us
less than large-batch-fp16; 784-256-10, batch 512: 0.5 to 1 us less than large-batch-fp16.

Found: what trials had gained is not left in recorded runs: differences from its parent have either sign, and most are
noise (study `batch-size`). Only two of four launches are early, since the library's products keep ordinary edges. A
launch hidden on a branch of the graph cost more than it saved.
"""

from __future__ import annotations

from typing import Any, ClassVar

from stages.engine.workspace import Setup
from stages.large_batch import large_batch_fp16
from stages.large_batch.large_batch_fp16 import Float16Epoch


class DependentFloat16Epoch(Float16Epoch):
    """An epoch in float16 whose own kernels start early and wait for the product in front of them."""

    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas", "sm_90")
    are_dependents: ClassVar[bool] = True  # less than a node's time lies between kernels

    def kernel(self, setup: Setup, name: str, macros: tuple[tuple[str, str], ...], shared_bytes: int = 0) -> Any:
        """A kernel of our own, by name, launched early."""
        return super().kernel(setup, name, macros, shared_bytes).dependent()


STAGE = large_batch_fp16.STAGE.climb(
    "large-batch-dependent",
    "Large batch, dependent launch",
    words="two of its kernels start early",
    launch=DependentFloat16Epoch,
)
