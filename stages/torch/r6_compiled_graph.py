"""The recorded step is compiled before.

Why: The graph of `step-graph` holds a kernel for each operation, and each starts only when the last one has ended.
Change: compiler: `torch.compile` of forward pass and loss, recorded with the rest.
Expect: 1.2 to 1.8 times as fast as `step-graph`: the compiler's guards and wrappers are gone from the step, and its
fewer kernels remain. Compiling takes 10 to 30 s, which pays after some 100,000 steps.
"""

from __future__ import annotations

from stages.torch import r5_compile, r5_step_graph

RUNG = r5_step_graph.RUNG.climb("compiled-graph", "the recorded step compiled", compiler=r5_compile.COMPILED)
