"""Memory for the tensors of a step that is taken before it and given back after it."""

from __future__ import annotations

from typing import Any, ClassVar

from stages.engine.recipe import RunStep
from stages.engine.workspace import Array


class PerStep:
    """Each tensor of a step by a call of its own to an allocator; subclasses say to which."""

    needs: ClassVar[tuple[str, ...]] = ("cuda",)
    allocator: ClassVar[str]  # as common.cuda.step_memory knows it

    def __init__(self, device: Any) -> None:
        self._lender = device.lender(self.allocator)
        self.empty = self._lender.empty

    def zero(self, array: Array) -> None:
        """Nothing: it would not last."""

    def around(self, step: RunStep) -> RunStep:
        """The step between taking and giving back."""
        take, give_back = self._lender.take, self._lender.give_back

        def between(images: Array, labels: Array, with_totals: bool) -> None:
            take()
            step(images, labels, with_totals)
            give_back()

        return between
