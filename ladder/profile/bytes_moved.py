"""What each kernel of a rung's step has to move, by the operation that it stands for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from common.cost import Operation, operations
from common.problem import Problem
from ladder.records.profile import KernelUse, Profile

SECOND_HALF = "splitKreduce"  # of a product that cuBLAS runs as two kernels


def with_bytes(profile: Profile, problem: Problem) -> Profile:
    """The profile of a rung, whose kernels know the bytes of their operations.

    Those of a step that fuses operations, or runs others, stay as they are.
    """
    for with_totals in (False, True):
        kernels = _paired(profile.kernels, operations(problem, with_totals))
        if kernels:
            return msgspec.structs.replace(profile, kernels=kernels)
    return profile


def _paired(kernels: Sequence[KernelUse], step: Sequence[Operation]) -> list[KernelUse]:
    """The kernels, each with the bytes of its operation; none unless there is one kernel for each, in order."""
    left = list(step)
    found = []
    for kernel in kernels:
        if kernel.name.startswith(SECOND_HALF):
            found.append(kernel)
        elif kernel.place is not None and left and left[0].kind == kernel.kind:
            found.append(msgspec.structs.replace(kernel, bytes=left.pop(0).bytes))
        else:
            return []
    return [] if left else found
