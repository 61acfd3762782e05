"""A run's details for its page: all columns, the parts of every step, the device's limits, problem and machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import itemgetter

from ladder.records.limits_record import LimitsRecord
from ladder.records.run import Energy, Results, StageResult
from reports.facts import numbers
from reports.facts.energy import (
    above_idle,
    has_energy,
    how_to_read_energy,
    joules,
    less_than_parent,
    reached_in_words,
    to_accuracy,
)
from reports.facts.glossary import terms
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
from reports.screens.blocks import Block, ColumnOf, Group, Heading, Screen, Sentences, Table, number, table_of
from reports.screens.stages import page_table

HOW_TO_READ_PARTS = """\
Microseconds per step. *Kernels*: the GPU runs at least one kernel. *Copies*: it copies or fills memory
and runs no kernel. The other parts are idle time, named by the work that ends it. *Between queued kernels*: that work
was already queued. *Host launching*: the host had not launched it yet. *Host waiting*: the host waited for the GPU.
Profiled epochs are not timed. The parts are scaled to the process's timed runs: the tool's extra time is taken from the
idle parts in proportion, so that they add up to *sum*, the mean of the processes' timed steps. Where a graph launches
the kernels, idle time of the host under the tool is the tool's own, so work and the gaps *between queued kernels* stay
in proportion. If the profile saw more GPU work than the timed step takes, the work is scaled down, with the seen time
in brackets. *Under the tool*: how much longer a step takes in the profile."""
HOW_TO_READ_ON_CPU = """\
Microseconds per step on the CPU, as a mean over the threads. *Kernels*: compiled operations of the step.
*Python between kernels*: Python, and its calls of compiled code. *Waiting at barriers*: a thread waits for the others.
Profiled epochs are not timed. Compiled code reads a clock before and after each kernel. The parts are scaled alike to
the process's timed runs, so that they add up to *sum*. *Under the tool*: how much longer a step takes under it."""
HOW_TO_READ_CHANGES = """\
Each row is a rung minus the rung it climbs from, in microseconds per step; a negative number is faster. Kernels are
divided by operation, in proportion to their own times; where they overlap by more than half, they stay one part. The
parts are scaled to each process's time, so they always add up to the difference, which proves nothing. *Rest*: the
difference between the median of all runs and the mean of the processes' medians. *Seen*: the share of the timed
difference in the profiles before fitting, of the whole step, or, if neither rung launches in every step, of the
device's work, because the idle time is then the tool's."""
CAPTION = (
    "The median of several samples, with the smallest and the largest. A launch costs host time in Python; the other "
    "times are differences between two repetition counts on the device."
)


def details(results: Results) -> list[Block]:
    """Every section that the run has numbers for."""
    return [
        *_section("All columns of the table", [all_columns(results)]),
        *energy(results),
        *_section("Where a step's time goes", _parts(results)),
        *_section("What each rung changed", _changes(results)),
        *_section("Limits", _limits(results.limits) if results.limits else []),
        *_section("Problem, machine, command", [_origin(results)]),
    ]


def glossary() -> list[Block]:
    """The glossary, which is the same for all runs."""
    return _section("Terms", [_pairs("Term", "Is", terms().items())])


def _section(title: str, blocks: Iterable[Block]) -> list[Block]:
    """Blocks below a heading; nothing without any."""
    told = list(blocks)
    return [Heading(title), *told] if told else []


def _pairs(first: str, second: str, pairs: Iterable[tuple[str, str]], note: str = "") -> Table:
    columns = [ColumnOf[tuple[str, str]](first, itemgetter(0)), ColumnOf[tuple[str, str]](second, itemgetter(1))]
    return table_of(list(pairs), columns, note, is_named=False)


def all_columns(results: Results) -> Table:
    """The table of all stages with every column that the run has numbers for."""
    columns = [one for one in page_table(results, all_stage_facts(results)).columns if not one.is_empty]
    headers = [one.header for one in columns]
    how_to_read = [caption(results)]
    how_to_read += [sentence for name, sentence in (("Cycles/step", CYCLES), ("x floor", BOUNDS)) if name in headers]
    return Table(columns, note=lambda _: " ".join(how_to_read))


def energy(results: Results) -> list[Block]:
    """Joules per epoch, and the way to an accuracy, of the stages that have either."""
    target = results.settings.target_accuracy
    rows = [one for one in results.stages if one.energy is not None or to_accuracy(one, target) is not None]
    columns: list[ColumnOf[StageResult]] = [ColumnOf("Stage", lambda stage: f"`{stage.name}`")]
    if has_energy(results):
        columns += [
            _drawn("J/epoch", lambda own: joules(own.joules)),
            number("x less than", lambda stage: less_than_parent(stage, results)),
            _drawn("Above idle", above_idle),
            _drawn("ms", lambda own: numbers.microseconds(own.joules / own.watts * 1e3)),
            _drawn("W", lambda own: f"{own.watts:.0f}"),
            _drawn("Idle W", lambda own: f"{own.idle_w:.0f}"),
        ]
    if target is not None:
        columns.append(number(f"To {numbers.share(target)}", lambda stage: reached_in_words(stage, target)))
    tables = [table_of(rows, columns, how_to_read_energy(results), is_named=False)] if rows else []
    return _section("Energy, and time to an accuracy", tables)


