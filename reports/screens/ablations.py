"""What the profiles of ablations counted: allocator calls, and copies to the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ladder.records.run import Group, StageResult
from reports.facts import numbers
from reports.facts.ablations import hidden_share, host_us, overlap, uploads
from reports.facts.baselines import ratio
from reports.facts.profiles import calls_in_words
from reports.facts.run_table import X_OF_FROM
from reports.facts.study_points import is_disturbed, spread_text
from reports.facts.time_breakdown import Profiled
from reports.facts.times import step_us
from reports.screens.blocks import Block, Sentences, by_row

HOW_TO_READ_MEMORY = (
    "The profiler counts allocator calls in three phases: preparation with one step, the first epoch, and a later "
    "epoch. Preparation and first epoch are of a second trainer of the same kind, the later epoch is of the timed one. "
    "Waits: calls in which the host waits for the GPU, without the one that ends the epoch; a free is a wait if work "
    "queued before it ended meanwhile. Host time in calls is measured under the tool, which lengthens each call. "
    "Memory: the most in use while the process ran."
)
MEMORY_COLUMNS = (
    "Stage", "us/step (min-max)", "x of from", "Calls while preparing", "In the first epoch", "In a later epoch",
    "Host in them, us/step", "Waits/epoch", "Memory",
)  # fmt: skip
IN_WORDS = {"Stage", "Calls while preparing", "In the first epoch", "In a later epoch"}  # columns
HOW_TO_READ_DATA = (
    "Copies from the host to the GPU, by the profiler. GPU copies: how long the GPU copies a step. Beside kernels: the "
    "share of that time in which a kernel runs too. Host copies: the host's time in calls that start copies, under the "
    "tool, which lengthens each call. Memory is the GPU's."
)
DISTURBED = "Disturbed: other work or falling clocks disturbed every process of the time."
HOW_TO_READ: dict[Group, str] = {
    "memory": f"{X_OF_FROM} {DISTURBED} {HOW_TO_READ_MEMORY}",
    "data": f"{X_OF_FROM} {DISTURBED} {HOW_TO_READ_DATA}",
}
DATA_COLUMNS = (
    "Stage", "us/step (min-max)", "x of from", "Copies/epoch", "Bytes/epoch", "GPU copies, us/step", "Beside kernels",
    "Host copies, us/step", "Memory",
)  # fmt: skip


def ablation_blocks(group: Group, rungs: Sequence[Profiled]) -> Iterator[Block]:
    """What the profiles of an ablation counted, a row for each rung, and whose copies overlap with kernels."""
    parents = {rung.stage.name: rung.stage for rung in rungs}
    header, cells_of = (MEMORY_COLUMNS, _memory_cells) if group == "memory" else (DATA_COLUMNS, _data_cells)
    lines = [[*_times(rung.stage, parents.get(rung.stage.below or "")), *cells_of(rung)] for rung in rungs]
    yield by_row(header, lines, IN_WORDS)
    told = [(rung.stage, sentence) for rung in rungs if (sentence := overlap(rung))]
    sentences = [f"{sentence} {_effect(stage, parents.get(stage.below or ''))}".strip() for stage, sentence in told]
    if sentences:
        yield Sentences(sentences, is_list=True)


def _effect(stage: StageResult, parent: StageResult | None) -> str:
    """A sentence with a rung's speed beside its parent's; empty without a parent."""
    factor = ratio(parent, stage)
    return "" if factor is None else f"The whole step: {factor.saying(f' the speed of `{stage.below}`')}."


def _times(stage: StageResult, parent: StageResult | None) -> list[str]:
    """The first cells of a row: the stage, its time with its spread, and its speed beside its parent's."""
    factor = ratio(parent, stage)
    remark = ", disturbed" if is_disturbed(stage) else ""
    return [f"`{stage.name}`", spread_text(step_us(stage)) + remark, factor.text if factor else numbers.MISSING]


def _memory_cells(rung: Profiled) -> list[str]:
    profile, first = rung.profile, rung.profile.first_calls
    return [
        calls_in_words(first.preparing) if first else numbers.MISSING,
        calls_in_words(first.first_epoch) if first else numbers.MISSING,
        calls_in_words(profile.allocations_per_epoch),
        numbers.microseconds(host_us(profile, profile.allocations_per_epoch)),
        numbers.per_step(profile.syncs_per_epoch),
        _memory(rung),
    ]


def _data_cells(rung: Profiled) -> list[str]:
    copied = uploads(rung.profile)
    names = [call.name for call in rung.profile.calls if "Memcpy" in call.name]
    return [
        numbers.per_step(copied.per_epoch) if copied else "0",
        numbers.size(copied.bytes_per_epoch) if copied else "0",
        numbers.microseconds(copied.us_per_step if copied else 0.0),
        numbers.share(hidden_share(copied) if copied else None),
        numbers.microseconds(host_us(rung.profile, names)),
        _memory(rung),
    ]


def _memory(rung: Profiled) -> str:
    return numbers.memory(rung.stage.timing.gpu_memory_mib if rung.stage.timing else None)
