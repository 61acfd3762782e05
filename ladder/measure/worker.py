"""The process in which one stage is measured once, forked or started as `python -m ladder.measure.worker FOLDER`.

A process of its own for every stage and round, so that a sticky CUDA error, a warm cache, a changed thread pool or a
profiler touches nothing else.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
import traceback
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import msgspec

from common.blas import limit_blas_threads
from common.cuda import clock as cuda_clock
from common.cuda import nvtx
from common.cuda.clock import EventPair, fence
from common.cuda.driver import multiprocessor
from common.data.dataset import Dataset, Split
from common.files import atomic_write
from common.problem import Params, Problem, initial_params, zero_params
from common.process_group import die_with_parent
from common.trainer import Trainer, ValidatingTrainer
from ladder.machine.cpu_speed import CpuSpeedProbe
from ladder.machine.environment import cores_usable, import_packages
from ladder.machine.gpu_monitor import GpuMemory, GpuMonitor
from ladder.machine.host_monitor import HostMonitor
from ladder.measure import protocol, timing
from ladder.measure.curves import record_curve
from ladder.measure.displacement import Displacement
from ladder.measure.profiled import Profiled, sample_of
from ladder.measure.protocol import (
    COLD_RUN,
    FIRST_UPDATE_RUN,
    JOB,
    PROFILING,
    REPORT,
    TRACE,
    FirstUpdate,
    Job,
    JobResult,
    drawn,
    encoded,
    run_number,
    save_params,
)
from ladder.measure.tampering import Originals
from ladder.measure.timing import (
    Clock,
    Validation,
    measure,
    plan_within,
    read_late,
    run_numbers,
    share_outside,
    timed_run,
)
from ladder.profile import chrome, cupti
from ladder.profile.api_names import allocates
from ladder.profile.bytes_moved import with_bytes
from ladder.profile.summary import summarise
from ladder.records.profile import FirstCalls, Profile
from ladder.records.run import Curve, GpuState, HostState, Process
from stages.engine.stage import Stage
from stages.registry import load_entry


class CannotValidateError(Exception):
    """A stage whose trainer has no `validate`, in a run that asks for it."""


def main(folder: Path) -> int:
    """Do the job that lies in the folder and leave the report there."""
    die_with_parent()
    job = msgspec.json.decode((folder / JOB).read_bytes(), type=Job)
    try:
        if job.compiles:
            report = compile_ahead(job)
        elif job.profile == "nsys":
            report = show(job)
        else:
            report = do(job, folder)
    except CannotValidateError as error:
        report = JobResult(misfit=str(error))
    except Exception as error:  # whatever a stage raises becomes the reason in its row
        traceback.print_exc()
        report = JobResult(error=one_line(error))
    _hand_over(folder, report)
    return 0 if report.error is None else 1


def _hand_over(folder: Path, report: JobResult) -> None:
    """Leave the report in the folder."""
    atomic_write(folder / REPORT, encoded(report))


def do(job: Job, folder: Path) -> JobResult:
    """Prepare, run an epoch from zeros, warm up, measure, run first updates, leave the parameters for the verifier.

    Last comes the profile. A profiler may take the process with it, so all else lies ready as a report by then.
    """
    originals = Originals((time, cuda_clock, timing, protocol, sys.modules[__name__]))
    wait, now = fence, time.perf_counter
    laps = Laps(now)
    stage = load_entry(job.source).stage
    data = Dataset.load_saved(Path(job.dataset))
    train = data.train
    # Before anything of the stage has threads, which would slow it down, and far from what is timed: for a moment
    # BLAS's stay awake, and take cores from who has others. Not beside other stages, nor for those that need a GPU.
    on_cpu_alone = job.blas_threads is None and not any("cuda" in need for need in stage.needs)
    pace = CpuSpeedProbe(cores_usable()) if on_cpu_alone else None
    paces_s = [pace.read()] if pace else []
    host = HostMonitor()  # before a library may have bound this thread to a core
    monitor = GpuMonitor()  # closed by the end of the process
    memory = GpuMemory(monitor)
    import_packages(stage.needs)
    if job.blas_threads is not None:
        limit_blas_threads(job.blas_threads)
    laps.end("load")

    begin = now()
    trainer = stage.build(job.problem, train)
    validation = _validation(trainer, job.problem, data.test)
    wait()
    prepare_s = now() - begin
    laps.end("prepare")

    def params_of(run: int) -> Params:
        return initial_params(drawn(job.problem, job.salt), run_number(job.round, run))

    plan = job.wanted
    with memory.sampled():
        at_once = replace(validation, due=lambda _: True) if validation is not None else None
        timed_run(trainer, params_of(COLD_RUN), 1, fence=wait, clock=now, validation=at_once)
    # Judged after another run, so that parameters kept from the run before are seen.
    from_zero = timed_run(trainer, zero_params(job.problem), 1, fence=wait, clock=now, validation=validation)
    save_params(folder / "from-zero.npy", trainer.read_params())
    if job.budget_s is not None:
        whole = math.lcm(job.problem.metrics_every, job.problem.validate_every or 1)
        plan = plan_within(job.budget_s, from_zero.seconds, job.wanted, whole)

    states: list[GpuState] = []
    host_states: list[HostState] = []
    judged: list[Params] = []
    late_s: list[float] = []
    displacements: dict[int, Displacement] = {}
    numbers = run_numbers(plan)
    laps.end("first epochs")

    def after_run(number: int) -> None:
        host_states.extend(host.read())
        states.extend(monitor.read())
        originals.check()
        final, late = read_late(trainer, now)
        late_s.append(late)
        if number < plan.repeats:
            displacements[number] = Displacement.of(params_of(number), final.weights, final.biases)
        if number == 0:
            judged[:] = [Params(tuple(w.copy() for w in final.weights), tuple(b.copy() for b in final.biases))]

    host.read()
    warmups, runs = measure(
        trainer,
        params_of,
        plan,
        metrics_every=job.problem.metrics_every,
        fence=wait,
        clock=now,
        events=EventPair(trainer.cuda_stream) if trainer.cuda_stream is not None else None,
        numbers=numbers,
        after_run=after_run,
        validation=validation,
    )
    if pace and trainer.device == "cpu":
        paces_s.append(pace.read())
    taken = memory.taken_mib()
    save_params(folder / "final.npy", *judged)
    laps.end("measure")
    # After all is timed, since further trainers in this process would make its times another's.
    with (stage.first_updates_within or nullcontext)():
        first_updates = [_first_update(stage, job, train, batches, folder) for batches in job.first_updates]
    laps.end("first updates")
    curve, no_curve = _curve(job, stage, params_of(0))
    laps.end("curve")
    judged_run = runs[numbers.index(0) - len(warmups)]
    report = JobResult(
        detail=trainer.detail,
        device=trainer.device,
        plan=plan,
        process=Process(
            round=job.round,
            epochs=plan.epochs,
            prepare_s=prepare_s,
            warmups_s=[run.seconds for run in warmups],
            runs_s=[run.seconds for run in runs],
            gpu_runs_s=[run.gpu_seconds for run in runs if run.gpu_seconds is not None] or None,
            gpu_states=states,
            gpu_memory_mib=taken if trainer.device == "gpu" else None,
            host_states=host_states,
            took_s=laps.seconds,
            pace_s=min(paces_s) if len(paces_s) > 1 else None,  # the quicker: the other may be of who was busy there
        ),
        first_updates=first_updates,
        from_zero=from_zero.metrics.get(0),
        metrics=judged_run.metrics,
        validations=judged_run.validations,
        share_outside=share_outside(runs, late_s[len(warmups) :], judged[0].nbytes),
        displacements=displacements,
        curve=curve,
        no_curve=no_curve,
    )
    if job.profile is not None and trainer.device == "gpu":
        if not cupti.available():
            report = msgspec.structs.replace(report, unprofiled="cupti-python is not installed")
        else:
            steps = job.problem.steps(len(train.images))
            step_us = statistics.median(run.seconds for run in runs) / plan.epochs / steps * 1e6
            _hand_over(folder, msgspec.structs.replace(report, profiling=True))
            try:
                profiled = Profiled(trainer, sample_of(job.problem, plan.epochs), wait, validation)
                profile = _profile(job, profiled, stage, train, steps, step_us, folder)
            except Exception as error:  # CUPTI wants permissions, and a version that fits the driver
                traceback.print_exc()
                # Not closed: what it left of the process is not the stage's to answer for.
                return msgspec.structs.replace(report, unprofiled=one_line(error))
            (folder / REPORT).unlink()
            report = msgspec.structs.replace(report, profile=profile)
    trainer.close()
    laps.end(PROFILING)
    return report


class Laps:
    """How long each part of the work took, in seconds: the rest of a process's time is its start and its end."""

    def __init__(self, clock: Clock) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._begin = clock()

    def end(self, part: str) -> None:
        """A part of this name ends, and the next begins."""
        self._begin, begin = self._clock(), self._begin
        self.seconds[part] = self._begin - begin


