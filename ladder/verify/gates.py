"""The gates: compare what a stage computed with the float64 oracle, and turn each error into a check.

A gradient that is 1 % wrong does not show in the accuracy. In an MLP it does not show in the final parameters either:
two correct runs of a ReLU network diverge over thousands of steps. It does show in the first updates, in three epochs
on a few batches, and in updates of trained parameters. An epoch from zeros checks every step, since training is not
chaotic there. Limits are multiples of what the controls show on the same problem; docs/statistics.md derives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from common.arrays import by_blocks
from common.oracle import OracleEpoch, evaluate
from common.problem import Float32Array, Params, Problem
from common.trainer import EpochMetrics
from ladder.measure.displacement import UNKNOWN, Displacement, apart, params_error
from ladder.measure.timing import Plan
from ladder.records.run import CANNOT_DECIDE, ORACLE_ENDED, Check, Precision
from ladder.verify.control import FLOAT32_ROUNDING, ROUNDING_OF_EQUAL_SIGNS, ROUNDINGS, beyond_rounding
from ladder.verify.oracle_runs import OracleRun
from ladder.verify.short_runs import ROUNDING_FLOOR, Errors, ShortRun, largest

SAFETY = 4.0  # times the largest error of the controls
FROM_ZERO_SAFETY = 2.0  # where rounding alone differs: a control repeats the errors of a GPU's rungs to two digits
# Of a lower precision's error in the update: 1 where it was used, and nearly 0 by chance, among enough weights.
LOWER_SHARE, MOST_CHANCE = 0.75, 0.4
SCALE_SAFETY = 8.0  # of the update's scale: one number, of which a few draws say less than of thousands
UNDECIDABLE = 0.9  # a limit beyond this share of an update: a missing update has an error of 1
MOST_OF_WHOLE = 0.01  # of an update by all steps: where limits are wider, other checks catch as much
TWO_IMAGES = 2.001  # and float64's rounding of their share
# A single control of a long run may miss the unit at its ReLU's corner that the stage meets.
MLP_APART_FLOOR = 0.02
MLP_LOSS_FLOOR = 2e-3  # relative to the loss of the first epoch
MLP_LOSS_LIMIT = 0.02  # likewise, unless the controls differ by more than half of it
LARGEST_SPIKE = 0.12  # likewise, of two honest runs in an epoch: docs/statistics.md
MLP_APART_LIMIT = 0.6  # runs of other data, order or steps are further apart, unless the controls are, too
CHAOS_SAFETY = 1.5  # of controls that far apart: chaos does not grow with rounding
# Relative to the oracle's displacement; a run that does not move, or starts from other parameters, has 1.
DISPLACEMENT_DIFFERENCE = 0.5
# Between correct runs: with few units, most may be dead in one run, and another then moves a hundred times as far.
DISPLACEMENT_SHORTFALL = 0.999
TIMER_CHECK = "work outside of the timer, as a share of the run"
SPEED_CHECK = "cheat limit, as a share of the step's time"
UNTIMED_SHARE = 0.5  # relative to a timed run: copying parameters takes far less than twenty epochs
UNTIMED_OF_LONG, UNTIMED_S = 0.2, 0.015  # of a run in which delays hardly count; recorded networks have 0.06 at most
TEST_ACCURACY = (0.003, 0.01)  # absolute; two correct runs of an MLP end at different networks
# A deep network may stand still for some epochs, and rounding then decides when it starts to learn.
LATE_START_LAYERS = 4  # hidden layers, at least
LATE_START_ALLOWANCE = 0.4  # added to its limits, as a share of the remaining loss and of the images still wrong
SETTLED_ACCURACY = 0.9  # on the test images; below it, such a network's test accuracy is not limited, others' is wider
# The share of test images whose prediction rounding may change in the same network.
FLIPPED_IMAGES: dict[Precision, float] = {"float32": 0.0, "tf32": 0.005, "bfloat16": 0.03, "float16": 0.005}
WHOLE_CHECK = "accuracy, from a whole number of images"
FEWEST_PARTS_OF_AN_IMAGE, MOST_PARTS_OF_AN_IMAGE = 0.01, 0.25
KEPT_CHECK = "parameters rounded to 16 bits, share of a tensor"
FEWEST_KEPT, KEPT_SHARE = 32, 0.5
CURVES = "loss curve", "training accuracy"
VALIDATION_CURVES = "validation curve, loss", "validation curve, accuracy"
FINAL, TESTED = "final parameters", "test accuracy"
WAY, PATH = "way from the first parameters", "distance from the oracle's parameters, by its way"
OWN_CONTROLS = "limited by controls of this very run as well"
MAY_SPIKE = "training is chaotic this late, so that an honest run may rarely fail, too: measure again"
LATER = "later epochs"  # after the name of a curve: those that the oracle did not reach
NO_METRICS_DUE = "no epoch of a timed run has metrics; those of one untimed epoch are judged"


def check(what: str, error: float, limit: float) -> Check:
    """A check of this name; passes if `error <= limit`. NaN fails, and so does a limit that is not finite."""
    error, limit = float(error), float(limit)  # JSON has no numbers of NumPy's
    if not math.isfinite(limit):
        return Check(what, None, 0.0, passed=False)
    return Check(what, float(error) if math.isfinite(error) else None, float(limit), bool(error <= limit))


def within(
    what: str,
    precision: Precision,
    error: float,
    spread: float,
    *,
    safety: float = SAFETY,
    floor: float = ROUNDING_FLOOR,
    most: float = 1.0,
) -> Check:
    """A check against the controls' error. It is not judged if they are so far apart that no run could fail.

    NaN fails even so. `most` is the error of a run that is as wrong as can be. Both are infinite where the oracle does
    not move, as in a dead layer, and rounding does.
    """
    limit, widest = safety * spread + floor, UNDECIDABLE * most
    if limit < widest or not (math.isfinite(error) or error == spread):
        return check(what, error, limit if limit < widest else widest)
    own = error if math.isfinite(error) else None
    return Check(what, own, widest, passed=True, judged=False, note=undecided(precision))


def accuracy_within(
    what: str,
    precision: Precision,
    own: float,
    reference: float,
    images: int,
    *,
    spread: float = 0.0,
    floor: float = 0.0,
) -> Check:
    """A check of an accuracy among so many images, of which rounding may change two.

    Accuracies lie between 0 and 1, so that an error has a largest value: where the limit is near it, nothing is judged.
    """
    few, most = TWO_IMAGES / images, max(reference, 1.0 - reference)
    check = within(what, precision, abs(own - reference), spread, floor=floor + few, most=most)
    if check.judged or few < UNDECIDABLE * most:
        return check
    return msgspec.structs.replace(check, note=f"rounding may change two images; this run has {images}")


def verify_whole_images(precision: Precision, seen: Iterable[tuple[EpochMetrics | None, int]]) -> list[Check]:
    """Check that accuracies of so many images are a whole number of them, as far as float32 can tell; see `statistics`.

    No check of a lower precision, which may have added them up, nor of epochs whose sums float32 rounds further.
    """
    checks = []
    for metrics, images in seen if precision == "float32" else ():
        limit = FEWEST_PARTS_OF_AN_IMAGE + images * (images**0.5) * float(FLOAT32_ROUNDING)
        if metrics is not None and limit < MOST_PARTS_OF_AN_IMAGE and math.isfinite(metrics.accuracy):
            right = metrics.accuracy * images
            checks.append(check(WHOLE_CHECK, abs(right - round(right)), limit))
    return [max(checks, key=_telling)] if checks else []


def verify_kept_bits(precision: Precision, final: Params) -> list[Check]:
    """Check that no tensor of the timed run's last parameters is kept in 16 bits of mantissa or fewer.

    Of float32's 24 bits, the last eight are zero in one number of 256 by chance. Stages that multiply in bfloat16 or
    float16 may keep less.
    """
    if precision not in ("float32", "tf32"):
        return []
    shares = []
    for tensor in final.tensors().values():
        kept, moved = _kept_and_moved(numbers := tensor.reshape(-1))
        if kept > KEPT_SHARE * moved:  # a dead unit moves the biases of all classes without an image alike
            kept, moved = _kept_and_moved(np.unique(numbers))
        shares += [kept / moved] if moved >= FEWEST_KEPT else []
    return [check(KEPT_CHECK, max(shares), KEPT_SHARE)] if shares else []


def _kept_and_moved(tensor: Float32Array) -> tuple[int, int]:
    """How many numbers of a flat tensor are kept so, and how many are not zero, as biases of dead units stay."""

    def count(begin: int, end: int) -> tuple[int, int]:
        moved = (some := tensor[begin:end]) != 0.0
        return int(np.count_nonzero((some.view(np.uint32) & 0xFF == 0) & moved)), int(np.count_nonzero(moved))

    kept, moved = zip(*by_blocks(count, tensor.size), strict=True)
    return sum(kept), sum(moved)


def undecided(precision: Precision) -> str:
    """What a check says whose controls in this precision are too far apart."""
    return f"{precision} {CANNOT_DECIDE}"


def no_occasion(what: str, why: str) -> Check:
    """A check that this run gives no occasion for."""
    return Check(what, None, 0.0, passed=True, judged=False, note=why)


def verify_first_update(
    precision: Precision, first: ShortRun, updated: Params, metrics: EpochMetrics | None
) -> list[Check]:
    """Check the parameters after the first batches, and the stage's own metrics of them."""
    named = f"first {first.batches} updates" if first.batches > 1 else "first update"

    def judged_by(run: ShortRun) -> list[Check]:
        errors, spread = run.errors(updated, metrics, ROUNDINGS[precision].bits), first.spread(precision)
        checks = [
            _times(within(f"{named}, {name}", precision, error, spread.tensors[name]), errors.factors[name])
            for name, error in errors.tensors.items()
        ]
        shares = [share for bits, share in errors.lower.items() if not spread.lower[bits] > MOST_CHANCE]
        if shares:
            checks.append(check(f"{named}, precision", largest(shares), LOWER_SHARE))
        elif errors.lower:
            checks.append(no_occasion(f"{named}, precision", undecided(precision)))
        return checks + _of_scale_and_metrics(named, precision, run, errors, spread, metrics)

    return _by_oracle_or_nearer(precision, first, updated, judged_by)


