"""Memory for the tensors of a step that is taken before it and given back after it."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import DTypeLike

from stages.engine.recipe import Memory, RunStep
from stages.engine.workspace import Array


class PerStep(Memory):
    """Each tensor of a step by a call of its own to an allocator; subclasses say to which."""

    needs: ClassVar[tuple[str, ...]] = ("cuda",)
    allocator: ClassVar[str]  # as common.cuda.step_memory knows it

    def __init__(self, device: Any) -> None:
        self._step_allocator = device.step_allocator(self.allocator)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """A tensor that has memory during a step only."""
        tensor: Array = self._step_allocator.empty(shape, dtype)
        return tensor

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
