"""One training problem: network sizes, batch, schedule, and the initial parameters.

Everything here is a plain value or a pure function, so stages, oracle and harness see the same problem in every
process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from common.arrays import by_blocks, fitted
from common.errors import UsageError

Float32Array = NDArray[np.float32]
SEED_BITS = 128  # of a run's number; above them stands a network's
DRAWING = Lock()


@dataclass(frozen=True)
class Layer:
    """One fully connected layer: (B, fan_in) -> (B, fan_out)."""

    fan_in: int
    fan_out: int


@dataclass(frozen=True)
class Params:
    """A network's parameters on the host, one entry a layer: weights (I, O) and biases (O,), float32.

    `state` are the optimizer's tensors, which go wherever the parameters go; plain SGD has none. Of several networks
    each tensor is a stack: weights (K, I, O) and biases (K, O).
    """

    weights: tuple[Float32Array, ...]
    biases: tuple[Float32Array, ...]
    state: tuple[Float32Array, ...] = ()

    @classmethod
    def of(cls, arrays: Sequence[Float32Array], layers: int) -> Params:
        """The parameters of this many layers, from their `arrays`."""
        return cls(tuple(arrays[:layers]), tuple(arrays[layers : 2 * layers]), tuple(arrays[2 * layers :]))

    @property
    def arrays(self) -> tuple[Float32Array, ...]:
        """All weights, all biases, and the optimizer's state."""
        return (*self.weights, *self.biases, *self.state)

    def map(self, change: Callable[[Float32Array], Float32Array]) -> Params:
        """The same with each tensor changed."""
        return Params.of([change(array) for array in self.arrays], len(self.weights))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(array.nbytes for array in self.arrays)

    def tensors(self) -> dict[str, Float32Array]:
        """Every parameter by its name in reports: `weight[0]`, `bias[0]`, ..."""
        named = {}
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            named[f"weight[{index}]"] = weight
            named[f"bias[{index}]"] = bias
        return named

    @property
    def is_finite(self) -> bool:
        """Whether all tensors are finite numbers."""
        return all(np.isfinite(array).all() for array in self.arrays)

    def fitted(self, shapes: Sequence[tuple[int, ...]]) -> Params:
        """The tensors in these shapes, of as many axes: cut off, or with zeros behind."""
        return Params.of([fitted(*each) for each in zip(self.arrays, shapes, strict=True)], len(self.weights))

    def apart(self) -> list[Params]:
        """The networks of a stack, each as views."""
        return [Params.of(arrays, len(self.weights)) for arrays in zip(*self.arrays, strict=True)]

    @classmethod
    def stacked(cls, networks: Sequence[Params]) -> Params:
        """The stack of these networks, as copies."""
        arrays = zip(*(one.arrays for one in networks), strict=True)
        return cls.of([np.stack(each) for each in arrays], len(networks[0].weights))


