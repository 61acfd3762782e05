"""`torch.compile` captures its own kernels in CUDA graphs: `mode="reduce-overhead"`.

Why: `compile` still launches each of its kernels from the host.
Change: compiler: `mode="reduce-overhead"`.
Expect: 1.4 to 2 times as fast as `compile`. Forward and backward pass are graphs of their own, and the optimizer stays
outside of them.
"""

from __future__ import annotations

from stages.torch import r5_compile
from stages.torch.training_step import Compiler

REDUCED = Compiler(arguments=(("mode", "reduce-overhead"),))

RUNG = r5_compile.RUNG.climb("reduce-overhead", "torch.compile(mode='reduce-overhead')", place="gpu", compiler=REDUCED)
