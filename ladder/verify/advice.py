"""A way out for each check whose name does not say what to change in a stage."""

from __future__ import annotations

import re

from ladder.verify.gates import SPEED_CHECK, TIMER_CHECK
from ladder.verify.other_runs import CLOCK_CHECK, JUDGED_CHECK, LOSS_CHECK

ADVICE = {
    TIMER_CHECK: "wait for your results in run_epoch() or wait(), and train nowhere else",
    LOSS_CHECK: "train every epoch of every run, not only of the one that is judged",
    SPEED_CHECK: "no program is as fast: look for work that is left out or not waited for",
    CLOCK_CHECK: "leave the clock and the recorded times alone",
    JUDGED_CHECK: "train in every run, and keep no results of earlier processes",
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
    r"^trained parameters, ": "look at epochs in which metrics are due, and at images that are already right",
    r"^epoch from zeros, ": "train on each full batch once, in order; sum a gradient before subtracting it",
}


def advice_on(what: str) -> str:
    """What to look at in a stage that failed the check of this name; empty where the name says it."""
    fitting = (said for part, said in OF_SHORT_RUNS.items() if re.search(part, what))
    return ADVICE.get(what) or next(fitting, "")