@dataclass(frozen=True)
class Problem:
    """One training problem: softmax regression if `hidden` is empty, otherwise an MLP with ReLU.

    Stages with sparse metrics compute them in every `metrics_every`-th epoch. All stages evaluate the test images,
    inside the timer, after every `validate_every`-th epoch; 0 means never. Raises UsageError for impossible sizes.

    `networks` of these sizes train on the same batches, each from parameters of its own and, if there are
    `learning_rates`, at its own rate.

    The stages that take several GPUs divide each batch among `gpus` of them; all others train on one.
    """

    inputs: int
    classes: int
    hidden: tuple[int, ...] = ()
    batch_size: int = 128
    learning_rate: float = 0.1
    epochs: int = 20
    seed: int = 0
    metrics_every: int = 10
    validate_every: int = 0
    networks: int = 1
    learning_rates: tuple[float, ...] = ()
    gpus: int = 1

    def __post_init__(self) -> None:
        whole = {
            "batch size": self.batch_size,
            "epochs": self.epochs,
            "inputs": self.inputs,
            "classes": self.classes,
            "metrics every": self.metrics_every,
            "networks": self.networks,
            "gpus": self.gpus,
        }
        for name, value in whole.items():
            if value < 1:
                raise UsageError(f"{name} {value}: must be 1 or more")
        if not 0 <= self.validate_every <= self.epochs:
            every = f"validate every {self.validate_every}"
            raise UsageError(f"{every}: must be from 1 to the {self.epochs} epochs of a run, or 0 for never")
        for width in self.hidden:
            if width < 1:
                raise UsageError(f"hidden layer of {width}: a layer has 1 unit or more, as in 256 or 128,128,128")
        for rate in (self.learning_rate, *self.learning_rates):
            if not 0 < rate < float("inf"):
                raise UsageError(f"learning rate {rate}: must be a positive number, such as 0.1")
        if self.learning_rates and len(self.learning_rates) != self.networks:
            raise UsageError(
                f"networks {self.networks}: there are {len(self.learning_rates)} learning rates, one a network; leave "
                "out one of the two"
            )
        if self.gpus > 1 and self.networks > 1:
            raise UsageError(f"gpus {self.gpus}: divide one network's batches; leave it out with several networks")
        if self.seed < 0:
            raise UsageError(f"seed {self.seed}: must be 0 or more")

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rate of each network."""
        return self.learning_rates or (self.learning_rate,) * self.networks

    def alone(self, network: int) -> Problem:
        """The problem of one network, counted from 0, by itself."""
        return replace(self, networks=1, learning_rates=(), learning_rate=self.rates[network])

    @property
    def on_one_gpu(self) -> Problem:
        """The problem of the GPU that has most images of a batch."""
        return replace(self, gpus=1, batch_size=-(-self.batch_size // self.gpus))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers from the pixels to the logits."""
        sizes = (self.inputs, *self.hidden, self.classes)
        return tuple(Layer(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of one network's tensors: all weights, all biases, and the optimizer's state."""
        weights = [(layer.fan_in, layer.fan_out) for layer in self.layers]
        return [*weights, *((fan_out,) for _, fan_out in weights), *self.state_shapes]

    @property
    def state_shapes(self) -> list[tuple[int, ...]]:
        """Of the optimizer's tensors besides the parameters, which begin at zero: plain SGD has none."""
        return []

    @property
    def multiplications(self) -> int:
        """Multiplications of a batch's forward pass."""
        return self.batch_size * sum(layer.fan_in * layer.fan_out for layer in self.layers)

    @property
    def is_logistic(self) -> bool:
        """Whether this is softmax regression. It is convex, so final parameters can be compared tightly."""
        return not self.hidden

    def metrics_due(self, epoch: int) -> bool:
        """Whether a stage with sparse metrics computes them in this epoch, counted from 0."""
        return (epoch + 1) % self.metrics_every == 0

    def validation_due(self, epoch: int) -> bool:
        """Whether the test images are evaluated after this epoch, counted from 0."""
        return self.validate_every > 0 and (epoch + 1) % self.validate_every == 0

    def steps(self, images: int) -> int:
        """Full batches in an epoch of `images` images; every stage drops the remainder."""
        return images // self.batch_size


def initial_params(problem: Problem, run: int) -> Params:
    """Initial parameters of run number `run`, a pure function of the seed and that number.

    Weights are uniform in +-1/sqrt(fan_in), as in PyTorch's `nn.Linear`; biases are zero. Of several networks, each has
    those that it would have alone in the run of its `network_run`.
    """
    if problem.networks > 1:
        numbers = range(problem.networks)
        return Params.stacked([initial_params(problem.alone(k), network_run(run, k)) for k in numbers])
    weights: list[Float32Array] = []
    drawn = 0
    for layer in problem.layers:
        weights.append(_uniform((problem.seed, run), drawn, layer))
        drawn += weights[-1].size
    zeros = [np.zeros(shape, np.float32) for shape in problem.shapes[len(weights) :]]
    return Params.of([*weights, *zeros], len(weights))


def kept_params(problem: Problem, run: int) -> Params:
    """The same, read-only, and kept for the next caller: many judge a run by them."""
    with DRAWING:
        return _kept_params(problem, run)


@lru_cache(maxsize=2)
def _kept_params(problem: Problem, run: int) -> Params:
    params = initial_params(problem, run)
    for array in params.arrays:
        array.flags.writeable = False
    return params


def _uniform(seed: tuple[int, int], drawn: int, layer: Layer) -> Float32Array:
    """A layer's weights, by the numbers that follow after `drawn` of a seed's, however many threads draw them."""
    bound = np.float32(1.0 / np.sqrt(layer.fan_in))
    weight = np.empty((layer.fan_in, layer.fan_out), np.float32)

    def draw(begin: int, end: int) -> None:
        bits, block = np.random.PCG64(seed), weight.reshape(-1)[begin:end]
        bits.advance((drawn + begin) // 2)  # each 64 bits are two numbers
        random = np.random.Generator(bits)
        if (drawn + begin) % 2:
            random.random(dtype=np.float32)
        random.random(dtype=np.float32, out=block)  # in [0, 1)
        block *= 2 * bound
        block -= bound

    by_blocks(draw, weight.size)
    return weight


def positive_params(problem: Problem, run: int) -> Params:
    """Small weights and positive hidden biases, from which no unit is at its ReLU's corner for long.

    The rate bounds the biases, with which an update of the last layer grows.
    """
    if problem.networks > 1:
        numbers = range(problem.networks)
        return Params.stacked([positive_params(problem.alone(k), network_run(run, k)) for k in numbers])
    drawn, size = initial_params(problem, run), min(4.0, (1.6 / problem.learning_rate) ** 0.5)
    hidden = [bias + np.float32(size / len(bias) ** 0.5) for bias in drawn.biases[:-1]]
    weights = tuple(np.float32(0.1) * weight for weight in drawn.weights)
    return Params(weights, (*hidden, drawn.biases[-1]), drawn.state)


def network_run(run: int, network: int) -> int:
    """The run in which a network, counted from 0, would have the same initial parameters alone."""
    return run + (network << SEED_BITS)


def zero_params(problem: Problem) -> Params:
    """All parameters zero, from which even a deep network trains predictably.

    Hidden layers pass nothing on in either direction, so only the last biases learn, from every label.
    """
    one = Params.of([np.zeros(shape, np.float32) for shape in problem.shapes], len(problem.layers))
    return one if problem.networks == 1 else Params.stacked([one] * problem.networks)
