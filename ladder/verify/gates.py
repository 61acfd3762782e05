"""The gates: compare what a stage computed with the float64 oracle, and turn each error into a check.

A gradient that is 1 % wrong does not show in the accuracy. In an MLP it does not show in the final parameters either:
two correct runs of a ReLU network diverge over thousands of steps. It does show in the first update, which is therefore
checked for every stage after one batch and after several. An epoch from zeros checks every step, since training is not
chaotic there. The limits are about ten times the errors of correct runs; docs/method.md lists the measurements.
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
from ladder.measure.chunks import in_chunks
from ladder.measure.displacement import UNKNOWN, Displacement
from ladder.measure.timing import Plan
from ladder.records.run import Check, Precision
from ladder.verify.oracle_runs import OracleRun

FLOAT32_ROUNDING = 2.0**-24  # half a unit in the last place, relative


@dataclass(frozen=True)
class Limits:
    """Limits of the relative errors of one precision; pairs are (softmax regression, MLP)."""

    first_update: tuple[float, float]
    update_scale: tuple[float, float]  # along the reference's update: noise averages out, so 1 % shows in float32
    from_zero: tuple[float, float]
    final_params: float  # softmax regression only
    loss_curve: tuple[float, float]  # relative to the loss of the oracle's first epoch


LIMITS: dict[Precision, Limits] = {
    "float32": Limits((3.4e-6, 2.9e-5), (1e-5, 1e-5), (4e-6, 6e-6), 2e-5, (1e-5, 2e-2)),
    "tf32": Limits((1.3e-3, 6e-2), (2e-3, 2e-3), (4e-4, 4e-3), 9e-4, (1e-3, 2e-2)),
    "bfloat16": Limits((1.2e-2, 3e-1), (5e-3, 8e-3), (4e-3, 2.5e-2), 3e-3, (5e-3, 3e-2)),
    "float16": Limits((1.3e-3, 6e-2), (2e-3, 2e-3), (4e-4, 4e-3), 9e-4, (1e-3, 2e-2)),
}
RELU_MARGIN: dict[Precision, float] = {
    "float32": RELU_MARGINS[0],
    "tf32": RELU_MARGINS[1],
    "bfloat16": RELU_MARGINS[2],
    "float16": RELU_MARGINS[1],
}
TENSOR_CHECK_BATCHES = 3  # after more batches only the update's scale is checked, in which the grown noise averages out
LARGE_BATCH = 128  # images
# Units near their ReLU's corner add to the limits; by less than a whole update, so that a missing update still fails.
CORNER_ALLOWANCE_LIMIT = 0.5  # as a share of the update
CORNER_UNITS_LIMIT = 4  # in low precision, whose limits already cover larger numbers of such units
# Relative to the oracle's displacement; a run that does not move, or starts from other parameters, has 1.
DISPLACEMENT_DIFFERENCE = 0.5
# Between correct runs: with few units, most may be dead in one run, and another then moves a hundred times as far.
DISPLACEMENT_SHORTFALL = 0.999
TIMER_CHECK = "work outside of the timer, as a share of the run"
SPEED_CHECK = "cheat limit, as a share of the step's time"
UNTIMED_SHARE = 0.5  # relative to a timed run: copying parameters takes far less than twenty epochs
TEST_ACCURACY = (0.003, 0.01)  # absolute; two correct runs of an MLP end at different networks
TRAINING_ACCURACY = 0.003  # absolute
# A deep network may stand still for some epochs, and rounding then decides when it starts to learn.
LATE_START_LAYERS = 4  # hidden layers, at least
LATE_START_ALLOWANCE = 0.4  # added to its limits, as a share of the remaining loss and of the images still wrong
SETTLED_ACCURACY = 0.9  # on the test images; below it, such a network's test accuracy is not limited
VALIDATION_LOSS_LIMIT = (
    0.2  # of an MLP, by the first epoch's loss; wider than in training, whose loss is an epoch's mean
)
# The share of images whose prediction rounding may change in the first batches.
FLIPPED_IMAGES: dict[Precision, float] = {"float32": 0.0, "tf32": 0.005, "bfloat16": 0.03, "float16": 0.005}


def check(what: str, error: float, limit: float) -> Check:
    """A check of this name; passes if `error <= limit`. NaN fails, and so does a limit that is not finite."""
    if not math.isfinite(limit):
        return Check(what, None, 0.0, passed=False)
    return Check(what, error if math.isfinite(error) else None, limit, bool(error <= limit))


@dataclass(frozen=True)
class FirstBatches:
    """The oracle after the first batches from given parameters: the reference of every stage's first update."""

    batches: int
    initial: Params
    oracle: Oracle
    """Trained on these batches."""
    reference: OracleEpoch
    """Loss and accuracy over these batches."""

    @classmethod
    def of(
        cls, problem: Problem, batches: int, initial: Params, images: NDArray[np.uint8], labels: NDArray[np.uint8]
    ) -> FirstBatches:
        """Train on the first `batches` batches of images (N, I) and labels (N,)."""
        oracle, seen = Oracle(problem, initial), batches * problem.batch_size
        return cls(batches, initial, oracle, oracle.run_epoch(images[:seen], labels[:seen]))


