"""The head in CuTe DSL, NVIDIA's Python for CUTLASS: threads, shuffles and shared memory as in CUDA C++.

Shapes are compile-time constants, and a Python loop over them is unrolled. Exponentials and logarithms are the CUDA
library's, divisions are rounded as IEEE 754 says. This file needs CuTe DSL, so parts import it while they are made.
"""

# mypy: ignore-errors

import operator

import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor

WARP = 32


# Kind: softmax.
@cute.kernel
def cute_softmax_xent(
    logits: cute.Tensor,
    labels: cute.Tensor,
    dlogits: cute.Tensor,
    totals: cute.Tensor,
    LANES: cutlass.Constexpr,
    THREADS: cutlass.Constexpr,
    WITH_TOTALS: cutlass.Constexpr,
):
    """plain/softmax_xent.cu: LANES lanes take a row; with totals one block takes all of them."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    rows, classes = logits.shape
    at_once, each = THREADS // LANES, -(-classes // LANES)
    own = thread % LANES
    loss, correct = cutlass.Float64(0.0), cutlass.Int32(0)
    for turn in cutlass.range_constexpr(-(-rows // at_once) if WITH_TOTALS else 1):
        wanted = (block + turn) * at_once + thread // LANES
        row = cutlass.min(wanted, rows - 1)
        label = labels[row]
        columns = [own + i * LANES for i in range(each)]
        z = [logits[row, cutlass.min(column, classes - 1)] for column in columns]
        largest = z[0]
        for number in z[1:]:
            largest = cute.arch.fmax(largest, number)
        largest = cute.arch.warp_reduction(largest, cute.arch.fmax, threads_in_group=LANES)
        powers = [
            cute.math.exp(number - largest) if column < classes else cutlass.Float32(0.0)
            for number, column in zip(z, columns)
        ]
        total = powers[0]
        for power in powers[1:]:
            total = total + power
        total = cute.arch.warp_reduction(total, operator.add, threads_in_group=LANES)
        for i in cutlass.range_constexpr(each):
            target = cutlass.Float32(1.0) if columns[i] == label else cutlass.Float32(0.0)
            if wanted < rows and columns[i] < classes:
                dlogits[row, columns[i]] = (powers[i] / total - target) / rows
        if cutlass.const_expr(WITH_TOTALS):
            mine = logits[row, label]
            beaten = cutlass.Boolean(False)
            for i in cutlass.range_constexpr(each):
                beaten = beaten | (z[i] > mine) | ((z[i] == mine) & (columns[i] < label))
            votes = cute.arch.vote_ballot_sync(beaten) >> (thread % WARP - own)
            if wanted < rows and own == 0:
                correct += cutlass.Int32((votes & ((1 << LANES) - 1)) == 0)
                loss += cutlass.Float64(cute.math.log(total) + (largest - mine))
    if cutlass.const_expr(WITH_TOTALS):
        memory = cutlass.utils.SmemAllocator()
        losses = memory.allocate_tensor(cutlass.Float64, cute.make_layout(WARP))
        corrects = memory.allocate_tensor(cutlass.Int32, cute.make_layout(WARP))
        loss = cute.arch.warp_reduction(loss, operator.add)
        correct = cute.arch.warp_reduction(correct, operator.add)
        if thread % WARP == 0:
            losses[thread // WARP] = loss
            corrects[thread // WARP] = correct
        cute.arch.sync_threads()
        if thread < WARP:
            is_used = thread < THREADS // WARP
            loss = losses[thread] if is_used else cutlass.Float64(0.0)
            correct = corrects[thread] if is_used else cutlass.Int32(0)
            loss = cute.arch.warp_reduction(loss, operator.add)
            correct = cute.arch.warp_reduction(correct, operator.add)
            if thread == 0:
                totals[0] += loss
                totals[1] += cutlass.Float64(correct)


@cute.jit
def head(
    logits: cute.Tensor,
    labels: cute.Tensor,
    dlogits: cute.Tensor,
    totals: cute.Tensor,
    LANES: cutlass.Constexpr,
    THREADS: cutlass.Constexpr,
    WITH_TOTALS: cutlass.Constexpr,
):
    """The host's side of cute_softmax_xent; the rungs launch the kernel by its handle."""
    cute_softmax_xent(logits, labels, dlogits, totals, LANES, THREADS, WITH_TOTALS).launch(
        grid=(1, 1, 1), block=(THREADS, 1, 1)
    )


def head_arguments(rows: int, classes: int):
    """Tensors of these shapes, without memory, to compile `head` for."""
    numbers = make_fake_compact_tensor(cutlass.Float32, (rows, classes), stride_order=(1, 0))
    labels = make_fake_compact_tensor(cutlass.Int32, (rows,))
    return numbers, labels, numbers, make_fake_compact_tensor(cutlass.Float64, (2,))