def show(job: Job) -> JobResult:
    """Prepare, warm up, and run the two epochs that a profiler around this process is to record."""
    nvtx.enable()
    stage = load_entry(job.source).stage
    data = Dataset.load_saved(Path(job.dataset))
    import_packages(stage.needs)
    trainer = stage.build(job.problem, data.train)
    validation = _validation(trainer, job.problem, data.test)
    trainer.load_params(initial_params(job.problem, run_number(job.round, COLD_RUN)))
    profiled = Profiled(trainer, sample_of(job.problem, job.wanted.epochs), fence, validation)
    profiled.warm_up()
    profiled.show(stage.name)
    trainer.close()
    return JobResult(device=trainer.device)


def compile_ahead(job: Job) -> JobResult:
    """Train as `do` does for the first time, so that whatever compiles leaves on disk what it compiled."""
    stage = load_entry(job.source).stage
    data = Dataset.load_saved(Path(job.dataset))
    import_packages(stage.needs)
    with (stage.compiles_within or nullcontext)():
        compiled_s = _prepare_ahead(stage, job, data) if stage.compiles_within is not None else 0.0
        with (stage.first_updates_within or nullcontext)():
            for batches in job.first_updates:
                trainer = stage.build(job.problem, data.train.first(batches * job.problem.batch_size))
                trainer.load_params(initial_params(job.problem, COLD_RUN))
                trainer.run_epoch(0)
                fence()
                trainer.close()
    return JobResult(compiled_s=compiled_s)


