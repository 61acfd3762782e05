"""Says whether a stage is right without timing it, by the process, the seeds and the gates of a run's short runs.

A run times a stage in another process, which is verified anew: no seed is used in both.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from common.blas import limit_blas_threads
from common.data.dataset import Dataset
from common.errors import UsageError
from common.problem import Problem
from ladder.machine.environment import cores_usable
from ladder.measure.protocol import Job, JobResult
from ladder.options.commands import CheckStage
from ladder.records.checked import Checked
from ladder.records.run import Precision
from ladder.run.bench import Bench, Finished
from ladder.run.entries import entry_of
from ladder.run.judge import drawn_salt
from ladder.run.jury import Jury
from ladder.run.observer import DownloadObserver
from ladder.run.orders import FIRST_BATCHES, Order, parameter_bytes, short_runs_job
from ladder.run.preflight import cannot_run, describe_problem, misfit, posed, refuse_idle_gpus
from ladder.run.stage_run import StageRun
from ladder.verify.failed_checks import first_cause, what_to_look_at
from ladder.verify.rubric import NO_LIMITS, Rubric, RubricLimits, counted_checks, read_rubric
from stages.registry import find, load_all

FILES_LEFT = 3 * len(FIRST_BATCHES) + 4  # of parameters: three a first update, two late, from zeros, to start from
OVERWROTE = "overwrote the images or labels that all stages share; copy them before writing"
OUTPUT_KEPT = 4000  # letters of what a crashed stage printed last


class Checker:
    """Checks stages on one problem, one after the other, each in a process of its own."""

    def __init__(self, bench: Bench, problem: Problem, dataset: Dataset, precisions: Collection[Precision]) -> None:
        """`bench` is open, with room for the data set. The stages compute in these `precisions`, as far as known."""
        self._bench, self._jury = bench, Jury(problem, dataset, drawn_salt(), 0, timed=False)
        # The stage and the oracle share the cores; BLAS beside another process waits in each small product.
        self._threads = max(1, cores_usable() // 2)
        dataset.save(bench.scratch / "dataset")
        with limit_blas_threads(self._threads):
            self._jury.train_start(bench.scratch, self._job(""), precisions)

    def check(self, stage: StageRun, limits: RubricLimits | None = None) -> JobResult:
        """Check a new stage, and record how that ended: it passed or failed, crashed, or does not take the problem.

        With a rubric's limits, kernels and reads of the host are counted; a right stage must keep them.
        """
        job = self._job(stage.entry.source, counts=limits is not None, blas_threads=self._threads)
        name = f"{stage.name}.check"
        places = self._bench.scratch / name, self._bench.logs / f"{name}.log"
        order = Order(stage, job, *places, lambda run: self._jury.number(0, run))
        with self._bench.together([order], 1) as ended, limit_blas_threads(self._threads):
            self._jury.train_short_runs(stage.entry.stage.precision, job)
            finished = next(ended)
            self._record(finished, limits)
        shutil.rmtree(finished.order.folder, ignore_errors=True)
        return finished.result

    def _job(self, source: str, **changes: object) -> Job:
        job = short_runs_job(source, self._jury.problem, self._jury.steps, self._bench.scratch / "dataset")
        return msgspec.structs.replace(job, **changes)

    def _record(self, finished: Finished, limits: RubricLimits | None) -> None:
        stage_run, job, result = finished.order.stage, finished.order.job, finished.result
        precision, dataset = stage_run.entry.stage.precision, self._jury.dataset
        if not dataset.is_saved(Path(job.dataset)):
            dataset.save(Path(job.dataset))
            stage_run.fail(f"it {OVERWROTE}")
        elif result.misfit:
            stage_run.skip(misfit(stage_run.entry.stage, self._jury.problem, self._jury.steps, result.misfit))
        elif result.error is not None:
            stage_run.crash(result.error)
        elif limits not in (None, NO_LIMITS) and result.unprofiled and "cuda" not in stage_run.entry.stage.needs:
            stage_run.crash(f"cannot be counted: {result.unprofiled}")  # by time stamps, which need nothing
        else:
            try:
                checks = self._jury.judge_short_runs(precision, job, result, finished.order.folder)
            except (OSError, ValueError) as error:
                stage_run.crash(f"its parameters cannot be checked: {error}")
            else:
                stage_run.printed = finished.printed
                if limits is not None and result.counts is not None and all(check.passed for check in checks):
                    checks = [*checks, *counted_checks(result.counts, limits)]
                stage_run.add_untimed(result, checks)


class UnfitError(UsageError):
    """A file holds no stage that can be checked, or none that answers the exercise."""


@contextmanager
def blamed_on(file: str) -> Iterator[None]:
    """Turn each UsageError into an UnfitError, if there is such a file."""
    try:
        yield
    except UsageError as error:
        raise (UnfitError(str(error)) if Path(file).is_file() else error) from error


def checked(asked: CheckStage, observer: DownloadObserver) -> Checked:
    """Check a stage by its file or name; UsageError for one that cannot run here or does not take the problem.

    With a rubric, a file that holds no such stage has no points instead.
    """
    rubric = read_rubric(asked.rubric) if asked.rubric is not None else None
    try:
        for name in rubric.rungs if rubric is not None else ():
            find(name)
    except UsageError as error:
        raise UsageError(f"{asked.rubric}: from: {error}") from error
    try:
        return _checked(asked, observer, rubric)
    except UnfitError as error:
        if rubric is None:
            raise
        problem, dataset = posed(asked.options, observer)
        return Checked(
            name=Path(asked.file).stem,
            title="",
            precision="float32",
            file=asked.file if Path(asked.file).is_file() else "",
            problem=describe_problem(problem, dataset, asked.options.max_steps),
            status="failed",
            reason=str(error),
            checks=[],
            advice={},
            output="",
            lead="",
            seconds=0.0,
            graded=rubric.grade([]),
        )


def _checked(asked: CheckStage, observer: DownloadObserver, rubric: Rubric | None) -> Checked:
    with blamed_on(asked.file):
        (entry, is_own), options = entry_of(asked.file), asked.options
    name, stage = entry.stage.name, entry.stage
    if rubric is not None and (stray := rubric.strays(stage.below, stage.changed, getattr(stage, "own", ()))):
        raise UnfitError(f"{name}: {stray}")
    refuse_idle_gpus(options.gpus, [stage])
    if reason := cannot_run(stage):
        raise UsageError(f"{name}: cannot be checked here: {reason}")
    problem, dataset = posed(options, observer)
    stage_run = StageRun(entry, steps := problem.steps(len(dataset.train.images)))
    began, output = time.monotonic(), ""
    with blamed_on(asked.file):
        if reason := misfit(stage, problem, steps):
            raise UsageError(f"{name}: does not take this problem: {reason}")
    bench = Bench(Path(), options.timeout)
    with bench.opened(dataset.nbytes + FILES_LEFT * parameter_bytes(problem), observer.note):
        bench.logs = bench.scratch / "logs"
        checker = Checker(bench, problem, dataset, [stage.precision])
        ended = checker.check(stage_run, rubric.limits if rubric is not None else NO_LIMITS)
        result = stage_run.result()
        if result.status == "failed":
            output = stage_run.printed
        elif result.status == "crashed":
            output = (bench.logs / f"{name}.check.log").read_text(errors="replace")[-OUTPUT_KEPT:]
    if result.status == "skipped":
        raise UnfitError(f"{name}: does not take this problem: {result.reason}")
    if rubric is not None and result.status == "passed" and (unknown := rubric.unknown(result.checks)):
        raise UsageError(f"{asked.rubric}: {unknown!r}: {ended.unprofiled or f'{name} has no such check'}")
    hints = rubric is None or rubric.hints
    reason = result.reason or ""
    advice = {check.what: what_to_look_at(check, result.checks) for check in result.checks if not check.passed}
    return Checked(
        name=name,
        title=stage.title,
        precision=stage.precision,
        file=asked.file if is_own else "",
        problem=describe_problem(problem, dataset, options.max_steps),
        status=result.status,
        reason=reason if hints else reason.partition(";")[0],
        checks=result.checks,
        advice=advice if hints else {},
        output=output,
        lead=first_cause(result.checks) if hints else "",
        seconds=time.monotonic() - began,
        counts=ended.counts,
        below=stage.below if stage.below in load_all() else None,
        graded=rubric.grade(result.checks) if rubric is not None else None,
    )
