"""Finds what a comparison names: results files, folders of runs or studies, and recorded runs like `reference:h200`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ladder.records.program import visible
from ladder.records.run import ProblemRecord, Results, ResultsError, all_results, load, load_once, results_in
from ladder.records.study import INDEX
from reports.facts.baselines import fastest
from reports.facts.predictions import judge
from reports.facts.provenance import gpu_name
from reports.facts.run_differences import cannot_compare, is_same_run
from reports.facts.study_points import StudyResults, load_results
from reports.facts.two_runs import CannotCompareError
from reports.report_error import ReportError

PREFIX = "reference:"


class NotTimedError(ReportError):
    """A stage that no run here has timed: one line with its name and the way out."""


def named_studies(names: Sequence[str]) -> list[tuple[str, StudyResults]]:
    """Each study as (name, results); a folder of studies, such as those of several constraints, is all of them.

    Empty if no name is a study's. Raises CannotCompareError, and ResultsError for a file that cannot be read.
    """
    by_study = {name: _study_folders(Path(name)) for name in names}
    folders = [folder for each in by_study.values() for folder in each]
    if not folders:
        return []
    if run := next((name for name, each in by_study.items() if not each), None):
        raise CannotCompareError(f"{run}: is no study, but {folders[0]} is one; name studies alone, or runs alone")
    if len(folders) < 2:
        raise CannotCompareError(f"compare {folders[0]}: only one study; name a second one")
    return [(visible(str(folder)), load_results(folder)) for folder in folders]


def _study_folders(path: Path) -> list[Path]:
    folder = path.parent if path.name == INDEX else path
    return [subfolder for subfolder in (folder, *sorted(folder.glob("*/"))) if (subfolder / INDEX).exists()]


def named_runs(names: Sequence[str], reference: Path) -> list[tuple[str, Results]]:
    """Each run as (name, results); a recorded run named without a problem is the one of the others' problem.

    Raises CannotCompareError, and ResultsError for a file that cannot be read.
    """
    if len(names) < 2:
        second = _second(names[0], reference)
        raise CannotCompareError(f"compare {names[0]}: only one run; name a second one, such as {second}")
    candidates = [_candidates(name, reference) for name in names]
    for _, base in candidates[0]:  # the first problem that all of them have
        fitting = [next((run for run in near if not cannot_compare(base, run[1])), None) for near in candidates]
        if all(fitting):
            return [run for run in fitting if run]
    for name, candidate in zip(names, candidates, strict=True):
        if len(candidate) > 1:
            problems = ", ".join(label.rpartition("/")[2] for label, _ in candidate)
            raise CannotCompareError(f"{name}: has no run of the others' problem, only of {problems}")
    return [candidate[0] for candidate in candidates]  # the comparison itself reports the obstacle


def _second(name: str, reference: Path) -> str:
    """A run to compare with this one: a recorded run of its problem, on a GPU as it was, or else one of the user's."""
    (_, own), *_ = _candidates(name, reference)
    for folder in [] if name.startswith(PREFIX) else _recorded(reference):
        with suppress(ResultsError):
            other = load(folder)
            is_alike = not cannot_compare(own, other) and bool(gpu_name(own)) == bool(gpu_name(other))
            if is_alike and not is_same_run(own, other):
                return f"{PREFIX}{folder.parent.name}/{folder.name}"
    return "runs/mine"


def _candidates(name: str, reference: Path) -> list[tuple[str, Results]]:
    """The runs that a name may stand for, at least one."""
    if not name.startswith(PREFIX):
        if ":" in name and not Path(name).exists():
            raise CannotCompareError(f"{name}: no such file or folder; name a recorded run as {PREFIX}GPU[/PROBLEM]")
        return [(visible(name), load(Path(name)))]
    gpu, _, problem = name.removeprefix(PREFIX).partition("/")
    known = [path.parent for path in all_results(reference, "*/*")]
    completed = {folder.parent.name for folder in known if gpu and folder.parent.name.startswith(gpu.lower())}
    gpu = completed.pop() if len(completed) == 1 else gpu
    wanted = [folder for folder in known if folder.parent.name == gpu and problem in ("", folder.name)]
    if not wanted:
        recorded = ", ".join(f"{folder.parent.name}/{folder.name}" for folder in known)
        raise CannotCompareError(f"{name}: no such recorded run; there are {recorded or 'none'}; name others by folder")
    runs = [(f"{PREFIX}{folder.parent.name}/{folder.name}", load(folder)) for folder in wanted]
    return sorted(runs, key=lambda run: len(run[1].problem.hidden))


