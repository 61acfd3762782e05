"""Triton kernels for a part: the configurations to try, and the one that measured fastest.

The trials are those of our tiles: candidates in turns, in captured graphs, the choice kept on disk. `triton.autotune`
would time the same configurations by its own clock, in every process anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.source_hash import source_hash
from stages.engine.workspace import Setup

Launch = Callable[..., None]
"""Enqueues a kernel: (grid, *arguments)."""


@dataclass(frozen=True)
class Config:
    """What `triton.Config` holds: sizes of blocks by name, warps of a program, stages of a loop's pipeline."""

    blocks: tuple[tuple[str, int], ...]
    warps: int
    stages: int = 2

    def __getitem__(self, name: str) -> int:
        return dict(self.blocks)[name]


def load(setup: Setup, kernel: str, config: Config, **constants: int) -> Launch:
    """A kernel of triton_kernels.py with these constants; it compiles when first called."""
    from stages.languages import triton_kernels  # late: a machine without Triton still lists the rungs

    launch: Launch = setup.device.triton(
        getattr(triton_kernels, kernel), {**constants, **dict(config.blocks)}, config.warps, config.stages
    )
    return launch


def trials(setup: Setup) -> Any:
    """Trials whose choices hold for this Triton, these kernels and these candidates."""
    import triton

    folder = Path(__file__).parent
    return setup.device.trials(f"Triton {triton.__version__} {source_hash(folder.glob('*.py'))[:16]}")


def fastest(setup: Setup, purpose: str, candidates: Sequence[Callable[[], None]]) -> int:
    """The index of the fastest of these repeatable candidates."""
    for candidate in candidates:
        candidate()  # compiles
    chosen: int = trials(setup).fastest(purpose, candidates)
    return chosen
