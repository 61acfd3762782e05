"""JAX scan in bfloat16: the epoch of `jax-scan` with products of bfloat16 factors.

Why: rungs in bfloat16 and float16 need a strong reference of their own class, and `jax-scan` is the fastest one of
float32 in several networks.

Change: none; it is a reference, not a rung. Factors of every product are rounded to bfloat16, forward and backward,
and products are added up in float32. Parameters, gradients, biases and the loss stay float32. Images are kept in
bfloat16, where they are exact. XLA writes the kernels of products itself; where layers are large and their widths no
multiples of four, it calls libraries.

Expect: as long as `jax-scan` in small networks, where launches take the time, and less in wide ones, where tensor
cores and half the bytes of factors count. How much less is not estimated: every step reads all weights as float32.

Predict: on H200: 784-10, batch 128: 1 x of jax-scan.

Found: libraries pad widths for tensor cores, XLA's own kernels do not. With libraries 94-2831-390-1720-1429-3 at 389
images takes 164 us instead of 263, and compiles in seconds (docs/notebook/large-batch.md).
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from common.data.dataset import Split
from common.problem import Problem
from stages.engine.stage import Stage
from stages.references.jax_scan import VARIANTS, JaxScanTrainer, Product, Variant, untuned

BY_LIBRARIES = "unroll 4, products by libraries"
LEAST, MULTIPLE = 75_000_000, 4  # multiplications of a step in odd layers; of an even width


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


def is_odd(problem: Problem) -> bool:
    """Whether layers with an odd width have `LEAST` multiplications or more in a step; classes do not count as odd.

    Fitted to 34 networks on an H200, in each of which it names a variant within 3% of the fastest one timed
    (docs/notebook/large-batch.md).
    """
    *hidden, last = problem.layers
    odd = [la for la in hidden if la.fan_in % MULTIPLE or la.fan_out % MULTIPLE] + [last] * (last.fan_in % MULTIPLE > 0)
    return problem.batch_size * sum(la.fan_in * la.fan_out for la in odd) >= LEAST


bfloat16_trainer = partial(JaxScanTrainer, name="jax-scan-bf16", product=bfloat16_product, images="bfloat16")


def build(problem: Problem, train: Split, *, variant: Variant | None = None) -> JaxScanTrainer:
    """A trainer of this variant; without one, of libraries' products for an odd network, else of `variant_for`."""
    name = BY_LIBRARIES if variant is None and is_odd(problem) else ""
    built = bfloat16_trainer(problem, train, variant=VARIANTS[name] if name else variant)
    built.detail = name or built.detail
    return built


STAGE = Stage(
    "jax-scan-bf16",
    "JAX, an epoch in a scan, bfloat16",
    "reference",
    "bfloat16",
    ("jax", "gpu"),  # no rung on a CPU is in its class
    build,
    words="the same in bfloat16",
    first_updates_within=untuned,
)
