"""What a report says of the profiles of a run: where a step's time goes, what each rung changed, the step in detail."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ladder.profile_data import KernelUse
from ladder.results import Results, StageResult
from reports import format
from reports.decomposition import PARTS, Change, Profiled, all_profiled, changes, doubts, profiled
from reports.markdown import bullets, cell, figure_links, line, table
from reports.profiles import agreement, grid, host_lines, kernel_names, seen_by
from reports.summary import label
from reports.timeline import timeline_name

MOST_KERNELS = 20  # rows of a stage's table; a library may launch a hundred
HOW_TO_READ_PARTS = """\
All numbers are us a step. *Kernels*: the GPU runs at least one. *Copies*: it copies or fills memory, and runs none.
The other parts are idle time, by the work that ended it: *between queued kernels*, that work had been handed over
already; *host launching*, the host had not handed it over yet; *host waiting*, it could not, since it was waiting for
the GPU itself. The parts come from epochs that were profiled and not timed. What the tool itself cost is taken out of
the idle parts, so that they add up to *sum*: what a step took in the timed runs of that same process, on average over
the processes that were profiled. *Timed* is what the table above shows, over all processes. *Under the tool* is how
much longer a step took in the profile."""
HOW_TO_READ_CHANGES = """\
Each row is a rung less the rung below it, in us a step: below zero it became faster. *Not explained* is what the parts
leave of the timed difference, *explained* the share that they do not leave; where the difference is within the noise,
less than 2% of a step, there is nothing to explain."""


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
    differences = changes(results)
    if not differences:
        return
    yield "## What each rung changed"
    yield table(
        ("Rung", "Below", "Timed", *map(str.capitalize, PARTS), "Not explained", "Explained"),
        map(_change_row, differences),
        right=[False, False] + [True] * (len(PARTS) + 3),
    )
    yield _paragraph(HOW_TO_READ_CHANGES)
    if told := doubts(results):
        yield bullets(told)
    yield from figure_links({"waterfall.svg"} & set(figures), "figures")


def stage_profile_blocks(stage: StageResult, figures: Collection[str]) -> Iterator[str]:
    """What the profile of one stage saw, step and host; nothing where it has none."""
    found = profiled(stage)
    if found is None:
        return
    profile = found.profile
    if timeline_name(stage) in figures:
        yield f"![Three steps of {line(label(stage))}](figures/{timeline_name(stage)})"
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
    numbers = [*parts.values(), sum(parts.values()), one.step_us]
    return [
        cell(label(one.stage)),
        *(format.aligned(number, one.step_us) for number in numbers),
        f"{'+' if one.profile.slowdown > 0 else ''}{format.share(one.profile.slowdown)}",
    ]


def _change_row(change: Change) -> list[str]:
    beside = max(change.rung.step_us, change.below.step_us)
    numbers = [change.timed_us, *change.parts_us.values(), change.unexplained_us]
    return [
        cell(label(change.rung.stage)),
        cell(label(change.below.stage)),
        *(format.change(number, beside) for number in numbers),
        "within noise" if change.explained is None else format.share(change.explained),
    ]


def _kernel_table(kernels: Sequence[KernelUse]) -> str:
    """Kernel by kernel: by their places in the step, or by how often a step runs them where steps differ."""
    names = kernel_names(kernel.name for kernel in kernels[:MOST_KERNELS])
    by_place = all(kernel.place is not None for kernel in kernels)
    rows = [
        (
            str(kernel.place + 1) if by_place and kernel.place is not None else format.per_step(kernel.per_step),
            f"`{names[kernel.name]}`",
            kernel.kind,
            format.microseconds(kernel.us_per_step),
            str(kernel.registers),
            grid(kernel),
            format.share(kernel.occupancy),
            format.MISSING if kernel.bytes is None else format.size(kernel.bytes),
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
