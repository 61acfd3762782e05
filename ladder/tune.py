"""The `tune` command: sweeps over the launch shapes of one network's products, on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.data.dataset import Split
from common.errors import MisfitError, UsageError
from common.problem import Problem
from ladder.machine.environment import missing
from ladder.options.commands import Tune
from ladder.records.run import Spread
from ladder.records.tuning import TriedShape, TunedKernel, TuningRecord, save_tuning
from ladder.run.data import load_dataset
from ladder.run.folders import make_folder
from ladder.run.preflight import check_fits
from ladder.run.session import Observer
from stages.shapes.launch_shapes import AXES, KERNEL, Product
from stages.shapes.r1_tuned import products
from stages.shapes.shape_sweeps import Sweep, Sweeps


def tune(
    asked: Tune, observer: Observer, outcome: Callable[[TunedKernel], str], command: str
) -> tuple[TuningRecord, Path]:
    """Measure every product of a network's step; returns the record and its folder.

    `outcome` describes a product's sweep in one line, for the observer. The cache keeps each sweep as soon as it is
    measured, so that KeyboardInterrupt loses none.
    """
    # Checked before the data is looked for, which may take a download; the data's sizes follow.
    problem = Problem(inputs=1, classes=1, hidden=asked.hidden, batch_size=asked.batch_size)
    gpu = open_gpu()
    dataset = load_dataset(data_dir=asked.data_dir, seed=0, observer=observer)
    problem = replace(problem, inputs=dataset.train.images.shape[1], classes=dataset.classes)
    check_fits(problem, dataset)
    folder = make_folder(asked.out, "tune-")
    tuning = Tuning(problem, dataset.train, gpu)
    if tuning.damaged:
        observer.note(f"{tuning.damaged}: cannot be read; its sweeps are measured again")
    names = [name_of(product) for product in tuning.operations]
    observer.begin(len(names), names)
    kernels: list[TunedKernel] = []
    try:
        for name, product in zip(names, tuning.operations, strict=True):
            observer.start(name, 1, 1)
            kernels.append(tuning.measure(product, asked.again))
            observer.finish(name, "kept" if kernels[-1].was_kept else "tuned", outcome(kernels[-1]))
    except KeyboardInterrupt:
        observer.note(f"interrupted; {len(kernels)} of {len(names)} sweeps are kept; the same command does the rest")
        raise
    record = TuningRecord(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command,
        gpu=gpu.name,
        network="-".join(map(str, (problem.inputs, *problem.hidden, problem.classes))),
        batch_size=problem.batch_size,
        kernels=kernels,
    )
    save_tuning(record, folder)
    return record, folder


def open_gpu() -> Any:
    """The first visible GPU; UsageError if there is no usable one."""
    if reason := missing(("cuda",)):
        raise UsageError(f"tune: {reason}; launch shapes can only be measured on a machine with an NVIDIA GPU")
    from common.cuda.gpu import Gpu  # here, since a machine without CuPy reports that in one line too

    try:
        return Gpu()
    except Exception as error:  # CUDA's libraries raise many kinds
        raise UsageError(f"tune: the GPU cannot be used ({error}); free it, or see --doctor") from error


class Tuning:
    """The products of a step, and their sweeps. Each sweep is on disk as soon as it is measured."""

    def __init__(self, problem: Problem, train: Split, gpu: Any) -> None:
        try:
            self.operations = products(problem, train, gpu)
        except Exception as error:
            raise UsageError(f"tune: {_first_line(error)}; choose smaller layers or batches") from error
        self._sweeps = Sweeps(gpu)
        self.damaged: Path | None = self._sweeps.damaged

    def measure(self, product: Product, again: bool) -> TunedKernel:
        """The sweep of one product, from the cache unless `again`; UsageError if it cannot be measured."""
        kept = None if again else self._sweeps.get(product)
        try:
            sweep = kept or self._sweeps.measure(product)
        except Exception as error:
            raise UsageError(f"tune {name_of(product)}: {_first_line(error)}; earlier sweeps are kept") from error
        return _described(product, sweep, kept is not None)


def name_of(product: Product) -> str:
    """A product in words: `gemm_shaped 128 x 10 over 784`."""
    return f"{KERNEL} {_sizes(product)}"


def _sizes(product: Product) -> str:
    transposed = ", a transposed" * product.trans_a + ", b transposed" * product.trans_b
    return f"{product.m:,} x {product.n:,} over {product.k:,}{transposed}"


def _described(product: Product, sweep: Sweep, was_kept: bool) -> TunedKernel:
    tried = [
        TriedShape(
            *candidate.shape.labels,
            Spread.of(candidate.samples_us) if candidate.samples_us else None,
            candidate.left_out,
        )
        for candidate in sweep.candidates
    ]
    return TunedKernel(KERNEL, _sizes(product), AXES, tried, sweep.chosen, was_kept)


def _first_line(error: Exception) -> str:
    """The error's first line; its kind stands before it unless it is one of ours."""
    text = (str(error).strip().splitlines() or [""])[0]
    return text if type(error) in (ValueError, MisfitError) else f"{type(error).__name__}: {text}"
