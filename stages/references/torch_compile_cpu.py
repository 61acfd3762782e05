"""PyTorch compiled on the CPU: `torch.compile` in float32, data in memory.

Why: without a GPU this is PyTorch's fastest own way. It calls the same library for wide products as eager mode, and
fuses the operations between them into vector loops.

Change: none; it is a reference, not a rung. The step of `torch-compile`, update included, without autocast: most CPUs
multiply no bfloat16. One step a call. The compiler generates C++, so it needs a C++ compiler. Preparation compiles for
1, 2, 4, ... threads and all that the process may use, as long as more help, and keeps the fastest.

Expect: 150 us per step for softmax regression on two cores, where eager mode takes some 300: PyTorch dispatches one
call per step instead of thirty. Little less than eager mode with a hidden layer of 256, where products take the time.

Predict: on CPU: 784-10, batch 128: 0.5 x of torch-eager.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import nullcontext

from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer
from stages.engine.stage import Stage
from stages.references.torch_common import RunEpoch, TorchSetup, TorchTrainer
from stages.references.torch_step import compile_steps, matrix_product, train_steps
from stages.references.torch_threads import use_fastest_threads


def prepare(setup: TorchSetup, dues: Iterable[bool] = (False, True)) -> RunEpoch:
    """Compile the step without and with totals, or one of both, for the current number of threads."""
    import torch

    # Named, so that the cache on disk keeps the code for different numbers apart.
    options = {"cpp.threads": torch.get_num_threads()}
    steps = compile_steps(train_steps(setup, linear=matrix_product), {"options": options})
    batches = setup.resident_batches()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the compiler's own choices
        for due in dues:
            steps(batches[:1], due)

    def run_epoch(due: bool) -> None:
        for batch in batches:
            steps([batch], due)

    return run_epoch


def prepare_trial(setup: TorchSetup) -> RunEpoch:
    """The same for a first epoch alone."""
    return prepare(setup, [setup.problem.metrics_due(0)])


def build(problem: Problem, train: Split) -> Trainer:
    """A trainer with a compiled step."""
    use_fastest_threads(problem, prepare_trial)
    return TorchTrainer(problem, train, prepare)


STAGE = Stage(
    "torch-compile-cpu",
    "PyTorch compiled, on the CPU",
    "reference",
    "float32",
    ("torch", "no-gpu", "c++"),
    build,
    words="PyTorch compiled, on the CPU",
    compiles_within=nullcontext,
)
