"""The gates: whether what was timed computed what it should have, by the float64 oracle.

Accuracy cannot see a gradient that is 1 % off, and for an MLP neither can the final parameters, since ReLU networks
part company over thousands of steps. The first update can; so it is judged for every stage, after one batch and after
three. And every step of an epoch counts when training starts from zeros, where no network is chaotic. The limits are
about ten times what a correct run measures (docs/method.md has the measurements).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.oracle import RELU_MARGINS, Float64Array, Oracle, OracleEpoch, evaluate
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from ladder.measure.chunks import in_pieces
from ladder.measure.displacement import NONE, Displacement
from ladder.measure.timing import Plan
from ladder.records.run import Check, Precision
from ladder.verify.oracle_runs import OracleRun

FLOAT32_ROUNDING = 2.0**-24  # half a unit in the last place, relative


@dataclass(frozen=True)
class Limits:
    """How far a precision class may be from float64, relative unless said; (logistic, MLP) where they differ."""

    first_update: tuple[float, float]
    update_scale: tuple[float, float]  # along the reference's update: blind to most noise, it sees 1 % in float32
    from_zero: tuple[float, float]
    final_params: float  # logistic only
    loss_curve: tuple[float, float]  # of the oracle's first epoch


LIMITS: dict[Precision, Limits] = {
    "float32": Limits((3.4e-6, 2.9e-5), (1e-5, 1e-5), (4e-6, 6e-6), 2e-5, (1e-5, 2e-2)),
    "tf32": Limits((1.3e-3, 6e-2), (2e-3, 2e-3), (4e-4, 4e-3), 9e-4, (1e-3, 2e-2)),
    "bfloat16": Limits((1.2e-2, 3e-1), (5e-3, 8e-3), (4e-3, 2.5e-2), 3e-3, (5e-3, 3e-2)),
    "float16": Limits((1.3e-3, 6e-2), (2e-3, 2e-3), (4e-4, 4e-3), 9e-4, (1e-3, 2e-2)),
}
CORNER: dict[Precision, float] = {
    "float32": RELU_MARGINS[0],
    "tf32": RELU_MARGINS[1],
    "bfloat16": RELU_MARGINS[2],
    "float16": RELU_MARGINS[1],
}
PRECISE_BATCHES = 3  # after more, only the update's scale is judged: noise has grown, but it has no direction
MOST_MOVED = 0.5  # of an update: more than any such unit may explain, so that no update at all is seen
LARGE_BATCH = 128  # images
# Units at their corner, beyond those that the limits of low precision allow for: one counts much in a small network.
MOST_CORNER_UNITS = 4
# As a share of the distance that a run covers; 1 for a run that stays, or that began from another run's parameters.
DISPLACEMENT_DIFFERENCE = 0.5
# Of two honest runs, one may go a hundred times as far in a network of a few units, which may be dead.
DISPLACEMENT_SHORTFALL = 0.999
TIMER = "work outside of the timer, as a share of the run"
OUTSIDE_SHARE = 0.5  # of a timed run: copying parameters to and fro is next to nothing of twenty epochs
TEST_ACCURACY = (0.003, 0.01)  # absolute; two correct runs of an MLP end at different networks
TRAINING_ACCURACY = 0.003  # absolute
DEEP = 4  # hidden layers, with which a network may begin late
SETTLED_ACCURACY = 0.9  # of the test images: a network that begins late and has fewer right may be anywhere
LATE = 0.4  # of the loss and the images wrong that are left, besides, in a network that begins late
VALIDATION_LOSS = 0.2  # of an MLP, by the first epoch's; at one moment, where a training loss is a mean over an epoch
# Of the images of a few batches, how many may fall on the other side: one at a tie, and those that rounding moves.
MOVED_IMAGES: dict[Precision, float] = {"float32": 0.0, "tf32": 0.005, "bfloat16": 0.03, "float16": 0.005}


def check(what: str, error: float, limit: float) -> Check:
    """A check passes when its error is within a limit that is a number, so that NaN fails."""
    if not math.isfinite(limit):
        return Check(what, None, 0.0, passed=False)
    return Check(what, error if math.isfinite(error) else None, limit, bool(error <= limit))


@dataclass(frozen=True)
class FirstBatches:
    """What the oracle makes of the first batches, from given parameters: the same for every stage that is judged."""

    batches: int
    initial: Params
    oracle: Oracle
    """After them."""
    reference: OracleEpoch
    """What it saw of them."""

    @classmethod
    def of(
        cls, problem: Problem, batches: int, initial: Params, images: NDArray[np.uint8], labels: NDArray[np.uint8]
    ) -> FirstBatches:
        """Train on images (N, I) and labels (N,), those of so many batches at least."""
        oracle, seen = Oracle(problem, initial), batches * problem.batch_size
        return cls(batches, initial, oracle, oracle.run_epoch(images[:seen], labels[:seen]))


@np.errstate(invalid="ignore", over="ignore")  # what is infinite or no number fails its checks, and needs no warning
def verify_first_update(
    precision: Precision, first: FirstBatches, updated: Params, metrics: EpochMetrics | None
) -> list[Check]:
    """Judge the parameters after the first batches and what the stage told of these.

    ||dW - dW_ref|| / ||dW_ref|| for every tensor, dW being what was added to it; and how long dW is along dW_ref.
    """
    oracle, batches, reference = first.oracle, first.batches, first.reference
    problem, images = oracle.problem, batches * oracle.problem.batch_size
    limits, kind = LIMITS[precision], 0 if problem.is_logistic else 1
    named = f"first {batches} updates" if batches > 1 else "first update"
    expected = {f"weight[{i}]": w for i, w in enumerate(oracle.weights)}
    expected |= {f"bias[{i}]": b for i, b in enumerate(oracle.biases)}
    before, after = first.initial.tensors(), updated.tensors()

    # A unit at its ReLU's corner may count for an image or not, and that is one of so many terms, of which some are
    # larger than others. The limits of the tensors know of most that rounding to few bits moves, that of the scale of
    # none; and what was moved moves others in later batches, so that more batches do not average it out.
    terms = images * min((layer.fan_out for layer in problem.layers[:-1]), default=1)
    near = oracle.near[CORNER[precision]]
    flipped = min(
        MOST_MOVED, 4.0 * math.sqrt((near if precision == "float32" else min(near, MOST_CORNER_UNITS)) / terms)
    )
    shifted = min(MOST_MOVED, 6.0 * math.sqrt(near * batches) / terms)

    checks = []
    along = length = rounding = 0.0  # of dW: its product with dW_ref; of dW_ref: squared
    for name, target in expected.items():
        distance = size = reached = 0.0  # squared
        for start, end, aim in in_pieces(before[name], after[name], target):
            update, wanted = end - start, aim - start
            rest = update - wanted
            distance += float(rest @ rest)
            size += float(wanted @ wanted)
            reached += float(aim @ aim)
            along += float(update @ wanted)
        # The sum of parameter and update is rounded to float32 whoever computes it, once for each batch.
        floor = FLOAT32_ROUNDING * batches * math.sqrt(reached / size) if size > 0 else 0.0
        limit = limits.first_update[kind] + floor + flipped
        if batches <= PRECISE_BATCHES:
            checks.append(check(f"{named}, {name}", math.sqrt(distance / size if size > 0 else distance), limit))
        length += size
        rounding = max(rounding, floor)
    scale = abs(along / length - 1.0) if length > 0 else abs(along)
    checks.append(check(f"{named}, scale", scale, limits.update_scale[kind] + rounding + shifted))
    if metrics is not None:
        loss_error = abs(metrics.mean_loss - reference.mean_loss) / abs(reference.mean_loss)
        checks.append(check(f"{named}, loss", loss_error, limits.first_update[0]))
        moved = MOVED_IMAGES[precision] + (1.001 + oracle.undecided) / images
        checks.append(check(f"{named}, accuracy", abs(metrics.accuracy - reference.accuracy), moved))
    return checks


def verify_from_zero(
    problem: Problem, precision: Precision, updated: Params, metrics: EpochMetrics | None, oracle: OracleRun
) -> list[Check]:
    """Judge the parameters after a whole epoch from zeros, in which every step counts and nothing is chaotic."""
    limits, kind = LIMITS[precision], 0 if problem.is_logistic else 1
    reference = oracle.params[0]
    assert reference is not None
    error = _relative_params(updated, *reference, least=problem.learning_rate)
    checks = [check("epoch from zeros, parameters", error, _grown(problem, precision) * limits.from_zero[kind])]
    if metrics is not None:
        loss_error = abs(metrics.mean_loss / oracle.epochs[0].mean_loss - 1.0)
        checks.append(check("epoch from zeros, loss", loss_error, limits.loss_curve[0]))
    return checks


def verify_final(
    problem: Problem,
    precision: Precision,
    epochs: int,
    final: Params,
    metrics: Mapping[int, EpochMetrics],
    oracle: OracleRun,
    accuracy: float,
    test_images: int,
    train_images: int,
) -> list[Check]:
    """Judge the timed run itself: its parameters (logistic), its loss curve and its test accuracy.

    `metrics` are the stage's own, by epoch from 0; `accuracy` is the harness's forward pass over `final`. Where the
    oracle did not reach that epoch, the stage may at least not be worse than the oracle was when it gave up.
    """
    limits, kind = LIMITS[precision], 0 if problem.is_logistic else 1
    reached = oracle.epochs[: min(epochs, len(oracle.epochs))]
    numbers = [*final.tensors().values(), *(np.array([m.mean_loss, m.accuracy]) for m in metrics.values())]
    finite = all(np.isfinite(number).all() for number in numbers)
    checks = [check("finite parameters and metrics", 0.0 if finite else math.nan, 0.0)]
    reference_accuracy = oracle.tested[len(reached) - 1].accuracy
    test_limit = _test_limit(problem, oracle, len(reached) - 1, test_images)
    if epochs <= len(oracle.epochs):
        reference = oracle.params[epochs - 1]
        if problem.is_logistic and reference is not None:
            error = _relative_params(final, *reference, least=problem.learning_rate)
            # The limits are of large batches, over whose images the rounding of low precision averages out.
            wider = 1.0 if precision == "float32" else math.sqrt(max(1.0, LARGE_BATCH / problem.batch_size))
            checks.append(check("final parameters", error, wider * limits.final_params))
        checks.append(check("test accuracy", abs(accuracy - reference_accuracy), test_limit))
    else:
        lost = max(0.0, reference_accuracy - accuracy) if math.isfinite(accuracy) else math.nan
        checks.append(check(f"test accuracy, not below epoch {len(reached)}'s", lost, test_limit))
    due = [epoch for epoch in range(epochs) if problem.metrics_due(epoch)]
    if due:
        left_out = sum(epoch not in metrics for epoch in due) / len(due)
        checks.append(check("metrics left out, of those that are due", left_out, 0.0))
    judged = [epoch for epoch in metrics if 0 <= epoch < len(reached)]
    if judged:
        # Against the loss that training began with: at its end there is next to none left to be relative to.
        first_loss = reached[0].mean_loss
        late = LATE if _begins_late(problem, reached) else 0.0
        losses, accuracies = [], []
        for e in judged:
            loss_error = abs(metrics[e].mean_loss - reached[e].mean_loss) / first_loss
            loss_limit = limits.loss_curve[kind] + late * reached[e].mean_loss / first_loss
            losses.append(check("loss curve", loss_error, loss_limit))
            accuracy_error = abs(metrics[e].accuracy - reached[e].accuracy)
            accuracy_limit = TRAINING_ACCURACY + late * (1.0 - reached[e].accuracy) + 2.0 / train_images
            accuracies.append(check("training accuracy", accuracy_error, accuracy_limit))
        checks += [_closest(losses), _closest(accuracies)]
    return checks


def verify_validation(
    problem: Problem,
    precision: Precision,
    epochs: int,
    validations: Mapping[int, EpochMetrics],
    oracle: OracleRun,
    final: OracleEpoch,
    test_images: int,
) -> list[Check]:
    """Judge what the timed run itself said of the test images, by epoch from 0; none where no epoch is due.

    After the last epoch, against `final`, the harness's forward pass over the very parameters, so that no chaos hides
    a made-up number; after every epoch, against the oracle's own network.
    """
    due = [epoch for epoch in range(epochs) if problem.validation_due(epoch)]
    if not due:
        return []
    limits = LIMITS[precision]
    left_out = sum(epoch not in validations for epoch in due) / len(due)
    checks = [check("validations left out, of those that are due", left_out, 0.0)]
    first_loss = oracle.epochs[0].mean_loss  # as of the loss curve
    last = validations.get(epochs - 1)
    if last is not None:
        loss_error = abs(last.mean_loss - final.mean_loss) / first_loss
        checks.append(check("validation of the final parameters, loss", loss_error, limits.loss_curve[0]))
        moved = MOVED_IMAGES[precision] + 2.0 / test_images
        checks.append(check("validation of the final parameters, accuracy", abs(last.accuracy - final.accuracy), moved))
    judged = [e for e in due if e in validations and e < len(oracle.tested)]
    if judged:
        late = LATE if _begins_late(problem, oracle.epochs) else 0.0
        losses, accuracies = [], []
        for e in judged:
            said, reference = validations[e], oracle.tested[e]
            loss_error = abs(said.mean_loss - reference.mean_loss) / first_loss
            left = late * reference.mean_loss / first_loss
            loss_limit = limits.loss_curve[0] if problem.is_logistic else VALIDATION_LOSS + left
            losses.append(check("validation curve, loss", loss_error, loss_limit))
            accuracy_error = abs(said.accuracy - reference.accuracy)
            accuracy_limit = _test_limit(problem, oracle, e, test_images)
            accuracies.append(check("validation curve, accuracy", accuracy_error, accuracy_limit))
        checks += [_closest(losses), _closest(accuracies)]
    return checks


def verify_displacements(displacements: Mapping[int, Displacement], plan: Plan, oracle: OracleRun) -> list[Check]:
    """Judge the way from the first parameters: of run 0 by the oracle's, and that the other timed runs went any."""
    judged = displacements.get(0, NONE)
    short = _worst(
        1.0 - displacements.get(number, NONE).distance / (judged.distance or math.nan) for number in range(plan.repeats)
    )
    checks = [check("timed runs, shortest way by the judged one's", short, DISPLACEMENT_SHORTFALL)]
    if plan.epochs <= len(oracle.displacements):
        checks.append(
            check(
                "way from the first parameters",
                judged.difference(oracle.displacements[plan.epochs - 1]),
                DISPLACEMENT_DIFFERENCE,
            )
        )
    return checks


