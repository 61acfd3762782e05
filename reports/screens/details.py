"""A run's details for its page: all columns, the parts of every step, the device's limits, problem and machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ladder.records.limits_record import CpuLimits, LimitsRecord
from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.energy import ENERGY_COLUMNS, energy_cells, has_energy, how_to_read_energy, to_accuracy
from reports.facts.glossary import TERMS
from reports.facts.provenance import provenance
from reports.facts.run_table import BOUNDS, CYCLES, caption, dataset_name, validated
from reports.facts.stage_facts import all_stage_facts
from reports.facts.time_breakdown import (
    OPERATIONS,
    PARTS,
    PARTS_ON_CPU,
    Change,
    Profiled,
    all_profiled,
    changes,
    verdict,
)
from reports.screens.blocks import Block, Column, Heading, Sentences, Table, by_row
from reports.screens.stages import page_table

# Columns of words, which stand to the left; numbers stand to the right.
IN_WORDS = {
    "Stage", "From", "Rung", "Title", "Precision", "Checked", "Item", "Value", "Term", "Is",
}  # fmt: skip
HOW_TO_READ_PARTS = """\
Microseconds a step. *Kernels*: the GPU runs at least one kernel. *Copies*: it copies or fills memory
and runs no kernel. The other parts are idle time, named by the work that ends it. *Between queued kernels*: that work
was already queued. *Host launching*: the host had not launched it yet. *Host waiting*: the host waited for the GPU.
Profiled epochs are not timed. The parts are fitted to the process's timed runs: the tool's extra time is taken from the
idle parts in proportion, so that they add up to *sum*, the mean of the processes' timed steps. Where a graph launches
the kernels, idle time of the host under the tool is the tool's own, so work and the gaps *between queued kernels* stay
in proportion. If the profile saw more GPU work than the timed step takes, the work is scaled down, with the seen time
in brackets. *Under the tool*: how much longer a step takes in the profile."""
HOW_TO_READ_ON_CPU = """\
Microseconds a step on the CPU, as a mean over the threads. *Kernels*: compiled operations of the step.
*Python between kernels*: Python, and its calls of compiled code. *Waiting at barriers*: a thread waits for the others.
Profiled epochs are not timed. Compiled code reads a clock before and after each kernel. The parts are scaled alike to
the process's timed runs, so that they add up to *sum*. *Under the tool*: how much longer a step takes under it."""
HOW_TO_READ_CHANGES = """\
Each row is a rung minus the rung it climbs from, in microseconds a step; a negative number is faster. Kernels are
divided by operation, in proportion to their own times; where they overlap by more than half, they stay one part. The
parts are fitted to each process's time, so they always add up to the difference, which proves nothing. *Rest*: the
difference between the median of all runs and the mean of the processes' medians. *Seen*: the share of the timed
difference in the profiles before fitting, of the whole step, or, if neither rung launches in every step, of the
device's work, because the idle time is then the tool's."""
CAPTION = (
    "The median of several samples, with the smallest and the largest. A launch costs host time in Python; the other "
    "times are differences between two repetition counts on the device."
)
CAPTION_ON_CPU = (
    "The median of several samples, with the smallest and the largest. Each repeats its primitive in compiled code, of "
    "which only the first row counts Python's part."
)


def details(results: Results) -> list[Block]:
    """Every section that the run has numbers for."""
    limits = [block for known in (results.cpu_limits, results.limits) if known is not None for block in _limits(known)]
    return [
        *_section("All columns of the table", [all_columns(results)]),
        *energy(results),
        *_section("Where a step's time goes", _parts(results)),
        *_section("What each rung changed", _changes(results)),
        *_section("Limits", limits),
        *_section("Problem, machine, command", [_origin(results)]),
    ]


def glossary() -> list[Block]:
    """The glossary, which is the same for all runs."""
    return _section("Terms", [by_row(("Term", "Is"), list(TERMS.items()), IN_WORDS, is_named=False)])


def _section(title: str, blocks: Iterable[Block]) -> list[Block]:
    """Blocks below a heading; nothing without any."""
    told = list(blocks)
    return [Heading(title), *told] if told else []


