"""Freed memory stays in a process that asked for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource
import numpy as np
from common.allocator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(1 << 18) for _ in range(8)]  # 16 MiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if {keeps}:
    keep_freed_memory()
faults()
faults()
print(faults())
"""


def faults(*, keeps: bool) -> int:
    """The pages that Linux had to clear for 16 MiB that were used and freed before."""
    return int(subprocess.check_output([sys.executable, "-c", FAULTS.format(keeps=keeps)], text=True))


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is of the GNU C library")
def test_freed_memory_is_used_again_without_new_pages() -> None:
    assert faults(keeps=True) < 100 < faults(keeps=False)
