"""Products by our tiles or by cuBLASLt, whichever measured faster for their shapes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

from common.cuda.compile import local_sources
from common.cuda.epilogue import Fusion
from common.source_hash import source_hash
from stages.classic.cublas import CublasGemm
from stages.engine.parts import BIAS_COLS, BIAS_ROWS, blocks, float32, int32
from stages.engine.recipe import FusingGemm, Precision
from stages.engine.workspace import KERNELS, Array, Setup
from stages.tiles import tile_kernels
from stages.tiles.tile_kernels import TileProducts


class ProductSpec(NamedTuple):
    """A product's options besides its factors."""

    trans_a: bool
    trans_b: bool
    alpha: float
    beta: float
    fusion: Fusion | None = None

    @property
    def kind(self) -> str:
        """The fusion's kind; empty without one."""
        return self.fusion.kind if self.fusion else ""

    def for_trial(self) -> ProductSpec:
        """The same with a copy of the bias, which a trial would change."""
        if self.fusion is None or self.kind != "bias_row":
            return self
        return self._replace(fusion=Fusion("bias_row", self.fusion.bias.copy()))


def tile_source_hash(kernels: str, *modules: str) -> str:
    """A hash of all code that affects the candidates: kernels by a pattern, and their launching modules."""
    sources = (file for kernel in sorted(KERNELS.glob(kernels)) for file in local_sources(kernel))
    files = dict.fromkeys([*sources, *map(Path, modules)])
    return source_hash(files)[:16]


Key = tuple[tuple[int, ...], tuple[int, ...], bool, ProductSpec]
Candidate = tuple[Callable[..., None], bool]  # a function that enqueues a product, and whether it is ours


class TileGemm(FusingGemm):
    """Our tiles or cuBLASLt, in float32; subclasses set another precision and kernel."""

    precision: ClassVar[Precision] = "float32"
    needs: ClassVar[tuple[str, ...]] = ("cuda", "cublas")
    kernel: ClassVar[tuple[str, str]] = ("tiles/tile_f32.cu", "tile_product_f32")
    width_multiple: ClassVar[int] = CublasGemm.width_multiple

    def __init__(self, setup: Setup) -> None:
        from common.cuda.cublas import Matmul  # imported late: a machine without cuBLAS still lists the rungs

        scale = gradient_scale(setup.problem.batch_size) if self.precision == "float16" else 1.0
        self._tiles = TileProducts(setup, *self.kernel, scale)
        self._library = Matmul(setup.device, self.precision)
        self._bias_update = setup.kernel("plain/layer.cu", "bias_update")
        # A choice is an index, valid only for the same candidates: the hash is part of its subject.
        made = tile_source_hash("tiles/tile_*.cu", tile_kernels.__file__, __file__)
        self._made = f"{self.kernel[1]} {made} or cuBLASLt {self._library.version}"
        self._trials = setup.device.trials(self._made)
        self._chosen: dict[Key, Candidate] = {}

    def fused(
        self,
        a: Array,
        b: Array,
        out: Array,
        fusion: Fusion | None,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Enqueue out (m, n) = fusion of alpha * op(a) @ op(b) + beta * out; None is no fusion."""
        self._multiply(a, b, out, ProductSpec(trans_a, trans_b, alpha, beta, fusion))

    def own(self, a: Array) -> tuple[TileProducts, Array]:
        """Our kernel for products with this left factor, and the factor in that kernel's format."""
        return self._tiles, a

    def _multiply(self, a: Array, b: Array, out: Array, spec: ProductSpec) -> None:
        tiles, left = self.own(a)
        key = (a.shape, b.shape, left is a, spec)
        candidate = self._chosen.get(key)
        if candidate is None:
            candidate = self._chosen[key] = self._fastest(tiles, a, left, b, out, spec)
        enqueue, ours = candidate
        enqueue(left if ours else a, b, out, *spec)

    def _fastest(
        self, tiles: TileProducts, a: Array, left: Array, b: Array, out: Array, spec: ProductSpec
    ) -> Candidate:
        """The fastest of our cuts and the library, timed on a copy of the output."""
        scratch, trial = out.copy(), spec.for_trial()
        candidates: list[Candidate] = [
            (partial(tiles, cut), True) for cut in tiles.cuts(out, a.shape[0 if spec.trans_a else 1])
        ]
        if self.precision != "float16":  # the library cannot scale gradients
            with suppress(RuntimeError):  # the library has no algorithm
                self._by_library(a, b, scratch, *trial)  # also chooses its algorithm
                candidates.append((self._by_library, False))
        timed = [partial(enqueue, left if ours else a, b, scratch, *trial) for enqueue, ours in candidates]
        for call in timed:
            call()  # loads its kernels
        purpose = f"{out.shape} {a.shape} {b.shape} {left is a} {spec[:4]} {spec.kind}"
        fastest: int = self._trials.fastest(purpose, timed)
        return candidates[fastest]

    def _by_library(
        self,
        a: Array,
        b: Array,
        out: Array,
        trans_a: bool,
        trans_b: bool,
        alpha: float,
        beta: float,
        fusion: Fusion | None,
    ) -> None:
        """The library's product; a `bias_row`, which it lacks, takes another kernel."""
        if fusion is None or fusion.kind != "bias_row":
            self._library(a, b, out, trans_a, trans_b, alpha, beta, fusion)
            return
        self._library(a, b, out, trans_a, trans_b, alpha, beta)
        rows, cols = b.shape
        grid, block = blocks(cols, BIAS_COLS), (BIAS_COLS, BIAS_ROWS)
        self._bias_update(grid, block, b, fusion.bias, float32(-alpha), int32(rows), int32(cols))


def gradient_scale(batch: int) -> float:
    """A power of two that moves gradients, means over a batch, away from float16's smallest numbers.

    A logit's gradient is at most 1 / batch and becomes at most 256 to 512; hidden layers sum these by the weights, far
    below 65,504. Lost numbers, below 6e-5, are 2e-7 of the largest.
    """
    return 256.0 * 2.0 ** (batch - 1).bit_length()
