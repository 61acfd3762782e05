"""A ladder over a user's PyTorch model, computed once from its record: a row for each rung, and what to write.

Every screen, figure and table of such a run shows these facts, so that none of them computes its own.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import log, pi, sqrt
from statistics import fmean, median, variance
from typing import Literal

from ladder.records.run import Spread
from ladder.records.statistics import CPU_SPREAD, GPU_SPREAD, HOST_SPREAD
from ladder.records.torch_run import (
    RIGHT,
    RecipeChange,
    TorchCheck,
    TorchPrecision,
    TorchRecipe,
    TorchResults,
    TorchRung,
    TorchStatus,
    worst_of,
)
from reports.facts import numbers
from reports.facts.provenance import gpu_name, part, when
from reports.facts.ratios import NOISE, Ratio, Times, ratio_of

EAGER, FUSED = "eager", "fused-optimizer"
"""What readers write today, and the best of what needs no CUDA graph: a gain over the first alone flatters."""
GRAPHED = {
    "step-graph", "steps-graph", "reduce-overhead", "max-autotune", "compile-optimizer", "graphed-callables"
}  # fmt: skip
"""The changes after which CUDA graphs launch kernels."""
CROWDED_SPREAD = 0.61  # of the logarithm: threads wait for one without a core, and a step took 27 times as long
TorchRegime = Literal["host", "graph", "CPU"]
STATUS: dict[TorchStatus, str] = {
    "passed": "as exact", "less exact": "less exact", "wrong": "wrong", "refused": "refused", "crashed": "crashed",
    "stopped": "stopped",
}  # fmt: skip
IN: dict[TorchPrecision, str] = {"float32": "", "tf32": ", in tf32", "bfloat16": ", in bf16"}
"""What a grade says of the precision, in which eager mode was trained for the comparison."""


@dataclass(frozen=True)
class TorchRow:
    """A rung with all that is ever shown of it."""

    rung: TorchRung
    regime: TorchRegime
    step_us: Spread | None  # the median over processes, the fastest and the slowest run; None without a time
    parent_us: Spread | None
    versus_parent: Ratio | None  # how many times as fast as its parent a step is
    versus_eager: Ratio | None
    pays_after: float | None  # steps from which on it takes less time than eager mode; None: never, or within noise
    pays_after_epochs: float | None
    first_step_s: float | None
    peak_mib: float | None
    step_joules: float | None

    @property
    def name(self) -> str:
        """Its name."""
        return self.rung.name

    @property
    def label(self) -> str:
        """Its name in a table."""
        return label(self.rung)

    @property
    def is_exact(self) -> bool:
        """Whether it is as exact as eager mode, in float32."""
        return self.rung.status == "passed" and self.rung.precision == "float32"

    @property
    def worst(self) -> TorchCheck | None:
        """The check that decides its grade."""
        return worst_of(self.rung.checks)


@dataclass(frozen=True)
class Change:
    """A change of the recipe; `costs` is the training's time without it as a multiple of the time with it."""

    name: str
    words: str
    costs: float | None  # None: not measured
    is_noise: bool
    whole: str  # the rung that it is left out of


@dataclass(frozen=True)
class TorchVerdict:
    """What to write for a training of so many epochs."""

    epochs: int
    steps: int
    chosen: TorchRow
    eager: TorchRow | None  # None if it has no time
    fused: TorchRow | None
    versus_eager: Ratio | None  # of whole trainings, preparation included
    versus_fused: Ratio | None
    changes: list[Change]
    in_any_precision: TorchRow | None  # a rung that is less exact, and faster beyond the noise
    versus_chosen: Ratio | None  # that rung's speedup
    later: TorchRow | None  # the rung that pays off first, if none pays off within these epochs
    overtaken: tuple[float, TorchRow] | None  # after so many epochs, a rung with faster steps trains faster

    @property
    def stays_eager(self) -> bool:
        """Whether no rung is worth writing for these epochs."""
        gain = self.versus_eager
        return self.chosen.name == EAGER or (gain is not None and (gain.is_noise or gain.times <= 1))


def label(rung: TorchRung) -> str:
    """A rung's name in a table, where one with a change left out stands below the whole recipe."""
    return f"without {rung.name.rpartition('-without-')[2]}" if rung.group == "left out" else rung.name


def grade(rung: TorchRung) -> str:
    """How exact a rung is: `as exact, in bf16`."""
    return f"{STATUS[rung.status]}{IN[rung.precision] if rung.status in RIGHT else ''}"


