"""The launches that test each kernel, and its greatest error against its double.

A function with the kernel's name yields its cases: sizes 1, odd, and one below, at and above a tile or block, with
fresh random inputs. Outputs that are not inputs start as NaN. A case runs on the CPU through the shim, or on a GPU.

The bounds follow rounding error analysis (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3): n float32
operations, in any order, fused or not, are off by at most about n * 2^-24 times the sum of the magnitudes. An error of
one part in a thousand always exceeds them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from common.cuda.epilogue import mask_shape
from common.problem import Params, Problem, initial_params
from stages.engine.workspace import ParameterMemory
from stages.fusion.head_kernel import lanes
from stages.large_batch.layout import (
    CLASSES,
    EDGE,
    OUTPUT_SCALE,
    PAD,
    UPDATE_THREADS,
    WEIGHT_SCALE,
    EarlyLayout,
    Layout,
)
from stages.persistent import fleet_columns as columns_rung
from stages.persistent import pairs_plan
from stages.persistent.ahead_plan import CLUSTERS, SHARES, SIZES, AheadPlan
from stages.persistent.ahead_plan import THREADS as AHEAD_THREADS
from stages.persistent.batch_plan import THREADS as BATCH_THREADS
from stages.persistent.batch_plan import BatchPlan
from stages.persistent.cluster_plan import EXACT, ROUNDED, Plan
from stages.persistent.cluster_plan import THREADS as MLP_THREADS
from stages.persistent.divided_batch import of_blocks
from stages.persistent.divided_hidden_fp16 import of_shares
from stages.persistent.epoch_by_messages import bfloat16_bits
from stages.persistent.fragments import fragments, matrices
from stages.persistent.grid_messages import shares_of
from stages.persistent.grid_plan import ALL_PARTS, LINE, GridPlan, make_plan
from stages.persistent.grid_plan import THREADS as GRID_THREADS
from stages.persistent.hidden_batch_plan import THREADS as HIDDEN_THREADS
from stages.persistent.hidden_batch_plan import HiddenBatchPlan
from stages.persistent.messages_plan import GRADIENT_SCALE, MessagesPlan
from stages.persistent.messages_plan import THREADS as MESSAGES_THREADS
from stages.persistent.persistent_cluster import BLOCKS, GRAM_BYTES, GRAM_THREADS, SHARED_BYTES
from stages.persistent.persistent_cluster import THREADS as CLUSTER_THREADS
from stages.persistent.persistent_grid import slices_of
from stages.persistent.stationary_plan import MOST_PIECES, StationaryPlan
from stages.persistent.stationary_plan import THREADS as STATIONARY_THREADS
from stages.streamed.epoch_plan import THREADS as EPOCH_THREADS
from stages.streamed.epoch_plan import EpochPlan
from stages.streamed.last_layer_head import BLOCKS as LAST_LAYER_BLOCKS
from stages.streamed.last_layer_head import THREADS as LAST_LAYER_THREADS
from stages.streamed.last_layer_head import shared_bytes
from stages.streamed.ring_bf16 import BFloat16Ring
from stages.streamed.ring_gemm import RingGemm, back_launch, forward_launch, panels_of, rows_macro
from stages.streamed.ring_planes import PlanesRing
from stages.streamed.streamed_gemm import DEPTH, FORWARD_BYTES, FORWARD_WARPS, OWN, PARTS, WIDTH, back_bytes
from stages.streamed.streamed_ring import ExactRing
from stages.streamed.streaming_epoch import shares_of as epoch_shares
from stages.streamed.weight_panels import TILE, from_planes, to_planes
from stages.tiles.tile_kernels import MOST_WARPS, SHAPES
from tests.kernels import doubles
from tests.kernels.halves import (
    chunks_of,
    first_sums,
    from_chunks,
    halves_of,
    neighbour_grams_of,
    scaled_down,
    sum_of_halves,
)
from tests.stages.numpy_parts import HostDevice

UNIT = 2.0**-24  # half the gap between 1 and the next float32
HALF_UNIT = 2.0**-12  # the same of float16, rounded up
BARELY = np.float32(2**-29)  # an output above 0 whose float16 halves are zeros, also of 16 times it
TINY = float(np.finfo(np.float32).tiny)  # below this, float32 has a small absolute error, not a relative one

GEMM_TILE = 16
BIAS_COLS, BIAS_ROWS = 32, 8
BLOCK = 64  # of the one-dimensional kernels, which take any size
TOTALS_THREADS = 256
WARP, HEAD_WARPS = 32, 32

Array = NDArray[Any]
Scalar = int | float
Args = dict[str, Array | Scalar]


@dataclass(frozen=True)
class Case:
    """One launch: arguments in the kernel's order, and the greatest error of each output, element by element."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: Args
    bounds: dict[str, Array | float]
    cluster: int | None = None  # its blocks; the grid then counts clusters
    shared_bytes: int = 0  # of each block, beyond what the kernel declares
    cooperative: bool = False
    macros: tuple[tuple[str, str], ...] = ()  # for the compiler
    besides: dict[str, Any] = field(default_factory=dict)  # the double's; the kernel is compiled for them
    on_gpu_alone: bool = False  # for the CPU it has too many threads, or tells no more than another
    readings: dict[str, Callable[[Array], Array]] = field(default_factory=dict)  # of outputs that are bits

    @property
    def how(self) -> dict[str, Any]:
        """Launch options besides grid and block."""
        return {"cluster": self.cluster, "cooperative": self.cooperative, "shared_bytes": self.shared_bytes}

    def __str__(self) -> str:
        described = [
            f"{name}{list(arg.shape)}" if isinstance(arg, np.ndarray) else f"{name}={arg:g}"
            for name, arg in self.args.items()
        ]
        return f"{self.kernel}({', '.join(described)})"

    def copy_args(self) -> Args:
        """Arguments to launch with, which the launch may overwrite."""
        return {name: arg.copy() if isinstance(arg, np.ndarray) else arg for name, arg in self.args.items()}

    def mismatch(self, launched: Args) -> str:
        """The first difference from the double after a launch with these arguments; empty if there is none."""
        expected = tested(self.kernel)[0](**{name: _widened(arg) for name, arg in self.args.items()}, **self.besides)
        for name, want in expected.items():
            written = np.asarray(launched[name])
            got = self.readings.get(name, np.asarray)(written).astype(np.float64)
            wrong = ~np.isclose(got, want, rtol=0, atol=self.bounds[name], equal_nan=True)
            if wrong.any():
                index = tuple(int(i) for i in np.argwhere(wrong)[0])
                return f"{self}: {name}{list(index)} is {got[index]}, should be {want[index]}; {wrong.sum()} wrong"
        return ""


def tested(kernel: str) -> tuple[Callable[..., doubles.Outputs], Callable[[Generator], Iterator[Case]]]:
    """A kernel's double and its cases, of the file of its name or of those of all; LookupError if either is missing."""
    if find_spec(f"tests.kernels.own.{kernel}"):
        own = import_module(f"tests.kernels.own.{kernel}")
        return own.double, own.cases
    if kernel in globals() and hasattr(doubles, kernel):
        return getattr(doubles, kernel), globals()[kernel]
    raise LookupError(f"{kernel}: has no double or no cases; write tests/kernels/own/{kernel}.py")


def all_cases(kernel: str, random: Generator) -> Iterator[Case]:
    """The cases of a kernel; LookupError if there are none."""
    yield from tested(kernel)[1](random)


def gpu_cases(kernel: str, random: Generator) -> Iterator[Case]:
    """The cases of a kernel, and those of whose doubles a CPU's tests would wait for a minute."""
    yield from all_cases(kernel, random)
    if kernel == "streaming_epoch":
        sizes = [(3, 784, 3, 2048, 10, 32, 16, 8), (3, 784, 4, 2048, 10, 64, 16, 8), (2, 784, 3, 4096, 10, 32, 16, 8)]
        yield from _epochs(random, sizes)
    if kernel == "stationary_epoch":
        yield from _stationary(random, [(3, 784, 3, 2048, 10, 32, 16, 8), (3, 784, 4, 1200, 10, 31, 16, 8)])


def _products(kernel: str, random: Generator) -> Iterator[Case]:
    tile = GEMM_TILE
    sizes = [
        (1, 1, 1),
        (tile, tile, tile),
        (tile - 1, tile, tile + 1),
        (tile + 1, tile - 1, 3),
        (1, 33, 7),
        (49, 1, 65),
    ]
    scales = [(1.0, 0.0), (-0.5, 1.0), (1.0, 0.25)]
    for (m, n, k), trans_a, trans_b, (alpha, beta) in itertools.product(sizes, (0, 1), (0, 1), scales):
        a = normal(random, (k, m) if trans_a else (m, k))
        b = normal(random, (n, k) if trans_b else (k, n))
        out = normal(random, (m, n)) if beta else poison((m, n))
        magnitude = abs(alpha) * np.abs(a.T if trans_a else a) @ np.abs(b.T if trans_b else b)
        if beta:
            magnitude += abs(beta * out)
        args: Args = {"a": a, "b": b, "out": out, "m": m, "n": n, "k": k}
        args |= {"trans_a": trans_a, "trans_b": trans_b, "alpha": alpha, "beta": beta}
        grid = (_blocks(n, tile), _blocks(m, tile))
        yield Case(kernel, grid, (tile, tile), args, {"out": (k + 4) * UNIT * magnitude})


gemm_naive = partial(_products, "gemm_naive")


def _tile_products(kernel: str, random: Generator, bits: int = 24, scale: float = 1.0) -> Iterator[Case]:
    """Products with factors of `bits` bits; every tile shape with every transposition and fusion."""
    sizes = [(1, 1, 1), (16, 16, 16), (15, 17, 31), (17, 15, 33), (33, 64, 48), (31, 65, 4), (64, 32, 68), (5, 10, 7)]
    ways = [(0, 1), (0, 2), (0, 0), (1, 4), (1, 0), (2, 3), (2, 0)]  # transposes, fusion
    for shape, (height, width) in enumerate(SHAPES):
        for (i, (m, n, k)), (j, (transposes, fusion)) in itertools.product(enumerate(sizes), enumerate(ways)):
            if (shape + i + j) % 2:  # every size with every fusion in one of the shapes: a warp is slow on the shim
                continue
            gradient = np.float32(2.0**-20) if scale != 1 else np.float32(1)  # as small as gradients are
            pixels = kernel == "tile_product_u8"
            a_shape = (k, m) if transposes == 1 else (m, k)
            a: Any = random.integers(0, 256, a_shape, np.uint8) if pixels else normal(random, a_shape)
            b = normal(random, (n, k) if transposes == 2 else (k, n))
            if transposes == 2 and not pixels:
                a *= gradient
            if transposes == 1:
                b *= gradient
            alpha, beta = (-0.125, 1.0) if fusion == 4 or (fusion == 0 and i % 2) else (1.0, 0.0)
            if transposes and fusion != 3 and beta:
                alpha /= float(gradient)
            own_scale = scale if transposes else 1.0
            out, bias = normal(random, (m, n)) if beta else poison((m, n)), normal(random, (n,))
            mask_bytes = mask_shape(m, n)[1]
            mask = random.integers(0, 256, (m, mask_bytes), np.uint8)
            left = np.abs(a.T if transposes == 1 else a).astype(np.float64)
            right = np.abs(b.T if transposes == 2 else b)
            if pixels:
                left /= 256
            # Every factor is rounded once, every sum k times; tensor cores truncate sums.
            rounding = 2.0 * 2.0**-bits * (bits < 24) + (2 * k + 6) * UNIT
            bound = rounding * abs(alpha) * left @ right + 4 * UNIT * (beta * np.abs(out) if beta else 0.0) + TINY
            bias_bound: Array | float = 0.0
            if fusion in (1, 2):
                bound = bound + 2 * UNIT * np.abs(bias)
            if fusion == 2:  # no rounding may move an output across its ReLU's corner
                op_a, op_b = (a / 256.0 if pixels else a.astype(np.float64)), b.astype(np.float64)
                near = np.abs(op_a @ op_b + bias) <= bound
                bias[near.any(axis=0)] += np.float32(40 * np.sqrt(k))
                bound = bound + 4 * UNIT * np.abs(bias)
            if fusion == 4:
                bias_bound = rounding * abs(alpha) * right.sum(axis=0) + 4 * UNIT * np.abs(bias) + TINY
            args: Args = {"a": a, "b": b, "out": out, "bias": bias, "mask": mask, "m": m, "n": n, "k": k}
            args |= {"mask_bytes": mask_bytes, "transposes": transposes, "shape": shape, "fusion": fusion}
            args |= {"alpha": alpha / own_scale, "beta": beta, "scale": own_scale}
            tiles = _blocks(m + (fusion == 4), height), _blocks(n, width)
            warps = int(random.integers(1, MOST_WARPS + 1))
            bounds = {"out": bound, "bias": bias_bound, "mask": 0.0}
            yield Case(kernel, tiles, (WARP * warps,), args, bounds)