def all_columns(results: Results) -> Table:
    """The table of all stages with every column that the run has numbers for."""
    columns = [one for one in page_table(results, all_stage_facts(results)).columns if not one.is_empty]
    headers = [one.header for one in columns]
    how_to_read = [caption(results)]
    how_to_read += [sentence for name, sentence in (("Cycles/step", CYCLES), ("x floor", BOUNDS)) if name in headers]
    return Table(columns, note=lambda _: " ".join(how_to_read))


def energy(results: Results) -> list[Block]:
    """Joules an epoch, and the way to an accuracy, of the stages that have either."""
    target = results.settings.target_accuracy
    columns = ENERGY_COLUMNS if has_energy(results) else ()
    header = ["Stage", *columns]
    header += [f"To {numbers.share(target)}"] if target is not None else []
    lines = []
    for stage in results.stages:
        reached = to_accuracy(stage, target)
        if stage.energy is not None or reached is not None:
            way = [reached.text if reached else numbers.MISSING] if target is not None else []
            lines.append([f"`{stage.name}`", *(energy_cells(stage, results) if columns else []), *way])
    tables = [by_row(header, lines, IN_WORDS, how_to_read_energy(results), is_named=False)] if lines else []
    return _section("Energy, and time to an accuracy", tables)


def _parts(results: Results) -> Iterator[Table]:
    for on_cpu, names, how_to_read in ((False, PARTS, HOW_TO_READ_PARTS), (True, PARTS_ON_CPU, HOW_TO_READ_ON_CPU)):
        of_device = [rung for rung in all_profiled(results) if rung.is_on_cpu == on_cpu]
        if of_device:
            header = ("Stage", *map(_heading, names), "Sum", "Timed", "Under the tool")
            yield by_row(header, [_parts_row(rung) for rung in of_device], IN_WORDS, " ".join(how_to_read.split()))


def _parts_row(rung: Profiled) -> list[str]:
    parts = rung.parts_us
    kernels, *others = (
        numbers.aligned(us, rung.step_us) for us in (*parts.values(), sum(parts.values()), rung.step_us)
    )
    if rung.is_scaled_down:
        kernels += f" (seen {numbers.aligned(rung.profile.seen.kernels_us, rung.step_us)})"
    longer = f"{'+' if rung.profile.slowdown > 0 else ''}{numbers.share(rung.profile.slowdown)}"
    return [rung.stage.name, kernels, *others, longer]


def _changes(results: Results) -> Iterator[Table]:
    all_changes = changes(results)
    columns = [*OPERATIONS.values(), *{**PARTS, **PARTS_ON_CPU}]
    parts = [name for name in columns if any(name in change.detailed_us for change in all_changes)]
    if all_changes:
        note = f"{' '.join(HOW_TO_READ_CHANGES.split())} {verdict(results)}"
        header = ("Rung", "From", "Timed", *map(_heading, parts), "Rest", "Seen")
        yield by_row(header, [_change_row(change, parts) for change in all_changes], IN_WORDS, note)


def _change_row(change: Change, parts: Sequence[str]) -> list[str]:
    us = change.detailed_us
    cells = [numbers.change(us[name], change.slower_us) if name in us else "" for name in parts]
    timed, rest = (numbers.change(us, change.slower_us) for us in (change.timed_us, change.rest_us))
    seen = "within noise" if change.explained is None else numbers.rough_share(change.explained)
    return [change.rung.stage.name, change.parent.stage.name, timed, *cells, rest, seen]


def _heading(part: str) -> str:
    return part[0].upper() + part[1:]


def limits_table(record: LimitsRecord | CpuLimits) -> Table:
    """The primitives of a device with their spread."""
    limits = record.limits

    def us(header: str, rank: int) -> Column:
        return Column(header, [numbers.microseconds(getattr(one, header)) for one in limits], rank, is_number=True)

    return Table([
        Column("primitive", [one.title for one in limits]),
        us("median", 0),
        us("min", 2),
        us("max", 2),
        Column("", [one.unit for one in limits]),
        Column("spread", [numbers.percent(one.spread) for one in limits], 1, is_number=True),
    ], is_named=False)  # fmt: skip


