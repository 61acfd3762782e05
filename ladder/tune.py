"""Launch shapes of the plain kernels, measured for the GPU at hand and one network: what `run_ladder.py tune` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common.data.dataset import Split
from common.errors import UsageError
from common.problem import Problem
from ladder.machine.environment import missing
from ladder.records.run import Spread
from ladder.records.tuning import TriedShape, TunedKernel
from stages.engine.launch_shapes import PLAIN, Sizes
from stages.shapes.r1_tuned import operations
from stages.shapes.shape_sweeps import Sweep, Sweeps

Operation = tuple[str, Sizes]


def open_gpu() -> Any:
    """The first visible GPU; UsageError where there is none that can be used."""
    if reason := missing(("cuda",)):
        raise UsageError(f"tune: {reason}; launch shapes can only be measured on a machine with an NVIDIA GPU")
    from common.cuda.gpu import Gpu  # here, since a machine without CuPy says so in one line too

    try:
        return Gpu()
    except Exception as error:  # whatever CUDA's libraries raise
        raise UsageError(f"tune: the GPU cannot be used ({error}); free it, or see --doctor") from error


class Tuning:
    """The operations of a step, and their sweeps; what was measured is on disk as soon as it is."""

    def __init__(self, problem: Problem, train: Split, gpu: Any) -> None:
        try:
            self.operations = operations(problem, train, gpu)
        except Exception as error:
            raise UsageError(f"tune: {_first_line(error)}; choose smaller layers or batches") from error
        self._sweeps = Sweeps(gpu)
        self.damaged: Path | None = self._sweeps.damaged

    def measure(self, operation: Operation, again: bool) -> TunedKernel:
        """The sweep of one operation, which is taken from the cache unless it is to be measured again.

        Raises UsageError where it cannot be measured.
        """
        kept = None if again else self._sweeps.get(*operation)
        try:
            sweep = kept or self._sweeps.measure(*operation)
        except Exception as error:
            raise UsageError(f"tune {name_of(operation)}: {_first_line(error)}; what came before it is kept") from error
        return _described(operation, sweep, kept is not None)


def name_of(operation: Operation) -> str:
    """An operation in words: `gemm_naive 128 x 10 over 784`."""
    return f"{operation[0]} {_sizes(*operation)}"


def _sizes(kernel: str, sizes: Sizes) -> str:
    if kernel != "gemm_naive":
        return " x ".join(f"{size:,}" for size in sizes)
    m, n, k, trans_a, trans_b = sizes
    transposed = ", a transposed" * trans_a + ", b transposed" * trans_b
    return f"{m:,} x {n:,} over {k:,}{transposed}"


def _described(operation: Operation, sweep: Sweep, was_kept: bool) -> TunedKernel:
    kernel, sizes = operation
    tried = [
        TriedShape(
            *PLAIN[kernel].place(candidate.shape),
            Spread.of(candidate.samples_us) if candidate.samples_us else None,
            candidate.left_out,
        )
        for candidate in sweep.candidates
    ]
    return TunedKernel(kernel, _sizes(kernel, sizes), PLAIN[kernel].axes, tried, sweep.chosen, was_kept)


def _first_line(error: Exception) -> str:
    """What happened: a problem's own words as they are, anything else with its kind."""
    text = (str(error).strip().splitlines() or [""])[0]
    return text if type(error) is ValueError else f"{type(error).__name__}: {text}"
