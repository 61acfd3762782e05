"""What `check` finds out about a stage, as `check --json` prints it; no file keeps it."""

from __future__ import annotations

import msgspec

from ladder.records.run import Check, Precision, ProblemRecord, Status


class Checked(msgspec.Struct, frozen=True):
    """Whether a stage is right, by everything that a run checks without timing it."""

    name: str
    title: str
    precision: Precision
    file: str  # of a stage of one's own; empty for one of the ladder's
    problem: ProblemRecord
    status: Status  # passed, failed or crashed
    reason: str  # empty if it passed
    checks: list[Check]
    advice: dict[str, str]  # by the name of a failed check
    output: str  # what a crashed stage printed last, its traceback as a rule; what a failed one printed first
    lead: str  # the one cause that most of the failed checks may have; empty if none is known
    seconds: float  # from the training images at hand to the verdict
