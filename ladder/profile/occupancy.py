"""How many warps of a kernel fit on a multiprocessor at once, by the rules of NVIDIA's occupancy calculator.

The rules and the granularities of allocation are those of the "CUDA C++ Programming Guide", compute capabilities, and
of the calculator in Nsight Compute; they are the same from sm_75 to sm_120.
"""

from __future__ import annotations

from common.cuda.driver import Multiprocessor

WARP = 32  # threads
REGISTERS_AT_ONCE = 256  # registers are handed to a warp in pieces of so many
WARPS_AT_ONCE = 4  # one for each of the multiprocessor's partitions
SHARED_AT_ONCE = 128  # bytes


def occupancy(has: Multiprocessor, registers: int, shared_bytes: int, threads: int) -> float:
    """The share of a multiprocessor's warps that blocks of this kernel can fill, 0 to 1.

    `registers` a thread, `shared_bytes` a block without what the system reserves, `threads` a block.
    """
    warps = -(-threads // WARP)
    fit = [has.blocks, has.threads // WARP // warps]
    if registers:
        of_warp = _up(registers * WARP, REGISTERS_AT_ONCE)
        fit.append(has.registers // of_warp // WARPS_AT_ONCE * WARPS_AT_ONCE // warps)
    shared = _up(shared_bytes + has.reserved_shared_bytes, SHARED_AT_ONCE)
    if shared:
        fit.append(has.shared_bytes // shared)
    return min(fit) * warps / (has.threads // WARP)


def _up(number: int, piece: int) -> int:
    """The next multiple."""
    return -(-number // piece) * piece