def torch_rows(results: TorchResults) -> list[TorchRow]:
    """A row for each rung, in the ladder's order; then those with a change left out, and what some take instead."""
    order = ("ladder", "left out", "instead")
    return [_row(rung, results) for rung in sorted(results.rungs, key=lambda rung: order.index(rung.group))]


def regime(rung: TorchRung, results: TorchResults) -> TorchRegime:
    """What launches a rung's kernels."""
    if not gpu_name(results):
        return "CPU"
    return "graph" if GRAPHED & {*rung.changes, rung.name} else "host"


def assumed_spread(rung: TorchRung, results: TorchResults) -> float:
    """How far a rung's processes scatter if they are too few to tell."""
    return _crowded(rung) or {"graph": GPU_SPREAD, "host": HOST_SPREAD, "CPU": CPU_SPREAD}[regime(rung, results)]


def _crowded(rung: TorchRung) -> float:
    """How far they scatter on a CPU if other work disturbed them all; else 0."""
    is_alone = any(process.measured.gpu_states or not process.measured.disturbed for process in rung.processes)
    return 0.0 if is_alone else CROWDED_SPREAD


def _row(rung: TorchRung, results: TorchResults) -> TorchRow:
    parent, eager = results.rung(rung.parent or ""), results.rung(EAGER)
    versus_eager = None if rung.name == EAGER else ratio(eager, rung, results)
    pays_after = None
    if eager is not None and versus_eager is not None and not versus_eager.is_noise:
        pays_after = results.pays_after(rung, eager)
    return TorchRow(
        rung,
        regime(rung, results),
        spread_us(rung),
        spread_us(parent),
        ratio(parent, rung, results),
        versus_eager,
        pays_after,
        pays_after / results.model.steps_per_epoch if pays_after is not None else None,
        results.first_step_s(rung) if rung.is_timed else None,
        max((process.peak_mib for process in rung.processes if process.peak_mib is not None), default=None),
        _median(process.step_joules for process in rung.processes),
    )


def spread_us(rung: TorchRung | None) -> Spread | None:
    """Microseconds per step: the median over processes, the fastest and the slowest run; None without a time."""
    if rung is None or rung.step_us is None:
        return None
    runs = [run / process.steps * 1e6 for process in rung.processes for run in process.measured.runs_s]
    return Spread(rung.step_us, min(runs), max(runs))


def ratio(base: TorchRung | None, own: TorchRung, results: TorchResults, steps: int | None = None) -> Ratio | None:
    """How many times as fast as another rung one is: a step, or a whole training of so many steps with preparation.

    None where either has no time.
    """
    if base is None or not base.is_timed or not own.is_timed:
        return None
    both = ((rung, assumed_spread(rung, results), results.first_step_s(rung)) for rung in (base, own))
    return ratio_of(*(_times(rung, spread, first_step_s, steps) for rung, spread, first_step_s in both))


def live_ratio(base: TorchRung, own: TorchRung) -> Ratio:
    """The same of two timed rungs' steps before there is a record, with the noise of a host that launches kernels."""
    return ratio_of(*(_times(rung, _crowded(rung) or HOST_SPREAD) for rung in (base, own)))


def _times(rung: TorchRung, spread: float, first_step_s: float = 0.0, steps: int | None = None) -> Times:
    """A rung's microseconds per step, its share of the preparation included if the number of steps is given."""
    prepare_us = first_step_s / steps * 1e6 if steps else 0.0
    assert rung.step_us is not None
    return Times(
        rung.step_us + prepare_us,
        [process.step_us + prepare_us for process in rung.processes],
        spread=max(spread, _scatter_of_runs(rung)),
    )


def _scatter_of_runs(rung: TorchRung) -> float:
    """How far a process's median may be off, by the scatter of its own runs: a busy machine shows in them alone."""
    runs = [process.measured.runs_s for process in rung.processes if len(process.measured.runs_s) > 1]
    of_medians = [pi / 2 * variance(map(log, few)) / len(few) for few in runs]  # for normal logarithms
    return sqrt(fmean(of_medians)) if of_medians else 0.0


