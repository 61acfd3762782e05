"""What some take instead: `torch.compile` times its choices, and the host launches them.

Why: `compile` takes the compiler's first choice for each kernel.
Change: compiler: `mode="max-autotune-no-cudagraphs"`.
Expect: 0.9 to 1.1 times as fast as `compile`, after a minute or more of compiling. So it is off by default.
"""

from __future__ import annotations

from stages.torch import r5_compile
from stages.torch.training_step import Compiler

RUNG = r5_compile.RUNG.climb(
    "max-autotune-no-graphs", "torch.compile's max-autotune-no-cudagraphs", group="instead", place="gpu",
    is_default=False, compiler=Compiler(arguments=(("mode", "max-autotune-no-cudagraphs"),)),
)  # fmt: skip