def nearest_recorded(results: Results, reference: Path) -> tuple[Path, Results] | None:
    """The folder and the recorded run on a GPU of the same network and batch size, or of the nearest.

    None if the run had a GPU or skipped nothing, or if there is no recorded run that can be read.
    """
    if gpu_name(results) or all(stage.status != "skipped" for stage in results.stages):
        return None
    runs = []
    for path in all_results(reference, "*/*"):
        with suppress(ResultsError):
            if gpu_name(run := load_once(path)):
                runs.append((path.parent, run))
    return min(runs, key=lambda near: _distance(results.problem, near[1].problem), default=None)


def _distance(own: ProblemRecord, other: ProblemRecord) -> tuple[bool, int, float]:
    """Another network is farther than another batch size, and another depth farther than other widths."""
    depth = abs(len(own.hidden) - len(other.hidden))
    widths, batches = (abs(math.log(_width(own) / _width(other))), abs(math.log(own.batch_size / other.batch_size)))
    return own.network != other.network, depth, widths + batches


def _width(problem: ProblemRecord) -> float:
    """The geometric mean of the hidden layers' widths; 1 without any."""
    return math.exp(sum(map(math.log, problem.hidden)) / max(len(problem.hidden), 1))


def newest_run(runs: Path, reference: Path) -> Path:
    """The folder of the newest run in `runs`, else of the first recorded run; ReportError if there is neither."""
    folder = next(iter([*_newest(runs), *_recorded(reference)]), None)
    if folder is None:
        raise ReportError(f"open: no run in {runs}, and none is recorded; run the ladder first, or name a folder")
    return folder


def run_to_explain(stage: str, run: Path | None, runs: Path, reference: Path) -> tuple[str, Path, Results]:
    """The stage to explain with its run: the named one, such as `reference:h200/hidden-256`, else as `run_of` finds it.

    A run in the stage's place stands for its fastest rung, if it timed one. Raises ReportError and ResultsError.
    """
    if run is None and (stage.startswith(PREFIX) or results_in(Path(stage)).is_file()):
        stage, run = "", Path(stage)
    if run is None:
        return stage, *run_of(stage, runs, reference)
    (name, results), *_ = _candidates(str(run), reference)
    if name.startswith(PREFIX):
        run = reference / name.removeprefix(PREFIX)
    best = None if stage else fastest(stage for stage in results.stages if stage.group != "reference")
    if not stage and best is None:
        raise ReportError(f"explain {run}: timed no rung; name a stage before the run")
    return best.name if best else stage, run, results


def run_of(stage: str, runs: Path, reference: Path) -> tuple[Path, Results]:
    """The run to explain a stage from: the newest in `runs` that profiled it, else the first such recorded run.

    Else it is the first that timed it, points of recorded studies last. A reference on the CPU has no profile anywhere:
    the newest in `runs` that timed it comes before the recorded runs.
    Recorded runs are tried GPU by GPU, the shallowest network first. One that its prediction is about comes before all
    others. Files that cannot be read are passed over. Raises NotTimedError where no run has timed the stage.
    """
    own, best, best_rank = _newest(runs), None, (False, False, False)
    for folder in [*own, *_recorded(reference), *_points(reference)]:
        with suppress(ResultsError):
            results = load(folder)
            for found in results.stages:
                if found.name == stage and found.status == "passed" and found.timing is not None:
                    is_own = folder in own
                    shows_most = found.profile is not None or (found.device == "cpu" and is_own)
                    rank = shows_most, is_own, judge(found, results, on_like_chip=True) is not None
                    if best is None or rank > best_rank:
                        best, best_rank = (folder, results), rank
                    if shows_most and any(rank[1:]):
                        return folder, results
    if best is None:
        way_out = f"record one where it runs: run_ladder.py --stages {stage} --profile cupti"
        raise NotTimedError(f"explain {stage}: no run here has timed it; {way_out}")
    return best


def _newest(runs: Path) -> list[Path]:
    """The folders with results, the newest first."""
    newest = sorted(runs.glob("*/results.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    return [path.parent for path in newest]


def _recorded(reference: Path) -> list[Path]:
    """The folders of recorded runs; their names are `<gpu>/logistic` or `<gpu>/hidden-<width>-<width>...`."""

    def gpu_and_widths(folder: Path) -> tuple[str, int, list[int]]:
        widths = [int(word) for word in folder.name.split("-") if word.isdigit()]
        return folder.parent.name, len(widths), widths

    return sorted((path.parent for path in all_results(reference, "*/*")), key=gpu_and_widths)


def _points(reference: Path) -> list[Path]:
    """The folders of the points of recorded studies."""
    return [file.parent for file in all_results(reference, "*/studies/*/*")]