def _by_oracle_or_nearer(
    precision: Precision, run: ShortRun, updated: Params, judged_by: Callable[[ShortRun], list[Check]]
) -> list[Check]:
    """The checks by the oracle; if one fails, by it with outputs flipped at their ReLU's corner, if all pass then."""
    checks = judged_by(run)
    if all(check.passed for check in checks):
        return checks
    for nearer in run.nearer(updated, precision):
        others = judged_by(nearer)
        if all(check.passed for check in others):
            note = f"hidden outputs flipped at their ReLU's corner: {nearer.flipped}"
            return [msgspec.structs.replace(one, note=f"{one.note}; {note}" if one.note else note) for one in others]
    return checks


def verify_short_run(
    named: str,
    precision: Precision,
    run: ShortRun,
    updated: Params,
    metrics: EpochMetrics | None,
    apart: float = 0.0,
    most: float = 1.0,
) -> list[Check]:
    """Check the parameters after any short run, in one check of all tensors, and the metrics of its last epoch.

    Two correct runs may be `apart` by so much more of the update. Tensors with limits near `most` are not judged.
    """

    def judged_by(other: ShortRun) -> list[Check]:
        errors, spread = other.errors(updated, metrics), run.spread(precision)
        return [
            _tensors(named, precision, errors, spread, apart=apart, most=most),
            *_of_scale_and_metrics(named, precision, other, errors, spread, metrics, apart),
        ]

    return _by_oracle_or_nearer(precision, run, updated, judged_by)


