"""Files in /dev/shm that a stage leaves behind: they fill the host's memory until they are removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FOLDER = Path("/dev/shm")
IGNORED = ("cuda", "nccl", "nvidia", "sem.")  # files of CUDA's libraries, and semaphores, which are small


def present() -> set[str]:
    """The names of all files; empty if there is no such folder."""
    try:
        return {path.name for path in FOLDER.iterdir()}
    except OSError:
        return set()


def remove_new(before: set[str]) -> list[str]:
    """Remove the files that have appeared since `before` and that this process holds; returns their paths.

    Another program's file may have appeared as well, but this process would not hold it.
    """
    removed = []
    for path in sorted(_new(before) & set(_held(Path("/proc/self")))):
        with suppress(OSError):
            path.unlink()
            removed.append(str(path))
    return removed


def left_since(before: set[str]) -> list[str]:
    """The files of this user that have appeared since `before` and that no process holds."""
    if not (new := _new(before)):
        return []
    for process in Path("/proc").glob("[0-9]*"):
        new -= set(_held(process))
    left = []
    for path in sorted(new):
        with suppress(OSError):
            if path.stat().st_uid == os.getuid():
                left.append(str(path))
    return left


def _new(before: set[str]) -> set[Path]:
    return {FOLDER / name for name in present() - before if not name.startswith(IGNORED)}


def _held(process: Path) -> Iterator[Path]:
    """The files there that a process maps or has open; none for a process that has ended or is another user's."""
    with suppress(OSError):
        for line in (process / "maps").read_text(errors="replace").splitlines():
            if f"{FOLDER}/" in line:
                yield Path(line[line.index(f"{FOLDER}/") :])
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                yield descriptor.readlink()
