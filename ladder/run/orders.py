"""What a run still has to measure, and the jobs of the processes that measure it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from common.cache import cache_folder
from common.problem import Problem
from ladder.measure.protocol import Job
from ladder.measure.timing import Plan
from ladder.records.exactness import CLASSES, FAR_BEHIND, FAR_BEHIND_IN_WORDS, far_behind, settled
from ladder.run.expected import expectations
from ladder.run.judge import TRAINED
from ladder.run.jury import Jury
from ladder.run.ledger import Ledger
from ladder.run.preflight import obstacle
from ladder.run.stage_run import StageRun
from ladder.verify.oracle_runs import STEP_WORK
from ladder.verify.short_runs import DRAWN_PARAMETERS, FEWEST_DRAWS, MOST_DRAWS

PROFILE_LIMIT_S = 1.0  # if profiling takes longer in a stage's process, later rounds are not profiled
FEW_ROUNDS = 2  # more are asked for to tell small differences, also of references
LEAST_BUDGET_S = 0.1  # for a stage, where the others have used up the run's
FIRST_BATCHES = (1, 3, 17)  # 17 exceeds the steps that any stage compiles or unrolls as one piece of code
WIDE = 5_000_000  # parameters; the oracle would take minutes to repeat epochs of more than three batches
# No two stages share a late epoch. In multiplications: on a few batches, with controls, and on all of them without; the
# latter of an MLP alone, since a softmax regression's final parameters are compared.
LATE_WORK, WHOLE_WORK = 2_500_000_000, 2_000_000_000
POSITIVE_WORK = 20_000_000_000  # of an epoch of all batches that stages share, likewise without controls
UNTIMED = Plan(epochs=1, repeats=0, warmups=0)
Wrap = Callable[[Sequence[str]], list[str]]
"""Turns a worker's command into the command that runs it under a profiler."""


@dataclass(frozen=True)
class Order:
    """One process that works for a stage."""

    stage: StageRun
    job: Job
    folder: Path
    """For what the process leaves."""
    log: Path
    number: Callable[[int], int]
    """The seed of a run that all stages of a round share, by its number in the round."""
    wrap: Wrap | None = None
    """Puts a profiler around a worker that no fork server forks."""

    @property
    def name(self) -> str:
        """The stage and its round."""
        return self.folder.name

    def renamed(self, what: str, wrap: Wrap | None = None, **changes: object) -> Order:
        """Another process of the stage, whose job differs in this."""
        name, job = f"{self.stage.name}.{what}", msgspec.structs.replace(self.job, **changes)
        return replace(
            self, job=job, folder=self.folder.with_name(name), log=self.log.with_name(f"{name}.log"), wrap=wrap
        )


