"""The record of a ladder over a user's own PyTorch model: `torch.json` in the run's folder.

It holds what was measured and judged. What follows from it, such as a time a step or the steps after which a rung
pays, is computed by the properties here, once for the recipe and for every report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

from ladder.records.foreign import ResultsError, decoded
from ladder.records.run import Count, Process, StageDoc, write_whole

FILE = "torch.json"
SCHEMA_VERSION = 1
TorchStatus = Literal["passed", "less exact", "wrong", "refused", "crashed", "stopped"]
TorchGroup = Literal["ladder", "left out", "instead"]
"""A rung of the ladder, the best one with a change left out, or what people would take instead."""
TorchPrecision = Literal["float32", "tf32", "bfloat16"]
RIGHT = ("passed", "less exact")
"""The statuses of rungs that get a time."""
FIRST_ROW = "the first row"  # in `took_s`: when it came, and no part of the whole
WITHIN = 1.05  # a recipe may take this many times as long as the fastest


class TorchCheck(msgspec.Struct, frozen=True):
    """One comparison of a rung's training with the reference; it passes where `error <= limit`."""

    what: str  # such as `parameters after 32 steps`
    error: float | None  # null: not finite, or a count that differs
    limit: float  # of a rung as exact as eager
    less_exact_limit: float  # of one that counts as less exact; above it, a rung is wrong
    where: str = ""  # the tensor with the largest error, such as `exp_avg of 0.weight`

    @property
    def passed(self) -> bool:
        """Whether the rung is as exact as eager here."""
        return self.error is not None and self.error <= self.limit

    @property
    def is_wrong(self) -> bool:
        """Whether no rounding explains the error."""
        return self.error is None or self.error > self.less_exact_limit

    @property
    def excess(self) -> float:
        """The error as a multiple of its limit."""
        if self.error is None:
            return math.inf
        return self.error / self.limit if self.limit > 0 else math.inf if self.error else 0.0


def worst_of(checks: Sequence[TorchCheck]) -> TorchCheck | None:
    """The check that decides a rung's grade: the farthest beyond its limit, of parameters where these decide as well.

    Where all pass, it is the one nearest to its limit.
    """
    failed = [check for check in checks if check.is_wrong] or [check for check in checks if not check.passed]
    of_parameters = [check for check in failed if check.what.startswith("parameters")]
    return max(of_parameters or failed or checks, key=lambda check: check.excess, default=None)


def failure_of(checks: Sequence[TorchCheck]) -> str:
    """Why a rung is not as exact, in words: its worst check with error and limit, and how many others fail."""
    worst, failed = worst_of(checks), sum(not check.passed for check in checks)
    if worst is None or not failed:
        return ""
    where = f"{worst.where}: " if worst.where not in ("", "loss") else ""
    times = " times eager's error" if worst.where else ""
    limits = f"limit {multiple(worst.limit)}{f', wrong above {multiple(worst.less_exact_limit)}' * worst.is_wrong}"
    told = f"{multiple(worst.error)}{times}, {limits}" if worst.error is not None else "not finite or not equal"
    others = f"; {failed - 1} more {'fails' if failed == 2 else 'fail'}" if failed > 1 else ""
    return f"{worst.what}: {where}{told}{others}"


def multiple(error: float | None) -> str:
    """An error or a limit: `0.73`, `5,300`, `1.2e+09`."""
    if error is None:
        return "differs"
    return f"{error:,.0f}" if 10 <= error < 1e6 else f"{error:.2g}"


class TorchProcess(msgspec.Struct, frozen=True):
    """The timed runs of one rung in one fresh process."""

    measured: Process  # each of `runs_s` is of `steps` steps
    steps: Count
    host_s: list[float]  # until the host had launched the run's last step
    first_step_s: float  # from a model in memory until the first step had run: building, compiling, capturing
    peak_mib: float | None = None  # of the device's memory, at most, while it prepared and trained
    step_joules: float | None = None  # of the whole GPU

    @property
    def step_us(self) -> float:
        """Microseconds per step: the median of the process's runs."""
        return median(self.measured.runs_s) / self.steps * 1e6


class TorchRung(msgspec.Struct, frozen=True):
    """One way to run the model's training step."""

    name: str
    parent: str | None
    group: TorchGroup
    words: str  # what it changes, short enough for a table
    changed: str  # the one field of the training step, such as `optimizer: FusedOptimizer`
    changes: list[str]  # the rungs whose changes it holds, from `eager` on
    precision: TorchPrecision
    doc: StageDoc
    status: TorchStatus
    reason: str = ""  # why it is not `passed`
    notes: list[str] = []  # what a reader of its row should know
    checks: list[TorchCheck] = []
    error_ratio: float | None = None  # its parameters' distance from the reference, over that of eager float32
    same_bits: bool = False  # as eager float32, in every parameter
    processes: list[TorchProcess] = []

    @property
    def step_us(self) -> float | None:
        """Microseconds per step: the median over processes; None without a time."""
        return median(process.step_us for process in self.processes) if self.is_timed else None

    @property
    def is_timed(self) -> bool:
        """Whether it has a time."""
        return self.status in RIGHT and bool(self.processes)


class ModelRecord(msgspec.Struct, frozen=True):
    """The user's file, and what was found out about it."""

    file: str
    sha256: str
    parameters: Count
    batch_size: Count
    rows: Count
    steps_per_epoch: Count
    optimizer: str  # its class
    moving: list[str]  # hyperparameters that the scheduler changes
    has_dropout: bool
    has_convolution: bool
    reference: str  # `float64`, or why repeated eager runs took its place
    data: str  # `tensors, 47 MB`
    schedule: str = ""  # the values of those hyperparameters in the training, `lr 0.001 -> 0 after 310 steps`
    beside: dict[str, str] = {}  # the SHA-256 of each module in the file's folder that it imports, by path
    is_repeatable: bool = True  # two eager runs from the same parameters agree to the bit
    waits: list[str] = []  # lines of the user's step that make the host wait, `my_model.py:41`
    notes: list[str] = []


