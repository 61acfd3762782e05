"""Writes a file so that its readers find it whole, and explains errors of a disk or a limit that is used up."""

from __future__ import annotations

import errno
import io
import os
import tokenize
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
RAISE = {
    errno.EMFILE: "allow more by `ulimit -n 4096`",
    errno.ENFILE: "close other programs",
    errno.ENOMEM: "free some, or raise the limit that `ulimit -v` shows",
    errno.EAGAIN: "raise the limits that `ulimit -u` and `ulimit -v` show",
}  # what helps, by the error of a limit that the machine sets


def is_limit(error: OSError) -> bool:
    """Whether the machine has no more of something, so that a run goes on once there is more."""
    return error.errno in NO_ROOM or error.errno in RAISE


def explained(error: OSError, way_on: str = "repeat the command") -> str:
    """An error in one line with its file; for what the machine has no more of, also what to do and the way on."""
    name = error.filename or ("standard output" if error.errno in NO_ROOM else "")  # all files are named
    line = f"{name}: {error.strerror}" if name else f"{error.strerror or error}"
    if not is_limit(error):
        return line
    if error.errno in NO_ROOM and not error.filename:
        return f"{line}; send it elsewhere, then {way_on}"
    if error.errno in NO_ROOM:
        folder = next(parent for parent in Path(error.filename).absolute().parents if parent.is_mount())
        return f"{line}; free some below {folder}, then {way_on}"
    return f"{line}; {RAISE[error.errno or 0]}, then {way_on}"


def of_system(error: Exception) -> OSError | None:
    """The system's error behind an exception of Python, which reports memory and threads in its own way; else None."""
    if isinstance(error, MemoryError):
        return OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return OSError(errno.EAGAIN, str(error))
    return error if isinstance(error, OSError) else None


def is_endless(path: Path) -> bool:
    """Whether reading it may wait for ever, as a pipe does, or have no end, as a device."""
    return path.exists() and not (path.is_file() or path.is_dir())


def source_text(file: Path) -> str:
    """The text of a source file as Python reads it; in other languages, or of an unknown encoding, as UTF-8.

    Bytes that are no text become U+FFFD. Raises OSError.
    """
    raw, encoding = file.read_bytes(), "utf-8-sig"
    if file.suffix == ".py":
        with suppress(SyntaxError):
            encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
    return io.TextIOWrapper(io.BytesIO(raw), encoding, errors="replace").read()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an OSError inside the context the name of this file; Linux's has none if a write fails, not an open."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def atomic_write(path: Path, content: str | bytes, *, sync: bool = False) -> None:
    """Replace a file in one step: a reader finds the old content or the new, never a part of it.

    Several processes may write the same file; the last one wins. Text is written as UTF-8. With `sync` the content is
    on the disk before the file is replaced. Raises OSError, which names `path`, and then leaves the old file alone.
    """
    raw = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    try:
        with naming(path):
            with temporary.open("wb") as file:
                file.write(raw)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
