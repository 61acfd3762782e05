"""Tensors whose memory comes and goes, and the mask that a product with ReLU leaves for the one on the way back."""

from __future__ import annotations

import numpy as np
import pytest

from common.cuda.epilogue import mask_shape
from common.cuda.step_memory import StepAllocator


class Block:
    """Memory that says when it comes and goes."""

    def __init__(self, size: int, calls: list[str]) -> None:
        self.ptr = 1000 * (1 + sum(call.startswith("take") for call in calls))
        self._calls = calls
        calls.append(f"take {size}")
        self._size = size

    def __del__(self) -> None:
        self._calls.append(f"give back {self._size}")


def test_each_tensor_takes_and_gives_back_memory_of_its_own() -> None:
    calls: list[str] = []
    step_allocator = StepAllocator(lambda size: Block(size, calls))
    first, second = step_allocator.empty((3, 2), np.float32), step_allocator.empty((5,), np.float64)
    assert (first.size, first.nbytes, second.nbytes) == (6, 24, 40)
    for _ in range(2):
        step_allocator.acquire()
        assert calls == ["take 24", "take 40"]
        step_allocator.release()
        assert calls[2:] == ["give back 24", "give back 40"]
        calls.clear()


def test_views_move_with_the_whole() -> None:
    calls: list[str] = []
    step_allocator = StepAllocator(lambda size: Block(size, calls))
    whole = step_allocator.empty((24,), np.float32)
    part = whole[4:10].reshape((2, 3))
    other = step_allocator.empty((2, 2), np.float32).reshape((4,))
    step_allocator.acquire()
    assert (whole.data.ptr, part.data.ptr, other.data.ptr) == (1000, 1016, 2000)
    assert (part.shape, part.size, part.nbytes) == ((2, 3), 6, 24)
    step_allocator.release()
    step_allocator.acquire()
    assert part.data.ptr == whole.data.ptr + 16 == 3016


def test_a_tensor_without_memory_has_no_address() -> None:
    step_allocator = StepAllocator(lambda size: Block(size, []))
    whole = step_allocator.empty((24,), np.float32)
    part = whole[:3]
    for tensor in (whole, part):
        with pytest.raises(AttributeError):
            assert tensor.data.ptr
    step_allocator.acquire()
    step_allocator.release()
    with pytest.raises(AttributeError):
        assert part.data.ptr


@pytest.mark.parametrize(("n", "row_bytes"), [(1, 16), (127, 16), (128, 16), (129, 32), (784, 112)])
def test_a_row_of_a_mask_has_a_bit_for_each_output_and_is_padded(n: int, row_bytes: int) -> None:
    assert mask_shape(5, n) == (5, row_bytes)
