"""Memory of a GPU that other processes' GPUs write to, by CUDA IPC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cupy
import numpy as np

from common.ranks import Group

PLACES = 2  # of a message, by turns


@dataclass
class Mailbox:
    """Messages of all ranks to this one, and where this one's go."""

    own: Any  # (PLACES, ranks, messages) u32
    others: dict[int, int]  # addresses of the other ranks' mailboxes
    rounds: dict[str, Any] = field(default_factory=dict)  # by sender: the rounds of each block, (blocks,) u32

    def rounds_of(self, name: str, blocks: int) -> Any:
        """The rounds that each block of a kernel has ended, which go on from trainer to trainer."""
        key = f"{name} by {blocks}"
        if key not in self.rounds:
            self.rounds[key] = cupy.zeros(blocks, np.uint32)
        return self.rounds[key]


def mailbox(group: Group, owner: str, messages: int) -> Mailbox:
    """A mailbox for this many messages of each rank, the same for all trainers of the process of this owner.

    It stays open until the process ends: no rank can free memory that another still has open.
    """
    key = f"{owner}'s {messages} messages"
    if key not in group.kept:
        size = PLACES * group.ranks * messages
        memory = cupy.cuda.MemoryPointer(cupy.cuda.Memory(4 * size), 0)  # not of a pool, which has one handle for all
        own = cupy.ndarray((PLACES, group.ranks, messages), np.uint32, memory)
        own[...] = 0
        cupy.cuda.runtime.deviceSynchronize()
        handles = group.gather(bytes(cupy.cuda.runtime.ipcGetMemHandle(memory.ptr)))
        opens = cupy.cuda.runtime.cudaIpcMemLazyEnablePeerAccess
        others = {
            rank: cupy.cuda.runtime.ipcOpenMemHandle(handle, opens)
            for rank, handle in enumerate(handles)
            if rank != group.rank
        }
        group.gather(None)  # nobody sends before all have opened
        group.kept[key] = Mailbox(own, others)
    found: Mailbox = group.kept[key]
    return found
