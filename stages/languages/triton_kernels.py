"""The kernels of this family in Triton, each the twin of a CUDA kernel of stages/kernels.

Row-major float32. Sizes are compile-time constants, as is usual in Triton. Products are `ieee`: without TF32, as the
twins'. A product is no `tl.sum(x[:, :, None] * y[None, :, :], 1)`: Triton makes that a `dot` in TF32, which the gates
refuse. exp, log and division are the library's and rounded as CUDA's: Triton's own are less exact. This file needs
Triton, so parts import it while they are made.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

# What follows a product's sum, in the order of stages/tiles/tile_kernels.py.
BIAS = tl.constexpr(1)
RELU_BIAS = tl.constexpr(2)
RELU_BACKWARD = tl.constexpr(3)


# Kind: softmax.
@triton.jit
def triton_softmax_xent(
    logits, labels, dlogits, totals,
    ROWS: tl.constexpr, CLASSES: tl.constexpr, WITH_TOTALS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_CLASSES: tl.constexpr,
):  # fmt: skip
    """plain/softmax_xent.cu: a program takes BLOCK_ROWS rows; with totals one program takes all of them."""
    classes = tl.arange(0, BLOCK_CLASSES)[None, :]
    loss = tl.zeros((BLOCK_ROWS,), tl.float64)
    correct = tl.zeros((BLOCK_ROWS,), tl.int32)
    for turn in range(tl.cdiv(ROWS, BLOCK_ROWS) if WITH_TOTALS else 1):
        rows = (tl.program_id(0) + turn) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
        exists = rows < ROWS
        places = rows[:, None] * CLASSES + classes
        inside = exists[:, None] & (classes < CLASSES)
        label = tl.load(labels + rows, exists, 0)
        z = tl.where(classes < CLASSES, tl.load(logits + places, inside, 0.0), -float("inf"))
        shifted = z - tl.max(z, 1, keep_dims=True)
        exponentials = libdevice.exp(shifted)
        sums = tl.sum(exponentials, 1, keep_dims=True)
        is_label = classes == label[:, None]
        gradient = tl.div_rn(tl.div_rn(exponentials, sums) - is_label.to(tl.float32), ROWS * 1.0)
        tl.store(dlogits + places, gradient, inside)
        if WITH_TOTALS:
            losses = libdevice.log(tl.sum(exponentials, 1)) - tl.sum(tl.where(is_label, shifted, 0.0), 1)
            loss += tl.where(exists, losses, 0.0).to(tl.float64)
            correct += (exists & (tl.argmax(z, 1) == label)).to(tl.int32)
    if WITH_TOTALS:
        tl.store(totals, tl.load(totals) + tl.sum(loss, 0))
        tl.store(totals + 1, tl.load(totals + 1) + tl.sum(correct, 0))


# Kind: gemm.
@triton.jit
def triton_update(
    inputs, doutput, weight, bias, rate,
    BATCH: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    BLOCK_INPUTS: tl.constexpr, BLOCK_OUTPUTS: tl.constexpr, BLOCK_BATCH: tl.constexpr,
):  # fmt: skip
    """Update: weight -= rate * inputs.T @ doutput; one more row of programs does bias -= rate * doutput.sum(0)."""
    outputs = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        old = tl.load(bias + outputs, outputs < OUTPUTS, 0.0)
        sums = tl.zeros((BLOCK_OUTPUTS,), tl.float32)
        for first in range(0, BATCH, BLOCK_BATCH):
            images = first + tl.arange(0, BLOCK_BATCH)
            inside = (images < BATCH)[:, None] & (outputs < OUTPUTS)[None, :]
            sums += tl.sum(tl.load(doutput + images[:, None] * OUTPUTS + outputs[None, :], inside, 0.0), 0)
        tl.store(bias + outputs, old - rate * sums, outputs < OUTPUTS)
    else:
        rows = tl.program_id(0) * BLOCK_INPUTS + tl.arange(0, BLOCK_INPUTS)
        places = rows[:, None] * OUTPUTS + outputs[None, :]
        within = (rows < INPUTS)[:, None] & (outputs < OUTPUTS)[None, :]
        old_weight = tl.load(weight + places, within, 0.0)  # in flight while the sums are made
        products = tl.zeros((BLOCK_INPUTS, BLOCK_OUTPUTS), tl.float32)
        for first in range(0, BATCH, BLOCK_BATCH):
            images = first + tl.arange(0, BLOCK_BATCH)
            x = tl.load(
                inputs + images[None, :] * INPUTS + rows[:, None],
                (images < BATCH)[None, :] & (rows < INPUTS)[:, None], 0.0,
            )  # fmt: skip
            d = tl.load(
                doutput + images[:, None] * OUTPUTS + outputs[None, :],
                (images < BATCH)[:, None] & (outputs < OUTPUTS)[None, :], 0.0,
            )  # fmt: skip
            products = tl.dot(x, d, products, input_precision="ieee")
        tl.store(weight + places, old_weight - rate * products, within)


# Kind: gemm.
@triton.jit
def triton_product(
    a, b, out, bias, mask, parts, arrived, alpha, beta,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TRANS_A: tl.constexpr, TRANS_B: tl.constexpr,
    ADDS: tl.constexpr, FUSION: tl.constexpr, MASK_BYTES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """Product: out = fusion of alpha * op(a) @ op(b) + beta * out, as tile_product_f32.

    SPLIT_K programs share a tile's k. Each leaves its sums in `parts`. The last to arrive adds them up, in order, so
    that a product repeats bit for bit. `arrived` is 0 before a launch and after it.
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    share = tl.program_id(2)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for turn in range(tl.cdiv(K, SPLIT_K * BLOCK_K)):
        depth = (turn * SPLIT_K + share) * BLOCK_K + tl.arange(0, BLOCK_K)
        place_a = depth[None, :] * M + rows[:, None] if TRANS_A else rows[:, None] * K + depth[None, :]
        place_b = cols[None, :] * K + depth[:, None] if TRANS_B else depth[:, None] * N + cols[None, :]
        left = tl.load(a + place_a, (rows < M)[:, None] & (depth < K)[None, :], 0.0)
        right = tl.load(b + place_b, (depth < K)[:, None] & (cols < N)[None, :], 0.0)
        sums = tl.dot(left, right, sums, input_precision="ieee")
    if SPLIT_K == 1:
        finish(sums, out, bias, mask, alpha, beta, rows, cols, M, N, ADDS, FUSION, MASK_BYTES, BLOCK_M, BLOCK_N)
    else:
        tile = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
        places = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        mine = parts + tile * SPLIT_K * BLOCK_M * BLOCK_N + places
        tl.store(mine + share * BLOCK_M * BLOCK_N, sums)
        tl.debug_barrier()  # every thread has stored its part before one announces it
        if tl.atomic_add(arrived + tile, 1, sem="acq_rel") == SPLIT_K - 1:
            total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for other in tl.static_range(SPLIT_K):
                total += tl.load(mine + other * BLOCK_M * BLOCK_N, cache_modifier=".cg")
            finish(total, out, bias, mask, alpha, beta, rows, cols, M, N, ADDS, FUSION, MASK_BYTES, BLOCK_M, BLOCK_N)
            tl.store(arrived + tile, 0)  # for the next launch


