"""Grades a folder of submissions: `check` with a rubric on each, in a process of its own, without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from common.errors import UsageError
from common.process_group import adopt_orphans, end_orphans
from ladder.options.commands import Grade
from ladder.records.checked import Checked, GradedClass, GradedFile
from ladder.records.program import ROOT
from ladder.run.observer import DownloadObserver
from ladder.run.preflight import posed
from ladder.verify.rubric import read_rubric

WITHOUT_NETWORK = ("unshare", "--map-root-user", "--net")
"""Runs a command where no device reaches a network, which Linux allows anyone, unless an administrator forbids it."""


def graded(asked: Grade, observer: DownloadObserver) -> GradedClass:
    """The points of each Python file in the folder and in those within, by name; one that hangs or dies has none.

    Raises UsageError for a folder without such files, and for what no student can help: the rubric, the data, the
    set-up.
    """
    rubric = read_rubric(asked.rubric)
    try:
        inside = list(asked.folder.iterdir())
        inside += [file for folder in inside if folder.is_dir() for file in folder.iterdir()]  # as an upload has them
    except OSError as error:
        raise UsageError(f"{asked.folder}: {error.strerror}; name a folder of submissions") from error
    files = sorted(path for path in inside if path.suffix == ".py")
    if not files:
        raise UsageError(f"{asked.folder}: holds no Python file; name a folder of submissions")
    posed(asked.options, observer)  # fetches the data while there is a network
    adopt_orphans()
    alone = WITHOUT_NETWORK if _is_allowed(WITHOUT_NETWORK) else ()
    rows = []
    for path in files:
        rows.append(row := _graded(path, asked, alone, sum(rubric.points.values())))
        observer.note(f"{row.file}: {row.points} of {row.most} points")
    return GradedClass(rubric.title, bool(alone), rows)


def _is_allowed(prefix: tuple[str, ...]) -> bool:
    if shutil.which(prefix[0]) is None:
        return False
    return subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def _graded(path: Path, asked: Grade, alone: tuple[str, ...], most: int) -> GradedFile:
    check = [sys.executable, str(ROOT / "run_ladder.py"), "check", str(path), "--rubric", str(asked.rubric), "--json"]
    name, began = path.relative_to(asked.folder).as_posix(), time.monotonic()
    failure, pipe = "", subprocess.PIPE
    with subprocess.Popen(
        [*alone, *check, *asked.settings], stdout=pipe, stderr=pipe, start_new_session=True
    ) as process:
        try:
            out, err = process.communicate(timeout=asked.timeout)
        except subprocess.TimeoutExpired:
            failure = f"took longer than {asked.timeout:g} s"
        finally:
            end_orphans(process.pid)  # and the process itself, if it has not ended
    seconds = round(time.monotonic() - began, 1)
    if failure:
        return GradedFile(name, 0, most, "crashed", failure, seconds)
    if process.returncode == 2:
        raise UsageError(err.decode(errors="replace").strip().rpartition("run_ladder.py: ")[2])
    try:
        found = msgspec.json.decode(out, type=Checked)
    except msgspec.DecodeError:
        return GradedFile(name, 0, most, "crashed", f"ended check with {process.returncode}", seconds)
    points = found.graded.points if found.graded else 0
    return GradedFile(name, points, most, found.status, found.reason.removeprefix(f"check {path}: "), seconds)
