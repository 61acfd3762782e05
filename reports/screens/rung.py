"""The screens of a stage: all of it for `explain`, a few lines for a report, and the parts of its page."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from ladder.records.profile import KernelUse
from ladder.records.program import PROGRAM
from ladder.records.run import Check, Results, StageResult, Status
from reports.facts import numbers
from reports.facts.baselines import sm_mhz
from reports.facts.findings import found_of
from reports.facts.hidden_copies import overlap
from reports.facts.launch_regimes import change_in_full, change_in_words, in_network
from reports.facts.predictions import NOT_HERE
from reports.facts.profiles import agreement, host_lines, kernel_names, seen_by
from reports.facts.provenance import machine_name
from reports.facts.resolved_recipe import resolved_recipe
from reports.facts.run_table import FOUND, OF_ALL, disturbed_in_words, heading, measured_runs, reason, title_of
from reports.facts.stage_facts import StageFacts
from reports.facts.time_breakdown import Change, Profiled
from reports.facts.times import median_us
from reports.report_error import ReportError
from reports.screens.blocks import (
    Block,
    Column,
    ColumnOf,
    Folded,
    Group,
    Heading,
    Screen,
    Sentences,
    Table,
    Titled,
    number,
    table_of,
)
from reports.screens.check import CHECK_COLUMNS
from reports.screens.conclusion import given

NO_KERNELS = "{}: no kernel of it was profiled in this run, and CSV has a row for each; use --json"
MOST_KERNELS, MOST_KERNELS_IN_FULL = 6, 20  # rows of the table; a library may launch a hundred
LETTERS, LETTERS_IN_FULL = 18, 60  # of a kernel's name
LONGEST_BAR = 16  # letters
ALIKE = "Within noise of their parents"  # the heading of their table
PART_SHOWN = 0.05  # share of the largest part, and
STEP_SHOWN = 0.005  # ... of the step; a smaller part is not named
AFTER: dict[Status, str] = {
    "skipped": "leave the run out to take one that timed it",
    "failed": "repair it, then {}",
    "crashed": "repair it, then {}",
}


def moved(rung: StageFacts) -> str:
    """The parts of a step that changed most, in us: `launching -33.3; products -1.1; rest +0.4 us.`; empty in noise."""
    change = rung.change
    if change is None or change.is_noise:
        return ""
    parts = sorted(change.detailed_us.items(), key=lambda part: -abs(part[1]))
    least = max(PART_SHOWN * abs(parts[0][1]), STEP_SHOWN * change.slower_us)
    most = [(name, us) for name, us in parts if abs(us) >= least]
    rest_us = change.timed_us - sum(us for _, us in most)
    most += [("rest", rest_us)] * bool(most and abs(rest_us) >= least)
    problem = rung.results.problem
    named = [f"{in_network(name, problem)} {numbers.change(us, change.slower_us)}" for name, us in most]
    text = f"{'; '.join(named)} us." if named else ""
    if text and (change.parent.is_entangled or change.rung.is_entangled):
        text += " Its kernels overlap, so they are not divided by operation."
    return text


def measured_facts(rung: StageFacts) -> Iterator[tuple[str, str]]:
    """What was measured beside the time, as (words, number)."""
    stage, timing = rung.stage, rung.stage.timing
    if timing is None or not rung.us:
        return
    if rung.versus_parent is not None:
        yield f"as fast as {stage.below}", rung.versus_parent.text
    if (best := rung.lead_over_other) is not None:
        clock = ", on GPU time" if best.on_gpu_time else ""
        yield f"as fast as the fastest reference, {best.reference.name}{clock}", best.ratio.text
    if rung.floor_us:
        yield f"the floor of its design, {numbers.microseconds(rung.floor_us)} us", numbers.ratio(rung.times_floor)
    if stage.profile is not None:
        launches, kernels = stage.profile.launches_per_step, stage.profile.kernels_per_step
        calls = "calls from Python" if stage.device == "cpu" else "launches"
        yield f"{calls} and kernels per step", f"{numbers.per_step(launches)}, {numbers.per_step(kernels)}"
    if (clock_mhz := sm_mhz(stage)) is not None:
        yield f"cycles per step at {clock_mhz:,.0f} MHz", numbers.cycles(rung.step_cycles)
    if stage.metrics is not None and stage.metrics.test_accuracy is not None:
        yield "test accuracy", numbers.percent(stage.metrics.test_accuracy)
    if stage.metrics is not None and stage.metrics.validation:
        last = stage.metrics.validation[-1]
        text = f"loss {numbers.loss(last.loss)}, accuracy {numbers.percent(last.accuracy)}"
        yield f"its own validation after epoch {last.epoch}", text
    yield f"ms/epoch, {measured_runs(timing)}", numbers.spread_milliseconds(timing.epoch_s)
    if timing.gpu_epoch_s is not None:
        yield "ms/epoch between GPU events", numbers.milliseconds(timing.gpu_epoch_s)


def rung_screen(results: Results, name: str, run: Path | None = None, recorded: Path | None = None) -> Screen:
    """Where the time of a stage goes, from the run in a folder; one below `recorded` is named as a recorded run.

    Without a profile, it rests on what was measured beside it. Raises ReportError if the stage is not in the run, or
    has no time.
    """
    rung = StageFacts(found_stage(results, name), results)
    stage, profiled, advice = rung.stage, rung.profiled, rung.advice
    facts = {
        "run": str(run),
        "stage": name,
        "from": stage.below,
        "changed": stage.changed,
        "doc": stage.doc and replace(stage.doc, found=found_of(stage)),
        "step_us": median_us(stage),
        "split": profiled.profile.split if profiled else None,
        "kernels": profiled.profile.kernels if profiled else [],
        "recipe": stage.recipe,
        "bound": advice.bound if advice is not None else "",
        "next": advice.next if advice is not None else "",
    }
    recipe = _recipe(rung)
    blocks: list[Block] = [Heading(recipe[0]), recipe[1]] if recipe is not None else []
    if profiled is not None:
        blocks += _step(rung, profiled)
    elif stage.device != "cpu":
        blocks.append(Group(list(_measured(rung))))
    blocks.append(Group(list(bound(rung))))
    origin = f"{numbers.shortest(run)}: {heading(results, explained=True)}" if run is not None else ""
    is_recorded = run is not None and recorded is not None and run.resolve().is_relative_to(recorded.resolve())
    lead = list(_lead(rung, is_recorded=is_recorded))
    return Screen(_title(rung), origin, blocks, facts, "kernels", lead, no_rows=NO_KERNELS.format(stage.name))


def found_stage(results: Results, name: str) -> StageResult:
    """The stage of this name; raises ReportError if it is not in the run, or without a time."""
    names = [stage.name for stage in results.stages]
    if name not in names:
        near = difflib.get_close_matches(name, names) or names
        raise ReportError(f"{name}: no such stage in this run; try {numbers.brief(near)}")
    stage = results.stages[names.index(name)]
    if stage.status != "passed":
        why = f"{reason(stage)}); {AFTER[stage.status].format(_again(name, results))}"
        raise ReportError(f"{name}: {stage.status} in this run, so there is no time to explain ({why}")
    if stage.timing is None:
        raise ReportError(f"{name}: passed in this run without a time; measure it without --at-once")
    return stage


def _again(name: str, results: Results) -> str:
    """The command that measures a stage of a run's problem once more, with the user's files that its command named."""
    problem = results.problem
    command = f"{PROGRAM} --stages {name}"
    if problem.hidden:
        command += f" --hidden {','.join(map(str, problem.hidden))}"
    command += f" --batch-size {problem.batch_size}"
    command += "".join(f" --stage-file {shlex.quote(file)}" for _, file in given(results.command, ["--stage-file"]))
    counts = {"networks": problem.networks, "gpus": problem.gpus}
    return command + "".join(f" --{option} {count}" for option, count in counts.items() if count > 1)


def _title(rung: StageFacts) -> str:
    """The timed stage's name, its time, and its speed beside the rung that it climbs from."""
    stage, versus, problem = rung.stage, rung.versus_parent, rung.results.problem
    factor = f", {versus.as_fast_as(str(stage.below), spread=False)}" if versus else ""
    each_us = rung.network_us
    each = f" of {problem.networks} networks, {numbers.microseconds(each_us)} us per network-step" if each_us else ""
    words = change_in_words(stage, problem)
    what = stage.title if words.startswith("the same") else words  # as a stage that is not shown here
    return f"{stage.name} ({what}): {rung.us} us/step{each}{factor}"


