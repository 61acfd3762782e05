"""What the command `torch` does, but for what it shows: the plan of a run, and the run with its script."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from common.signals import INTERRUPTED
from ladder.options.commands import Torch
from ladder.options.continuation import interrupted, resumable
from ladder.records.torch_run import TorchResults
from ladder.torch_model import export
from ladder.torch_model.plan import Plan, planned
from ladder.torch_model.progress import TorchObserver
from ladder.torch_model.session import check_file, has_gpu, opened, with_model
from stages.torch import registry
from stages.torch.registry import RUNGS, chosen, with_base

FAILED = ("wrong", "crashed")


class Climbed(NamedTuple):
    """A run that has ended."""

    status: int  # to exit with
    folder: Path
    results: TorchResults | None  # None: interrupted
    script: str  # a line about the script that was asked for


def plan(asked: Torch) -> Plan:
    """What a run would do. Raises UsageError as the run would where the file does not fit."""
    assert asked.model is not None
    check_file(asked.model)
    rungs = chosen(asked.stages, on_gpu=has_gpu())
    names = [rung.name for rung in (rungs if asked.check else with_base(rungs))]
    elsewhere = [rung.name for rung in registry.asked(asked.stages) if rung.name not in names]
    unasked = [rung.name for rung in RUNGS.values() if not rung.is_default] if "all" in asked.stages else []
    plan = planned(asked.model, [*names, *elsewhere], asked.epochs, asked.timeout)
    return structs.replace(plan, elsewhere=elsewhere, unasked=[name for name in unasked if name not in names])


def climbed(asked: Torch, view: TorchObserver, command: str, render: Callable[[TorchResults, Path], object]) -> Climbed:
    """Run the ladder in a folder, write the best loop, and render the reports."""
    export.check_target(asked.write)
    asked = with_model(asked)
    with opened(asked, view, command) as session, resumable(asked, session.folder):
        try:
            results = session.run()
        except KeyboardInterrupt:
            if not session.kept():
                view.note("interrupted before the first row, so there is nothing to continue; start anew")
                return Climbed(INTERRUPTED, session.folder, None, "")
            return Climbed(interrupted(asked, session.folder, view.note), session.folder, None, "")
        written = export.write(asked, results, session.folder, session.facts)
        render(results, session.folder)
    status = int(any(rung.status in FAILED for rung in results.rungs))
    return Climbed(status, session.folder, results, export.told(written) if asked.write else "")
