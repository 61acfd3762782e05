"""The screens of a ladder over a user's own PyTorch model: the run, its check, one rung, and two runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from ladder.records.statistics import CPU_SPREAD, GPU_SPREAD, HOST_SPREAD, VERDICT_CONFIDENCE
from ladder.records.torch_run import (
    FIRST_ROW,
    RIGHT,
    ModelRecord,
    TorchCheck,
    TorchPrecision,
    TorchResults,
    TorchStatus,
    multiple,
)
from reports.facts import numbers
from reports.facts.glossary import terms
from reports.facts.grouped import grouped
from reports.facts.ratios import Ratio
from reports.facts.torch_rows import (
    EAGER,
    FUSED,
    IN,
    STATUS,
    Programs,
    TorchRow,
    TorchVerdict,
    broken,
    device,
    grade,
    origin,
    torch_rows,
    torch_verdict,
)
from reports.figures.torch_ladder import torch_ladder
from reports.report_error import ReportError
from reports.screens.blocks import (
    Block,
    Code,
    ColumnOf,
    Figure,
    Folded,
    Heading,
    Screen,
    Sentences,
    Table,
    Tone,
    number,
    plain_rows,
    table_of,
)
from reports.screens.check import CHECK_COLUMNS

SAME_BITS = "same bits"
ERROR_RATIO = "error\nratio"
TONES: dict[str, Tone] = {
    SAME_BITS: "good", "wrong": "bad", "refused": "quiet", "crashed": "bad", "stopped": "doubtful",
    **{f"as exact{precision}": "good" for precision in IN.values()},
    **{f"less exact{precision}": "doubtful" for precision in IN.values()},
}  # fmt: skip
PRECISIONS: dict[TorchPrecision, str] = {"float32": "float32", "tf32": "TF32", "bfloat16": "bfloat16"}
GROUPS = {"left out": "One change left out", "instead": "Common recipes, for comparison"}
ABOUT = "~"  # before a speedup within noise
BUSY = "Other work disturbed every process: measure again on a quiet machine; until then differences mean little."
NEVER, AT_ONCE = "never", "at once"
LEAST_EPOCHS = 0.1  # after which a rung pays off that are told
CALLED: set[TorchStatus] = {"wrong", "refused"}  # what a rung is; else it is what a rung did
SHOWN_S = 0.05  # the shortest part of a run that is listed
AFTER = re.compile(r"parameters after (\d+) steps")  # of a check
NO_REASON = "the record gives no reason"
HOW_TO_READ = (
    f"Brackets hold {VERDICT_CONFIDENCE:.1%} intervals, for which so few processes have an assumed scatter: "
    f"{HOST_SPREAD:.0%} where the host launches kernels, {GPU_SPREAD:.0%} for graphs, {CPU_SPREAD:.0%} on a CPU. "
    f"Speedups here are of single steps; {ABOUT} marks one that may be noise. The first step is the slowest process's, "
    "compiling and capturing included; where a change is left out, the parent's counts as well."
)
STILL = {"no-item": "still reads the loss in every step", "resident": "still brings each batch from the host"}
TUNED = f"the tuned eager loop (`{FUSED}`)"
HOW_TO_READ_A_CHECK = (
    "Each row shows the check that decides its grade, with its error and the limit up to which a rung is as exact. "
    "Where the check names a tensor, both are multiples of eager mode's own largest error, in the rung's precision."
)
WHAT_NOW = "A rung is wrong: PyTorch's compiler may be. `docs/your-model.md` says how to find out."
Text = Callable[[TorchRow], str]


def run_screen(results: TorchResults, programs: Programs | None = None) -> Screen:
    """The whole run; `programs` are those that the run's folder holds."""
    rows, verdict = torch_rows(results), torch_verdict(results)
    first, *others = verdict_sentences(results, verdict, programs)
    blocks: list[Block] = [
        Sentences([first], "strong"),
        *_warned(results.model),
        *([Sentences([BUSY], "alarm")] if _is_busy(rows) else []),
        Sentences([*others, _subject(results.model)]),
    ]
    if any(row.step_us for row in rows):
        title = "Microseconds per step of each rung, with an arrow from its parent"
        blocks.append(Figure("ladder.svg", title, lambda layout: torch_ladder(results, layout)))
    blocks += [Heading("Rungs"), run_table(rows), _terms(rows)] if rows else []
    blocks += [*_reasons(rows), *_what_to_write(verdict, programs), *_findings(results, rows)]
    return Screen(f"The ladder of {results.model.file}", origin(results), blocks, run_facts(results), "rungs")


