"""Which BLAS NumPy multiplies with, and with how many threads: a CPU row without that is worth nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import cast

import numpy as np


def blas_description() -> str:
    """Such as `scipy-openblas 0.3.31, 2 threads`; says `unknown` where it cannot be found out."""
    library, threads = blas_library(), blas_threads()
    return f"{library}, {threads} thread{'' if threads == 1 else 's'}" if threads else f"{library}, threads unknown"


def blas_library() -> str:
    """The name and version that NumPy was built with."""
    config = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown BLAS')} {blas.get('version', '')}".strip()


def blas_threads() -> int | None:
    """How many threads it uses in this process, asked of the loaded library itself."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return None
    threads = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return max(threads, default=None)


def limit_blas_threads(count: int) -> AbstractContextManager[object]:
    """Have it use so many threads in this process from now on or, of a `with`, within it.

    Without threadpoolctl nothing changes.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return cast(AbstractContextManager[object], threadpool_limits(count, user_api="blas"))
