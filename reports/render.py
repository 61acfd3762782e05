"""Writes the report and the figures of a run, a study or a ladder over a user's own model beside its record."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from rich.console import Console

from ladder.records import torch_run
from ladder.records.program import ROOT, atomic_write
from ladder.records.run import Results, load
from ladder.records.sources import sources_of
from ladder.records.study import INDEX
from ladder.records.torch_run import TorchResults, has_record
from reports.compare.run_lookup import nearest_recorded, newest_run
from reports.explorer import browser
from reports.explorer.page import render
from reports.explorer.study_page import render_study_page
from reports.facts.profiles import PICTURE
from reports.facts.study_points import StudyResults, load_results
from reports.facts.torch_rows import Programs
from reports.figures.chart import FILE
from reports.figures.run_figures import OF_RUN, drawings, study_drawings
from reports.report_error import ReportError
from reports.screens import torch
from reports.screens.blocks import Answers, Figure, Screen
from reports.screens.conclusion import conclusion, report_in
from reports.screens.run import recorded_screen, report_screen, run_screen
from reports.screens.study import study_report_screen, study_screen
from reports.writers.console import standard
from reports.writers.markdown import markdown
from reports.writers.page import page
from reports.writers.terminal import print_apart, write_blocks
from reports.writers.write import Form, write

PAGE = "report.html"
PLAIN, FAST = "train_plain.py", "train_fast.py"  # in a run's folder, where programs were written
# Our figures of a run and of a study, those of older renderings included: others in the same folder are the user's.
KNOWN = "|".join(Path(name).stem for name in OF_RUN)
FILES_OF_RUN = re.compile(rf"({KNOWN}|epoch_time|loss_(curves|distance)|timelines|memory|data_path|{PICTURE}.+)\.svg")
NAMED = re.compile(r"(?<![\w/\[`])(?<!\]\()docs/[\w-]+\.md\b")
FILES_OF_STUDY = re.compile(r"(ladder|curves|step_time|ablation)(-.+)?\.svg|(curves|study)\.csv")


def render_all(results: Results, folder: Path, reference: Path | None = None) -> None:
    """Write `report.md`, `report.html` and `figures/*.svg` into the folder; OSError if it is not writable.

    `reference` holds the recorded runs, one of which the page of a run without a GPU names.
    """
    drawn = drawings(results)
    _write_figures({name: draw().svg() for name, draw in drawn.items()}, folder, FILES_OF_RUN)
    atomic_write(folder / "report.md", linked(markdown(report_screen(results, drawn)), folder))
    atomic_write(folder / PAGE, _page(results, folder, reference))


def _page(results: Results, folder: Path, reference: Path | None) -> str:
    nearest = nearest_recorded(results, reference) if reference else None
    example = nearest[0].relative_to(reference.parents[1]).as_posix() if nearest and reference else ""
    return render(results, sources_of(results, folder), example)


def render_study(folder: Path) -> StudyResults:
    """Write `report.md`, `report.html` and `figures/` into a study's folder, and return the study's results.

    Raises ResultsError for a file that cannot be read, OSError if the folder is not writable.
    """
    results = load_results(folder)
    drawn = dict(study_drawings(results))
    _write_figures({name: canvas.svg() for name, canvas in drawn.items()}, folder, FILES_OF_STUDY)
    atomic_write(folder / "report.md", linked(markdown(study_report_screen(results, drawn)), folder))
    atomic_write(folder / PAGE, render_study_page(results))
    return results


def render_torch(results: TorchResults, folder: Path) -> None:
    """Write `report.md`, `report.html` and `figures/ladder.svg` into the folder; OSError if it is not writable."""
    screen = torch_screen(results, folder)
    drawn = {block.file: block.draw(FILE).svg() for block in screen.blocks if isinstance(block, Figure)}
    if drawn:
        _write_figures(drawn, folder, FILES_OF_RUN)
    atomic_write(folder / "report.md", linked(markdown(screen), folder))
    atomic_write(folder / PAGE, page(screen, torch_run.FILE))


def torch_screen(results: TorchResults, folder: Path | None) -> Screen:
    """The screen of a run, or of one that was judged alone."""
    if results.settings.is_check:
        return torch.check_screen(results)
    return torch.run_screen(results, programs(folder) if folder is not None else None)


def programs(folder: Path) -> Programs | None:
    """The programs in a run's folder; None unless it has both."""
    plain, fast = folder / PLAIN, folder / FAST
    if not plain.is_file() or not fast.is_file():
        return None
    return Programs(*(path.read_text(encoding="utf-8", errors="replace") for path in (plain, fast)))


