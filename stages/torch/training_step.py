"""One way to run a training step of a user's model, as a frozen set of choices, and the rungs that change one each.

A choice is a class, which the file of the rung that introduces it defines; `stages.torch.trainer.Trainer` puts them
together. Each gets its trainer, which is `Any` here, since the trainer imports this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from typing import Any, Literal, Protocol

from stages.torch.user_model import Batch

Precision = Literal["float32", "tf32", "bfloat16"]
Place = Literal["anywhere", "cpu", "gpu"]
Group = Literal["ladder", "left out", "instead"]
WITHOUT = "-without-"
"""Between a rung and the change that is left out, in the name of such a row."""


class Batches(Protocol):
    """Brings a step's batch to the device."""

    needs_resident: bool
    """Whether all data must lie on the device."""

    def __init__(self, trainer: Any) -> None: ...

    def start(self, row: int) -> None:
        """Begin at this row of the order."""

    def next(self) -> Batch:
        """The next batch; the host takes part."""

    def in_graph(self) -> Batch:
        """The batch of a step that is being recorded: what the recorded step will read each time."""

    def before_replay(self) -> None:
        """What the host does before each replay of a recorded step."""

    def close(self) -> None:
        """End what works ahead."""


class Metrics(Protocol):
    """Keeps what a step tells of itself: its loss, and what the user's `metrics` returns."""

    def __init__(self, trainer: Any) -> None: ...

    def take(self, values: dict[str, Any]) -> None:
        """Add a step's values, scalars on the device; part of a recorded step."""

    def after_replay(self) -> None:
        """What the host does after each replay of a recorded step."""

    def total(self, name: str) -> float:
        """The sum over all steps so far; the host waits."""


class Optimizer(Protocol):
    """Builds the optimizer from the user's."""

    def __call__(self, trainer: Any, written: Any, *, is_captured: bool) -> Any:
        """An optimizer with the parameters and options of the `written` one; raises MisfitError where it cannot be."""


class Launch(Protocol):
    """Has the device run steps."""

    steps: int
    """Steps a launch; 0 where the host launches every kernel."""

    def __init__(self, trainer: Any) -> None: ...

    def run(self, steps: int) -> None:
        """Train for so many steps."""


@dataclass(frozen=True)
class Arithmetic:
    """The precision of products, and what sets it."""

    name: Precision
    matmul: Literal["highest", "high"] = "highest"
    autocast: bool = False


@dataclass(frozen=True)
class Compiler:
    """The arguments of `torch.compile` for the forward pass and the loss; none: it is not compiled."""

    arguments: tuple[tuple[str, Any], ...] | None = None
    whole: bool = False  # also the optimizer's step

    def __str__(self) -> str:
        """As records name the choice."""
        if self.arguments is None:
            return "not compiled"
        return ", ".join(["torch.compile", *(f"{name}={value}" for name, value in self.arguments)])


@dataclass(frozen=True)
class TrainingStep:
    """The choices of one training step."""

    batches: type[Batches]
    metrics: type[Metrics]
    optimizer: Optimizer
    arithmetic: Arithmetic
    compiler: Compiler
    layout: Literal["contiguous", "channels_last"]
    launch: type[Launch]
    threads: int = 0  # of the CPU; 0: PyTorch's choice
    around: Callable[[Any], None] | None = None  # replaces the model's call or the loop, by what others recommend

    def differences(self, other: TrainingStep) -> list[str]:
        """The names of the fields that differ."""
        return [one.name for one in fields(self) if getattr(self, one.name) != getattr(other, one.name)]

    def named(self, choice: str) -> str:
        """A choice in a word: the name of its class, or its value."""
        value = getattr(self, choice)
        return str(value.name if isinstance(value, Arithmetic) else getattr(value, "__name__", value))


@dataclass(frozen=True)
class Rung:
    """A training step with its place in the ladder."""

    name: str
    words: str  # what it changes, at most 44 letters
    step: TrainingStep
    parent: Rung | None = None
    group: Group = "ladder"
    place: Place = "anywhere"
    is_default: bool = True  # climbed unless rungs are asked for by name
    only: Callable[[Any], str | None] = lambda model: None  # noqa: ARG005  # why a model cannot use what it changes
    package: str = ""  # that it imports beside PyTorch

    @property
    def is_installed(self) -> bool:
        """Whether its package can be imported; where not, it is not climbed by default."""
        return not self.package or find_spec(self.package) is not None

    def climb(
        self,
        name: str,
        words: str,
        *,
        group: Group = "ladder",
        place: Place | None = None,
        is_default: bool = True,
        only: Callable[[Any], str | None] | None = None,
        package: str = "",
        **change: Any,
    ) -> Rung:
        """The rung above this one, with exactly one choice changed."""
        step = replace(self.step, **change)
        assert len(self.step.differences(step)) == 1, f"{name}: a rung changes one choice of its parent"
        useful = {"only": only} if only else {}
        return Rung(name, words, step, self, group, place or self.place, is_default, **useful, package=package)

    @property
    def changed(self) -> str:
        """The one choice that differs from the parent's, such as `optimizer: FusedOptimizer`."""
        if self.parent is None:
            return ""
        (choice,) = self.parent.step.differences(self.step)
        return f"{choice}: {self.step.named(choice)}"

    @property
    def way(self) -> list[Rung]:
        """The rungs from the first one to this one."""
        return [*(self.parent.way if self.parent else ()), self]

    @property
    def changes(self) -> list[str]:
        """The names of the rungs whose choices it still has: a later one may have replaced an earlier one's."""
        kept, way = [], self.way
        for rung in way:
            choices = rung.parent.step.differences(rung.step) if rung.parent else []
            if rung.group != "left out" and all(
                getattr(rung.step, choice) == getattr(self.step, choice) for choice in choices
            ):
                kept.append(rung.name)
        return kept

    def without(self, change: Rung, base: Rung) -> Rung:
        """The rung with one change of its way taken back to what `base` has."""
        assert change.parent is not None
        (choice,) = change.parent.step.differences(change.step)
        step = replace(self.step, **{choice: getattr(base.step, choice)})
        name, words = f"{self.name}{WITHOUT}{change.name}", f"without {change.name}"
        return Rung(name, words, step, self, "left out", self.place)
