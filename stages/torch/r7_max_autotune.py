"""What some take instead: `torch.compile` times its choices, `mode="max-autotune"`.

Why: `reduce-overhead` takes the compiler's first choice for each kernel.
Change: compiler: `mode="max-autotune"`, which also captures CUDA graphs.
Expect: 0.8 to 1.1 times as fast as `reduce-overhead`, after a minute or more of compiling. So it is off by default.
"""

from __future__ import annotations

from stages.torch import r6_reduce_overhead
from stages.torch.training_step import Compiler

TUNED = Compiler(arguments=(("mode", "max-autotune"),))

RUNG = r6_reduce_overhead.RUNG.climb(
    "max-autotune", "torch.compile(mode='max-autotune')", group="instead", place="gpu", is_default=False, compiler=TUNED
)