def _is_busy(rows: Sequence[TorchRow]) -> bool:
    processes = [process for row in rows for process in row.rung.processes]
    return bool(processes) and all(process.measured.disturbed for process in processes)


def _terms(rows: Sequence[TorchRow]) -> Block:
    """The words of the table and of the verdict that need one of their own."""
    grades = {STATUS[row.rung.status] for row in rows}
    told = [f"{term.capitalize()}: {words}" for term, words in terms().items() if term in grades]
    return Sentences(told, "quiet", is_list=True)


def plan_screen(
    model: ModelRecord, epochs: int, rungs: Mapping[str, str], misfits: Mapping[str, str], device: str,
    elsewhere: Sequence[str], unasked: Sequence[str],
) -> Screen:  # fmt: skip
    """A file that fits the contract, with the rungs that would climb by what each changes; the others with reasons."""
    every = [{"name": name, "change": words, "refused": misfits.get(name, "")} for name, words in rungs.items()]
    rows = [row for row in every if row["name"] not in elsewhere]
    climbing = [row for row in rows if not row["refused"]]
    blocks: list[Block] = [*_warned(model), Sentences([f"{_subject(model)} Its training has {epochs:,} epochs."])]
    blocks.append(table_of(climbing, [
        ColumnOf("rung", itemgetter("name")), ColumnOf("change", itemgetter("change")),
    ]))  # fmt: skip
    if misfits:
        refused = [
            f"{_names(names)}: {_ended(why)}" for why, names in grouped((why, n) for n, why in misfits.items()).items()
        ]
        blocks += [Heading("Refused"), Sentences(refused, is_list=True)]
    suited = [name for name in elsewhere if name not in misfits]
    if left_out := list(_left_out_here(model.file, suited, unasked, on_gpu="CPU" not in device)):
        blocks += [Heading("Left out here"), Sentences(left_out, is_list=True)]
    would = f"{len(climbing)} of {numbers.count(len(rows), 'rung')} would climb"
    title = f"{model.file} fits: {would} on {device}. Nothing was timed."
    facts = {
        "model": model, "epochs": epochs, "device": device, "rungs": every, "elsewhere": elsewhere, "unasked": unasked,
    }  # fmt: skip
    return Screen(title, "", [*blocks, *_waiting(model)], facts, "rungs")


def _left_out_here(file: str, suited: Sequence[str], unasked: Sequence[str], *, on_gpu: bool) -> Iterator[str]:
    if suited:
        need, them = ("these need", "them") if suited[1:] else ("this needs", "it")
        why = "a CPU alone" if on_gpu else f"a GPU, and here is none; `{file}` suits {them} as far as a CPU can tell"
        yield f"{_names(suited)}: {need} {why}."
    if unasked:
        yield f"{_names(unasked)}: these compile for over a minute or gain little, so only `--stages` adds them."


def _warned(model: ModelRecord) -> Iterator[Block]:
    """What the user should know of the file before anything else."""
    if model.notes:
        yield Sentences(model.notes, "doubtful", is_list=True)


def _waiting(model: ModelRecord) -> Iterator[Block]:
    if model.waits:
        yield Heading("Lines that make the host wait")
        yield Sentences([f"`{wait}`" for wait in model.waits], is_list=True)


def _subject(model: ModelRecord) -> str:
    moving = f" and a schedule of {numbers.listing(model.moving)}" if model.moving else ""
    moving = f" and a scheduler, which is stepped after each step: {model.schedule}" if model.schedule else moving
    return (
        f"`{model.file}` has {numbers.count(model.parameters, 'parameter')} and trains with {model.optimizer}{moving}. "
        f"An epoch has {numbers.count(model.steps_per_epoch, 'step')} of batch {model.batch_size:,} over "
        f"{numbers.count(model.rows, 'row')} ({model.data})."
    )