def _lead(rung: StageFacts, *, is_recorded: bool) -> Iterator[Block]:
    """Where its time is from, doubts about that, and its docstring."""
    if is_recorded:
        yield Sentences([f"Recorded on another machine: {machine_name(rung.results)}."], "doubtful")
    if rung.results.problem.networks > 1:
        yield Sentences([OF_ALL])
    both = (rung.stage, rung.parent if rung.versus_parent else None)
    disturbed = [one.name for one in both if one and disturbed_in_words(one)]
    if disturbed:
        yield Sentences(
            [f"Other work or a falling clock disturbed the time of {numbers.listing(disturbed)}."], "doubtful"
        )
    yield from purpose(rung)
    yield from judgement(rung)


def purpose(rung: StageFacts) -> Iterator[Titled]:
    """Why the rung was tried and what it changes, as its docstring has it."""
    if (doc := rung.stage.doc) is not None:
        yield from _titled({"Why": doc.why, "Change": doc.change})


def judgement(rung: StageFacts) -> Iterator[Titled]:
    """What its author expected and, of a timed rung, predicted and found."""
    if (doc := rung.stage.doc) is not None:
        yield from _titled({"Expect": doc.expect})
        if rung.us:
            predicted, verdict = rung.outcome
            found = found_of(rung.stage)
            yield from _titled({"Predicted": f"{predicted}; {verdict}" if predicted else "", FOUND: found})


