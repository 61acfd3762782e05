"""The CPU as the place of a recipe."""

from __future__ import annotations

from stages.engine.stage import Place
from stages.engine.workspace import Device


def _host() -> Device:
    from common.cpu.host import Host  # here, so that a machine without Numba can list the rungs
    from stages.cpu.kernels import KERNELS

    return Host(KERNELS)


CPU = Place(_host, ("numba",))
