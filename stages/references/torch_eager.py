"""PyTorch, eager mode, with the data on the device.

Why: it is what most people would write if they took care: no data loader in the way, no `.item()` in the loop.

Change: none; it is a reference, not a rung. Batches are slices made beforehand, gradients are set to None, plain SGD
(fused on a GPU), TF32 off; loss and accuracy are added up on the device, in every tenth epoch only.

Expect: 230 us a step for softmax regression on an H200 and twice that with a hidden layer: the host dispatches some
thirty operators a step and the GPU waits for it.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from common.dataset import Split
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from stages.stage import Stage


class TorchEagerTrainer:
    """`nn.Linear` layers, `cross_entropy`, `torch.optim.SGD`; on the CPU where PyTorch sees no GPU."""

    def __init__(self, problem: Problem, train: Split) -> None:
        import torch  # here, since a machine without PyTorch lists the stage too

        self._torch = torch
        self._problem = problem
        on_gpu = torch.cuda.is_available()
        self._torch_device = torch.device("cuda" if on_gpu else "cpu")
        self.device: Literal["cpu", "gpu"] = "gpu" if on_gpu else "cpu"
        self.detail = "" if on_gpu else f"CPU, {torch.get_num_threads()} threads"
        self.cuda_stream: int | None = torch.cuda.current_stream().cuda_stream if on_gpu else None
        torch.set_float32_matmul_precision("highest")

        batch, steps = problem.batch_size, problem.steps(len(train.images))
        images = torch.from_numpy(train.pixels()[: steps * batch]).to(self._torch_device)
        labels = torch.from_numpy(train.labels[: steps * batch].astype(np.int64)).to(self._torch_device)
        self._batches = list(zip(images.split(batch), labels.split(batch), strict=True))

        layers: list[Any] = []
        for layer in problem.layers:
            layers += [torch.nn.Linear(layer.fan_in, layer.fan_out), torch.nn.ReLU()]
        self._model = torch.nn.Sequential(*layers[:-1]).to(self._torch_device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=problem.learning_rate, fused=on_gpu)
        self._last: EpochMetrics | None = None

    def _linears(self) -> list[Any]:
        return [module for module in self._model if isinstance(module, self._torch.nn.Linear)]

    def load_params(self, params: Params) -> None:
        """Start from these parameters; PyTorch keeps a weight as (O, I)."""
        with self._torch.no_grad():
            for linear, weight, bias in zip(self._linears(), params.weights, params.biases, strict=True):
                linear.weight.copy_(self._torch.from_numpy(weight.T))
                linear.bias.copy_(self._torch.from_numpy(bias))

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order."""
        torch = self._torch
        due = self._problem.metrics_due(epoch)
        loss_sum = torch.zeros((), device=self._torch_device, dtype=torch.float64)
        correct = torch.zeros((), device=self._torch_device, dtype=torch.int64)
        for images, labels in self._batches:
            self._optimizer.zero_grad(set_to_none=True)
            logits = self._model(images)
            loss = torch.nn.functional.cross_entropy(logits, labels)
            loss.backward()
            self._optimizer.step()
            if due:
                loss_sum += loss.detach()
                correct += (logits.detach().argmax(dim=1) == labels).sum()
        self._last = None
        if due:
            seen = len(self._batches) * self._problem.batch_size
            self._last = EpochMetrics(loss_sum.item() / len(self._batches), correct.item() / seen)

    def last_metrics(self) -> EpochMetrics | None:
        """The metrics of the last epoch, if it was due."""
        return self._last

    def read_params(self) -> Params:
        """The parameters as they are now, turned to (I, O)."""
        linears = self._linears()
        return Params(
            tuple(np.ascontiguousarray(linear.weight.detach().cpu().numpy().T) for linear in linears),
            tuple(linear.bias.detach().cpu().numpy().copy() for linear in linears),
        )

    def close(self) -> None:
        """Let go of the model and its data."""
        del self._model, self._optimizer, self._batches


STAGE = Stage("torch-eager", "PyTorch eager", "reference", "float32", ("torch",), TorchEagerTrainer)
