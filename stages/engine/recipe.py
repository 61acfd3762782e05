"""A recipe: the handful of named choices that make up a rung, and what each of them must be able to do.

The training step (stages/engine/step.py) is written once and asks the recipe for its parts. Each part is a class that
is made from the trainer's `Setup` while preparing and does its work when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, TypedDict

from numpy.typing import DTypeLike

from common.cuda.epilogue import Fusion
from common.data.dataset import Split
from common.problem import Problem
from common.trainer import EpochMetrics
from stages.engine.workspace import Array, Device, Setup

Precision = Literal["float32", "tf32", "bfloat16", "float16"]


class Part(Protocol):
    """What every choice has in common."""

    needs: ClassVar[tuple[str, ...]]
    """What it needs to run, in the words of `ladder.machine.environment.missing`."""


class RunStep(Protocol):
    """The one training step, as stages/engine/step.py has it."""

    def __call__(self, images: Array, labels: Array, with_totals: bool) -> None:
        """Enqueue one step on images (B, I) and labels (B,)."""


class Memory(Part, Protocol):
    """Where the tensors are that a step makes and that nothing reads after it: outputs, probabilities, gradients.

    Where they move from step to step, no part may keep their addresses, and no graph.
    """

    def __init__(self, device: Device) -> None: ...

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """A tensor of every step, uninitialised."""

    def zero(self, array: Array) -> None:
        """Enqueue the filling of one of them with zeros while preparing, where it stays where it is; else nothing."""

    def around(self, step: RunStep) -> RunStep:
        """The step, with memory for the tensors that were handed out."""


class Data(Part, Protocol):
    """The batches of an epoch, and how each gets to where the step reads it. As long as the epoch has steps."""

    def __init__(self, device: Device, problem: Problem, train: Split) -> None: ...

    def __len__(self) -> int:
        """How many full batches there are."""

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Images (B, I) float32 and labels (B,) int32 of each step, in order.

        They are there for what is enqueued before the next ones are asked for, and may be overwritten after that.
        """


class Gemm(Part, Protocol):
    """out (m, n) = alpha * op(a) @ op(b) + beta * out, row-major, where op transposes if its flag says so."""

    precision: ClassVar[Precision]
    """What it multiplies in: picks the verification limits."""

    def __init__(self, setup: Setup) -> None: ...

    def __call__(
        self,
        a: Array,
        b: Array,
        out: Array,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Enqueue the product."""


class FusingGemm(Gemm, Protocol):
    """A gemm that can also take over what a layer does around its products."""

    def fused(
        self,
        a: Array,
        b: Array,
        out: Array,
        fusion: Fusion,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Enqueue out (m, n) = fusion of alpha * op(a) @ op(b) + beta * out, in one kernel if it can."""


class Epilogue(Part, Protocol):
    """What a layer does around its products: bias and ReLU on the way forward, ReLU on the way back."""

    def __init__(self, setup: Setup, gemm: Gemm) -> None: ...

    def forward(self, layer: int, inputs: Array) -> None:
        """outputs[layer] (B, O) from inputs (B, I); the last layer has no ReLU."""

    def backward(self, layer: int) -> None:
        """doutputs[layer - 1] (B, I) from doutputs[layer] (B, O), through the ReLU between them; layer >= 1."""


class Head(Part, Protocol):
    """Logits (B, C) and labels (B,) to the logits' gradient, and to the epoch's totals when asked.

    One with `takes_layer` takes over the last layer, too: from outputs[-2] to doutputs[-2] and the layer's update. It
    has in `of_forward` the head for a pass that updates nothing.
    """

    def __init__(self, setup: Setup) -> None: ...

    def __call__(self, labels: Array, with_totals: bool) -> None:
        """Read outputs[-1], write doutputs[-1]; with totals, add the batch's loss and number right to totals."""


class Update(Part, Protocol):
    """weights[layer] -= lr * inputs.T @ doutput; biases[layer] -= lr * doutput.sum(0)."""

    def __init__(self, setup: Setup, gemm: Gemm) -> None: ...

    def __call__(self, layer: int, inputs: Array) -> None:
        """Enqueue what can be done for one layer, from its inputs (B, I) and doutputs[layer] (B, O)."""

    def finish(self) -> None:
        """Enqueue the rest, once every layer has been called for."""


class Metrics(Part, Protocol):
    """When loss and accuracy are computed, and when they travel to the host."""

    def __init__(self, setup: Setup) -> None: ...

    def due(self, epoch: int) -> bool:
        """Whether this epoch, counted from 0, computes them."""

    def begin_epoch(self) -> None:
        """Called before the first step of an epoch that is due."""

    def end_step(self) -> None:
        """Called after each step of an epoch that is due."""

    def end_epoch(self) -> EpochMetrics:
        """Called after the last step of an epoch that is due."""


class Launch(Part, Protocol):
    """How an epoch's steps reach the GPU."""

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None: ...

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""


class Shapes(Part, Protocol):
    """The shapes in which plain kernels are launched: how many threads a block has, and outputs a thread."""

    def __init__(self, device: Device) -> None: ...

    def __call__(self, kernel: str, *sizes: int) -> Callable[..., None]:
        """What launches a kernel for an operation of these sizes: call it with the kernel's arguments."""


class Choice(TypedDict, total=False):
    """One choice of a recipe by its name, as `Stage.climb` takes it."""

    memory: type[Memory]
    data: type[Data]
    gemm: type[Gemm]
    epilogue: type[Epilogue]
    head: type[Head]
    update: type[Update]
    metrics: type[Metrics]
    launch: type[Launch]
    shapes: type[Shapes]


@dataclass(frozen=True)
class Recipe:
    """All choices of a rung. `Choice` has the same names; a test holds them together."""

    memory: type[Memory]
    data: type[Data]
    gemm: type[Gemm]
    epilogue: type[Epilogue]
    head: type[Head]
    update: type[Update]
    metrics: type[Metrics]
    launch: type[Launch]
    shapes: type[Shapes]

    def parts(self) -> dict[str, Any]:
        """Every choice by its name, in the order above."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def precision(self) -> Precision:
        """What it multiplies in: what its launch does, if that has products of its own and says so, or its gemm."""
        precision: Precision = getattr(self.launch, "precision", self.gemm.precision)
        return precision

    @property
    def needs(self) -> tuple[str, ...]:
        """What its parts need together, without repeats."""
        return tuple(dict.fromkeys(need for part in self.parts().values() for need in part.needs))


def changes(below: Recipe, above: Recipe) -> dict[str, Any]:
    """The choices in which `above` differs from `below`, by name."""
    before = below.parts()
    return {name: part for name, part in above.parts().items() if part is not before[name]}
