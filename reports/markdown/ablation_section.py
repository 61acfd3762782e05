"""The report's sections on ablations: allocator calls, and copies to the GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ladder.records.run import Group, Results
from reports.facts import numbers
from reports.facts.ablations import FIGURES, ablation, calls_in_words, hidden_share, host_us, overlap, uploads
from reports.facts.summary import BLOCKS
from reports.facts.time_breakdown import Profiled
from reports.markdown.tables import bullets, code, figure_links, table

HOW_TO_READ_MEMORY = (
    "The profiler counts allocator calls in three phases: preparation with one step, the first epoch, and a later "
    "epoch. Preparation and first epoch are of a second trainer of the same kind, the later epoch is of the timed one. "
    "Waits: calls in which the host waits for the GPU, without the one that ends the epoch; a free is a wait if work "
    "queued before it ended meanwhile. Host time in calls is measured under the tool, which lengthens each call. "
    "Memory: the most in use while the process ran."
)
MEMORY_COLUMNS = (
    "Stage", "us/step", "Calls while preparing", "In the first epoch", "In a later epoch", "Host in them, us/step",
    "Waits/epoch", "Memory",
)  # fmt: skip
HOW_TO_READ_DATA = (
    "Copies from the host to the GPU, by the profiler. GPU copies: how long the GPU copies a step. Beside kernels: the "
    "share of that time in which a kernel runs too. Host copies: the host's time in calls that start copies, under the "
    "tool, which lengthens each call. Memory is the GPU's."
)
HOW_TO_READ: dict[Group, str] = {"memory": HOW_TO_READ_MEMORY, "data": HOW_TO_READ_DATA}
DATA_COLUMNS = (
    "Stage", "us/step", "Copies/epoch", "Bytes/epoch", "GPU copies, us/step", "Beside kernels", "Host copies, us/step",
    "Memory",
)  # fmt: skip


def ablation_blocks(results: Results, figures: Collection[str]) -> Iterator[str]:
    """A section for each ablation with a profile."""
    for group, figure in FIGURES.items():
        if found := ablation(results, group):
            yield f"## {BLOCKS[group]}"
            yield ablation_table(group, found)
            yield HOW_TO_READ[group]
            yield from overlaps(found)
            yield from figure_links({figure} & set(figures), "figures")


def ablation_table(group: Group, found: Iterable[Profiled]) -> str:
    """What the profiles of an ablation counted, a row for each rung."""
    if group == "memory":
        return table(
            MEMORY_COLUMNS, map(_memory_row, found), right=[False, True, False, False, False, True, True, True]
        )
    return table(DATA_COLUMNS, map(_data_row, found), right=[False] + [True] * 7)


def overlaps(found: Iterable[Profiled]) -> Iterator[str]:
    """A list of the rungs whose copies overlap with kernels; nothing without any."""
    if sentences := [sentence for one in found if (sentence := overlap(one))]:
        yield bullets(sentences)


def _memory_row(one: Profiled) -> list[str]:
    profile, first = one.profile, one.profile.first_calls
    return [
        code(one.stage.name),
        numbers.microseconds(one.step_us),
        calls_in_words(first.preparing) if first else numbers.MISSING,
        calls_in_words(first.first_epoch) if first else numbers.MISSING,
        calls_in_words(profile.allocations_per_epoch),
        numbers.microseconds(host_us(profile, profile.allocations_per_epoch)),
        numbers.per_step(profile.syncs_per_epoch),
        _memory(one),
    ]


def _data_row(one: Profiled) -> list[str]:
    copied = uploads(one.profile)
    names = [call.name for call in one.profile.calls if "Memcpy" in call.name]
    return [
        code(one.stage.name),
        numbers.microseconds(one.step_us),
        numbers.per_step(copied.per_epoch) if copied else "0",
        numbers.size(copied.bytes_per_epoch) if copied else "0",
        numbers.microseconds(copied.us_per_step if copied else 0.0),
        numbers.share(hidden_share(copied) if copied else None),
        numbers.microseconds(host_us(one.profile, names)),
        _memory(one),
    ]


def _memory(one: Profiled) -> str:
    return numbers.memory(one.stage.timing.gpu_memory_mib if one.stage.timing else None)
