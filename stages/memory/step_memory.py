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
        self._step_allocator = device.step_allocator(self.allocator)
        self.empty = self._step_allocator.empty

    def zero(self, array: Array) -> None:
        """Nothing: it would not last."""

    def around(self, step: RunStep) -> RunStep:
        """The step between taking and giving back."""
        acquire, release = self._step_allocator.acquire, self._step_allocator.release

        def between(images: Array, labels: Array, with_totals: bool) -> None:
            acquire()
            step(images, labels, with_totals)
            release()

        return between
