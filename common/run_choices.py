"""Choices by timing that all processes of a stage share within one run.

Two processes may time different winners, and the stage's times would then differ by chance. The first process keeps its
choice in the run's folder. The next run times anew: what a busy host decided must not last.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from common.files import atomic_write

VARIABLE = "LADDER_RUN_CHOICES"  # the folder for the choices of one stage in one run; it may not exist yet


def shared_choice(name: str, choose: Callable[[], int]) -> int:
    """The choice of this name that an earlier process kept; else `choose` is called, and its choice is kept.

    Outside of a run, and where the folder cannot be read or written, every process chooses for itself.
    """
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return choose()
    file = Path(folder) / name
    with suppress(OSError, ValueError):
        return int(file.read_text())
    chosen = choose()
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, str(chosen))
    return chosen