@np.errstate(invalid="ignore", over="ignore")  # infinities and NaN fail their checks, without a warning
def verify_first_update(
    precision: Precision, first: FirstBatches, updated: Params, metrics: EpochMetrics | None
) -> list[Check]:
    """Check the parameters after the first batches, and the stage's own metrics of them.

    With dW the update of a tensor: ||dW - dW_ref|| / ||dW_ref|| for each tensor, and the length of all dW along dW_ref.
    """
    oracle, batches, reference = first.oracle, first.batches, first.reference
    problem, images = oracle.problem, batches * oracle.problem.batch_size
    limits, kind = LIMITS[precision], 0 if problem.is_logistic else 1
    named = f"first {batches} updates" if batches > 1 else "first update"
    expected = {f"weight[{i}]": w for i, w in enumerate(oracle.weights)}
    expected |= {f"bias[{i}]": b for i, b in enumerate(oracle.biases)}
    before, after = first.initial.tensors(), updated.tensors()

    # Rounding decides whether a unit near its ReLU's corner is active for an image, which adds or removes one of
    # `terms` terms of unequal size. The tensors' limits in low precision include most such units, the scale's limit
    # none. A changed unit changes others in later batches, so that more batches do not average the effect out.
    terms = images * min((layer.fan_out for layer in problem.layers[:-1]), default=1)
    near = oracle.near[RELU_MARGIN[precision]]
    flipped = min(
        CORNER_ALLOWANCE_LIMIT,
        4.0 * math.sqrt((near if precision == "float32" else min(near, CORNER_UNITS_LIMIT)) / terms),
    )
    shifted = min(CORNER_ALLOWANCE_LIMIT, 6.0 * math.sqrt(near * batches) / terms)

    checks = []
    along = length = rounding = 0.0  # <dW, dW_ref>, ||dW_ref||^2, and the largest share of float32 rounding
    for name, target in expected.items():
        distance = size = reached = 0.0  # squared norms: of dW - dW_ref, of dW_ref, of the parameter
        for start, end, aim in in_chunks(before[name], after[name], target):
            update, wanted = end - start, aim - start
            rest = update - wanted
            distance += float(rest @ rest)
            size += float(wanted @ wanted)
            reached += float(aim @ aim)
            along += float(update @ wanted)
        # Every implementation rounds the sum of parameter and update to float32, once per batch.
        floor = FLOAT32_ROUNDING * batches * math.sqrt(reached / size) if size > 0 else 0.0
        limit = limits.first_update[kind] + floor + flipped
        if batches <= TENSOR_CHECK_BATCHES:
            checks.append(check(f"{named}, {name}", math.sqrt(distance / size if size > 0 else distance), limit))
        length += size
        rounding = max(rounding, floor)
    scale = abs(along / length - 1.0) if length > 0 else abs(along)
    checks.append(check(f"{named}, scale", scale, limits.update_scale[kind] + rounding + shifted))
    if metrics is not None:
        loss_error = abs(metrics.mean_loss - reference.mean_loss) / abs(reference.mean_loss)
        checks.append(check(f"{named}, loss", loss_error, limits.first_update[0]))
        # One image more may be a tie; `undecided` counts those that the oracle itself cannot decide.
        accuracy_limit = FLIPPED_IMAGES[precision] + (1.001 + oracle.undecided) / images
        checks.append(check(f"{named}, accuracy", abs(metrics.accuracy - reference.accuracy), accuracy_limit))
    return checks


