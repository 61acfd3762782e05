"""A bare trainer in C++: softmax regression on one core, compiled while preparing."""

import ctypes
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from stages import EpochMetrics, Params, Problem, Split, Stage, Trainer


class Cpp(Trainer):
    detail, device, cuda_stream = "CPU, 1 thread", "cpu", None

    def __init__(self, problem: Problem, train: Split) -> None:
        self.problem, self.steps = problem, problem.steps(len(train.images))
        self.metrics: EpochMetrics | None = None
        with TemporaryDirectory() as folder:
            library = str(Path(folder, "step.so"))
            source = str(Path(__file__).with_suffix(".cpp"))
            subprocess.run(["g++", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library], check=True)
            self.epoch = ctypes.CDLL(library).epoch
        self.pixels, self.labels = train.pixels(), train.labels

    @staticmethod
    def misfit(problem: Problem, steps: int) -> str | None:
        return "trains softmax regression alone; leave --hidden out" if problem.hidden else None

    def load_params(self, params: Params) -> None:
        self.weight, self.bias = params.weights[0].copy(), params.biases[0].copy()

    def run_epoch(self, epoch: int) -> None:
        p, totals = self.problem, np.zeros(2)
        arrays = [a.ctypes.data_as(ctypes.c_void_p) for a in (self.pixels, self.labels, self.weight, self.bias, totals)]
        self.epoch(self.steps, p.batch_size, p.inputs, p.classes, ctypes.c_float(p.learning_rate), *arrays)
        mean_loss, accuracy = totals / (self.steps * p.batch_size)
        self.metrics = EpochMetrics(mean_loss, accuracy) if p.metrics_due(epoch) else None

    def last_metrics(self) -> EpochMetrics | None:
        return self.metrics

    def read_params(self) -> Params:
        return Params((self.weight.copy(),), (self.bias.copy(),))


STAGE = Stage("cpp", "C++", "reference", "float32", (), Cpp)