def _drawn(header: str, text: Callable[[Energy], str]) -> ColumnOf[StageResult]:
    """Something of a stage's energy; a dash where it was not measured."""
    return number(header, lambda one: text(one.energy) if one.energy and one.energy.watts else numbers.MISSING)


def _parts(results: Results) -> Iterator[Table]:
    for on_cpu, names, how_to_read in ((False, PARTS, HOW_TO_READ_PARTS), (True, PARTS_ON_CPU, HOW_TO_READ_ON_CPU)):
        of_device = [rung for rung in all_profiled(results) if rung.is_on_cpu == on_cpu]
        if of_device:
            columns: list[ColumnOf[Profiled]] = [
                ColumnOf("Stage", lambda rung: rung.stage.name),
                *(number(_heading(name), partial(_part, name)) for name in names),
                number("Sum", lambda rung: numbers.aligned(sum(rung.parts_us.values()), rung.step_us)),
                number("Timed", lambda rung: numbers.aligned(rung.step_us, rung.step_us)),
                number("Under the tool", _under_tool),
            ]
            yield table_of(of_device, columns, " ".join(how_to_read.split()))


def _part(name: str, rung: Profiled) -> str:
    """Microseconds of a part; of kernels also as seen, if they were scaled down."""
    text = numbers.aligned(rung.parts_us[name], rung.step_us)
    if name == "kernels" and rung.is_scaled_down:
        return f"{text} (seen {numbers.aligned(rung.profile.seen.kernels_us, rung.step_us)})"
    return text


def _under_tool(rung: Profiled) -> str:
    return f"{'+' if rung.profile.slowdown > 0 else ''}{numbers.share(rung.profile.slowdown)}"


def _changes(results: Results) -> Iterator[Table]:
    all_changes = changes(results)
    every = [*OPERATIONS.values(), *{**PARTS, **PARTS_ON_CPU}]
    parts = [name for name in every if any(name in change.detailed_us for change in all_changes)]
    if all_changes:
        columns: list[ColumnOf[Change]] = [
            ColumnOf("Rung", lambda change: change.rung.stage.name),
            ColumnOf("From", lambda change: change.parent.stage.name),
            number("Timed", lambda change: numbers.change(change.timed_us, change.slower_us)),
            *(number(_heading(name), partial(_moved, name)) for name in parts),
            number("Rest", lambda change: numbers.change(change.rest_us, change.slower_us)),
            number("Seen", _seen),
        ]
        yield table_of(all_changes, columns, f"{' '.join(HOW_TO_READ_CHANGES.split())} {verdict(results)}")


def _moved(name: str, change: Change) -> str:
    us = change.detailed_us.get(name)
    return numbers.change(us, change.slower_us) if us is not None else ""


def _seen(change: Change) -> str:
    return "within noise" if change.explained is None else numbers.rough_share(change.explained)


def _heading(part: str) -> str:
    return part[0].upper() + part[1:]


def limits_table(record: LimitsRecord) -> Table:
    """The primitives of a device with their spread."""
    return table_of(record.limits, [
        ColumnOf("primitive", lambda one: one.title),
        number("median", lambda one: numbers.microseconds(one.median)),
        number("min", lambda one: numbers.microseconds(one.min), 2),
        number("max", lambda one: numbers.microseconds(one.max), 2),
        ColumnOf("", lambda one: one.unit),
        number("spread", lambda one: numbers.percent(one.spread), 1),
    ], is_named=False)  # fmt: skip


def _limits(record: LimitsRecord) -> list[Block]:
    return [limits_table(record), Sentences([" ".join([CAPTION, *not_measured(record)])], "quiet")]


def not_measured(record: LimitsRecord) -> Iterator[str]:
    """A line for each reason, with its primitives."""
    for reason in dict.fromkeys(record.skipped.values()):
        titles = [title for title, why in record.skipped.items() if why == reason]
        yield f"not measured: {'; '.join(titles)}: {reason}"


def _origin(results: Results) -> Table:
    return _pairs("Item", "Value", [*_problem(results), *_flat(results.environment)], provenance(results))


def _problem(results: Results) -> Iterator[tuple[str, str]]:
    problem, settings = results.problem, results.settings
    yield "Network", f"{problem.network}, {'ReLU after every hidden layer' if problem.hidden else 'softmax regression'}"
    yield "Data", f"{dataset_name(problem)}, {problem.dataset_source}"
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


def limits_screen(record: LimitsRecord) -> Screen:
    """Every primitive with its spread, then the primitives that were not measured, with the reason."""
    how = Sentences([CAPTION, f"Measured in {numbers.seconds(record.seconds)}."], "quiet")
    told = Group([limits_table(record), how, Sentences(list(not_measured(record)), is_list=True)])
    return Screen("", "", [told], record, "limits")
