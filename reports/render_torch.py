"""Shows a ladder over a user's own PyTorch model: its screens by the writers, and the report beside its record."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ladder.records.program import atomic_write, visible
from ladder.records.torch_run import FILE, TorchResults, has_record, load
from reports.facts.torch_comparison import compare_torch_runs
from reports.facts.torch_rows import Programs
from reports.facts.two_runs import CannotCompareError, Comparison
from reports.figures.chart import FILE as LAYOUT
from reports.report_error import ReportError
from reports.screens.blocks import Answers, Figure, Screen
from reports.screens.conclusion import report_in
from reports.screens.torch import check_screen, run_screen, rung_screen
from reports.writers.console import standard
from reports.writers.markdown import markdown
from reports.writers.page import page
from reports.writers.terminal import write_blocks
from reports.writers.write import Form, write

PAGE = "report.html"
PLAIN, FAST = "train_plain.py", "train_fast.py"  # in a run's folder, where programs were written


def render_torch(results: TorchResults, folder: Path) -> None:
    """Write `report.md`, `report.html` and `figures/ladder.svg` into the folder; OSError if it is not writable."""
    screen = torch_screen(results, folder)
    figures = folder / "figures"
    if figures.is_symlink():
        raise ReportError(f"{figures}: a link, which could lead anywhere; remove it, then repeat the command")
    for block in screen.blocks:
        if isinstance(block, Figure):
            figures.mkdir(exist_ok=True)
            atomic_write(figures / block.file, block.draw(LAYOUT).svg())
    atomic_write(folder / "report.md", markdown(screen))
    atomic_write(folder / PAGE, page(screen, FILE))


def torch_screen(results: TorchResults, folder: Path | None) -> Screen:
    """The screen of a run, or of one that was judged alone."""
    if results.settings.is_check:
        return check_screen(results)
    return run_screen(results, programs(folder) if folder is not None else None)


def programs(folder: Path) -> Programs | None:
    """The programs in a run's folder; None unless it has both."""
    plain, fast = folder / PLAIN, folder / FAST
    if not plain.is_file() or not fast.is_file():
        return None
    return Programs(*(path.read_text(encoding="utf-8", errors="replace") for path in (plain, fast)))


def print_torch(
    results: TorchResults, folder: Path | None, form: Form = "table", console: Console | None = None
) -> None:
    """Print the run, or its check, and where its report is."""
    write(torch_screen(results, folder), form, console)
    if folder is not None and form == "table":
        write_blocks([Answers({"Report": report_in(folder)})], standard(console))


def explain_torch(run: Path, name: str, form: Form = "table", console: Console | None = None) -> bool:
    """Print a rung of a run in full; False for a run of stages. Raises ReportError if it has no rung of this name."""
    if not has_record(run):
        return False
    write(rung_screen(load(run), name), form, console)
    return True


def report_torch(path: Path, form: Form = "table") -> None:
    """Render and print the run in a file or folder again, as `reports.render.report_again` does."""
    results, folder = load(path), path if path.is_dir() else path.parent
    try:
        render_torch(results, folder)
    except OSError:
        print_torch(results, None, form)
        raise
    print_torch(results, folder, form)


def torch_page(path: Path) -> str:
    """The page of the run in a file or folder."""
    folder = path if path.is_dir() else path.parent
    return page(torch_screen(load(path), folder), FILE)


def compare_torch(names: Sequence[str], threshold: float, *, strict: bool) -> Comparison:
    """The comparison of two runs; raises CannotCompareError, and ResultsError for a file that cannot be read."""
    if other := next((name for name in names if not has_record(Path(name))), None):
        raise CannotCompareError(f"{other}: no run of the command torch, but another one is; name runs of one kind")
    if len(names) != 2:
        raise CannotCompareError(f"compare {' '.join(names)}: {len(names)} runs of the command torch; name two")
    base, new = (load(Path(name)) for name in names)
    return compare_torch_runs(base, new, (visible(names[0]), visible(names[1])), threshold, strict=strict)
