"""A way out for each check whose name does not say what to change in a stage."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence

from ladder.records.run import Check
from ladder.verify.gates import KEPT_CHECK, MAY_SPIKE, SPEED_CHECK, TIMER_CHECK, WHOLE_CHECK
from ladder.verify.other_runs import CLOCK_CHECK, JUDGED_CHECK, LOSS_CHECK, WAY_CHECK
from ladder.verify.rubric import KERNELS_CHECK, MISSING, READS_CHECK

ADVICE = {
    TIMER_CHECK: "wait for your results in run_epoch() or wait(), and train nowhere else",
    **dict.fromkeys((LOSS_CHECK, WAY_CHECK), "train every epoch of every run, not only of the one that is judged"),
    SPEED_CHECK: "no program is as fast: look for work that is left out or not waited for",
    CLOCK_CHECK: "leave the clock and the recorded times alone",
    READS_CHECK: "the host waits whenever it reads the device; let it read later, and less often",
    READS_CHECK + MISSING: "a loss is reported, so a part reads the device without `device.download`",
    KERNELS_CHECK: "let one kernel do the work of several",
    KERNELS_CHECK + MISSING: "fewer than the work takes: a part leaves one out, or computes outside, as in NumPy",
    JUDGED_CHECK: "train in every run, and keep no results of earlier processes",
    WHOLE_CHECK: "report the share of right answers as it is, not rounded",
    KEPT_CHECK: "keep the parameters in float32 between steps, and between epochs",
}
# By the part of its name, the first that fits: what is measured, then the run that it is measured in.
OF_SHORT_RUNS = {
    r", precision$": "declare the precision of the products' factors, or keep all their bits",
    r", scale$": "look at the learning rate and at the division by the batch size",
    r"metrics left out$": "compute loss and accuracy wherever problem.metrics_due(epoch)",
    r"^(first|\d+ epochs|trained|epoch from).*, (loss|accuracy)$": "both are means over the epoch's images, before "
    "each batch's update",
    r"^first update, ": "look at the gradient of this tensor, the scale of the pixels, the labels",
    r"^first \d+ updates, ": "look at the order of the batches, and at what one step leaves to the next",
    r"^\d+ epochs of ": "look at what one epoch leaves to the next, such as momentum or another order",
    r"^late epoch": "look at what changes with the number of steps or epochs, or in long splits: a schedule, decay, "
    "rounding",
    r"^epoch from positive biases, ": "look at what differs in long splits: images, pixels or steps left out, old "
    "weights, rounding",
    r"^trained parameters, ": "look at epochs in which metrics are due, and at images that are already right",
    r"^epoch from zeros, ": "train on each full batch once, in order; sum a gradient before subtracting it",
}
FIRST_UPDATE = re.compile(r"first update, ((?:weight|bias)\[\d+\])$")
# One cause of wrong first updates, by their factor: of every tensor, of some (their names come first).
CAUSES = {
    0.0: ("no parameter is updated in a run of one batch", "not updated"),
    -1.0: ("every parameter is updated in the opposite direction", "updated in the opposite direction"),
}
ANY_FACTOR = (
    "every first update is {} times the expected one: look at the learning rate and the division by the batch size",
    "updated {} times as far as expected",
)
PIXELS_BY_255, BY_256 = 256 / 255, "the first layer learns as from pixels divided by 255: divide them by 256"
KNOWN = 1e-3  # so near is the factor of a known cause; 1/128 is another, of a batch size too many
ALIKE = 0.1  # of a factor's distance from 1: so far do tensors that share a cause differ, and turn aside


def what_to_look_at(failed: Check, checks: Sequence[Check]) -> str:
    """What to look at in a stage that failed a check, of all its checks; empty where the name says it.

    Where an update or a loss is so many times the expected one, that comes first.
    """
    what = failed.what
    fitting = (said for part, said in OF_SHORT_RUNS.items() if re.search(part, what))
    advice = MAY_SPIKE if failed.note == MAY_SPIKE else ADVICE.get(what) or next(fitting, "")
    run, _, kind = what.rpartition(", ")
    scale = failed if kind == "loss" else next((check for check in checks if check.what == f"{run}, scale"), failed)
    if scale.passed or scale.factor is None or not run:
        return advice
    ratio = f"{'its loss' if kind == 'loss' else 'its update'} is {_shown(scale.factor)} times the expected one"
    return f"{ratio}: {advice}" if advice else ratio


def is_of_first_update(check: Check) -> bool:
    """Whether it is the check of a tensor's first update."""
    return bool(FIRST_UPDATE.match(check.what))


def first_cause(checks: Sequence[Check]) -> str:
    """The one cause that the wrong first updates have in common, with what may follow from it; empty without one."""
    tensors = {match[1]: check for check in checks if check.judged and (match := FIRST_UPDATE.match(check.what))}
    wrong = {name: check for name, check in tensors.items() if not check.passed}
    factors = [check.factor for check in wrong.values() if check.factor is not None]
    if not wrong or len(factors) < len(wrong):
        return ""
    factor = statistics.median(factors)
    most = ALIKE * abs(factor - 1.0)
    aside = (abs((its.error or 0.0) - abs(its.factor - 1.0)) for its in wrong.values() if its.factor is not None)
    if max(abs(known - factor) for known in factors) > most or max(aside) > most:
        first = wrong["weight[0]"].factor if "weight[0]" in wrong else None
        if first is None or abs(first - PIXELS_BY_255) > KNOWN:
            return ""
        said = BY_256
    else:
        for_all, for_some = next((said for known, said in CAUSES.items() if abs(factor - known) <= KNOWN), ANY_FACTOR)
        names = " and ".join(wrong)
        said = for_all if len(wrong) == len(tensors) else f"{names} {'is' if len(wrong) == 1 else 'are'} {for_some}"
        said = said.format(_shown(factor))
    others = sum(not check.passed for check in checks) - len(wrong)
    follow = f"the other {others} failed checks may follow" if others > 1 else "another failed check may follow"
    return f"{said}; {follow} from it" if others else said


def _shown(factor: float) -> str:
    """A factor in which 1.00002 and 1/128 show, and the rounding of 1.02 does not."""
    return f"{factor:.3g}" if abs(factor) < ALIKE else f"{1.0 + float(f'{factor - 1.0:.3g}'):.9g}"
