"""A rubric for `check`: points by check, and limits of counts, which no clock has a part in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ladder.options.run_options import Size
from ladder.options.toml_file import TomlFile
from ladder.records.check import Award, Counts, Graded
from ladder.records.run import Check

KERNELS_CHECK, READS_CHECK = "kernels a step", "host reads an epoch"
Title = Annotated[str, Meta(min_length=1, description="text in quotes")]
Table = Annotated[dict[str, Any], Meta(description="a table, such as [points]")]
KINDS = {"title": Title, "points": Table, "at-most": Table}


@dataclass(frozen=True)
class Rubric:
    """Points by how the names of checks begin, and the most that may be counted, by the count's check."""

    title: str
    points: Mapping[str, int]
    at_most: Mapping[str, int]

    def unknown(self, checks: Sequence[Check]) -> str:
        """The first name of the rubric that begins none of a right stage's checks; empty if each does."""
        names = (*self.points, *self.at_most)
        return next((name for name in names if not any(one.what.startswith(name) for one in checks)), "")

    def grade(self, checks: Sequence[Check]) -> Graded:
        """The points of a stage with these checks; a name that begins none of them earns nothing."""
        awards = []
        for name, most in self.points.items():
            own = [one for one in checks if one.what.startswith(name)]
            failed = [one.what for one in own if not one.passed]
            awards.append(Award(name, most if own and not failed else 0, most, failed))
        return Graded(self.title, sum(one.points for one in awards), sum(self.points.values()), awards)


def read_rubric(path: Path) -> Rubric:
    """A rubric from its file; UsageError, with the line, for a key or value that is wrong."""
    file = TomlFile(path)
    top = file.checked(file.table, KINDS)
    points, at_most = top.get("points", {}), top.get("at-most", {})
    file.checked(points, dict.fromkeys(points, Size), "points")
    file.checked(at_most, dict.fromkeys((KERNELS_CHECK, READS_CHECK), Size), "at-most")
    if not points:
        raise file.refuse("points", ': has none; give some, such as "first update" = 4')
    return Rubric(top.get("title", path.stem), points, at_most)


def counted_checks(counts: Counts, at_most: Mapping[str, int]) -> list[Check]:
    """A check for each limit of a count; none for kernels where nothing counts them."""
    found = {KERNELS_CHECK: counts.kernels_per_step, READS_CHECK: float(counts.host_reads)}
    return [
        Check(what, count, float(limit), count <= limit)
        for what, limit in at_most.items()
        if (count := found[what]) is not None
    ]
