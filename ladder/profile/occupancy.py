"""Computes the occupancy of a kernel by the rules of NVIDIA's occupancy calculator.

Rules and allocation granularities are from the "CUDA C++ Programming Guide" (compute capabilities) and the calculator
in Nsight Compute; they are the same from sm_75 to sm_120.
"""

from __future__ import annotations

from common.cuda.driver import Multiprocessor

WARP = 32  # threads
REGISTER_UNIT = 256  # registers are allocated to a warp in this granularity
WARP_UNIT = 4  # one warp per partition of the multiprocessor
SHARED_UNIT = 128  # bytes; granularity of shared memory


def occupancy(has: Multiprocessor, registers: int, shared_bytes: int, threads: int) -> float:
    """The share of a multiprocessor's warps that blocks of this kernel can fill, from 0 to 1.

    `registers` are per thread; `shared_bytes` (without the system's reserve) and `threads` are per block.
    """
    warps = -(-threads // WARP)
    fit = [has.blocks, has.threads // WARP // warps]
    if registers:
        of_warp = _round_up(registers * WARP, REGISTER_UNIT)
        fit.append(has.registers // of_warp // WARP_UNIT * WARP_UNIT // warps)
    shared = _round_up(shared_bytes + has.reserved_shared_bytes, SHARED_UNIT)
    if shared:
        fit.append(has.shared_bytes // shared)
    return min(fit) * warps / (has.threads // WARP)


def _round_up(number: int, unit: int) -> int:
    """The smallest multiple of `unit` that is not less than `number`."""
    return -(-number // unit) * unit
