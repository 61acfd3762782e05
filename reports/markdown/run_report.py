"""`report.md`: a whole run, for a code host or an editor.

A verdict, the picture, the table, a screen for each rung. All else unfolds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from ladder.records.run import Results
from reports.facts import numbers
from reports.facts.baselines import sm_mhz
from reports.facts.glossary import glossary_lines
from reports.facts.numbers import line
from reports.facts.provenance import gpu_name, provenance, recorded
from reports.facts.summary import (
    BOUNDS,
    CYCLES,
    MARKS,
    caption,
    dataset_name,
    heading,
    reason,
    rows,
    table_order,
    validated,
)
from reports.facts.verdict import verdict_sentences
from reports.facts.warnings import NAMED_STAGES, Notice, notices
from reports.markdown.ablation_section import ablation_blocks
from reports.markdown.limits_section import limits_blocks, limits_heading
from reports.markdown.profile_section import profile_blocks
from reports.markdown.rung_section import reference_section, rung_section
from reports.markdown.tables import (
    BOUND_COLUMNS,
    CYCLE_COLUMNS,
    FEW_COLUMNS,
    REPORT_COLUMNS,
    bullets,
    cell,
    details,
    figure_links,
    notice_blocks,
    stage_table,
    table,
)

RUN_FIGURES = {"loss_distance.svg", "curves.svg"}  # the other figures stand in their own sections
WHOLE = "All columns of the table"
TERMS = (  # those of a report that it does not explain where they stand
    "784-10",
    "rung",
    "x of from",
    "within noise",
    "disturbed",
    "oracle",
    "cheat limit",
    "floor",
    "GPU time",
    "under the tool",
    "cluster",
    "AMP",
)
FEW_WORDS = (
    "us/step: microseconds a training step, the median of all runs. x of from: how many times as fast as the rung that "
    "it climbs from, with the spread over processes; below 1x it is slower. x of best reference: the same against the "
    "fastest reference that is at least as exact."
)


def report(results: Results, figures: Collection[str]) -> str:
    """The whole report; `figures` names the files in the folder `figures` beside it."""
    found = notices(results)
    rungs = [stage for stage in table_order(results) if stage.group != "reference" and stage.status != "skipped"]
    references = [stage for stage in table_order(results) if stage.group == "reference" and stage.status != "skipped"]
    blocks = [
        f"# {results.problem.network}, batch {results.problem.batch_size}, on {gpu_name(results) or 'a CPU'}",
        *notice_blocks([notice for notice in found if notice.loud]),
        " ".join(verdict_sentences(results)),
        *figure_links({"ladder.svg"} & set(figures), "figures"),
        *([] if figures else ["No stage was timed in this run, so there are no figures."]),
        f"{heading(results)}; {recorded(results)}.",
        stage_table(results, FEW_COLUMNS, skipped=False),
        " ".join(filter(None, (FEW_WORDS, _marks(results), _skipped(results)))),
        *(["## Rungs"] if rungs else []),
        *(block for stage in rungs for block in rung_section(stage, results)),
        "## Details",
        *details("How to read this report", [bullets(glossary_lines(TERMS))]),
        *details(WHOLE, _all_columns(results)),
        *details("References", (block for stage in references for block in reference_section(stage, results))),
        *details("Where a step's time goes, and what each rung changed", profile_blocks(results, figures)),
        *details("Ablations", ablation_blocks(results, figures)),
        *details(limits_heading(results), limits_blocks(results, figures)),
        *details("Distance from the oracle", figure_links(RUN_FIGURES & set(figures), "figures")),
        *details("Noise and notices", _noise(found)),
        *details("Provenance: problem, machine, command", _provenance(results)),
    ]
    return "\n\n".join(blocks) + "\n"


def _marks(results: Results) -> str:
    """The legend of the marks behind times; empty without any."""
    return MARKS if any(row.disturbed for row in rows(results)) else ""


def _skipped(results: Results) -> str:
    """A sentence with the skipped stages, or with their number and the commonest reason; empty without any."""
    skipped = [stage for stage in results.stages if stage.status == "skipped"]
    if not skipped:
        return ""
    if len(skipped) <= NAMED_STAGES:
        return f"Skipped: {numbers.listing(f'`{stage.name}`' for stage in skipped)}; the reasons are under *{WHOLE}*."
    ((why, number),) = Counter(map(reason, skipped)).most_common(1)
    most = f"{len(skipped)} stages, {number} of them for one reason: {line(why)}"
    return f"Skipped: {most}. All reasons are under *{WHOLE}*."


def _all_columns(results: Results) -> Iterator[str]:
    unknown: list[str] = []
    how_to_read = [caption(results)]
    for known, sentence, columns in (
        (any(sm_mhz(stage) is not None for stage in results.stages), CYCLES, CYCLE_COLUMNS),
        (results.limits is not None or results.cpu_limits is not None, BOUNDS, BOUND_COLUMNS),
    ):
        if known:
            how_to_read.append(sentence)
        else:
            unknown += columns
    yield stage_table(results, [name for name in REPORT_COLUMNS if name not in unknown])
    yield " ".join(how_to_read)


def _noise(found: Iterable[Notice]) -> Iterator[str]:
    if quiet := [notice for notice in found if not notice.loud]:
        yield bullets(notice.text for notice in quiet)


def _provenance(results: Results) -> Iterator[str]:
    yield provenance(results)
    yield table(("Setting", "Value"), _problem_lines(results))
    yield table(("Item", "Value"), _flat(results.environment))
    yield f"```\n{results.command}\n```"
    yield (
        f"Recorded {results.created}{_took(results)}. This report is rendered from the `results.json` beside it; "
        "`python run_ladder.py report PATH/results.json` renders it again, without a GPU."
    )


def _took(results: Results) -> str:
    """How long measuring took, and its parts; empty if the run did not record it."""
    if not results.seconds:
        return ""
    preparing = sum(process.took_s.get("prepare", 0.0) for stage in results.stages for process in stage.processes)
    text = f"; it took {results.seconds:.0f} s, {preparing:.0f} s of which prepared and compiled stages"
    parts = sorted(((seconds, part) for part, seconds in results.took_s.items() if seconds >= 0.5), reverse=True)
    return text + (f" ({', '.join(f'{part} {seconds:.0f}' for seconds, part in parts)})" if parts else "")


def _problem_lines(results: Results) -> Iterator[tuple[str, str]]:
    problem, settings = results.problem, results.settings
    yield "Network", f"{problem.network}, {'ReLU after every hidden layer' if problem.hidden else 'softmax regression'}"
    yield "Data", cell(f"{dataset_name(results)}, {problem.dataset_source}")
    yield "Images", f"{problem.train_images:,} for training, {problem.test_images:,} for testing"
    yield "Batch", f"{problem.batch_size}"
    yield "Learning rate", f"{problem.learning_rate:g}"
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
            why = f", not on a GPU: {results.oracle.not_on_gpu}" if results.oracle.not_on_gpu else ""
            yield "Oracle trained on", cell(f"the {results.oracle.device.upper()}{why}")
    for name, digest in problem.dataset_sha256.items():
        yield f"SHA-256 of {cell(name)}", f"`{digest}`"


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested mappings with their paths: `gpu driver`, `580.65`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name} {key}".replace("_", " ").strip())
        return
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    yield cell(name), numbers.MISSING if value in (None, "") else cell(str(value))
