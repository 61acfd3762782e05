"""Triton kernels, compiled ahead and launched by handle: without Triton's launcher, and without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from common.cache import cache_folder

POINTERS = {"float32": "*fp32", "float64": "*fp64", "int32": "*i32", "uint8": "*u8"}
ALIGNMENT = 16  # bytes; a pointer that is a multiple of it has wider loads, as by Triton's own launcher
WARP = 32
SCRATCH = (0, 0)  # arguments that Triton appends: memory of its own, which these kernels do not ask for

Kind = tuple[str, bool]
"""Of an argument: its type in Triton, and whether it is an aligned pointer."""


def compile_triton(
    function: Any, kinds: tuple[Kind, ...], constants: Mapping[str, Any], warps: int, stages: int, capability: int
) -> Any:
    """The machine code of a `triton.jit` function for a compute capability such as 90; kept in a cache on disk.

    `kinds` are those of the arguments that are no constants, in order.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    kind_of = dict(zip((name for name in function.arg_names if name not in constants), kinds, strict=True))
    signature = {name: kind_of[name][0] if name in kind_of else "constexpr" for name in function.arg_names}
    aligned = {
        (place,): [["tt.divisibility", ALIGNMENT]]
        for place, name in enumerate(function.arg_names)
        if name in kind_of and kind_of[name][1]
    }
    source = triton.compiler.ASTSource(function, signature, dict(constants), aligned)
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(cache_folder("triton"))
        code = triton.compile(
            source, target=GPUTarget("cuda", capability, WARP), options={"num_warps": warps, "num_stages": stages}
        )
    if code.metadata.global_scratch_size or code.metadata.profile_scratch_size:
        raise RuntimeError(f"{code.metadata.name}: asks for memory of Triton's own; give it a smaller block")
    return code


def kind(argument: Any) -> Kind:
    """The kind of an array or a float32 scalar."""
    if isinstance(argument, np.float32):
        return "fp32", False
    return POINTERS[str(argument.dtype)], argument.data.ptr % ALIGNMENT == 0


class TritonKernel:
    """A Triton kernel with its constants, launched on a GPU's current stream; compiled when first called."""

    def __init__(self, gpu: Any, function: Any, constants: Mapping[str, Any], warps: int, stages: int) -> None:
        self._gpu = gpu
        self._how = function, constants, warps, stages
        self._threads = warps * WARP
        self._loaded: dict[tuple[Kind, ...], Any] = {}  # by the kinds of a launch's arguments

    def __call__(self, grid: int | tuple[int, ...], *args: Any) -> None:
        """Enqueue `grid` programs with these arguments: arrays, and float32 scalars of NumPy."""
        kinds = tuple(map(kind, args))
        kernel = self._loaded.get(kinds)
        if kernel is None:
            function, constants, warps, stages = self._how
            code = compile_triton(function, kinds, constants, warps, stages, self._gpu.capability)
            kernel = self._gpu.loaded(code.asm["cubin"], code.metadata.name, code.metadata.shared)
            self._loaded[kinds] = kernel
        kernel(grid, self._threads, *args, *SCRATCH)
