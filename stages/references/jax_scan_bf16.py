"""JAX scan in bfloat16: the epoch of `jax-scan` with products of bfloat16 factors.

Why: rungs in bfloat16 and float16 need a strong reference of their own class, and `jax-scan` is the fastest one of
float32 in several networks.

Change: none; it is a reference, not a rung. Factors of every product are rounded to bfloat16, forward and backward,
and products are added up in float32. Parameters, gradients, biases and the loss stay float32. Images are kept in
bfloat16, where they are exact.

Expect: as long as `jax-scan` in small networks, where launches take the time, and less in wide ones, where tensor
cores and half the bytes of factors count. How much less is not estimated: every step reads all weights as float32.

Predict: on H200: 784-10, batch 128: 1 x of jax-scan.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from stages.engine.stage import Stage
from stages.references.jax_scan import JaxScanTrainer, Product, untuned


def bfloat16_product(inputs: Any, weight: Any) -> Any:
    """Inputs (B, I) and weight (I, O), rounded to bfloat16, to outputs (B, O) summed in float32."""
    return _product()(inputs, weight)


@cache
def _product() -> Product:
    """The product with its gradient, made late: a machine without JAX still lists the stage."""
    import jax
    import jax.numpy as jnp

    def rounded(left: Any, right: Any) -> Any:
        return jnp.dot(left.astype(jnp.bfloat16), right.astype(jnp.bfloat16), preferred_element_type=jnp.float32)

    @jax.custom_vjp  # type: ignore[untyped-decorator, unused-ignore]
    def product(inputs: Any, weight: Any) -> Any:
        return rounded(inputs, weight)

    def forward(inputs: Any, weight: Any) -> Any:
        return rounded(inputs, weight), (inputs, weight)

    # By hand, since JAX would leave the gradient of the outputs in float32, and XLA then multiplies in float32.
    def backward(factors: Any, doutputs: Any) -> Any:
        inputs, weight = factors
        return rounded(doutputs, weight.T).astype(inputs.dtype), rounded(inputs.T, doutputs)

    product.defvjp(forward, backward)
    return product  # type: ignore[no-any-return, unused-ignore]


STAGE = Stage(
    "jax-scan-bf16",
    "JAX, an epoch in a scan, bfloat16",
    "reference",
    "bfloat16",
    ("jax", "gpu"),  # no rung on a CPU is in its class
    partial(JaxScanTrainer, name="jax-scan-bf16", product=bfloat16_product, images="bfloat16"),
    words="the same in bfloat16",
    first_updates_within=untuned,
)
