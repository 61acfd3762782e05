"""A way out for each check whose name does not say what to change in a stage."""

from __future__ import annotations

from ladder.verify.gates import SPEED_CHECK, TIMER_CHECK
from ladder.verify.other_runs import CLOCK_CHECK, JUDGED_CHECK, LOSS_CHECK

ADVICE = {
    TIMER_CHECK: "wait for your results in run_epoch() or wait(), and train nowhere else",
    LOSS_CHECK: "train every epoch of every run, not only of the one that is judged",
    SPEED_CHECK: "no program is as fast: look for work that is left out or not waited for",
    CLOCK_CHECK: "leave the clock and the recorded times alone",
    JUDGED_CHECK: "train in every run, and keep no results of earlier processes",
}
