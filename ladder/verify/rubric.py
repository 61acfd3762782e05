"""A rubric for `check`: points by check, and limits of counts, which no clock has a part in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ladder.options.run_options import Size
from ladder.options.toml_file import TomlFile
from ladder.records.checked import Award, Counts, Graded
from ladder.records.run import Check
from stages.engine.recipe import Recipe

KERNELS_CHECK, READS_CHECK = "kernels a step", "host reads an epoch"
OTHERS = "every other check"  # that no line of the rubric names; a point if the rubric gives it none
Title = Annotated[str, Meta(min_length=1, description="text in quotes")]
Table = Annotated[dict[str, Any], Meta(description="a table, such as [points]")]
PARTS = ("build", *(field.name for field in fields(Recipe)))
Part = Annotated[str, Meta(pattern=f"^({'|'.join(PARTS)})$", description=f"one of {', '.join(PARTS)}")]
From = Annotated[list[str], Meta(description='a list of rungs, such as ["cpu-blas"]')]
Hints = Annotated[bool, Meta(description="true or false")]
KINDS = {
    "title": Title, "from": From, "changes": Part, "hints": Hints, "points": Table, "at-most": Table, "at-least": Table,
}  # fmt: skip
MISSING = ", missing"  # ends the name of a check for a lower limit


@dataclass(frozen=True)
class RubricLimits:
    """The most and the least that may be counted, by the count's check."""

    at_most: Mapping[str, int]
    at_least: Mapping[str, int]


NO_LIMITS = RubricLimits({}, {})


@dataclass(frozen=True)
class Rubric:
    """Points by how the names of checks begin, and the most and the least that may be counted, by the count's check."""

    title: str
    points: Mapping[str, int]
    limits: RubricLimits
    rungs: Sequence[str] = ()  # of which a submission climbs from one; empty: from any, or from none
    changes: str = ""  # the part that its file writes, or `build` for a trainer of its own; empty: any
    hints: bool = True  # whether a student is told what a failed check means

    def strays(self, below: str | None, changed: str | None, own: Sequence[str]) -> str:
        """Why a stage is no answer to the exercise; empty if it may be one.

        `changed` begins with the part that it changes from the rung below; `own` names what its file writes itself.
        """
        if self.rungs and below not in self.rungs:
            return f"climbs from {below or 'no rung'}; the exercise climbs from {' or '.join(self.rungs)}"
        if self.changes and self.changes not in own:
            return f"its file does not write {self.changes} itself, from the public classes of stages alone"
        if self.changes not in ("", "build") and (changed or "").partition(":")[0] != self.changes:
            return f"changes {changed or 'nothing'}; the exercise changes {self.changes}"
        return ""

    def unknown(self, checks: Sequence[Check]) -> str:
        """The first name of the rubric that begins none of a right stage's checks; empty if each does."""
        names = ({*self.points} - {OTHERS}) | {*self.limits.at_most, *self.limits.at_least}
        return next((name for name in sorted(names) if not any(check.what.startswith(name) for check in checks)), "")

    def grade(self, checks: Sequence[Check]) -> Graded:
        """The points of a stage with these checks: all of them only if every check passed.

        A name that begins none of the checks earns nothing, and neither does a right stage beyond a limit of counts: it
        has not done what the exercise asks for.
        """
        counts = (*self.limits.at_most, *self.limits.at_least)
        is_undone = any(not check.passed and check.what.startswith(counts) for check in checks)
        named, awards = tuple(name for name in self.points if name != OTHERS), []
        for name, most in self.points.items():
            begins = [check.what.startswith(named if name == OTHERS else name) for check in checks]
            own = [check for check, does in zip(checks, begins, strict=True) if does is not (name == OTHERS)]
            failed = [check.what for check in own if not check.passed]
            earned = bool(own or (name == OTHERS and checks)) and not failed and not is_undone
            awards.append(Award(name, most if earned else 0, most, failed))
        return Graded(self.title, sum(award.points for award in awards), sum(self.points.values()), awards)


def read_rubric(path: Path) -> Rubric:
    """A rubric from its file; UsageError for a key or value that is wrong."""
    file = TomlFile(path)
    top = file.checked(file.table, KINDS)
    points, limits = top.get("points", {}), [top.get(table, {}) for table in ("at-most", "at-least")]
    file.checked(points, dict.fromkeys(points, Size), "points")
    for table, given in zip(("at-most", "at-least"), limits, strict=True):
        file.checked(given, dict.fromkeys((KERNELS_CHECK, READS_CHECK), Size), table)
    if not points:
        raise file.refuse("points", ': has none; give some, such as "first update" = 4')
    return Rubric(
        top.get("title", path.stem),
        {**points, OTHERS: points.get(OTHERS, 1)},
        RubricLimits(*limits),
        top.get("from", ()),
        top.get("changes", ""),
        top.get("hints", True),
    )


def counted_checks(counts: Counts, limits: RubricLimits) -> list[Check]:
    """A check for each limit of a count; none for kernels where nothing counts them."""
    counted = {KERNELS_CHECK: counts.kernels_per_step, READS_CHECK: float(counts.host_reads)}
    checks = []
    for what, count in counted.items():
        if count is not None and (most := limits.at_most.get(what)) is not None:
            checks.append(Check(what, count, float(most), count <= most))
        if count is not None and (least := limits.at_least.get(what)) is not None:
            checks.append(Check(what + MISSING, max(least - count, 0.0), 0.0, count >= least))
    return checks
