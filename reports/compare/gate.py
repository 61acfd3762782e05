"""The command `compare`: two runs as a gate, several runs or studies side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ladder.records.program import visible
from ladder.records.torch_run import has_record, load
from reports.compare.run_lookup import named_runs, named_studies
from reports.facts.many_runs import compare_machines, compare_studies
from reports.facts.torch_comparison import compare_torch_runs
from reports.facts.two_runs import THRESHOLD, CannotCompareError, Comparison, compare
from reports.screens.compare import comment, comparison_screen, machines_screen
from reports.writers.markdown import in_markdown
from reports.writers.write import Form, write


def compare_runs(names: Sequence[str], reference: Path, form: Form, threshold: float | None, strict: bool) -> int:
    """Print the comparison of the named runs or studies.

    Returns 0 without a regression, 1 with one, 2 for a strict doubt; several runs, or studies, are not judged. Raises
    CannotCompareError, and ResultsError for a file that cannot be read.
    """
    share = THRESHOLD if threshold is None else threshold
    if any(has_record(Path(name)) for name in names):
        return _judged(compare_torch(names, share, strict=strict), form)
    studies = named_studies(names)
    runs = [] if studies else named_runs(names, reference)
    if len(runs) == 2:
        (base, base_run), (new, new_run) = runs
        return _judged(compare(base_run, new_run, (base, new), threshold=share, strict=strict), form)
    if strict or threshold is not None:
        given = f"{len(studies)} studies" if studies else str(len(runs))
        raise CannotCompareError(f"--strict and --threshold: judge two runs, not {given}; name two")
    return write(machines_screen(compare_studies(studies) if studies else compare_machines(runs)), form)


def _judged(comparison: Comparison, form: Form) -> int:
    """Print two runs; returns the exit code."""
    if form == "markdown":
        print(in_markdown(comment(comparison)))
    else:
        write(comparison_screen(comparison), form)
    return comparison.exit_code


def compare_torch(names: Sequence[str], threshold: float, *, strict: bool) -> Comparison:
    """The comparison of two runs; raises CannotCompareError, and ResultsError for a file that cannot be read."""
    if other := next((name for name in names if not has_record(Path(name))), None):
        raise CannotCompareError(f"{other}: no run of the command torch, but another one is; name runs of one kind")
    if len(names) != 2:
        raise CannotCompareError(f"compare {' '.join(names)}: {len(names)} runs of the command torch; name two")
    base, new = (load(Path(name)) for name in names)
    return compare_torch_runs(base, new, (visible(names[0]), visible(names[1])), threshold, strict=strict)