@triton.jit
def finish(
    sums, out, bias, mask, alpha, beta, rows, cols,
    M: tl.constexpr, N: tl.constexpr, ADDS: tl.constexpr, FUSION: tl.constexpr, MASK_BYTES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write a tile of outputs, and the mask of a ReLU, a bit an output."""
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    target = out + rows[:, None] * N + cols[None, :]
    value = alpha * sums
    if ADDS:
        value += beta * tl.load(target, inside, 0.0)
    if (FUSION == BIAS) | (FUSION == RELU_BIAS):
        value += tl.load(bias + cols, cols < N, 0.0)[None, :]
    if FUSION == RELU_BIAS:
        bits = ((value > 0) & inside).to(tl.int32).reshape(BLOCK_M, BLOCK_N // 8, 8) << tl.arange(0, 8)[None, None, :]
        octets = tl.program_id(1) * (BLOCK_N // 8) + tl.arange(0, BLOCK_N // 8)
        there = (rows < M)[:, None] & (octets < MASK_BYTES)[None, :]
        tl.store(mask + rows[:, None] * MASK_BYTES + octets[None, :], tl.sum(bits, 2).to(tl.uint8), there)
        value = tl.where(value <= 0, 0.0, value)  # a NaN stays one
    if FUSION == RELU_BACKWARD:
        octet = tl.load(mask + rows[:, None] * MASK_BYTES + cols[None, :] // 8, inside, 0)
        value = tl.where((octet >> (cols % 8)[None, :].to(tl.uint8)) & 1 != 0, value, 0.0)
    tl.store(target, value, inside)