class Orders:
    """The orders of one run, by the state of its ledger."""

    def __init__(self, ledger: Ledger, jury: Jury) -> None:
        self._ledger, self._jury = ledger, jury
        self._problem, self._settings = jury.problem, ledger.settings
        self.requested = Plan(self._problem.epochs, self._settings.repeats, self._settings.warmups)
        self._places = self._in_order_of_weight()
        self.dataset: Path
        """Where workers find the data, once it is saved."""
        self.blas_threads: int | None = None
        """Of each worker, at most; None for no limit."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes that the data set takes, and the parameters that processes leave at once."""
        # After the first updates, up to two more short runs each, the epoch from zeros, and the timed runs.
        kept = 3 * len(FIRST_BATCHES) + 1 + self._settings.repeats
        return self._jury.dataset.nbytes + kept * parameter_bytes(self._problem) * self._settings.at_once

    def save_data(self, folder: Path) -> None:
        """Save the data set in this folder, for all later orders."""
        self.dataset = folder
        self._jury.dataset.save(folder)

    def skip_unrunnable(self) -> None:
        """Skip the stages that cannot be measured here, or not on this problem."""
        for stage in self._ledger.stages:
            reason = obstacle(stage.entry.stage, self._problem, self._jury.dataset, self._ledger.gpu_memory_mib)
            if reason and not stage.processes:
                stage.skip(reason)

    def due(self, round_: int) -> list[StageRun]:
        """The stages that this round still has to measure."""
        left_out = self.left_out(round_)
        due = [stage for stage in self._ledger.stages if stage.needs_round(round_) and stage.name not in left_out]
        return sorted(due, key=lambda stage: self._places[stage.name])

    def left_out(self, round_: int) -> dict[str, str]:
        """Why stages that were measured before need no further process, by name, where time is short."""
        settings, stages = self._settings, self._ledger.stages
        if not round_ or settings.budget_total_s is None:
            return {}
        own = [stage.name for stage in stages if not stage.entry.is_ours]
        known = settled([stage.result() for stage in stages], own) if settings.rounds <= FEW_ROUNDS else {}
        known |= {stage.name: FAR_BEHIND_IN_WORDS for stage in stages if self.is_behind(stage)}
        due = (stage.name for stage in stages if stage.needs_round(round_) and stage.processes)
        return {name: known[name] for name in due if name in known}

    def _in_order_of_weight(self) -> dict[str, tuple[int, float]]:
        """The place of each stage in a round, so that the first minute has an answer; with ties, in ladder order.

        First come stages of the user's, the rung of each class that the model expects to be fastest, the fastest class
        first, the references that may be the fastest, and rungs that the model does not know. Without a GPU there is
        no model.
        """
        stages, problem = self._ledger.stages, self._problem
        if self._ledger.gpu_memory_mib is None or problem.networks > 1:
            return dict.fromkeys((stage.name for stage in stages), (0, 0.0))
        us = {name: each.us for name, each in expectations(problem, self._jury.steps).items()}
        references = {stage.name for stage in stages if stage.entry.stage.group == "reference"}
        first: dict[str, str] = {}  # by class, the fastest rung
        for stage in stages:
            kind, name = CLASSES[stage.entry.stage.precision], stage.name
            if name in us and name not in references and us[name] < us.get(first.get(kind, ""), math.inf):
                first[kind] = name
        least = min((us[name] for name in references & us.keys()), default=math.inf)

        def place(stage: StageRun) -> tuple[int, float]:
            name, group = stage.name, stage.entry.stage.group
            if name in references:
                return 2 if us.get(name, math.inf) < FAR_BEHIND * least else 4, 0.0
            if not stage.entry.is_ours:
                return 0, 0.0
            if name in first.values():
                return 1, us[name]
            return 3 if group == "beyond" and name not in us else 4, 0.0

        return {stage.name: place(stage) for stage in stages}

    def is_behind(self, stage: StageRun) -> bool:
        """Whether a stage is a reference of ours that another one leaves far behind, and time is too short for it.

        Where each stage has a time of its own (`--budget`), there is enough.
        """
        is_ours = stage.entry.is_ours and stage.entry.stage.group == "reference"
        if self._settings.budget_total_s is None or not is_ours:
            return False
        return stage.name in far_behind(other.result() for other in self._ledger.stages)

    def needs_compiling(self, stage: StageRun) -> bool:
        """Whether a stage takes long to compile, will be measured, and no run here has compiled it for this problem."""
        compiles = stage.entry.stage.first_updates_within is not None or self._compiles_much
        rounds = range(self._settings.rounds) if stage.needs_compiling and compiles else ()
        return any(stage in self.due(round_) for round_ in rounds) and not self._mark(stage).exists()

    @property
    def _compiles_much(self) -> bool:
        """Whether timed trainers take long to compile: on a GPU where references search."""
        return self._settings.tune_references or self._ledger.gpu_memory_mib is None

    def to_compile(self) -> list[Order]:
        """The orders that compile stages ahead."""
        stages = [stage for stage in self._ledger.stages if self.needs_compiling(stage)]
        return [self.order(stage, 0).renamed("compiling", profile=None, compiles=True) for stage in stages]

    def order(self, stage: StageRun, round_: int) -> Order:
        """The process that measures a stage in a round."""
        is_first, tool = not stage.processes, stage.tool
        is_cut = stage.plan is None and self._settings.at_once == 1  # side by side, time is no measure
        job = short_runs_job(stage.entry.source, self._problem, self._jury.steps, self.dataset)
        if not is_first:
            job = msgspec.structs.replace(job, first_updates=[], repeated=[], trained="", late=[])
        job = msgspec.structs.replace(
            job,
            positive=is_first and can_repeat_whole(self._problem, self._jury.steps, POSITIVE_WORK),
            round=round_,
            wanted=stage.plan or self.requested,
            profile=tool if tool in self._settings.profile and stage.profile_s <= PROFILE_LIMIT_S else None,
            curve_steps=self._settings.curve_steps if round_ == 0 else 0,
            energy=self._settings.energy and round_ == 0,
            mark=str(self._mark(stage)) if stage.entry.stage.keeps_compiled_code else "",
            searches=self._settings.tune_references,
            compilers=self._compiles_much,
            choices=stage.choices,
            budget_s=self._budget_s() / self._settings.rounds if is_cut else None,
            blas_threads=self.blas_threads,
        )
        name, logs = f"{stage.name}.{round_ + 1}", self._ledger.folder / "logs"
        number = partial(self._jury.handed_out, round_, own=stage.own)
        return Order(stage, job, self.dataset.parent / name, logs / f"{name}.log", number)

    def _budget_s(self) -> float:
        """The seconds for which the next stage may be measured: at most its share of what the others leave of all."""
        budget_s, total_s = self._settings.budget_s, self._settings.budget_total_s
        if total_s is None:
            return budget_s
        planned = [stage for stage in self._ledger.stages if stage.plan is not None]
        spent_s = self._settings.rounds * sum(stage.processes[0].took_s.get("measure", 0.0) for stage in planned)
        unplanned = sum(stage.plan is None and stage.status is None for stage in self._ledger.stages)
        return max(min(budget_s, (total_s - spent_s) / max(unplanned, 1)), LEAST_BUDGET_S)

    def _mark(self, stage: StageRun) -> Path:
        """The file that says that a stage's compiled code is in the cache."""
        results = self._ledger.results
        described = [results.environment.get(part) for part in ("gpu", "libraries", "python")]
        searches = self._settings.tune_references
        parts = [stage.code, described, results.problem, searches, cache_folder("").as_posix()]
        return cache_folder("compiled") / hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def parameter_bytes(problem: Problem) -> int:
    """Bytes of all networks' parameters and optimizers' states."""
    return 4 * problem.networks * sum(map(math.prod, problem.shapes))


