"""A report's sections on profiles: where a step's time goes, the change of each rung, and each stage's step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ladder.records.profile import KernelUse
from ladder.records.run import Results, StageResult
from reports.facts import numbers
from reports.facts.profiles import agreement, grid, host_lines, kernel_names, seen_by, timeline_name
from reports.facts.time_breakdown import (
    OPERATIONS,
    PARTS,
    PARTS_ON_CPU,
    Change,
    Profiled,
    all_profiled,
    changes,
    profiled,
    verdict,
)
from reports.markdown.tables import cell, code, figure_links, table

MOST_KERNELS = 20  # rows of a rung's table
MOST_FOREIGN = 8  # the same for a reference, whose compiler may make a hundred kernels
HOW_TO_READ_PARTS = """\
All numbers are microseconds a step. *Kernels*: the GPU runs at least one kernel. *Copies*: it copies or fills memory
and runs no kernel. The other parts are idle time, named by the work that ends it. *Between queued kernels*: that work
was already queued. *Host launching*: the host had not launched it yet. *Host waiting*: the host waited for the GPU.
Profiled epochs are not timed. The parts are fitted to the process's timed runs: the tool's extra time is taken from the
idle parts in proportion, so that they add up to *sum*, the mean of the processes' timed steps. Where a graph launches
the kernels, idle time of the host under the tool is the tool's own, so work and the gaps *between queued kernels* stay
in proportion. If the profile saw more GPU work than the timed step takes, the work is scaled down, with the seen time
in brackets. *Timed*: the time in the
table of stages. *Under the tool*: how much longer a step takes in the profile."""
HOW_TO_READ_ON_CPU = """\
All numbers are microseconds a step on the CPU, as a mean over the threads. *Kernels*: compiled operations of the step.
*Python between kernels*: Python, and its calls of compiled code. *Waiting at barriers*: a thread waits for the others.
Profiled epochs are not timed. Compiled code reads a clock before and after each kernel, which needs no privilege. The
parts are scaled alike to the process's timed runs, so that they add up to *sum*. *Timed*: the time in the table of
stages. *Under the tool*: how much longer a step takes in the profile."""
HOW_TO_READ_CHANGES = """\
Each row is a rung minus the rung it climbs from, in microseconds a step; a negative number is faster. Kernels are
divided by operation, in proportion to their own times; where they overlap by more than half, they stay one part. The
parts are fitted to each process's time, so they always add up to the difference, which proves nothing. *Rest*: the
difference between the median of all runs and the mean of the processes' medians."""
HOW_TO_READ_SEEN = """\
The same differences in the profiles before fitting. *Whole step*: a step under the tool, with the tool's cost; with
several processes also the least and the most of a round. *GPU's work*: kernels and copies alone, which a tool stretches
by a few per cent. A star marks the share that is compared with the timed difference: the whole step, or the GPU's work
if neither rung launches in every step, because the idle time is then the tool's. *Within noise*: less than 2% of a
step, or no more than processes of one stage differ by."""

HOW_TO_READ_SEEN_ON_CPU = """\
The same differences in the profiles before fitting. *Whole step*: a step under the tool, with the tool's cost; with
several processes also the least and the most of a round. *Kernels*: these alone. A star marks the share that is
compared with the timed difference. *Within noise*: less than 2% of a step, or no more than processes of one stage
differ by."""


def profile_blocks(results: Results, figures: Collection[str]) -> Iterator[str]:
    """The sections on all profiles; nothing without profiles."""
    found = all_profiled(results)
    if not found:
        return
    yield "### Where a step's time goes"
    for on_cpu, names, how_to_read in ((False, PARTS, HOW_TO_READ_PARTS), (True, PARTS_ON_CPU, HOW_TO_READ_ON_CPU)):
        of_device = [one for one in found if one.is_on_cpu == on_cpu]
        if of_device:
            yield table(
                ("Stage", *map(_heading, names), "Sum", "Timed", "Under the tool"),
                map(_parts_row, of_device),
                right=[False] + [True] * (len(names) + 3),
            )
            yield _paragraph(how_to_read)
    yield from figure_links({"timelines.svg"} & set(figures), "figures")
    if any(timeline_name(one.stage) in figures for one in found):
        yield "`figures/timeline-STAGE.svg` shows three steps of one stage on a scale of its own."
    differences = changes(results)
    if not differences:
        return
    yield "### What each rung changed"
    columns = [*OPERATIONS.values(), *{**PARTS, **PARTS_ON_CPU}]
    parts = [name for name in columns if any(name in change.detailed_us for change in differences)]
    yield table(
        ("Rung", "From", "Timed", *map(_heading, parts), "Rest"),
        [_change_row(change, parts) for change in differences],
        right=[False, False] + [True] * (len(parts) + 2),
    )
    yield _paragraph(HOW_TO_READ_CHANGES)
    yield from figure_links({"waterfall.svg"} & set(figures), "figures")
    yield "### What the profiles saw of each change"
    only_cpu = all(change.rung.is_on_cpu for change in differences)
    work = "Kernels" if only_cpu else "GPU's work"
    yield table(
        ("Rung", "From", "Timed", "Whole step", "Of timed", work, "Of timed", "Under the tool"),
        map(_seen_row, differences),
        right=[False, False] + [True] * 6,
    )
    yield _paragraph(HOW_TO_READ_SEEN_ON_CPU if only_cpu else HOW_TO_READ_SEEN)
    yield verdict(results)


