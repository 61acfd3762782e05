"""The judge of a run: what float64 trains from the same parameters, and what a stage's process left beside it."""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from common.data.dataset import Dataset, Split
from common.errors import UsageError
from common.oracle import Oracle
from common.problem import Params, Problem, initial_params, kept_params, network_run
from common.trainer import EpochMetrics
from ladder.measure import protocol
from ladder.measure.protocol import Job, JobResult, LateEpoch, run_file
from ladder.processes.seed_server import JUDGED_RUN, Attempt
from ladder.records.run import TAKES_TOO_LONG, Check, LossPoint, OracleRecord, Precision
from ladder.verify import gates
from ladder.verify.gates import verify_timer
from ladder.verify.oracle_runs import Computed, EpochSpread, OracleRun
from ladder.verify.other_runs import RunEnd, verify_clock, verify_judged_time, verify_losses
from ladder.verify.short_runs import ShortRun, ShortTask, Trained

SALT_BITS = 62  # too many to be tried out
# Of a whole epoch that begins late: controls, at least, and their multiplications. A small network has as many as in
# other short runs; with 4, a unit that flips early was in none of them.
LATE_DRAWS, LATE_DRAWN_WORK = 4, 8_000_000_000
STARTS = 3  # from which float64 trains where a stage's parameters are no numbers before a late epoch
TRAINED = "trained.npy"
POSITIVE = "epoch from positive biases"
FROM_ZEROS = ShortTask("zeros")
INCOMPLETE = "its result is incomplete"
Spreads = dict[Precision, list[EpochSpread]]


class Judged(NamedTuple):
    """The checks of what a process left, and the accuracy on the test images; of several networks the mean's."""

    checks: list[Check]
    accuracy: float
    networks: Sequence[float] = ()
    """The accuracy of each, if they are several."""


def drawn_salt() -> int:
    """A new salt of the initial parameters."""
    return secrets.randbits(SALT_BITS)


