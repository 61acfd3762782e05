"""What the renderings of `tests/reports/sample.py` look like, to the letter, and how they are made.

After a wanted change of a rendering, write the files again with `python -m tests.golden.update` and read the diff.
"""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from ladder.results import Results
from reports.console import print_results
from reports.markdown import FIGURE_TITLES
from reports.readme import readme_block
from reports.report import report
from tests.reports import sample

FOLDER = Path(__file__).parent


def renderings() -> dict[str, str]:
    """The text of every golden file, by its name."""
    run = sample.results()
    return {
        "console_80.txt": console_text(run, 80),
        "console_100.txt": console_text(run, 100),
        "console_no_gpu.txt": console_text(sample.synthetic_results(), 100),
        "report.md": report(run, FIGURE_TITLES),
        "report_no_gpu.md": report(sample.synthetic_results(), FIGURE_TITLES),
        "readme.md": readme_block(
            [("results/reference/h200/hidden-256", run), ("results/reference/h200/deep", sample.deeper_results())]
        )
        + "\n",
    }


def console_text(run: Results, width: int) -> str:
    """The table as a file would get it: no colour, and no blanks at the ends of its lines."""
    file = io.StringIO()
    print_results(run, Path("runs/sample"), Console(file=file, width=width, highlight=False))
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())
