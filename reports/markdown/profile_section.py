"""What a report says of the profiles of a run: where a step's time goes, what each rung changed, the step in detail."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ladder.records.profile import KernelUse
from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.profiles import agreement, grid, host_lines, kernel_names, seen_by, timeline_name
from reports.facts.summary import label
from reports.facts.time_breakdown import PARTS, Change, Profiled, all_profiled, changes, profiled, verdict
from reports.markdown.tables import cell, figure_links, table

MOST_KERNELS = 20  # rows of a stage's table; a library may launch a hundred
HOW_TO_READ_PARTS = """\
All numbers are us a step. *Kernels*: the GPU runs at least one. *Copies*: it copies or fills memory, and runs none.
The other parts are idle time, by the work that ended it: *between queued kernels*, that work had been handed over
already; *host launching*, the host had not handed it over yet; *host waiting*, it could not, since it was waiting for
the GPU itself. The parts come from epochs that were profiled and not timed, and are fitted: what a process took longer
under the tool is taken out of its idle parts in proportion, so that they add up to *sum*, what a step took in its own
timed runs, on average over the processes. Where the GPU alone was seen to work longer than the timed step takes, its
work is scaled down, and what was seen stands beside it in brackets. *Timed* is what the table above shows, over all
processes. *Under the tool* is how much longer a step took in the profile."""
HOW_TO_READ_CHANGES = """\
Each row is a rung less the rung below it, in us a step: below zero it became faster. Since the parts of each process
are fitted to its own time, they add up to the difference whatever was seen, and that they do proves nothing: *rest* is
only how far the median of all runs lies from the mean of the processes' own medians."""
HOW_TO_READ_SEEN = """\
The same differences in the profiles themselves, of which nothing was fitted. *Whole step*: all of a step under the
tool, with what the tool costs; of several processes also the least and the most that one round saw. *GPU's work*: its
kernels and copies alone, which a tool stretches by a few per cent. A star marks the one that is held against the timed
difference: the whole step, or the GPU's work where neither rung hands over a launch in every step, so that all idling
is of the tool's making. *Within noise*: less than 2% of a step, or what processes of one stage differ by."""


def profile_blocks(results: Results, figures: Collection[str]) -> Iterator[str]:
    """The section on all profiles; nothing in a run that has none."""
    found = all_profiled(results)
    if not found:
        return
    yield "## Where a step's time goes"
    yield table(
        ("Stage", *map(str.capitalize, PARTS), "Sum", "Timed", "Under the tool"),
        map(_parts_row, found),
        right=[False] + [True] * (len(PARTS) + 3),
    )
    yield _paragraph(HOW_TO_READ_PARTS)
    yield from figure_links({"timelines.svg"} & set(figures), "figures")
    if any(timeline_name(one.stage) in figures for one in found):
        yield "`figures/timeline-STAGE.svg` draws three steps of one stage on a scale of their own."
    differences = changes(results)
    if not differences:
        return
    yield "## What each rung changed"
    yield table(
        ("Rung", "Below", "Timed", *map(str.capitalize, PARTS), "Rest"),
        map(_change_row, differences),
        right=[False, False] + [True] * (len(PARTS) + 2),
    )
    yield _paragraph(HOW_TO_READ_CHANGES)
    yield from figure_links({"waterfall.svg"} & set(figures), "figures")
    yield "### What the profiles saw of it"
    yield table(
        ("Rung", "Timed", "Whole step", "Of timed", "GPU's work", "Of timed", "Under the tool"),
        map(_seen_row, differences),
        right=[False] + [True] * 6,
    )
    yield _paragraph(HOW_TO_READ_SEEN)
    yield verdict(results)


def stage_profile_blocks(stage: StageResult) -> Iterator[str]:
    """What the profile of one stage saw, step and host; nothing where it has none."""
    found = profiled(stage)
    if found is None:
        return
    profile = found.profile
    if profile.kernels:
        yield _kernel_table(profile.kernels)
    if (more := len(profile.kernels) - MOST_KERNELS) > 0:
        yield f"and {more} more."
    yield table(("What the host did", ""), [(what, cell(how_much)) for what, how_much in host_lines(profile)])
    told = [f"Seen by {seen_by(profile)}."]
    if compared := agreement(stage):
        told.append(f"{compared}.")
    yield " ".join(told)


def _parts_row(one: Profiled) -> list[str]:
    parts = one.parts_us
    times_us = [*parts.values(), sum(parts.values()), one.step_us]
    kernels, *others = (numbers.aligned(time_us, one.step_us) for time_us in times_us)
    if one.is_scaled_down:
        kernels += f" (seen {numbers.aligned(one.profile.seen.kernels_us, one.step_us)})"
    return [cell(label(one.stage)), kernels, *others, _longer(one)]


def _longer(one: Profiled) -> str:
    return f"{'+' if one.profile.slowdown > 0 else ''}{numbers.share(one.profile.slowdown)}"


def _change_row(change: Change) -> list[str]:
    changes_us = [change.timed_us, *change.parts_us.values(), change.rest_us]
    return [
        cell(label(change.rung.stage)),
        cell(label(change.below.stage)),
        *(numbers.change(change_us, change.slower_us) for change_us in changes_us),
    ]


def _seen_row(change: Change) -> list[str]:
    timed, seen, work = (
        numbers.change(us, change.slower_us) for us in (change.timed_us, change.seen_us, change.seen_work_us)
    )
    shares = [_share(change, [change.seen_us]), _share(change, [change.seen_work_us])]
    if len(change.seen_in_rounds_us) > 1 and not change.is_noise:
        shares[0] += f" ({_share(change, change.seen_in_rounds_us)})"
    if not change.is_noise:
        shares[change.leaves_out_host] += "*"
    return [cell(label(change.rung.stage)), timed, seen, shares[0], work, shares[1], _longer(change.rung)]


def _share(change: Change, seen_us: Sequence[float]) -> str:
    """What was seen of the timed difference, or from where to where."""
    if change.is_noise:
        return "within noise"
    shares = sorted(us / change.timed_us for us in seen_us)
    return " to ".join(numbers.rough_share(share) for share in dict.fromkeys((shares[0], shares[-1])))


def _kernel_table(kernels: Sequence[KernelUse]) -> str:
    """Kernel by kernel: by their places in the step, or by how often a step runs them where steps differ."""
    names = kernel_names(kernel.name for kernel in kernels[:MOST_KERNELS])
    by_place = all(kernel.place is not None for kernel in kernels)
    rows = [
        (
            str(kernel.place + 1) if by_place and kernel.place is not None else numbers.per_step(kernel.per_step),
            f"`{names[kernel.name]}`",
            kernel.kind,
            numbers.microseconds(kernel.us_per_step),
            str(kernel.registers),
            grid(kernel),
            numbers.share(kernel.occupancy),
            numbers.MISSING if kernel.bytes is None else numbers.size(kernel.bytes),
        )
        for kernel in kernels[:MOST_KERNELS]
    ]
    return table(
        ("Place" if by_place else "Per step", "Kernel", "Kind", "us/step", "Registers", "Blocks x threads",
         "Occupancy", "Bytes"),
        rows,
        right=[True, False, False, True, True, True, True, True],
    )  # fmt: skip


def _paragraph(text: str) -> str:
    """A paragraph of this file's as one line, as the others of a report are."""
    return " ".join(text.split())