tile_product_f32 = partial(_tile_products, "tile_product_f32")
tile_product_tf32 = partial(_tile_products, "tile_product_tf32", bits=11)
tile_product_bf16 = partial(_tile_products, "tile_product_bf16", bits=8)
tile_product_f16 = partial(_tile_products, "tile_product_f16", bits=11, scale=2.0**17)
tile_product_split = partial(_tile_products, "tile_product_split", bits=22)
tile_product_u8 = partial(_tile_products, "tile_product_u8", bits=22)


FORWARD_SIZES = [(1, 4, 4), (32, 64, 64), (31, 68, 40), (32, 132, 72), (9, 200, 128), (17, 320, 68)]
BACK_SIZES = [(1, 1, 16), (32, 32, 16), (31, 33, 48), (16, 31, 80), (32, 40, 208), (17, 65, 160), (9, 150, 80)]
Sizes = list[tuple[int, int, int]]  # batch, fan_in, fan_out


def _forward_cases(kernel: str, random: Generator, bits: int, sizes: Sizes) -> Iterator[Case]:
    """A layer forward: outputs and batches as large as a tile, smaller and larger."""
    for i, (batch, fan_in, fan_out) in enumerate(sizes):
        inputs, weights = normal(random, (batch, fan_in)), normal(random, (fan_in, fan_out))
        bias, mask_bytes = normal(random, (fan_out,)), mask_shape(batch, fan_out)[1]
        product, fusion = inputs.astype(np.float64) @ weights, 1 + i % 2
        rounding = 2.0 * 2.0**-bits + (2 * fan_in + 6) * UNIT
        bound = rounding * np.abs(inputs).astype(np.float64) @ np.abs(weights) + TINY
        # No rounding may move an output across its ReLU's corner.
        is_near = np.abs(product + bias) <= bound + 2 * UNIT * np.abs(bias)
        bias[is_near.any(axis=0)] += np.float32(40 * np.sqrt(fan_in))
        bound = bound + 4 * UNIT * np.abs(bias)
        mask = random.integers(0, 256, (batch, mask_bytes), np.uint8)
        args: Args = {
            "inputs": inputs,
            "weights": weights,
            "out": poison((batch, fan_out)),
            "bias": bias,
            "mask": mask,
        }
        args |= {"batch": batch, "fan_in": fan_in, "fan_out": fan_out, "mask_bytes": mask_bytes, "fusion": fusion}
        args["kept"] = i
        block, grid = (WARP * FORWARD_WARPS,), (1, _blocks(fan_out, WIDTH))
        bounds: dict[str, Array | float] = {"out": bound, "bias": 0.0, "mask": 0.0}
        for cluster in (None, 2, 3):  # each block has at least one piece
            if cluster is None or cluster <= _blocks(fan_in, DEPTH):
                yield Case(kernel, grid, block, args, bounds, cluster, shared_bytes=FORWARD_BYTES)


streamed_forward_bf16 = partial(_forward_cases, "streamed_forward_bf16", bits=8, sizes=FORWARD_SIZES)
streamed_forward_split = partial(_forward_cases, "streamed_forward_split", bits=22, sizes=FORWARD_SIZES)


def _back_cases(kernel: str, random: Generator, bits: int, sizes: Sizes) -> Iterator[Case]:
    """A layer backward: inputs and batches as large as a tile, smaller and larger."""
    for (batch, fan_in, fan_out), needed in itertools.product(sizes, (True, False)):
        inputs, doutputs = normal(random, (batch, fan_in)), normal(random, (batch, fan_out))
        weights, bias = normal(random, (fan_in, fan_out)), normal(random, (fan_out,))
        mask_bytes = mask_shape(batch, fan_in)[1] if needed else 0
        mask = random.integers(0, 256, (batch, mask_bytes), np.uint8)
        rate = float(np.float32(0.125))
        left, right = np.abs(inputs).astype(np.float64), np.abs(doutputs).astype(np.float64)
        rounding = 2.0 * 2.0**-bits
        back = (rounding + (2 * fan_out + 6) * UNIT) * right @ np.abs(weights).T + TINY
        updated = rate * (rounding + (2 * batch + 6) * UNIT) * left.T @ right + 4 * UNIT * np.abs(weights)
        moved = rate * (batch + 3) * UNIT * right.sum(axis=0) + 2 * UNIT * np.abs(bias)
        args: Args = {"inputs": inputs, "doutputs": doutputs, "weights": weights, "bias": bias}
        args |= {"dinputs": poison((batch, fan_in)), "mask": mask, "batch": batch, "fan_in": fan_in}
        groups = int(random.choice([1, 2]))
        args |= {"fan_out": fan_out, "mask_bytes": mask_bytes, "groups": groups, "kept": groups}
        args["learning_rate"] = rate
        bounds: dict[str, Array | float] = {"dinputs": back, "weights": updated, "bias": moved}
        block, grid = (WARP * groups * PARTS,), (1, _blocks(fan_in, groups * OWN))
        for cluster in (None, 2, 3):
            if cluster is None or cluster <= _blocks(fan_out, WIDTH):
                yield Case(kernel, grid, block, args, bounds, cluster, shared_bytes=back_bytes(groups))


streamed_back_bf16 = partial(_back_cases, "streamed_back_bf16", bits=8, sizes=BACK_SIZES)
streamed_back_split = partial(_back_cases, "streamed_back_split", bits=22, sizes=BACK_SIZES)


RING_SIZES = [(1, 16, 64), (32, 64, 64), (31, 80, 128), (17, 208, 640), (9, 1168, 64)]  # the last two fill a ring twice
MANY_ROWS = [(64, 64, 64), (33, 208, 640), (49, 1168, 64)]  # likewise, of kernels for 64 rows
RINGS = ((ExactRing, 22), (BFloat16Ring, 8), (PlanesRing, 8))  # and the bits of their factors


def _packed(ring: type[RingGemm], weights: Array) -> Array:
    return ring.packed(Params((weights, weights), ())).weights[0]


def _unpacked(ring: type[RingGemm], memory: Array) -> Array:
    return ring.unpacked(Params((memory, memory), ())).weights[0]


