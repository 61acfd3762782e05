"""A recipe names the parts of a rung's training step; the base classes here say what each part does.

The training step (stages/engine/step.py) is written once and asks the recipe for its parts. A part is a class: the
trainer makes it from its `Setup` while preparing, and calls it in every step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, TypedDict

from numpy.typing import DTypeLike

from common.cost import Arithmetic, Exchanges, Weights
from common.cuda.epilogue import Fusion
from common.data.dataset import Split
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from common.vocabulary import Precision as Precision
from common.vocabulary import Regime
from stages.engine.workspace import Array, Device, Setup

REPLACED = ("memory", "gemm", "epilogue", "head", "update")  # parts without effect if the launch multiplies by itself


class Part:
    """The base class of every part."""

    needs: ClassVar[tuple[str, ...]] = ("cuda",)
    """Requirements, in the words of `ladder.machine.environment.missing`; `()` for none."""

    takes_gpus: ClassVar[bool] = False
    """Whether it trains together with the same part on other GPUs, and does not take one alone."""

    writes_parameters: ClassVar[bool] = False
    """Whether it changes parameters, as every update does."""

    @classmethod
    def for_validation(cls) -> type[Any]:
        """The part of a forward pass, this one by default; TypeError if that would change parameters."""
        if cls.writes_parameters:
            raise TypeError(f"{cls.__name__} writes parameters: its for_validation must name another part")
        return cls

    @classmethod
    def misfit(cls, problem: Problem, steps: int) -> str:  # noqa: ARG003
        """Why the part cannot train this problem with this many steps an epoch, as a sentence; empty if it can."""
        return ""


class RunStep(Protocol):
    """A training step, as stages/engine/step.py builds it."""

    def __call__(self, images: Array, labels: Array, with_totals: bool) -> None:
        """Enqueue one step on images (B, I) and labels (B,)."""


class Memory(Part, ABC):
    """Allocates the tensors that a step writes and no later step reads: outputs, probabilities, gradients.

    If they move from step to step, no part and no graph may keep their addresses.
    """

    def __init__(self, device: Device) -> None: ...

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """An uninitialised tensor that every step uses."""

    @abstractmethod
    def zero(self, array: Array) -> None:
        """While preparing, enqueue zeros for a tensor whose memory stays; do nothing for one whose memory moves."""

    @abstractmethod
    def around(self, step: RunStep) -> RunStep:
        """The step, wrapped so that its tensors have memory while it runs."""


class Data(Part, ABC):
    """The batches of an epoch, and their way to the device. Its length is the number of steps."""

    hides_copies: ClassVar[bool] = False
    """Whether it copies on a second stream: reports tell how much of that a kernel hides, even if none."""
    pixel_bytes: ClassVar[int] = 4
    """Of an image in memory, each; part of the floor on a CPU."""

    def __init__(self, device: Device, problem: Problem, train: Split) -> None: ...

    @abstractmethod
    def __len__(self) -> int:
        """The number of full batches."""

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        """Images (B, I) float32 and labels (B,) int32 of each step, in order.

        Work enqueued before the next batch is requested may read them; later work may find them overwritten.
        """


class Gemm(Part, ABC):
    """out (m, n) = alpha * op(a) @ op(b) + beta * out, row-major, where op transposes if its flag says so.

    A gemm may withhold a product and merge it with the next one. It enqueues a withheld product before it returns from
    the next call, and at the latest in `flush`. Until then only the same gemm may use the product's output.
    """

    precision: ClassVar[Precision] = "float32"
    """The format of the factors; selects the verification limits."""

    arithmetic: ClassVar[tuple[Arithmetic, ...]] = ()
    """How products are computed, alternatives if several are; empty: one product in `precision`. Part of the floor."""

    shares_backward_pass: ClassVar[bool] = False
    """Whether one kernel may read a layer's weights once for its backward pass and its update."""

    has_planes: ClassVar[bool] = False
    """Whether its forward pass reads half of a weight's bytes."""

    width_multiple: ClassVar[int] = 1
    """Inputs and hidden units that it multiplies fast; zeros fill them up to a multiple of this many."""

    def __init__(self, setup: Setup) -> None: ...

    @classmethod
    def packed(cls, params: Params) -> Params:
        """Parameters on the host as its kernels keep them in memory, in the same shapes."""
        return params

    @classmethod
    def unpacked(cls, params: Params) -> Params:
        """The inverse of `packed`."""
        return params

    @abstractmethod
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
        """Enqueue or withhold the product."""

    def flush(self) -> None:
        """Enqueue a withheld product. The step calls this at its end; by default no product is withheld."""


