"""PyTorch stacked: several networks in batched products, compiled, in a CUDA graph.

Why: `torch.func` and `baddbmm` are how PyTorch trains many small networks at once; a graph takes the host away.

Change: none; it is a reference, not a rung. Parameters are stacks (K, I, O). The gradients are written by hand, so that
SGD is part of the product that makes a weight's gradient. All networks see the same batches, which are not stacked.

Expect: on an H100 43.5 us per step for seven softmax regressions and 57.2 for sixty-four; 102 for seven of 784-128x3-10
in batches of 32. A trial of an earlier day took so long.

Found: on an H100 it is a little faster than the earlier trial, and about as fast as `fleet-graph`, whose products are
the same library's. `jax-vmap` is faster: in softmax regression it takes less than half of the time.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np

from common.data.dataset import Split
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from stages.engine.stage import Stage
from stages.references.torch_choices import no_choice_kept
from stages.references.torch_common import Batch, Tensor
from stages.references.torch_graph import captured, use_one_stream
from stages.references.torch_step import compile_steps

UNROLL = 8  # steps compiled together


class TorchStackedTrainer:
    """SGD on stacks of weights (K, I, O) and biases (K, 1, O), on a GPU."""

    device: Literal["cpu", "gpu"] = "gpu"
    detail = ""

    def __init__(self, problem: Problem, train: Split) -> None:
        import torch

        use_one_stream()
        torch.set_float32_matmul_precision("highest")  # no TF32
        self._problem, count = problem, problem.networks
        self.cuda_stream: int | None = torch.cuda.current_stream().cuda_stream
        make = partial(torch.zeros, device="cuda")
        self._weights = [make(count, layer.fan_in, layer.fan_out) for layer in problem.layers]
        self._biases = [make(count, 1, layer.fan_out) for layer in problem.layers]
        self._losses, self._correct = make(count, dtype=torch.float64), make(count, dtype=torch.int64)
        self._rates = torch.tensor(problem.rates, device="cuda")[:, None, None]
        self._classes = torch.arange(problem.classes, device="cuda")
        batch = problem.batch_size
        self._steps = problem.steps(len(train.images))
        seen = train.first(self._steps * batch)
        images, labels = torch.from_numpy(seen.pixels()).cuda(), torch.from_numpy(seen.labels.astype(np.int64)).cuda()
        self._batches = list(zip(images.split(batch), labels.split(batch), strict=True))
        steps = compile_steps(self._train_on, {})
        groups = [self._batches[first : first + UNROLL] for first in range(0, self._steps, UNROLL)]

        def epoch(due: bool) -> None:
            for group in groups:
                steps(group, due)

        self._graphs = {due: captured(partial(epoch, due)) for due in (False, True)}
        self._last: EpochMetrics | None = None

    def _train_on(self, batches: list[Batch], with_totals: bool) -> None:
        """Train on these batches, in order; the flag adds to the totals."""
        for images, labels in batches:
            inputs = [images.expand(self._problem.networks, *images.shape)]
            for layer, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
                output = inputs[-1] @ weight + bias
                inputs.append(output.relu() if layer < len(self._weights) - 1 else output)
            logits = inputs.pop()
            if with_totals:
                self._add_totals(logits, labels)
            wanted = labels[:, None] == self._classes
            doutput = (logits.softmax(dim=2) - wanted.float()) * (self._rates / len(labels))
            for layer in reversed(range(len(self._weights))):
                given, weight = inputs[layer], self._weights[layer]
                dinput = doutput @ weight.mT * (given > 0) if layer else None
                weight.baddbmm_(given.mT, doutput, alpha=-1.0)
                self._biases[layer].sub_(doutput.sum(dim=1, keepdim=True))
                doutput = dinput

    def _add_totals(self, logits: Tensor, labels: Tensor) -> None:
        chosen = logits.log_softmax(dim=2).gather(2, labels[None, :, None].expand(len(logits), -1, 1))
        self._losses.sub_(chosen.sum(dim=(1, 2)))
        self._correct.add_((logits.argmax(dim=2) == labels).sum(dim=1))

    def load_params(self, params: Params) -> None:
        """Start from these parameters."""
        import torch

        for targets, sources in ((self._weights, params.weights), (self._biases, params.biases)):
            for target, source in zip(targets, sources, strict=True):
                target.copy_(torch.from_numpy(source).reshape(target.shape))

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order."""
        due = self._problem.metrics_due(epoch)
        if due:
            self._losses.zero_()
            self._correct.zero_()
        self._graphs[due].replay()
        self._last = None
        if due:
            images = self._steps * self._problem.batch_size
            of_each = zip(self._losses.tolist(), self._correct.tolist(), strict=True)
            self._last = EpochMetrics.over([EpochMetrics(loss / images, right / images) for loss, right in of_each])

    def last_metrics(self) -> EpochMetrics | None:
        """Metrics of the last epoch, if due."""
        return self._last

    def read_params(self) -> Params:
        """The current parameters."""
        weights = tuple(weight.cpu().numpy() for weight in self._weights)
        return Params(weights, tuple(bias[:, 0].cpu().numpy() for bias in self._biases))

    def close(self) -> None:
        """Release the parameters, the data and the graphs."""
        del self._graphs, self._batches, self._weights, self._biases


STAGE = Stage(
    "torch-stacked",
    "PyTorch compiled, networks stacked, an epoch in a CUDA graph",
    "reference",
    "float32",
    ("torch-cuda",),
    TorchStackedTrainer,
    words="networks stacked in batched products",
    compiles_within=no_choice_kept,
    is_fleet=True,
)
