"""The tables and sentences that README and the pages of docs/ take from the recorded runs, each between two markers.

A recorded run is a folder `results/reference/<gpu or cpu>/<problem>` with its `results.json`, `report.md` and
`figures/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations, groupby
from operator import itemgetter
from pathlib import Path, PurePosixPath
from statistics import median, mode

from ladder.records.run import Results, StageCode, StageResult, all_results, load
from ladder.records.statistics import VERDICT_CONFIDENCE
from ladder.records.study import INDEX, Published, Study
from ladder.records.torch_run import TorchResults
from reports.facts import numbers
from reports.facts.baselines import Lead, fastest, overall_winner, ratio, winners
from reports.facts.grouped import grouped
from reports.facts.launch_regimes import HEADINGS, change_in_words, regime
from reports.facts.provenance import commit, gpu_name, gpus_name, machine_name, recorded
from reports.facts.ratios import Ratio
from reports.facts.run_table import (
    FASTEST_REFERENCE,
    MARK,
    ON_GPU_TIME,
    disturbed_mark,
    heading,
    headline_rungs,
    timed_rungs,
)
from reports.facts.study_points import StudyResults, load_results, overall_winners, point_text
from reports.facts.times import median_us
from reports.figures import ladder
from reports.figures.canvas import Canvas
from reports.figures.chart import BESIDE
from reports.figures.run_figures import LADDER, seeds_of
from reports.figures.torch_ladder import torch_ladder
from reports.markdown.climb import FOLDER
from reports.markdown.own_models import front_model, own_models
from reports.screens.run import loud_notices
from reports.writers.markdown import cell, code, in_markdown, picture, table

PICTURED = "Step times by rung"
IN_TABLE = 8  # rungs of README's table; the picture has more
Runs = Sequence[tuple[str, Results]]  # each run with its folder, relative to the page
HOW_TO_READ_NETWORKS = (
    "us/step of `cuda-graph`, and of the fastest rung in each class of precision beside its reference. Lead: the "
    f"speedup over {FASTEST_REFERENCE}, with its {VERDICT_CONFIDENCE:.1%} interval. Bold: the fastest rung. "
    f"{ON_GPU_TIME}"
)

HOW_TO_READ_GPUS = (
    "*Fastest* counts what both timed. *Rungs* are those whose kernels a graph launches, or that are one kernel; "
    "*All of them* is their median, with the range over rungs. Where commits differ, kernels may."
)


class RecordedRuns:
    """The recorded runs and studies, each read once, the plans of all studies, and the code of today's stages."""

    def __init__(
        self, reference: Path, plans: Sequence[Study] = (), code_today: Mapping[str, StageCode] | None = None
    ) -> None:
        self.reference, self.plans, self.code_today = reference, plans, code_today or {}

    @cached_property
    def _runs(self) -> list[tuple[Path, Results]]:
        return [(file.parent, load(file)) for file in all_results(self.reference, "*/*")]

    @cached_property
    def studies(self) -> list[StudyResults]:
        """Each study, of the GPU that was recorded last."""
        every = [load_results(path.parent) for path in sorted(self.reference.glob(f"*/studies/*/{INDEX}"))]
        every.sort(key=lambda study: max(run.created for run in study.runs.values()))
        newest = {study.study.name: study for study in every}
        return [newest[name] for name in sorted(newest)]

    def runs(self, page: Path, *, on_cpu: bool = False) -> Runs:
        """The runs on GPUs, or those that climbed the ladder on a CPU, the shallowest network first."""
        runs = [(PurePosixPath(os.path.relpath(at, page.parent)).as_posix(), run) for at, run in self._runs]
        return sorted((run for run in runs if _is_of_cpu(run[1]) == on_cpu), key=_by_gpu_and_depth)


def pictures(runs: Runs, reference: Path) -> dict[str, tuple[str, str, Canvas]]:
    """The pictures that stand side by side on the front page, by their headings: a title, a file, and the drawing.

    They show the first run with a timed rung on the front page's GPU, and a recorded PyTorch model, if there are such.
    """
    timed = [run for _, run in _on_front_page(runs) if headline_rungs(run, IN_TABLE)][:1]
    models = [model for model in [front_model(reference)] if model is not None and timed]
    return {
        **{_title(run.problem.network, run): (PICTURED, f"docs/{LADDER}", ladder.drawn(run, BESIDE)) for run in timed},
        **{
            _title(model.model.file, model): (PICTURED, "docs/ladder-torch.svg", torch_ladder(model, BESIDE))
            for model in models
        },
    }


