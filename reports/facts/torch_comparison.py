"""Whether a rung of a ladder over a user's model became faster or slower between two runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ladder.records.statistics import ratio_interval
from ladder.records.torch_run import RIGHT, TorchResults, TorchStatus
from reports.facts.torch_rows import assumed_spread, machine, part
from reports.facts.two_runs import (
    CANNOT_COMPARE,
    NO_REGRESSION,
    REGRESSION,
    THRESHOLD,
    CannotCompareError,
    Verdict,
    in_words,
    verdict_of,
)


@dataclass(frozen=True)
class TorchChange:
    """A rung in two runs; without times in both it has no verdict."""

    name: str
    base_status: TorchStatus | None  # None: that run has no such rung
    new_status: TorchStatus | None
    base_us: float | None
    new_us: float | None
    ratio: float | None = None  # new time by base time: above 1 is slower
    low: float | None = None  # ends of the ratio's interval over processes
    high: float | None = None
    verdict: Verdict | None = None
    is_regression: bool = False  # slower by more than the threshold, or no longer right

    @property
    def words(self) -> str:
        """The verdict, with the share within which a rung is the same; empty without one."""
        return in_words(self.verdict, self.low, self.high)


@dataclass(frozen=True)
class TorchComparison:
    """Two runs, rung by rung."""

    base: str  # as the user named them
    new: str
    threshold: float
    exit_code: int  # 0: no regression, 1: a regression, 2: undecided, if that was asked for
    differences: list[tuple[str, str, str]]  # a thing that is not the same, in the base and in the new run
    rungs: list[TorchChange]


def compare_torch_runs(
    base: TorchResults, new: TorchResults, names: tuple[str, str], threshold: float = THRESHOLD, *, strict: bool = False
) -> TorchComparison:
    """The verdicts on all rungs of both runs; raises CannotCompareError where the step is not the same work."""
    for what in ("parameters", "batch_size", "optimizer"):
        one, other = getattr(base.model, what), getattr(new.model, what)
        if one != other:
            raise CannotCompareError(
                f"{names[0]} and {names[1]}: {what.replace('_', ' ')} {one} and {other}; name runs of one training"
            )
    order = dict.fromkeys(rung.name for run in (base, new) for rung in run.rungs if rung.group != "left out")
    changes = [_change(name, base, new, threshold) for name in order]
    if not any(change.verdict or change.is_regression for change in changes):
        raise CannotCompareError(f"{names[0]} and {names[1]}: no rung was timed in both; name runs that share one")
    code = NO_REGRESSION
    if any(change.is_regression for change in changes):
        code = REGRESSION
    elif strict and any(_is_open(change, threshold) for change in changes):
        code = CANNOT_COMPARE
    return TorchComparison(*names, threshold, code, list(_differences(base, new)), changes)


def _change(name: str, base_run: TorchResults, new_run: TorchResults, threshold: float) -> TorchChange:
    base, new = base_run.rung(name), new_run.rung(name)
    known = TorchChange(
        name,
        base.status if base is not None else None,
        new.status if new is not None else None,
        base.step_us if base is not None else None,
        new.step_us if new is not None else None,
        is_regression=base is not None and base.is_timed and new is not None and new.status not in RIGHT,
    )
    if base is None or new is None or not base.is_timed or not new.is_timed:
        return known
    times, new_times = ([process.step_us for process in rung.processes] for rung in (base, new))
    spread = max(assumed_spread(base, base_run), assumed_spread(new, new_run))
    interval = ratio_interval(times, new_times, spread=spread)
    verdict = verdict_of(interval, threshold)
    return TorchChange(
        name, known.base_status, known.new_status, known.base_us, known.new_us, *interval, verdict,
        is_regression=verdict == "SLOWER" and interval.value > 1 + threshold,
    )  # fmt: skip


def _is_open(change: TorchChange, threshold: float) -> bool:
    """Whether a regression cannot be ruled out, or the new run has no such rung."""
    is_open = change.verdict in ("SAME", "AMBIGUOUS") and (change.high or 0.0) > 1 + threshold
    return is_open or (change.base_us is not None and change.new_us is None)


def _differences(base: TorchResults, new: TorchResults) -> Iterator[tuple[str, str, str]]:
    version, new_version = (str(part(run, "libraries").get("torch") or "unknown") for run in (base, new))
    things = (
        ("machine", machine(base), machine(new)),
        ("PyTorch", version, new_version),
        ("model file", base.model.sha256[:10], new.model.sha256[:10]),
        ("data", base.model.data, new.model.data),
    )
    yield from (thing for thing in things if thing[1] != thing[2])
