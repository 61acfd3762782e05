"""Trains the float64 oracle once for all stages, from the parameters of each round's verified run, and its controls.

The runs have processes of their own, before anything is timed, so that they disturb no measurement: one process on the
GPU, or several side by side on the CPU's cores.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import astuple, dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from threading import local
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.blas import limit_blas_threads, worthwhile_threads
from common.cost import parameters
from common.data.dataset import Dataset, Split
from common.errors import UsageError
from common.oracle import FloatArray, Network, Oracle, OracleEpoch, evaluate_all, host
from common.problem import Params, Problem, initial_params, kept_params
from ladder.machine.environment import cores_usable, missing
from ladder.machine.gpu_monitor import GpuMonitor
from ladder.measure.curves import begins, part_of, point, windows
from ladder.measure.displacement import Displacement, apart, params_error
from ladder.processes.compute_pool import packed, pool, results_of, unpacked
from ladder.records.run import Curve, Precision
from ladder.verify.agreement import is_wide, verify_agreement
from ladder.verify.control import FLOAT32_ROUNDING, ROUNDINGS, Control, Draw, addends_repeat
from ladder.verify.short_runs import STACKED_ON_GPU, ShortTask, Trained

LOSS_LIMIT = float(np.finfo(np.float32).max)  # training with a larger loss, or NaN, counts as diverged
PARTS = 8  # of an epoch, whose losses are compared: a whole epoch's may agree by chance
KEPT_BYTES = 1 << 30  # of a run's parameters after each epoch; beyond that, only the last epoch's are kept
DIVERGED = 2.0  # times the loss of a guess
LEARNED = 0.1  # of the images that a guess has wrong; a run that has as many right only overshoots for some steps
MOST_CONTROLS, CONTROLLED_WORK = 8, 20_000_000_000  # controls of a run, and their multiplications: a long run has one
STEP_WORK = 300_000  # multiplications in the time of NumPy's calls of a step
LITTLE_WORK = 1_000_000_000  # multiplications in the time in which a process starts
# One of an MLP may miss the unit at its ReLU's corner, or have the oracle's test loss by chance. Below float32 a short
# run has as many as so much work allows: 8 controls had every image as the oracle, and a correct run three others.
FEWEST_COARSE, MOST_COARSE, COARSE_WORK = 2, 64, 1_000_000_000
# Of a run that fails by its controls alone: of 240, 13 met a corner that an H200 met, and not one of the first 47.
OWN_TIMES = 4
TRAINED_RUN, TRAINED_STEPS, TRAINED_S = 950, 1000, 5.0  # the parameters that later updates are judged from
NUMPY_ONLY = "LADDER_ORACLE=numpy"
# Softmax regression is too small for a GPU, whose kernels take longer to compile. With so much work for each of its
# tasks, many cores train it sooner: 784-10 in 5.3 s on 16 cores, and on an H200 in 9.9, or 30 with an empty cache.
SOONER, SMALL_WORK, MANY_CORES = "many cores train so small a network sooner", 30_000_000_000, 8
APART = 1_000_000  # parameters, below which several processes use the GPU: each compiles kernels of its own
MOST_LETTERS = 200  # of a library's error
SHORT_AT_ONCE = 4  # short runs' controls on a GPU, so that their memory suffices
Metric = Literal["accuracy", "mean_loss"]
METRICS: tuple[Metric, ...] = ("mean_loss", "accuracy")
TensorLists = tuple[list[FloatArray], list[FloatArray]]


@dataclass(frozen=True)
class EpochSpread:
    """How far the controls were from the oracle after an epoch, or after any earlier one; zero without a control."""

    loss: float = 0.0
    """Root mean square over an epoch's parts, relative to the loss of the first epoch."""
    accuracy: float = 0.0
    tested_loss: float = 0.0
    """On the test images, by the training loss of the first epoch; of an MLP, no less than it rose in any epoch."""
    tested_accuracy: float = 0.0
    """Both are no less than the largest over an MLP's eighths of an epoch: two networks may be as good by chance."""
    apart: float = 0.0
    """||W - W_ref|| / ||W_ref - W0||, over all tensors; NaN if the parameters were not kept."""
    params: float = 0.0
    """The largest ||W - W_ref|| / ||W_ref|| of a tensor; NaN likewise."""
    way: float = 0.0
    """The difference of the displacements; NaN likewise."""

    def or_larger(self, other: EpochSpread) -> EpochSpread:
        """The larger of each number; NaN only if both are."""
        return EpochSpread(*(float(np.fmax(a, b)) for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass
class OracleRun:
    """The oracle after each epoch."""

    epochs: list[OracleEpoch] = field(default_factory=list)
    tested: list[OracleEpoch] = field(default_factory=list)
    """On the test images."""
    params: list[TensorLists | None] = field(default_factory=list)
    """In float32 if they are an MLP's, whose runs part; None where they would take too much memory."""
    displacements: list[Displacement] = field(default_factory=list)
    curve: Curve = field(default_factory=Curve)
    """One point per epoch, or as many as requested."""
    parts: list[list[OracleEpoch]] = field(default_factory=list)
    """The parts of each epoch."""
    spreads: dict[Precision, list[EpochSpread]] = field(default_factory=dict)
    """By precision, after each epoch."""
    apart: list[EpochSpread] = field(default_factory=list)
    """Of a control that has been compared: how far it was from the oracle, after each epoch."""

    def spread(self, precision: Precision, epoch: int) -> EpochSpread:
        """The controls' distance from an oracle after an epoch, from 0, in this precision.

        Where the controls' time ended before, their last distance: it only grows.
        """
        spreads = self.spreads.get(precision, [])
        return spreads[min(epoch, len(spreads) - 1)] if spreads else EpochSpread()

    def last_change(self, epoch: int, of: Metric = "accuracy") -> float:
        """How much a metric changed in the last eighth of an epoch, from 0; zero if it has no parts."""
        seen = eighths(self.parts[epoch], of) if epoch < len(self.parts) else []
        return abs(seen[-1] - seen[-2]) if len(seen) > 1 else 0.0


class Task(NamedTuple):
    """A run to train: by the oracle, or as a control's draw in a precision."""

    run: int
    precision: Precision | None = None
    draw: int = 0


def compute(
    problem: Problem, dataset: Path, tasks: Sequence[Task], budget_s: float, curve_steps: int = 0, xp: Any = np
) -> dict[Task, OracleRun]:
    """Train side by side for all epochs or until the budget is spent (at least one epoch).

    The tasks are the oracle's, or controls of one run. The curve has a point every `curve_steps` steps; 0 means one per
    epoch. `xp` is the array module; some steps of another one than NumPy are repeated with NumPy, see `agreement`.
    """
    data = Dataset.load_saved(dataset)
    initial = {task: kept_params(problem, task.run) for task in tasks}
    oracle: Oracle
    if tasks[0].precision is None:
        oracle = Oracle(problem, list(initial.values()), xp=xp)
    else:
        oracle = Control(problem, initial[tasks[0]], [_draw(task) for task in tasks], xp)
    train, test = (Split(xp.asarray(split.images), xp.asarray(split.labels)) for split in (data.train, data.test))
    begun = {task: begins(initial[task]) if curve_steps and task.precision is None else "" for task in tasks}
    done = {task: OracleRun(curve=Curve(begins=begun[task])) for task in tasks}
    begin = time.perf_counter()
    if xp is not np and not is_wide(oracle):  # a wide one at the end alone, where steps replay
        verify_agreement(oracle, data.train, data.test)
    steps = problem.steps(len(train.images))
    parts = windows(steps, curve_steps or -(-steps // PARTS))
    epochs = problem.epochs
    starts = {task: initial[task].map(xp.asarray) for task in tasks if task.precision is None}
    exact = np.float64 if problem.is_logistic else np.float32
    kept = epochs * initial[tasks[0]].nbytes <= KEPT_BYTES
    for epoch in range(epochs):
        seen = [oracle.run_epochs(*part_of(train, problem, part)) for part in parts]
        tested = evaluate_all(oracle.weights, oracle.biases, test.images, test.labels, xp)
        for (task, run), *parts_seen, ends, network in zip(done.items(), *seen, tested, oracle.networks(), strict=True):
            run.epochs.append(_mean(parts_seen, parts))
            run.parts.append(parts_seen)
            run.tested.append(ends)
            keeps = kept or epoch + 1 == epochs
            run.params.append(_in(exact, network) if keeps else None)
            if task.precision is None:
                run.displacements.append(Displacement.of(starts[task], network.weights, network.biases))
                points = zip(parts, parts_seen, strict=True) if curve_steps else [(range(steps), run.epochs[-1])]
                for part, start in points:
                    run.curve.training.append(point(epoch * steps + part.stop, start.mean_loss, start.accuracy))
                run.curve.validation.append(point((epoch + 1) * steps, ends.mean_loss, ends.accuracy))
        if time.perf_counter() - begin > budget_s:
            break
    if xp is not np:
        verify_agreement(oracle, data.train, data.test)
    return done


def _in(dtype: type[np.floating], network: Network) -> TensorLists:
    weights, biases = ([host(tensor.astype(dtype)) for tensor in tensors] for tensors in network[:2])
    return weights, biases


def _draw(task: Task) -> Draw:
    """A control's rounding without float32's sums, for the time's sake."""
    assert task.precision is not None
    return Draw(replace(ROUNDINGS[task.precision], sums=False), 1 + task.draw)


def trained_params(problem: Problem, dataset: Path, xp: Any = np) -> Params:
    """Parameters that an epoch has trained, or as many steps as fit into a time: judged by nothing, so no secret."""
    train = Dataset.load_saved(dataset).train
    oracle = Oracle(problem, initial_params(problem, TRAINED_RUN), np.float32, xp)  # half the time, and no less trained
    begin = time.perf_counter()
    for part in windows(min(problem.steps(len(train.images)), TRAINED_STEPS), 10):
        oracle.run_epoch(*map(xp.asarray, part_of(train, problem, part)))
        if time.perf_counter() - begin > TRAINED_S:
            break
    return Params(*(tuple(map(host, tensors)) for tensors in (oracle.weights, oracle.biases, oracle.state)))


def _mean(seen: Sequence[OracleEpoch], parts: Sequence[range]) -> OracleEpoch:
    """Loss and accuracy of an epoch, as the mean over its parts weighted by their steps."""
    steps = sum(map(len, parts))
    shares = [len(part) / steps for part in parts]
    return OracleEpoch(*(float(np.dot(shares, values)) for values in zip(*map(astuple, seen), strict=True)))


def eighths(parts: Sequence[OracleEpoch], of: Metric = "accuracy") -> list[float]:
    """A metric in each eighth of an epoch, of which a curve may ask for more parts."""
    return [
        float(np.mean(some)) for some in np.array_split([getattr(epoch, of) for epoch in parts], min(PARTS, len(parts)))
    ]


def spread_of(problem: Problem, run: int, oracle: OracleRun, control: OracleRun) -> list[EpochSpread]:
    """How far a control was from the oracle, for every epoch that both have reached."""
    initial, both = kept_params(problem, run), (control, oracle)
    first, largest = oracle.epochs[0].mean_loss, EpochSpread()
    spreads = []
    for epoch in range(min(len(oracle.epochs), len(control.epochs))):
        parts = list(zip(control.parts[epoch], oracle.parts[epoch], strict=True))
        mine, aim = control.params[epoch], oracle.params[epoch]
        distance = error = way = math.nan
        if mine is not None and aim is not None:
            distance = _or_infinite(apart(initial, mine, aim))
            error = _or_infinite(params_error(mine, aim, least=problem.learning_rate))
            way = _or_infinite(Displacement.of(initial, *mine).difference(oracle.displacements[epoch]))
        told = ([(getattr(side.tested[epoch], of), *eighths(side.parts[epoch], of)) for side in both] for of in METRICS)
        loss, accuracy = ([abs(a - b) for a, b in zip(*sides, strict=True)] for sides in told)
        loss += [side.tested[epoch].mean_loss - side.tested[max(epoch - 1, 0)].mean_loss for side in both]
        counted = slice(1 if problem.is_logistic else None)
        epoch_spread = EpochSpread(
            _rms([a.mean_loss - b.mean_loss for a, b in parts]) / first,
            _rms([a.accuracy - b.accuracy for a, b in parts]),
            max(loss[counted]) / first,
            max(accuracy[counted]),
            distance,
            error,
            way,
        )
        largest = largest.or_larger(epoch_spread)
        spreads.append(largest)
    return spreads


def compare(problem: Problem, done: Mapping[Task, OracleRun]) -> None:
    """Tell every control how far it was from its oracle, if that is there; its parameters go."""
    oracles = {task.run: run for task, run in done.items() if task.precision is None}

    def compare_one(task: Task) -> None:
        with np.errstate(all="ignore"):  # what diverges is refused later
            done[task].apart = spread_of(problem, task.run, oracles[task.run], done[task])
        done[task].params = []

    with ThreadPoolExecutor(cores_usable()) as threads:
        known = [task for task, run in done.items() if task.precision and task.run in oracles and not run.apart]
        list(threads.map(compare_one, known))


def spread_of_equal_addends(problem: Problem, run: int, oracle: OracleRun, steps: int) -> list[EpochSpread]:
    """How far sums that begin with the parameter may carry a run, after each epoch of so many steps.

    Each of a batch's images then rounds it by half a unit in the last place, at most, and equal ones round alike.
    """
    initial, still = kept_params(problem, run), EpochSpread(apart=math.nan, params=math.nan, way=math.nan)
    spreads = []
    for epoch, ends in enumerate(oracle.params):
        if ends is None:
            spreads.append(still)
            continue
        rounded = (epoch + 1) * steps * problem.batch_size * float(FLOAT32_ROUNDING)
        nothing = [np.zeros_like(weight) for weight in ends[0]], [np.zeros_like(bias) for bias in ends[1]]
        by_way = rounded * apart(initial, nothing, ends)  # ||W_ref|| by the way
        spreads.append(EpochSpread(apart=by_way, params=rounded, way=by_way))
    return spreads


def _rms(differences: Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(differences))))


def _or_infinite(distance: float) -> float:
    return distance if math.isfinite(distance) else math.inf


class Short(NamedTuple):
    """The short runs to train beside the oracle where it trains on a GPU, with controls in these precisions."""

    tasks: Sequence[ShortTask] = ()
    precisions: Collection[Precision] = ()
    start: Params | None = None
    """The trained parameters that some begin with, unless they are trained as well."""


NO_SHORT = Short()


class Computed(NamedTuple):
    """What all stages of a run are compared with."""

    runs: dict[int, OracleRun]
    """By number."""
    trained: Params | None
    """See `trained_params`; None unless asked for."""
    device: Literal["cpu", "gpu"] = "cpu"
    """Which trained the runs."""
    not_on_gpu: str = ""
    """Why the GPU did not, or left a short run to NumPy."""
    short: dict[ShortTask, Trained] = {}  # noqa: RUF012
    """The short runs that are trained: on a GPU alone, and without those for which its memory did not suffice."""


class GpuError(Exception):
    """The GPU, its libraries or its memory did not train: one line."""


def compute_all(
    problem: Problem,
    dataset: Path,
    runs: Sequence[int],
    budget_s: float,
    curve_steps: int = 0,
    precisions: Collection[Precision] = (),
    *,
    trained: bool = False,
    short: Short = NO_SHORT,
    own: bool = False,
) -> Computed:
    """Train several runs by number, within one common budget in seconds: on the GPU if there is one, else on all cores.

    The first of them has controls in these precisions; others, and more, if it is a failing run's `own`. A GPU that
    fails leaves all to the cores, and so does what many of them train sooner; this process trains what takes less time
    than another takes to start. Raises UsageError if training diverges in float64, if the host runs out of memory, or
    if the GPU and NumPy disagree.
    """
    data = Dataset.load_saved(dataset)
    tasks = planned(problem, data, runs, precisions, own=own)
    is_small = problem.is_logistic and _work(problem, data) <= SMALL_WORK and cores_usable() >= MANY_CORES
    sooner = is_small and not why_not_on_gpu()
    others = (budget_s, curve_steps, trained, short)
    on_gpu = SOONER if sooner else compute_in_gpus_process(problem, dataset, tasks, *others)
    if isinstance(on_gpu, str):
        cores = cores_usable()
        groups = tasks_by_group(problem, tasks, cores)
        workers = min(len(groups), cores)
        share_s = budget_s * workers / len(groups)
        jobs: list[Callable[[], Any]] = [
            partial(compute, problem, dataset, group, share_s, curve_steps) for group in groups
        ]
        if trained:
            jobs.append(partial(trained_params, problem, dataset))
        shared = [task for task in short.tasks if task.begin != "trained"] if sooner else []
        jobs += [partial(_short_run, problem, dataset, task, short.precisions) for task in shared]
        try:
            if len(tasks) * _work(problem, data) < LITTLE_WORK:
                with np.errstate(all="ignore"), limit_blas_threads(1):
                    results = [job() for job in jobs]
            else:
                with _pool(problem, cores if sooner else workers) as pool:
                    results = _submitted(pool, jobs)
        except BrokenProcessPool as error:
            layers = ",".join(map(str, problem.hidden)) or "none"
            way_out = "choose smaller layers, or raise the limit that `ulimit -v` shows"
            raise UsageError(f"hidden {layers}: the float64 oracle ran out of memory; {way_out}") from error
        short_runs = dict(zip(shared, results[len(results) - len(shared) :], strict=True))
        params = results[len(groups)] if trained else None
        done = {task: run for group in results[: len(groups)] for task, run in group.items()}
        computed = Computed({}, params, "cpu", on_gpu, short_runs)
    else:
        done, computed = on_gpu
    by_run = assembled(problem, {task: done[task] for task in tasks}, data.train.images)
    return computed._replace(runs=by_run)


def _short_run(problem: Problem, dataset: Path, task: ShortTask, precisions: Collection[Precision]) -> Trained:
    return task.run(problem, Dataset.load_saved(dataset).train, None).trained(precisions)


def compute_in_gpus_process(
    problem: Problem, dataset: Path, tasks: list[Task], budget_s: float, curve_steps: int, trained: bool, short: Short
) -> tuple[dict[Task, OracleRun], Computed] | str:
    """What `compute_on_gpu` trains, in processes that end with it, or why none did; UsageError as there."""
    if not_on_gpu := why_not_on_gpu():
        return not_on_gpu
    parts = [(tasks, trained, short)]
    if parameters(problem) < APART and cores_usable() >= MANY_CORES and _takes_several_processes():
        parts = _apart(tasks, trained, short)
    jobs = [
        partial(compute_on_gpu, problem, dataset, own, budget_s, curve_steps, begins, some)
        for own, begins, some in parts
    ]
    try:
        with _pool(problem, len(jobs)) as pool:
            results: list[tuple[dict[Task, OracleRun], Computed]] = _submitted(pool, jobs)
    except (GpuError, BrokenProcessPool) as error:
        return f"it failed there ({error})"
    done, computed = {task: run for runs, _ in results for task, run in runs.items()}, results[0][1]
    for _, other in results[1:]:
        computed = Computed(
            {},
            computed.trained or other.trained,
            "gpu",
            computed.not_on_gpu or other.not_on_gpu,
            {**computed.short, **other.short},
        )
    return done, computed


def _takes_several_processes() -> bool:
    with GpuMonitor() as monitor:
        return monitor.takes_several_processes()


def _apart(tasks: list[Task], trained: bool, short: Short) -> list[tuple[list[Task], bool, Short]]:
    """The oracles, their controls, what begins with trained parameters and the other short runs, each for a process."""
    oracles, controls = ([task for task in tasks if (task.precision is None) == is_one] for is_one in (True, False))
    from_trained, others = (
        short._replace(tasks=[task for task in short.tasks if (task.begin == "trained") == is_one])
        for is_one in (True, False)
    )
    parts = [(oracles, False, NO_SHORT), (controls, False, NO_SHORT), ([], trained, from_trained), ([], False, others)]
    return [part for part in parts if part[0] or part[1] or part[2].tasks] or [([], False, NO_SHORT)]


def why_not_on_gpu() -> str:
    """Why no GPU trains, in one short line; empty if one does."""
    return NUMPY_ONLY if os.environ.get("LADDER_ORACLE") == "numpy" else missing(("cuda", "cublas")) or ""


def compute_on_gpu(
    problem: Problem, dataset: Path, tasks: list[Task], budget_s: float, curve_steps: int, trained: bool, short: Short
) -> tuple[dict[Task, OracleRun], Computed]:
    """Train everything side by side, with a stream for the oracle, the controls, `trained_params`, and each short run.

    Raises GpuError for any error of CUDA, its libraries and its memory, and UsageError if the GPU and NumPy disagree.
    """
    of_thread = local()  # its module, since each has a handle of cuBLAS and memory of its own

    def on_a_stream(job: Callable[..., Any]) -> Any:
        try:
            from common.cuda.array_module import ArrayModule  # imported here: without a GPU there may be no CuPy

            module = of_thread.module = getattr(of_thread, "module", None) or ArrayModule()
            with module.stream, np.errstate(all="ignore"):
                return job(xp=module)
        except UsageError:
            raise
        except Exception as error:  # many cannot be sent to another process
            raise GpuError(" ".join(f"{type(error).__name__}: {error}".split())[:MOST_LETTERS]) from None

    def short_run(task: ShortTask, precisions: Collection[Precision], oracle: Future[Trained] | None = None) -> Trained:
        start = params.result() if params is not None and task.begin == "trained" else short.start
        train = Dataset.load_saved(dataset).train
        known = Trained(oracle.result().ends, oracle.result().reference) if oracle is not None else None
        result: Trained = on_a_stream(lambda xp: task.run(problem, train, start, xp, known).trained(precisions))
        return result

    oracles, controls = ([task for task in tasks if (task.precision is None) == is_one] for is_one in (True, False))
    at_once = max(1, STACKED_ON_GPU // parameters(problem))  # wide controls: NumPy repeats a step of each beside
    groups = [oracles, *(controls[begin : begin + at_once] for begin in range(0, len(controls), at_once))]
    with ThreadPoolExecutor(max(1, sum(map(bool, groups)))) as threads, ThreadPoolExecutor(SHORT_AT_ONCE) as others:
        runs = [
            threads.submit(on_a_stream, partial(compute, problem, dataset, group, budget_s, curve_steps))
            for group in groups
            if group
        ]
        params = others.submit(on_a_stream, partial(trained_params, problem, dataset)) if trained else None
        repeated = [task for task in short.tasks if task.batches == 1]  # by NumPy: each precision's controls apart
        ordered = (*repeated, *(task for task in short.tasks if task not in repeated))
        wanted = [(task, [] if task in repeated else short.precisions) for task in ordered]
        shorts = [(*each, others.submit(short_run, *each)) for each in wanted]
        shorts += [
            (task, [precision], others.submit(short_run, task, [precision], oracle))
            for task, _, oracle in shorts[: len(repeated)]
            for precision in short.precisions
        ]
    done = {task: run for group in runs for task, run in group.result().items()}
    compare(problem, done)
    by_task, left_to_numpy = dict[ShortTask, Trained](), ""
    for task, precisions, future in shorts:
        try:  # once more where memory was short, when the others have let theirs go
            seen = short_run(task, precisions) if isinstance(future.exception(), GpuError) else future.result()
        except GpuError as error:
            left_to_numpy = f"it had no room for a short run ({error})"
            continue  # NumPy trains it when it is needed
        by_task.setdefault(task, seen).spreads.update(seen.spreads)
        by_task[task].lower.update(seen.lower)
    return done, Computed({}, None if params is None else params.result(), "gpu", left_to_numpy, by_task)


def tasks_by_group(problem: Problem, tasks: Sequence[Task], cores: int) -> list[list[Task]]:
    """The tasks that train together on so many cores.

    Softmax regressions on the same images are one product, so that a group of them costs little more than one. Of MLPs
    this holds for the first layer alone: their oracles train apart, and controls together if cores are too few.
    """
    oracles = [task for task in tasks if task.precision is None]
    controls = [task for task in tasks if task.precision is not None]
    apart = [oracles] if problem.is_logistic else [[task] for task in oracles]
    size = -(-len(controls) // max(1, cores - len(apart)))
    return apart + [controls[begin : begin + size] for begin in range(0, len(controls), max(1, size))]


def _pool(problem: Problem, workers: int) -> ProcessPoolExecutor:
    """Processes that share the cores, as far as a step has work for them."""
    return pool(workers, worthwhile_threads(problem.multiplications, cores_usable() // workers))


def _submitted(workers: ProcessPoolExecutor, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """The results of all jobs; raises BrokenProcessPool if the host runs out of memory."""
    return [unpacked(result) for result in results_of(workers, [partial(packed, job) for job in jobs])]


def planned(
    problem: Problem, data: Dataset, runs: Sequence[int], precisions: Collection[Precision], *, own: bool = False
) -> list[Task]:
    """The runs to train, the longest first: the oracle's, and the controls of the first one."""
    work = _work(problem, data)
    draws, first, times = min(MOST_CONTROLS, CONTROLLED_WORK // work), 0, 1
    if own:  # draws that it cannot have had, if it is the run that all share
        draws, first, times = MOST_CONTROLS, MOST_COARSE, OWN_TIMES
    controls = [
        Task(run, precision, first + draw)
        for run in runs[:1]
        for precision in sorted(precisions)
        for draw in range(max(draws, times * _fewest_controls(problem, precision, precisions, work)))
    ]
    return [*map(Task, runs), *controls]


def _work(problem: Problem, data: Dataset) -> int:
    """The multiplications of a run, or as many as take its time."""
    return problem.steps(len(data.train.images)) * problem.epochs * (problem.multiplications + STEP_WORK)


def _fewest_controls(problem: Problem, precision: Precision, precisions: Collection[Precision], work: int) -> int:
    """Two of an MLP, but one in float32 without validations, or beside as coarse a precision; more of a short run."""
    if problem.is_logistic or precision == "float32":
        return FEWEST_COARSE if problem.hidden and problem.validate_every else 1
    bits = ROUNDINGS[precision].bits
    alike = sum(ROUNDINGS[precision].bits == bits for precision in precisions)
    return max(FEWEST_COARSE if alike < FEWEST_COARSE else 1, min(MOST_COARSE, COARSE_WORK // work))


def assembled(problem: Problem, done: Mapping[Task, OracleRun], images: NDArray[np.uint8]) -> dict[int, OracleRun]:
    """The oracle's runs with what the controls say, and equal images (N, I); UsageError if training diverges."""
    if how := _divergence(problem, done):
        raise UsageError(f"learning rate {problem.learning_rate:g}: training diverges {how}; choose a smaller one")
    oracles = {task.run: run for task, run in done.items() if task.precision is None}
    compare(problem, done)
    seen = [(ROUNDINGS[task.precision].bits, run.apart) for task, run in done.items() if task.precision is not None]
    if addends_repeat(kept_params(problem, min(oracles)), images[: problem.batch_size]):
        bits, steps = ROUNDINGS["float32"].bits, problem.steps(len(images))
        seen += [(bits, spread_of_equal_addends(problem, run, oracle, steps)) for run, oracle in oracles.items()]
    spreads = {
        precision: largest_spreads([spread for bits, spread in seen if bits >= rounding.bits])
        for precision, rounding in ROUNDINGS.items()
    }
    for oracle in oracles.values():
        oracle.spreads = spreads
    return oracles


def _divergence(problem: Problem, done: Mapping[Task, OracleRun]) -> str:
    """How training diverges: beyond float32's numbers, or to far worse answers than a guess; empty if it does not.

    Rounding decides where such a run is, so that no stage could be judged. A loss alone does not tell: a large rate
    makes some answers very wrong at first, while ever more are right.
    """

    def is_finite(oracle_run: OracleRun) -> bool:
        return all(epoch.mean_loss < LOSS_LIMIT for epoch in (*oracle_run.epochs, *oracle_run.tested))

    oracles = [oracle_run for task, oracle_run in done.items() if task.precision is None]
    if not all(map(is_finite, oracles)):
        return "even in float64"
    guess, by_chance = math.log(problem.classes), 1.0 / problem.classes
    for oracle_run in oracles:
        ends = oracle_run.epochs[-1], oracle_run.tested[-1]
        loss, accuracy = min(end.mean_loss for end in ends), max(end.accuracy for end in ends)
        if loss > DIVERGED * guess and accuracy < by_chance + LEARNED * (1.0 - by_chance):
            return f"even in float64, to a loss of {loss:.3g} (a guess has {guess:.3g})"
    in_float32 = [run for task, run in done.items() if task.precision == "float32"]
    return "" if all(map(is_finite, in_float32)) else "in float32"


def largest_spreads(controls: Sequence[Sequence[EpochSpread]]) -> list[EpochSpread]:
    """The largest spread of several controls after each epoch; one whose time ended counts on with its last.

    A coarser precision parts no less than a finer one, so a finer control's distance is a lower bound of its own.
    """
    epochs = max(map(len, controls), default=0)
    return [
        reduce(EpochSpread.or_larger, (spreads[min(epoch, len(spreads) - 1)] for spreads in controls))
        for epoch in range(epochs)
    ]