def _title(what: str, run: Results | TorchResults) -> str:
    """What a picture is of: `784-10, H100 80GB HBM3`."""
    return ", ".join(filter(None, (what, _gpu_alone(run))))


def _gpu_alone(run: Results | TorchResults) -> str:
    return gpu_name(run).replace("NVIDIA ", "")


def pictures_block(drawn: Mapping[str, tuple[str, str, Canvas]]) -> str:
    """The pictures side by side below their headings; empty without any."""
    return table(list(drawn), [[picture(title, file) for title, file, _ in drawn.values()]]) if drawn else ""


def ladder_block(runs: Runs) -> str:
    """The ladder of the first run on that GPU: at most `IN_TABLE` rungs, each beside its parent."""
    return "\n\n".join(block for folder, run in _on_front_page(runs)[:1] for block in _ladder(folder, run) if block)


def _on_front_page(runs: Runs) -> Runs:
    """The runs of the GPU of which README and the climb tell, else of the one that was recorded last."""
    last = max(runs, key=lambda run: (f"/{FOLDER}/" in f"/{run[0]}/", run[1].created), default=None)
    return [run for run in runs if last and _gpu(run) == _gpu(last)]


def networks_block(runs: Runs) -> str:
    """How to read the tables, and one for each GPU: the fastest rung and reference of every recorded run."""
    blocks = [block for gpu, group in groupby(runs, key=_gpu) for block in _networks(list(group), gpu) if block]
    return "\n\n".join([HOW_TO_READ_NETWORKS, *blocks]) if blocks else ""


def gpus_block(runs: Runs) -> str:
    """For each pair of GPUs a table of the networks that both recorded; empty without any."""
    networks = grouped(((run.problem.network, run.problem.batch_size), run) for _, run in runs).values()
    pairs = grouped(((_gpu_alone(a), _gpu_alone(b)), (a, b)) for of in networks for a, b in combinations(of, 2))
    blocks = []
    for (first, second), both in pairs.items():
        columns = ("Network, batch", "`cuda-graph`", "Fastest rung", "Fastest reference", "Rungs", "All of them")
        lines = [_beside(one, other) for one, other in both]
        how = f"us/step on an {first} and on an {second}, and the speedup of the latter. {HOW_TO_READ_GPUS}"
        commits = f"Commits, {first} and {second}"
        blocks.append(f"{how}\n\n{table((*columns, commits), lines, right=[False] * 7)}")
    return "\n\n".join(blocks)


def _beside(one: Results, other: Results) -> tuple[str, ...]:
    """A network's row. Rungs whose kernels the host launches are left out of the last ratio: they show the host."""
    before = {stage.name: stage for stage in one.stages}
    found = [(stage, speedup) for stage in other.stages if (speedup := ratio(before.get(stage.name), stage))]
    references = [(stage, speedup) for stage, speedup in found if stage.group == "reference"]
    rungs = [(stage, speedup) for stage, speedup in found if stage.group != "reference"]
    gains = sorted(speedup.times for stage, speedup in rungs if regime(stage) in ("graph", "one kernel"))

    def shown(stage: StageResult | None) -> str:
        cells = [f"{code(s.name)} {_step(before[s.name])}, {_step(s)}: {gain.text}" for s, gain in found if s is stage]
        return cells[0] if cells else numbers.MISSING

    return (
        f"{other.problem.network}, {other.problem.batch_size}",
        shown(other.stage("cuda-graph")).removeprefix("`cuda-graph` "),
        shown(fastest(stage for stage, _ in rungs)),
        shown(fastest(stage for stage, _ in references)),
        str(len(gains)),
        numbers.ratio_spread(median(gains), gains[0], gains[-1]) if gains else numbers.MISSING,
        f"{commit(one)[:COMMIT_DIGITS]}, {commit(other)[:COMMIT_DIGITS]}",
    )


def repeats_block(reference: Path) -> str:
    """How far apart the recordings of a stage lie, where one GPU recorded its network more than once; empty without.

    The study of curves, which times short runs only, and runs to an accuracy are left out.
    """
    runs = [load(file) for file in all_results(reference, "**") if CURVES not in file.parts]
    whole = [run for run in runs if gpu_name(run) and run.settings.target_accuracy is None]
    timed = ((_same(run, stage), stage) for run in whole for stage in run.stages if stage.device == "gpu")
    apart: dict[str, list[tuple[float, str]]] = {}
    for (network, name, *_), stages in grouped(timed).items():
        us = sorted(us for stage in stages if (us := median_us(stage)) is not None)
        waits = any(regime(stage) == "host" for stage in stages)
        kind = LAUNCHED if waits else "other references" if stages[0].group == "reference" else "other rungs"
        if len(us) > 1:
            ends = " to ".join(map(numbers.microseconds, (us[0], us[-1])))
            apart.setdefault(kind, []).append((us[-1] / us[0] - 1, f"{code(name)} in {network}, {ends} us"))
    lines = [
        (kind, str(len(found)), numbers.share(median(share for share, _ in found)), *_largest(found))
        for kind, found in sorted(apart.items())
    ]
    columns = ("Stages", "Compared", "Median difference", "Largest difference", "Of")
    return table(columns, lines, right=[False, True, True, True, False]) if lines else ""