def can_repeat_whole(problem: Problem, steps: int, work: int) -> bool:
    """Whether float64 repeats an epoch of all steps of an MLP, which is no short run, in `work` multiplications."""
    is_whole = not problem.is_logistic and steps > max(FIRST_BATCHES)
    return is_whole and steps * (problem.multiplications + STEP_WORK) <= work


def short_runs_job(source: str, problem: Problem, steps: int, dataset: Path) -> Job:
    """The job of a process that times nothing, and leaves every short run of a stage for verification."""
    updates = sorted({min(batches, steps) for batches in FIRST_BATCHES})
    weights = sum(layer.fan_in * layer.fan_out for layer in problem.layers)
    repeated = (updates[1:] or updates)[: 1 if weights > WIDE else None]
    draws = max(FEWEST_DRAWS, min(MOST_DRAWS, DRAWN_PARAMETERS // weights))
    late = repeated[:1] if repeated[0] * problem.multiplications * draws <= LATE_WORK else []
    if can_repeat_whole(problem, steps, WHOLE_WORK):
        late = [*late, steps]
    return Job(
        source=source,
        problem=problem,
        dataset=str(dataset),
        round=0,
        first_updates=updates,
        repeated=repeated,
        trained=str(dataset.parent / TRAINED),
        late=late,
        wanted=UNTIMED,
        profile=None,
        budget_s=None,
    )
