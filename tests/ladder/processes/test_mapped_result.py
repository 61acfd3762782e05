"""A process's result, with arrays in memory that its parent maps."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest

from ladder.processes.compute_pool import packed, unpacked


def made(sizes: list[int]) -> dict[str, Any]:
    return {"named": "x", "arrays": [np.arange(size, dtype=np.float32 if size % 2 else np.float64) for size in sizes]}


def fails() -> None:
    raise KeyError("no such layer")


@pytest.mark.parametrize("sizes", [[], [0], [1, 3, 4, 0, 1001, 2]])
def test_a_result_outlives_the_process_that_made_it(sizes: list[int]) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        result = unpacked(pool.submit(packed, partial(made, sizes)).result())
        with pytest.raises(KeyError, match="no such layer"):
            pool.submit(packed, fails).result()
    assert result["named"] == "x"
    for array, expected in zip(result["arrays"], made(sizes)["arrays"], strict=True):
        assert array.dtype == expected.dtype
        assert array.flags.aligned
        assert np.array_equal(array, expected)
        array += 1.0  # as its own