def _same(run: Results, stage: StageResult) -> tuple[str, str, str, int, int, int | None, int]:
    """What two recordings of a stage must have in common to be compared."""
    its = run.problem
    by = its.batch_size, its.networks, its.max_steps, its.validate_every
    return its.network, stage.name, gpus_name(run), *by


def _largest(found: list[tuple[float, str]]) -> tuple[str, str]:
    share, words = max(found)
    return numbers.share(share), words


def cpu_block(runs: Runs) -> str:
    """A row for each network recorded on a CPU: its fastest rung beside the fastest reference; empty without any."""
    if not runs:
        return ""
    origin = "\n".join(dict.fromkeys(f"{recorded(run)}." for _, run in runs))
    columns = ("Network, batch", "`cpu-loops`", "Fastest rung", "us/step", "Fastest reference", "us/step", "Lead")
    lines = [(_link(folder, run), *_fastest_on_cpu(run)) for folder, run in runs]
    return f"{origin}\n\n{table(columns, lines, right=[False, True, False, True, False, True, True])}"


def _fastest_on_cpu(run: Results) -> tuple[str, ...]:
    loops = _step(run.stage("cpu-loops"))
    best = overall_winner(run)
    if best is None:
        return (loops, *[numbers.MISSING] * 5)
    reference = (code(best.reference.name), numbers.microseconds(best.reference_us))
    return (loops, code(best.stage.name), _step(best.stage), *reference, best.text)


def _is_of_cpu(run: Results) -> bool:
    """Whether a run climbed the ladder on a CPU, on a machine without a GPU."""
    return not gpu_name(run) and any(stage.group == "cpu" for stage in run.stages)


def _by_gpu_and_depth(run: tuple[str, Results]) -> tuple[str, int, list[int]]:
    hidden = run[1].problem.hidden
    return _gpu(run), len(hidden), hidden


def _gpu(run: tuple[str, Results]) -> str:
    return PurePosixPath(run[0]).parent.name.upper()


def _networks(runs: Runs, gpu: str) -> Iterator[str]:
    yield f"### Every recorded network, on {gpu}"
    yield in_markdown([loud_notices(run for _, run in runs)])
    columns = ("Network, batch", "Precision", "`cuda-graph`", "Fastest rung", "us/step", "Fastest reference", "us/step")
    lines = [(_link(folder, run), *cells) for folder, run in runs for cells in _winners(run)]
    yield table((*columns, "Lead"), lines, right=[False, False, True, False, True, False, True, True])
    passed = [stage for _, run in runs for stage in run.stages if stage.status == "passed"]
    disturbed = sum(any(process.disturbed for process in stage.processes) for stage in passed)
    yield f"{disturbed} of {numbers.count(len(passed), 'stage')} had a disturbed process."


def _link(folder: str, run: Results) -> str:
    return f"[{run.problem.network}, {run.problem.batch_size}]({folder}/report.md)"


def _winners(run: Results) -> list[tuple[str, ...]]:
    """A line for each class of precision; one of dashes if there is nothing to compare."""
    best = overall_winner(run)
    return [
        (
            winner.precision,
            _step(run.stage("cuda-graph")) if winner.precision == "float32" else "",
            code(winner.stage.name),
            _step(winner.stage),
            ", ".join(filter(None, (code(winner.reference.name), cell(winner.reference.detail)))),
            numbers.microseconds(winner.reference_us),
            f"**{winner.text}**" if best and winner.stage is best.stage else winner.text,
        )
        for winner in winners(run)
    ] or [(numbers.MISSING,) * 7]


def _step(stage: StageResult | None) -> str:
    return numbers.microseconds(median_us(stage))


