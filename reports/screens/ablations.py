"""What the profiles of ablations counted: allocator calls, and copies to the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from ladder.records.profile import CopyUse
from ladder.records.run import Group, StageResult
from reports.facts import numbers
from reports.facts.ablations import hidden_share, host_us, overlap, uploads
from reports.facts.baselines import ratio
from reports.facts.profiles import calls_in_words
from reports.facts.run_table import SPEEDUP
from reports.facts.study_points import is_disturbed
from reports.facts.time_breakdown import Profiled
from reports.facts.times import step_us
from reports.screens.blocks import Block, ColumnOf, Sentences, number, table_of

HOW_TO_READ_MEMORY = (
    "The profiler counts allocator calls in three phases: preparation with one step, the first epoch, and a later "
    "epoch. Preparation and first epoch are of a second trainer of the same kind, the later epoch is of the timed one. "
    "Waits: calls in which the host waits for the GPU, without the one that ends the epoch; a free is a wait if work "
    "queued before it ended meanwhile. Host time in calls is measured under the tool, which lengthens each call. "
    "Memory: the most in use while the process ran."
)
HOW_TO_READ_DATA = (
    "Copies from the host to the GPU, by the profiler. GPU copies: how long the GPU copies a step. Beside kernels: the "
    "share of that time in which a kernel runs too. Host copies: the host's time in calls that start copies, under the "
    "tool, which lengthens each call. Memory is the GPU's."
)
DISTURBED = "Disturbed: other work or falling clocks disturbed every process of the time."
HOW_TO_READ: dict[Group, str] = {
    "memory": f"{SPEEDUP} {DISTURBED} {HOW_TO_READ_MEMORY}",
    "data": f"{SPEEDUP} {DISTURBED} {HOW_TO_READ_DATA}",
}
NO_COPY = CopyUse("host to device", 0.0, 0.0, 0.0)


def ablation_blocks(group: Group, rungs: Sequence[Profiled]) -> Iterator[Block]:
    """What the profiles of an ablation counted, a row for each rung, and whose copies overlap with kernels."""
    parents = {rung.stage.name: rung.stage for rung in rungs}
    yield table_of(rungs, [*_timed(parents), *COUNTED[group], number("Memory", _memory)])
    told = [(rung.stage, sentence) for rung in rungs if (sentence := overlap(rung))]
    sentences = [f"{sentence} {_effect(stage, parents.get(stage.below or ''))}".strip() for stage, sentence in told]
    if sentences:
        yield Sentences(sentences, is_list=True)


def _effect(stage: StageResult, parent: StageResult | None) -> str:
    """A sentence with a rung's speed beside its parent's; empty without a parent."""
    factor = ratio(parent, stage)
    return "" if factor is None else f"The whole step: {factor.saying(f' the speed of `{stage.below}`')}."


def _timed(parents: Mapping[str, StageResult]) -> Iterator[ColumnOf[Profiled]]:
    def versus_parent(rung: Profiled) -> str:
        factor = ratio(parents.get(rung.stage.below or ""), rung.stage)
        return factor.text if factor else numbers.MISSING

    yield ColumnOf("Stage", lambda rung: f"`{rung.stage.name}`")
    yield number("us/step (min-max)", _spread)
    yield number("Speedup over parent", versus_parent)


def _spread(rung: Profiled) -> str:
    return f"{numbers.spread_microseconds(step_us(rung.stage))}{', disturbed' * is_disturbed(rung.stage)}"


def _first_calls(rung: Profiled, phase: Literal["preparing", "first_epoch"]) -> str:
    first = rung.profile.first_calls
    return calls_in_words(getattr(first, phase)) if first else numbers.MISSING


def _copied(rung: Profiled) -> CopyUse:
    return uploads(rung.profile) or NO_COPY


def _copying_us(rung: Profiled) -> float:
    """The host's time in calls that start copies, a step."""
    return host_us(rung.profile, [call.name for call in rung.profile.calls if "Memcpy" in call.name])


def _memory(rung: Profiled) -> str:
    return numbers.memory(rung.stage.timing.gpu_memory_mib if rung.stage.timing else None)


# fmt: off
COUNTED: dict[Group, Sequence[ColumnOf[Profiled]]] = {
    "memory": (
        ColumnOf("Calls while preparing", lambda rung: _first_calls(rung, "preparing")),
        ColumnOf("In the first epoch", lambda rung: _first_calls(rung, "first_epoch")),
        ColumnOf("In a later epoch", lambda rung: calls_in_words(rung.profile.allocations_per_epoch)),
        number("Host in them, us/step",
               lambda rung: numbers.microseconds(host_us(rung.profile, rung.profile.allocations_per_epoch))),
        number("Waits/epoch", lambda rung: numbers.per_step(rung.profile.syncs_per_epoch)),
    ),
    "data": (
        number("Copies/epoch", lambda rung: numbers.per_step(_copied(rung).per_epoch)),
        number("Bytes/epoch", lambda rung: numbers.size(_copied(rung).bytes_per_epoch)),
        number("GPU copies, us/step", lambda rung: numbers.microseconds(_copied(rung).us_per_step)),
        number("Beside kernels", lambda rung: numbers.share(hidden_share(_copied(rung)))),
        number("Host copies, us/step", lambda rung: numbers.microseconds(_copying_us(rung))),
    ),
}
# fmt: on
