"""What `check` and `grade` find out about stages, as they print it with `--json`; no file keeps it."""

from __future__ import annotations

import msgspec

from ladder.records.run import Check, Precision, ProblemRecord, Status


class Counts(msgspec.Struct, frozen=True):
    """What a rung does in an epoch of its first steps in which metrics are due. No clock is read."""

    steps: int
    kernels_per_step: float | None  # null on a GPU without cupti-python
    host_reads: int  # in the epoch: copies from the device, for each of which the host waits


class Award(msgspec.Struct, frozen=True):
    """A rubric's points for the checks whose names begin alike: all of them, or none."""

    checks: str  # how the names begin
    points: int
    most: int
    failed: list[str]  # the checks that cost the points; empty, too, where none was made


class Graded(msgspec.Struct, frozen=True):
    """The points of a stage by a rubric."""

    title: str
    points: int
    most: int
    awards: list[Award]


class GradedFile(msgspec.Struct, frozen=True):
    """The points of one submission."""

    file: str
    points: int
    most: int
    status: Status  # passed, failed or crashed
    reason: str  # empty if it passed
    seconds: float  # of all of its checks, the start of Python included


class GradedClass(msgspec.Struct, frozen=True):
    """The submissions of a folder, as `grade` prints them."""

    title: str  # the rubric's
    without_network: bool  # whether the submissions were kept from the network
    files: list[GradedFile]


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
    counts: Counts | None = None  # null for a stage without a recipe, and for one that crashed
    graded: Graded | None = None  # with --rubric
    below: str | None = None  # the rung of the ladder's that it climbs from
