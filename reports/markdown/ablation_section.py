"""What the side rungs show that a row of the table does not: calls to allocators, and copies to the GPU."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from ladder.records.profile import CopyUse, Profile
from ladder.records.run import Group, Results
from reports.facts import numbers
from reports.facts.summary import BLOCKS, label
from reports.facts.time_breakdown import Profiled, all_profiled
from reports.markdown.tables import bullets, cell, figure_links, table

FIGURES: dict[Group, str] = {"memory": "memory.svg", "data": "data_path.svg"}
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
MOST = 0.5  # of the time of copies: more than that hides them
DATA_COLUMNS = (
    "Stage", "us/step", "Copies/epoch", "Bytes/epoch", "GPU copies, us/step", "Beside kernels", "Host copies, us/step",
    "Memory",
)  # fmt: skip


def side(results: Results, group: Group) -> list[Profiled]:
    """The profiled rungs of a side group, after the rung that the first climbs from; none where there are none."""
    profiled = all_profiled(results)
    rungs = [one for one in profiled if one.stage.group == group]
    return [one for one in profiled if rungs and one.stage.name == rungs[0].stage.below] + rungs


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


def overlap(one: Profiled) -> str:
    """A sentence on how much of its copies a rung hides, and why not more; empty where they take turns with kernels."""
    copied, parts = uploads(one.profile), one.profile.split
    share = hidden_share(copied) if copied else None
    if copied is None or not share:
        return ""
    bare, idle = copied.us_per_step - copied.hidden_us_per_step, parts.launching_us + parts.waiting_us
    if share >= MOST:
        why = "they are hidden"
    elif idle > bare:
        why = (
            f"the GPU idles for {_us(idle)} us more, until the host has launched the next kernel, so that there is "
            "little to hide behind, and little to be won by it"
        )
    else:
        why = f"kernels take {_us(parts.kernels_us)} us, too short to hide them all"
    took = f"{numbers.share(share)} of the {_us(copied.us_per_step)} us that the copies of a step take"
    return f"{one.stage.name} copies beside kernels for {took}: {why}."


def _us(value: float) -> str:
    return numbers.microseconds(value)


def uploads(profile: Profile) -> CopyUse | None:
    """The copies from the host to the GPU; None where there are none."""
    return next((copy for copy in profile.copies if copy.direction == "host to device" and copy.per_epoch), None)


def hidden_share(copy: CopyUse) -> float | None:
    """The share of a copy's time in which a kernel ran as well."""
    return copy.hidden_us_per_step / copy.us_per_step if copy.us_per_step else None


def calls_in_words(calls: Mapping[str, float]) -> str:
    """Calls by name: `cudaMalloc 1,872, cudaFree 1,872`; `none`."""
    return ", ".join(f"{name} {numbers.per_step(number)}" for name, number in calls.items() if number) or "none"


def host_us(profile: Profile, names: Collection[str]) -> float:
    """The host's time a step in calls to these functions."""
    return sum(call.us_per_step for call in profile.calls if call.name in names)


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
