"""Our kernels as operations of PyTorch: the whole step by them equals the oracle, on the CPU with doubles in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from common.problem import Problem
from tests.stages.engine.test_step import assert_first_updates, random_split
from tests.stages.numpy_parts import HostDevice, NumpyGemm

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


class View:
    """NumPy's memory behind a tensor."""

    @staticmethod
    def view(tensor: Any) -> Any:
        return tensor.numpy()


def head(rows: int, classes: int) -> Callable[..., None]:
    def launch(z: Any, labels: Any, out: Any, totals: Any, with_totals: bool) -> None:
        assert z.shape == (rows, classes) == out.shape
        assert labels.dtype == np.int32
        shifted = z - z.max(axis=1, keepdims=True)
        exponentials = np.exp(shifted)
        out[...] = (exponentials / exponentials.sum(axis=1, keepdims=True) - np.eye(classes)[labels]) / rows
        if with_totals:
            totals[0] += (np.log(exponentials.sum(axis=1)) - shifted[np.arange(rows), labels]).sum()
            totals[1] += (z.argmax(axis=1) == labels).sum()

    return launch


@pytest.fixture(scope="module")
def operations() -> Any:
    from stages.languages.torch_op import Kernels, register

    gemm: Any = NumpyGemm(HostDevice())  # type: ignore[arg-type]
    return register(Kernels(View(), gemm, head), "ladder_test")


@pytest.mark.parametrize(("hidden", "batch"), [((), 37), ((), 1), ((19, 8), 17)], ids=str)
def test_first_updates_are_the_oracle_s(operations: Any, hidden: tuple[int, ...], batch: int) -> None:
    from stages.languages.torch_op import prepare
    from stages.references.torch_common import TorchTrainer

    problem = Problem(inputs=20, classes=10, hidden=hidden, batch_size=batch, metrics_every=2)
    split = random_split(2 * batch + batch // 2, problem.inputs, problem.classes)
    trainer = TorchTrainer(problem, split, partial(prepare, operations=operations))
    for run, epoch in enumerate((1, 0, 1)):
        assert_first_updates(trainer, problem, split, run=run, epoch=epoch)
