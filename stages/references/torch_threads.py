"""How many threads PyTorch uses where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from common.problem import Problem, initial_params
from stages.references.thread_trials import epoch_steps_s, fastest_count, random_split, thread_counts, trial_steps
from stages.references.torch_common import RunEpoch, TorchSetup, TorchTrainer

Prepare = Callable[[TorchSetup], RunEpoch]


def use_fastest_threads(problem: Problem, prepare: Prepare) -> None:
    """On a CPU, give this process the number of threads with which the prepared step is fastest; on a GPU nothing."""
    import torch

    if not torch.cuda.is_available():
        torch.set_num_threads(_fastest(problem, prepare))


@cache
def _fastest(problem: Problem, prepare: Prepare) -> int:
    """Of 1, 2, 4, ... and all usable. Compiled code is compiled for each that is tried."""
    import torch

    trainers, steps = dict[int, TorchTrainer](), trial_steps(problem)

    def steps_s(count: int) -> list[float]:
        torch.set_num_threads(count)
        if count not in trainers:
            trainers[count] = TorchTrainer(problem, random_split(problem, steps), prepare)
            trainers[count].load_params(initial_params(problem, 0))
        return epoch_steps_s(trainers[count], steps)

    return fastest_count(thread_counts(), steps_s, steps)