def verify_late_epoch(
    named: str,
    precision: Precision,
    run: ShortRun,
    after: int,
    updated: Params,
    metrics: EpochMetrics | None,
    apart: float = 0.0,
) -> list[Check]:
    """Check an epoch that began after so many others, from the stage's own parameters; `apart` as for a short run.

    Where these are not finite, which the timed run shows, or float64 diverges from them, nothing can be said.
    """
    ends = (*run.initial.tensors().values(), *run.oracle.weights, *run.oracle.biases)
    if not all(np.isfinite(tensor).all() for tensor in ends):
        return [no_occasion(f"{named}, tensors", "training diverges there, in float64 as well")]
    begun = f"begun after {after} epochs"
    checks = verify_short_run(named, precision, run, updated, metrics, apart)
    return [msgspec.structs.replace(check, note=f"{check.note}; {begun}" if check.note else begun) for check in checks]


def verify_from_zero(precision: Precision, run: ShortRun, updated: Params, metrics: EpochMetrics | None) -> list[Check]:
    """Check the parameters after one epoch from zeros: every step contributes, and training is not chaotic there.

    `run` is of softmax regression even for an MLP, whose last bias alone learns; see `from_zero_run`.
    """
    still = updated.weights if len(updated.weights) > 1 else ()
    if any(tensor.any() for tensor in (*still, *updated.biases[:-1])):
        return [check("epoch from zeros, parameters", math.inf, 0.0)]
    moved = Params(run.initial.weights if still else updated.weights, updated.biases[-1:])
    errors, spread = run.errors(moved, metrics), run.spread(precision)
    checks = [_tensors("epoch from zeros", precision, errors, spread, "parameters", FROM_ZERO_SAFETY)]
    if metrics is not None:
        checks.append(_loss("epoch from zeros", precision, run, errors, spread, metrics))
    return checks


