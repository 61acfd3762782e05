"""`torch.compile` fuses the operations of the forward pass, the loss and their gradients.

Why: `fused-optimizer` launches a kernel for each operation of the model.
Change: compiler: `torch.compile` with its defaults.
Expect: 0.85 to 1.4 times as fast as `fused-optimizer`: fewer kernels, but guards and wrappers that the host runs in
each step. It compiles for 10 to 30 s.
"""

from __future__ import annotations

from stages.torch import r4_fused_optimizer
from stages.torch.training_step import Compiler

COMPILED = Compiler(arguments=())

RUNG = r4_fused_optimizer.RUNG.climb("compile", "torch.compile", compiler=COMPILED)
