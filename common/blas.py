"""The BLAS library behind NumPy and its number of threads."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import cast

import numpy as np

THREAD_WORK = 8_000_000  # multiplications: half a millisecond of a core's time


def blas_description() -> str:
    """Library and threads, for example `scipy-openblas 0.3.31, 2 threads`; `unknown` for a part that cannot be read."""
    library, threads = blas_library(), blas_threads()
    return f"{library}, {threads} thread{'' if threads == 1 else 's'}" if threads else f"{library}, threads unknown"


def blas_library() -> str:
    """Name and version of the library that NumPy was built with."""
    config = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown BLAS')} {blas.get('version', '')}".strip()


def blas_threads() -> int | None:
    """Threads of the loaded library in this process; None without threadpoolctl."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return None
    threads = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return max(threads, default=None)


def worthwhile_threads(multiplications: int, cores: int) -> int:
    """The threads that pay for this many multiplications: more would mostly wait for each other."""
    return max(1, min(cores, multiplications // THREAD_WORK))


def limit_blas_threads(count: int) -> AbstractContextManager[object]:
    """Limit the library to `count` threads: from now on, or in a `with` block. Needs threadpoolctl; else no effect."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return cast(AbstractContextManager[object], threadpool_limits(count, user_api="blas"))
