"""5. Find the lost bits: softmax regression that reaches 92 %, and is not in float32.

Two lines round to float16. One of them loses nothing: say why in your own words, and leave it.

Why: (which numbers are exact in float16, and which are not?)

Change: (the one line that you change)

Expect: (by which factor the error of the first update shrinks, written before you change it)

Found: (the error before and after, and what it says of the bits of a number)
"""

import numpy as np
from numpy.typing import NDArray

from stages import EpochMetrics, Params, Problem, Split, Stage, Trainer


class Mine(Trainer):
    detail, device, cuda_stream = "CPU", "cpu", None

    def __init__(self, problem: Problem, train: Split) -> None:
        shape = (problem.steps(len(train.images)), problem.batch_size, -1)  # full batches
        images, labels = train.pixels().astype(np.float16), np.eye(problem.classes, dtype=np.float32)[train.labels]
        used = shape[0] * shape[1]
        self.batches = list(zip(images[:used].reshape(shape), labels[:used].reshape(shape), strict=True))
        self.problem = problem
        self.metrics: EpochMetrics | None = None

    def load_params(self, params: Params) -> None:
        self.weight, self.bias = params.weights[0].copy(), params.biases[0].copy()

    def run_epoch(self, epoch: int) -> None:
        due, seen = self.problem.metrics_due(epoch), []
        rate = np.float32(self.problem.learning_rate)
        for pixels, wanted in self.batches:
            images = pixels.astype(np.float32)
            probs = softmax(images @ self.weight + self.bias)
            if due:
                loss = -np.log((probs * wanted).sum(1)).mean(dtype=np.float64)
                seen.append((loss, (probs.argmax(1) == wanted.argmax(1)).mean()))
            dlogits = ((probs - wanted) / np.float32(len(images))).astype(np.float16)
            self.weight -= rate * (images.T @ dlogits.astype(np.float32))
            self.bias -= rate * dlogits.sum(0, dtype=np.float32)
        self.metrics = EpochMetrics(*map(float, np.mean(seen, axis=0))) if due else None

    def last_metrics(self) -> EpochMetrics | None:
        return self.metrics

    def read_params(self) -> Params:
        return Params((self.weight.copy(),), (self.bias.copy(),))


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    exponentials: NDArray[np.float32] = np.exp(logits - logits.max(1, keepdims=True))
    exponentials /= exponentials.sum(1, keepdims=True)
    return exponentials


STAGE = Stage("find-the-lost-bits", "Find the lost bits", "reference", "float32", (), Mine)