def _tensors(
    named: str,
    precision: Precision,
    errors: Errors,
    spread: Errors,
    what: str = "tensors",
    safety: float = SAFETY,
    apart: float = 0.0,
    most: float = 1.0,
) -> Check:
    """One check of all tensors: the one nearest to its limit, and the names of those that cannot be judged."""
    checks = {
        name: within(
            *(f"{named}, {what}", precision, error, spread.tensors[name]),
            safety=safety,
            floor=ROUNDING_FLOOR + apart,
            most=most,
        )
        for name, error in errors.tensors.items()
    }
    name = max(checks, key=lambda name: _telling(checks[name]))
    nearest = checks[name]
    if not nearest.judged:
        return nearest
    others = ", ".join(name for name, check in checks.items() if not check.judged)
    return msgspec.structs.replace(nearest, note=f"{name}; {undecided(precision)}: {others}" if others else name)


def _of_scale_and_metrics(
    named: str,
    precision: Precision,
    run: ShortRun,
    errors: Errors,
    spread: Errors,
    metrics: EpochMetrics | None,
    apart: float = 0.0,
) -> list[Check]:
    floor = ROUNDING_FLOOR + apart
    scale = within(f"{named}, scale", precision, errors.scale, spread.scale, safety=SCALE_SAFETY, floor=floor)
    checks = [_times(scale, errors.factor)]
    if metrics is not None:
        checks.append(_loss(named, precision, run, errors, spread, metrics, apart))
        what, reference = f"{named}, accuracy", run.reference.accuracy
        checks.append(accuracy_within(what, precision, metrics.accuracy, reference, run.images, spread=spread.accuracy))
    return checks


def _loss(
    named: str,
    precision: Precision,
    run: ShortRun,
    errors: Errors,
    spread: Errors,
    metrics: EpochMetrics,
    apart: float = 0.0,
) -> Check:
    floor = loss_floor(run.images) + (MLP_LOSS_FLOOR if apart else 0.0)
    check = within(f"{named}, loss", precision, errors.loss, spread.loss, floor=floor)
    return _times(check, metrics.mean_loss / (run.reference.mean_loss or math.nan))


def _times(check: Check, factor: float) -> Check:
    """The check with how many times the expected value it saw, where that is a number."""
    return msgspec.structs.replace(check, factor=float(factor)) if math.isfinite(factor) else check


