"""A stage: one row of the ladder, and how a rung climbs from the one below."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, Unpack, cast, get_args, get_type_hints, runtime_checkable

from common.cost import Exchanges
from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer
from common.vocabulary import Group as Group
from common.vocabulary import Precision
from stages.engine.recipe import Choice, Part, Recipe, changes
from stages.engine.step import RecipeTrainer

Build = Callable[[Problem, Split], Trainer]


@runtime_checkable
class SelectiveBuild(Protocol):
    """A `build`, such as a trainer's class, that does not take every problem."""

    def misfit(self, problem: Problem, steps: int) -> str | None:
        """Why it cannot train this problem with this many steps an epoch, and what to try; None if it can."""


@dataclass(frozen=True)
class Stage:
    """Everything that the harness and the reports know of a way to train.

    `build` prepares a trainer on a split of the training images; it raises whatever went wrong.

    A stage that compiles for long, and finds on disk what another process of it has compiled, says so by
    `compiles_within`: before anything is measured, a process of its own then builds and trains in such a context,
    beside those of other stages. What is chosen there by timing, on a GPU and cores that others use, must not be kept,
    and the context is to see to that; `contextlib.nullcontext` will do where nothing is. Where that cannot be had, the
    trainers on a few batches, which are judged and never timed, may still be compiled there: `first_updates_within` is
    a context that keeps theirs apart from the timed trainer's; they are built and trained within it everywhere.
    """

    name: str
    title: str
    group: Group
    precision: Precision
    needs: tuple[str, ...]
    build: Build
    below: str | None = None
    changed: str | None = None
    recipe: Recipe | None = None
    compiles_within: Callable[[], AbstractContextManager[None]] | None = None
    first_updates_within: Callable[[], AbstractContextManager[None]] | None = None

    def misfit(self, problem: Problem, steps: int) -> str | None:
        """Why the stage cannot train this problem with this many steps an epoch, and what to try; None if it can."""
        if self.recipe is not None:
            return next(filter(None, (part.misfit(problem, steps) for part in self.recipe.parts().values())), None)
        return self.build.misfit(problem, steps) if isinstance(self.build, SelectiveBuild) else None

    def exchanges(self, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:
        """How often a step waits for other blocks inside a kernel, on a GPU of this size; part of the stage's floor."""
        if self.recipe is None:
            return Exchanges()
        return self.recipe.launch.exchanges(problem, steps, multiprocessors, block_shared_bytes)

    def climb(self, name: str, title: str, group: Group | None = None, **choice: Unpack[Choice]) -> Stage:
        """The next rung: this one with exactly one choice changed.

        Raises TypeError when it is none, several, or no change at all.
        """
        if self.recipe is None:
            raise TypeError(f"{name}: cannot climb from {self.name}, which has no recipe")
        recipe = replace(self.recipe, **_with_bases(choice))
        changed = changes(self.recipe, recipe)
        if len(choice) != 1 or len(changed) != 1:
            raise TypeError(f"{name}: a rung changes exactly one choice, not {sorted(choice) or 'none'}")
        ((chosen, part),) = changed.items()
        changed_to = f"{chosen}: {part.__name__}"
        return Stage.from_recipe(name, title, recipe, group=group or self.group, below=self.name, changed=changed_to)

    @classmethod
    def from_recipe(
        cls,
        name: str,
        title: str,
        recipe: Recipe,
        *,
        group: Group = "ladder",
        below: str | None = None,
        changed: str | None = None,
    ) -> Stage:
        """A stage that trains by a recipe on the GPU."""

        def build(problem: Problem, train: Split) -> Trainer:
            from common.cuda.gpu import Gpu  # here, since a machine without CuPy lists the rungs too

            return RecipeTrainer(recipe, problem, train, Gpu())

        return cls(name, title, group, recipe.precision, recipe.needs, build, below, changed, recipe)


_BASES: dict[str, type[Part]] = {name: get_args(hint)[0] for name, hint in get_type_hints(Recipe).items()}


def _with_bases(choice: Choice) -> Choice:
    """The same parts; one that does not inherit from its base class, as before version 0.2, gets it, with a warning."""
    parts: dict[str, Any] = dict(choice)
    for name, part in parts.items():
        base = _BASES.get(name)
        if base is not None and not issubclass(part, base):
            warnings.warn(
                f"{part.__name__} must inherit from stages.{base.__name__}; version 0.3 requires it",
                FutureWarning,
                stacklevel=3,
            )
            parts[name] = type(part.__name__, (part, base), {"__module__": part.__module__, "__doc__": part.__doc__})
    return cast(Choice, parts)


@dataclass(frozen=True)
class Doc:
    """The paragraphs of a stage's module docstring, each as one line of text."""

    why: str
    change: str
    expect: str  # written before the code
    found: str = ""  # written after the measurement, where that missed what was expected

    @classmethod
    def parse(cls, docstring: str) -> Doc:
        """Read `Why:`, `Change:`, `Expect:` and `Found:` paragraphs; ValueError when one but the last is missing."""
        doc = cls.of_any(docstring)
        missing = [word for word in ("change", "expect", "why") if not getattr(doc, word)]
        if missing:
            raise ValueError(f"the docstring has no paragraph {missing}")
        return doc

    @classmethod
    def of_any(cls, docstring: str) -> Doc:
        """The same of a docstring that owes us none of them; what is not there is empty."""
        found = dict.fromkeys(("why", "change", "expect"), "")
        for paragraph in re.split(r"\n\s*\n", docstring):
            word, colon, text = paragraph.strip().partition(":")
            if colon and word in ("Why", "Change", "Expect", "Found"):
                found[word.lower()] = " ".join(text.split())
        return cls(**found)