def verify_from_zero(
    problem: Problem, precision: Precision, updated: Params, metrics: EpochMetrics | None, oracle: OracleRun
) -> list[Check]:
    """Check the parameters after one epoch from zeros: every step contributes, and training is not chaotic there."""
    limits, kind = LIMITS[precision], 0 if problem.is_logistic else 1
    reference = oracle.params[0]
    assert reference is not None
    error = _max_relative_error(updated, *reference, least=problem.learning_rate)
    checks = [
        check("epoch from zeros, parameters", error, _from_zero_factor(problem, precision) * limits.from_zero[kind])
    ]
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
    """Check the timed run itself: its parameters (softmax regression only), loss curve and test accuracy.

    `metrics` are the stage's own, by epoch from 0; `accuracy` comes from the harness's forward pass over `final`. If
    the oracle did not reach the last epoch, the stage must not be worse than the oracle's last one.
    """
    limits, kind = LIMITS[precision], 0 if problem.is_logistic else 1
    reached = oracle.epochs[: min(epochs, len(oracle.epochs))]
    numbers = [*final.tensors().values(), *(np.array([m.mean_loss, m.accuracy]) for m in metrics.values())]
    finite = all(np.isfinite(number).all() for number in numbers)
    checks = [check("finite parameters and metrics", 0.0 if finite else math.nan, 0.0)]
    reference_accuracy = oracle.tested[len(reached) - 1].accuracy
    test_limit = _test_accuracy_limit(problem, oracle, len(reached) - 1, test_images)
    if epochs <= len(oracle.epochs):
        reference = oracle.params[epochs - 1]
        if problem.is_logistic and reference is not None:
            error = _max_relative_error(final, *reference, least=problem.learning_rate)
            # The limits assume large batches, over whose images low-precision rounding averages out.
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
        # Relative to the first epoch's loss: at the end of training the loss may be almost zero.
        first_loss = reached[0].mean_loss
        late = LATE_START_ALLOWANCE if _starts_late(problem, reached) else 0.0
        losses, accuracies = [], []
        for e in judged:
            loss_error = abs(metrics[e].mean_loss - reached[e].mean_loss) / first_loss
            loss_limit = limits.loss_curve[kind] + late * reached[e].mean_loss / first_loss
            losses.append(check("loss curve", loss_error, loss_limit))
            accuracy_error = abs(metrics[e].accuracy - reached[e].accuracy)
            accuracy_limit = TRAINING_ACCURACY + late * (1.0 - reached[e].accuracy) + 2.0 / train_images
            accuracies.append(check("training accuracy", accuracy_error, accuracy_limit))
        checks += [_nearest_to_limit(losses), _nearest_to_limit(accuracies)]
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
    """Check the stage's own validations on the test images, by epoch from 0; no checks if none is due.

    The last one is compared with `final`, the harness's forward pass over the same parameters, so that an invented
    number cannot hide behind chaos. All of them are compared with the oracle's network.
    """
    due = [epoch for epoch in range(epochs) if problem.validation_due(epoch)]
    if not due:
        return []
    limits = LIMITS[precision]
    left_out = sum(epoch not in validations for epoch in due) / len(due)
    checks = [check("validations left out, of those that are due", left_out, 0.0)]
    first_loss = oracle.epochs[0].mean_loss  # as for the loss curve
    last = validations.get(epochs - 1)
    if last is not None:
        loss_error = abs(last.mean_loss - final.mean_loss) / first_loss
        checks.append(check("validation of the final parameters, loss", loss_error, limits.loss_curve[0]))
        accuracy_error, limit = abs(last.accuracy - final.accuracy), FLIPPED_IMAGES[precision] + 2.0 / test_images
        checks.append(check("validation of the final parameters, accuracy", accuracy_error, limit))
    judged = [e for e in due if e in validations and e < len(oracle.tested)]
    if judged:
        late = LATE_START_ALLOWANCE if _starts_late(problem, oracle.epochs) else 0.0
        losses, accuracies = [], []
        for e in judged:
            own, reference = validations[e], oracle.tested[e]
            loss_error = abs(own.mean_loss - reference.mean_loss) / first_loss
            allowance = late * reference.mean_loss / first_loss
            loss_limit = limits.loss_curve[0] if problem.is_logistic else VALIDATION_LOSS_LIMIT + allowance
            losses.append(check("validation curve, loss", loss_error, loss_limit))
            accuracy_error = abs(own.accuracy - reference.accuracy)
            accuracy_limit = _test_accuracy_limit(problem, oracle, e, test_images)
            accuracies.append(check("validation curve, accuracy", accuracy_error, accuracy_limit))
        checks += [_nearest_to_limit(losses), _nearest_to_limit(accuracies)]
    return checks