def verdict_sentences(
    results: TorchResults, verdict: TorchVerdict | None, programs: Programs | None = None
) -> Iterator[str]:
    """What to do for the epochs that were asked for, in at most three sentences."""
    if verdict is None:
        timed = any(rung.is_timed for rung in results.rungs)
        yield "No rung as exact as eager mode has a time." if timed else "No rung of this run has a time."
        return
    epochs, name = numbers.count(verdict.epochs, "epoch"), f"`{verdict.chosen.name}`"
    if verdict.stays_eager:
        why = "no equally exact rung saves time beyond the noise"
        yield f"Stay in eager mode for {epochs} on {device(results)}: {why}."
        if programs is not None and verdict.chosen.name != EAGER:
            yield f"A script holds {name} all the same, the fastest of them: it is as exact, and perhaps no faster."
        if verdict.later is not None:
            yield f"Counting preparation, `{verdict.later.name}` pays off after {_epochs(verdict.later)}."
    elif verdict.eager is None:
        over = f", {verdict.versus_fused.as_fast_as(TUNED)}" if verdict.versus_fused is not None else ""
        yield (
            f"Eager mode has no time, so this run compares nothing with the usual loop. For {epochs} on "
            f"{device(results)}, {name} is the fastest of its rungs{over}, preparation included."
        )
    else:
        yield f"For {epochs} on {device(results)}, {name} makes the whole training {_gains(verdict)}."
        change, whole = verdict.chosen.label.removeprefix("without "), verdict.chosen.rung.parent
        is_left_out = verdict.chosen.rung.group == "left out"  # its name denies twice
        does = f"That rung is `{whole}`, but {STILL.get(change, f'leaves out `{change}`')}. " * is_left_out
        yield f"{does}Trainings are computed from the first and the median step."
        told = [f"it pays off after {_epochs(verdict.chosen)}"] if verdict.chosen.pays_after else []
        if verdict.overtaken is not None:
            after, other_rung = verdict.overtaken
            told.append(f"`{other_rung.name}` overtakes it after about {numbers.rough(after)} epochs")
        if told:
            yield f"Counting preparation, {', and '.join(told)}."
        if programs is not None and programs.diff:
            lines = numbers.count(programs.added, "line")
            yield f"Its script, `train_fast.py`, adds or changes {lines} of the plain loop in `train_plain.py`."
    other, gain = verdict.in_any_precision, verdict.versus_chosen
    if other is not None and gain is not None:
        yield (
            f"In any precision, `{other.name}` is the fastest: it makes the whole training {numbers.ratio(gain.times)} "
            f"as fast as {name} in {PRECISIONS[other.rung.precision]}, and its error is {_error_ratio(other)} that of "
            "eager mode."
        )


def _gains(verdict: TorchVerdict) -> str:
    """The speedups of the whole training over both baselines, since the naive loop alone flatters."""
    over = ((verdict.versus_eager, "eager mode"), (verdict.versus_fused, TUNED))
    gains = [gain.as_fast_as(name) for gain, name in over if gain is not None]
    step = verdict.chosen.versus_eager
    alone = f" (a single step: {numbers.ratio(step.times)})" if step is not None else ""
    return f"{numbers.listing(gains)}, preparation included{alone}" if gains else "fastest"


def _epochs(row: TorchRow) -> str:
    """The epochs after which a rung pays off; of less than one, the steps."""
    epochs, steps = row.pays_after_epochs or 0.0, row.pays_after or 0.0
    return f"about {numbers.rough(epochs)} epochs" if epochs >= 1 else f"about {numbers.rough(steps)} steps"


def _error_ratio(row: TorchRow) -> str:
    return numbers.ratio(row.rung.error_ratio)


def run_table(rows: Sequence[TorchRow]) -> Table:
    """A row for each rung, defeats included."""
    return Table([column.over(rows) for column in COLUMNS], _group_headings(rows), partial(_note, rows))


