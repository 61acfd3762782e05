"""An exception as the reason in a row, with the line of the stage's code that raised it."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from ladder.measure.protocol import one_line

# Python, its packages and the harness: a line of theirs says nothing about the stage.
ROOT = Path(__file__).resolve().parents[2]
NOT_THE_STAGE = (*sysconfig.get_paths().values(), str(ROOT / "ladder"), str(ROOT / "common"), "<")


def crash_reason(error: BaseException) -> str:
    """One line: `ValueError: no (mine.py, line 12)`; without the place where no code of a stage took part."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(NOT_THE_STAGE)]
    return f"{one_line(error)} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else one_line(error)