def ring_forward(random: Generator) -> Iterator[Case]:
    """As streamed kernels, with weights in their own order, and inputs and outputs in panels by turns."""
    for sizes, (ring, bits) in itertools.product((RING_SIZES, MANY_ROWS), RINGS):
        for case in _forward_cases("ring_forward", random, bits, sizes):
            inputs, weights = np.asarray(case.args["inputs"]), np.asarray(case.args["weights"])
            (batch, fan_in), fan_out = inputs.shape, weights.shape[1]
            panels = np.zeros(panels_of(fan_in, batch), np.float32)
            wide = np.zeros((batch, len(panels) * TILE), np.float32)
            wide[:, :fan_in] = inputs
            panels[:, :batch, :TILE] = wide.reshape(batch, -1, TILE).swapaxes(0, 1)
            memory = _packed(ring, weights)
            args: Args = {"inputs": inputs, "input_panels": panels, "weights": memory, "out": case.args["out"]}
            args |= {
                "output_panels": poison(panels_of(fan_out, batch)),
                "bias": case.args["bias"],
                "mask": case.args["mask"],
            }
            args |= {key: arg for key, arg in case.args.items() if key not in (*args, "kept")}
            at = sizes.index((batch, fan_in, fan_out))
            turn = at + RINGS.index((ring, bits))
            args |= {"are_in_panels": turn % 2, "into_panels": turn // 2 % 2}
            of_panels = np.zeros(panels_of(fan_out, batch))
            of_panels[:, :batch, :TILE] = np.asarray(case.bounds["out"]).reshape(batch, -1, TILE).swapaxes(0, 1)
            threads, shared_bytes = forward_launch(ring.macros, batch)
            if case.cluster is None or case.cluster <= _blocks(fan_in, TILE):
                yield replace(
                    case,
                    args=args,
                    bounds={**case.bounds, "output_panels": of_panels},
                    grid=(1, fan_out // TILE),
                    block=(threads,),
                    shared_bytes=shared_bytes,
                    macros=ring.macros + rows_macro(batch),
                    besides={"plain": weights.astype(np.float64)},
                    on_gpu_alone=_is_another_split(case, at + 1, _blocks(fan_in, DEPTH)),
                )


def ring_back(random: Generator) -> Iterator[Case]:
    """As streamed kernels, likewise; the blocks of a row are no cluster where they have nothing to add up."""
    rings = [*((*ring, ring[0].macros) for ring in RINGS), (*RINGS[0], RINGS[0][0].macros_on(90))]
    for sizes, (number, (ring, bits, macros)) in itertools.product((RING_SIZES, MANY_ROWS), enumerate(rings)):
        for case in _back_cases("ring_back", random, bits, sizes):
            weights, batch = np.asarray(case.args["weights"]), len(np.asarray(case.args["inputs"]))
            fan_in, fan_out = weights.shape
            threads, shared_bytes = back_launch(macros, batch)
            args = {key: arg for key, arg in case.args.items() if key not in ("groups", "kept")}
            args["weights"] = _packed(ring, weights)
            split = min(case.cluster or 1, fan_out // TILE)
            place = sizes.index((batch, fan_in, fan_out))
            turn = place + bool(args["mask_bytes"])
            is_cluster = split > 1 and args["mask_bytes"]
            yield replace(
                case,
                args=args,
                grid=(1 if is_cluster else split, _blocks(fan_in, TILE)),
                block=(threads,),
                cluster=split if is_cluster else None,
                shared_bytes=shared_bytes,
                macros=macros + rows_macro(batch),
                besides={"plain": weights.astype(np.float64)},
                readings={"weights": partial(_unpacked, ring)},
                # A CPU tries every second size in each ring, so that each size is in two of the four.
                on_gpu_alone=_is_another_split(case, turn, _blocks(fan_out, WIDTH)) or (place + number) % 2 > 0,
            )


def _is_another_split(case: Case, turn: int, most: int) -> bool:
    """Whether the case splits its sum otherwise than the one of 1, 2 and 3 shares that a CPU tries with these sizes."""
    return (case.cluster or 1) != 1 + turn % min(3, most)


def add_bias(random: Generator) -> Iterator[Case]:
    for rows, cols in _matrices():
        output, bias = normal(random, (rows, cols)), normal(random, (cols,))
        args: Args = {"output": output, "bias": bias, "rows": rows, "cols": cols}
        yield one_dimensional("add_bias", rows * cols, args, {"output": 2 * UNIT * np.abs(output + bias)})


def add_biases(random: Generator) -> Iterator[Case]:
    for networks, (rows, cols) in zip(itertools.cycle((1, 3)), _matrices(), strict=False):
        output, bias = normal(random, (networks, rows, cols)), normal(random, (networks, cols + 2))
        args: Args = {"output": output, "bias": bias, "rows": rows, "cols": cols, "stride": cols + 2}
        bounds: dict[str, Array | float] = {"output": 2 * UNIT * np.abs(output + bias[:, None, :cols])}
        yield Case("add_biases", (_blocks(rows * cols, BLOCK), networks), (BLOCK,), args, bounds)


def relu(random: Generator) -> Iterator[Case]:
    for count in counts():
        yield one_dimensional("relu", count, {"output": signed(random, count), "count": count}, {"output": 0.0})


def relu_backward(random: Generator) -> Iterator[Case]:
    for count in counts():
        args: Args = {"doutput": normal(random, (count,)), "output": signed(random, count), "count": count}
        yield one_dimensional("relu_backward", count, args, {"doutput": 0.0})


def bias_gradient(random: Generator) -> Iterator[Case]:
    for rows, cols in _matrices():
        doutput = normal(random, (rows, cols))
        args: Args = {"doutput": doutput, "dbias": poison((cols,)), "rows": rows, "cols": cols}
        bound = rows * UNIT * np.abs(doutput).sum(axis=0)
        yield Case("bias_gradient", (_blocks(cols, BIAS_COLS),), (BIAS_COLS, BIAS_ROWS), args, {"dbias": bound})


def bias_update(random: Generator) -> Iterator[Case]:
    rate = float(np.float32(0.1))
    for rows, cols in _matrices():
        doutput, bias = normal(random, (rows, cols)), normal(random, (cols,))
        args: Args = {"doutput": doutput, "bias": bias, "learning_rate": rate, "rows": rows, "cols": cols}
        bound = UNIT * (2 * np.abs(bias) + (rows + 3) * rate * np.abs(doutput).sum(axis=0))
        yield Case("bias_update", (_blocks(cols, BIAS_COLS),), (BIAS_COLS, BIAS_ROWS), args, {"bias": bound})


def softmax(random: Generator) -> Iterator[Case]:
    for rows, classes in _batches(BLOCK):
        logits = logits_of(random, rows, classes)
        args: Args = {"logits": logits, "probs": poison((rows, classes)), "rows": rows, "classes": classes}
        bound = 2 * exp_error(logits) * doubles.softmax(**_wide(args))["probs"] + TINY
        yield one_dimensional("softmax", rows, args, {"probs": bound})


def softmax_xent_backward(random: Generator) -> Iterator[Case]:
    for networks, (rows, classes) in zip(itertools.cycle((1, 3)), _batches(BLOCK // 10), strict=False):
        probs = random.dirichlet(np.ones(classes), (networks, rows)).astype(np.float32)
        args: Args = {"probs": probs, "labels": labels_of(random, rows, classes), "dlogits": poison(probs.shape)}
        args |= {"rows": rows, "classes": classes}
        bound = 4 * UNIT * np.abs(doubles.softmax_xent_backward(**_wide(args))["dlogits"])
        grid = (_blocks(rows * classes, BLOCK), networks)
        yield Case("softmax_xent_backward", grid, (BLOCK,), args, {"dlogits": bound})


def softmax_xent_totals(random: Generator) -> Iterator[Case]:
    for networks, (rows, classes) in zip(itertools.cycle((1, 3)), _batches(TOTALS_THREADS), strict=False):
        logits = np.stack([logits_of(random, rows, classes) for _ in range(networks)])
        labels, totals = labels_of(random, rows, classes), np.array([[1234.5, 678.0]] * networks)  # of the steps before
        args: Args = {"logits": logits, "labels": labels, "totals": totals, "rows": rows, "classes": classes}
        loss_bound = rows * 2 * exp_error(logits)
        bounds: dict[str, Array | float] = {"totals": np.array([loss_bound, 0.0])}
        yield Case("softmax_xent_totals", (1, networks), (TOTALS_THREADS,), args, bounds)


def softmax_xent(random: Generator) -> Iterator[Case]:
    sizes = [*_batches(HEAD_WARPS), (139, 10), (5, WARP - 1), (5, WARP), (5, WARP + 1)]  # 139: block's second turn
    for (rows, classes), with_totals in itertools.product(sizes, (0, 1)):
        logits, labels = logits_of(random, rows, classes), labels_of(random, rows, classes)
        args: Args = {"logits": logits, "labels": labels, "dlogits": poison((rows, classes))}
        args |= {"totals": np.array([1234.5, 678.0]), "rows": rows, "classes": classes, "with_totals": with_totals}
        wide = _wide(args)
        probs = doubles.softmax(wide["logits"], wide["dlogits"], rows, classes)["probs"]
        difference = np.abs(probs - np.eye(classes)[labels])
        bounds: dict[str, Array | float] = {
            "dlogits": (2 * exp_error(logits) * probs + 4 * UNIT * difference) / rows + TINY,
            "totals": np.array([with_totals * rows * 2 * exp_error(logits), 0.0]),
        }
        warps = HEAD_WARPS if with_totals else 3
        grid = 1 if with_totals else _blocks(rows * lanes(classes), 2 * warps * WARP)  # warps take two turns here too
        macros = (("CLASSES", str(classes)), ("LANES", str(lanes(classes))))
        yield Case("softmax_xent", (grid,), (warps * WARP,), args, bounds, macros=macros)


def last_layer(random: Generator) -> Iterator[Case]:
    yield from last_layers(
        random, [(1, 4, 1), (32, 64, 10), (33, 72, 10), (5, 28, 3), (31, 132, 32), (70, 8, 4), (9, 1000, 2)]
    )
    # Blocks with equal inputs, with fewer in the last, and with none; rows of several passes.
    for cluster in (2, LAST_LAYER_BLOCKS):
        yield from last_layers(random, [(33, 72, 7), (32, 128, 10), (5, 12, 3)], cluster)


def last_layers(random: Generator, sizes: list[tuple[int, int, int]], cluster: int | None = None) -> Iterator[Case]:
    """The last layer by one block or a cluster: rows, inputs and classes, of which two have the same weights.

    Where there are more than those two, the second row ties for certain: its label's class with one before it.
    """
    rate = float(np.float32(0.1))
    for i, (batch, fan_in, classes) in enumerate(sizes):
        inputs, weights = np.maximum(normal(random, (batch, fan_in)), 0), normal(random, (fan_in, classes))
        bias, labels = normal(random, (classes,)), labels_of(random, batch, classes)
        if classes > 2:
            weights[:, 1], bias[:2] = weights[:, 0], bias.max()
            inputs[1], labels[1] = 0, 1
        args: Args = {"inputs": inputs, "weights": weights, "bias": bias, "labels": labels}
        args |= {"dinputs": poison((batch, fan_in)), "totals": np.array([1234.5, 678.0])}
        args |= {"batch": batch, "fan_in": fan_in, "with_totals": i % 2, "learning_rate": rate}

        x, w = inputs.astype(np.float64), weights.astype(np.float64)
        logits = x @ w + bias
        off_powers = exp_error(logits.astype(np.float32))
        off = (2 * fan_in + 4) * UNIT * (x @ np.abs(w) + np.abs(bias))
        probs = doubles.softmax(logits, logits, batch, classes)["probs"]
        # A softmax has the relative error of its logits' absolute errors, and that of exp.
        moved = 2 * (2 * off.max(axis=1, keepdims=True) + off_powers)
        dlogits = (probs - np.eye(classes)[labels]) / batch
        error = (moved * probs + 4 * UNIT * np.abs(probs - np.eye(classes)[labels])) / batch + TINY
        of_weights = x.T @ error + (2 * batch + 4) * UNIT * x.T @ np.abs(dlogits)
        of_bias = error.sum(axis=0) + (2 * batch + 4) * UNIT * np.abs(dlogits).sum(axis=0)
        apart = np.sort(logits, axis=1)[:, -1:] - logits
        near = ((apart > 0) & (apart < 4 * off.max())).any(axis=1).sum()  # either could be the largest
        bounds: dict[str, Array | float] = {
            "dinputs": error @ np.abs(w).T + (2 * classes + 4) * UNIT * np.abs(dlogits) @ np.abs(w).T + TINY,
            "weights": rate * of_weights + 4 * UNIT * np.abs(w),
            "bias": rate * of_bias + 4 * UNIT * np.abs(bias),
            "totals": (i % 2) * np.array([batch * (4 * off.max() + 2 * off_powers), near]),
        }
        problem = Problem(inputs=1, classes=classes, hidden=(fan_in,), batch_size=batch)
        yield Case(
            *("last_layer", (1,), (LAST_LAYER_THREADS,), args, bounds),
            cluster=cluster,
            shared_bytes=shared_bytes(problem, cluster or 1),
            macros=(("CLASSES", str(classes)),),
        )


def sgd_update(random: Generator) -> Iterator[Case]:
    rate = float(np.float32(0.1))
    for count in counts():
        param, gradient = normal(random, (count,)), normal(random, (count,))
        args: Args = {"param": param, "gradient": gradient, "learning_rate": rate, "count": count}
        bound = 2 * UNIT * (np.abs(param) + rate * np.abs(gradient))
        yield one_dimensional("sgd_update", count, args, {"param": bound})


def peer_send(random: Generator) -> Iterator[Case]:
    yield from _messages("peer_send", random)


def peer_update(random: Generator) -> Iterator[Case]:
    yield from _messages("peer_update", random)


def _messages(kernel: str, random: Generator) -> Iterator[Case]:
    # Ranks, this rank, rounds before, units, blocks; whether messages were sent before.
    sizes = [(2, 0, 0, 1, 1, 1), (2, 1, 1, 511, 1, 1), (2, 1, 2, 513, 2, 0), (3, 1, 3, 5 * 512 + 3, 1, 1)]
    for ranks, rank, number, units, blocks, sends in [*sizes, (3, 2, 4, 4 * 512, 1, 0)]:
        shape, tag = (2, ranks, 4 * units), 1 - number // 2 % 2
        received = normal(random, shape).view(np.uint32) & ~np.uint32(1)
        received[number % 2] |= np.uint32(tag)
        received[1 - number % 2] |= np.uint32(1 - tag)
        rounds, gradient = np.full(blocks, number, np.uint32), normal(random, (4 * units,))
        theirs, share = np.zeros(shape, np.uint32), float(np.float32(rank + 1) / np.float32(5))
        args: Args = {"gradient": gradient, "theirs": theirs}
        scalars: Args = {"units": units, "rank": rank}
        bounds: dict[str, Array | float] = {"theirs": 0.0, "rounds": 0.0}
        if kernel == "peer_send":
            args |= {"rounds": rounds, "share": share, "begin": units // 3, "end": units - units // 4, **scalars}
        else:
            param, rate = normal(random, (4 * units,)), float(np.float32(0.1))
            args = {"param": param, **args, "mailbox": received, "rounds": rounds}
            args |= {"share": share, "learning_rate": rate, **scalars, "sends": sends}
            largest = np.abs(gradient) + np.abs(received[number % 2].view(np.float32)).sum(axis=0)
            bounds["param"] = 6 * UNIT * (np.abs(param) + rate * largest)
        macros, besides = (("RANKS", str(ranks)),), {"ranks": ranks}
        yield Case(kernel, (blocks,), (512,), args, bounds, macros=macros, besides=besides)


def peer_sums(random: Generator) -> Iterator[Case]:
    # Features, width, splits, shares, numbers of a share; halves, rounds before.
    for features, width, splits, shares, share, halves, number in (
        (16, 32, 1, 1, 3, 2, 0),
        (16, 64, 4, 9, 650, 2, 1),
        (32, 96, 2, 70, 259, 1, 2),
        (16, 36, 3, 33, 256, 1, 3),
    ):
        of_share, columns = -(-share // 4), features * width // 4
        units, blocks, rank = of_share + columns, -(-of_share // 16) - (-columns // 512), number % 2
        shape, tag = (2, 2, 4 * units), 1 - number // 2 % 2
        received = normal(random, shape).view(np.uint32) & ~np.uint32(1)
        received[number % 2] |= np.uint32(tag)
        received[1 - number % 2] |= np.uint32(1 - tag)
        gradients, partials = normal(random, (splits, features, halves * width)), normal(random, (shares, share))
        args: Args = {"gradients": gradients, "partials": partials, "block_totals": random.random((shares, 2))}
        args |= {"theirs": np.zeros(shape, np.uint32), "mailbox": received}
        args |= {"rounds": np.full(blocks, number, np.uint32), "part": float(np.float32(0.4)), "splits": splits}
        args |= {"features": features, "width": width, "shares": shares, "share": share, "units": units, "rank": rank}
        args["with_totals"] = int(splits > 1)
        sizes: Args = {"gradients": np.abs(gradients), "partials": np.abs(partials)}
        sizes["mailbox"] = np.abs(received.view(np.float32)).view(np.uint32)
        largest = doubles.peer_sums(**(args | sizes), halves=halves)  # type: ignore[arg-type]
        unit = (halves * splits + shares + 6) * UNIT
        bounds: dict[str, Array | float] = {name: unit * largest[name] for name in ("gradients", "partials", "theirs")}
        bounds |= {"block_totals": 1e-13, "rounds": 0.0}
        readings: dict[str, Callable[[Array], Array]] = {"theirs": partial(_sent, tag)}
        macros, besides = (("FACTOR_HALVES", str(halves)),), {"halves": halves}
        yield Case("peer_sums", (blocks,), (512,), args, bounds, macros=macros, besides=besides, readings=readings)


def _sent(tag: int, bits: Array) -> Array:
    """The numbers of messages; NaN where one has another tag. What was not sent is zero."""
    numbers = (bits & ~np.uint32(1)).view(np.float32)
    return np.where((bits & 1 == tag) | (bits == 0), numbers, np.nan)


def sgd_updates(random: Generator) -> Iterator[Case]:
    for networks, count in zip(itertools.cycle((1, 3)), counts(), strict=False):
        param, gradient = normal(random, (networks, count)), normal(random, (networks, count))
        rates = random.random(networks).astype(np.float32)
        args: Args = {"param": param, "gradient": gradient, "learning_rates": rates, "count": count}
        bounds: dict[str, Array | float] = {"param": 2 * UNIT * (np.abs(param) + np.abs(gradient))}
        yield Case("sgd_updates", (_blocks(count, BLOCK), networks), (BLOCK,), args, bounds)


def hidden_head(random: Generator) -> Iterator[Case]:
    # Inputs do not matter; units, classes, batch, blocks.
    sizes = [(1, 1, 1, 1), (32, 2, 16, 1), (33, 10, 40, 2), (256, 10, 33, 3), (130, 16, 70, 2), (290, 9, 129, 4)]
    sizes += [(130, 16, 70, 2), (290, 9, 39, 3)]  # early
    for (i, (units, classes, batch, blocks)), halves in itertools.product(enumerate(sizes), (EXACT, ROUNDED)):
        problem = Problem(1, classes, (units,), batch)
        layout, memory = _layout(i < 6)(problem, halves), ParameterMemory(HostDevice().empty, problem)
        sums = _sums(random, layout, units)
        # Units on or off for all images: rounding would decide about one at its ReLU's corner. The first is barely on.
        hidden_bias = np.append(BARELY, random.choice(np.array([2, -2], np.float32), units - 1))
        weights = np.zeros((layout.width, CLASSES))
        weights[:units, :classes] = normal(random, (units, classes)) / np.float32(np.sqrt(units))
        bias, labels = normal(random, (classes,)), labels_of(random, batch, classes)
        if classes > 2:  # the second row ties: its label's class with one before it
            weights[:, 1], bias[:2] = weights[:, 0], bias.max()
            sums[1], labels[1] = -60, 1
        by_unit = halves_of(weights * WEIGHT_SCALE, halves)
        scale = layout.gradient_scale
        args: Args = {"sums": sums.view(np.uint16), "hidden_bias": hidden_bias}
        args |= {"by_class": np.ascontiguousarray(by_unit.transpose(0, 2, 1)), "by_unit": by_unit, "bias": bias}
        args |= {"labels": labels, "dsums": _poisoned_halves(layout)}
        args |= {"partials": poison((blocks, layout.share)), "block_totals": np.full((blocks, 2), -1.0)}
        args |= {"batch": batch, "units": units, "classes": classes, "gradient_scale": scale, "with_totals": i % 2}

        rounding = _half_rounding(halves)
        weights = scaled_down(by_unit)[:units, :classes]
        outputs = np.maximum(first_sums(layout, sums.view(np.uint16))[:, :units] + hidden_bias, 0)
        w = np.abs(weights)
        logits = outputs @ weights + bias
        off_powers = exp_error(logits.astype(np.float32))
        off = (2 * rounding + (2 * units + 8) * UNIT) * (outputs @ w + np.abs(bias))
        probs = doubles.softmax(logits, logits, batch, classes)["probs"]
        moved = 2 * (2 * off.max(axis=1, keepdims=True) + off_powers)
        dlogits = np.abs(probs - np.eye(classes)[labels]) / batch
        error = moved * probs / batch + (5 * UNIT + rounding) * dlogits + 2.0**-24 / scale
        back = error @ w.T + (3 * rounding + 40 * UNIT) * dlogits @ w.T
        below = logits.max(axis=1, keepdims=True) - logits  # exact ties stay ties: their weights are the same
        near = ((below > 0) & (below < 4 * off.max())).any(axis=1).sum()
        shares = np.zeros((blocks, layout.share))
        for block in range(blocks):
            own = np.arange(batch) // EDGE % blocks == block
            noise = (2 * rounding + (2 * own.sum() + 8) * UNIT) * dlogits[own] + error[own]
            hidden = back[own] + (2 * own.sum() + 8) * UNIT * (dlogits[own] @ w.T)
            of_weights = outputs[own].T @ noise + BARELY * dlogits[own].sum(axis=0)
            shares[block] = [*of_weights.ravel(), *noise.sum(axis=0), *hidden.sum(axis=0)]
        wide = np.zeros((batch, layout.width))
        wide[:, :units] = scale * back
        loss = -(-batch // blocks // EDGE) * EDGE * (4 * off.max() + 2 * off_powers)
        bounds: dict[str, Array | float] = {"dsums": wide + 2.0**-24, "partials": shares + TINY}
        bounds["block_totals"] = np.array([loss, float(near)])
        how: dict[str, Any] = {"shared_bytes": layout.head_bytes, "macros": layout.head_macros(memory)}
        case = Case("hidden_head", (blocks,), (WARP * layout.head_warps,), args, bounds, **how)
        case = replace(case, on_gpu_alone=i < 6 and _is_told_by_others(i, halves))
        yield _on_halves(case, layout, ("dsums",))


def hidden_layers(random: Generator) -> Iterator[Case]:
    # Inputs do not matter; hidden units, classes, batch, blocks, shared memory of a block.
    sizes = [((1, 1), 1, 1, 1, 99), ((32, 64), 2, 32, 1, 99), ((33, 20), 10, 72, 2, 24), ((40, 64, 30), 10, 140, 1, 99)]
    sizes += [((130, 96), 16, 66, 3, 227), ((20, 20, 20, 20), 9, 200, 2, 130)]
    sizes += [((33, 80), 10, 72, 2, 99), ((20, 40, 20), 9, 34, 2, 99)]  # early
    for (i, (hidden, classes, batch, blocks, room)), halves in itertools.product(enumerate(sizes), (EXACT, ROUNDED)):
        problem = Problem(1, classes, hidden, batch)
        layout = _layout(i < 6)(problem, halves, block_shared_bytes=room << 10)
        memory = ParameterMemory(HostDevice().empty, problem)
        sums = _sums(random, layout, hidden[0])
        labels = labels_of(random, batch, classes)
        # Units on or off for all images: rounding would decide about one at its ReLU's corner. The first is barely on.
        biases = [np.append(BARELY, random.choice(np.array([2, -2], np.float32), units - 1)) for units in hidden]
        biases.append(normal(random, (classes,)))
        padded = np.zeros((layout.further, layout.width, layout.width))
        for own, above, below in zip(padded, hidden[1:], hidden[:-1], strict=True):
            own[:below, 1:above] = 0.2 * normal(random, (below, above - 1)) / np.float32(np.sqrt(below))
        last = np.zeros((layout.width, CLASSES))
        last[: hidden[-1], :classes] = normal(random, (hidden[-1], classes)) / np.float32(np.sqrt(hidden[-1]))
        if classes > 2:  # every row whose label is the second of two classes that tie is wrong
            last[:, 1], biases[-1][:2] = last[:, 0], biases[-1].max() + 1
            labels[1::3] = 1
        padded_biases = np.zeros((len(biases), layout.width), np.float32)
        for row, bias in zip(padded_biases, biases, strict=True):
            row[: len(bias)] = OUTPUT_SCALE * bias
        bits = [halves_of(each * WEIGHT_SCALE, halves) for each in (*padded, last)]
        scale = layout.gradient_scale
        padded = np.pad(np.stack(bits[:-1]), ((0, 0),) * 3 + ((0, PAD),), constant_values=0x7E00)  # rows end in NaN
        args: Args = {"sums": sums.view(np.uint16), "weights": padded, "last_weights": bits[-1]}
        args |= {"biases": padded_biases, "labels": labels}
        args |= {"outputs": _poisoned_halves(layout, layout.further)}
        args |= {"dsums": _poisoned_halves(layout, 1 + layout.further)}
        args |= {"partials": poison((blocks, layout.share)), "block_totals": np.full((blocks, 2), -1.0)}
        args |= {"batch": batch, "gradient_scale": scale, "with_totals": i % 2}

        rounding, accumulated = _half_rounding(halves), (2 * layout.width + 8) * UNIT
        weights = [scaled_down(each) for each in bits]
        wide_biases = [np.pad(bias, (0, layout.width - len(bias))) for bias in biases[:-1]]
        wide_biases.append(np.pad(biases[-1], (0, CLASSES - classes)))
        total = first_sums(layout, sums.view(np.uint16))
        off = 8 * UNIT * (np.abs(total) + np.abs(wide_biases[0]))
        outputs, offs = [np.maximum(total + wide_biases[0], 0)], [off]
        for weight, bias in zip(weights, wide_biases[1:], strict=True):
            w, below = np.abs(weight), outputs[-1]
            off = (offs[-1] + 2 * rounding * below) @ w + accumulated * (below @ w + np.abs(bias))
            offs.append(off)
            outputs.append(below @ weight + bias if weight is weights[-1] else np.maximum(below @ weight + bias, 0))
        logits, off = outputs.pop()[:, :classes], offs.pop()[:, :classes]
        off_powers = exp_error(logits.astype(np.float32))
        probs = doubles.softmax(logits, logits, batch, classes)["probs"]
        dlogits = np.abs(probs - np.eye(classes)[labels]) / batch
        moved = 2 * (2 * off.max(axis=1, keepdims=True) + off_powers)
        error = moved * probs / batch + (5 * UNIT + rounding) * dlogits + 2.0**-24 / scale
        below = logits.max(axis=1, keepdims=True) - logits  # exact ties stay ties: their weights are the same
        near = ((below > 0) & (below < 4 * off.max())).any(axis=1).sum()
        last_error, last_size = error, dlogits
        errors: list[Array] = []
        sizes_of_gradients: list[Array] = []
        error, size = (np.pad(each, ((0, 0), (0, CLASSES - classes))) for each in (error, dlogits))
        for weight in reversed(weights):
            w = np.abs(weight).T
            error = error @ w + (4 * rounding + accumulated) * (size @ w) + 2.0**-24 / scale
            size = size @ w
            errors.insert(0, error)
            sizes_of_gradients.insert(0, size)
        shares = np.zeros((blocks, layout.share))
        for block in range(blocks):
            own = np.arange(batch) // layout.head_rows % blocks == block
            summing = (2 * own.sum() + 8) * UNIT
            noise = (2 * rounding + summing) * last_size[own] + last_error[own]
            of_weights = outputs[-1][own].T @ noise + (offs[-1][own] + BARELY).T @ last_size[own]
            of_hidden = [
                (each[own] + (rounding + summing) * its_size[own]).sum(axis=0)[:units]
                for each, its_size, units in zip(errors, sizes_of_gradients, hidden, strict=True)
            ]
            shares[block] = np.concatenate([of_weights[: hidden[-1]].ravel(), noise.sum(axis=0), *of_hidden])
        loss = (batch // blocks + layout.head_rows) * (4 * off.max() + 2 * off_powers)
        left = [OUTPUT_SCALE * (its + rounding * output) for its, output in zip(offs, outputs, strict=True)][:-1]
        bounds: dict[str, Array | float] = {"outputs": np.stack(left) + 2.0**-24, "partials": shares + TINY}
        bounds |= {"dsums": scale * np.stack(errors) + 2.0**-24, "block_totals": np.array([loss, float(near)])}
        how: dict[str, Any] = {"shared_bytes": layout.head_bytes, "macros": layout.head_macros(memory)}
        how["macros"] += (("BY_ENGINE", "0"),) * (i % 2)  # as before sm_90
        case = Case("hidden_layers", (blocks,), (WARP * layout.head_warps,), args, bounds, **how)
        case = replace(case, on_gpu_alone=i < 6 and _is_told_by_others(i, halves))
        yield _on_halves(case, layout, ("outputs", "dsums"))


def update_all(random: Generator) -> Iterator[Case]:
    # Inputs, hidden units, classes; splits, splits of further layers, shares.
    sizes: list[tuple[int, tuple[int, ...], int, int, int, int]]
    sizes = [(1, (1,), 1, 1, 0, 1), (16, (32,), 10, 4, 0, 9), (33, (66,), 10, 3, 0, 40), (112, (36,), 16, 16, 0, 17)]
    sizes += [(17, (7,), 3, 0, 0, 0), (20, (33, 7), 10, 2, 5, 3), (17, (5, 40, 9), 4, 1, 3, 9), (9, (8, 3), 2, 0, 0, 0)]
    rate = float(np.float32(2.0**-4))
    for (i, (inputs, hidden, classes, *splits, shares)), halves in itertools.product(
        enumerate(sizes), (EXACT, ROUNDED)
    ):
        problem = Problem(inputs, classes, hidden)
        layout, memory = Layout(problem, halves), ParameterMemory(HostDevice().empty, problem)
        own, its = splits
        gradients = normal(random, (max(own, 1), layout.features, layout.wide))
        further_gradients = normal(random, (layout.further, its, layout.wide, layout.wide))
        partials, parameters = normal(random, (max(shares, 1), layout.share)), normal(random, memory.flat.shape)
        by_unit = np.full((halves, layout.width, CLASSES), 0x7E00, np.uint16)
        args: Args = {"gradients": gradients, "further_gradients": further_gradients, "partials": partials}
        args |= {"parameters": parameters, "halves": np.full((layout.features, layout.wide), 0x7E00, np.uint16)}
        rows = layout.further, halves, layout.width, layout.width + PAD
        args |= {"further_halves": np.full(rows, 0x7E00, np.uint16)}
        args |= {"by_class": np.ascontiguousarray(by_unit.transpose(0, 2, 1)), "by_unit": by_unit}
        args |= {"biases": poison((layout.further + 2, layout.width))}
        args |= {"block_totals": random.random((max(shares, 1), 2)), "totals": np.array([12.5, 3.0])}
        args |= {"splits": own, "further_splits": its, "features": layout.features, "width": layout.width}
        args |= {"shares": shares, "rate": rate, "with_totals": i % 2}

        magnitudes = ("gradients", "further_gradients", "partials", "parameters")
        sizes_of: Args = {name: np.abs(args[name]) for name in magnitudes}
        still: Args = {"totals": np.zeros(2), "rate": -rate, "with_totals": 0}
        moved = doubles.update_all(layout, memory, **(args | sizes_of | still))  # type: ignore[arg-type]  # adds magnitudes
        unit = (2 * max(own, its, shares) + 4) * UNIT
        bounds: dict[str, Array | float] = {"parameters": unit * moved["parameters"], "totals": 1e-12 * shares}
        for name in ("halves", "further_halves", "by_class", "by_unit"):
            bounds[name] = (unit + 2 * _half_rounding(halves)) * np.nan_to_num(moved[name]) + 2.0**-24
        bounds["biases"] = unit * np.nan_to_num(moved["biases"])
        case = Case("update_all", (layout.update_blocks,), (UPDATE_THREADS,), args, bounds)
        case = replace(case, macros=layout.update_macros(memory), on_gpu_alone=_is_told_by_others(i, halves))
        yield _on_halves(case, layout, ("halves", "further_halves", "by_class", "by_unit"), memory=memory)


def _is_told_by_others(i: int, halves: int) -> bool:
    """Whether the CPU compiles this size for other halves alone: two sizes for some, with totals and without."""
    return halves != (EXACT, ROUNDED)[i // 2 % 2]


def _layout(is_late: bool) -> type[Layout]:
    return Layout if is_late else EarlyLayout


def _sums(random: Generator, layout: Layout, units: int) -> Array:
    """The first layer's sums as a head takes them, of its first unit zeros."""
    parts = 1 if isinstance(layout, EarlyLayout) else layout.halves
    number = np.float32 if layout.halves == EXACT else np.float16
    sums = np.zeros((layout.problem.batch_size, parts, layout.width), number)
    sums[..., 1:units] = random.normal(0, 0.2, (*sums.shape[:-1], units - 1))
    return sums.reshape(len(sums), -1)


def _poisoned_halves(layout: Layout, *matrices: int) -> Array:
    """Halves of numbers (.., B, U) for a head to write: rows with halves beside each other, or chunks."""
    early = layout.halves, layout.rows * layout.width // 256, 256
    shape = early if isinstance(layout, EarlyLayout) else (layout.rows, layout.wide)
    return np.full((*matrices, *shape), 0x7E00, np.uint16)


def images_product(random: Generator) -> Iterator[Case]:
    # Batch, inputs, units, multiprocessors, which choose the tile.
    sizes = [(1, 1, 1, 1), (33, 40, 50, 3), (16, 129, 64, 2), (100, 300, 130, 1), (70, 16, 200, 132)]
    for (batch, inputs, units, processors), halves in itertools.product(sizes, (EXACT, ROUNDED)):
        layout = EarlyLayout(Problem(inputs, 10, (units,), batch), halves, processors)
        images = np.zeros((layout.rows, layout.features), np.float16)
        images[:batch, :inputs] = _pixels(random, (batch, inputs)) / np.float32(256)
        weights = np.zeros((layout.features, layout.width))
        weights[:inputs, :units] = normal(random, (inputs, units))
        bits, chunks = halves_of(weights * WEIGHT_SCALE, halves), chunks_of(images.view(np.uint16), by_columns=False)
        args: Args = {"images": chunks.reshape(layout.rows // EDGE, -1, 256), "weights": chunks_of(bits)}
        args |= {"sums": np.full((batch, layout.wide), 0x7E00, np.uint16)}
        args |= {"batch": batch, "features": layout.features, "width": layout.width}
        size = images[:batch].astype(np.float64) @ np.abs(weights)
        bound = ((layout.features + 8) * UNIT + (halves == ROUNDED) * HALF_UNIT) * size + 2.0**-24
        bound += 2 * _half_rounding(halves) * size
        how: dict[str, Any] = {"shared_bytes": layout.product_bytes, "macros": layout.product_macros}
        how["readings"] = {"sums": lambda bits, type_=np.float32 if halves == EXACT else np.float16: bits.view(type_)}
        case = Case("images_product", layout.product_blocks, (UPDATE_THREADS,), args, {"sums": bound}, **how)
        yield replace(case, besides={"layout": layout})


def update_by_products(random: Generator) -> Iterator[Case]:
    # Inputs, hidden units, classes, batch, shares.
    sizes: list[tuple[int, tuple[int, ...], int, int, int]]
    sizes = [(1, (1,), 1, 1, 1), (33, (66,), 10, 40, 3), (130, (32,), 16, 150, 9), (17, (7,), 3, 0, 0)]
    sizes += [(20, (33, 7), 10, 33, 3), (49, (5, 70, 9), 4, 130, 17), (9, (8, 3), 2, 0, 0)]
    rate = float(np.float32(2.0**-4))
    for (i, (inputs, hidden, classes, batch, shares)), halves in itertools.product(enumerate(sizes), (EXACT, ROUNDED)):
        layout = EarlyLayout(Problem(inputs, classes, hidden, max(batch, 1)), halves)
        memory, width = ParameterMemory(HostDevice().empty, layout.problem), layout.width
        images = np.zeros((layout.rows, layout.features), np.float16)
        images[:batch, :inputs] = _pixels(random, (max(batch, 1), inputs))[:batch] / np.float32(256)
        numbers = np.zeros((1 + 2 * layout.further, layout.rows, width))
        numbers[:, :batch] = normal(random, (len(numbers), batch, width))
        bits = np.stack([halves_of(each, halves) for each in numbers])
        further = layout.further
        chunks = chunks_of(images.view(np.uint16), by_columns=False)
        args: Args = {"images": chunks.reshape(layout.rows // EDGE, -1, 256), "outputs": chunks_of(bits[:further])}
        args |= {"dsums": chunks_of(bits[further:]), "partials": normal(random, (max(shares, 1), layout.share))}
        args |= {"parameters": normal(random, memory.flat.shape)}
        args |= {"halves": np.zeros((halves, layout.features * width // 256, 256), np.uint16)}
        args |= {"further_halves": np.zeros((further, halves, width, width + PAD), np.uint16)}
        args |= {"by_class": np.full((halves, CLASSES, width), 0x7E00, np.uint16)}
        args |= {"by_unit": np.full((halves, width, CLASSES), 0x7E00, np.uint16)}
        args |= {"biases": poison((further + 2, width)), "block_totals": random.random((max(shares, 1), 2))}
        args |= {"totals": np.array([12.5, 3.0]), "batch": batch, "features": layout.features}
        args |= {"parts": layout.part_blocks, "shares": shares}
        args |= {"gradient_scale": 4.0, "rate": rate, "with_totals": i % 2}

        sizes_of: Args = {name: np.abs(args[name]) for name in ("partials", "parameters")}
        of_bits = chunks_of(np.abs(bits.view(np.float16)).view(np.uint16))
        sizes_of |= {"outputs": of_bits[:further], "dsums": of_bits[further:]}
        still: Args = {"totals": np.zeros(2), "rate": -rate, "with_totals": 0}
        moved = doubles.update_by_products(layout, memory, **(args | sizes_of | still))  # type: ignore[arg-type]
        unit = (2 * (layout.rows + shares) + 8) * UNIT + (halves == EXACT) * 2.0**-21
        bounds: dict[str, Array | float] = {"parameters": unit * moved["parameters"], "totals": 1e-12 * shares}
        for name in ("halves", "further_halves", "by_class", "by_unit"):
            bounds[name] = (unit + 2 * _half_rounding(halves)) * np.nan_to_num(moved[name]) + 2.0**-24
        bounds["biases"] = unit * np.nan_to_num(moved["biases"])
        how: dict[str, Any] = {"shared_bytes": layout.part_bytes, "macros": layout.part_macros(memory)}
        case = Case("update_by_products", (layout.update_blocks,), (UPDATE_THREADS,), args, bounds, **how)
        case = _on_halves(case, layout, ("further_halves", "by_class", "by_unit"), memory=memory)
        first = {"halves": lambda bits, rows=layout.features: _summed(from_chunks(bits, rows))}
        yield replace(case, readings=case.readings | first, on_gpu_alone=_is_told_by_others(i, halves))


def _summed(bits: Array) -> Array:
    """The numbers (.., I, O) of the bits of their halves (.., halves, I, O)."""
    summed: Array = bits.view(np.float16).astype(np.float64).sum(axis=-3)
    return summed


def _on_halves(case: Case, layout: Layout, outputs: tuple[str, ...], **besides: Any) -> Case:
    """The case with outputs of halves read as their sums."""

    def beside(bits: Array) -> Array:
        if isinstance(layout, EarlyLayout):
            return _summed(from_chunks(bits, layout.rows)[..., : layout.problem.batch_size, :])
        rows = sum_of_halves(bits.reshape(-1, bits.shape[-1]), layout.halves)
        return rows.reshape(*bits.shape[:-1], layout.width)

    readings: dict[str, Callable[[Array], Array]] = {
        name: beside if name in ("dsums", "halves", "outputs") else _summed for name in outputs
    }
    if "further_halves" in readings:
        readings["further_halves"] = lambda bits: _summed(bits[..., :-PAD])
    return replace(case, besides={"layout": layout, **besides}, readings=readings)


def _half_rounding(halves: int) -> float:
    """Relative rounding error of a number as the sum of so many float16."""
    return 2.0 ** (-11 * halves)


def neighbour_grams(random: Generator) -> Iterator[Case]:
    # In the last, each of the sixteen blocks has more steps than chunks in its ring.
    for steps, batch, inputs in [(2, 16, 1), (3, 48, 33), (2, 128, 50), (4, 112, 7), (120, 48, 1)]:
        images = fragments(HostDevice(), list(_pixels(random, (steps, batch, inputs))))
        tiles, pairs = images.shape[1:3]
        grams = np.full((steps - 1, 2 * pairs, pairs, 32, 8), np.nan, np.float16)
        args: Args = {"images": images, "grams": grams, "ready": np.zeros(steps - 1, np.int32), "steps": steps}
        args |= {"pairs": pairs, "tiles": tiles, "epoch": 7}
        # float32 holds the inner products of so few pixels exactly, in any order of the sum.
        bounds: dict[str, Array | float] = {"grams": 0.0, "ready": 0.0}
        yield Case("neighbour_grams", (1,), (GRAM_THREADS,), args, bounds, BLOCKS, GRAM_BYTES)  # one cluster


def persistent_cluster(random: Generator) -> Iterator[Case]:
    sizes = [(1, 16, 1, 1, 1), (2, 16, 16, 2, 3), (5, 48, 33, 9, 1), (4, 128, 784, 10, 1), (3, 112, 1023, 16, 1)]
    sizes += [(19, 32, 40, 10, 2)]  # more than twice as many steps as batches in the ring
    sizes += [(5, 100, 784, 10, 1), (3, 9, 50, 12, 2)]  # padded
    for (i, (steps, batch, inputs, classes, networks)), with_totals in itertools.product(enumerate(sizes), (0, 1)):
        shared, bounds = _softmax_regressions(random, steps, batch, inputs, classes, networks)
        tiles, pairs = shared["images"].shape[1:3]
        padded = ((0, 0), (0, 16 * pairs - batch))
        shared["labels"] = np.pad(shared["labels"], padded, constant_values=-1)
        shared["learning_rates"] = (shared["learning_rates"] * (16 * pairs / batch)).astype(np.float32)
        grams = np.full((max(steps - 1, 1), 2 * pairs, pairs, 32, 8), np.nan, np.float16)
        grams[: steps - 1] = neighbour_grams_of(shared["images"])
        args: Args = {"images": shared.pop("images"), "labels": shared.pop("labels"), "grams": grams}
        args |= {"ready": np.full(len(grams), 7, np.int32), **shared, "steps": steps, "pairs": pairs, "tiles": tiles}
        args |= {"inputs": inputs, "classes": classes, "stride": (inputs + 1) * classes, "number": 7}
        args |= {"with_totals": with_totals}
        case = Case("persistent_cluster", (networks,), (CLUSTER_THREADS,), args, bounds, BLOCKS, SHARED_BYTES)
        macros = (("IS_PADDED", "1"),) if batch % 16 else ()
        if networks > 1:
            case, macros = replace(case, shared_bytes=SHARED_BYTES // 2), (("BLOCKS_A_MULTIPROCESSOR", "2"), *macros)
        is_other = with_totals == i % 2 or inputs == 784 or networks == 3  # tells a CPU no more than another
        yield replace(case, macros=macros, on_gpu_alone=is_other)


def fleet_columns(random: Generator) -> Iterator[Case]:
    # Steps, batch, inputs, classes, networks, of a cluster. One or no tile a warp and two; groups that networks share.
    sizes = [(1, 16, 1, 1, 1, 1), (5, 48, 140, 10, 2, 3), (2, 128, 784, 10, 4, 3), (3, 112, 1023, 16, 1, 2)]
    sizes += [(3, 32, 40, 3, 7, 4), (3, 80, 600, 10, 5, 3)]
    for (i, size), with_totals in itertools.product(enumerate(sizes), (0, 1)):
        steps, batch, inputs, classes, networks, of_cluster = size
        shared, bounds = _softmax_regressions(random, steps, batch, inputs, classes, networks)
        images = columns_rung.chunks(HostDevice(), shared["images"]).view(np.uint16)
        args: Args = {**shared, "images": images, "steps": steps, "inputs": inputs}
        args |= {"stride": (inputs + 1) * classes, "count": networks, "with_totals": with_totals}
        problem, block = Problem(inputs, classes, batch_size=batch), (columns_rung.THREADS,)
        case = Case("fleet_columns", (_blocks(networks, of_cluster),), block, args, bounds, columns_rung.BLOCKS)
        of_plan = {name: getattr(columns_rung, name)(problem, of_cluster) for name in ("shared_bytes", "macros")}
        is_other = with_totals == i % 2  # by turns, since the kernel is the same but for its totals
        yield replace(case, **of_plan, besides={"classes": classes}, on_gpu_alone=is_other)


def _softmax_regressions(
    random: Generator, steps: int, batch: int, inputs: int, classes: int, networks: int
) -> tuple[dict[str, Array], dict[str, Array | float]]:
    """Images, labels, parameters, totals and rates of networks that train on the same batches, and what they may err.

    Weights and biases of a network lie (inputs + 1) * classes numbers after the previous one's, in an array each.
    """
    pixels = _pixels(random, (steps, batch, inputs))
    weight = normal(random, (networks, inputs + 1, classes)) / np.float32(8)
    rates = np.array([0.125, 0.0625, 0.5, 0.25, 0.0, 0.03125, 0.375][:networks], np.float32)
    labels = random.integers(0, classes, (steps, batch), np.int32)
    args = {"images": fragments(HostDevice(), list(pixels)), "labels": labels}
    args |= {"weight": weight, "bias": normal(random, (networks, (inputs + 1) * classes))}
    args |= {"totals": np.array([[12.5, 3.0]] * networks), "learning_rates": rates}
    # A probability's relative error is its logit's absolute one: the rounding of its terms, 2^-22 each, most of which
    # averages out. An update is a mean over images.
    most = float(np.abs(args["bias"]).max())
    logit = 16 * UNIT * float((pixels @ np.abs(weight[:, None, :inputs]) + most).max())
    moved = steps * (float(rates.max()) * logit + 4 * UNIT * (1 + float(np.abs(weight).max() + most)))
    totals = np.array([steps * batch * 2 * (logit + moved), 0.0])
    return args, {"weight": moved, "bias": moved, "totals": totals}


def cluster_mlp(random: Generator) -> Iterator[Case]:
    # Inputs, hidden layers, classes, batch; blocks and warps that share the features; whether logits lie in the first
    # layer's exchange, which holds them from 65 images on. With two halves a number, messages of the last two cases
    # come in turns.
    sizes: list[tuple[int, tuple[int, ...], int, int, int, int, bool]]
    sizes = [(1, (1,), 1, 1, 1, 1, False), (16, (8,), 2, 16, 1, 1, False), (50, (128, 33), 9, 33, 2, 2, False)]
    sizes += [(784, (256,), 10, 128, 4, 1, False), (300, (17, 40, 5, 9), 16, 17, 1, 16, False)]
    sizes += [(60, (20, 33), 10, 65, 1, 4, True), (60, (20, 130), 10, 32, 1, 4, False)]
    sizes += [
        (90, (220, 70), 10, 72, 2, 4, False),
        (64, (40,), 62, 50, 1, 2, False),
        (70, (50, 130), 26, 24, 2, 1, False),
    ]
    sizes += [(784, (256, 256, 256), 10, 32, 8, 1, True)]
    # By warpgroups: units in two parts, images in two that overlap, and features in sets that do.
    sizes += [
        (784, (220, 70), 10, 72, 4, 1, False),
        (784, (220,), 10, 72, 2, 1, False),
        (200, (120,), 10, 60, 4, 1, False),
    ]
    plans = [(*one, BLOCKS, halves) for one in sizes for halves in (EXACT, ROUNDED)]
    plans += [(60, (20, 130), 10, 24, 2, 1, False, 8, halves) for halves in (EXACT, ROUNDED)]
    plans += [(60, (40, 24), 20, 180, 2, 1, False, BLOCKS, EXACT), (60, (40,), 10, 100, 2, 1, False, 4, EXACT)]
    plans += [(60, (20, 130), 10, 32, 2, 1, False, 4, EXACT), (60, (20, 130), 10, 27, 1, 4, False, 4, ROUNDED)]
    plans += [(784, (128, 128, 128), 10, 32, 4, 2, False, 4, ROUNDED)]
    for (i, plan_of), with_totals in itertools.product(enumerate(plans), (0, 1)):
        inputs, hidden, classes, batch, split, ways, shares, blocks, halves = plan_of
        # A step moves a logit by rate times the squares of its inputs, about sixteen each, times the mean of dlogits.
        # Were that more than one in all, the next step would enlarge a step's rounding by as much.
        steps, rate = 3, 1 / (16 * max(hidden))
        problem = Problem(inputs=inputs, classes=classes, hidden=hidden, batch_size=batch)
        plan = Plan(problem, split, ways, halves, shares, blocks)
        pixels = _pixels(random, (steps, batch, inputs))
        memory = _settled(random, problem)
        if halves == EXACT:
            memory.weights[-2][:, 0], memory.biases[-2][0] = 0.0, BARELY
        labels = random.integers(0, classes, (steps, batch), np.int32)
        args: Args = {"images": matrices(HostDevice(), list(pixels), plan.tiles), "labels": labels}
        networks = 2 if len(hidden) == 2 else 1
        rates = np.array([rate, rate / 2][:networks], np.float32)
        parameters = np.stack([memory.flat, -memory.flat][:networks])
        args |= {"parameters": parameters, "totals": np.array([[12.5, 3.0]] * networks), "learning_rates": rates}
        args |= {"steps": steps, "n": memory.flat.size, "with_totals": with_totals}
        bounds = _trained(steps, len(problem.layers), batch, halves, rate, {"parameters": memory.flat})
        of_plan = {"plan": np.array(plan.numbers(memory.weight_begins, memory.bias_begins))}
        case = Case(
            "cluster_mlp", (networks,), (MLP_THREADS,), args, bounds, blocks, plan.shared_bytes, besides=of_plan
        )
        # Sixteen blocks take a CPU long: of their plans it executes those with what fewer blocks do not have.
        is_rare = shares or len(hidden) == 4 or classes == 62 or inputs == 1
        is_told = blocks < BLOCKS or (is_rare and shares == (halves == ROUNDED))
        on_gpu_alone = with_totals == i % 2 or inputs == 784 or not is_told
        yield replace(case, macros=plan.macros(memory.weight_begins, memory.bias_begins), on_gpu_alone=on_gpu_alone)


def cluster_ahead(random: Generator) -> Iterator[Case]:
    # Steps, inputs, units, classes, batch, turns, halves, totals: more steps than slots; units that fill no block.
    sizes = [(1, 1, 1, 1, 1, 1, EXACT, 1), (5, 40, 50, 10, 27, 1, EXACT, 0), (5, 40, 50, 10, 27, 1, ROUNDED, 1)]
    sizes += [(3, 20, 250, 10, 27, 4, EXACT, 1), (3, 20, 120, 10, 27, 2, ROUNDED, 0)]
    large = [(3, 200, 128, 16, 64), (2, 784, 256, 10, 128), (11, 130, 250, 9, 33), (3, 90, 300, 12, 60)]
    large += [(3, 784, 1000, 10, 120)]
    sizes += [(*one, 1, *more) for one in large for more in itertools.product((EXACT, ROUNDED), (0, 1))]
    for steps, inputs, units, classes, batch, turns, halves, with_totals in sizes:
        problem = Problem(inputs=inputs, classes=classes, hidden=(units,), batch_size=batch)
        plan = AheadPlan(problem, halves, turns)
        pixels = _pixels(random, (steps, batch, inputs))
        images = fragments(HostDevice(), list(pixels), plan.pairs, plan.slice_tiles * SHARES)
        shape = (max(steps - 1, 1), 2 * plan.pairs, plan.pairs, 32)
        grams = np.full((*shape, 2, 4), np.nan, np.float16)
        grams[: steps - 1] = neighbour_grams_of(images).reshape(-1, *shape[1:], 2, 4)
        labels = np.full((steps, EDGE * plan.pairs), classes, np.int32)
        labels[:, :batch] = random.integers(0, classes, (steps, batch), np.int32)
        weights = normal(random, (inputs, units)) / np.float32(4 * np.sqrt(inputs))
        last_weights = normal(random, (units, classes)) / np.float32(4 * np.sqrt(units))
        # Units that are always on or always off: rounding would decide about one at its ReLU's corner.
        bias, last_bias = random.choice(np.array([-4, 4], np.float32), units), normal(random, (classes,))
        args: Args = {"images": images.view(np.uint16), "labels": labels}
        args |= {"grams": np.ascontiguousarray(grams[..., :halves, :]).view(np.uint16)}
        args |= {"ready": np.full(len(grams), 7, np.int32), "weights": weights, "bias": bias}
        args |= {"last_weights": last_weights, "last_bias": last_bias, "totals": np.array([12.5, 3.0])}
        products, doutputs = (np.zeros(words, np.uint32) for words in plan.mailbox_words)
        args |= {"products": products, "doutputs": doutputs}
        rate = np.float32(1 / (16 * units * batch))
        args |= {"steps": steps, "inputs": inputs, "units": units, "batch": batch, "number": 7, "begun": 0}
        args |= {"rate": float(rate), "with_totals": with_totals}
        parameters = {name: args[name] for name in ("weights", "bias", "last_weights", "last_bias")}
        bounds = _trained(steps, 2, batch, halves, float(rate) * batch, parameters)
        case = Case("cluster_ahead", (CLUSTERS,), (AHEAD_THREADS,), args, bounds, plan.blocks, plan.shared_bytes)
        is_large = plan.blocks > SIZES[0]
        yield replace(case, macros=plan.macros, besides={"pixels": pixels}, on_gpu_alone=is_large)


def persistent_grid(random: Generator) -> Iterator[Case]:
    # Hidden layers, classes, batch, inputs, blocks, KiB of shared memory, parts of a number: with held tiles and
    # without, with the tail's weights in shared memory and without, with several wide layers, and with more classes
    # than a group.
    sizes: list[OnGrid]
    sizes = [((), 10, 1, 1, 1, 32, 3), ((), 10, 37, 17, 3, 32, 3), ((33,), 10, 20, 49, 3, 40, 3)]
    sizes += [
        ((5, 3, 4), 10, 33, 17, 2, 40, 3),
        ((100, 100), 10, 16, 60, 4, 28, 3),
        ((70, 40, 50), 10, 70, 49, 3, 40, 3),
    ]
    sizes += [
        ((100, 100, 100), 10, 16, 60, 4, 16, 3),
        ((64, 64, 64), 10, 16, 20, 4, 30, 3),
        ((40,), 50, 7, 20, 2, 40, 3),
    ]
    sizes += [((33,), 10, 20, 49, 3, 40, 1), ((100, 100), 10, 16, 60, 4, 54, 1), ((50, 50, 50), 10, 70, 20, 2, 14, 1)]
    for with_totals, size in zip(itertools.cycle((1, 0)), sizes, strict=False):
        yield _on_grid(random, size, with_totals)


def grid_pairs(random: Generator) -> Iterator[Case]:
    # As above: pairs with a tail and without; layers alone between pairs and before one, there also cut along their
    # inputs; a step's images beside those before and in their place.
    sizes: list[OnGrid]
    sizes = [((100, 20), 50, 20, 20, 7, 70, 3), ((33, 20, 60, 100), 3, 20, 20, 3, 90, 3)]
    sizes += [((80, 90, 30), 10, 70, 60, 5, 126, 3), ((90, 20), 5, 70, 33, 4, 60, 1), ((30, 40), 70, 18, 9, 1, 90, 1)]
    for with_totals, size in zip(itertools.cycle((1, 0)), sizes, strict=False):
        yield _on_grid(random, size, with_totals, kernel="grid_pairs", make=pairs_plan.make_plan)


def fleet_grid(random: Generator) -> Iterator[Case]:
    # Networks, and each as above: one block, a batch in chunks beside held tiles, several wide layers.
    sizes: list[tuple[int, OnGrid]]
    sizes = [(3, ((), 10, 37, 17, 1, 32, 3)), (1, ((33,), 10, 20, 49, 3, 40, 3)), (3, ((33,), 10, 70, 49, 2, 44, 3))]
    sizes += [(2, ((64, 64, 64), 10, 16, 20, 4, 30, 3))]
    for with_totals, (networks, size) in zip(itertools.cycle((1, 0)), sizes, strict=False):
        found = [_on_grid(random, size, with_totals, (16,)) for _ in range(networks)]
        case, room = found[0], -(-found[0].besides["plan"].workspace // LINE) * LINE
        names = ("parameters", "block_totals", "totals")
        args = case.args | {name: np.stack([np.asarray(of_one.args[name]) for of_one in found]) for name in names}
        args |= {"workspace": np.zeros((networks, room), np.float32), "arrived": np.zeros((networks, LINE), np.uint32)}
        rates = np.array([args.pop("learning_rate"), 0.0, 0.0625], np.float32)[:networks]
        steps = args.pop("steps")
        args |= {"learning_rates": rates, "stride": np.asarray(args["parameters"]).shape[1], "room": room}
        args |= {"steps": steps, "with_totals": args.pop("with_totals")}
        bounds: dict[str, Array | float] = {"arrived": 0.0}
        for name in ("parameters", "totals"):
            bounds[name] = np.max(np.array([of_one.bounds[name] for of_one in found]), axis=0)
        bounds["block_totals"] = bounds["totals"]
        readings = {"block_totals": lambda totals: totals.sum(axis=1)}
        grid = (size[4], networks)
        yield replace(case, kernel="fleet_grid", grid=grid, args=args, bounds=bounds, readings=readings)


OnGrid = tuple[tuple[int, ...], int, int, int, int, int, int]


def _on_grid(
    random: Generator,
    size: OnGrid,
    with_totals: int,
    chunks: tuple[int, ...] = (),
    kernel: str = "persistent_grid",
    make: Callable[..., GridPlan | None] = make_plan,
) -> Case:
    """Two steps of persistent_grid, or of another kernel by its plan."""
    (hidden, classes, batch, inputs, blocks, kib, parts), steps, rate = size, 2, 0.125
    unit = UNIT if parts == ALL_PARTS else 2.0**-9  # of the factors of a product
    problem = Problem(inputs=inputs, classes=classes, hidden=hidden, batch_size=batch)
    memory = ParameterMemory(HostDevice().empty, problem)
    memory.flat[...] = 0
    drawn = initial_params(problem, run=int(random.integers(1000)))
    for weight, values in zip(memory.weights, drawn.weights, strict=True):
        weight[...] = values / 4
    # Far from zero, so that no rounding moves a unit across its ReLU's corner; some units are on, some off.
    for bias in memory.biases[:-1]:
        bias[...] = random.permutation(np.resize([2.0, -2.0], bias.shape))
    if parts == ALL_PARTS:
        memory.biases[-1][...] = normal(random, (classes,))
    else:  # further apart than rounding moves logits, so that the number right is certain
        memory.biases[-1][...] = 4.0 * random.permutation(classes) - 2.0 * classes
    plan = make(problem, steps, memory.weight_begins, memory.bias_begins, blocks, kib << 10, parts, chunks)
    assert plan is not None
    pixels = _pixels(random, (steps, batch, inputs))
    args: Args = {"images": slices_of(HostDevice(), list(pixels), plan)}
    args |= {"labels": random.integers(0, classes, (steps, batch), np.int32)}
    args |= {"parameters": memory.flat, "workspace": np.zeros(plan.workspace, np.float32)}
    args |= {"block_totals": np.full((blocks, 2), np.nan), "totals": np.array([12.5, 3.0])}
    args |= {"arrived": np.zeros(1, np.uint32), "steps": steps, "learning_rate": rate, "with_totals": with_totals}
    # Activations are below 4, and a unit's weights together below 8: both bound the rounding of a logit. An
    # update is a mean of gradients times activations.
    logit = 4 * unit * (8 + max(inputs, *hidden, 0) ** 0.5)
    moved = steps * (4 * rate * logit + 4 * UNIT * float(np.abs(memory.flat).max()))
    totals = np.array([steps * batch * 2 * (logit + 4 * moved), 0.0])
    bounds: dict[str, Array | float] = {"parameters": moved, "totals": totals, "arrived": 0.0}
    made = Case(kernel, (blocks,), (GRID_THREADS,), args, bounds, besides={"plan": plan})
    return replace(made, cooperative=True, shared_bytes=plan.shared_bytes, macros=plan.macros)


def grid_messages(random: Generator) -> Iterator[Case]:
    # Steps, inputs, units of hidden layers, classes, batch, thin and thick shares, halves. Images of thin shares
    # and of thick ones, units that fill no share, more steps than slots and tags. The larger ones are those of rungs.
    sizes = [
        (1, 1, (1,), 1, 1, 4, 1, EXACT),
        (5, 17, (33, 33), 10, 27, 2, 3, EXACT),
        (5, 40, (31, 8, 30), 10, 64, 3, 2, ROUNDED),
    ]
    sizes += [(6, 30, (31, 20, 3, 31), 3, 28, 3, 2, ROUNDED), (2, 100, (60, 60), 16, 100, 4, 2, EXACT)]
    sizes += [(6, 300, (250, 250, 250), 10, 121, 16, 8, EXACT), (6, 784, (300, 100), 10, 100, 16, 3, EXACT)]
    sizes += [(6, 784, (100, 300), 10, 100, 16, 3, ROUNDED), (6, 784, (220, 70), 10, 72, 16, 2, ROUNDED)]
    sizes += [(2, 784, (784,) * 4, 10, 64, 16, 7, EXACT), (2, 784, (784,) * 4, 10, 64, 16, 7, ROUNDED)]
    for i, (steps, inputs, hidden, classes, batch, thin, thick, halves) in enumerate(sizes):
        problem = Problem(inputs=inputs, classes=classes, hidden=hidden, batch_size=batch)
        plan = MessagesPlan(problem, halves, thin, thick)
        memory = _settled(random, problem)
        if halves == EXACT:  # too small for a high half, and yet above the corner
            memory.weights[-2][:, 0], memory.biases[-2][0] = 0.0, 1e-8
        pixels = _pixels(random, (steps, batch, inputs))
        args: Args = {"images": shares_of(HostDevice(), list(pixels), plan)}
        args |= {"labels": random.integers(0, classes, (steps, batch), np.int32)}
        args |= {"parameters": memory.flat, "mail": np.zeros(4 * plan.mail_units, np.uint32)}
        rate = np.float32(1 / (16 * max(hidden) * batch * GRADIENT_SCALE))
        args |= {"totals": np.array([12.5, 3.0]), "steps": steps, "rate": float(rate), "with_totals": 1 - i % 2}
        step = float(rate) * GRADIENT_SCALE * batch
        bounds = _trained(steps, len(problem.layers), batch, halves, step, {"parameters": memory.flat})
        case = Case("grid_messages", (plan.blocks,), (MESSAGES_THREADS,), args, bounds, shared_bytes=plan.shared_bytes)
        case = replace(case, cooperative=True, besides={"memory": memory, "pixels": pixels})
        macros = plan.macros(memory.weight_begins, memory.bias_begins)
        yield replace(case, macros=macros, on_gpu_alone=plan.blocks > 8)


def divided_batch(random: Generator) -> Iterator[Case]:
    # Steps, inputs, classes, batch, tiles of a block's images, units of an owner, halves: more owners than blocks with
    # images, and fewer; more tiles of features than warps; more steps than slots and tags. Large ones are of rungs.
    sizes = [(1, 1, 1, 1, 1, 2, EXACT), (5, 40, 10, 50, 2, 40, EXACT), (6, 33, 19, 70, 1, 100, ROUNDED)]
    sizes += [(3, 290, 3, 40, 2, 58, EXACT)]
    sizes += [(5, 784, 10, 900, tiles, 16, halves) for tiles in (1, 2, 3) for halves in (EXACT, ROUNDED)]
    sizes += [(5, 784, 10, 2000, 1, 16, EXACT), (3, 200, 47, 300, 1, 20, EXACT), (3, 1000, 16, 3000, 2, 64, ROUNDED)]
    for i, (steps, inputs, classes, batch, tiles, own, halves) in enumerate(sizes):
        problem = Problem(inputs=inputs, classes=classes, batch_size=batch)
        plan = BatchPlan(problem, halves, tiles, own)
        memory = _settled(random, problem)
        pixels = _pixels(random, (steps, batch, inputs))
        args: Args = {"images": of_blocks(HostDevice(), list(pixels), plan).view(np.uint16)}
        args |= {"labels": random.integers(0, classes, (steps, batch), np.int32)}
        args |= {"parameters": memory.flat, "mail": np.zeros(4 * plan.mail_units, np.uint32)}
        rate = np.float32(1 / (16 * inputs * batch * GRADIENT_SCALE))
        args |= {"totals": np.array([12.5, 3.0]), "steps": steps, "rate": float(rate), "with_totals": 1 - i % 2}
        bounds = _trained(steps, 1, batch, halves, 1 / (16 * inputs), {"parameters": memory.flat})
        case = Case("divided_batch", (plan.blocks,), (BATCH_THREADS,), args, bounds, shared_bytes=plan.shared_bytes)
        case = replace(case, cooperative=True, besides={"memory": memory, "pixels": pixels})
        macros = plan.macros(memory.weight_begins, memory.bias_begins)
        yield replace(case, macros=macros, on_gpu_alone=plan.blocks > 8)


def divided_hidden(random: Generator) -> Iterator[Case]:
    # Steps, inputs, units, classes, batch, tiles of a block's units: one block; several shares of each, of units and of
    # images that do not fill the last one; more steps than slots and tags; tiles of classes. Large ones are of rungs.
    sizes = [(1, 1, 1, 1, 1, 1), (5, 40, 40, 10, 130, 1), (6, 33, 50, 3, 70, 2), (5, 20, 40, 36, 70, 2)]
    sizes += [
        (5, 784, 256, 47, 512, 1),
        (5, 784, 128, 62, 512, 1),
        (3, 784, 256, 33, 1000, 2),
        (5, 784, 256, 10, 512, 1),
        (5, 784, 256, 10, 1000, 2),
        (3, 300, 200, 16, 1500, 3),
        (3, 100, 256, 16, 2048, 4),
        (3, 255, 863, 3, 463, 4),
        (3, 100, 1024, 32, 256, 2),
    ]
    for i, (steps, inputs, units, classes, batch, tiles) in enumerate(sizes):
        problem = Problem(inputs=inputs, classes=classes, hidden=(units,), batch_size=batch)
        plan = HiddenBatchPlan(problem, tiles)
        memory = _settled(random, problem)
        pixels = _pixels(random, (steps, batch, inputs))
        args: Args = {"images": of_shares(HostDevice(), list(pixels), plan).view(np.uint16)}
        args |= {"labels": random.integers(0, classes, (steps, batch), np.int32)}
        args |= {"parameters": memory.flat, "mail": np.zeros(4 * plan.mail_units, np.uint32)}
        rate = np.float32(1 / (16 * max(inputs, units) * batch * GRADIENT_SCALE))
        args |= {"totals": np.array([12.5, 3.0]), "steps": steps, "rate": float(rate), "with_totals": 1 - i % 2}
        bounds = _trained(steps, 2, batch, ROUNDED, 1 / (16 * max(inputs, units)), {"parameters": memory.flat})
        case = Case("divided_hidden", (plan.blocks,), (HIDDEN_THREADS,), args, bounds, shared_bytes=plan.shared_bytes)
        case = replace(case, cooperative=True, besides={"memory": memory, "pixels": pixels})
        macros = plan.macros(memory.weight_begins, memory.bias_begins)
        yield replace(case, macros=macros, on_gpu_alone=plan.blocks > 9)


def streaming_epoch(random: Generator) -> Iterator[Case]:
    # Steps, inputs, hidden layers and their units, classes, batch, thin and thick shares. A last tile with fewer rows,
    # shares without images, either size of rows, more steps than slots and tags.
    sizes = [(6, 80, 2, 512, 10, 27, 4, 2), (3, 208, 4, 256, 16, 32, 2, 2), (2, 32, 2, 512, 3, 61, 4, 4)]
    yield from _epochs(random, sizes)
    # Deferred: so fast that a second step tells whether its products were corrected; an odd number of steps.
    yield from _epochs(random, [(2, 80, 3, 256, 10, 27, 2, 2)], deferred=True, speed=64)
    yield from _epochs(random, [(3, 208, 2, 512, 10, 40, 4, 4)], deferred=True)


def _epochs(
    random: Generator, sizes: Sequence[tuple[int, ...]], *, deferred: bool = False, speed: int = 1
) -> Iterator[Case]:
    for i, (steps, inputs, depth, units, classes, batch, thin, thick) in enumerate(sizes):
        problem = Problem(inputs=inputs, classes=classes, hidden=(units,) * depth, batch_size=batch)
        plan, memory = EpochPlan(problem, thin, thick, deferred), _settled(random, problem)
        packed = ParameterMemory(HostDevice().empty, problem)
        packed.flat[...] = memory.flat
        for ours, weights in zip(packed.weights[:-1], memory.weights, strict=False):
            ours[...] = to_planes(weights)
        pixels = _pixels(random, (steps, batch, inputs))
        args: Args = {"images": epoch_shares(HostDevice(), list(pixels), plan)}
        args |= {"labels": random.integers(0, classes, (steps, batch), np.int32)}
        args |= {"parameters": packed.flat, "mail": np.zeros(4 * plan.mail_units, np.uint32)}
        rate = np.float32(speed / (16 * units * batch * GRADIENT_SCALE))
        args |= {"totals": np.array([12.5, 3.0]), "steps": steps, "rate": float(rate), "with_totals": 1 - i % 2}
        bounds = _changed(doubles.streaming_epoch, memory, pixels, args)
        bounds |= {"totals": np.array([steps * batch * np.sqrt(speed) / 256, 2.0])}
        case = Case("streaming_epoch", (plan.blocks,), (EPOCH_THREADS,), args, bounds, shared_bytes=plan.shared_bytes)
        case = replace(case, cooperative=True, besides={"memory": memory, "pixels": pixels})
        case = replace(case, readings={"parameters": partial(_out_of_planes, problem)})
        yield replace(case, macros=plan.macros(memory.weight_begins, memory.bias_begins))


def _changed(
    double: Callable[..., Any], memory: ParameterMemory, pixels: Array, args: Args
) -> dict[str, Array | float]:
    """How far parameters may be off in bfloat16."""
    # A change of a layer is off by some of its largest numbers' rounding, to 2^-9 as factors and 2^-8 with a tag.
    wanted = double(memory, pixels=pixels, **{name: _widened(arg) for name, arg in args.items()})
    bound = len(pixels) * UNIT * np.abs(memory.flat)
    for begin, of in zip(memory.weight_begins + memory.bias_begins, memory.weights + memory.biases, strict=True):
        layer = slice(begin, begin + of.size)
        bound[layer] += np.abs(wanted["parameters"] - memory.flat)[layer].max() / 16
    return {"parameters": bound}


def stationary_epoch(random: Generator) -> Iterator[Case]:
    # Steps, inputs, hidden layers and their units, classes, batch, thin and thick shares. Units that fill no share,
    # owners without units, shares without images, thin shares of images and thick ones, more steps than slots and tags.
    sizes = [(6, 40, 3, 90, 10, 27, 4, 2), (5, 33, 2, 150, 16, 32, 4, 4), (2, 3, 4, 121, 3, 7, 4, 2)]
    yield from _stationary(random, [*sizes, (2, 17, 2, 121, 10, 32, 8, 1)])
    # Of whose lower halves registers do not hold all.
    yield from _stationary(random, [(3, 300, 3, 90, 10, 32, 4, 2)], most_pieces=6)


def _stationary(random: Generator, sizes: Sequence[tuple[int, ...]], most_pieces: int = MOST_PIECES) -> Iterator[Case]:
    for i, (steps, inputs, depth, units, classes, batch, thin, thick) in enumerate(sizes):
        problem = Problem(inputs=inputs, classes=classes, hidden=(units,) * depth, batch_size=batch)
        plan, memory = StationaryPlan(problem, ROUNDED, thin, thick, most_pieces), _settled(random, problem)
        pixels = _pixels(random, (steps, batch, inputs))
        images = shares_of(HostDevice(), list(pixels), plan, bits_of=bfloat16_bits, axes=(2, 0, 3, 1))
        args: Args = {"images": images, "labels": random.integers(0, classes, (steps, batch), np.int32)}
        args |= {"parameters": memory.flat, "mail": np.zeros(4 * plan.mail_units, np.uint32)}
        rate = np.float32(1 / (16 * units * batch * GRADIENT_SCALE))
        args |= {"totals": np.array([12.5, 3.0]), "steps": steps, "rate": float(rate), "with_totals": 1 - i % 2}
        bounds = _changed(doubles.stationary_epoch, memory, pixels, args)
        bounds |= {"totals": np.array([steps * batch / 256, 2.0])}
        case = Case(
            "stationary_epoch", (plan.blocks,), (STATIONARY_THREADS,), args, bounds, shared_bytes=plan.shared_bytes
        )
        case = replace(case, cooperative=True, besides={"memory": memory, "pixels": pixels})
        yield replace(case, macros=plan.macros(memory.weight_begins, memory.bias_begins))


def _out_of_planes(problem: Problem, flat: Array) -> Array:
    memory = ParameterMemory(HostDevice().empty, problem)
    memory.flat[...] = flat
    for weights in memory.weights[:-1]:
        weights[...] = from_planes(weights.copy())
    unpacked: Array = memory.flat
    return unpacked


def _settled(random: Generator, problem: Problem) -> ParameterMemory:
    """Small weights, and units that are always on or always off: rounding would decide at a ReLU's corner."""
    memory = ParameterMemory(HostDevice().empty, problem)
    memory.flat[...] = 0
    for weight in memory.weights:
        weight[...] = normal(random, weight.shape) / np.float32(4 * np.sqrt(len(weight)))
    for bias in memory.biases:
        bias[...] = random.choice([-4, 4], bias.shape)
    return memory


def _trained(
    steps: int, layers: int, batch: int, halves: int, rate: float, parameters: dict[str, Any]
) -> dict[str, Array | float]:
    """How far parameters and totals of a settled network may be off after some steps."""
    # Terms are rounded to 2^-22 of outputs of about four in every layer, which mostly averages out; weights this
    # small do not enlarge it from layer to layer. An update is a mean over images. Tensor cores do not round its
    # sum but cut each term off at the largest number's last bit. A unit's outputs are about four for all images,
    # so these errors have one sign and do not average out. Parameters are rounded, too.
    error = layers * 16 * UNIT + 4 * batch * UNIT
    if halves == ROUNDED:  # factors and parts of sums to 2^-12, with errors of both signs
        error += layers * 16 * HALF_UNIT
    # With one half a number an image's two largest logits may differ by less than the error.
    totals = np.array([steps * batch * error, 2.0 if halves == ROUNDED else 0.0])
    return {"totals": totals} | {
        name: steps * (rate * error + UNIT * np.abs(numbers)) for name, numbers in parameters.items()
    }


def _pixels(random: Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return random.integers(0, 256, shape).astype(np.float32) / np.float32(256)


def one_dimensional(kernel: str, threads: int, args: dict[str, Any], bounds: dict[str, Any]) -> Case:
    return Case(kernel, (_blocks(threads, BLOCK),), (BLOCK,), args, bounds)


def _blocks(threads: int, per_block: int) -> int:
    return -(-threads // per_block)


def counts() -> list[int]:
    return [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 3]


def _matrices() -> list[tuple[int, int]]:
    return [(1, 1), (1, BLOCK), (BLOCK - 1, 1), (13, 5), (3, BLOCK + 1), (33, 10)]


def _batches(rows: int) -> list[tuple[int, int]]:
    """Rows around a whole number of threads; one class, two, ten and many."""
    sizes = (1, rows - 1, rows, rows + 1, 2 * rows + 5)
    return [(size, classes) for size in sizes for classes in (1, 2, 10)] + [(3, 65)]


def normal(random: Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    return random.standard_normal(shape, np.float32)


def poison(shape: tuple[int, ...]) -> NDArray[np.float32]:
    return np.full(shape, np.nan, np.float32)


def signed(random: Generator, count: int) -> NDArray[np.float32]:
    """Numbers of both signs, with NaN, zeros, infinities and denormals."""
    values = normal(random, (count,))
    special = np.array([np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45], np.float32)
    places = random.permutation(count)[: len(special)]
    values[places] = special[: len(places)]
    return values


def logits_of(random: Generator, rows: int, classes: int) -> NDArray[np.float32]:
    """Logits up to +-120, whose powers overflow float32; rows as in training; rows with ties."""
    logits = random.uniform(-120, 120, (rows, classes)).astype(np.float32)
    logits[1::3] /= 40
    logits[2::3] = random.integers(-1, 2, logits[2::3].shape)  # with ten classes there is always a tie
    logits[0, 0], logits[-1, -1] = 120, -120
    return logits


def labels_of(random: Generator, rows: int, classes: int) -> NDArray[np.int32]:
    """Random labels, including the first and the last class."""
    labels = random.integers(0, classes, rows, np.int32)
    labels[0], labels[-1] = 0, classes - 1
    return labels


def exp_error(logits: NDArray[np.float32]) -> float:
    """The relative error of a sum over a row of exp(logit - largest) in float32.

    The difference is rounded at its own size, and exp turns that absolute error into a relative one; exp and the
    division are good to a few units more, and the sum adds one for each class.
    """
    spread = float(np.ptp(logits))
    return float(spread + logits.shape[1] + 8) * UNIT


def _widened(arg: Array | Scalar) -> Array | Scalar:
    """float32 arrays as float64; labels and scalars as they are."""
    if not isinstance(arg, np.ndarray) or arg.dtype != np.float32:
        return arg
    with np.errstate(invalid="ignore"):  # two planes of weights may look like a NaN
        return arg.astype(np.float64)


def _wide(args: Args) -> dict[str, Any]:
    return {name: _widened(arg) for name, arg in args.items()}