def bound(rung: StageFacts) -> Iterator[Titled]:
    """What bounds its step, and what to try."""
    if rung.advice is not None:
        yield from _titled({"Bound": rung.advice.bound, "Next": rung.advice.next})


def _titled(texts: dict[str, str]) -> Iterator[Titled]:
    return (Titled(title, text) for title, text in texts.items() if text)


def _recipe(rung: StageFacts) -> tuple[str, Table] | None:
    """The parts of its step, with the rung that chose each and the file that defines it, below a title."""
    parts = resolved_recipe(rung.stage, rung.results)
    if not parts:
        return None
    which = " that rungs changed"
    if all(part.file for part in parts):
        which = "" if any(part.name == "gemm" for part in parts) else "; the launch does the rest itself"
    return f"The parts of its step{which}", table_of(parts, [
        ColumnOf("part", lambda part: part.name),
        ColumnOf("chosen", lambda part: f"`{part.chosen}`"),
        ColumnOf("by", lambda part: f"`{part.rung}`" if part.rung else "", 1),
        ColumnOf("file", lambda part: f"`{part.file}`" if part.file else "", 2, tone="quiet"),
    ], is_named=False)  # fmt: skip


def _measured(rung: StageFacts) -> Iterator[Block]:
    """What is known without a profile, and how to get one."""
    words, values = zip(*measured_facts(rung), strict=True)
    yield Table([Column("measured", words), Column("", values)], is_named=False)
    failed = "; ".join(" ".join(reason.split()) for reason in rung.stage.unprofiled.values())
    way_out = f"record one where it runs: {_again(rung.stage.name, rung.results)} --profile cupti"
    yield Titled("No profile in this run", f"{failed}{'; ' if failed else ''}{way_out}")


def _step(rung: StageFacts, profiled: Profiled) -> Iterator[Block]:
    """The parts of a step, and its slowest kernels."""
    change, agreed = rung.change, agreement(rung.stage)
    told = [f"Profiled by {seen_by(profiled.profile)}; scaled to the time without the tool."]
    told += [_seen_of(change)] if change is not None else []
    told += [f"{agreed}."] if agreed else []
    yield Heading("Where a step's time goes, in us")
    yield Group([_parts(profiled, change), Sentences(told, "quiet")])
    if profiled.profile.kernels:
        yield Heading("The slowest kernels, as profiled")
        kernels = sorted(profiled.profile.kernels, key=lambda kernel: -kernel.us_per_step)[:MOST_KERNELS]
        yield _kernels(kernels, on_cpu=profiled.is_on_cpu)