def verify_displacements(displacements: Mapping[int, Displacement], plan: Plan, oracle: OracleRun) -> list[Check]:
    """Check the displacement of run 0 against the oracle's, and that no other timed run moved far less than run 0."""
    judged = displacements.get(0, UNKNOWN)
    short = _max_error(
        1.0 - displacements.get(number, UNKNOWN).distance / (judged.distance or math.nan)
        for number in range(plan.repeats)
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
    """Check the time that a stage spends outside of the timer: loading parameters, and first reading them back."""
    return check(TIMER_CHECK, share_outside, UNTIMED_SHARE)


def verify_speed(cheat_limit_us: float, step_us: float) -> Check:
    """Check that a step takes at least the problem's cheat limit on this GPU: a shorter time is impossible."""
    return check(SPEED_CHECK, cheat_limit_us / step_us, 1.0)


def evaluate_final(params: Params, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> OracleEpoch:
    """Loss and accuracy on the test images, by the harness's own float64 forward pass."""
    return evaluate(params.weights, params.biases, images, labels)


def worst_of(checks: Iterable[Check]) -> list[Check]:
    """The worst check of each name over all processes: a failed one before a passed one, then the largest error."""

    def badness(one: Check) -> tuple[bool, float]:
        return not one.passed, math.inf if one.error is None else one.error

    worst: dict[str, Check] = {}
    for one in checks:
        if one.what not in worst or badness(one) > badness(worst[one.what]):
            worst[one.what] = one
    return list(worst.values())


def _from_zero_factor(problem: Problem, precision: Precision) -> float:
    """The factor on the limit of the epoch from zeros, which holds for batches of 128 images.

    From zeros, bfloat16 rounds the gradients of all images in the same direction, so the rounding grows with the batch,
    but their sum, left over by chance among the labels, only with its root. With few large batches, the error is
    relative to the size of a step instead, and the factor falls again.
    """
    if precision != "bfloat16" or problem.is_logistic:
        return 1.0
    batches = problem.batch_size / LARGE_BATCH
    return max(1.0, min(2.0, math.sqrt(batches)) * min(1.0, 8.0 / batches))


def _nearest_to_limit(checks: Sequence[Check]) -> Check:
    """The check with the largest error relative to its limit."""
    return max(checks, key=lambda one: math.inf if one.error is None else one.error / one.limit)


def _starts_late(problem: Problem, epochs: Sequence[OracleEpoch]) -> bool:
    """Whether a deep network had most images wrong in the oracle's second epoch: rounding decides when it will learn.

    A network of few layers may learn slowly, but starts at once.
    """
    return len(problem.hidden) >= LATE_START_LAYERS and len(epochs) > 1 and epochs[1].accuracy < 0.5


def _test_accuracy_limit(problem: Problem, oracle: OracleRun, epoch: int, test_images: int) -> float:
    """The limit of the difference from the oracle's test accuracy after an epoch, counted from 0."""
    reference = oracle.tested[epoch].accuracy
    # Two networks that fail on different images also differ by chance: three standard deviations are allowed.
    wrong = 0.0 if problem.is_logistic else 1.0 - reference
    chance = 3.0 * math.sqrt(wrong * (1.0 - wrong) / test_images)
    if reference < SETTLED_ACCURACY and _starts_late(problem, oracle.epochs):
        return 1.0  # one network may have started to learn and the other not
    return TEST_ACCURACY[0 if problem.is_logistic else 1] + chance + 2.0 / test_images


def _max_error(errors: Iterable[float]) -> float:
    """The largest error; NaN if any is NaN."""
    return float(np.max(np.array(list(errors))))


@np.errstate(invalid="ignore", over="ignore")
def _relative_error(actual: NDArray[np.floating], wanted: Float64Array, least: float) -> float:
    """||actual - wanted|| / max(||wanted||, least)."""
    distance = size = 0.0
    for found, aim in in_chunks(actual, wanted):
        rest = found - aim
        distance += float(rest @ rest)
        size += float(aim @ aim)
    return math.sqrt(distance) / max(math.sqrt(size), least)


def _max_relative_error(
    final: Params, weights: list[Float64Array], biases: list[Float64Array], *, least: float
) -> float:
    """The largest relative error over all tensors.

    The error of a tensor that happens to end near zero is relative to `least`, the size of a step.
    """
    pairs = [*zip(final.weights, weights, strict=True), *zip(final.biases, biases, strict=True)]
    return _max_error(_relative_error(actual, wanted, least) for actual, wanted in pairs)
