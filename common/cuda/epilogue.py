"""What cuBLASLt is to do to a product before it writes it, as plain data that needs none of CUDA's packages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

MASK_BITS = 128  # of which a row of a mask must have a multiple


@dataclass(frozen=True, eq=False)
class Fusion:
    """An epilogue, in cuBLASLt's word, of a product out (m, n), with the arrays that it reads or writes besides.

    - `bias`: out = product + bias
    - `relu_bias`: out = max(product + bias, 0), and mask tells where that is more than 0
    - `relu_backward`: out = product where the mask is set, else 0
    - `bias_row`: no epilogue of cuBLASLt's: as if `bias` were one more row of out, and op(a) had a row of ones for it
    """

    kind: Literal["bias", "relu_bias", "relu_backward", "bias_row"]
    bias: Any = None  # (n,) f32; "bias_row" writes it
    mask: Any = None  # as `mask_shape` says, u8; its bits are cuBLASLt's own business


def mask_shape(m: int, n: int) -> tuple[int, int]:
    """The shape in bytes of the mask of an (m, n) product: a bit for each output, rows padded."""
    return m, -(-n // MASK_BITS) * MASK_BITS // 8
