"""What must be said about a run beside its table: other data, missing rows, short or throttled measurements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ladder.results import Results
from reports import format
from reports.summary import measured_runs, reason


@dataclass(frozen=True)
class Notice:
    """Something a reader must not miss; a loud one comes before everything else."""

    text: str
    loud: bool = False


def notices(results: Results) -> list[Notice]:
    """What must be said about a run, the loud ones first."""
    return [*_data_notices(results), *_gpu_notices(results), *_row_notices(results), *_timing_notices(results)]


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
        named = ((reason(stage), stage.name) for stage in results.stages if stage.status == status)
        for why, names in _grouped(named):
            yield Notice(f"{format.listing(names)} {status}: {why}")


def _timing_notices(results: Results) -> Iterable[Notice]:
    settings = results.settings
    timed = [(stage, stage.timing) for stage in results.stages if stage.status == "passed" and stage.timing]
    asked = format.count(settings.rounds * settings.repeats, "run")
    for runs, names in _grouped((measured_runs(timing), stage.name) for stage, timing in timed if timing.shortened):
        yield Notice(
            f"{format.listing(names)} {'was' if len(names) == 1 else 'were'} measured over {runs} instead of {asked} "
            f"of {format.count(results.problem.epochs, 'epoch')}, to keep to {format.duration(settings.budget_s)} "
            "a stage (--budget)."
        )
    for stage, timing in timed:
        if timing.throttled:
            states = [state for process in stage.processes for state in process.gpu_states]
            reasons = sorted({why for state in states for why in state.throttle_reasons})
            because = f" ({', '.join(reasons)})" if reasons else ""
            yield Notice(f"{stage.name}: the GPU slowed itself down{because} while it was measured.")


def _grouped(named: Iterable[tuple[str, str]]) -> Iterable[tuple[str, list[str]]]:
    """The names behind each text, of (text, name) pairs, both in the order of their first appearance."""
    names_of: dict[str, list[str]] = {}
    for text, name in named:
        names_of.setdefault(text, []).append(name)
    return names_of.items()
