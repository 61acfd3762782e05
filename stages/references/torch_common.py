"""Shared parts of all PyTorch references: network, resident batches, totals, and their trainer.

A reference is one function that prepares from a `TorchSetup` and returns a function that runs an epoch. Its file
holds its own use of PyTorch and nothing that all references share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from common.arrays import touched
from common.data.dataset import Split
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from stages.engine.validation import images_of_a_pass

Tensor = Any
Batch = tuple[Tensor, Tensor]
"""Images (B, I) and labels (B,)."""
RunEpoch = Callable[[bool], None]
"""Train on every full batch once, in order; the flag adds to the totals."""
Evaluate = Callable[[], None]
"""Add all test images to the totals, by summed losses: batches may differ in size."""
TRANSPOSED_ROWS = 512  # of a weight at once, so that the device needs no second copy of it


class Totals:
    """Running loss and correct answers of an epoch, on the device, so that no step waits for the host."""

    def __init__(self, device: Any) -> None:
        import torch

        # Shape (1,): torch.compile treats a float64 tensor of shape () as a number and drops additions to it.
        self.loss_sum = torch.zeros(1, device=device, dtype=torch.float64)
        self.correct = torch.zeros(1, device=device, dtype=torch.int64)

    def clear(self) -> None:
        """Set to zero."""
        self.loss_sum.zero_()
        self.correct.zero_()

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add one batch: mean loss (), logits (B, C), labels (B,)."""
        self.loss_sum.add_(loss)
        self.correct.add_((logits.argmax(dim=1) == labels).sum())


class TorchSetup:
    """Input of a reference: a network on the device, with ReLU between layers, and the batches."""

    def __init__(self, problem: Problem, train: Split) -> None:
        import torch  # imported late: a machine without PyTorch still lists the stages

        torch.set_float32_matmul_precision("highest")  # no TF32
        self.problem = problem
        self.on_gpu: bool = torch.cuda.is_available()
        self.device = torch.device("cuda" if self.on_gpu else "cpu")
        self.steps = problem.steps(len(train.images))
        layers: list[Any] = []
        for layer in problem.layers:
            layers += [torch.nn.Linear(layer.fan_in, layer.fan_out, device=self.device), torch.nn.ReLU()]
        self.model = torch.nn.Sequential(*layers[:-1])
        self.linears = [module for module in self.model if isinstance(module, torch.nn.Linear)]
        # Detached views share memory with the model's parameters, outside of autograd.
        self.layers = [(linear.weight.detach(), linear.bias.detach()) for linear in self.linears]
        self.totals = Totals(self.device)
        self._train = train.first(self.steps * problem.batch_size)

    def host_tensors(self, split: Split | None = None) -> tuple[Tensor, Tensor]:
        """Images (N, I) float32 and labels (N,) int64 in host memory, by default of all full batches."""
        import torch

        split = split or self._train
        return torch.from_numpy(split.pixels()), torch.from_numpy(split.labels.astype(np.int64))

    def resident_batches(self, dtype: Any = None, split: Split | None = None) -> list[Batch]:
        """Every batch on the device: images (B, I) in `dtype`, by default float32, and labels (B,).

        Images of a given split, which are validated, come in few batches.
        """
        images, labels = self.host_tensors(split)
        batch = self.problem.batch_size
        if split is not None:
            batch = max(1, images_of_a_pass(len(images), batch, on_gpu=self.on_gpu))
        return [
            # Separate tensors: a slice may be misaligned for a compiled kernel's wide loads. Converted on the device:
            # the host would wake all its threads for each batch, and several processes may do so at once.
            (i.to(self.device, copy=True).to(dtype or i.dtype), la.to(self.device, copy=True))
            for i, la in zip(images.split(batch), labels.split(batch), strict=True)
        ]


def evaluate_eagerly(setup: TorchSetup, test: Split) -> Evaluate:
    """Run the model over batches on the device, without gradients."""
    import torch

    batches = setup.resident_batches(split=test)

    def evaluate() -> None:
        with torch.no_grad():
            for images, labels in batches:
                logits = setup.model(images)
                loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
                setup.totals.add(loss, logits, labels)

    return evaluate


def _row_slices(weight: NDArray[np.float32]) -> Iterator[slice]:
    """Slices of a weight (I, O), to transpose on the device: a host needs seconds for a wide layer."""
    for begin in range(0, len(weight), TRANSPOSED_ROWS):
        yield slice(begin, begin + TRANSPOSED_ROWS)


def _threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"


class TorchTrainer:
    """Trains and validates by the functions from `prepare` and `prepare_evaluation`; on the CPU without a GPU."""

    def __init__(
        self,
        problem: Problem,
        train: Split,
        prepare: Callable[[TorchSetup], RunEpoch],
        prepare_evaluation: Callable[[TorchSetup, Split], Evaluate] = evaluate_eagerly,
    ) -> None:
        import torch

        self._setup = TorchSetup(problem, train)
        on_gpu = self._setup.on_gpu
        self.device: Literal["cpu", "gpu"] = "gpu" if on_gpu else "cpu"
        self.detail = "" if on_gpu else f"CPU, {_threads(torch.get_num_threads())}"
        self.cuda_stream: int | None = torch.cuda.current_stream().cuda_stream if on_gpu else None
        self._run_epoch = prepare(self._setup)
        self._prepare_evaluation = prepare_evaluation
        self._evaluate: Evaluate | None = None
        self._test_images = 0
        self._last: EpochMetrics | None = None

    def load_params(self, params: Params) -> None:
        """Start from these parameters; PyTorch stores weights as (O, I)."""
        import torch

        with torch.no_grad():
            for linear, weight, bias in zip(self._setup.linears, params.weights, params.biases, strict=True):
                for rows in _row_slices(weight):
                    linear.weight[:, rows].copy_(torch.from_numpy(weight[rows]).to(linear.weight.device).T)
                linear.bias.copy_(torch.from_numpy(bias))

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order."""
        problem, totals, steps = self._setup.problem, self._setup.totals, self._setup.steps
        due = problem.metrics_due(epoch)
        if due:
            totals.clear()
        self._run_epoch(due)
        self._last = None
        if due:
            seen = steps * problem.batch_size
            self._last = EpochMetrics(totals.loss_sum.item() / steps, totals.correct.item() / seen)

    def last_metrics(self) -> EpochMetrics | None:
        """Metrics of the last epoch, if due."""
        return self._last

    def prepare_validation(self, test: Split) -> None:
        """Prepare to evaluate the test images."""
        self._evaluate, self._test_images = self._prepare_evaluation(self._setup, test), len(test.images)

    def validate(self) -> EpochMetrics:
        """Loss and accuracy on the test images."""
        assert self._evaluate is not None, "call prepare_validation() first"
        totals, seen = self._setup.totals, self._test_images
        totals.clear()
        self._evaluate()
        return EpochMetrics(totals.loss_sum.item() / seen, totals.correct.item() / seen)

    def read_params(self) -> Params:
        """The current parameters, transposed to (I, O)."""
        import torch

        linears = self._setup.linears
        weights = tuple(touched((linear.in_features, linear.out_features), np.float32) for linear in linears)
        for linear, weight in zip(linears, weights, strict=True):
            for rows in _row_slices(weight):
                torch.from_numpy(weight[rows]).copy_(linear.weight.detach()[:, rows].T.contiguous())
        return Params(weights, tuple(linear.bias.detach().cpu().numpy().copy() for linear in linears))

    def close(self) -> None:
        """Release the model, its data and its graphs."""
        del self._run_epoch, self._evaluate, self._setup
