"""The folder of a new run or study."""

from __future__ import annotations

from datetime import datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile

from common.errors import UsageError

RUNS = Path("runs")


def make_folder(out: Path | None, prefix: str = "") -> Path:
    """Make the folder that the user named, else `runs/PREFIX<time>`; returns it.

    Raises UsageError for a folder that could not keep the results, before anything is measured.
    """
    try:
        folder = out or _new_folder(f"{prefix}{datetime.now():%Y%m%d-%H%M%S}")
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        where = out or RUNS
        raise UsageError(f"--out {where}: cannot be written to ({error.strerror}); choose another folder") from error


def _new_folder(name: str) -> Path:
    """A folder of its own: runs that begin in the same second get `NAME`, `NAME-2` and so on."""
    RUNS.mkdir(exist_ok=True)
    for number in count(1):
        folder = RUNS / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("count() does not end")
