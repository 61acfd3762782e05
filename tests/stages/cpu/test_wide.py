"""Tiles of explicit vectors against NumPy: any size, and no number outside of the arrays read or written."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("numba", reason="Numba is not installed")

from common.cpu.host import BoundCall

AROUND = 64  # numbers before and after an array, which are NaN
SIZES = [(1, 1, 1), (2, 6, 8), (3, 7, 9), (7, 33, 5), (1, 16, 1), (13, 41, 17), (9, 24, 48)]


class Guarded:
    """A matrix among NaN, which a read outside would spread and a write outside would change."""

    def __init__(self, rows: int, columns: int, gap: int) -> None:
        random = np.random.default_rng(rows + columns)
        self._memory = np.full(2 * AROUND + rows * (columns + gap), np.nan, np.float32)
        self.ld = columns + gap
        self.inside = self._memory[AROUND : AROUND + rows * self.ld].reshape(rows, self.ld)[:, :columns]
        self.inside[...] = random.random((rows, columns)) - 0.5
        self.whole = self._memory[AROUND:]

    def only_inside(self) -> bool:
        """Whether all that lies outside is still NaN, and nothing inside."""
        numbers = int(np.isfinite(self._memory).sum())
        return numbers == self.inside.size and bool(np.isfinite(self.inside).all())


@pytest.fixture(scope="module")
def wide() -> ModuleType:
    """The kernels, which Numba compiles on import: only in the process that tests them."""
    from stages.cpu.kernels import wide

    return wide


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("adds", "gap"), [(False, 3), (True, 0)])
@pytest.mark.parametrize("by_rows", [False, True])
def test_the_outer_product(size: tuple[int, int, int], gap: int, adds: bool, by_rows: bool, wide: ModuleType) -> None:
    rows, columns, terms = size
    a = Guarded(rows, terms, gap) if by_rows else Guarded(terms, rows, gap)
    left, placed = (a.inside, (a.ld, 1)) if by_rows else (a.inside.T, (1, a.ld))
    b, out = Guarded(terms, columns, gap), Guarded(rows, columns, gap)
    expected = -0.5 * left.astype(np.float64) @ b.inside + (out.inside if adds else 0)
    if not adds:
        out.inside[...] = np.nan
    sizes = (rows, columns, terms, -0.5, int(adds))
    BoundCall(wide.outer_product, (a.whole, *placed, b.whole, b.ld, out.whole, out.ld, *sizes))()
    np.testing.assert_allclose(out.inside, expected, rtol=0, atol=1e-6 * terms)
    assert out.only_inside()


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_inner_product(size: tuple[int, int, int], gap: int, wide: ModuleType) -> None:
    rows, columns, terms = size
    a, b, out = Guarded(rows, terms, gap), Guarded(columns, terms, gap), Guarded(rows, columns, gap)
    expected = a.inside.astype(np.float64) @ b.inside.T
    out.inside[...] = np.nan
    BoundCall(wide.inner_product, (a.whole, a.ld, b.whole, b.ld, out.whole, out.ld, *size))()
    np.testing.assert_allclose(out.inside, expected, rtol=0, atol=1e-6 * terms)
    assert out.only_inside()
