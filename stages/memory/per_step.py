"""Memory for a step's tensors, acquired before the step and released after it."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import DTypeLike

from stages.engine.recipe import Memory, RunStep
from stages.engine.workspace import Array


class PerStep(Memory):
    """One allocator call for each tensor of a step; a subclass names the allocator."""

    allocator: ClassVar[str]  # a name in common.cuda.gpu.ALLOCATORS

    def __init__(self, device: Any) -> None:
        self._step_allocator = device.step_allocator(self.allocator)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """A tensor with memory during a step only."""
        tensor: Array = self._step_allocator.empty(shape, dtype)
        return tensor

    def zero(self, array: Array) -> None:
        """Does nothing: the memory does not outlive a step."""

    def around(self, step: RunStep) -> RunStep:
        """The step between acquire and release."""
        acquire, release = self._step_allocator.acquire, self._step_allocator.release

        def between(images: Array, labels: Array, with_totals: bool) -> None:
            acquire()
            step(images, labels, with_totals)
            release()

        return between
