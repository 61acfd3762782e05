"""NumPy's arrays: in files, and in memory of the C library."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.files import naming

LOADING = Lock()  # NumPy parses a header by `ast`, which fails in several threads at once (python/cpython#106905)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of the GNU C library
KEPT_BYTES = 1 << 30


def write_arrays(path: Path, *arrays: NDArray[Any]) -> None:
    """Write arrays one after the other, each as `np.load` reads it; raises OSError, which names the file.

    `np.save` says of a full disk that bytes were "requested", without an error number.
    """
    with naming(path), path.open("wb") as file:
        for array in map(np.ascontiguousarray, arrays):
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
            file.write(array.data)


def keep_freed_memory() -> None:
    """Keep freed memory in this process, up to 1 GiB; without effect where the C library cannot.

    Otherwise Linux clears the pages of a gradient anew in every step, which takes up to a seventh of the oracle's time.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