def verify_timer(share_outside: float) -> Check:
    """Judge what a stage does while it is not timed: loading parameters, and reading them back the first time."""
    return check(TIMER, share_outside, OUTSIDE_SHARE)


def verify_speed(physical_us: float, step_us: float) -> Check:
    """Judge a step's time by what the GPU takes for the problem at least: a time below it cannot be true."""
    return check("physical floor, as a share of the step's time", physical_us / step_us, 1.0)


def tested(params: Params, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> OracleEpoch:
    """Loss and the share right of the test images, by the harness's own float64 forward pass."""
    return evaluate(params.weights, params.biases, images, labels)


def worst_of(checks: Iterable[Check]) -> list[Check]:
    """One check of each name, the worst over all processes: failed before passed, then by error."""

    def badness(one: Check) -> tuple[bool, float]:
        return not one.passed, math.inf if one.error is None else one.error

    worst: dict[str, Check] = {}
    for one in checks:
        if one.what not in worst or badness(one) > badness(worst[one.what]):
            worst[one.what] = one
    return list(worst.values())


def _grown(problem: Problem, precision: Precision) -> float:
    """By how much the limit of the epoch from zeros is larger than in batches of 128.

    bfloat16 moves the gradient of each image the same way there, and what is left of it in their sum, chance among the
    labels, grows by the root of the batch alone. Of few large batches the error is measured by the size of a step.
    """
    if precision != "bfloat16" or problem.is_logistic:
        return 1.0
    batches = problem.batch_size / LARGE_BATCH
    return max(1.0, min(2.0, math.sqrt(batches)) * min(1.0, 8.0 / batches))


def _closest(checks: Sequence[Check]) -> Check:
    """The one that is furthest beyond its limit, or closest to it."""
    return max(checks, key=lambda one: math.inf if one.error is None else one.error / one.limit)


def _begins_late(problem: Problem, epochs: Sequence[OracleEpoch]) -> bool:
    """Whether a deep network had most images wrong in the oracle's second epoch.

    It stands still at first, and rounding decides when it begins to learn. One of few layers learns slowly, but surely.
    """
    return len(problem.hidden) >= DEEP and len(epochs) > 1 and epochs[1].accuracy < 0.5


def _test_limit(problem: Problem, oracle: OracleRun, epoch: int, test_images: int) -> float:
    """How far an accuracy on the test images may be from the oracle's after that epoch, counted from 0."""
    reference = oracle.tested[epoch].accuracy
    # Two networks that err on other images differ by chance, too.
    wrong = 0.0 if problem.is_logistic else 1.0 - reference
    chance = 3.0 * math.sqrt(wrong * (1.0 - wrong) / test_images)
    if reference < SETTLED_ACCURACY and _begins_late(problem, oracle.epochs):
        return 1.0  # a moment in which one may have begun and another not
    return TEST_ACCURACY[0 if problem.is_logistic else 1] + chance + 2.0 / test_images


def _worst(errors: Iterable[float]) -> float:
    """The largest, or NaN as soon as one is."""
    return float(np.max(np.array(list(errors))))


@np.errstate(invalid="ignore", over="ignore")
def _relative(actual: NDArray[np.floating], wanted: Float64Array, least: float) -> float:
    """||actual - wanted|| / ||wanted||, or by `least` if that is more."""
    distance = size = 0.0
    for found, aim in in_pieces(actual, wanted):
        rest = found - aim
        distance += float(rest @ rest)
        size += float(aim @ aim)
    return math.sqrt(distance) / max(math.sqrt(size), least)


def _relative_params(final: Params, weights: list[Float64Array], biases: list[Float64Array], *, least: float) -> float:
    """The largest relative error over all tensors.

    One that ends near zero by chance is measured by `least`, the size of a step: it was larger on its way there.
    """
    pairs = [*zip(final.weights, weights, strict=True), *zip(final.biases, biases, strict=True)]
    return _worst(_relative(actual, wanted, least) for actual, wanted in pairs)
