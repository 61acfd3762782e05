"""What `advise` says of some networks, batches and GPUs, as Markdown for the front page; `advised.js` shows one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ladder.options.commands import Advise
from ladder.options.run_options import RunOptions
from ladder.run.outlook import outlooks
from reports.screens.advise import advise_screen
from reports.writers.markdown import markdown

CHOICES = {  # by the name of a field: its label and values
    "hidden": ("Hidden layers", ("none", "256", "1024", "4096", "128,128,128")),
    "batch": ("Batch", ("32", "128", "512")),
    "gpu": ("GPU", ("H200", "H100", "A100", "RTX 4090")),
}
FIRST = "256", "128", "H200"  # shown at first, and alone without the script


def advised() -> Iterator[str]:
    """A field for each of `CHOICES`, then an article for each combination, all but `FIRST` hidden."""
    yield '<form class="advised" hidden>'
    for (name, (label, values)), first in zip(CHOICES.items(), FIRST, strict=True):
        options = "".join(f"<option{' selected' * (value == first)}>{value}</option>" for value in values)
        yield f'<p><label for="{name}">{label}</label> <select id="{name}">{options}</select></p>'
    yield "</form>\n"
    for place in product(*(values for _, values in CHOICES.values())):
        data = " ".join(f'data-{name}="{value}"' for name, value in zip(CHOICES, place, strict=True))
        yield f'<article class="advised" markdown="1" {data}{" hidden" * (place != FIRST)}>\n'
        yield f"##{said(*place)}\n</article>\n"
    yield "Any other network, batch, GPU or number of epochs: `python run_ladder.py advise --hidden 300,100`.\n"
    yield '<script src="advised.js"></script>\n'


def said(hidden: str, batch: str, gpu: str) -> str:
    """The screen of `advise` as a Markdown document."""
    widths = () if hidden == "none" else tuple(map(int, hidden.split(",")))
    options = RunOptions(hidden=widths, batch_size=int(batch))
    return markdown(advise_screen(outlooks(Advise(options=options, gpu=gpu))))
