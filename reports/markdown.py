"""`report.md`: a run in full, to be read on a code host or in an editor."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ladder.results import Results, StageResult
from reports import format
from reports.summary import Notice, Row, caption, dataset_name, heading, notices, reason, rows

HEADER = (
    "Stage",
    "What changed",
    "ms/epoch (min-max)",
    "us/step",
    "vs below",
    "vs naive",
    "vs PyTorch",
    "Prepare",
    "Test accuracy",
    "Checked",
)
LEFT_ALIGNED = {"Stage", "What changed", "Checked"}
FIGURE_TITLES = {
    "epoch_time.svg": "Milliseconds an epoch, stage by stage",
    "loss_curves.svg": "Training loss by epoch, and its distance to the oracle's",
}


def report(results: Results, figures: Collection[str]) -> str:
    """The whole report; `figures` are the files that lie in the folder `figures` beside it."""
    by_name = {row.name: row for row in rows(results)}
    stages = {stage.name: stage for stage in results.stages}
    blocks = [
        "# The optimisation ladder",
        heading(results) + ".",
        *notice_blocks(notices(results)),
        stage_table(results),
        caption(results),
        *(figure_links(figures, "figures") or ["No stage was timed in this run, so there are no figures."]),
        "## Stages",
        *(block for name, row in by_name.items() for block in _stage_section(row, stages[name], by_name)),
        "## Problem",
        _table(("What", "Value"), _problem_lines(results)),
        "## Environment",
        _table(("What", "Value"), _flat(results.environment)),
        "## Made by",
        f"```\n{results.command}\n```",
        f"Recorded {results.created}. Everything here is a rendering of the `results.json` beside it, and is made "
        "again, with no GPU, by `python run_ladder.py report PATH/results.json`.",
    ]
    return "\n\n".join(blocks) + "\n"


def notice_blocks(found: Sequence[Notice]) -> list[str]:
    """Markdown for notices: a warning box for a loud one, a list for the others."""
    loud = [f"> [!WARNING]\n> **{_line(notice.text)}**" for notice in found if notice.loud]
    plain = "\n".join(f"- {_line(notice.text)}" for notice in found if not notice.loud)
    return [*loud, plain] if plain else loud


def figure_links(figures: Collection[str], folder: str) -> list[str]:
    """Images of those figures that were drawn, by relative links into the folder."""
    return [f"![{title}]({folder}/{name})" for name, title in FIGURE_TITLES.items() if name in figures]


def stage_table(results: Results) -> str:
    """The table of all stages: the rungs, then the references."""
    found = rows(results)
    lines = [_cells(row) for row in found if not row.is_reference]
    references = [_cells(row) for row in found if row.is_reference]
    if references:
        lines.append(["*References*"] + [""] * (len(HEADER) - 1))
    return _table(HEADER, [*lines, *references])


def _cells(row: Row) -> list[str]:
    return [
        _cell(row.label),
        _cell(row.changed),
        row.times,
        format.microseconds(row.step_us),
        format.ratio(row.versus_below),
        format.ratio(row.versus_naive),
        format.ratio(row.versus_torch),
        format.duration(row.prepare_s),
        format.percent(row.test_accuracy),
        _cell(row.verdict),
    ]


def _stage_section(row: Row, stage: StageResult, by_name: Mapping[str, Row]) -> Iterator[str]:
    yield f"### {_line(row.label)} (`{row.name}`)"
    if stage.status != "passed":
        yield f"**{stage.status.capitalize()}**: {_line(reason(stage))}"
    doc = stage.doc
    told = [] if doc is None else [("Why", doc.why), ("Change", doc.change), ("Expect", doc.expect)]
    told.append(("Measured", _measured(row, stage, by_name)))
    told.append(("Found", doc.found if doc is not None else ""))
    paragraphs = [(name, text) for name, text in told if text]
    if paragraphs:
        yield _table(("", ""), [(f"**{name}**", _cell(text)) for name, text in paragraphs])
    if stage.checks:
        yield _table(
            ("Check", "Error", "Limit", "Verdict"),
            [
                (_cell(check.what), format.error(check.error), format.error(check.limit), _verdict(check.passed))
                for check in stage.checks
            ],
        )


def _measured(row: Row, stage: StageResult, by_name: Mapping[str, Row]) -> str:
    """What came of the expectation, in a sentence; empty where nothing was timed."""
    timing = stage.timing
    if timing is None or stage.status != "passed":
        return ""
    runs = f"{format.count(len(timing.runs_s), 'run')} of {format.count(timing.epochs, 'epoch')}"
    parts = [
        f"{format.spread_milliseconds(timing.epoch_s)} ms/epoch over {runs}",
        f"{format.microseconds(timing.step_us)} us/step",
    ]
    if row.versus_below is not None and stage.below is not None:
        parts.append(f"{format.ratio(row.versus_below)} the speed of {by_name[stage.below].label}")
    if timing.gpu_epoch_s is not None:
        parts.append(f"{format.milliseconds(timing.gpu_epoch_s)} ms/epoch by the GPU's own events")
    parts.append(f"prepared in {format.duration(timing.prepare_s)}")
    if stage.metrics is not None:
        parts.append(f"training loss {format.loss(stage.metrics.final_loss)} at the end")
    if timing.throttled:
        parts.append("throttled while it ran")
    return "; ".join(parts) + "."


def _problem_lines(results: Results) -> Iterator[tuple[str, str]]:
    problem, settings = results.problem, results.settings
    yield "Network", f"{problem.network}, {'ReLU after every hidden layer' if problem.hidden else 'softmax regression'}"
    yield "Data", _cell(f"{dataset_name(results)}, {problem.dataset_source}")
    yield "Images", f"{problem.train_images:,} for training, {problem.test_images:,} for testing"
    yield "Batch", f"{problem.batch_size}"
    yield "Learning rate", f"{problem.learning_rate:g}"
    yield "Epochs", f"{problem.epochs}; sparse metrics every {problem.metrics_every}"
    yield "Seed", f"{problem.seed}"
    yield (
        "Measured",
        f"{format.count(settings.rounds, 'round')} of {format.count(settings.repeats, 'run')}, each process after "
        f"{format.count(settings.warmups, 'warm-up')}; {format.duration(settings.budget_s)} a stage",
    )
    if results.oracle is not None:
        yield "Oracle's test accuracy", format.percent(results.oracle.test_accuracy)
    for name, digest in problem.dataset_sha256.items():
        yield f"SHA-256 of {_cell(name)}", f"`{digest}`"


def _flat(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested dictionaries, each with its path: `gpu driver`, `580.65`."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{name} {key}".replace("_", " ").strip())
        return
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    yield _cell(name), format.MISSING if value in (None, "") else _cell(str(value))


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = ["---" if name in LEFT_ALIGNED or header != HEADER else "---:" for name in header]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))


def _verdict(passed: bool) -> str:
    return "passed" if passed else "**failed**"


def _line(text: str) -> str:
    """Text that is not ours on one line, with nothing in it, code apart, that would be taken for HTML."""
    return re.sub(r"(`[^`]*`)|<", lambda found: found[1] or "&lt;", " ".join(text.split()))


def _cell(text: str) -> str:
    """The same inside a table, where a bar would begin another cell."""
    return _line(text).replace("|", "\\|")
