"""A stage: one row of the table, and how a rung climbs from another."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, Unpack, cast, get_args, get_type_hints, runtime_checkable

from common.cost import Exchanges
from common.cuda.driver import devices
from common.data.dataset import Split
from common.problem import Problem
from common.ranks import Group as Ranks
from common.trainer import Trainer
from common.vocabulary import Group as Group
from common.vocabulary import Precision, Regime
from stages.engine.fleet import FleetLaunch, FleetTrainer
from stages.engine.in_a_row import InARow
from stages.engine.misfit import closest_rung, with_closest
from stages.engine.ranks import RanksTrainer
from stages.engine.recipe import Choice, Part, PartUse, Recipe, Traits, changes
from stages.engine.step import RecipeTrainer
from stages.engine.workspace import Device

Build = Callable[[Problem, Split], Trainer]


@runtime_checkable
class SelectiveBuild(Protocol):
    """A `build`, such as a trainer's class, that does not take every problem."""

    def misfit(self, problem: Problem, steps: int) -> str | None:
        """Why it cannot train this problem with this many steps an epoch, and what to try; None if it can."""


@dataclass(frozen=True)
class Place:
    """Where a recipe trains."""

    device: Callable[[], Device]
    needs: tuple[str, ...]
    """In the words of `ladder.machine.environment.missing`."""


def _gpu(group: Ranks | None = None) -> Device:
    from common.cuda.gpu import Gpu  # here, so that a machine without CuPy can list the rungs

    return cast(Device, Gpu(group=group))


def _train_on_a_rank(recipe: Recipe, group: Ranks, problem: Problem, train: Split) -> Trainer:
    return RecipeTrainer(recipe, problem, train, _gpu(group))


GPU = Place(_gpu, ("cuda",))


