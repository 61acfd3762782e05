"""Where downloads and compiled kernels are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

from common.paths import at_home


def cache_folder(name: str) -> Path:
    """The folder of that name in `$LADDER_CACHE_DIR`, or else among the user's caches; it may not exist yet.

    A user without a home gets one under the temporary files.
    """
    own = os.environ.get("LADDER_CACHE_DIR")
    if own:
        return at_home(own, "$LADDER_CACHE_DIR") / name
    caches = os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(caches) if caches else Path.home() / ".cache"
    except RuntimeError:
        base = Path("/tmp")
    return base / "optimisation-ladder" / name
