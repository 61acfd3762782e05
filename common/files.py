"""Writing a file so that its readers find it whole."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def atomic_write(path: Path, content: str | bytes, *, sync: bool = False) -> None:
    """Replace a file in one step: a reader finds the old content or the new, never a part of it.

    Several processes may write the same file; the last one wins. Text is written as UTF-8. With `sync` the content is
    on the disk before the file is replaced. Raises OSError, which names `path`, and then leaves the old file alone.
    """
    raw = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("wb") as file:
            file.write(raw)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