@dataclass(frozen=True)
class Stage:
    """One way to train, as the harness and the reports know it.

    `build` prepares a trainer on a split of the training images; it raises the stage's own errors.

    `compiles_within` is for a stage that compiles for long and caches the output on disk. While nothing is measured, a
    process of its own builds and trains within that context, beside the processes of other stages. The context must
    not keep choices made by timing, since others use the GPU and the cores; `contextlib.nullcontext` will do if the
    stage makes none.

    `first_updates_within` is for a stage whose timed trainer cannot be compiled ahead. It separates the cache of the
    trainers on a few batches, which are checked and never timed. They are always built and trained within it.

    `closest` is the rung to try where this one does not take a problem or a GPU: of a rung, by default the one below.

    `is_fleet` is for a stage that trains several networks at once, and does not take one alone. `takes_gpus` is for one
    that divides each batch among several GPUs.

    `words` say what a rung changes, or what a reference is, in at most `MOST_LETTERS` letters; empty: its title does.
    """

    name: str
    title: str
    group: Group
    precision: Precision
    needs: tuple[str, ...]
    build: Build
    below: str | None = None
    closest: str | None = None
    changed: str | None = None
    recipe: Recipe | None = None
    place: Place = GPU
    compiles_within: Callable[[], AbstractContextManager[None]] | None = None
    first_updates_within: Callable[[], AbstractContextManager[None]] | None = None
    words: str = ""
    regime: Regime | None = None  # None without a recipe
    parts: tuple[PartUse, ...] = ()  # of the recipe
    is_fleet: bool = False
    takes_gpus: bool = False

    @property
    def keeps_compiled_code(self) -> bool:
        """Whether it takes long to compile, and keeps the output on disk."""
        return self.compiles_within is not None or self.first_updates_within is not None

    @property
    def traits(self) -> Traits | None:
        """The properties of its recipe that no profile shows; None without a recipe."""
        return self.recipe.traits if self.recipe is not None else None

    def misfit(self, problem: Problem, steps: int) -> str | None:
        """Why the stage cannot train this problem with this many steps an epoch, and what to try; None if it can."""
        if self.is_fleet and problem.networks == 1:
            return "trains several networks at once; add --networks or --learning-rates"
        if self.takes_gpus and (reason := _too_few_gpus(problem)):
            return reason
        if self.recipe is not None:
            return with_closest(self.recipe.misfit(problem, steps), self.closest) or None
        return self.build.misfit(problem, steps) if isinstance(self.build, SelectiveBuild) else None

    def trainer(self, problem: Problem, train: Split) -> Trainer:
        """A trainer of all networks of the problem; raises the stage's own errors."""
        if problem.networks == 1 or self.is_fleet:
            return self.build(problem, train)
        return InARow(self.build, problem, train)

    def exchanges(self, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:
        """How often a step waits for other blocks inside a kernel, on a GPU of this size; part of the stage's floor."""
        if self.recipe is None:
            return Exchanges()
        found = self.recipe.launch.exchanges(problem, steps, multiprocessors, block_shared_bytes)
        return replace(found, peer_bytes=found.peer_bytes + self.recipe.update.sends_last(problem))

    def climb(
        self,
        name: str,
        title: str,
        group: Group | None = None,
        *,
        words: str = "",
        closest: str | None = None,
        **choice: Unpack[Choice],
    ) -> Stage:
        """The next rung: this one with one part changed, given by its choice, for example `gemm=MyGemm`.

        `words` say what it changes in at most `MOST_LETTERS` letters; figures show them beside the rung. `closest` is
        the rung to try where this one does not fit, if that is not the one below.

        Raises TypeError unless exactly one part changes, to a class with the base of its choice.
        """
        if self.recipe is None:
            raise TypeError(f"{name}: cannot climb from {self.name}, which has no recipe")
        _refuse_without_base(choice)
        recipe = replace(self.recipe, **choice)
        changed = changes(self.recipe, recipe)
        if len(choice) != 1 or len(changed) != 1:
            raise TypeError(f"{name}: a rung changes exactly one choice, not {sorted(choice) or 'none'}")
        ((chosen, part),) = changed.items()
        return Stage.from_recipe(
            name,
            title,
            recipe,
            group=group or self.group,
            below=self.name,
            closest=closest or self.name,
            changed=f"{chosen}: {part.__name__}",
            place=self.place,
            words=words,
        )

    @classmethod
    def from_recipe(
        cls,
        name: str,
        title: str,
        recipe: Recipe,
        *,
        group: Group = "ladder",
        below: str | None = None,
        closest: str | None = None,
        changed: str | None = None,
        place: Place = GPU,
        words: str = "",
    ) -> Stage:
        """A stage that trains by a recipe, on the GPU unless another place is given."""
        is_fleet = issubclass(recipe.launch, FleetLaunch)
        trainer = FleetTrainer if is_fleet else RecipeTrainer

        def build(problem: Problem, train: Split) -> Trainer:
            with closest_rung(closest):
                if recipe.takes_gpus:
                    return RanksTrainer(partial(_train_on_a_rank, recipe), problem, train)
                return trainer(recipe, problem, train, place.device())

        needs = recipe.needs if place is GPU else place.needs
        return cls(
            name=name,
            title=title,
            group=group,
            precision=recipe.precision,
            needs=needs,
            build=build,
            below=below,
            closest=closest,
            changed=changed,
            recipe=recipe,
            place=place,
            words=words,
            regime=recipe.launch.regime if place is GPU else "CPU",
            parts=recipe.in_words,
            is_fleet=is_fleet,
            takes_gpus=recipe.takes_gpus,
        )


def _too_few_gpus(problem: Problem) -> str:
    """Why a stage cannot divide this problem's batches among GPUs here; empty if it can."""
    if problem.gpus == 1:
        return "divides each batch among several GPUs; add --gpus 2"
    if len(found := devices()[: problem.gpus]) < problem.gpus:
        return f"needs {problem.gpus} GPUs (--gpus); this machine shows {len(found) or 'none'}"
    if len(kinds := {gpu.name for gpu in found}) > 1:
        return f"needs GPUs of one kind; $CUDA_VISIBLE_DEVICES can choose among {' and '.join(sorted(kinds))}"
    return "" if problem.batch_size >= problem.gpus else f"a batch of {problem.batch_size} is fewer images than GPUs"


_BASES: dict[str, type[Part]] = {name: get_args(hint)[0] for name, hint in get_type_hints(Recipe).items()}


def _refuse_without_base(choice: Choice) -> None:
    """Raise TypeError for a part that lacks the base class of its choice."""
    for name, part in choice.items():
        base = _BASES.get(name)
        if base is not None and not (isinstance(part, type) and issubclass(part, base)):
            raise TypeError(f"{getattr(part, '__name__', part)} must inherit from stages.{base.__name__}")


@dataclass(frozen=True)
class Doc:
    """The paragraphs of a stage's module docstring, each as one line of text."""

    why: str
    change: str
    expect: str  # written before the code
    found: str = ""  # written after the measurement
    predict: str = ""  # the numbers of `expect` in the form that `reports.facts.predictions` reads
    summary: str = ""  # the first line after its colon: what changes, without the full stop

    @classmethod
    def parse(cls, docstring: str) -> Doc:
        """The paragraphs of one of our rungs; ValueError if `Why:`, `Change:` or `Expect:` is missing."""
        doc = cls.of_any(docstring)
        missing = [word for word in ("change", "expect", "why") if not getattr(doc, word)]
        if missing:
            raise ValueError(f"the docstring has no paragraph {missing}")
        return doc

    @classmethod
    def of_any(cls, docstring: str) -> Doc:
        """The `Why:`, `Change:`, `Expect:`, `Predict:` and `Found:` paragraphs of any docstring; empty if missing."""
        sections = dict.fromkeys(("why", "change", "expect"), "")
        sections["summary"] = docstring.partition("\n")[0].partition(": ")[2].strip().removesuffix(".")
        for paragraph in re.split(r"\n\s*\n", docstring):
            word, colon, text = paragraph.strip().partition(":")
            if colon and word in ("Why", "Change", "Expect", "Predict", "Found"):
                sections[word.lower()] = " ".join(text.split())
        return cls(**sections)