def torch_verdict(results: TorchResults) -> TorchVerdict | None:
    """What the record recommends; None if no rung as exact as eager has a time."""
    recipe = results.recipe()
    if recipe is None:
        return None
    rows = {row.name: row for row in torch_rows(results)}
    chosen, fastest = rows[recipe.rung], rows[recipe.fastest_of_any]
    eager, fused = (rows.get(name) if name in rows and rows[name].step_us else None for name in (EAGER, FUSED))

    def training(base: TorchRow | None, own: TorchRow) -> Ratio | None:
        return ratio(base.rung, own.rung, results, recipe.steps) if base is not None and base is not own else None

    quicker = training(chosen, fastest)
    is_quicker = quicker is not None and quicker.times > 1 and not quicker.is_noise
    is_other = is_quicker and not fastest.is_exact
    return TorchVerdict(
        recipe.epochs,
        recipe.steps,
        chosen,
        eager,
        fused,
        training(eager, chosen),
        training(fused, chosen),
        [_change(change, recipe, results) for change in recipe.changes],
        fastest if is_other else None,
        quicker if is_other else None,
        _later(rows.values(), recipe.epochs),
        _overtaken(chosen, rows.values(), results),
    )


def _change(change: RecipeChange, recipe: TorchRecipe, results: TorchResults) -> Change:
    """A change with its cost, which is noise if the trainings with and without it may be as fast."""
    rung, whole, without = (results.rung(name or "") for name in (change.rung, change.whole, change.without))
    known = ratio(without, whole, results, recipe.steps) if whole is not None else None
    is_noise = known is not None and (known.is_noise or abs((change.costs or 1.0) - 1) < NOISE)
    words = results.words.get(change.rung, rung.words if rung is not None else "")
    return Change(change.rung, words, change.costs, is_noise, change.whole)


def _later(rows: Iterable[TorchRow], epochs: int) -> TorchRow | None:
    """The exact rung that pays off first, after more than these epochs."""
    ladder = (row for row in rows if row.is_exact and row.rung.group == "ladder")
    paying = [row for row in ladder if row.pays_after_epochs is not None]
    first = min(paying, key=lambda row: row.pays_after_epochs or 0.0, default=None)
    return first if first is not None and (first.pays_after_epochs or 0.0) > epochs else None


def _overtaken(chosen: TorchRow, rows: Iterable[TorchRow], results: TorchResults) -> tuple[float, TorchRow] | None:
    """The exact rung whose faster steps make up for its preparation first, and after how many epochs."""
    found = []
    for row in rows:
        gain = ratio(chosen.rung, row.rung, results) if row.is_exact and row.rung.group == "ladder" else None
        steps = results.pays_after(row.rung, chosen.rung) if gain is not None and not gain.is_noise else None
        if steps:
            found.append((steps / results.model.steps_per_epoch, row))
    return min(found, key=lambda pair: pair[0], default=None)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


@dataclass(frozen=True)
class Programs:
    """The programs that a run's folder holds: the user's training as it is, and with the recipe."""

    plain: str
    fast: str

    @property
    def diff(self) -> list[str]:
        """The unified difference, a line each."""
        plain, fast = self.plain.splitlines(), self.fast.splitlines()
        return list(difflib.unified_diff(plain, fast, "train_plain.py", "train_fast.py", lineterm=""))

    @property
    def added(self) -> int:
        """The lines to write."""
        return sum(line.startswith("+") for line in self.diff[2:])


def origin(results: TorchResults) -> str:
    """The run's machine, date, commit and PyTorch: `NVIDIA H200; recorded 2026-11-20; PyTorch 2.11.0`."""
    version = part(results.environment, "libraries").get("torch")
    return numbers.line("; ".join([machine(results), when(results), *([f"PyTorch {version}"] if version else [])]))


def machine(results: TorchResults) -> str:
    """The GPU with its driver, else the CPU."""
    gpu, cpu = part(results.environment, "gpu"), part(results.environment, "cpu")
    driver = f", driver {gpu['driver']}" if gpu.get("driver") else ""
    return f"{gpu['name']}{driver}" if gpu.get("name") else f"{cpu.get('model') or 'a CPU'}, no GPU"


def device(results: TorchResults) -> str:
    """The device in a sentence: `an NVIDIA H200`, `a CPU`."""
    name = gpu_name(results)
    return f"{'an' if name[:1] in 'AEIN' else 'a'} {name}" if name else "a CPU"


def broken(rows: Iterable[TorchRow]) -> Iterator[TorchRow]:
    """The rows without a time, whose reasons a reader needs."""
    return (row for row in rows if row.rung.status not in RIGHT)
