"""Short runs that the oracle repeats: a stage's errors there, and those of the controls on the same images."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from common.blas import blas_threads, limit_blas_threads, worthwhile_threads
from common.cost import parameters
from common.data.dataset import Split
from common.oracle import FloatArray, Network, Oracle, OracleEpoch, host
from common.problem import Params, Problem, kept_params, positive_params, zero_params
from common.trainer import EpochMetrics
from ladder.machine.environment import cores_usable
from ladder.measure.displacement import dot, summed
from ladder.processes.compute_pool import helpers, results_of
from ladder.records.run import Precision
from ladder.verify.agreement import verify_agreement
from ladder.verify.control import (
    LOWER_BITS,
    ROUNDINGS,
    Control,
    Corner,
    Divided,
    Draw,
    Flipping,
    InOrder,
    Rounding,
    Watched,
    addends_repeat,
    beyond_rounding,
)

MOST_DRAWS, FEWEST_DRAWS, LONG_STEPS = 16, 2, 16  # half of the draws for runs of more steps, which average more
COARSE_DRAWS = 64  # below float32, where a unit that flips early carries a long run far away
# Hidden outputs that rounding may flip, of which the nearest are tried, in a run of few steps even where it takes
# long; so many flip together; how near one or two more have to come; and so many of these are tried with one more.
MOST_CORNERS, FEWEST_CORNERS, MOST_FLIPPED, LEAST_NEARER, MOST_KEPT = 512, 48, 4, 0.95, 8
FLIPPED_DRAWS = 4  # controls with the output flipped that is nearest to its corner, or one of the next ones
# An epoch of an MLP of more steps than runs on a few batches have: its controls, the last of which loses small updates;
# and the largest error of a control's best tensor that tells of no unit that has switched.
FEWEST_STEPS, FEWEST_OF_WHOLE, CALM = 60, 4, 2e-5
SCALE_OF_SWITCHES = 0.01  # there, of the distance: with 64 units, controls had 0.02 at most
FAR = 1.5  # of an update, over all tensors: of 1,237 flips in bfloat16 with 16 units, the largest moved 0.53
ROUNDING_FLOOR = 2.0**-20  # sixteen roundings of float32: rate, 1 / batch and their product are rounded for all images
SUMS_IN_ORDER: tuple[tuple[Literal["zero", "parameter"], Divided], ...] = (
    ("zero", "errors"),
    ("zero", "sum"),
    ("parameter", "errors"),
)
BLOCKS = (1, 4, 16)  # images whose products are summed before a sum in order is rounded
NARROW = 8  # units, of which each weight counts: with 4 to 16, an honest error was at most 0.13 of its limit
DRAWN_WORK = 20_000_000_000  # multiplications of all draws together, likewise beyond the fewest
DRAWN_PARAMETERS = 5_000_000  # in all draws together; in a wide network, many parameters stand for many draws
# Parameters, or outputs of a layer, of all controls that train at once: they stay in a core's cache, or fit into a GPU.
STACKED, STACKED_ON_GPU = 1 << 18, 1 << 26
TAKING_TURNS = 2  # threads of small networks' controls, mostly Python: 16 took 1.7 times as long, one 1.2 (two cores)
WORK_APART = 100_000_000  # parameters updated, from which on processes are worth their start: a second of a core's time
FROM_ZERO_STEPS = 2000  # of all controls together, beyond the fewest: many steps average as many draws do


@dataclass(frozen=True)
class Errors:
    """The relative errors of an update, and of the metrics of its last epoch."""

    tensors: dict[str, float]
    """||dW - dW_ref|| / ||dW_ref|| by tensor."""
    scale: float
    """|<dW, dW_ref> / ||dW_ref||^2 - 1| over all tensors."""
    factor: float = math.nan
    """<dW, dW_ref> / ||dW_ref||^2 over all tensors; NaN if that explains less than half of what they are apart."""
    loss: float = 0.0
    accuracy: float = 0.0
    """Absolute."""
    lower: dict[int, float] = field(default_factory=dict)
    """The shares of lower precisions' errors in the last weights, by bits."""
    factors: dict[str, float] = field(default_factory=dict)
    """<dW, dW_ref> / ||dW_ref||^2 by tensor: 1 is right, 0 has not moved, -1 has moved the opposite way."""