def _ladder(folder: str, results: Results) -> Iterator[str]:
    shown = headline_rungs(results, IN_TABLE)
    yield f"### {heading(results)}"
    yield f"{recorded(results)}."
    yield in_markdown([loud_notices([results])])
    report = f"[report]({folder}/report.md)"
    if not shown:
        yield f"No rung was timed in this run; its {report} says why."
        return
    rows, columns = [*_rows(shown, results)], ("Rung", "Parent", "What changes", "us/step", "Speedup over parent")
    yield table(columns, rows, right=[False] * 3 + [True] * 2)
    noise = " `*`: within noise of its parent." * any(cells[-1].endswith("*") for cells in rows if cells[0])
    more = len(timed_rungs(results, with_ablations=False)) - len(shown)
    others = f"The {report} has {numbers.count(more, 'more timed rung') if more else 'the rest'}."
    yield (
        f"Brackets hold [{VERDICT_CONFIDENCE:.1%} intervals](docs/statistics.md).{noise}"
        f"{_marks(map(disturbed_mark, shown))} {others}"
    )


def _rows(shown: Sequence[StageResult], results: Results) -> Iterator[tuple[str, ...]]:
    """A row for each rung, below what launches the kernels of those that follow."""
    stages = {stage.name: stage for stage in shown}
    for launched, rungs in groupby(shown, regime):
        yield "", "", f"*{HEADINGS[launched]}:*", "", ""
        for stage in rungs:
            below = stages.get(stage.below or "")
            gain = _gain(factor) if (factor := ratio(below, stage)) else numbers.MISSING
            parent, change = stage.below and code(stage.below), change_in_words(stage, results.problem)
            yield code(stage.name), parent or "", cell(change), f"{_step(stage)}{disturbed_mark(stage)}", gain


def _gain(gain: Ratio) -> str:
    """A rung's speedup over its parent, in short."""
    return f"{numbers.ratio(gain.times)}*" if gain.is_noise else gain.text


def _marks(found: Iterable[str]) -> str:
    """What the marks behind times say; empty without any."""
    return "".join(f" {mark}: {MARK[mark]}." for mark in sorted({*found} - {""}))


def published_block(plans: Sequence[Study], recorded: Sequence[StudyResults]) -> str:
    """The table, a row for each published number; empty without any."""
    lines = [line for plan in plans for line in _lines(plan, recorded)]
    return table(("Study", "Publication", "Measure", "Published", "Their GPU", "Ours"), lines) if lines else ""


def _lines(plan: Study, recorded: Sequence[StudyResults]) -> Iterator[tuple[str, ...]]:
    mine = [results for results in recorded if results.study.name == plan.name]
    for row in plan.published:
        ours = "; ".join(filter(None, (_ours(row, results) for results in mine)))
        who = f"[{cell(row.who)}]({row.link})" if row.link else cell(row.who)
        waits = "not recorded yet" if row.measure else numbers.MISSING
        yield f"`{plan.name}`", who, cell(row.what), cell(row.value), cell(row.gpu), cell(ours or waits)


def _ours(row: Published, results: StudyResults) -> str:
    """Our number for the same measure, with the stage and the GPU; empty without one."""
    run = results.runs.get(row.at)
    if run is None or row.measure is None:
        return ""
    stage = run.stage(row.of) if row.of else fastest(rung for rung in run.stages if rung.group != "reference")
    us = median_us(stage)
    if stage is None or stage.timing is None or us is None:
        return ""
    where = f"{stage.name} in {numbers.precision(stage.precision)} on {gpu_name(run) or 'a CPU'}"
    cut = f", {run.problem.max_steps} steps per epoch" if run.problem.max_steps else ""
    if row.measure == "epoch":
        return f"{numbers.milliseconds(stage.timing.epoch_s.median)} ms/epoch ({where}{cut})"
    if row.measure == "step":
        return f"{numbers.microseconds(us)} us/step ({where}{cut})"
    factor = ratio(run.stage(row.than), stage)
    return f"{factor.text}, {where}" if factor is not None else ""


COMMIT_DIGITS = 7


def leads_block(runs: Runs, studies: list[StudyResults]) -> str:
    """Rows of the largest and of the smallest lead in the newest runs and all studies."""
    newest = {run.problem.network: run for _, run in sorted(runs, key=lambda run: run[1].created)}
    every = [(_of(run), run, winner, winner.text) for run in newest.values() if (winner := overall_winner(run))]
    every += [
        (f"`{found.study.name}`, {point_text(at.point)}", found.runs[at.point.name], at.lead, at.text)
        for found in _timed(studies)
        for at in overall_winners(found)
    ]
    if not every:
        return ""
    every.sort(key=lambda row: row[2].ratio.times)
    lines = [_lead_line("Largest", *every[-1]), _lead_line("Smallest", *every[0])]
    columns = ("", "GPU", "Rung", "Reference", "Lead")
    marks = _marks(_mark(best) for _, _, best, _ in (every[-1], every[0]))
    code_of = f"Recorded by [older code](docs/status.md#recorded), {_days(run for _, run, _, _ in every)}."
    return f"{table(columns, lines, right=[False] * 4 + [True])}\n\n{code_of}{marks}"