def limits_caption(record: LimitsRecord | CpuLimits) -> str:
    """How the limits of a device were measured."""
    return CAPTION if isinstance(record, LimitsRecord) else CAPTION_ON_CPU


def _limits(record: LimitsRecord | CpuLimits) -> list[Block]:
    return [limits_table(record), Sentences([" ".join([limits_caption(record), *not_measured(record)])], "quiet")]


def not_measured(record: LimitsRecord | CpuLimits) -> Iterator[str]:
    """A line for each reason, with its primitives."""
    for reason in dict.fromkeys(record.skipped.values()):
        titles = [title for title, why in record.skipped.items() if why == reason]
        yield f"not measured: {'; '.join(titles)}: {reason}"


def _origin(results: Results) -> Table:
    lines = [*_problem(results), *_flat(results.environment)]
    return by_row(("Item", "Value"), lines, IN_WORDS, provenance(results), is_named=False)


def _problem(results: Results) -> Iterator[tuple[str, str]]:
    problem, settings = results.problem, results.settings
    yield "Network", f"{problem.network}, {'ReLU after every hidden layer' if problem.hidden else 'softmax regression'}"
    yield "Data", f"{dataset_name(results)}, {problem.dataset_source}"
    yield "Images", f"{problem.train_images:,} for training, {problem.test_images:,} for testing"
    yield "Batch", f"{problem.batch_size}"
    if problem.networks > 1:
        yield "Networks", f"{problem.networks}, on the same batches"
    if problem.gpus > 1:
        yield "GPUs", f"{problem.gpus}, which the stages of `devices` divide a batch among"
    yield "Learning rate", ", ".join(f"{rate:g}" for rate in problem.learning_rates or [problem.learning_rate])
    yield "Epochs", f"{problem.epochs}; sparse metrics every {problem.metrics_every}"
    if problem.validate_every:
        yield "Validation", f"on the test images {validated(results).removeprefix('validation ')}, in the times"
    yield "Seed", f"{problem.seed}"
    yield (
        "Measured",
        f"{numbers.count(settings.rounds, 'round')} of {numbers.count(settings.repeats, 'run')}, after "
        f"{numbers.count(settings.warmups, 'warm-up')} a process; {numbers.duration(settings.budget_s)} a stage",
    )
    if settings.lock_clocks_mhz is not None:
        yield "SM clock", f"locked at {settings.lock_clocks_mhz:,} MHz"
    if results.oracle is not None:
        yield "Oracle's test accuracy", numbers.percent(results.oracle.test_accuracy)
        if results.oracle.device is not None:
            where, why = f"the {results.oracle.device.upper()}", results.oracle.not_on_gpu
            yield "Oracle trained on", where + (f", not {'all ' * (where == 'the GPU')}on a GPU: {why}" if why else "")
    for name, digest in problem.dataset_sha256.items():
        yield f"SHA-256 of {name}", digest
    yield "Command", results.command
    yield "Recorded", f"{results.created}{_took(results)}"


def _took(results: Results) -> str:
    """How long measuring took, and its parts; empty if the run did not record it."""
    if not results.seconds:
        return ""
    preparing = sum(process.took_s.get("prepare", 0.0) for stage in results.stages for process in stage.processes)
    text = f"; it took {results.seconds:.0f} s, {preparing:.0f} s of which prepared and compiled stages"
    parts = sorted(((seconds, part) for part, seconds in results.took_s.items() if seconds >= 0.5), reverse=True)
    return text + (f" ({', '.join(f'{part} {seconds:.0f}' for seconds, part in parts)})" if parts else "")


def _flat(value: object, name: str = "") -> Iterable[tuple[str, str]]:
    """The leaves of nested mappings with their paths: `gpu driver`, `580.65`."""
    if isinstance(value, Mapping):
        return [
            leaf for key, inner in value.items() for leaf in _flat(inner, f"{name} {key}".replace("_", " ").strip())
        ]
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return [(name, numbers.MISSING if value in (None, "") else text)]
