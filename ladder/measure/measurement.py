"""One measurement of one stage: prepare, first epochs, timed runs, first updates, curve, profile."""

from __future__ import annotations

import itertools
import math
import secrets
import statistics
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import msgspec

from common import arrays
from common.blas import limit_blas_threads
from common.choice import grant_turns_by
from common.cuda import clock as cuda_clock
from common.cuda.clock import EventPair, fence
from common.cuda.driver import has_context, multiprocessor
from common.data.dataset import Dataset, Split
from common.errors import MisfitError
from common.problem import Params, Problem, initial_params, positive_params, zero_params
from common.streams import print_error
from common.trainer import EpochMetrics, Trainer, ValidatingTrainer, wait_of
from ladder.machine.cpu_speed import CpuSpeedProbe, pace_of
from ladder.machine.environment import cores_usable, import_packages
from ladder.machine.gpu_monitor import GpuMemory, GpuMonitor
from ladder.machine.host_monitor import HostMonitor
from ladder.measure import fetched, protocol, seeds, timing
from ladder.measure.curves import record_curve
from ladder.measure.energy_counter import CounterError, energy_of
from ladder.measure.fetched import fetched_params
from ladder.measure.profiled import OwnProfile, counted, sample_of
from ladder.measure.protocol import FirstUpdate, Job, JobResult, LateEpoch
from ladder.measure.seeds import RunSeeds
from ladder.measure.tampering import Originals
from ladder.measure.timing import Plan, TimedRun, UntimedRun, Validation, measure, timed_run
from ladder.profile import cupti
from ladder.profile.summary import summarise, with_bytes
from ladder.records.checked import Counts
from ladder.records.profile import Profile
from ladder.records.run import Curve, GpuState, HostState, Process
from stages.registry import load_entry

PROFILED_S = {"cpu": 0.5, "gpu": 0.1}  # of epochs; if all of a sample take longer, one is profiled
LATE_S = 5.0  # that the epochs before a late one take, even if they are fewer than drawn; a busy host needs as long
SLOW_S = 0.5  # an epoch on a few batches; a stage that takes longer makes no late one
SHORT_EPOCH_S = 0.3  # one that costs little to time again
FEWEST_COUNTED, MOST_COUNTED = 40, 120  # steps of the epoch whose kernels and reads are counted
IN_A_ROW = "it trains one network at a time; profile a run of one"
WARM_UP_S = 0.2  # an epoch that lasts longer needs no warm-up for its profile


class UnusedDeviceError(Exception):
    """A stage names a GPU that its process has not used: no check of a CPU's times would apply to it."""


