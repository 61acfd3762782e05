"""NVIDIA's library of collective operations, by CuPy's binding, which captures into a graph."""

from __future__ import annotations

import os
from collections.abc import Callable

from common.ranks import Group


def without_multicast() -> None:
    """Keep NCCL and PyTorch from NVLink multicast, which virtual machines may lack: who wants it sets both."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")


def all_reduce(group: Group) -> Callable[[int, int, int], None]:
    """Enqueues the sum of float32 numbers over all ranks, given their address and number and a stream's handle.

    All trainers of a process share a communicator.
    """
    without_multicast()
    from cupy.cuda import nccl

    if "nccl" not in group.kept:
        known = group.gather(nccl.get_unique_id() if group.rank == 0 else None)[0]
        group.kept["nccl"] = nccl.NcclCommunicator(group.ranks, known, group.rank)
    communicator = group.kept["nccl"]
    return lambda at, size, stream: communicator.allReduce(at, at, size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream)
