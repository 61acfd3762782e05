"""Module names from before version 0.2, for stage files written then. Version 0.3 drops them."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from types import ModuleType

EARLIER = {
    "common.dataset": "common.data.dataset",
    "stages.plain": "stages.engine.parts",
    "stages.recipe": "stages.engine.recipe",
    "stages.stage": "stages.engine.stage",
    "stages.step": "stages.engine.step",
    "stages.workspace": "stages.engine.workspace",
    "stages.naive": "stages.classic.r1_naive",
    "stages.async_metrics": "stages.classic.r2_async_metrics",
    "stages.cublas": "stages.classic.r3_cublas",
    "stages.sparse_metrics": "stages.classic.r4_sparse_metrics",
    "stages.cudnn_softmax": "stages.classic.r5_cudnn_softmax",
    "stages.cuda_graph": "stages.classic.r6_cuda_graph",
    "stages.fused_head": "stages.fusion.r1_fused_head",
    "stages.fused_update": "stages.fusion.r2_fused_update",
    "stages.fused_epilogue": "stages.fusion.r3_fused_epilogue",
    "stages.parallel_branches": "stages.fusion.r4_parallel_branches",
    "stages.skinny_gemm": "stages.tiles.r1_skinny_gemm",
    "stages.fused_bias": "stages.tiles.r2_fused_bias",
    "stages.dependent_launch": "stages.tiles.r3_dependent_launch",
    "stages.exact_u8": "stages.tiles.r3_exact_u8",
    "stages.tile_gemm": "stages.tiles.tile_gemm",
    "stages.streamed_gemm": "stages.streamed.streamed_gemm",
    "stages.last_layer": "stages.streamed.r2_last_layer",
    "stages.persistent_grid": "stages.persistent.r1_persistent_grid",
    "stages.persistent_cluster": "stages.persistent.r1_persistent_cluster",
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a module under its earlier name, with a FutureWarning."""

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """A spec for an earlier name; None for any other."""
        return importlib.machinery.ModuleSpec(fullname, self) if fullname in EARLIER else None

    def exec_module(self, module: ModuleType) -> None:
        """Replace this module by the one under its new name."""
        name = EARLIER[module.__name__]
        warnings.warn(f"{module.__name__} is {name} since version 0.2", FutureWarning, stacklevel=2)
        sys.modules[module.__name__] = importlib.import_module(name)


def allow_earlier_names() -> None:
    """Let import statements use the earlier names from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