def late_draws(problem: Problem, batches: int) -> int:
    """The most controls of an epoch of all batches that begins late: no two stages share them."""
    return max(LATE_DRAWS, LATE_DRAWN_WORK // (batches * problem.multiplications))


def diverges(problem: Problem, train: Split, batches: int, epochs: int) -> bool:
    """Whether float64 diverges from one of a few starts in `epochs` epochs of a few batches."""
    seen = train.first(batches * problem.batch_size)
    oracle = Oracle(problem, [initial_params(problem, run) for run in range(STARTS)])
    with np.errstate(all="ignore"):
        for _ in range(epochs):
            oracle.run_epochs(seen.images, seen.labels)
    return not all(np.isfinite(tensor).all() for tensor in (*oracle.weights, *oracle.biases))


class Judge:
    """The float64 runs of one network that all stages of one run share, and the checks against them."""

    def __init__(
        self, problem: Problem, dataset: Dataset, salt: int, curve_steps: int, *, timed: bool, network: int = 0
    ):
        """`timed` says whether clocks are judged: side by side, processes slow each other down.

        Of a problem with several networks, one is judged as if it had trained alone.
        """
        self._whole, self._network = problem, network
        self.problem = self._problem = problem.alone(network)
        self._dataset = dataset
        self._salt = salt
        self._curve_steps = curve_steps
        self._timed = timed
        self._oracles: dict[int, OracleRun] = {}  # by run number
        self._short_runs: dict[ShortTask, ShortRun] = {}
        self._trained: dict[ShortTask, Trained] = {}
        self._start: Params | None = None  # see `trained_params`

    def number(self, round_: int, run: int, own: str = "") -> int:
        """The number of a run that all stages of a round share, for `initial_params`.

        A stage of the user's, named by `own`, has a judged run of its own, of which no other stage can tell it.
        """
        own = own if run == JUDGED_RUN else ""
        return network_run(protocol.salted_number(self._salt, protocol.run_number(round_, run), own), self._network)

    def untrained(self, rounds: Iterable[int], own: Iterable[str]) -> list[int]:
        """The numbers of the judged runs of these rounds, and of these stages of the user's, that none has trained."""
        runs = [self.number(round_, JUDGED_RUN, name) for round_ in rounds for name in ("", *own)]
        return [run for run in runs if run not in self._oracles]

    def has_trained(self, run: int) -> bool:
        """Whether an oracle has trained the run of this number."""
        return run in self._oracles

    def adopt(self, computed: Computed, runs: Iterable[int], spreads: Spreads) -> None:
        """Judge by these of the computed runs, and by these controls, which serve all rounds."""
        self._computed = computed
        self.adopt_short(computed.short)
        for run in runs:
            self._oracles[run] = computed.runs[run]
            self._oracles[run].spreads = spreads

    def adopt_short(self, trained: Mapping[ShortTask, Trained]) -> None:
        """Compare with these short runs, where they are this network's; NumPy trains others when they are needed."""
        self._trained |= trained

    def start_from(self, trained: Params) -> None:
        """Judge later updates from these parameters; UsageError unless they are finite."""
        if not trained.is_finite:
            rate = f"learning rate {self._problem.learning_rate:g}"
            raise UsageError(f"{rate}: training diverges in float32; choose a smaller one")
        self._start = trained

    def train_short_runs(self, precision: Precision, job: Job) -> None:
        """Train what `judge_short_runs` compares with, ahead of the job's result."""
        for task in self.short_tasks(job):
            self._short_run(task).spread(precision)

    def short_tasks(self, job: Job) -> list[ShortTask]:
        """The short runs that stages with such a job share, the longest first."""
        positive = [self._positive_task(job)] if job.positive else []
        of_few = (task for batches in job.first_updates for task in self._tasks_of(job, batches).values())
        return [FROM_ZEROS, *positive, *of_few]

    def record(self, round_: int) -> OracleRecord:
        """What the oracle of a round came to, for the results file; its curve by steps is that of the first round."""
        oracle = self._oracles[self.number(round_, 0)]
        curve = [LossPoint(epoch, seen.mean_loss, seen.accuracy) for epoch, seen in enumerate(oracle.epochs, start=1)]
        accuracy = oracle.tested[-1].accuracy if len(oracle.epochs) == self._problem.epochs else None
        recorded = self._oracles[self.number(0, 0)].curve if self._curve_steps else None
        return OracleRecord(accuracy, curve, recorded, self._computed.device, self._computed.not_on_gpu)

    def judge(self, precision: Precision, job: Job, result: JobResult, attempt: Attempt, folder: Path) -> Judged:
        """The checks of what a process left in a folder, and its test accuracy.

        Raises OSError or ValueError if that is incomplete.
        """
        problem, train, test = self._problem, self._dataset.train, self._dataset.test
        checks = self.judge_short_runs(precision, job, result, folder)
        result = self._own(result)
        if result.plan is None or result.process is None or not attempt.kept:
            raise ValueError(INCOMPLETE)
        if self._timed:
            checks.insert(0, verify_timer(result.share_outside, statistics.median(result.process.runs_s)))
            checks.append(verify_clock(result.process, attempt.stamped_s))
            checks.append(verify_judged_time(result.process, attempt.kept[0]))
        judged = network_run(attempt.seeds[attempt.kept[0]], self._network)
        initial = kept_params(problem, judged)
        final, others = self._left(folder, run_file(attempt.kept[0])), attempt.kept[1:]
        oracle = self._oracles[judged]
        evaluated, epochs = gates.evaluate_final(final, test.images, test.labels), result.plan.epochs
        seen = problem.steps(len(train.images)) * problem.batch_size  # a rest of no full batch is left out
        accuracy, images = evaluated.accuracy, (len(test.images), seen)
        checks += gates.verify_final(problem, precision, epochs, final, result.metrics, oracle, accuracy, *images)
        checks += gates.verify_validation(
            problem, precision, epochs, result.validations, oracle, evaluated, len(test.images)
        )
        ends = [RunEnd.of(initial, final, test, alone=not others)]
        for run in others:
            began = initial_params(self._problem, network_run(attempt.seeds[run], self._network))
            ends.append(RunEnd.of(began, self._left(folder, run_file(run)), test))
        displacements = {number: end.displacement for number, end in enumerate(ends)}
        checks += gates.verify_displacements(
            precision, displacements, msgspec.structs.replace(result.plan, repeats=len(ends)), oracle
        )
        checks += verify_losses(problem, ends[0], ends[1:])
        checks += gates.verify_kept_bits(precision, final)
        checks += gates.verify_path(problem, precision, epochs, initial, final, oracle)
        return Judged(checks, accuracy)

    def judge_short_runs(self, precision: Precision, job: Job, result: JobResult, folder: Path) -> list[Check]:
        """Check the first updates, the repeated ones, those of trained parameters, and the epoch from zeros.

        Raises OSError or ValueError if what the process left is incomplete.
        """

        def left(name: str) -> Params:
            return self._left(folder, f"{name}.npy")

        result = self._own(result)
        if [first.batches for first in result.first_updates] != job.first_updates:
            raise ValueError(INCOMPLETE)
        checks = []
        for first in result.first_updates:
            batches = first.batches
            runs = {name: self._short_run(task) for name, task in self._tasks_of(job, batches).items()}
            checks += gates.verify_first_update(precision, runs["first"], left(f"first-{batches}"), first.metrics)
            if "repeated" in runs:
                named, updated = f"{protocol.REPEATED_EPOCHS} epochs of {batches} batches", left(f"repeated-{batches}")
                checks += gates.verify_short_run(named, precision, runs["repeated"], updated, first.repeated)
            if "trained" in runs:
                named, updated = "trained parameters", left(f"trained-{batches}")
                checks += gates.verify_short_run(named, precision, runs["trained"], updated, first.trained)
                missing = 0.0 if first.trained is not None else 1.0
                checks.append(gates.check("trained parameters, metrics left out", missing, 0.0))
        for late in result.late:
            checks += self._judge_late_epoch(precision, late, left, of_all=late.batches not in job.first_updates)
        checks += self._late_epochs_not_made(job, result)
        if job.positive:
            run = self._short_run(self._positive_task(job))
            begun = POSITIVE, precision, run, left("positive"), None
            checks += gates.verify_short_run(*begun, most=gates.MOST_OF_WHOLE)
        size = self._problem.batch_size
        whole = self._problem.steps(len(self._dataset.train.images)) * size
        seen = [
            *((metrics, first.batches * size) for first in result.first_updates for metrics in first.all_metrics()),
            *((late.metrics, late.batches * size) for late in result.late),
            *((epoch, whole) for epoch in (result.from_zero, *result.metrics.values())),
        ]
        checks += gates.verify_whole_images(precision, seen)
        from_zeros = self._short_run(FROM_ZEROS)
        return checks + gates.verify_from_zero(precision, from_zeros, left("from-zero"), result.from_zero)

    def _judge_late_epoch(
        self, precision: Precision, late: LateEpoch, left: Callable[[str], Params], *, of_all: bool
    ) -> list[Check]:
        """Check an epoch that begins late; no two stages share its first parameters."""
        train, draws = self._dataset.train, late_draws(self._problem, late.batches) if of_all else None
        begin, end = left(f"late-{late.batches}-begin"), left(f"late-{late.batches}")
        named = "late epoch" if of_all else f"late epoch of {late.batches} batches"
        if not begin.is_finite and (of_all or not diverges(self._problem, train, late.batches, late.after)):
            return [gates.check(f"{named}, finite parameters before it", math.nan, 0.0)]
        run = ShortRun(self._problem, late.batches, begin, train.images, train.labels, draws=draws)
        apart = gates.MLP_APART_FLOOR if of_all else 0.0
        return gates.verify_late_epoch(named, precision, run, late.after, end, late.metrics, apart)

    def _late_epochs_not_made(self, job: Job, result: JobResult) -> Iterable[Check]:
        """Checks of epochs that a process would have left if they were quicker: its own, or float64's."""
        made, whole = {late.batches for late in result.late}, self._problem.steps(len(self._dataset.train.images))
        for batches in job.repeated[:1]:
            if batches not in made:
                whose = "this stage" if batches in job.late else "the controls"
                why = f"a late epoch of {batches} batches {TAKES_TOO_LONG} for {whose}"
                yield gates.no_occasion(f"late epoch of {batches} batches, tensors", why)
        is_whole = not self._problem.is_logistic and max(job.first_updates, default=whole) < whole
        if is_whole and job.is_timed:
            why = f"an epoch of all {whole} batches {TAKES_TOO_LONG} to repeat"
            for named, is_made in (("late epoch", whole in job.late), (POSITIVE, job.positive)):
                yield from () if is_made else [gates.no_occasion(f"{named}, tensors", why)]

    def _tasks_of(self, job: Job, batches: int) -> dict[str, ShortTask]:
        """The short runs on this many batches, by the name of the file that a stage leaves after its own."""
        runs = {"first": ShortTask(self.number(job.round, protocol.FIRST_UPDATE_RUN + batches), batches)}
        if batches in job.repeated:
            number = self.number(job.round, protocol.REPEATED_RUN + batches)
            runs["repeated"] = ShortTask(number, batches, protocol.REPEATED_EPOCHS)
        if job.trained and batches == job.repeated[0]:
            runs["trained"] = ShortTask("trained", batches)
        return runs

    def _positive_task(self, job: Job) -> ShortTask:
        """The epoch on all batches from positive hidden biases."""
        steps = self._problem.steps(len(self._dataset.train.images))
        return ShortTask(self.number(job.round, protocol.POSITIVE_RUN), steps, is_positive=True)

    def _short_run(self, task: ShortTask) -> ShortRun:
        """The oracle's short run, computed once for all stages: a wide network takes seconds."""
        if task not in self._short_runs:
            trained = self._trained.get(task)
            self._short_runs[task] = task.run(self._problem, self._dataset.train, self._start, trained=trained)
        return self._short_runs[task]

    def _left(self, folder: Path, name: str) -> Params:
        """The network's parameters in a file that a process left."""
        left = protocol.load_params(folder / name, self._whole)
        return left if self._whole.networks == 1 else left.apart()[self._network]

    def _own(self, result: JobResult) -> JobResult:
        """The result with the network's own metrics; ValueError unless there are as many as networks."""
        if self._whole.networks == 1:
            return result

        def of_one(seen: EpochMetrics) -> EpochMetrics:
            if len(seen.networks) != self._whole.networks:
                raise ValueError(f"metrics of {len(seen.networks)} networks, not {self._whole.networks}")
            return seen.networks[self._network]

        def of_any(seen: EpochMetrics | None) -> EpochMetrics | None:
            return None if seen is None else of_one(seen)

        replace = msgspec.structs.replace
        return replace(
            result,
            first_updates=[
                replace(u, metrics=of_any(u.metrics), repeated=of_any(u.repeated), trained=of_any(u.trained))
                for u in result.first_updates
            ],
            late=[replace(late, metrics=of_any(late.metrics)) for late in result.late],
            from_zero=of_any(result.from_zero),
            metrics={epoch: of_one(seen) for epoch, seen in result.metrics.items()},
        )