def _note(rows: Sequence[TorchRow], shown: Sequence[str]) -> str:
    """How to read the table; a column that has no room is not explained."""
    words = [" ".join(text.split()) for text in (ERROR_RATIO, SAME_BITS) if text in shown]
    named = grouped((len(row.rung.processes), row.label) for row in rows if row.rung.is_timed)
    *fewer, most = sorted(named) or [0]
    few = "".join(f" ({numbers.brief(named[count])}: {count})" for count in fewer)
    return " ".join([
        f"Times are medians over {most} process{'es' * (most != 1)}{few}, with the range of single runs.", HOW_TO_READ,
        *(f"{term.capitalize()}: {terms()[term]}" for term in words),
    ])  # fmt: skip


def _group_headings(rows: Sequence[TorchRow]) -> dict[int, str]:
    """The heading of each group but the ladder's, by the number of its first row."""
    firsts = [next(members) for _, members in groupby(enumerate(rows), key=lambda pair: pair[1].rung.group)]
    return {number: GROUPS[row.rung.group] for number, row in firsts if row.rung.group in GROUPS}


def speedup(gain: Ratio | None, *, in_full: bool = False) -> str:
    """A speedup in a table, in full with its interval."""
    if gain is None:
        return numbers.MISSING
    text = numbers.ratio_spread(gain.times, *gain.interval) if in_full else numbers.ratio(gain.times)
    return f"{ABOUT if gain.is_noise else ''}{text}"


def _pays(row: TorchRow, after: float | None) -> str:
    """Where a rung begins to pay off: `never` for a slower one, a dash within noise or without a time."""
    gain = row.versus_eager
    if gain is not None and not gain.is_noise and gain.times <= 1:
        return NEVER
    return AT_ONCE if after == 0 else numbers.rough(after)


def _pays_epochs(row: TorchRow) -> str:
    after = row.pays_after_epochs
    return f"< {LEAST_EPOCHS:g}" if after and after < LEAST_EPOCHS else _pays(row, after)


def _reasons(rows: Sequence[TorchRow]) -> Iterator[Block]:
    """Why rungs have no time, and why some are less exact; a list item for each reason."""
    reasons = grouped(((row.rung.status, row.rung.reason), row.label) for row in broken(rows))
    rough = [row for row in rows if row.rung.status == "less exact"]
    if reasons or rough:
        yield Heading("Refused, wrong or less exact")
        told = [
            f"{_names(names)} {_is(names) if status in CALLED else ''}{STATUS[status]} ({_reason(why)})."
            for (status, why), names in reasons.items()
        ]
        told += [f"`{row.label}` is less exact ({_reason(row.rung.reason)})." for row in rough]
        yield Sentences(told, is_list=True)
    if any(row.rung.status == "wrong" for row in rows):
        yield Sentences([WHAT_NOW])


def _reason(text: str) -> str:
    return text.rstrip(".") or NO_REASON


def _is(names: Sequence[str]) -> str:
    return "is " if len(names) == 1 else "are "


def _names(names: Sequence[str]) -> str:
    return numbers.listing(f"`{name}`" for name in names)


def _ended(text: str) -> str:
    """A reason as the end of a sentence."""
    return f"{_reason(text)}."


def _what_to_write(verdict: TorchVerdict | None, programs: Programs | None) -> Iterator[Block]:
    """The recipe's changes, what leaving each out costs, and the difference between the two programs."""
    if verdict is None or (verdict.stays_eager and (programs is None or not programs.diff)):
        return
    yield Heading("What to write")
    if verdict.stays_eager:
        holds = "the usual loop" if verdict.chosen.name == EAGER else f"`{verdict.chosen.name}`"
        yield Sentences([f"Nothing: no rung saves time beyond the noise. `train_fast.py` holds {holds}."])
    else:
        count = numbers.count(len(verdict.changes), "change")
        wholes = {change.whole for change in verdict.changes if change.costs is not None}
        beside = wholes if len(wholes) > 1 else ()
        whole, marks = "the rung beside it" if beside else f"`{verdict.changes[-1].whole}`", ""
        if any(change.is_noise for change in verdict.changes):
            marks += " One within noise stays, as one at a time was left out."
        if any(change.costs is None for change in verdict.changes):
            marks += " A dash: not measured."
        yield Sentences([
            f"The recipe for {numbers.count(verdict.epochs, 'epoch')} is `{verdict.chosen.name}`: {count}, the "
            f"shortest set within 5% of the fastest as exact as eager mode. Without a change, "
            f"the whole training takes this many times as long as that of {whole}.{marks}"
        ])  # fmt: skip
        yield table_of(verdict.changes, [
            ColumnOf("change", lambda change: change.name),
            number("without it", lambda change: _costs(change.costs, is_noise=change.is_noise)),
            ColumnOf("compared with", lambda change: change.whole if change.whole in beside else "", 2),
            ColumnOf("what it does", lambda change: change.words, 1),
        ])  # fmt: skip
    if programs is not None and programs.diff:
        title = "The difference between `train_plain.py` and `train_fast.py`"
        yield Folded(title, [Code(title, programs.diff, "diff")])