def _seen_of(change: Change) -> str:
    """The share of the timed difference that the profiles saw before fitting."""
    parent = change.parent.stage.name
    if change.is_noise:
        return f"The difference from {parent} is within the noise."
    if (change.explained or 0) < 0:
        return f"Under the tool, the difference from {parent} has the other sign: do not trust the split."
    where = "in the kernels" if change.rung.is_on_cpu else "in the GPU's work"
    whole, work = (numbers.rough_share(us / change.timed_us) for us in (change.seen_us, change.seen_work_us))
    return f"Unscaled, the profiles differ from {parent}'s by {whole} of the timed difference, {where} alone by {work}."


def _parts(rung: Profiled, change: Change | None) -> Table:
    """Each part with its bar, its share, and its difference from the parent's."""
    parts = rung.detailed_us if rung.is_on_cpu else rung.parts_us
    changed: dict[str, float] = {}
    if change is not None:
        changed = change.detailed_us if rung.is_on_cpu else change.parts_us
        parts = {name: parts.get(name, 0.0) for name in changed}
        changed |= {"rest": change.rest_us, "timed": change.timed_us}
    total = sum(parts.values())
    longest = max(parts.values()) or 1.0
    shown = {**parts, "timed": rung.step_us}
    names = [*parts, *["rest"] * (change is not None), "timed"]
    return table_of(names, [
        ColumnOf("part", lambda name: name),
        ColumnOf("", lambda name: "█" * round(LONGEST_BAR * parts.get(name, 0.0) / longest), 3),
        number("us/step", lambda name: numbers.aligned(shown[name], total) if name in shown else ""),
        number("share", lambda name: numbers.share(parts[name] / total) if name in parts else "", 2),
        number(f"vs {change.parent.stage.name}" if change else "",
               lambda name: numbers.change(changed[name], total) if change else "", 1),
    ], is_named=False)  # fmt: skip


def _kernels(kernels: list[KernelUse], *, on_cpu: bool, in_full: bool = False) -> Table:
    """A row for each kernel; in full with its kind and its shared memory."""
    names = kernel_names((kernel.name for kernel in kernels), LETTERS_IN_FULL if in_full else LETTERS)
    shape: list[ColumnOf[KernelUse]] = [number("threads", lambda kernel: str(kernel.blocks), 1)]
    if not on_cpu:
        shape = [
            number("blocks", lambda kernel: f"{kernel.blocks:,}", 1),
            number("threads\na block", lambda kernel: f"{kernel.threads:,}", 2),
            number("registers", lambda kernel: str(kernel.registers), 4),
            number("shared\na block", lambda kernel: numbers.size(kernel.shared_bytes) if in_full else ""),
            number("occupancy", lambda kernel: numbers.share(kernel.occupancy), 3),
        ]
    return table_of(kernels, [
        ColumnOf("kernel", lambda kernel: names[kernel.name]),
        ColumnOf("kind", lambda kernel: kernel.kind if in_full else ""),
        number("us/step", lambda kernel: numbers.microseconds(kernel.us_per_step)),
        *shape,
        number("moved", lambda kernel: numbers.MISSING if kernel.bytes is None else numbers.size(kernel.bytes), 5),
        number("GB/s", lambda kernel: numbers.bandwidth(kernel.bytes, kernel.us_each).removesuffix(" GB/s"), 5),
    ])  # fmt: skip


def details(rung: StageFacts) -> Iterator[Folded]:
    """What a page unfolds of a rung: every kernel in the order of their start, the host's work, and its recipe."""
    if rung.profiled is not None and (kernels := rung.profiled.profile.kernels):
        shown = f"The first {MOST_KERNELS_IN_FULL} of {len(kernels)} kernels"
        title = shown if len(kernels) > MOST_KERNELS_IN_FULL else numbers.count(len(kernels), "kernel")
        host, amounts = zip(*host_lines(rung.profiled.profile), strict=True)
        agreed = f" {text}." if (text := agreement(rung.stage)) else ""
        yield Folded(f"{title} of a step", [
            _kernels(kernels[:MOST_KERNELS_IN_FULL], on_cpu=rung.profiled.is_on_cpu, in_full=True),
            Table([Column("host", host), Column("in an epoch", amounts)], is_named=False),
            Sentences([f"Profiled by {seen_by(rung.profiled.profile)}.{agreed}"], "quiet"),
        ])  # fmt: skip
    if (recipe := _recipe(rung)) is not None:
        yield Folded(recipe[0], [recipe[1]])


