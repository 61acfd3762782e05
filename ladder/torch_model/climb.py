"""What the command `torch` does, but for what it shows: plan and example, and the run with its script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from common.signals import INTERRUPTED
from ladder.options.commands import Torch
from ladder.options.continuation import interrupted, resumable
from ladder.records.torch_run import TorchResults, has_record
from ladder.torch_model import export
from ladder.torch_model.progress import TorchObserver
from ladder.torch_model.session import check_file, opened
from stages.torch.registry import chosen, with_base

FAILED = ("wrong", "crashed")


class Climbed(NamedTuple):
    """A run that has ended."""

    status: int  # to exit with
    folder: Path
    results: TorchResults | None  # None: interrupted
    script: str  # a line about the script that was asked for


def text_of(asked: Torch, examples: Path) -> str:
    """The example that is asked for, or the rungs that would run with what each changes; empty: a run is asked for."""
    if asked.example:
        return (examples / f"{asked.example}.py").read_text(encoding="utf-8")
    if asked.dry_run:
        from common.cuda.driver import devices

        check_file(asked.model)
        rungs = chosen(asked.stages, on_gpu=bool(devices()))
        rungs = rungs if asked.check else with_base(rungs)
        return "".join(f"{rung.name:20} {rung.words}\n" for rung in rungs)
    return ""


def climbed(asked: Torch, view: TorchObserver, command: str, render: Callable[[TorchResults, Path], object]) -> Climbed:
    """Run the ladder in a folder, write the best loop, and render the reports."""
    export.check_target(asked.write)
    with opened(asked, view, command) as session, resumable(asked, session.folder):
        try:
            results = session.run()
        except KeyboardInterrupt:
            if not has_record(session.folder):
                view.note("interrupted before the first row, so there is nothing to continue; start anew")
                return Climbed(INTERRUPTED, session.folder, None, "")
            return Climbed(interrupted(asked, session.folder, view.note), session.folder, None, "")
        written = export.write(asked, results, session.folder, session.facts)
        render(results, session.folder)
    status = int(any(rung.status in FAILED for rung in results.rungs))
    return Climbed(status, session.folder, results, export.told(written) if asked.write else "")