def _costs(costs: float | None, *, is_noise: bool) -> str:
    if costs is None:
        return numbers.MISSING
    return "within noise" if is_noise else numbers.ratio(costs)


def _findings(results: TorchResults, rows: Sequence[TorchRow]) -> Iterator[Block]:
    """Lines that make the host wait, and notes on the model and its rungs."""
    yield from _waiting(results.model)
    yield Heading("Notes")
    notes = [*_on_reference(results)]
    for note, labels in grouped((note, row.label) for row in rows for note in row.rung.notes).items():
        notes.append(f"{numbers.listing(f'`{label}`' for label in labels)}: {_ended(note)}")
    yield Sentences([*notes, *_parents(results), *_disturbed(rows), *_on_time(results)], is_list=True)


def _parents(results: TorchResults) -> Iterator[str]:
    """Which parents this run lacks, so that a row has no speedup over its own."""
    timed = [(rung.parent, rung.name) for rung in results.rungs if rung.is_timed and rung.parent]
    for parent, names in grouped(pair for pair in timed if results.rung(pair[0]) is None).items():
        yield f"`{parent}`, the parent of {_names(names)}, was not run."


def _disturbed(rows: Sequence[TorchRow]) -> Iterator[str]:
    """What disturbed processes while they were timed, and which rungs' times it may have changed."""
    found = [
        (re.sub(r"\d+% of", "part of", re.sub("^waited", "it waited", reason)), row.label)
        for row in rows
        for process in row.rung.processes
        for reason in process.measured.disturbed
    ]
    for reason, labels in grouped(found).items():
        names = numbers.listing(f"`{label}`" for label in dict.fromkeys(labels))
        yield f"While a process was timed, {reason}; the times of {names} may be too long."


def _on_reference(results: TorchResults) -> Iterator[str]:
    reference, model = results.model.reference, results.model
    if reference == "float64":
        checks = " ".join(check.what for rung in results.rungs for check in rung.checks)
        steps = max(map(int, AFTER.findall(checks)), default=0)
        off = ", with dropout off" * model.has_dropout
        yield (
            f"Checked against float64{off}: parameters, optimizer state and losses after up to {steps} steps, but not "
            "the final quality of the model."
        )
    elif reference:
        yield f"Repeated eager runs are the reference: {_ended(reference)}"
    if not model.is_repeatable:
        yield "Two eager runs from the same parameters differ, so limits allow for that difference."


def _on_time(results: TorchResults) -> Iterator[str]:
    if results.seconds:
        took = {name: seconds for name, seconds in results.took_s.items() if seconds >= SHOWN_S}
        first_s = took.pop(FIRST_ROW, None)  # a moment, and no part of the rest
        parts = [f"{name} {numbers.duration(seconds)}" for name, seconds in took.items()]
        told = f": {numbers.listing(parts)}" if parts else ""
        first = f" Its first row came after {numbers.duration(first_s)}." if first_s else ""
        yield f"The run took {numbers.duration(results.seconds)}{told}.{first}"


def _check_in_words(check: TorchCheck) -> str:
    return f"{check.what} ({check.where})" if check.where else check.what