class Measurement:
    """A stage's measurement in this process; one method a phase, which `run` calls in order.

    It keeps the clock and the fence that were there before the stage was imported. After every timed run it checks
    its own modules, and `also`: a stage that replaced something there gets no result.
    """

    def __init__(self, job: Job, folder: Path, run_seeds: RunSeeds, also: Iterable[ModuleType] = ()) -> None:
        own = (arrays, timing, fetched, protocol, seeds, sys.modules[__name__], *also)
        self._originals = Originals((time, statistics, msgspec.msgpack, cuda_clock, *own))
        self._fence, self._clock = fence, time.perf_counter
        self._job, self._folder = job, folder
        every = job.problem.metrics_every
        self._measured = partial(measure, metrics_every=every, fence=self._fence, clock=self._clock)
        self._laps = Laps(self._clock)
        self._gpu_states: list[GpuState] = []
        self._host_states: list[HostState] = []
        self._seeds = run_seeds
        self._timed_seeds: list[int] = []
        self._had_turn, self._waited_s = False, 0.0
        self._reads: list[timing.LateRead] = []
        self._late, self._late_s = list[LateEpoch](), 0.0
        self._plan = job.wanted

    def run(self) -> JobResult:
        """All phases. The parameters to verify are in the folder afterwards."""
        self._load()
        self._prepare()
        self._first_epochs()
        if self._trainer.device == "gpu" and not has_context():
            raise UnusedDeviceError(
                "its trainer says that it trains on a GPU, and has used none; name the device that does"
            )
        if self._job.is_timed:
            self._timed_runs()
            self._energy()
        self._metrics_from_zeros()
        self._epoch_from_positive()
        first_updates = self._first_updates()
        curve, no_curve = self._curve()
        self._originals.check()
        on_gpu, counts = self._trainer.device == "gpu", self._job.counts
        wants_profile = self._job.profile == ("cupti" if on_gpu else "stamps")
        unprofiled = on_gpu and (wants_profile or counts) and not cupti.available()
        in_a_row = self._job.problem.networks > 1 and not self._stage.is_fleet
        why = "cupti-python is not installed" if unprofiled else IN_A_ROW if in_a_row and wants_profile else ""
        result = msgspec.structs.replace(
            self._timed() if self._job.is_timed else self._untimed(),
            first_updates=first_updates,
            late=self._late,
            curve=curve,
            no_curve=no_curve,
            unprofiled=why,
        )
        if (wants_profile and not why) or counts:
            # A profiler can end the process: the result without a profile is on disk by then.
            protocol.write_result(self._folder, msgspec.structs.replace(result, profiling=True))
            try:
                seen = {"counts": self._counts()} if counts else {"profile": self._profile()}
            except Exception as error:  # CUPTI needs permissions, and a version that fits the driver
                print_error()
                # The trainer stays open: the stage is not to blame for the state that CUPTI left behind.
                return msgspec.structs.replace(result, unprofiled=protocol.one_line(error))
            (self._folder / protocol.RESULT).unlink()
            result = msgspec.structs.replace(result, **seen)
        self._close(self._trainer)
        self._laps.end(protocol.PROFILING)
        self._originals.check()
        return result

    def _load(self) -> None:
        """Import the stage, load the data, start the monitors, import the stage's packages."""
        job = self._job
        self._stage = load_entry(job.source).stage
        self._data = Dataset.load_saved(Path(job.dataset), with_test=job.problem.validate_every > 0)
        # The CPU's speed is read before the stage has threads, which would slow it down, and long before the timed
        # runs: BLAS threads stay awake for a moment. It is not read beside other stages, nor for stages on a GPU.
        on_cpu_alone = job.blas_threads is None and not any("cuda" in need for need in self._stage.needs)
        self._cpu_speed = CpuSpeedProbe(cores_usable()) if on_cpu_alone else None
        self._cpu_speeds = [self._cpu_speed.read()] if self._cpu_speed else []
        self._host = HostMonitor()  # before a library can bind this thread to a core
        self._gpu = GpuMonitor()  # the end of the process closes it
        self._memory = GpuMemory(self._gpu)
        import_packages(self._stage.needs)
        if job.blas_threads is not None:
            limit_blas_threads(job.blas_threads)
        self._laps.end("load")

    def _prepare(self) -> None:
        """Build the trainer, and what it needs for validation."""
        grant_turns_by(self._await_turn)
        begin = self._clock()
        self._trainer = self._stage.trainer(self._job.problem, self._data.train)
        self._validation = prepared_validation(self._trainer, self._job.problem, self._data.test)
        self._fence()
        self._prepare_s = self._clock() - begin - self._waited_s
        self._await_turn()
        self._laps.end("prepare", without_s=self._waited_s)

    def _await_turn(self) -> None:
        """Wait until no other process of the run works; from then on this one works alone."""
        if not self._had_turn:
            self._had_turn, begin = True, self._clock()
            self._gpu.waiting = self._seeds.await_turn(on_gpu=has_context())
            self._waited_s = self._clock() - begin

    def _first_epochs(self) -> None:
        """Train one cold epoch and one from zeros; a budget cuts the plan by the second, timed again if short.

        The verifier gets the parameters of the second. A trainer that kept the first epoch's parameters fails there.
        """
        validation, problem = self._validation, self._job.problem
        with self._memory.sampled():
            at_once = replace(validation, due=lambda _: True) if validation is not None else None
            self._train_one_epoch(self._params_from(self._seeds.untimed()), at_once)
        self._from_zero = self._train_one_epoch(zero_params(problem), validation)
        protocol.save_params(self._folder / "from-zero.npy", fetched_params(self._trainer))
        if self._job.budget_s is not None:
            epoch_s, wanted = self._from_zero.seconds, self._job.wanted
            whole = min(math.lcm(problem.metrics_every, problem.validate_every or 1), wanted.epochs)
            self._plan = timing.plan_within(self._job.budget_s, epoch_s, wanted, whole)
            if self._plan != wanted and epoch_s < SHORT_EPOCH_S:  # delayed, it would leave a single cold run
                again = self._train_one_epoch(self._params_from(self._seeds.untimed()), validation, whole - 1)
                self._plan = timing.plan_within(self._job.budget_s, min(epoch_s, again.seconds), wanted, whole)
        self._laps.end("first epochs")

    def _timed_runs(self) -> None:
        """Warm up, then take the times; the verifier gets the parameters of the runs that the runner names."""
        trainer = self._trainer
        self._host.read()
        self._warmups, self._runs = self._measured(
            trainer,
            self._next_params,
            self._plan,
            events=EventPair(trainer.cuda_stream) if trainer.cuda_stream is not None else None,
            after_run=self._after_run,
            validation=self._validation,
            stamp=self._seeds.stamp,
            untimed=self._late_epoch_of_all(),
        )
        self._originals.check()
        if self._cpu_speed and trainer.device == "cpu":
            self._cpu_speeds.append(self._cpu_speed.read())
        self._peak_mib = self._memory.peak_mib() if trainer.device == "gpu" else None
        kept = self._seeds.finished()
        self._judged = kept[0]
        for run in kept:
            protocol.save_params(self._folder / protocol.run_file(run), self._reads[run].params)
        self._laps.end("measure", without_s=self._late_s)
        if self._late_s:
            self._laps.seconds["late epoch"] = self._late_s

    def _energy(self) -> None:
        """What the GPU draws while the trainer goes on from its last run: epochs like those, and not verified."""
        self._drawn, self._not_drawn = None, ""
        if not self._job.energy or self._trainer.device != "gpu":
            return
        epoch_s = statistics.median(run.seconds for run in self._runs) / self._plan.epochs
        numbers = itertools.cycle(range(self._plan.epochs))

        def train(epochs: int) -> None:
            timing.train_on(self._trainer, itertools.islice(numbers, epochs), self._fence, self._validation)

        try:
            self._drawn = energy_of(train, epoch_s, self._plan.epochs, self._gpu.energy_j, self._clock)
        except CounterError as error:
            self._not_drawn = str(error)
        self._laps.end("energy")

    def _after_run(self, number: int, run: TimedRun) -> None:
        """Read the parameters of a warm-up or timed run at once, then the machine's state; check for tampering."""
        read = timing.read_late(self._trainer, self._clock, run.ended)
        self._host_states.extend(self._host.read())
        self._gpu_states.extend(self._gpu.read())
        self._originals.check()
        if number >= self._plan.warmups:
            self._reads.append(read)

    def _first_updates(self) -> list[FirstUpdate]:
        """Train new trainers on the first batches alone; after the timed runs, whose times they would change."""
        with (self._stage.first_updates_within or nullcontext)():
            first_updates = [self._first_update(batches) for batches in self._job.first_updates]
        self._laps.end("first updates")
        return first_updates

    def _first_update(self, batches: int) -> FirstUpdate:
        """Short runs of a new trainer on a split of this many batches, each from parameters of its own."""
        job = self._job
        trainer = self._stage.trainer(job.problem, self._data.train.first(batches * job.problem.batch_size))

        def shared(number: int) -> Params:
            return self._params_from(self._seeds.shared(number + batches))

        def trained(name: str, params: Params, epochs: int, first_epoch: int = 0) -> EpochMetrics | None:
            run = timed_run(trainer, params, epochs, fence=self._fence, clock=self._clock, first_epoch=first_epoch)
            protocol.save_params(self._folder / f"{name}-{batches}.npy", fetched_params(trainer))
            return run.metrics.get(first_epoch + epochs - 1)

        seen = FirstUpdate(batches, trained("first", shared(protocol.FIRST_UPDATE_RUN), 1))
        if batches in job.repeated:
            begin = self._clock()
            again = trained("repeated", shared(protocol.REPEATED_RUN), protocol.REPEATED_EPOCHS)
            epoch_s = (self._clock() - begin) / protocol.REPEATED_EPOCHS
            seen = msgspec.structs.replace(seen, repeated=again)
        if job.trained and batches == job.repeated[0]:
            start, due = protocol.load_params(Path(job.trained), job.problem), job.problem.metrics_every - 1
            seen = msgspec.structs.replace(seen, trained=trained("trained", start, 1, first_epoch=due))
        if batches in job.late and batches in job.repeated and epoch_s < SLOW_S:
            late = self._late_epoch(trainer, batches, protocol.LATE_EPOCHS, epoch_s)
            self._measured(trainer, self._next_params, Plan(1, repeats=0, warmups=0), untimed=late)
        self._close(trainer)
        return seen

    def _late_epoch_of_all(self) -> UntimedRun | None:
        """An epoch that begins anywhere from the second one on in a run like the timed ones, at any place among them.

        So no count of loads or epochs up to it tells it from them. None where that takes too long.
        """
        steps, epochs = self._job.problem.steps(len(self._data.train.images)), self._plan.epochs
        if steps not in self._job.late or steps in self._job.repeated or epochs == 1:
            return None
        before = self._seeds.untimed() % (self._plan.repeats + 1)
        return self._late_epoch(self._trainer, steps, range(1, epochs), self._from_zero.seconds, before)

    def _metrics_from_zeros(self) -> None:
        """Once more from zeros where metrics are due, if the first epoch of a run has none: exact over all batches."""
        problem, due = self._job.problem, self._job.problem.metrics_every - 1
        self._zeros = self._from_zero.metrics.get(0)
        if due and self._job.first_updates:
            self._trainer.load_params(zero_params(problem))
            self._zeros = timing.train_on(self._trainer, [due], self._fence)
            self._laps.end("metrics")

    def _epoch_from_positive(self) -> None:
        """One epoch on all batches from positive hidden biases, which leave few units that rounding switches."""
        if self._job.positive:
            self._train_one_epoch(positive_params(self._job.problem, self._seeds.shared(protocol.POSITIVE_RUN)), None)
            protocol.save_params(self._folder / "positive.npy", fetched_params(self._trainer))
            self._laps.end("positive biases")

    def _late_epoch(self, trainer: Trainer, batches: int, begins: range, epoch_s: float, before: int = 0) -> UntimedRun:
        """A run of as many epochs as the runner draws now; then the parameters are read, and it has one epoch more.

        But for that reading, it is a run like any other to the stage: every epoch begins by the same calls.
        """
        most = int(LATE_S / epoch_s)
        after = min(begins[self._seeds.untimed() % len(begins)], most if most > 0 else 1)

        def read() -> EpochMetrics:
            wait_of(trainer)()
            self._fence()
            protocol.save_params(self._folder / f"late-{batches}-begin.npy", fetched_params(trainer))
            return EpochMetrics(0.0, 0.0)

        def ended(_: int, run: TimedRun) -> None:
            protocol.save_params(self._folder / f"late-{batches}.npy", fetched_params(trainer))
            self._late.append(LateEpoch(batches, after, run.metrics.get(after)))
            self._late_s += run.loading_s + self._clock() - run.ended + run.seconds
            self._host.read()  # what it took is no timed run's

        return UntimedRun(before, after + 1, Validation(read, lambda epoch: epoch == after - 1), ended)

    def _curve(self) -> tuple[Curve | None, str]:
        """The stage's curves, or why there are none: a failure here must not cost the row."""
        curve, no_curve = None, ""
        if self._job.curve_steps:
            try:
                data = Dataset.load_saved(Path(self._job.dataset))
                params = self._params_from(self._timed_seeds[self._judged])
                curve = record_curve(
                    self._stage.build, self._job.problem, data, params, self._job.curve_steps, self._fence
                )
            except Exception as error:
                print_error()
                no_curve = protocol.one_line(error)
        self._laps.end("curve")
        return curve, no_curve

    def _untimed(self) -> JobResult:
        """What the trainer says of itself and of the epoch from zeros."""
        trainer = self._trainer
        return JobResult(detail=trainer.detail, device=trainer.device, plan=self._plan, from_zero=self._zeros)

    def _timed(self) -> JobResult:
        """The measured times and everything read beside them."""
        judged = self._runs[self._judged]
        pace_s, pace_cores = pace_of(self._cpu_speeds, self._host_states, cores_usable())
        return msgspec.structs.replace(
            self._untimed(),
            process=Process(
                round=self._job.round,
                epochs=self._plan.epochs,
                prepare_s=self._prepare_s,
                warmups_s=[run.seconds for run in self._warmups],
                runs_s=[run.seconds for run in self._runs],
                gpu_runs_s=[run.gpu_seconds for run in self._runs if run.gpu_seconds is not None] or None,
                gpu_states=self._gpu_states,
                gpu_memory_mib=None,  # the runner tells it by `gpu_peak_mib` when this process has ended
                host_states=self._host_states,
                took_s=self._laps.seconds,
                pace_s=pace_s,
                pace_cores=pace_cores,
                energy=self._drawn,
                no_energy=self._not_drawn,
            ),
            metrics=judged.metrics,
            validations=judged.validations,
            share_outside=timing.share_outside(self._runs, self._reads, has_ranks=self._stage.takes_gpus),
            gpu_peak_mib=self._peak_mib,
            waited_s=self._waited_s,
        )

    def _profile(self) -> Profile:
        """The profile of some epochs, by CUPTI or by time stamps; raises whatever CUPTI raises."""
        job, stage = self._job, self._stage
        steps = job.problem.steps(len(self._data.train.images))
        epoch_s = statistics.median(run.seconds for run in self._runs) / self._plan.epochs
        sample, on_cpu = sample_of(job.problem, self._plan.epochs), self._trainer.device == "cpu"
        sample = sample.within(PROFILED_S[self._trainer.device], epoch_s)
        profiled = OwnProfile(self._trainer, sample, self._fence, self._validation)
        trace = profiled.record(warm_up=epoch_s < WARM_UP_S)
        step_us, shape = epoch_s / steps * 1e6, None if on_cpu else multiprocessor()
        profile = summarise(trace, sample.weights, steps, "stamps" if on_cpu else "cupti", step_us, shape)
        has_bytes = stage.recipe and job.problem.networks == 1 and not stage.takes_gpus
        return with_bytes(profile, job.problem) if has_bytes else profile

    def _counts(self) -> Counts | None:
        """What a new trainer does in an epoch whose length no stage foresees, if there are as many images."""
        problem = self._job.problem
        steps = FEWEST_COUNTED + secrets.randbelow(MOST_COUNTED - FEWEST_COUNTED + 1)
        split = self._data.train.first(steps * problem.batch_size)
        return counted(self._stage, problem, split, self._fence)

    def _close(self, trainer: Trainer) -> None:
        """Close a trainer. If that ends the process, the result in the folder reports it."""
        protocol.write_result(self._folder, JobResult(closing=True))
        close(trainer)
        (self._folder / protocol.RESULT).unlink()

    def _next_params(self, number: int) -> Params:
        """The initial parameters of a warm-up or timed run, which the stage cannot foresee."""
        plan = self._plan
        if number < plan.warmups:  # or a run of which no time counts
            return self._params_from(self._seeds.untimed())
        self._timed_seeds.append(self._seeds.timed(number - plan.warmups, plan.repeats))
        return self._params_from(self._timed_seeds[-1])

    def _params_from(self, seed: int) -> Params:
        return initial_params(self._job.problem, seed)

    def _train_one_epoch(self, params: Params, validation: Validation | None, epoch: int = 0) -> TimedRun:
        return timed_run(
            self._trainer, params, 1, fence=self._fence, clock=self._clock, validation=validation, first_epoch=epoch
        )


class ClosingError(Exception):
    """A trainer failed to close; the cause is its own exception."""


def close(trainer: Trainer) -> None:
    """Close a trainer; raises ClosingError from whatever it raises."""
    try:
        trainer.close()
    except Exception as error:
        raise ClosingError from error


class Laps:
    """The seconds that each phase took."""

    def __init__(self, clock: timing.Clock) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._begin = clock()

    def end(self, phase: str, without_s: float = 0.0) -> None:
        """End the phase of this name, of which some seconds do not count, and begin the next."""
        self._begin, begin = self._clock(), self._begin
        self.seconds[phase] = self._begin - begin - without_s


def prepared_validation(trainer: Trainer, problem: Problem, test: Split) -> Validation | None:
    """The trainer's validation, prepared for these images; None, and nothing prepared, if the run asks for none.

    Raises MisfitError if the trainer cannot validate.
    """
    if not problem.validate_every:
        return None
    if not isinstance(trainer, ValidatingTrainer):
        raise MisfitError(
            f"its trainer has no validate(), which --validate-every {problem.validate_every} asks for; leave that out"
        )
    trainer.prepare_validation(test)
    return Validation(trainer.validate, problem.validation_due)
