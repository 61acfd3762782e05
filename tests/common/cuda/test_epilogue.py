"""The mask that a product with ReLU leaves for the one on the way back."""

from __future__ import annotations

import pytest

from common.cuda.epilogue import mask_shape


@pytest.mark.parametrize(("n", "row_bytes"), [(1, 16), (127, 16), (128, 16), (129, 32), (784, 112)])
def test_a_row_of_a_mask_has_a_bit_for_each_output_and_is_padded(n: int, row_bytes: int) -> None:
    assert mask_shape(5, n) == (5, row_bytes)
