"""The exact text of the renderings of `tests/reports/sample.py`, and of advice.

After a wanted change, write the files again with `python -m tests.golden.update` and read the diff.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from unittest import mock

from rich.console import Console

from ladder.records.run import Results
from reports.explorer.rung_page import rung_html
from reports.facts.many_runs import compare_machines
from reports.facts.torch_rows import Programs
from reports.facts.two_runs import compare
from reports.figures.run_figures import drawings, study_drawings
from reports.markdown.readme import ladder_block, networks_block
from reports.render import print_results, print_study
from reports.screens import torch as of_torch
from reports.screens.advise import advise_screen
from reports.screens.blocks import Screen
from reports.screens.check import check_screen
from reports.screens.compare import comment, comparison_screen, machines_screen
from reports.screens.details import details, limits_screen
from reports.screens.doctor import doctor_screen
from reports.screens.plan import Plan, plan_screen
from reports.screens.run import run_screen
from reports.screens.rung import rung_screen
from reports.screens.study import study_screen
from reports.writers.markdown import in_markdown, markdown
from reports.writers.page import in_html, page
from reports.writers.terminal import write_terminal
from reports.writers.write import write
from tests.golden.comparisons import comparisons
from tests.golden.figures import figures
from tests.golden.outlooks import GRID, GRID_BF16, advised, outlooks, small, with_own_eager
from tests.golden.scenarios import scenarios
from tests.golden.studies import studies
from tests.golden.torch import torch_runs
from tests.reports import checked_sample, recorded, sample
from tests.reports.advice import advice_text
from tests.reports.reporting import report, study_report
from tests.reports.study_sample import study_results
from tests.reports.terminal.screens import screen
from tests.reports.terminal.test_small_screens import FINDINGS
from tests.reports.torch_sample import a_torch_run

FOLDER = Path(__file__).parent
WHY = {"torch-graph": "no CUDA device", "cluster": "needs `sm_90`.", "jax-scan": "no CUDA device"}
PLAN: Plan = ("784-10", 4, 128, ["naive", "async"], WHY, 2, 20.0, 2.0, (Path("runs/one"), 61.0, 3))


@cache
@mock.patch("reports.screens.conclusion.PROGRAM", "python run_ladder.py")  # wherever Python lies
@mock.patch("reports.screens.check.PROGRAM", "python run_ladder.py")
@mock.patch("reports.screens.advise.PROGRAM", "python run_ladder.py")
def renderings() -> dict[str, str]:
    """The text of every golden file, by its name."""
    run = sample.results()
    two = compare(recorded.before(), recorded.after(), ("runs/before", "runs/after"))
    many = compare_machines(recorded.machines())
    runs = [("results/reference/h200/hidden-256", run), ("results/reference/h200/deep", sample.deeper_results())]
    study = study_results([64, 128, 256])
    (cublas,) = (stage for stage in run.stages if stage.name == "cublas")
    torch = of_torch.run_screen(a_torch_run(), Programs("step()\n", "graph.replay()\n"))
    return {
        "advice.txt": advice_text(),
        "advise_own.txt": on_terminal(partial(write_terminal, advise_screen(with_own_eager()))),
        "advise.txt": on_terminal(partial(write_terminal, advise_screen(outlooks(*small(), GRID, GRID_BF16)))),
        "check_right.txt": on_terminal(partial(write_terminal, check_screen(checked_sample.right()))),
        "check_wrong.txt": on_terminal(partial(write_terminal, check_screen(checked_sample.wrong()))),
        "check_crashed.txt": on_terminal(partial(write_terminal, check_screen(checked_sample.crashed()))),
        "limits.txt": on_terminal(partial(write_terminal, limits_screen(sample.limits()))),
        "compare.txt": on_terminal(partial(write_terminal, comparison_screen(two))),
        "compare.md": in_markdown(comment(two)) + "\n",
        "machines.txt": on_terminal(partial(write_terminal, machines_screen(many))),
        "machines.md": markdown(machines_screen(many)),
        "console_80.txt": console_text(run, 80),
        "console_115.txt": console_text(run, 115),
        "console_no_gpu.txt": console_text(sample.synthetic_results(), 100),
        "console_fleet_250.txt": console_text(sample.fleet(), 250),
        "report_fleet.md": report(sample.fleet()).partition("\n| Stage |")[2].partition("\n\n")[0] + "\n",
        "run.csv": plain_text(run_screen(run)),
        "details.html": in_html(details(run)[:2]) + "\n",
        "explain_naive.txt": explain_text(run, "naive"),
        "explain_cublas.txt": explain_text(run, "cublas"),
        "rung_cublas.html": _without_drawings(f"<main>{rung_html(cublas, run)}</main>"),
        "study.md": _tables(study_report(study, dict(study_drawings(study)))),  # results/reference has whole ones
        "report.md": report(run, drawings(run)),
        "report_no_gpu.md": report(sample.synthetic_results(), drawings(sample.synthetic_results())),
        "study.txt": on_terminal(lambda console: print_study(study, Path("/runs/sample"), console=console)),
        "study.csv": plain_text(study_screen(study)),
        "torch.txt": on_terminal(partial(write_terminal, torch)),
        "torch.md": markdown(torch),
        "torch.html": _without_drawings(page(torch, "torch.json")),
        "torch.csv": plain_text(torch),
        "scenarios.txt": scenarios(),
        "comparisons.txt": comparisons(),
        "outlooks.txt": advised(),
        "studies.txt": studies(),
        "figures.txt": figures(),
        "torch_runs.txt": torch_runs(),
        "doctor.txt": on_terminal(partial(write_terminal, doctor_screen(FINDINGS))),
        "plan.txt": on_terminal(partial(write_terminal, plan_screen(PLAN))),
        "readme.md": f"{ladder_block(runs)}\n\n{networks_block(runs)}\n",
    }


def on_terminal(shows: Callable[[Console], None]) -> str:
    """What a function prints on a narrow terminal, as a file gets it."""
    return "".join(line.rstrip() + "\n" for line in screen(shows, 80).splitlines())


def console_text(run: Results, width: int) -> str:
    """The table as a file gets it: no colour, no blanks at the ends of lines."""
    file = io.StringIO()
    print_results(run, Path("/runs/sample"), console=Console(file=file, width=width, highlight=False))
    return _without_blanks(file)


def explain_text(run: Results, name: str) -> str:
    """The explanation of a stage on a narrow terminal, as a file gets it."""
    return on_terminal(partial(write_terminal, rung_screen(run, name)))


def plain_text(shown: Screen) -> str:
    """A screen's rows as CSV."""
    with contextlib.redirect_stdout(io.StringIO()) as file:
        write(shown, "csv")
    return file.getvalue()


def _tables(text: str) -> str:
    return "".join(f"{line}\n" for line in text.splitlines() if line.startswith("|"))


def _without_drawings(html: str) -> str:
    """What a page shows, without pictures, styles and script."""
    return re.sub(r"(?s)<svg.*?</svg>", "", html.partition("<main>")[2].partition("</main>")[0])


def _without_blanks(file: io.StringIO) -> str:
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())