def loss_floor(images: int) -> float:
    """The relative error of a sum of this many losses in one float32, added up one after the other."""
    rounding = float(FLOAT32_ROUNDING)
    return ROUNDING_FLOOR + SAFETY * ROUNDING_OF_EQUAL_SIGNS * rounding * math.sqrt(images)


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
    the oracle did not reach the last epoch, the stage must not be worse than the oracle's last one, and the checks that
    need later ones are left out.
    """
    reached = oracle.epochs[: min(epochs, len(oracle.epochs))]
    numbers = [*final.tensors().values(), *(np.array([m.mean_loss, m.accuracy]) for m in metrics.values())]
    finite = all(np.isfinite(number).all() for number in numbers)
    checks = [check("finite parameters and metrics", 0.0 if finite else math.nan, 0.0)]
    reference_accuracy = oracle.tested[len(reached) - 1].accuracy
    spread = oracle.spread(precision, len(reached) - 1)
    floor = _test_accuracy_floor(problem, oracle, len(reached) - 1, test_images)
    tested = partial(accuracy_within, spread=spread.tested_accuracy, floor=floor)
    if epochs <= len(oracle.epochs):
        reference = oracle.params[epochs - 1]
        if problem.is_logistic and reference is not None:
            error = params_error((final.weights, final.biases), reference, least=problem.learning_rate)
            checks.append(within(FINAL, precision, error, spread.params))
        checks.append(tested(TESTED, precision, accuracy, reference_accuracy, test_images))
    else:
        if problem.is_logistic:
            checks.append(no_occasion(FINAL, _ended(oracle, epochs)))
        what = f"{TESTED}, not below epoch {len(reached)}'s"
        lower = reference_accuracy if accuracy > reference_accuracy else accuracy
        checks.append(tested(what, precision, lower, reference_accuracy, test_images))
    due = [epoch for epoch in range(epochs) if problem.metrics_due(epoch)]
    if due:
        missing = sum(epoch not in metrics for epoch in due) / len(due)
        checks.append(check("metrics left out, of those that are due", missing, 0.0))
    judged = [epoch for epoch in metrics if 0 <= epoch < len(reached)]
    if judged:
        # Relative to the first epoch's loss: at the end of training the loss may be almost zero.
        first_loss = reached[0].mean_loss
        late = LATE_START_ALLOWANCE if _starts_late(problem, reached) else 0.0
        losses, accuracies = [], []
        for e in judged:
            apart_by = oracle.spread(precision, e)
            loss_error = beyond_rounding(metrics[e].mean_loss, reached[e], problem.classes) / first_loss
            floor = loss_floor(train_images) + (0.0 if problem.is_logistic else MLP_LOSS_FLOOR)
            floor += late * reached[e].mean_loss / first_loss
            capped = _capped(problem, apart_by.loss)
            loss = within(CURVES[0], precision, loss_error, capped, floor=floor)
            may_spike = not loss.passed and capped < apart_by.loss and (loss.error or math.inf) < LARGEST_SPIKE
            losses.append(msgspec.structs.replace(loss, note=MAY_SPIKE) if may_spike else loss)
            aim, floor = reached[e].accuracy, late * (1.0 - reached[e].accuracy)
            trained = partial(accuracy_within, spread=apart_by.accuracy, floor=floor)
            accuracies.append(trained(CURVES[1], precision, metrics[e].accuracy, aim, train_images))
        checks += [_of_epochs(losses), _of_epochs(accuracies)]
    if any(len(reached) <= epoch < epochs for epoch in metrics):
        checks += [no_occasion(f"{what}, {LATER}", _ended(oracle, epochs)) for what in CURVES]
    elif not judged:
        checks += [no_occasion(what, NO_METRICS_DUE) for what in CURVES]
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
    missing = sum(epoch not in validations for epoch in due) / len(due)
    checks = [check("validations left out, of those that are due", missing, 0.0)]
    first_loss = oracle.epochs[0].mean_loss  # as for the loss curve
    last = validations.get(epochs - 1)
    if last is not None:
        loss_error = beyond_rounding(last.mean_loss, final, problem.classes) / first_loss
        checks.append(check("validation of the final parameters, loss", loss_error, forward_limit(problem, precision)))
        what, floor = "validation of the final parameters, accuracy", FLIPPED_IMAGES[precision]
        checks.append(accuracy_within(what, precision, last.accuracy, final.accuracy, test_images, floor=floor))
    judged = [e for e in due if e in validations and e < len(oracle.tested)]
    if judged:
        late = LATE_START_ALLOWANCE if _starts_late(problem, oracle.epochs) else 0.0
        losses, accuracies = [], []
        for e in judged:
            own, reference = validations[e], oracle.tested[e]
            loss_error = beyond_rounding(own.mean_loss, reference, problem.classes) / first_loss
            floor = forward_limit(problem, precision)
            if not problem.is_logistic:
                floor += MLP_LOSS_FLOOR + late * reference.mean_loss / first_loss
                if reference.accuracy < SETTLED_ACCURACY:  # one run may be some steps ahead
                    floor += oracle.last_change(e, "mean_loss") / first_loss
            apart_by = oracle.spread(precision, e)
            losses.append(within(VALIDATION_CURVES[0], precision, loss_error, apart_by.tested_loss, floor=floor))
            accuracies.append(
                accuracy_within(
                    *(VALIDATION_CURVES[1], precision, own.accuracy, reference.accuracy, test_images),
                    spread=apart_by.tested_accuracy,
                    floor=_test_accuracy_floor(problem, oracle, e, test_images),
                )
            )
        checks += [_of_epochs(losses), _of_epochs(accuracies)]
    if any(epoch in validations for epoch in due if epoch >= len(oracle.tested)):
        checks += [no_occasion(f"{what}, {LATER}", _ended(oracle, epochs)) for what in VALIDATION_CURVES]
    return checks


def verify_displacements(
    precision: Precision, displacements: Mapping[int, Displacement], plan: Plan, oracle: OracleRun
) -> list[Check]:
    """Check the displacement of run 0 against the oracle's, and that no other timed run moved far less than run 0."""
    judged = displacements.get(0, UNKNOWN)
    ways = [displacements.get(number, UNKNOWN).distance for number in range(plan.repeats)]
    short = float(np.max([1.0 - way / (judged.distance or math.nan) for way in ways]))  # NaN if any is
    shortest = check("timed runs, shortest way by the judged one's", short, DISPLACEMENT_SHORTFALL)
    what = WAY
    if plan.epochs > len(oracle.displacements):
        return [shortest, no_occasion(what, _ended(oracle, plan.epochs))]
    difference = judged.difference(oracle.displacements[plan.epochs - 1])
    limit = max(DISPLACEMENT_DIFFERENCE, SAFETY * oracle.spread(precision, plan.epochs - 1).way)
    return [shortest, within(what, precision, difference, 0.0, floor=limit)]


