"""The command `compare`: two runs as a gate, several runs or studies side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ladder.records.torch_run import has_record
from reports.compare.run_lookup import named_runs, named_studies
from reports.facts.many_runs import compare_machines
from reports.facts.many_studies import compare_studies
from reports.facts.two_runs import THRESHOLD, CannotCompareError, Comparison, compare
from reports.render_torch import compare_torch
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
