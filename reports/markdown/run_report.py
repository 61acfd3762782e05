"""`report.md`: a whole run, for a code host or an editor."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ladder.records.profile import Profile
from ladder.records.run import Results, StageResult
from ladder.records.statistics import BOOTSTRAP_PROCESSES, MEDIAN_CONFIDENCE, median_interval
from reports.facts import numbers
from reports.facts.baselines import lead, ratio, sm_mhz, step_cycles, step_times_us
from reports.facts.numbers import line
from reports.facts.provenance import provenance
from reports.facts.summary import (
    BOUNDS,
    CYCLES,
    FOUND,
    caption,
    dataset_name,
    heading,
    measured_runs,
    reason,
    setbacks,
    table_order,
    title_of,
    validated,
)
from reports.facts.warnings import notices
from reports.markdown.ablation_section import ablation_blocks
from reports.markdown.limits_section import limits_blocks
from reports.markdown.profile_section import profile_blocks, stage_profile_blocks
from reports.markdown.tables import (
    BOUND_COLUMNS,
    CYCLE_COLUMNS,
    REPORT_COLUMNS,
    bullets,
    cell,
    figure_links,
    notice_blocks,
    stage_table,
    table,
)

RUN_FIGURES = {"loss_distance.svg", "curves.svg"}  # the other figures stand in their own sections


def report(results: Results, figures: Collection[str]) -> str:
    """The whole report; `figures` names the files in the folder `figures` beside it."""
    lost = setbacks(results)
    unknown: list[str] = []
    how_to_read = [caption(results)]
    for known, sentence, columns in (
        (any(sm_mhz(stage) is not None for stage in results.stages), CYCLES, CYCLE_COLUMNS),
        (results.limits is not None, BOUNDS, BOUND_COLUMNS),
    ):
        if known:
            how_to_read.append(sentence)
        else:
            unknown += columns
    blocks = [
        "# The optimisation ladder",
        heading(results) + ".",
        provenance(results),
        *figure_links({"ladder.svg"} & set(figures), "figures"),
        *notice_blocks(notices(results)),
        stage_table(results, [name for name in REPORT_COLUMNS if name not in unknown]),
        " ".join(how_to_read),
        *([bullets(lost)] if lost else []),
        *figure_links(RUN_FIGURES & set(figures), "figures"),
        *([] if figures else ["No stage was timed in this run, so there are no figures."]),
        *profile_blocks(results, figures),
        *ablation_blocks(results, figures),
        *limits_blocks(results, figures),
        "## Stages",
        *(block for stage in table_order(results) for block in _stage_section(stage, results)),
        "## Problem",
        table(("Setting", "Value"), _problem_lines(results)),
        "## Environment",
        table(("Item", "Value"), _flat(results.environment)),
        "## Command",
        f"```\n{results.command}\n```",
        f"Recorded {results.created}{_took(results)}. This report is rendered from the `results.json` beside it; "
        "`python run_ladder.py report PATH/results.json` renders it again, without a GPU.",
    ]
    return "\n\n".join(blocks) + "\n"


def _took(results: Results) -> str:
    """How long measuring took, and its parts; empty if the run did not record it."""
    if not results.seconds:
        return ""
    preparing = sum(process.took_s.get("prepare", 0.0) for stage in results.stages for process in stage.processes)
    text = f"; it took {results.seconds:.0f} s, {preparing:.0f} s of which prepared and compiled stages"
    parts = sorted(((seconds, part) for part, seconds in results.took_s.items() if seconds >= 0.5), reverse=True)
    return text + (f" ({', '.join(f'{part} {seconds:.0f}' for seconds, part in parts)})" if parts else "")


def _stage_section(stage: StageResult, results: Results) -> Iterator[str]:
    yield f"### `{stage.name}`: {line(title_of(stage))}"
    if stage.status != "passed":
        yield f"**{stage.status.capitalize()}**: {line(reason(stage))}"
    doc = stage.doc
    named = [] if doc is None else [("Why", doc.why), ("Change", doc.change), ("Expect", doc.expect)]
    named.append(("Measured", _measured(stage, results)))
    named.append((FOUND, doc.found if doc is not None else ""))
    paragraphs = [(name, text) for name, text in named if text]
    if paragraphs:
        yield table(("", ""), [(f"**{name}**", cell(text)) for name, text in paragraphs])
    yield from stage_profile_blocks(stage)
    if stage.checks:
        yield table(
            ("Check", "Error", "Limit", "Verdict"),
            [
                (cell(check.what), numbers.error(check.error), numbers.error(check.limit), _verdict(check.passed))
                for check in stage.checks
            ],
        )


def _measured(stage: StageResult, results: Results) -> str:
    """The stage's measurements in a sentence; empty without a time."""
    timing = stage.timing
    if timing is None or stage.status != "passed":
        return ""
    parts = [
        f"{numbers.spread_milliseconds(timing.epoch_s)} ms/epoch over {measured_runs(timing)}",
        *_known(stage, timing.steps_per_epoch),
        f"{numbers.microseconds(timing.step_us)} us/step{_in_cycles(stage)}",
        *_compared(stage, results),
    ]
    if timing.gpu_epoch_s is not None:
        parts.append(f"{numbers.milliseconds(timing.gpu_epoch_s)} ms/epoch between GPU events")
    if stage.profile is not None:
        parts.append(_counted(stage.profile))
    if timing.gpu_memory_mib is not None:
        parts.append(f"{numbers.memory(timing.gpu_memory_mib)} of GPU memory")
    parts.append(f"prepared in {numbers.duration(timing.prepare_s)}")
    if stage.metrics is not None:
        parts.append(f"final training loss {numbers.loss(stage.metrics.final_loss)}")
        if stage.metrics.validation:
            last = stage.metrics.validation[-1]
            result = f"{numbers.loss(last.loss)} and accuracy {numbers.percent(last.accuracy)}"
            parts.append(f"its own validation after epoch {last.epoch}: loss {result}")
    if timing.throttled:
        parts.append("the GPU was throttled")
    return "; ".join(parts) + "."