def verify_path(
    problem: Problem, precision: Precision, epochs: int, initial: Params, final: Params, oracle: OracleRun
) -> list[Check]:
    """Check how far an MLP's timed run ended from the oracle's, by the way that the oracle went; empty if unknown."""
    reference = oracle.params[epochs - 1] if epochs <= len(oracle.params) else None
    if problem.is_logistic:
        return []
    what = PATH
    if reference is None:
        is_cut = epochs > len(oracle.epochs)
        return [no_occasion(what, _ended(oracle, epochs) if is_cut else "its parameters take too much memory")]
    error = apart(initial, (final.weights, final.biases), reference)
    spread = oracle.spread(precision, epochs - 1).apart
    return [within(what, precision, error, 0.0, floor=path_limit(spread))]


def path_limit(spread: float) -> float:
    """How far a stage may end from the oracle, by the oracle's way, if the controls are so far apart from it."""
    return max(min(SAFETY * spread + MLP_APART_FLOOR, MLP_APART_LIMIT), CHAOS_SAFETY * spread)


def verify_timer(share_outside: float, run_s: float = 0.0) -> Check:
    """Check the time that a stage spends outside of the timer: loading parameters, and first reading them back.

    In a run of `run_s` seconds that is long, delays take a small share.
    """
    limit = UNTIMED_OF_LONG + UNTIMED_S / run_s if run_s > 0 else UNTIMED_SHARE
    return check(TIMER_CHECK, share_outside, min(limit, UNTIMED_SHARE))


