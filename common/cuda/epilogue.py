"""Epilogues of products as plain data, importable without CUDA packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

MASK_BITS = 128  # a mask's rows are padded to a multiple of this


@dataclass(frozen=True, eq=False)
class Fusion:
    """Extra work of a product out (m, n) before it is written (cuBLASLt's epilogue), with its arrays.

    - `bias`: out = product + bias
    - `relu`: out = max(product, 0); writes mask, set where out > 0
    - `relu_bias`: out = max(product + bias, 0); writes mask, set where out > 0
    - `relu_backward`: out = product where mask is set, else 0
    - `bias_row`: `bias` is one more row of out, and op(a) has a row of ones for it; not in cuBLASLt
    """

    kind: Literal["bias", "relu", "relu_bias", "relu_backward", "bias_row"]
    bias: Any = None  # (n,) float32; `bias_row` writes it
    mask: Any = None  # uint8 of `mask_shape`, bits in cuBLASLt's order


def mask_shape(m: int, n: int) -> tuple[int, int]:
    """Shape in bytes of an (m, n) product's mask: one bit an output, rows padded."""
    return m, -(-n // MASK_BITS) * MASK_BITS // 8