def check_screen(results: TorchResults) -> Screen:
    """Whether each rung is right: its check that comes nearest to a limit; nothing is timed."""
    rows = torch_rows(results)
    columns: list[ColumnOf[TorchRow]] = [
        ColumnOf("rung", attrgetter("label")),
        ColumnOf("check", lambda row: grade(row.rung), tones=TONES),
        number("error", lambda row: multiple(row.worst.error) if row.worst else numbers.MISSING, 1),
        number("limit", lambda row: multiple(row.worst.limit) if row.worst else numbers.MISSING, 1),
        number(ERROR_RATIO, _error_ratio, 2),
        ColumnOf("worst check", lambda row: _check_in_words(row.worst) if row.worst else "", 3),
        ColumnOf("same bits", lambda row: "yes" if row.rung.same_bits else "", 4),
    ]
    table = Table([column.over(rows) for column in columns], _group_headings(rows))
    blocks: list[Block] = [
        Sentences([_judged(rows)], "strong"),
        *_warned(results.model),
        Sentences([_subject(results.model)]),
    ]
    blocks += [table, Sentences([HOW_TO_READ_A_CHECK], "quiet"), *_reasons(rows), *_findings(results, rows)]
    return Screen(f"The check of {results.model.file}", origin(results), blocks, run_facts(results), "rungs")


def _judged(rows: Sequence[TorchRow]) -> str:
    """How many rungs have each status."""
    statuses = grouped((row.rung.status, row.name) for row in rows)
    counts = [f"{len(names)} {STATUS[status]}" for status, names in statuses.items()]
    return f"Of {numbers.count(len(rows), 'rung')}: {numbers.listing(counts)}." if counts else "The run has no rung."


def rung_screen(results: TorchResults, name: str) -> Screen:
    """One rung in full; raises ReportError if the run has none of this name."""
    rows = {row.name: row for row in torch_rows(results)}
    if name not in rows:
        near = difflib.get_close_matches(name, rows) or list(rows)
        raise ReportError(f"{name}: no such rung in this run; try {numbers.brief(near)}")
    row = rows[name]
    rung, doc = row.rung, row.rung.doc
    paragraphs = {"Why": doc.why, "Change": doc.change, "Expect": doc.expect, "Found": doc.found}
    rough: ColumnOf[TorchCheck] = number("less exact\nup to", lambda check: numbers.error(check.less_exact_limit), 1)
    blocks: list[Block] = [
        Sentences([_measured(row)], "strong"),
        Sentences([f"{title}: {text}" for title, text in paragraphs.items() if text], is_list=True),
        Sentences(list(_in_detail(row)), is_list=True),
        *([table_of(rung.checks, [*CHECK_COLUMNS, rough])] if rung.checks else []),
        *([Sentences(rung.notes, is_list=True)] if rung.notes else []),
    ]
    return Screen(f"{name}: {rung.words}", origin(results), blocks, {"rungs": plain_rows([row], COLUMNS)}, "rungs")


def _measured(row: TorchRow) -> str:
    """A rung's time and speedups, or why it has none."""
    if row.step_us is None:
        why = row.rung.reason if row.rung.status not in RIGHT else "it was judged, not timed"
        return f"`{row.name}` has no time ({STATUS[row.rung.status]}): {_ended(why)}"
    gains = []
    if row.versus_parent is not None:
        gains.append(row.versus_parent.as_fast_as(f"`{row.rung.parent}`"))
    if row.versus_eager is not None and row.rung.parent != "eager":
        gains.append(row.versus_eager.as_fast_as("eager mode"))
    told = f" and is {numbers.listing(gains)}" if gains else ""
    return f"`{row.name}` takes {numbers.spread_microseconds(row.step_us)} us per step{told}."


def _in_detail(row: TorchRow) -> Iterator[str]:
    rung = row.rung
    if rung.changed:
        yield f"It changes one choice of `{rung.parent}`, `{rung.changed}`."
    if row.first_step_s is not None:
        memory = f", and it needs at most {numbers.memory(row.peak_mib)}" if row.peak_mib is not None else ""
        yield f"Its first step ends after {numbers.seconds(row.first_step_s)}{memory}."
    if row.pays_after is not None:
        yield f"It pays off after {numbers.rough(row.pays_after)} steps, {numbers.rough(row.pays_after_epochs)} epochs."
    if row.step_joules is not None:
        yield f"A step draws {numbers.microseconds(row.step_joules)} J."
    same = ", and every parameter has the same bits" if rung.same_bits else ""
    if rung.error_ratio is not None:
        yield f"Its error is {_error_ratio(row)} the median one of eager runs in float32{same}."