def _in_cycles(stage: StageResult) -> str:
    """The step in clock cycles, with the clock; empty without a clock."""
    clock, cycles = sm_mhz(stage), step_cycles(stage)
    return "" if clock is None else f" ({numbers.cycles(cycles)} cycles at {clock:,.0f} MHz)"


def _known(stage: StageResult, steps: int) -> Iterator[str]:
    """The interval of the median; nothing with too few processes."""
    times = step_times_us(stage)
    if len(times) >= BOOTSTRAP_PROCESSES:
        known = median_interval(times)
        low, high = (numbers.milliseconds(end * steps / 1e6) for end in (known.low, known.high))
        yield f"{MEDIAN_CONFIDENCE:.0%} interval of the median {low}-{high}, from {len(times)} processes"


def _compared(stage: StageResult, results: Results) -> Iterator[str]:
    """Its speed relative to the rung it climbs from, and to the fastest reference that counts for it."""
    parent = next((one for one in results.stages if one.name == stage.below), None)
    if parent is not None and (factor := ratio(parent, stage)) is not None:
        yield factor.saying(f" the speed of `{parent.name}`")
    if (found := lead(stage, results)) is None:
        return
    reference = found.reference
    on = f" on the {reference.device.upper()}" if reference.device else ""
    if reference is stage:
        yield f"the fastest {found.precision} reference{on}"
    else:
        clock = " on GPU time" if found.on_gpu_time else ""
        which = f"`{reference.name}` in {numbers.precision(reference.precision)}{on}"
        yield found.ratio.saying(f" of the fastest reference, {which}{clock}")


def _counted(profile: Profile) -> str:
    launches, kernels = numbers.per_step(profile.launches_per_step), numbers.per_step(profile.kernels_per_step)
    graphs = profile.graph_launches_per_epoch
    aside = f" ({numbers.count(round(graphs), 'graph')} an epoch)" if graphs else ""
    return f"launches per step {launches}{aside}, kernels per step {kernels}"


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


def _verdict(passed: bool) -> str:
    return "passed" if passed else "**failed**"
