"""The screens of a run: a table of one line a rung with what went wrong, and the whole report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from ladder.records.run import Results, StageResult, Status
from reports.facts import numbers
from reports.facts.energy import how_to_read_energy, why_none
from reports.facts.grouped import grouped
from reports.facts.launch_regimes import in_network
from reports.facts.predictions import HOW_TO_READ, judged
from reports.facts.profiles import stretched
from reports.facts.provenance import gpu_name, provenance
from reports.facts.run_table import (
    LACKING,
    MARK,
    STAGES,
    UNMARKED,
    disturbed_mark,
    heading,
    how_references_run,
    lacks_a_check,
    named,
    networks_in_words,
    not_made,
    reason,
    skipped_in_words,
    speedups,
    table_order,
    tree,
    yardsticks,
)
from reports.facts.stage_facts import StageFacts, all_stage_facts
from reports.facts.verdict import verdict_sentences
from reports.facts.warnings import not_made_in_words, notices
from reports.figures.canvas import Canvas
from reports.figures.chart import ChartLayout
from reports.figures.ladder import dots, headline
from reports.figures.run_figures import LADDER, OF_RUN
from reports.screens.blocks import Answers, Block, Figure, Folded, Group, Heading, Screen, Sentences
from reports.screens.conclusion import report_in
from reports.screens.details import energy
from reports.screens.rung import alike_in_short, moved, rung_in_short
from reports.screens.stages import ABOUT, BEST, FROM, STAR, UNDECIDED, remarks, report_table, row_facts, stage_table

REMARKS = {
    "throttled": "the GPU slowed itself down",
    "disturbed": "other work ran beside it",
    "shortened": "fewer epochs, to save time (--budget)",
    "may lose": "expected to, by a model of recorded runs",
}
REST = (
    "`python run_ladder.py report FOLDER` writes `report.html` beside this file, without a GPU: every column, kernel, "
    "timeline and check. docs/glossary.md explains the terms."
)
PASSED = "passed: parameters, loss and accuracy are those of NumPy in float64, within limits (docs/method.md)."
READ_RUNGS = (
    "*Moved* names the parts of a step that changed most, by each kernel's main work. A *peak* is the highest rate of "
    "products measured here in that precision. Rates are of the time in kernels, the roofline's of whole steps."
)
AHEAD, AHEAD_IN_WORDS = (  # a kernel that works before its step, as no reference does
    "neighbour_grams",
    "a second kernel, `neighbour_grams`, multiplies each batch with the one before it, in every timed epoch and beside "
    "the kernel that trains. A step's first product then uses the weights from before the last update, corrected by "
    "its gradient. That needs batches in a fixed order, which all stages have; no reference does so.",
)
# A design's arithmetic. Images are exact in one part: with them, there is a product for each part of the other factor.
SPLIT = re.compile(r"\d+ x (\w+) \((\d+) with images\)(?: on \d+ SMs)?")
NO_FIGURES: Mapping[str, Callable[[], Canvas]] = MappingProxyType({})
MOST_REASONS = 3  # lines on stages that failed or crashed; the report has all of them


def run_screen(results: Results) -> Screen:
    """A run; its report and what to do next follow it."""
    every = all_stage_facts(results)
    shown = [row for row in every if row.stage.status != "skipped"]
    missing = Sentences([skipped] if (skipped := _skipped(results)) else [])
    told = notices(results)
    loud = Sentences([notice.text for notice in told if notice.loud], "alarm", is_list=True)
    texts = [notice.text for notice in told]
    facts = {"problem": results.problem, "stages": row_facts(results, every), "notices": texts}
    blocks = [Group(list(_table(results, shown)))] if shown else []
    lead = [loud, missing, _broken(results)]
    return Screen(heading(results, explained=True), "", blocks, facts, "stages", lead)


def recorded_screen(results: Results, folder: Path, recorded: Results) -> Screen:
    """The recorded run that a machine without a GPU is shown, clearly apart from its own: the rungs of its picture."""
    own, theirs, shown = results.problem, recorded.problem, dots(recorded)
    title = f"Recorded on an {gpu_name(recorded)}, not on this machine: {theirs.network}, batch {theirs.batch_size}"
    is_same = (own.network, own.batch_size) == (theirs.network, theirs.batch_size)
    nearest = [] if is_same else [f"The nearest recorded run to your {own.network}, batch {own.batch_size}."]
    blocks: list[Block] = [
        Sentences([f"{headline(shown)}."], "strong"),
        stage_table(recorded, shown, partial(_how_to_read, shown)),
        Answers({"Its report": report_in(folder)}),
    ]
    return Screen(title, "", [Group(blocks)], recorded, "stages", [Sentences(nearest)])


def _few_words(shown: Sequence[StageFacts]) -> str:
    counts = sorted({len(row.stage.processes) for row in shown if row.stage.timing})
    few = [row.name for row in shown if row.stage.timing and len(row.stage.processes) == counts[0] < counts[-1]]
    but = f" ({numbers.brief(few)}: of {counts[0]})" if few else ""
    many = f" of {counts[-1]} process{'es' * (counts[-1] > 1)}{but}" if counts else ""
    return f"us/step: microseconds per training step, the median of all runs{many}."


def _passed(rungs: Sequence[StageFacts]) -> str:
    """What `passed` means, with the test accuracies of the fastest rung and its reference; empty without a time."""
    fastest = sorted((rung for rung in rungs if rung.us), key=lambda rung: rung.step_us or 0.0)[:1]
    both = [*fastest, *(StageFacts(one.lead.reference, one.results) for one in fastest if one.lead)]
    told = [f"{row.accuracy} by `{row.name}`" for row in both if row.test_accuracy is not None]
    learnt = f" Test accuracy: {numbers.listing(told)}." if told else ""
    return f"{PASSED}{learnt}" * bool(both)


def _lacking(results: Results) -> str:
    """What the mark behind `passed` means, with the reasons why checks were not made; empty if no stage has it."""
    if not any(lacks_a_check(stage, results) for stage in results.stages):
        return ""
    notes = [check.note for stage in results.stages for check in not_made(stage, results)]
    because = f", as {numbers.listing(dict.fromkeys(notes))}" if notes else ""
    return f"passed{LACKING}: some checks were not made{because}; the notices name them."


def report_screen(results: Results, drawn: Mapping[str, Callable[[], Canvas]] = NO_FIGURES) -> Screen:
    """The front page of a run for a code host or an editor, and a short screen a rung; `drawn` has its figures."""
    shown = [row for row in all_stage_facts(results) if row.stage.status != "skipped"]
    rungs = [row for row in shown if not row.is_reference]
    profiles = {rung.name: rung.profiled.profile for rung in rungs if rung.profiled}
    pictures = [Figure(file, figure.title, _drawn(drawn[file])) for file, figure in OF_RUN.items() if file in drawn]
    first = [picture for picture in pictures if picture.file == LADDER]
    others = [picture for picture in pictures if picture.file != LADDER]
    told, problem = notices(results), results.problem
    quiet = [notice.text for notice in told if not notice.loud]
    marks = {disturbed_mark(row.stage) for row in shown if row.us}
    how = (
        " ".join(filter(None, (STAGES, _several(rungs), tree(results)))),
        _few_words(shown),
        speedups(results) if any(row.versus_parent for row in rungs) else "",
        networks_in_words(results),
        yardsticks(results),
        how_references_run(results),
        f"In {ahead} {AHEAD_IN_WORDS}" if (ahead := _ahead(rungs)) else "",
        _split(rungs),
        *(f"{mark}: {words}." for mark, words in MARK.items() if mark in marks),
        UNMARKED if {*marks} - {""} else "",
        _passed(rungs),
        _lacking(results),
        HOW_TO_READ if judged(results) else "",
    )
    blocks: list[Block] = [
        Sentences(verdict_sentences(results), is_list=True),
        *first,
        Sentences([] if drawn else ["No stage was timed in this run, so there are no figures."]),
        Sentences([f"{heading(results)}; {provenance(results)}"]),
        report_table(results, shown),
        Sentences(list(filter(None, how)), is_list=True),
        *energy(results)[1:],  # without its heading
        *([Folded("Noise and notices", [Sentences(quiet, is_list=True)])] if quiet else []),
        Sentences([REST]),
        *([Heading("Rungs")] if rungs else []),
        Sentences([f"{in_network(READ_RUNGS, problem)} {stretched(profiles)}"] if any(map(moved, rungs)) else []),
        *(block for rung in rungs if not rung.is_as_its_parent for block in rung_in_short(rung)),
        *alike_in_short([rung for rung in rungs if rung.is_as_its_parent]),
        *([Heading("More pictures")] if others else []),
        *others,
    ]
    title = f"{named(problem)}, batch {problem.batch_size}, on {gpu_name(results) or 'a CPU'}"
    return Screen(title, "", blocks, results, "stages", [loud_notices([results])])


def _several(rungs: Sequence[StageFacts]) -> str:
    """A sentence on the rungs whose launch does the work of parts that their parents still have; empty without any."""
    of = {rung.name: {part.name for part in rung.stage.recipe if part.replaced} for rung in rungs}
    changed = [rung for rung in rungs if rung.versus_parent and of[rung.name] > of.get(rung.stage.below or "", set())]
    if not changed:
        return ""
    parts = sorted(set[str]().union(*(of[rung.name] for rung in changed)))
    names, also = numbers.listing(f"`{rung.name}`" for rung in changed), _ahead(changed)
    told = f"In {names} several change at once ({', '.join(parts)}{f'; work ahead in {also}' if also else ''})"
    return f"{told}: a speedup there is of all of them together."


def _split(rungs: Sequence[StageFacts]) -> str:
    """A sentence on the float32 rungs that multiply on tensor cores, and in how many parts a factor is; else empty."""
    designs = [(rung.name, rung.stage.bounds.design) for rung in rungs if rung.us and rung.stage.bounds]
    found = [(SPLIT.fullmatch(design.arithmetic), name) for name, design in designs if design]
    sums = grouped((f"of {match[2]} {match[1]} numbers", f"`{name}`") for match, name in found if match)
    each = ", and ".join(f"{of} in {numbers.listing(names)}" for of, names in sums.items())
    return f"Some float32 rungs multiply on tensor cores; each factor but the images is a sum {each}." if sums else ""


def _ahead(rungs: Sequence[StageFacts]) -> str:
    """The names of the rungs in which a profile saw a kernel that works ahead; empty without any."""
    known = [(rung.name, rung.profiled.profile.kernels) for rung in rungs if rung.profiled]
    names = [f"`{name}`" for name, kernels in known if AHEAD in [kernel.name for kernel in kernels]]
    return numbers.listing(names) if names else ""


def _drawn(draw: Callable[[], Canvas]) -> Callable[[ChartLayout], Canvas]:
    """A figure that knows its own layout."""
    return lambda _: draw()


def loud_notices(runs: Iterable[Results]) -> Sentences:
    """The notices of runs that nobody may miss, each once."""
    return Sentences(list({notice.text: None for run in runs for notice in notices(run) if notice.loud}), "alarm")


def untimed(results: Results, *statuses: Status) -> dict[tuple[Status, str], list[StageResult]]:
    """The stages that did not pass, or those with one of these statuses, by status and reason."""
    stages = (stage for stage in table_order(results) if stage.status != "passed")
    return grouped(
        ((stage.status, reason(stage)), stage) for stage in stages if not statuses or stage.status in statuses
    )


def _skipped(results: Results) -> str:
    """A sentence with the number of skipped stages and the commonest reason; empty without any."""
    skipped = {stage.name: reason(stage) for stage in results.stages if stage.status == "skipped"}
    return skipped_in_words(skipped, len(results.stages)) if skipped else ""


def _table(results: Results, shown: Sequence[StageFacts]) -> Iterator[Block]:
    yield stage_table(results, shown, lambda texts: _how_to_read(shown, texts))
    yield Sentences([told] if (told := networks_in_words(results)) else [])
    yield Sentences(list(filter(None, (how_to_read_energy(results), why_none(results)))), "quiet")
    yield Sentences(list(not_made_in_words(results)), "doubtful")


def _broken(results: Results) -> Sentences:
    """A line for each reason why stages failed or crashed."""
    broken = untimed(results, "failed", "crashed")
    lines = [
        f"{numbers.brief([one.name for one in stages])} {status}: {why}" for (status, why), stages in broken.items()
    ]
    if (more := len(lines) - MOST_REASONS) > 0:
        lines[MOST_REASONS:] = [f"{numbers.count(more, 'more reason')} in the report."]
    return Sentences(lines, "bad", is_list=True)


def _how_to_read(shown: Sequence[StageFacts], texts: Sequence[str]) -> str:
    """The meaning of the headers and marks that a writer shows."""
    of_row = [list(remarks(row)) for row in shown]
    said = {word for words in of_row for word in words}
    star = f"{STAR} " if STAR in texts else ""
    others = [word for word in REMARKS if any(word in words[1:] for words in of_row)]
    parts = ["over: times as fast as"] if {FROM, BEST} & set(texts) else []
    parts += ["best: the fastest reference as exact"] if BEST in texts else []
    parts += [f"{ABOUT}: within the noise"] if any(text.startswith(ABOUT) for text in texts) else []
    if any(text.startswith(UNDECIDED) for text in texts):
        parts.append(f"{UNDECIDED}: rounding decides some checks, as its controls show; the report names them")
    parts += [f"{star}{word}: {meaning}" for word, meaning in REMARKS.items() if word in said]
    if any(text.endswith(STAR) and text != STAR for text in texts):
        parts.append(f"{STAR}: also {' or '.join(others)}")
    return "; ".join(parts) + "." if parts else ""