def checks(rung: StageFacts) -> Iterator[Folded]:
    """Every check of its results."""
    if made := rung.stage.checks:
        failed = {judged(check) for check in made if not check.passed}
        verdict: ColumnOf[Check] = ColumnOf("verdict", judged, tones=dict.fromkeys(failed, "bad"))
        every = table_of(made, [*CHECK_COLUMNS, verdict], is_named=False)
        yield Folded(f"{numbers.count(len(made), 'check')} of its results", [every])


def judged(check: Check) -> str:
    """Whether a check passed, or why it was not judged."""
    if check.passed and not check.judged:
        return f"not judged: {check.note}" if check.note else "not judged"
    return f"{'passed' if check.passed else 'failed'}{f' ({check.note})' if check.note else ''}"


def rung_in_short(rung: StageFacts) -> Iterator[Block]:
    """A rung in a report, without its parent if that was not timed, and without advice that its parent has too."""
    stage, factor = rung.stage, rung.versus_parent
    yield Heading(f"`{stage.name}`: {title_of(stage)}", 3)
    if stage.below:
        yield Sentences([f"From `{stage.below}`: {_change(rung)}"])
    if rung.reason:
        yield Titled(stage.status.capitalize(), rung.reason)
        return
    predicted, verdict = _outcome(rung)
    measured, gain = f"{rung.us} us", factor.text if factor is not None else ""
    if predicted:
        told = {"Predicted": predicted, "Measured": measured, "Speedup over parent": gain, "Verdict": verdict}
        yield Table([Column(title, [text]) for title, text in told.items()])
    elif rung.us:
        yield Titled("Measured", f"{measured}, {gain} as fast as `{stage.below}`." if gain else f"{measured}.")
    yield from _titled({"Moved": moved(rung)})
    yield Sentences([hidden] if rung.profiled is not None and (hidden := overlap(rung.profiled)) else [])
    if rung.advice is not None:
        before = StageFacts(rung.parent, rung.results).advice if rung.parent is not None else None
        is_said = before is not None and before.next == rung.advice.next
        yield Titled("Bound now", rung.advice.bound if is_said else str(rung.advice))


def alike_in_short(rungs: Sequence[StageFacts]) -> Iterator[Block]:
    """A row for each of some rungs that are as fast as their parents within noise."""
    if not rungs:
        return
    yield Heading(ALIKE, 3)
    yield table_of(rungs, [
        ColumnOf("Rung", lambda rung: f"`{rung.name}`: {title_of(rung.stage)}"),
        ColumnOf("Parent", lambda rung: f"`{rung.stage.below}`"),
        ColumnOf("Change", lambda rung: (change := _change(rung))[0].upper() + change[1:]),
        number("us/step", lambda rung: rung.us),
        ColumnOf("Predicted", lambda rung: _outcome(rung)[0]),
        ColumnOf("Verdict", lambda rung: _outcome(rung)[1]),
        ColumnOf("Where its time goes", lambda rung: str(rung.advice or "").partition(". ")[0]),
    ])  # fmt: skip


def _change(rung: StageFacts) -> str:
    """What it changes, and whether that changes anything here."""
    idle = " Here it runs the kernels of its parent, so nothing changes." * rung.runs_its_parents_kernels
    return f"{change_in_full(rung.stage, rung.results.problem)}.{idle}"


def _outcome(rung: StageFacts) -> tuple[str, str]:
    """The prediction for its time and the verdict on that; empty without a time, or for another machine."""
    predicted, verdict = rung.outcome
    return (predicted, verdict) if rung.us and not verdict.startswith(NOT_HERE) else ("", "")
