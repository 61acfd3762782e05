"""The public module for CPU kernels of your own: `Kernel(my_kernel, setup.device)` makes one that a part can call.

`@kernel()` compiles a function of one row of words, by Numba. An array comes as its address: `floats(row[0], count)` is
an array of float32 again, `doubles` of float64, `integers` of int32. Whole numbers come as they are.
"""

from __future__ import annotations

from common.cpu.compiled import doubles, floats, integers, kernel, part
from common.cpu.host import Kernel

__all__ = ["Kernel", "doubles", "floats", "integers", "kernel", "part"]
