"""Kernels of the CPU rungs, by name; those of the plain parts have the names of `stages/kernels/plain`."""

from __future__ import annotations

from types import MappingProxyType

from numba.core.ccallback import CFunc

from stages.cpu.kernels import layer, product, softmax, tiles, wide

MODULES = (layer, product, softmax, tiles, wide)
KERNELS = MappingProxyType(
    {name: function for module in MODULES for name, function in vars(module).items() if isinstance(function, CFunc)}
)