def _prepare_ahead(stage: Stage, job: Job, data: Dataset) -> float:
    """Prepare the trainer that others are going to time, and train for an epoch of each kind; how long preparing took.

    In seconds.
    """
    begin = time.perf_counter()
    trainer = stage.build(job.problem, data.train)
    validation = _validation(trainer, job.problem, data.test)
    fence()
    compiled_s = time.perf_counter() - begin
    trainer.load_params(initial_params(job.problem, COLD_RUN))
    Profiled(trainer, sample_of(job.problem, job.problem.epochs), fence, validation).warm_up()
    trainer.close()
    return compiled_s


def _validation(trainer: Trainer, problem: Problem, test: Split) -> Validation | None:
    """How the trainer looks at the test images, prepared for that; None, and nothing done, where no run asks for it."""
    if not problem.validate_every:
        return None
    if not isinstance(trainer, ValidatingTrainer):
        raise CannotValidateError(
            f"its trainer has no validate(), which --validate-every {problem.validate_every} asks for; leave that out"
        )
    trainer.prepare_validation(test)
    return Validation(trainer.validate, problem.validation_due)


def _profile(
    job: Job, profiled: Profiled, stage: Stage, train: Split, steps: int, step_us: float, folder: Path
) -> Profile:
    """What CUPTI sees of epochs of so many steps; raises whatever CUPTI raises."""
    trace = profiled.record()
    if job.round == 0:
        chrome.write(folder / TRACE, trace, stage.name, steps)
    profile = summarise(trace, profiled.sample.weights, steps, "cupti", step_us, multiprocessor())
    if stage.group == "memory" and job.round == 0:  # another trainer, which for these alone is worth its time
        profile = msgspec.structs.replace(profile, first_calls=_first_calls(stage, job, train))
    return with_bytes(profile, job.problem) if stage.recipe else profile


def _curve(job: Job, stage: Stage, params: Params) -> tuple[Curve | None, str]:
    """The stage's curves from these parameters, or why there are none: a row is worth more than they are."""
    if not job.curve_steps:
        return None, ""
    try:
        data = Dataset.load_saved(Path(job.dataset))
        return record_curve(stage.build, job.problem, data, params, job.curve_steps, fence), ""
    except Exception as error:
        traceback.print_exc()
        return None, one_line(error)


def _first_calls(stage: Stage, job: Job, train: Split) -> FirstCalls:
    """What a new trainer asks of allocators until the end of its first epoch."""
    trainer: list[Trainer] = []

    def prepare() -> None:
        trainer.append(stage.build(job.problem, train))
        trainer[0].load_params(initial_params(job.problem, run_number(job.round, COLD_RUN)))
        fence()

    def first_epoch() -> None:
        trainer[0].run_epoch(0)
        fence()

    preparing, first = (
        {name: count for name, count in sorted(part.items()) if allocates(name)}
        for part in cupti.record_calls(prepare, first_epoch)
    )
    trainer[0].close()
    return FirstCalls(preparing, first)


def _first_update(stage: Stage, job: Job, train: Split, batches: int, folder: Path) -> FirstUpdate:
    """The stage's own epoch on a split of so many batches."""
    trainer = stage.build(job.problem, train.first(batches * job.problem.batch_size))
    params = initial_params(drawn(job.problem, job.salt), run_number(job.round, FIRST_UPDATE_RUN + batches))
    run = timed_run(trainer, params, 1, fence=fence, clock=time.perf_counter)
    save_params(folder / f"first-{batches}.npy", trainer.read_params())
    trainer.close()
    return FirstUpdate(batches, run.metrics.get(0))


def one_line(error: BaseException) -> str:
    """An exception as a reason that fits a row: what, then its first line."""
    name = type(error).__name__
    text = (str(error).strip().splitlines() or [""])[0]
    if "OutOfMemory" in name or isinstance(error, MemoryError):
        return f"out of memory: {text}" if text else "out of memory"
    return f"{name}: {text}" if text else name


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a library that falls over while it is torn down has no say any more