def stage_profile_blocks(stage: StageResult) -> Iterator[str]:
    """A stage's profile, its kernels and the host's work; nothing without a profile."""
    found = profiled(stage)
    if found is None:
        return
    profile = found.profile
    most = MOST_FOREIGN if stage.group == "reference" else MOST_KERNELS
    if profile.kernels:
        yield _kernel_table(profile.kernels[:most], on_cpu=found.is_on_cpu)
    if (more := len(profile.kernels) - most) > 0:
        yield f"and {more} more."
    yield table(("Host", ""), [(activity, cell(amount)) for activity, amount in host_lines(profile)])
    sentences = [f"Profiled by {seen_by(profile)}."]
    if compared := agreement(stage):
        sentences.append(f"{compared}.")
    yield " ".join(sentences)


def _parts_row(one: Profiled) -> list[str]:
    parts = one.parts_us
    times_us = [*parts.values(), sum(parts.values()), one.step_us]
    kernels, *others = (numbers.aligned(time_us, one.step_us) for time_us in times_us)
    if one.is_scaled_down:
        kernels += f" (seen {numbers.aligned(one.profile.seen.kernels_us, one.step_us)})"
    return [code(one.stage.name), kernels, *others, _longer(one)]


def _longer(one: Profiled) -> str:
    return f"{'+' if one.profile.slowdown > 0 else ''}{numbers.share(one.profile.slowdown)}"


def _change_row(change: Change, parts: Sequence[str]) -> list[str]:
    changes_us = change.detailed_us
    cells = [numbers.change(changes_us[name], change.slower_us) if name in changes_us else "" for name in parts]
    timed, rest = (numbers.change(us, change.slower_us) for us in (change.timed_us, change.rest_us))
    return [*_rung_and_parent(change), timed, *cells, rest]


def _heading(part: str) -> str:
    return part[0].upper() + part[1:]


def _seen_row(change: Change) -> list[str]:
    timed, seen, work = (
        numbers.change(us, change.slower_us) for us in (change.timed_us, change.seen_us, change.seen_work_us)
    )
    shares = [_share(change, [change.seen_us]), _share(change, [change.seen_work_us])]
    if len(change.seen_in_rounds_us) > 1 and not change.is_noise:
        shares[0] += f" ({_share(change, change.seen_in_rounds_us)})"
    if not change.is_noise:
        shares[change.leaves_out_host] += "*"
    return [*_rung_and_parent(change), timed, seen, shares[0], work, shares[1], _longer(change.rung)]


def _rung_and_parent(change: Change) -> tuple[str, str]:
    return code(change.rung.stage.name), code(change.parent.stage.name)


def _share(change: Change, seen_us: Sequence[float]) -> str:
    """The share of the timed difference that was seen, or the range of several shares."""
    if change.is_noise:
        return "within noise"
    shares = sorted(us / change.timed_us for us in seen_us)
    return " to ".join(numbers.rough_share(share) for share in dict.fromkeys((shares[0], shares[-1])))


def _kernel_table(kernels: Sequence[KernelUse], *, on_cpu: bool) -> str:
    """The kernels by their places in the step, or by their number a step if steps differ."""
    names = kernel_names(kernel.name for kernel in kernels)
    by_place = all(kernel.place is not None for kernel in kernels)
    shape = ("Threads",) if on_cpu else ("Registers", "Blocks x threads", "Occupancy")
    rows = [
        (
            str(kernel.place + 1) if by_place and kernel.place is not None else numbers.per_step(kernel.per_step),
            f"`{names[kernel.name]}`",
            kernel.kind,
            numbers.microseconds(kernel.us_per_step),
            *([str(kernel.blocks)] if on_cpu else _shape(kernel)),
            numbers.MISSING if kernel.bytes is None else numbers.size(kernel.bytes),
        )
        for kernel in kernels
    ]
    return table(
        ("Place" if by_place else "Per step", "Kernel", "Kind", "us/step", *shape, "Bytes"),
        rows,
        right=[True, False, False, True, *(True for _ in shape), True],
    )


def _shape(kernel: KernelUse) -> list[str]:
    """Registers, blocks and occupancy on a GPU."""
    return [str(kernel.registers), grid(kernel), numbers.share(kernel.occupancy)]


def _paragraph(text: str) -> str:
    """A wrapped text as one line, like every paragraph of a report."""
    return " ".join(text.split())