def report_again(path: Path, reference: Path, form: Form = "table") -> None:
    """Render and print the run or the study in a file or folder.

    A run without a GPU is shown with the nearest run in the folder `reference`.
    Raises ResultsError for a file that cannot be read, and, once a run is printed, OSError if the folder is not
    writable.
    """
    folder = path if path.is_dir() else path.parent
    if (folder / INDEX).exists() and not has_record(path):
        print_study(render_study(folder), folder, form)
        return
    writes: Callable[[], None]
    prints: Callable[[Path | None], None]
    if has_record(path):
        own = torch_run.load(path)
        writes, prints = partial(render_torch, own, folder), lambda folder: print_torch(own, folder, form)
    else:
        results = load(path)
        writes = partial(render_all, results, folder, reference)
        prints = lambda folder: print_results(results, folder, form, recorded=reference)  # noqa: E731
    try:
        writes()
    except OSError:
        prints(None)
        raise
    prints(folder)


def print_results(
    results: Results, folder: Path | None = None, form: Form = "table", console: Console | None = None, *,
    recorded: Path | None = None,
) -> None:  # fmt: skip
    """Print a run; one without a GPU is followed by the nearest run in the folder `recorded`, if that is given."""
    console = _printed(run_screen(results), form, console)
    if form == "table":
        example = nearest_recorded(results, recorded) if recorded else None
        if example is not None:
            print_apart(recorded_screen(results, *example), console)
        write_blocks([conclusion(results, folder, example)], console)


def print_study(results: StudyResults, folder: Path, form: Form = "table", console: Console | None = None) -> None:
    """Print a study, and where its report is."""
    console = _printed(study_screen(results), form, console)
    if form == "table":
        write_blocks([Answers({"Report": report_in(folder)})], console)


def print_torch(
    results: TorchResults, folder: Path | None, form: Form = "table", console: Console | None = None
) -> None:
    """Print a ladder over a user's own model, or its check, and where its report is."""
    write(torch_screen(results, folder), form, console)
    if folder is not None and form == "table":
        write_blocks([Answers({"Report": report_in(folder)})], standard(console))


def _printed(screen: Screen, form: Form, console: Console | None) -> Console:
    """The console that the screen is printed on."""
    console = standard(console)
    if form == "table":
        console.print()
    write(screen, form, console)
    return console


def explain_torch(run: Path, name: str, form: Form = "table", console: Console | None = None) -> bool:
    """Print a rung of a run in full; False for a run of stages. Raises ReportError if it has no rung of this name."""
    if not has_record(run):
        return False
    write(torch.rung_screen(torch_run.load(run), name), form, console)
    return True


def show_page(path: Path | None, runs: Path, reference: Path) -> None:
    """Open the page of the run or study in a file or folder, else of the newest run.

    It is always made anew from the records, since a page that a stranger sent may hold anything; where its folder is
    not writable, in a temporary one.
    Raises ReportError if there is no run, ResultsError for a file that cannot be read, OSError if nothing is writable.
    """
    path = path or newest_run(runs, reference)
    folder = path if path.is_dir() else path.parent
    if has_record(path):
        text = page(torch_screen(torch_run.load(path), folder), torch_run.FILE)
    elif (folder / INDEX).exists():
        text = render_study_page(load_results(folder))
    else:
        text = _page(load(path), folder, reference)
    file = folder / PAGE
    try:
        atomic_write(file, text)
    except OSError:
        file = Path(tempfile.mkdtemp(prefix="optimisation-ladder-")) / PAGE
        atomic_write(file, text)
    browser.open_page(file)


def linked(text: str, folder: Path) -> str:
    """A report that links the pages of `docs/` that it names, if its folder is in the project."""
    if not folder.resolve().is_relative_to(ROOT):
        return text
    up = Path(os.path.relpath(ROOT, folder.resolve())).as_posix()
    return NAMED.sub(lambda page: f"[{page[0]}]({up}/{page[0]})", text)


def _write_figures(drawn: Mapping[str, str], folder: Path, ours: re.Pattern[str]) -> None:
    """Write files into the folder `figures`, and remove those of an older rendering.

    Raises ReportError for a link to another folder or a name with a folder in it, as a stranger may have sent.
    """
    figures = folder / "figures"
    if figures.is_symlink():
        raise ReportError(f"{figures}: a link, which could lead anywhere; remove it, then repeat the command")
    if led := next((name for name in drawn if Path(name).name != name), None):
        raise ReportError(f"{folder / INDEX}: figure {led!r} would lie in another folder; measure anew, or correct it")
    figures.mkdir(exist_ok=True)
    for older in figures.iterdir():
        if ours.fullmatch(older.name) and older.name not in drawn and older.is_file() and not older.is_symlink():
            older.unlink()
    for name, text in drawn.items():
        atomic_write(figures / name, text)
