"""Rounding to bfloat16 on GPUs without the instruction, which no GPU of the tests compiles; and that of long sums."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER
from tests.cpu_cuda.shim import Shim, Toolchain, requires_compiler
from tests.seeds import SEED

INFINITY = 0x7F800000
KERNEL = """
extern "C" __global__ void f(const unsigned* x, unsigned* y) {
    y[threadIdx.x] = rounded_to_bfloat16(x[threadIdx.x]);
}
"""


@requires_compiler
def test_it_is_the_nearest_bfloat16_and_a_nan_stays_one(tmp_path: Path, toolchain: Toolchain) -> None:
    text = (KERNELS_FOLDER / "device/tensor_cores.cuh").read_text()
    function = re.search(r"^__device__ inline unsigned rounded_to_bfloat16.*?^}$", text, re.DOTALL | re.MULTILINE)
    assert function is not None
    (tmp_path / "rounding.cu").write_text(f"{function[0]}\n{KERNEL}")
    bits = np.random.default_rng(SEED).integers(0, 2**32, 1024, np.uint32)
    bits[:4] = 0x7FFFFFFF, 0xFFFFFFFF, INFINITY, 0x7F7FFFFF  # the GPU's NaN, infinity, the largest number
    bits[4:8] = 0x3F808000, 0x3F818000, 0x3F808001, 0  # ties, and the next number above one
    rounded_bits = np.zeros_like(bits)
    Shim([tmp_path / "rounding.cu"], toolchain).launch("f", 1, len(bits), bits, rounded_bits)
    assert not (rounded_bits & 0xFFFF).any()
    np.testing.assert_array_equal(is_nan(rounded_bits), is_nan(bits))
    assert (rounded_bits[[2, 3]] == INFINITY).all()
    own, rounded = (array[~is_nan(bits) & (bits & 0x7FFFFFFF < 0x7F7F8000)] for array in (bits, rounded_bits))
    below = own & 0xFFFF0000
    number, lower, upper = (array.view(np.float32).astype(np.float64) for array in (own, below, below + 0x10000))
    to_lower, to_upper = np.abs(lower - number), np.abs(upper - number)
    is_even = (own >> 16 & 1) == 0
    nearest = np.where((to_lower < to_upper) | ((to_lower == to_upper) & is_even), lower, upper)
    np.testing.assert_array_equal(rounded.view(np.float32), nearest)


@requires_compiler
def test_a_long_sum_in_two_parts_is_not_cut_off(shim: Shim) -> None:
    """On an H100 outputs of 8,192 terms were 1e-5 too small: tensor cores cut off what a sum has no place for."""
    random, terms = np.random.default_rng(SEED), 4096
    left, right = random.random((1, terms), np.float32), random.random((terms, 1), np.float32)
    out, bias, mask = np.zeros((1, 1), np.float32), np.zeros(1, np.float32), np.zeros((1, 1), np.uint8)
    args = (left, right, out, bias, mask, 1, 1, terms, 1, 0, 0, 0, 1.0, 0.0, 1.0)
    shim.launch("tile_product_split", (1, 1), (32,), *args)
    np.testing.assert_allclose(out, left.astype(np.float64) @ right, rtol=2e-6)


def is_nan(bits: np.ndarray) -> np.ndarray:
    return (bits & 0x7FFFFFFF) > INFINITY