def _mark(best: Lead) -> str:
    """The mark of a lead of which other work disturbed a time."""
    return max(map(disturbed_mark, (best.stage, best.reference)))


def _lead_line(which: str, where: str, run: Results, best: Lead, text: str) -> tuple[str, ...]:
    names = code(best.stage.name), code(best.reference.name)
    return f"{which}: {where}", cell(_gpu_alone(run)), *names, cell(f"{text}{_mark(best)}")


def _of(run: Results) -> str:
    return f"{run.problem.network}, batch {run.problem.batch_size}"


def leads_table(studies: list[StudyResults]) -> str:
    """The fastest rung's lead at every point of the studies, its commit, and its GPU where most others have another."""
    timed = [results for results in _timed(studies) if results.runs]
    gpus = [gpus_name(next(iter(results.runs.values()))) for results in timed]
    here = mode(gpus) if gpus else ""
    lines = [
        (
            f"`{results.study.name}`" + f", {gpu.replace('NVIDIA ', '')}" * (gpu != here),
            cell(point_text(winner.point)),
            code(winner.lead.stage.name),
            code(winner.lead.reference.name),
            cell(winner.in_full),
            commit(results.runs[winner.point.name])[:COMMIT_DIGITS],
        )
        for results, gpu in zip(timed, gpus, strict=True)
        for winner in overall_winners(results)
    ]
    columns = ("Study", "Point", "Fastest rung", "Fastest reference", "Lead", "Commit")
    return table(columns, lines, right=[False] * 4 + [True, False]) if lines else ""


def _timed(studies: Sequence[StudyResults]) -> list[StudyResults]:
    """All but those of curves, which time short runs only."""
    return [results for results in studies if not seeds_of(results)]


LAUNCHED = "launched by the host"
CURVES = "loss-curves"  # the study that times short runs only
OLDER = "older hashes"  # which nobody can compare with today's
STUDIES = "studies"  # the folder beside a machine's networks


def recorded_code_block(reference: Path, today: Mapping[str, StageCode]) -> str:
    """A line for each machine and commit, the newest first; a row is a stage that passed in one run.

    `today` has the hashes of every stage's code.
    """
    runs = [(file.parent.relative_to(reference).parts, load(file)) for file in all_results(reference, "**")]
    runs.sort(key=lambda run: run[1].created, reverse=True)
    schemes = {now.scheme for now in today.values()}
    lines = []
    for (machine, at), group in grouped(((machine_name(run), commit(run)), (path, run)) for path, run in runs).items():
        by_name = sorted(group, key=itemgetter(0))
        names = dict.fromkeys(code(path[2]) if STUDIES in path else run.problem.network for path, run in by_name)
        rows = [stage for _, run in by_name for stage in run.stages if stage.status == "passed"]
        other = [code(row.name) for row in rows if row.code != today.get(row.name)]
        same = "none" if other else "all"
        if not schemes & {row.code.scheme for row in rows if row.code} and schemes:
            same = OLDER
        elif 0 < len(other) < len(rows):
            same = f"{len(rows) - len(other):,}, not {numbers.listing(dict.fromkeys(other))}"
        lines.append((*_when(machine, at, [run for _, run in group]), ", ".join(names), f"{len(rows):,}", same))
    models = own_models(reference).values()
    for (machine, at), own in grouped(((machine_name(run), commit(run)), run) for _, run in models).items():
        passed = sum(rung.status == "passed" for run in own for rung in run.rungs)
        files = ", ".join(code(f"torch {run.model.file}") for run in own)
        lines.append((*_when(machine, at, own), files, f"{passed:,}", "not recorded"))
    columns = ("Machine", "Commit", "Day", "What", "Rows", "Same code today")
    return table(columns, lines, right=[False] * 4 + [True, False])


def _when(machine: str, at: str, runs: Sequence[Results | TorchResults]) -> tuple[str, str, str]:
    """Where, from which commit and on which days runs were recorded."""
    return cell(machine), at[:COMMIT_DIGITS], _days(runs)


def _days(runs: Iterable[Results | TorchResults]) -> str:
    """The first and the last day of recordings: `2026-11-27 to 2026-11-28`."""
    days = sorted(run.created.partition("T")[0] for run in runs)
    return " to ".join(dict.fromkeys((days[0], days[-1])))
