"""One kernel updates many parameters: `fused=True`.

Why: `resident` launches several kernels for each operation of the optimizer.
Change: optimizer: the same class and options, with `fused=True`.
Expect: 1.0 to 1.2 times as fast as `resident`. SGD has little to fuse; Adam gains most where there are many parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stages.torch import r3_resident

if TYPE_CHECKING:
    from stages.torch.trainer import Trainer


def fused(trainer: Trainer, written: Any, *, is_captured: bool) -> Any:
    """The user's optimizer with `fused=True`; in a graph it reads what a scheduler moves from the device."""
    return trainer.rebuilt(written, is_captured=is_captured, fused=True)


RUNG = r3_resident.RUNG.climb("fused-optimizer", "the optimizer with fused=True", optimizer=fused)