def run_facts(results: TorchResults) -> Mapping[str, Any]:
    """The rows and the recommendation as plain data."""
    verdict = torch_verdict(results)
    told = None
    if verdict is not None:
        other = verdict.in_any_precision
        told = {
            "epochs": verdict.epochs,
            "steps": verdict.steps,
            "rung": verdict.chosen.name,
            "stays_eager": verdict.stays_eager,
            "versus_eager": _plain(verdict.versus_eager),
            "versus_fused_optimizer": _plain(verdict.versus_fused),
            "changes": [asdict(change) for change in verdict.changes],
            "fastest_in_any_precision": other.name if other is not None else None,
        }
    return {"model": results.model, "verdict": told, "rungs": plain_rows(torch_rows(results), COLUMNS)}


def _plain(gain: Ratio | None) -> dict[str, Any] | None:
    if gain is None:
        return None
    low, high = gain.interval
    return {"times": gain.times, "low": low, "high": high, "is_noise": gain.is_noise}


def _gain(whom: str, rank: int, key: str) -> ColumnOf[TorchRow]:
    """The column of a speedup, with more room also its interval."""
    gain = attrgetter(key)
    in_full: ColumnOf[TorchRow] = number(f"speedup\nover {whom}", lambda row: speedup(gain(row), in_full=True), 11)
    data = {key: lambda row: _plain(gain(row))}
    return number(f"step\nover\n{whom}", lambda row: speedup(gain(row)), rank, wider=in_full, data=data)


# fmt: off
IN_WORDS: ColumnOf[TorchRow] = ColumnOf("check", lambda row: SAME_BITS if row.rung.same_bits else grade(row.rung), 8,
                                        tones=TONES)
SPREAD: ColumnOf[TorchRow] = number("us per step\n(range)", lambda row: numbers.spread_microseconds(row.step_us), 3)
COLUMNS: Sequence[ColumnOf[TorchRow]] = (
    ColumnOf("rung", attrgetter("label"),
             data={"name": attrgetter("name"), "group": attrgetter("rung.group"), "regime": attrgetter("regime"),
                   "precision": attrgetter("rung.precision")}),
    number("us per\nstep", lambda row: numbers.microseconds(row.step_us.median if row.step_us else None), wider=SPREAD,
           data={"step_us": attrgetter("step_us")}),
    _gain("eager", 1, "versus_eager"),
    _gain("parent", 4, "versus_parent"),
    ColumnOf("parent", lambda row: row.rung.parent or "", 7, data={"parent": attrgetter("rung.parent")}),
    number(ERROR_RATIO, _error_ratio, 6, data={"error_ratio": attrgetter("rung.error_ratio")}),
    ColumnOf("check", lambda row: grade(row.rung), 1, tones=TONES, wider=IN_WORDS,
             data={"status": attrgetter("rung.status"), "same_bits": attrgetter("rung.same_bits"),
                   "reason": attrgetter("rung.reason"), "worst_check": attrgetter("worst")}),
    number("first\nstep", lambda row: numbers.seconds(row.first_step_s), 5,
           data={"first_step_s": attrgetter("first_step_s")}),
    number("steps\nto pay\noff", lambda row: _pays(row, row.pays_after), 10,
           data={"pays_after_steps": attrgetter("pays_after")}),
    number("epochs\nto pay\noff", _pays_epochs, 2,
           data={"pays_after_epochs": attrgetter("pays_after_epochs")}),
    number("memory", lambda row: numbers.memory(row.peak_mib), 6, data={"peak_mib": attrgetter("peak_mib")}),
    number("J/step", lambda row: numbers.microseconds(row.step_joules), 6,
           data={"step_joules": attrgetter("step_joules"), "processes": lambda row: len(row.rung.processes)}),
    ColumnOf("change", lambda row: row.rung.words if row.label == row.name else "", 9),
)
# fmt: on