class TorchSettings(msgspec.Struct, frozen=True):
    """How the rungs were measured."""

    epochs: Count  # of the training that the recipe is for
    rounds: int
    repeats: int
    stages: list[str]
    energy: bool = False
    is_check: bool = False  # judged alone, not timed


class RecipeChange(msgspec.Struct, frozen=True):
    """A change of the recipe, and what leaving it out costs."""

    rung: str  # that introduces it
    whole: str  # the recipe's rung, or the fastest one if only that was timed without the change
    without: str | None = None  # the row that leaves it out; None: not measured
    costs: float | None = None  # that row's time for the whole training as a multiple of the whole one's


class TorchRecipe(msgspec.Struct, frozen=True):
    """The shortest set of changes within 5 % of the fastest, for a training of `steps` steps."""

    epochs: Count
    steps: Count
    rung: str  # as exact as eager
    fastest: str  # as exact as eager
    fastest_of_any: str  # in any precision, or less exact
    changes: list[RecipeChange]


class TorchResults(msgspec.Struct, frozen=True):
    """One run of the ladder over a user's model."""

    created: str  # ISO 8601, UTC
    command: str
    environment: dict[str, Any]
    model: ModelRecord
    settings: TorchSettings
    rungs: list[TorchRung]  # in the ladder's order
    seconds: float = 0.0
    words: dict[str, str] = {}  # what each change of its rungs does, by name
    took_s: dict[str, float] = {}  # the parts of `seconds` by activity
    schema_version: int = SCHEMA_VERSION

    def rung(self, name: str) -> TorchRung | None:
        """The rung of this name; None if the run has none."""
        return next((rung for rung in self.rungs if rung.name == name), None)

    def first_step_s(self, rung: TorchRung) -> float:
        """Seconds until the first step had run: the slowest process's, whose caches were cold.

        A rung with a change left out runs after its whole, when caches are warm, so its whole's slowest counts as well.
        """
        whole = self.rung(rung.parent or "") if rung.group == "left out" else None
        processes = [*rung.processes, *(whole.processes if whole is not None else [])]
        return max((process.first_step_s for process in processes), default=0.0)

    def training_s(self, rung: TorchRung, steps: int) -> float:
        """Seconds for a whole training of `steps` steps, preparation included; the rung must be timed."""
        assert rung.step_us is not None
        return self.first_step_s(rung) + steps * rung.step_us * 1e-6

    def pays_after(self, rung: TorchRung, other: TorchRung) -> float | None:
        """Steps from which on a rung takes less time in all than the other one; None if it never does."""
        if rung.step_us is None or other.step_us is None:
            return None
        gain_s = (other.step_us - rung.step_us) * 1e-6
        return max(0.0, self.first_step_s(rung) - self.first_step_s(other)) / gain_s if gain_s > 0 else None

    def recipe(self, epochs: int | None = None) -> TorchRecipe | None:
        """The recipe for a training of `epochs` epochs, those of the settings by default; None without times."""
        epochs = epochs or self.settings.epochs
        steps = epochs * self.model.steps_per_epoch
        ours = [rung for rung in self.rungs if rung.is_timed and rung.group != "instead"]
        exact = [rung for rung in ours if rung.status == "passed" and rung.precision == "float32"]
        if not exact:
            return None
        whole = [rung for rung in exact if rung.group == "ladder"] or exact
        took_s = {rung.name: self.training_s(rung, steps) for rung in ours}
        fastest = min(whole, key=lambda rung: took_s[rung.name])
        within = [rung for rung in exact if took_s[rung.name] <= WITHIN * took_s[fastest.name]]
        chosen = min(within, key=lambda rung: (len(rung.changes), took_s[rung.name]))
        return TorchRecipe(
            epochs=epochs,
            steps=steps,
            rung=chosen.name,
            fastest=fastest.name,
            fastest_of_any=min(ours, key=lambda rung: took_s[rung.name]).name,
            changes=[_cost(change, (chosen, fastest), ours, took_s) for change in chosen.changes[1:]],
        )


def _cost(
    change: str, wholes: Sequence[TorchRung], timed: Sequence[TorchRung], took_s: Mapping[str, float]
) -> RecipeChange:
    """What it costs to leave one change out of the first of these rungs that was timed without it."""
    for whole in wholes:
        rest = {*whole.changes} - {change}
        without = next((rung for rung in timed if {*rung.changes} == rest), None)
        if without is not None:
            return RecipeChange(change, whole.name, without.name, took_s[without.name] / took_s[whole.name])
    return RecipeChange(change, wholes[0].name)


def save(results: TorchResults, folder: Path) -> None:
    """Replace the record in a run's folder atomically."""
    write_whole(results, folder / FILE)


def has_record(path: Path) -> bool:
    """Whether a path is such a record, or a folder with one."""
    return path.name == FILE or (path / FILE).exists()


def load(path: Path) -> TorchResults:
    """Read a record, or the one in a run's folder; raises ResultsError if it is unusable."""
    file = path / FILE if path.is_dir() else path
    results = decoded(file, TorchResults, f"a {FILE} of this program", "; name the folder of a run")
    if results.schema_version != SCHEMA_VERSION:
        raise ResultsError(f"{file}: schema version {results.schema_version}, this program reads {SCHEMA_VERSION}")
    return results