def verify_speed(cheat_limit_us: float, step_us: float) -> Check:
    """Check that a step takes at least the problem's cheat limit on this GPU: a shorter time is impossible."""
    return check(SPEED_CHECK, cheat_limit_us / step_us, 1.0)


def evaluate_final(params: Params, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> OracleEpoch:
    """Loss and accuracy on the test images, by the harness's own float64 forward pass."""
    return evaluate(params.weights, params.biases, images, labels)


def worst_of(checks: Iterable[Check]) -> list[Check]:
    """The worst check of each name over all processes: a failed one before a passed one, then the largest error."""

    def badness(check: Check) -> tuple[bool, float]:
        return not check.passed, math.inf if check.error is None else check.error

    worst: dict[str, Check] = {}
    for check in checks:
        if check.what not in worst or badness(check) > badness(worst[check.what]):
            worst[check.what] = check
    return list(worst.values())


def _capped(problem: Problem, apart_by: float) -> float:
    """The controls' difference in loss; of an MLP's the limit is four times up to `MLP_LOSS_LIMIT`, beyond it twice."""
    return apart_by if problem.is_logistic else min(apart_by, max(MLP_LOSS_LIMIT, 2.0 * apart_by) / SAFETY)


def forward_limit(problem: Problem, precision: Precision) -> float:
    """The limit of a loss by the same parameters, relative to the first epoch's: each product rounds its factors."""
    return SAFETY * len(problem.layers) * 2.0 ** -ROUNDINGS[precision].bits


def _ended(oracle: OracleRun, epochs: int) -> str:
    """Why an epoch cannot be compared that the oracle did not reach."""
    return f"{ORACLE_ENDED} after epoch {len(oracle.epochs)} of {epochs}"


def depends_on_controls(check: Check) -> bool:
    """Whether controls of the whole run set the check's limit."""
    return check.what in (*CURVES, *VALIDATION_CURVES, FINAL, WAY, PATH) or check.what.startswith(TESTED)


def by_own_controls(check: Check) -> Check:
    """The check with a note if its limit depends on controls, which trained this very run."""
    if not depends_on_controls(check):
        return check
    return msgspec.structs.replace(check, note=f"{check.note}; {OWN_CONTROLS}" if check.note else OWN_CONTROLS)


def _telling(check: Check) -> tuple[bool, bool, float]:
    """Sorts checks of one kind by what they tell: failed before judged before open ones, then by nearness to limits."""
    share = math.inf if check.error is None or not check.limit else check.error / check.limit
    return not check.passed, check.judged, share


def _of_epochs(checks: Sequence[Check]) -> Check:
    """One check for all epochs: the most telling one, and how many others were not judged."""
    most = max(checks, key=_telling)
    unjudged = [check for check in checks if not check.judged]
    if not unjudged or not most.judged:
        return most
    return msgspec.structs.replace(most, note=f"{unjudged[0].note}: {len(unjudged)} of {len(checks)} epochs")


def _starts_late(problem: Problem, epochs: Sequence[OracleEpoch]) -> bool:
    """Whether a deep network had most images wrong in the oracle's second epoch: rounding decides when it will learn.

    A network of few layers may learn slowly, but starts at once.
    """
    return len(problem.hidden) >= LATE_START_LAYERS and len(epochs) > 1 and epochs[1].accuracy < 0.5


def _test_accuracy_floor(problem: Problem, oracle: OracleRun, epoch: int, test_images: int) -> float:
    """How far a test accuracy may be from the oracle's after an epoch, from 0, beside the controls' distance."""
    reference = oracle.tested[epoch].accuracy
    # Two networks that fail on different images also differ by chance: three standard deviations are allowed.
    wrong = 0.0 if problem.is_logistic else 1.0 - reference
    chance = 3.0 * math.sqrt(wrong * (1.0 - wrong) / test_images)
    if reference < SETTLED_ACCURACY and _starts_late(problem, oracle.epochs):
        return 1.0  # one network may have started to learn and the other not
    if not problem.is_logistic and reference < SETTLED_ACCURACY:  # it has just begun: one run may be some steps ahead
        chance += oracle.last_change(epoch)
    return TEST_ACCURACY[0 if problem.is_logistic else 1] + chance