class FusingGemm(Gemm):
    """A gemm that can also compute a layer's bias, ReLU and bias gradient."""

    def __call__(self, a: Array, b: Array, out: Array, **how: Any) -> None:
        """Enqueue or withhold the product without a fusion."""
        self.fused(a, b, out, None, **how)

    @abstractmethod
    def fused(
        self,
        a: Array,
        b: Array,
        out: Array,
        fusion: Fusion | None,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Enqueue or withhold out (m, n) = fusion of alpha * op(a) @ op(b) + beta * out, in one kernel if possible."""


class Epilogue(Part, ABC):
    """A layer around its products: bias and ReLU forward, the ReLU's gradient backward."""

    def __init__(self, setup: Setup, gemm: Gemm) -> None: ...

    @abstractmethod
    def forward(self, layer: int, inputs: Array) -> None:
        """outputs[layer] (B, O) from inputs (B, I); the last layer has no ReLU."""

    @abstractmethod
    def backward(self, layer: int) -> None:
        """doutputs[layer - 1] (B, I) from doutputs[layer] (B, O), through the ReLU between them; layer >= 1."""


class Head(Part, ABC):
    """Logits (B, C) and labels (B,) to the logits' gradient and, on request, to the epoch's totals.

    One that writes parameters also runs and updates the last layer: it reads outputs[-2] and writes doutputs[-2].
    """

    arithmetic: ClassVar[Arithmetic | None] = None
    """How it multiplies, if it runs the last layer."""

    def __init__(self, setup: Setup) -> None: ...

    @abstractmethod
    def __call__(self, labels: Array, with_totals: bool) -> None:
        """Read outputs[-1], write doutputs[-1]; with totals, add the batch's loss and number correct to the totals."""


class Update(Part, ABC):
    """weights[layer] -= lr * inputs.T @ doutput; biases[layer] -= lr * doutput.sum(0)."""

    writes_parameters: ClassVar[bool] = True
    stores_gradients: ClassVar[bool] = False
    """Whether the weights' gradients go through memory before the update."""

    def __init__(self, setup: Setup, gemm: Gemm) -> None: ...

    @classmethod
    def sends_last(cls, problem: Problem) -> int:  # noqa: ARG003
        """Bytes that a GPU sends to others after its last product; part of the floor. By default none."""
        return 0

    @abstractmethod
    def __call__(self, layer: int, inputs: Array) -> None:
        """Enqueue one layer's share of the update, from its inputs (B, I) and doutputs[layer] (B, O)."""

    def finish(self) -> None:
        """Enqueue the rest of the update after every layer's call; by default there is none."""


class Metrics(Part, ABC):
    """When loss and accuracy are computed, and when they travel to the host."""

    def __init__(self, setup: Setup) -> None: ...

    @abstractmethod
    def due(self, epoch: int) -> bool:
        """Whether this epoch, counted from 0, computes them."""

    @abstractmethod
    def begin_epoch(self) -> None:
        """Called before the first step of an epoch that is due."""

    @abstractmethod
    def end_step(self) -> None:
        """Called after each step of an epoch that is due."""

    @abstractmethod
    def end_epoch(self) -> EpochMetrics:
        """Called after the last step of an epoch that is due."""


class Launch(Part, ABC):
    """How an epoch's steps reach the GPU."""

    regime: ClassVar[Regime] = "host"
    """How its kernels start on a GPU."""

    precision: ClassVar[Precision | None] = None
    """The format of the factors if the launch multiplies by itself; None if it runs the gemm's products."""

    arithmetic: ClassVar[tuple[Arithmetic, ...]] = ()
    """How a launch that multiplies by itself, in place of `REPLACED`, does it; else empty. Part of the floor."""

    weights: ClassVar[Weights | None] = None
    """How the weights travel if the launch multiplies by itself in several kernels; else None."""

    are_dependents: ClassVar[bool] = False
    """Whether its kernels start before the previous kernel has ended."""

    def __init__(self, setup: Setup, step: RunStep, metrics: Metrics) -> None: ...

    @classmethod
    def exchanges(cls, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:  # noqa: ARG003
        """How often a step waits for other blocks inside a kernel, on a GPU of this size; by default never."""
        return Exchanges()

    @abstractmethod
    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""


class Choice(TypedDict, total=False):
    """Parts of a recipe by name, as `Stage.climb` takes them."""

    memory: type[Memory]
    data: type[Data]
    gemm: type[Gemm]
    epilogue: type[Epilogue]
    head: type[Head]
    update: type[Update]
    metrics: type[Metrics]
    launch: type[Launch]


@dataclass(frozen=True)
class PartUse:
    """A part of a recipe in words: `launch`, `GraphEpoch`, `stages/classic/cuda_graph.py`."""

    name: str
    chosen: str  # the class
    file: str  # that defines the class, from the root of the project
    replaced: bool = False  # by a launch that multiplies by itself


@dataclass(frozen=True)
class Traits:
    """The properties of a recipe that no profile shows; they are part of the stage's floor."""

    are_dependents: bool  # whether kernels start before the last one has ended
    arithmetic: tuple[Arithmetic, ...]
    last_layer: Arithmetic | None  # None: as the other layers
    weights: Weights


@dataclass(frozen=True)
class Recipe:
    """All parts of a rung."""

    memory: type[Memory]
    data: type[Data]
    gemm: type[Gemm]
    epilogue: type[Epilogue]
    head: type[Head]
    update: type[Update]
    metrics: type[Metrics]
    launch: type[Launch]

    def parts(self) -> dict[str, Any]:
        """Every part by name, in the order above."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def in_words(self) -> tuple[PartUse, ...]:
        """Every part with its class and the file that defines it."""
        replaced = REPLACED if self.launch.arithmetic else ()
        return tuple(
            PartUse(name, part.__name__, part.__module__.replace(".", "/") + ".py", name in replaced)
            for name, part in self.parts().items()
        )

    @property
    def precision(self) -> Precision:
        """The format of the products' factors: the launch's if it multiplies by itself, else the gemm's."""
        return self.launch.precision or self.gemm.precision

    @property
    def arithmetic(self) -> tuple[Arithmetic, ...]:
        """How products are computed: the launch's, else the gemm's."""
        return self.launch.arithmetic or self.gemm.arithmetic or (Arithmetic(self.precision),)

    @property
    def last_layer(self) -> Arithmetic | None:
        """How the last layer is computed, if not like the others."""
        return None if self.launch.arithmetic else self.head.arithmetic

    @property
    def weights(self) -> Weights:
        """How the weights travel in a step of several kernels."""
        if self.launch.weights is not None:
            return self.launch.weights
        if self.update.stores_gradients:
            return "gradients"
        if self.gemm.has_planes:
            return "planes"
        return "streamed" if self.gemm.shares_backward_pass else "updated"

    @property
    def traits(self) -> Traits:
        """The properties that no profile shows."""
        return Traits(self.launch.are_dependents, self.arithmetic, self.last_layer, self.weights)

    def padded(self, problem: Problem) -> Problem:
        """The problem with the widths that its gemm multiplies fast. Additional units are zeros, and train to zeros."""
        multiple = 1 if self.launch.writes_parameters else self.gemm.width_multiple
        inputs, *hidden = (-(-width // multiple) * multiple for width in (problem.inputs, *problem.hidden))
        return replace(problem, inputs=inputs, hidden=tuple(hidden))

    def misfit(self, problem: Problem, steps: int) -> str:
        """Why a part cannot train this problem with this many steps an epoch; empty if all can."""
        own = self.padded(problem)
        return next(filter(None, (part.misfit(own, steps) for part in self.parts().values())), "")

    @property
    def takes_gpus(self) -> bool:
        """Whether a part trains together with others on other GPUs."""
        return any(part.takes_gpus for part in self.parts().values())

    @property
    def needs(self) -> tuple[str, ...]:
        """The requirements of all parts, without repeats."""
        of_parts = dict.fromkeys(need for part in self.parts().values() for need in part.needs)
        return (*(("two-gpus",) if self.takes_gpus else ()), *of_parts)


def changes(below: Recipe, above: Recipe) -> dict[str, Any]:
    """The parts in which `above` differs from `below`, by name."""
    before = below.parts()
    return {name: part for name, part in above.parts().items() if part is not before[name]}
