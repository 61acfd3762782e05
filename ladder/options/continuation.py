"""The command that continues a run or study after Ctrl-C, or where the machine has no more of something."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import UsageError
from common.files import explained, is_limit, of_system
from common.signals import INTERRUPTED
from ladder.options.commands import MeasureStudy, Resume, ResumeStudy, Run, Torch
from ladder.records.program import PROGRAM, ROOT

Asked = Run | Resume | MeasureStudy | ResumeStudy | Torch


def interrupted(asked: Asked, folder: Path, note: Callable[[str], object]) -> int:
    """Print in one line what to type after Ctrl-C; returns the exit status."""
    note(f"interrupted; {_way_on(asked, folder)}")
    return INTERRUPTED


@contextmanager
def resumable(asked: Asked, folder: Path) -> Iterator[None]:
    """Raise UsageError with the way on, in one line, if disk, memory or files run out inside the context."""
    try:
        yield
    except (OSError, MemoryError, RuntimeError) as error:
        told = of_system(error)
        if told is None or not is_limit(told):
            raise
        raise UsageError(explained(told, _way_on(asked, folder))) from error


def _way_on(asked: Asked, folder: Path) -> str:
    program = PROGRAM if Path.cwd() == ROOT else shlex.join([sys.executable, str(ROOT / "run_ladder.py")])
    return f"continue with: {program} {shlex.join(continuation(asked, folder))}"


def continuation(asked: Asked, folder: Path) -> list[str]:
    """The words after `run_ladder.py`: what `--resume` reads from the folder, and the files that it cannot know."""
    if isinstance(asked, Torch):
        model = [str(asked.model)] if asked.model else []
        return ["torch", *model, "--resume", str(folder), *(("--write", str(asked.write)) if asked.write else ())]
    data_dir = asked.options.data_dir if isinstance(asked, Run) else asked.data_dir
    stage_files = () if isinstance(asked, MeasureStudy | ResumeStudy) else asked.stage_file
    words = ["study"] if asked.name == "study" else []
    words += ["--resume", str(folder)]
    words += ["--data-dir", str(data_dir)] if data_dir is not None else []
    return [*words, *(word for file in stage_files for word in ("--stage-file", str(file)))]
