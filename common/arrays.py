"""Arrays in files, in NumPy's format."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.files import naming

LOADING = Lock()  # NumPy parses a header by `ast`, which fails in several threads at once (python/cpython#106905)


def write_arrays(path: Path, *arrays: NDArray[Any]) -> None:
    """Write arrays one after the other, each as `np.load` reads it; raises OSError, which names the file.

    `np.save` says of a full disk that bytes were "requested", without an error number.
    """
    with naming(path), path.open("wb") as file:
        for array in map(np.ascontiguousarray, arrays):
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
            file.write(array.data)
