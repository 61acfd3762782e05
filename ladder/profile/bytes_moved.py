"""Adds to each kernel of a rung's step the bytes that its operation must move."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from common.cost import Operation, operations
from common.problem import Problem
from ladder.records.profile import KernelUse, Profile

SPLIT_K_REDUCTION = "splitKreduce"  # second kernel of a product that cuBLAS divides along K


def with_bytes(profile: Profile, problem: Problem) -> Profile:
    """The profile of a rung, with the bytes of each kernel's operation.

    It stays unchanged if kernels and operations do not correspond one to one, as in a rung that fuses operations.
    """
    for with_totals in (False, True):
        kernels = _paired(profile.kernels, operations(problem, with_totals))
        if kernels:
            return msgspec.structs.replace(profile, kernels=kernels)
    return profile


def _paired(kernels: Sequence[KernelUse], step: Sequence[Operation]) -> list[KernelUse]:
    """The kernels with the bytes of their operations; empty unless there is one kernel per operation, in order."""
    left = list(step)
    found = []
    for kernel in kernels:
        if kernel.name.startswith(SPLIT_K_REDUCTION):
            found.append(kernel)
        elif kernel.place is not None and left and left[0].kind == kernel.kind:
            found.append(msgspec.structs.replace(kernel, bytes=left.pop(0).bytes))
        else:
            return []
    return [] if left else found
