"""Turns: one at a time, again inside, and given back at the end; results with arrays in memory that a parent maps."""

from __future__ import annotations

import threading
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ladder.processes.compute_pool import packed, unpacked
from ladder.processes.turn import Turn


def entered(turn: Turn) -> threading.Event:
    """Is set once another thread has had the turn."""
    event = threading.Event()

    def enter() -> None:
        with turn:
            event.set()

    threading.Thread(target=enter, daemon=True).start()
    return event


def test_another_waits_for_the_outermost_end(tmp_path: Path) -> None:
    mine, other = Turn(tmp_path / "turn"), Turn(tmp_path / "turn")
    with mine:
        with mine:
            had = entered(other)
        assert not had.wait(0.2)
    assert had.wait(30)


def test_an_error_gives_the_turn_back(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Turn(tmp_path / "turn"):
        raise KeyError
    assert entered(Turn(tmp_path / "turn")).wait(30)


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
