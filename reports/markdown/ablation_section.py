"""What the side rungs show that a row of the table does not: calls to allocators, and copies to the GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ladder.records.run import Group, Results
from reports.facts import numbers
from reports.facts.ablations import FIGURES, calls_in_words, hidden_share, host_us, overlap, side, uploads
from reports.facts.summary import BLOCKS, label
from reports.facts.time_breakdown import Profiled
from reports.markdown.tables import bullets, cell, figure_links, table

HOW_TO_READ_MEMORY = (
    "Calls to allocators, counted by the profiler: while another trainer of the same kind was prepared, which ends "
    "with a step of its own; in that one's first epoch; and in a later epoch of the one that was timed. Waits are "
    "calls in which the host waited for the GPU, but for the one that ends the epoch: a free is one when work that had "
    "been handed over before it ended meanwhile. The host's time in calls is that under the tool, which makes each of "
    "them longer. Memory is the most that was seen in use while the process ran."
)
MEMORY_COLUMNS = (
    "Stage", "us/step", "Calls while preparing", "In the first epoch", "In a later epoch", "Host in them, us/step",
    "Waits/epoch", "Memory",
)  # fmt: skip
HOW_TO_READ_DATA = (
    "Copies from the host to the GPU, by the profiler: how long the GPU copies for a step, and the share of that in "
    "which it ran a kernel as well; the host's time in the calls that ask for copies, under the "
    "tool, which makes each of them longer. Memory is that of the GPU."
)
HOW_TO_READ: dict[Group, str] = {"memory": HOW_TO_READ_MEMORY, "data": HOW_TO_READ_DATA}
DATA_COLUMNS = (
    "Stage", "us/step", "Copies/epoch", "Bytes/epoch", "GPU copies, us/step", "Beside kernels", "Host copies, us/step",
    "Memory",
)  # fmt: skip


def side_blocks(results: Results, figures: Collection[str]) -> Iterator[str]:
    """The sections on the side rungs of a run that has any with a profile."""
    for group, figure in FIGURES.items():
        if found := side(results, group):
            yield f"## {BLOCKS[group]}"
            yield side_table(group, found)
            yield HOW_TO_READ[group]
            yield from overlaps(found)
            yield from figure_links({figure} & set(figures), "figures")


def side_table(group: Group, found: Iterable[Profiled]) -> str:
    """What the profiles of a group's rungs counted, a line each."""
    if group == "memory":
        return table(
            MEMORY_COLUMNS, map(_memory_row, found), right=[False, True, False, False, False, True, True, True]
        )
    return table(DATA_COLUMNS, map(_data_row, found), right=[False] + [True] * 7)


def overlaps(found: Iterable[Profiled]) -> Iterator[str]:
    """What there is to say of copies beside kernels; nothing where no rung has any."""
    if told := [said for one in found if (said := overlap(one))]:
        yield bullets(told)


def _memory_row(one: Profiled) -> list[str]:
    profile, first = one.profile, one.profile.first_calls
    return [
        cell(label(one.stage)),
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
        cell(label(one.stage)),
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
