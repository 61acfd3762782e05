"""One kernel updates many parameters: `fused=True`.

Why: `resident` launches several kernels for each operation of the optimizer.
Change: optimizer: the same class and options, with `fused=True`. A class that has no such option, such as RMSprop,
stays as it is in the rungs above.
Expect: 1.0 to 1.2 times as fast as `resident`. SGD has little to fuse; Adam gains most where there are many parameters.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from stages.torch import r3_resident

if TYPE_CHECKING:
    from stages.torch.trainer import Trainer


def fused(trainer: Trainer, written: Any, *, is_captured: bool) -> Any:
    """The user's optimizer with `fused=True`; in a graph it reads what a scheduler moves from the device."""
    if line := _lacking(written):
        trainer.notes.append(f"{line}, so it stays as it is")
        return trainer.rebuilt(written, is_captured=is_captured)
    return trainer.rebuilt(written, is_captured=is_captured, fused=True)


def unfused(model: Any) -> str | None:
    """Why the optimizer of a model cannot be fused."""
    line = _lacking(model.user.optimizer(list(model.initial.parameters())))
    return line and f"{line}; torch.optim's SGD, Adam and AdamW have it"


def _lacking(optimizer: Any) -> str | None:
    kind = type(optimizer)
    return None if "fused" in inspect.signature(kind.__init__).parameters else f"{kind.__name__} has no fused="


RUNG = r3_resident.RUNG.climb("fused-optimizer", "the optimizer with fused=True", optimizer=fused, only=unfused)
