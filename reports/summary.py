"""What every rendering shows of a run: its rows, what they are compared with, and what must be said about them.

Numbers stay numbers here (seconds, shares, ratios); `format` turns them into words.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ladder.results import Results, Spread, StageResult, Status
from reports import format


@dataclass(frozen=True)
class Row:
    """One stage as a table shows it; the times and ratios of a stage that is not `passed` are None."""

    name: str
    label: str  # the title, and where it ran
    changed: str  # the one choice that differs from the rung below; empty for the first rung and the references
    is_reference: bool
    status: Status
    verdict: str  # `passed`, or `failed: ` and the reason
    epoch_s: Spread | None
    step_us: float | None
    versus_below: float | None  # above 1: faster than the rung below
    versus_naive: float | None
    versus_torch: float | None
    prepare_s: float | None
    test_accuracy: float | None  # share of 0 to 1
    shortened: str  # `2 runs of 3 epochs` where the budget was short, otherwise empty
    throttled: bool

    @property
    def times(self) -> str:
        """Milliseconds an epoch with what a reader must know about them: `17.2 (17.1-17.9), throttled`."""
        remarks = [self.shortened] if self.shortened else []
        if self.throttled:
            remarks.append("throttled")
        return ", ".join([format.spread_milliseconds(self.epoch_s), *remarks])


@dataclass(frozen=True)
class Notice:
    """Something a reader must not miss; a loud one comes before everything else."""

    text: str
    loud: bool = False


def rows(results: Results) -> list[Row]:
    """The rungs in ladder order, then the references; never in the order of their speed."""
    passed = {stage.name: stage for stage in results.stages if stage.status == "passed"}
    naive = passed.get("naive")
    torch = fastest_torch(results)
    ladder_first = sorted(results.stages, key=lambda stage: stage.group == "reference")
    return [_row(stage, passed.get(stage.below or ""), naive, torch) for stage in ladder_first]


def fastest_torch(results: Results) -> StageResult | None:
    """The fastest PyTorch of this run that passed: what somebody without a ladder would have used."""
    timed = [
        (stage.timing.epoch_s.median, stage)
        for stage in results.stages
        if stage.name.startswith("torch-") and stage.status == "passed" and stage.timing is not None
    ]
    return min(timed, key=lambda pair: pair[0])[1] if timed else None


def label(stage: StageResult) -> str:
    """A stage's title, and in brackets where it ran: a reference may run on either, a rung tells only a CPU."""
    where = [stage.detail] if stage.detail else []
    if stage.device is not None and (stage.device == "cpu" or stage.group == "reference"):
        device = stage.device.upper()
        if device not in f"{stage.title} {stage.detail}":
            where.insert(0, device)
    return f"{stage.title} ({', '.join(where)})" if where else stage.title


def ratio(base_s: float | None, own_s: float | None) -> float | None:
    """How many times faster than the base, both in seconds; None where one of them cannot be compared."""
    if base_s is None or own_s is None or not base_s > 0 or not own_s > 0 or math.isinf(base_s) or math.isinf(own_s):
        return None
    return base_s / own_s


def heading(results: Results) -> str:
    """The problem in a line: `784-256-10 on MNIST, batch 128, learning rate 0.1, 20 epochs, seed 0`."""
    problem = results.problem
    return (
        f"{problem.network} on {dataset_name(results)}, batch {problem.batch_size}, "
        f"learning rate {problem.learning_rate:g}, {format.count(problem.epochs, 'epoch')}, seed {problem.seed}"
    )


def dataset_name(results: Results) -> str:
    """The data's name, which never lets anything else pass for MNIST."""
    problem = results.problem
    return problem.dataset if problem.is_mnist else f"{problem.dataset} (not MNIST)"


def caption(results: Results) -> str:
    """How to read the table."""
    torch = fastest_torch(results)
    chosen = "no PyTorch passed in this run" if torch is None else f"PyTorch is {torch.name}, the fastest that passed"
    return (
        "ms/epoch is the median of all runs, with the fastest and the slowest; prepare comes before and is not in it. "
        f"vs: how many times faster than that row (above 1x is faster, below 1x slower); {chosen}."
    )


def notices(results: Results) -> list[Notice]:
    """What must be said about a run, the loud ones first."""
    return [*_data_notices(results), *_gpu_notices(results), *_row_notices(results), *_timing_notices(results)]


def _row(stage: StageResult, below: StageResult | None, naive: StageResult | None, torch: StageResult | None) -> Row:
    timing = stage.timing if stage.status == "passed" else None
    own_s = _epoch_s(stage)
    return Row(
        name=stage.name,
        label=label(stage),
        changed=stage.changed or "",
        is_reference=stage.group == "reference",
        status=stage.status,
        verdict=stage.status if stage.status == "passed" else f"{stage.status}: {reason(stage)}",
        epoch_s=timing.epoch_s if timing else None,
        step_us=timing.step_us if timing else None,
        versus_below=ratio(_epoch_s(below), own_s),
        versus_naive=ratio(_epoch_s(naive), own_s),
        versus_torch=ratio(_epoch_s(torch), own_s),
        prepare_s=timing.prepare_s if timing else None,
        test_accuracy=stage.metrics.test_accuracy if stage.metrics else None,
        shortened=_runs(timing.epochs, timing.runs_s) if timing and timing.shortened else "",
        throttled=timing is not None and timing.throttled,
    )


def _epoch_s(stage: StageResult | None) -> float | None:
    if stage is None or stage.status != "passed" or stage.timing is None:
        return None
    return stage.timing.epoch_s.median


def reason(stage: StageResult) -> str:
    """Why a stage did not pass, in one line."""
    return " ".join((stage.reason or "no reason was recorded").split())


def _runs(epochs: int, runs_s: list[float]) -> str:
    return f"{format.count(len(runs_s), 'run')} of {format.count(epochs, 'epoch')}"


def _data_notices(results: Results) -> Iterable[Notice]:
    problem = results.problem
    if not problem.is_mnist:
        yield Notice(
            f"The data is {problem.dataset}: this is NOT MNIST; accuracies say nothing about it.",
            loud=True,
        )


def _gpu_notices(results: Results) -> Iterable[Notice]:
    if not any(stage.device == "gpu" for stage in results.stages):
        yield Notice("No stage of this run was measured on a GPU.")


def _row_notices(results: Results) -> Iterable[Notice]:
    """One notice a reason, since on a machine without a GPU most rows share theirs."""
    for status in ("failed", "crashed", "skipped"):
        names_of: dict[str, list[str]] = {}
        for stage in results.stages:
            if stage.status == status:
                names_of.setdefault(reason(stage), []).append(stage.name)
        for why, names in names_of.items():
            yield Notice(f"{format.listing(names)} {status}: {why}")


def _timing_notices(results: Results) -> Iterable[Notice]:
    settings = results.settings
    asked = format.count(settings.rounds * settings.repeats, "run")
    for stage in results.stages:
        if stage.status != "passed" or stage.timing is None:
            continue
        if stage.timing.shortened:
            yield Notice(
                f"{stage.name} was measured over {_runs(stage.timing.epochs, stage.timing.runs_s)} instead of {asked} "
                f"of {format.count(results.problem.epochs, 'epoch')}, to keep to {format.duration(settings.budget_s)} "
                "a stage (--budget)."
            )
        if stage.timing.throttled:
            states = [state for process in stage.processes for state in process.gpu_states]
            reasons = sorted({why for state in states for why in state.throttle_reasons})
            because = f" ({', '.join(reasons)})" if reasons else ""
            yield Notice(f"{stage.name}: the GPU slowed itself down{because} while it was measured.")
