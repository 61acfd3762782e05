"""1. Find the mistake: softmax regression that reaches 92 %, and is wrong.

Why: the accuracy is a coarse sum over all parameters, and ten of them may learn slowly without a trace.

Change: the bias's gradient. A sum over the batch, not a mean.

Expect: the first update of the bias grows from 0.00781 to 1 times the expected one, and all later checks pass with it.

Found: the last line of the step. `dlogits` is already divided by the batch size, and `mean` divides once more: the bias
learns 128 times too slowly. Ten numbers of 7,850 hardly move the accuracy; the check compares each tensor by itself and
names the factor, 0.00781 = 1 / 128.
"""

import numpy as np
from numpy.typing import NDArray

from stages import EpochMetrics, Params, Problem, Split, Stage, Trainer


class Mine(Trainer):
    detail, device, cuda_stream = "CPU", "cpu", None

    def __init__(self, problem: Problem, train: Split) -> None:
        shape = (problem.steps(len(train.images)), problem.batch_size, -1)  # full batches
        images, labels = train.pixels(), np.eye(problem.classes, dtype=np.float32)[train.labels]
        used = shape[0] * shape[1]
        self.batches = list(zip(images[:used].reshape(shape), labels[:used].reshape(shape), strict=True))
        self.problem = problem
        self.metrics: EpochMetrics | None = None

    def load_params(self, params: Params) -> None:
        self.weight, self.bias = params.weights[0].copy(), params.biases[0].copy()

    def run_epoch(self, epoch: int) -> None:
        due, seen = self.problem.metrics_due(epoch), []
        for images, wanted in self.batches:
            probs = softmax(images @ self.weight + self.bias)
            if due:
                loss = -np.log((probs * wanted).sum(1)).mean(dtype=np.float64)
                seen.append((loss, (probs.argmax(1) == wanted.argmax(1)).mean()))
            dlogits = (probs - wanted) / np.float32(len(images))
            self.weight -= np.float32(self.problem.learning_rate) * (images.T @ dlogits)
            self.bias -= np.float32(self.problem.learning_rate) * dlogits.sum(0)
        self.metrics = EpochMetrics(*map(float, np.mean(seen, axis=0))) if due else None

    def last_metrics(self) -> EpochMetrics | None:
        return self.metrics

    def read_params(self) -> Params:
        return Params((self.weight.copy(),), (self.bias.copy(),))


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    exponentials: NDArray[np.float32] = np.exp(logits - logits.max(1, keepdims=True))
    exponentials /= exponentials.sum(1, keepdims=True)
    return exponentials


STAGE = Stage("find-the-mistake", "Find the mistake", "reference", "float32", (), Mine)