@dataclass
class Trained:
    """What a short run came to, in arrays of NumPy."""

    ends: Network
    """The oracle's last parameters."""
    reference: OracleEpoch
    """Loss and accuracy of the last epoch."""
    lower: dict[int, FloatArray] = field(default_factory=dict)
    """The errors of lower precisions in the last weights, by bits."""
    spreads: dict[Precision, Errors] = field(default_factory=dict)
    """The largest errors of the controls that have trained."""


class ShortRun:
    """Some epochs on the first batches from given parameters: by the oracle, and by controls when they are needed."""

    def __init__(
        self,
        problem: Problem,
        batches: int,
        initial: Params,
        images: NDArray[np.uint8],
        labels: NDArray[np.uint8],
        *,
        epochs: int = 1,
        draws: int | None = None,
        alike: bool = False,
        xp: Any = np,
        trained: Trained | None = None,
    ) -> None:
        """Train on the first `batches` batches of images (N, I) and labels (N,), unless that is done (`trained`).

        At most `draws` controls are made; by default as many as the run's length and the precision ask for. `alike`
        says that hidden layers put out nearly the same for all images. `xp` is the array module; of another one than
        NumPy, the first steps of a run of one step are repeated, see `agreement`.
        """
        seen = batches * problem.batch_size
        self.problem, self.batches, self.epochs, self.initial = problem, batches, epochs, initial
        self._draws, self._alike, self._xp = draws, alike, xp
        self._is_whole = bool(problem.hidden) and batches * epochs > FEWEST_STEPS
        self._seen = Split(images[:seen], labels[:seen])
        self._start = self._here(Network(initial.weights, initial.biases))
        if trained is None:
            self._require_agreement(Oracle(problem, [initial], xp=xp))
            (reference,) = self._trained(oracle := Oracle(problem, initial, xp=xp))
            trained = Trained(Network(oracle.weights, oracle.biases), reference)
        self._known = trained
        self.oracle, self.reference = self._here(trained.ends), trained.reference
        self.flipped = 0  # hidden outputs, of a run that is nearer to a stage than the oracle
        self._in_order: list[tuple[Network, OracleEpoch]] | None = None

    @property
    def images(self) -> int:
        """Images of an epoch."""
        return self.batches * self.problem.batch_size

    @np.errstate(all="ignore")  # what is not finite fails its checks
    def _trained(self, oracle: Oracle) -> list[OracleEpoch]:
        threads = worthwhile_threads(self.problem.multiplications, blas_threads() or 1) if oracle.xp is np else 0
        with limit_blas_threads(threads) if threads else nullcontext():
            images, labels = (oracle.xp.asarray(array) for array in (self._seen.images, self._seen.labels))
            return [oracle.run_epochs(images, labels) for _ in range(self.epochs)][-1]

    def _require_agreement(self, oracle: Oracle, ends: Network | None = None) -> None:
        """Repeat a run of one step with NumPy, which takes no longer than to begin a long one."""
        if self._xp is not np and self.batches * self.epochs == 1:
            verify_agreement(oracle, self._seen, self._seen, ends)

    @np.errstate(all="ignore")
    def errors(self, updated: Params | Network, metrics: EpochMetrics | OracleEpoch | None, below: int = 0) -> Errors:
        """The errors of these parameters and metrics; infinite where an update is not zero and the oracle's is.

        With `below`, the bits of a precision, includes the share of the errors of all lower ones.
        """
        along = length = noise = apart = 0.0
        tensors, factors = {}, {}
        for name, tensor in self._tensors(updated):
            distance, size, excess, squared = summed(_rest_and_way, *tensor)
            along, noise = along + excess, noise + squared
            tensors[name] = _ratio(math.sqrt(distance), math.sqrt(size))
            factors[name] = 1.0 + excess / size if size > 0 else math.nan
            length += size
            apart += distance
        scale = _ratio(abs(along), length)
        factor = 1.0 + along / length if length > 0 and 2 * along**2 >= apart * length else math.nan
        if isinstance(updated, Network):  # a few draws may cancel by chance; the many parts of a large network do not
            scale = max(scale, _ratio(math.sqrt(noise), length))
            if self._is_whole:  # units that switch change many parts alike
                scale = max(scale, SCALE_OF_SWITCHES * _ratio(math.sqrt(apart), math.sqrt(length)))
        lower = self._shares_of_lower(updated.weights[-1], below)
        if metrics is None:
            return Errors(tensors, scale, factor, lower=lower, factors=factors)
        beyond = beyond_rounding(metrics.mean_loss, self.reference, self.problem.classes)
        loss = _ratio(beyond, abs(self.reference.mean_loss))
        return Errors(tensors, scale, factor, loss, abs(metrics.accuracy - self.reference.accuracy), lower, factors)

    def _shares_of_lower(self, weights: FloatArray, below: int) -> dict[int, float]:
        """How much of a lower precision's error the last weights show; only after one step, which no ReLU disturbs.

        Rounding is no chance: a stage that rounds factors to so many bits has the error of the control that does.
        Other errors have no part of it, however large they are.
        """
        if self.batches * self.epochs > 1:
            return {}
        error = (weights.astype(np.float64) - self.oracle.weights[-1]).ravel()
        wanted, lower = [bits for bits in LOWER_BITS if bits < below], self._known.lower
        for some in self._at_once([bits for bits in wanted if bits not in lower]):
            draws = [Draw(Rounding(bits, products=False), 0) for bits in some]
            self._trained(control := Control(self.problem, self.initial, draws, self._xp))
            ends = (control.weights[-1] - self.oracle.weights[-1]).reshape(len(some), -1)
            lower.update((bits, ends[number]) for number, bits in enumerate(some))
        return {bits: abs(_ratio((error @ lower[bits]).item(), (lower[bits] @ lower[bits]).item())) for bits in wanted}

    def spread(self, precision: Precision) -> Errors:
        """The largest errors of the controls in a precision."""
        if precision not in self._known.spreads:
            draws = min(self._most_draws(precision), self._most_runs)
            # Side by side are those that round alike, so that none takes time for what only another does.
            fewest = FEWEST_OF_WHOLE if self._is_whole else FEWEST_DRAWS
            numbers = sorted(range(max(fewest, draws)), key=lambda number: number % 4)
            seen = [
                *self._control_errors([Draw(ROUNDINGS[precision], number) for number in numbers]),
                *self._errors_in_order(ROUNDINGS[precision].bits),
            ]
            seen += self._errors_flipped(precision, seen)
            self._known.spreads[precision] = Errors(
                {name: largest(errors.tensors[name] for errors in seen) for name in seen[0].tensors},
                largest(errors.scale for errors in seen),
                loss=largest(errors.loss for errors in seen),
                accuracy=largest(errors.accuracy for errors in seen),
                lower={bits: largest(errors.lower[bits] for errors in seen) for bits in seen[0].lower},
            )
        return self._known.spreads[precision]

    def trained(self, precisions: Collection[Precision]) -> Trained:
        """What it came to, with the controls in these precisions."""
        spreads = {precision: self.spread(precision) for precision in precisions}
        ends = _on_host(self._known.ends)
        lower = {bits: host(error) for bits, error in self._known.lower.items()}
        return Trained(ends, self.reference, lower, spreads)

    def _control_errors(self, draws: Sequence[Draw]) -> list[Errors]:
        """The errors of a control in each of these draws.

        NumPy trains small networks in two threads, or much work in processes, and stacks of large ones on all cores.
        """
        on_host, each = self._xp is np, worthwhile_threads(self.problem.multiplications, blas_threads() or 1)
        cores, is_small = cores_usable(), self._largest_tensor <= STACKED
        work = len(draws) * self.batches * self.epochs * parameters(self.problem)
        apart = on_host and is_small and each == 1 and cores > TAKING_TURNS and work >= WORK_APART
        if is_small and not apart:
            cores = min(TAKING_TURNS, cores)
        workers = max(1, cores // each)
        # Pairs have half of that Python. A GPU's stream is this thread's.
        pairs, most = on_host and len(draws) > max(workers, FEWEST_DRAWS), -(-len(draws) // workers)
        stacks = [*self._at_once(draws, 2 if pairs else 1, most if apart else len(draws))]
        if apart:
            run = (self.problem, self.batches, self.initial, self._seen, self.epochs, self._known)
            jobs = [partial(_errors_apart, *run, some) for some in stacks]
            with suppress(BrokenProcessPool, OSError):  # too little memory for so many
                return list(chain.from_iterable(results_of(helpers(), jobs)))
        with limit_blas_threads(each), ThreadPoolExecutor(workers) as threads:
            return list(chain.from_iterable((threads.map if on_host else map)(self._errors_of, stacks)))

    def _errors_of(self, draws: Sequence[Draw]) -> list[Errors]:
        control = Control(self.problem, self.initial, draws, self._xp)
        self._require_agreement(control, _on_host(self._known.ends))
        metrics = self._trained(control)
        ends = zip(draws, control.networks(), metrics, strict=True)
        return [self.errors(network, seen, draw.rounding.bits) for draw, network, seen in ends]

    @property
    def _largest_tensor(self) -> int:
        return max(max(layer.fan_in, self.problem.batch_size) * layer.fan_out for layer in self.problem.layers)

    def _at_once(self, draws: Sequence[Any], times: int = 1, most: int | None = None) -> Iterator[Sequence[Any]]:
        """The draws of controls that train side by side, or so many `times` as many, up to `most`."""
        size = times * max(1, (STACKED if self._xp is np else STACKED_ON_GPU) // self._largest_tensor)
        size = min(size, most or size)
        return (draws[begin : begin + size] for begin in range(0, len(draws), size))

    def _errors_in_order(self, bits: int) -> Iterator[Errors]:
        """The errors of sums in order, if their addends repeat."""
        if self._in_order is None:
            self._in_order = list(self._trained_in_order())
        return (self.errors(self._here(network), seen, bits) for network, seen in self._in_order)

    def _errors_flipped(self, precision: Precision, seen: Sequence[Errors]) -> Iterator[Errors]:
        """The errors of an output that flips, in a long run of a network too wide to look for all that did in a stage.

        There one flip leads to others, and the parameters tell no longer which was first. A run of very many steps
        takes long, and its controls mostly show such flips already.
        """
        if self.batches * self.epochs <= LONG_STEPS or self._most_runs >= COARSE_DRAWS or self._draws is not None:
            return
        least = min(largest(errors.tensors[name] for errors in seen) for name in seen[0].tensors)
        if self._is_whole and least > CALM:
            return
        for some in self._at_once(self._corners(precision, ())[:FLIPPED_DRAWS]):
            run = Flipping(self.problem, self.initial, [(corner,) for corner in some], self._xp)
            for network, epoch in zip(run.networks(), self._trained(run), strict=True):
                yield self.errors(network, epoch, ROUNDINGS[precision].bits)

    def _trained_in_order(self) -> Iterator[tuple[Network, OracleEpoch]]:
        """What float32 makes of sums in order, whatever factors are rounded to; by NumPy, whose order is known."""
        size, sums, most = self.problem.batch_size, SUMS_IN_ORDER, math.inf
        if not addends_repeat(self.initial, self._seen.images[:size]):
            if not self._alike or min(self.problem.hidden) > NARROW:
                return
            sums, most = SUMS_IN_ORDER[-1:], NARROW  # a product that begins with the parameter keeps the least
        for block in (images for images in BLOCKS if images < size):
            for begin, divided in sums:
                run = InOrder(self.problem, self.initial, block, begin, divided, most)
                (seen,) = self._trained(run)
                yield Network(run.weights, run.biases), seen

    def nearer(self, updated: Params, precision: Precision) -> Iterator[Self]:
        """Other runs, each with one more hidden output flipped, of those that rounding may flip, nearer to `updated`.

        So a stage meets what its own rounding has flipped, and no limit widens for it. None where a run takes long, or
        for one farther away than flips carry it.
        """
        # What rounding explains of each tensor: in a deep network, far more of a weight's update than of a bias's.
        explained = {name: error + ROUNDING_FLOOR for name, error in self.spread(precision).tensors.items()}

        def away(run: Self) -> float:
            return math.hypot(*(error / explained[name] for name, error in run.errors(updated, None).tensors.items()))

        beyond = (max(error - explained[name], 0.0) for name, error in self.errors(updated, None).tensors.items())
        watched = tries = min(MOST_CORNERS, self._most_runs)
        if self.batches * self.epochs <= LONG_STEPS:
            watched, tries = MOST_CORNERS, max(tries, FEWEST_CORNERS)
        if not math.hypot(*beyond) < FAR or not tries:
            return
        nearest, missed = away(self), False
        kept: list[tuple[Corner, ...]] = [()]
        keeps = min(MOST_KEPT, max(1, self._most_runs // COARSE_DRAWS))  # one where runs take long
        for _ in range(MOST_FLIPPED):
            sets = {
                frozenset((*flipped, corner)): (*flipped, corner)
                for flipped in kept
                for corner in self._corners(precision, flipped, watched)[:tries]
            }
            tried = []
            for some in self._at_once(list(sets.values())):
                run = Flipping(self.problem, self.initial, some, self._xp)
                for flipped, network, seen in zip(some, run.networks(), self._trained(run), strict=True):
                    other = copy(self)
                    other.oracle, other.reference, other.flipped = network, seen, len(flipped)
                    tried.append((away(other), flipped, other))
                tried = sorted(tried, key=lambda one: one[0])[:keeps]  # the others' parameters are let go
            if tried and tried[0][0] < LEAST_NEARER * nearest:
                nearest, missed = tried[0][0], False
                yield tried[0][2]
            elif missed or not tried or keeps == 1:
                return
            else:
                missed = True  # two that nearly cancel each other come nearer together
            kept = [flipped for _, flipped, _ in tried]

    @np.errstate(all="ignore")
    def _corners(self, precision: Precision, flipped: Collection[Corner], most: float = math.inf) -> Sequence[Corner]:
        """The other outputs that rounding may flip, the nearest first.

        None of more than `most`, since one of them is no large share.
        """
        run = Watched(self.problem, self.initial, flipped, ROUNDINGS[precision].bits, self._xp)
        steps, size = self.batches * self.epochs, self.problem.batch_size
        for step in range(steps if self.problem.hidden else 0):
            batch = slice(step % self.batches * size, (step % self.batches + 1) * size)
            run.run_epochs(self._xp.asarray(self._seen.images[batch]), self._xp.asarray(self._seen.labels[batch]))
            if len(run.corners) > most:
                return []
        return [corner for _, corner in sorted(run.corners) if corner not in flipped]

    @property
    def _most_runs(self) -> int:
        """How many runs like this take no more work and parameters than all draws may."""
        parameters = sum(layer.fan_in * layer.fan_out for layer in self.problem.layers)
        return min(DRAWN_PARAMETERS, DRAWN_WORK // (self.images * self.epochs)) // parameters

    def _most_draws(self, precision: Precision) -> int:
        steps = self.batches * self.epochs
        most = draws_of(steps) if steps <= LONG_STEPS or precision == "float32" else COARSE_DRAWS
        return most if self._draws is None else min(self._draws, most)

    def _tensors(self, updated: Params | Network) -> Iterator[tuple[str, tuple[FloatArray, FloatArray, FloatArray]]]:
        """Every tensor's name, and its values before, after, and after the oracle's training."""
        for index in range(len(self.problem.layers)):
            for kind, *tensors in (
                ("weight", self._start.weights, updated.weights, self.oracle.weights),
                ("bias", self._start.biases, updated.biases, self.oracle.biases),
            ):
                before, after, target = (tensor[index] for tensor in tensors)
                yield f"{kind}[{index}]", (before, after, target)

    def _here(self, network: Network) -> Network:
        """A network with the arrays of the run's module."""
        return Network(*([self._xp.asarray(tensor) for tensor in tensors] for tensors in network))


class ShortTask(NamedTuple):
    """A short run that stages share, by what it begins with: zeros, trained parameters, or those of a run's number."""

    begin: int | Literal["zeros", "trained"]
    batches: int = 0
    epochs: int = 1
    is_positive: bool = False  # begins with `positive_params` of that number

    def run(
        self, problem: Problem, train: Split, start: Params | None, xp: Any = np, trained: Trained | None = None
    ) -> ShortRun:
        """The run on the training images; `start` are the trained parameters, which only some need."""
        images, labels = train.images, train.labels
        if self.begin == "zeros":
            return from_zero_run(problem, images, labels, xp, trained)
        initial = start
        if self.begin != "trained":
            initial = (positive_params if self.is_positive else kept_params)(problem, self.begin)
        assert initial is not None
        return ShortRun(
            *(problem, self.batches, initial, images, labels),
            epochs=self.epochs,
            alike=self.is_positive,
            xp=xp,
            trained=trained,
        )


def from_zero_run(
    problem: Problem, images: NDArray[np.uint8], labels: NDArray[np.uint8], xp: Any = np, trained: Trained | None = None
) -> ShortRun:
    """The epoch from zeros on images (N, I) and labels (N,).

    Hidden layers of zeros pass nothing on in either direction: what is left of an MLP is softmax regression on images
    without pixels.
    """
    steps = problem.steps(len(images))
    if not problem.is_logistic:
        problem, images = replace(problem, inputs=1, hidden=()), np.zeros((len(images), 1), np.uint8)
    draws = min(draws_of(steps), FROM_ZERO_STEPS // steps)
    return ShortRun(problem, steps, zero_params(problem), images, labels, draws=draws, xp=xp, trained=trained)


def _errors_apart(
    problem: Problem, batches: int, initial: Params, seen: Split, epochs: int, known: Trained, draws: Sequence[Draw]
) -> list[Errors]:
    """`ShortRun._errors_of` in another process."""
    run = ShortRun(problem, batches, initial, seen.images, seen.labels, epochs=epochs, trained=known)
    return run._errors_of(draws)


def draws_of(steps: int) -> int:
    """As many draws as say enough of a run of so many steps in float32."""
    return MOST_DRAWS if steps <= LONG_STEPS else MOST_DRAWS // 2


def _on_host(network: Network) -> Network:
    return Network(*([host(tensor) for tensor in tensors] for tensors in network))


def _rest_and_way(start: FloatArray, end: FloatArray, aim: FloatArray) -> tuple[float, float, float, float]:
    """||rest||^2, ||way||^2, <rest, way> and its square, of how far a chunk has come and how far it should have."""
    update, wanted = end - start, aim - start
    rest = update - wanted
    part = dot(rest, wanted)
    return dot(rest, rest), dot(wanted, wanted), part, part**2


def largest(errors: Iterable[float]) -> float:
    """The largest error; NaN if any is NaN."""
    return float(np.max(np.array(list(errors))))


def _ratio(error: float, size: float) -> float:
    """The error as a share of the size; NaN if it is not finite, and infinite only where the size is zero."""
    if size > 0:
        return error / size if math.isfinite(error) else math.nan
    return 0.0 if error == 0 else math.inf if 0 < error < math.inf else math.nan
