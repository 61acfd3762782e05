"""What catches each wrong stage: `python -m tests.cheats.table` writes it to caught.txt, beside this file."""

from __future__ import annotations

from pathlib import Path

from stages.engine.stage import Stage
from tests.cheats import defects, frauds, halves, networks, on_gpu
from tests.cheats.defects import CAUGHT

CAUGHT_FILE = Path(__file__).with_name("caught.txt")
FOUND = {
    f"{module.__name__.rpartition('.')[2]}:{name}": stage
    for module in (defects, frauds, halves, on_gpu, networks)
    for name, stage in vars(module).items()
    if isinstance(stage, Stage)
}
NAMES = {stage.name: place for place, stage in FOUND.items()}
"""Where each stage is, by its name."""


def table() -> str:
    """A line a stage: its name, in which kind of run it passes or is caught and by what, and what it does."""
    runs = {stage: (run, what) for run, caught in CAUGHT.items() for stage, what in caught.items()}
    lines = ["stage | passes | run | why | what it does"]
    for place, stage in FOUND.items():
        run, what = runs[stage.name]
        said = (getattr(stage.build, "__doc__", "") or "").split("\n")[0]
        lines.append(" | ".join((place, "yes" if run == "passes" else "no", run, what, said)))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    CAUGHT_FILE.write_text(table(), encoding="utf-8")
