"""Finds the runs that a comparison names: results files, their folders, and recorded runs like `reference:h200`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ladder.records.run import Results, load
from reports.compare.differences import cannot_compare
from reports.compare.verdicts import CannotCompareError

PREFIX = "reference:"


def named_runs(names: Sequence[str], reference: Path) -> list[tuple[str, Results]]:
    """Each run as (name, results); a recorded run named without a problem is the one of the others' problem.

    Raises CannotCompareError, and ResultsError for a file that cannot be read.
    """
    if len(names) < 2:
        raise CannotCompareError(f"compare {names[0]}: only one run; name a second one, such as reference:h200")
    candidates = [_candidates(name, reference) for name in names]
    for _, base in candidates[0]:  # the first problem that all of them have
        fitting = [next((one for one in found if not cannot_compare(base, one[1])), None) for found in candidates]
        if all(fitting):
            return [one for one in fitting if one]
    for name, found in zip(names, candidates, strict=True):
        if len(found) > 1:
            problems = ", ".join(label.rpartition("/")[2] for label, _ in found)
            raise CannotCompareError(f"{name}: has no run of the others' problem, only of {problems}")
    return [found[0] for found in candidates]  # the comparison itself reports the obstacle


def _candidates(name: str, reference: Path) -> list[tuple[str, Results]]:
    """The runs that a name may stand for, at least one."""
    if not name.startswith(PREFIX):
        return [(name, load(Path(name)))]
    gpu, _, problem = name.removeprefix(PREFIX).partition("/")
    known = sorted(path.parent for path in reference.glob("*/*/results.json"))
    wanted = [folder for folder in known if folder.parent.name == gpu and problem in ("", folder.name)]
    if not wanted:
        recorded = ", ".join(f"{folder.parent.name}/{folder.name}" for folder in known)
        raise CannotCompareError(f"{name}: no such recorded run; there are {recorded or 'none'}")
    runs = [(f"{PREFIX}{folder.parent.name}/{folder.name}", load(folder)) for folder in wanted]
    return sorted(runs, key=lambda run: len(run[1].problem.hidden))
