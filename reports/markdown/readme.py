"""The tables that README and the pages of docs/ take from the recorded runs, each between two markers.

A recorded run is a folder `results/reference/<gpu or cpu>/<problem>` with its `results.json`, `report.md` and
`figures/`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path, PurePosixPath

from ladder.records.run import Results, StageCode, StageResult, all_results, load
from ladder.records.study import INDEX, Study
from reports.facts import numbers
from reports.facts.baselines import Lead, lead, overall_winner, ratio, winners
from reports.facts.grouped import grouped
from reports.facts.headline_rungs import MOST_RUNGS, headline_rungs, timed_rungs
from reports.facts.launch_regimes import change_in_full
from reports.facts.provenance import gpu_name, recorded
from reports.facts.run_table import FASTEST_REFERENCE, ON_GPU_TIME, heading
from reports.facts.study_points import StudyResults, load_results
from reports.facts.times import median_us
from reports.facts.warnings import notices
from reports.figures.run_figures import LADDER, TITLES
from reports.markdown.climb import FOLDER
from reports.screens.blocks import Sentences
from reports.screens.run import loud_notices
from reports.writers.markdown import cell, code, in_markdown, picture, table

Runs = Sequence[tuple[str, Results]]  # each run with its folder, relative to the page


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


def picture_block(runs: Runs) -> str:
    """The picture of the first run with a timed rung on the front page's GPU; empty without one."""
    timed = [folder for folder, run in _on_front_page(runs) if headline_rungs(run, MOST_RUNGS)]
    return picture(TITLES[LADDER], f"{timed[0]}/figures/{LADDER}") if timed else ""


def ladder_block(runs: Runs) -> str:
    """The ladder of the first run on that GPU: at most 15 rungs, each beside the rung that it climbs from."""
    return "\n\n".join(block for folder, run in _on_front_page(runs)[:1] for block in _ladder(folder, run) if block)


def _on_front_page(runs: Runs) -> Runs:
    """The runs of the GPU of which README and the climb tell, else of the one that was recorded last."""
    last = max(runs, key=lambda run: (f"/{FOLDER}/" in f"/{run[0]}/", run[1].created), default=None)
    return [run for run in runs if last and _gpu(run) == _gpu(last)]


def networks_block(runs: Runs) -> str:
    """A table for each GPU: the fastest rung and the fastest reference of every recorded run."""
    return "\n\n".join(
        block for gpu, group in groupby(runs, key=_gpu) for block in _networks(list(group), gpu) if block
    )


def cpu_block(runs: Runs) -> str:
    """A row for each network recorded on a CPU: its fastest rung beside the fastest reference; empty without any."""
    if not runs:
        return ""
    origin = "\n".join(dict.fromkeys(f"{recorded(run)}." for _, run in runs))
    columns = ("Network, batch", "`cpu-loops`", "Fastest rung", "us/step", "Fastest reference", "us/step", "Lead")
    lines = [(_link(folder, run), *_fastest_on_cpu(run)) for folder, run in runs]
    return f"{origin}\n\n{table(columns, lines, right=[False, True, False, True, False, True, True])}"


def _fastest_on_cpu(run: Results) -> tuple[str, ...]:
    loops = next((_step(stage) for stage in run.stages if stage.name == "cpu-loops"), numbers.MISSING)
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
    yield (
        "us/step of `cuda-graph`, and of the fastest rung in each class of precision beside its reference. Lead: "
        f"x of {FASTEST_REFERENCE}, with the range over processes. Bold: the network's fastest rung. {ON_GPU_TIME}"
    )
    yield in_markdown([loud_notices(run for _, run in runs)])
    columns = ("Network, batch", "Precision", "`cuda-graph`", "Fastest rung", "us/step", "Fastest reference", "us/step")
    lines = [(_link(folder, run), *cells) for folder, run in runs for cells in _winners(run)]
    yield table((*columns, "Lead"), lines, right=[False, False, True, False, True, False, True, True])


def _link(folder: str, run: Results) -> str:
    return f"[{run.problem.network}, {run.problem.batch_size}]({folder}/report.md)"


def _winners(run: Results) -> list[tuple[str, ...]]:
    """A line for each class of precision; one of dashes if there is nothing to compare."""
    graph = {stage.precision: _step(stage) for stage in run.stages if stage.name == "cuda-graph"}
    best = overall_winner(run)
    return [
        (
            winner.precision,
            graph.get("float32", numbers.MISSING) if winner.precision == "float32" else "",
            code(winner.stage.name),
            _step(winner.stage),
            code(winner.reference.name),
            numbers.microseconds(winner.reference_us),
            f"**{winner.text}**" if best and winner.stage is best.stage else winner.text,
        )
        for winner in winners(run)
    ] or [(numbers.MISSING,) * 7]


def _step(stage: StageResult) -> str:
    return numbers.microseconds(median_us(stage))


def _ladder(folder: str, results: Results) -> Iterator[str]:
    shown = headline_rungs(results, MOST_RUNGS)
    yield f"### {heading(results)}, on {_gpu((folder, results))}"
    yield f"{recorded(results)}."
    quiet = [notice.text for notice in notices(results, rows=False) if not notice.loud]
    yield in_markdown([loud_notices([results]), Sentences(quiet, is_list=True)])
    report = f"[report]({folder}/report.md)"
    if not shown:
        yield f"No rung was timed in this run; its {report} says why."
        return
    stages = {stage.name: stage for stage in shown}
    yield table(
        ("Rung", "From", "What changes", "us/step", "x of from"),
        [
            (
                code(stage.name),
                code(stage.below) if stage.below else "",
                cell(change_in_full(stage)),
                _step(stage),
                factor.text if (factor := ratio(stages.get(stage.below or ""), stage)) else numbers.MISSING,
            )
            for stage in shown
        ],
        right=[False, False, False, True, True],
    )
    more = len(timed_rungs(results, with_ablations=False)) - len(shown)
    others = f"{numbers.count(more, 'more timed rung')} {'is' if more == 1 else 'are'}" if more else "The rest is"
    yield (
        "In brackets: the range over processes, not a confidence interval. [All terms](docs/glossary.md)."
        f"{_references(results, shown)} {others} in the {report}."
    )


def _references(results: Results, shown: Sequence[StageResult]) -> str:
    """A sentence with the fastest reference for each class of precision among the rungs shown; empty without one."""
    leads = {best_lead.precision: best_lead for rung in shown if (best_lead := lead(rung, results))}
    classes = grouped((_reference(lead), precision) for precision, lead in leads.items())
    fastest = [f"for {numbers.listing(names)} rungs {reference}" for reference, names in classes.items()]
    return f" The fastest reference at least as exact: {numbers.listing(fastest)}." if fastest else ""


def _reference(lead: Lead) -> str:
    on_gpu = " of GPU time, without its own waits" if lead.on_gpu_time else ""
    return f"{code(lead.reference.name)}, {numbers.microseconds(lead.reference_us)} us/step{on_gpu}"
