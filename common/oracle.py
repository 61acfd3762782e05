"""Reference training: SGD in float64, written directly from the formulas.

It shares no code with the stages that it judges and has no optimisation: one batch and one layer at a time. The
formulas are the chain rule for mean cross-entropy over softmax (Bishop, Pattern Recognition and Machine Learning,
2006, sections 4.3.4 and 5.3). Arrays are NumPy's, or those of a module that is given and has the same functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from common.arrays import copied, touched
from common.problem import Params, Problem

Float64Array = NDArray[np.float64]
FloatArray = NDArray[np.floating]
EVALUATED_AT_ONCE = 1000  # images
Name = tuple[str, int]
"""What a step computes, and of which layer."""


@dataclass(frozen=True)
class OracleEpoch:
    """Mean cross-entropy and accuracy (0 to 1) of one epoch of float64 training, over all steps."""

    mean_loss: float
    accuracy: float
    log_sum: float = 0.0
    """The mean size of an image's log-sum-exp, which a loss in float32 may round."""


class Network(NamedTuple):
    """Weights (I, O) and biases (O,) of each layer, and the optimizer's state."""

    weights: Sequence[FloatArray]
    biases: Sequence[FloatArray]
    state: Sequence[FloatArray] = ()


class Oracle:
    """Float64 training from given parameters, one epoch a call: stages differ in their number of epochs.

    Several networks may train on the same images. Each tensor is then a stack of theirs, with one more axis in front.
    `xp` is NumPy, or a module with the same functions; it may also have `repeated`, which makes a function of arrays
    cheaper to call again and again.
    """

    def __init__(
        self,
        problem: Problem,
        params: Params | Sequence[Params | Network],
        dtype: type[np.floating] = np.float64,
        xp: Any = np,
    ) -> None:
        self.problem = problem
        self.xp = xp

        def own(part: str) -> list[FloatArray]:
            if isinstance(params, Params):
                return [_converted(xp.asarray(tensor), dtype) for tensor in getattr(params, part)]
            stacks = zip(*(getattr(network, part) for network in params), strict=True)
            return [_converted(_stacked(tensors, xp), dtype) for tensors in stacks]

        self.weights, self.biases, self.state = map(own, ("weights", "biases", "state"))
        self._dtype = dtype
        self._classes = xp.arange(problem.classes)
        self._sums = xp.zeros((3, *self.biases[0].shape[:-1]))
        """Of the images' losses, correct answers and sizes of log-sum-exp."""
        self._begin()

    def run_epoch(self, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> OracleEpoch:
        """Train one network on every full batch of images (N, I) and labels (N,) once, in order."""
        (seen,) = self.run_epochs(images, labels)
        return seen

    def run_epochs(self, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> list[OracleEpoch]:
        """The same for each network."""
        size = self.problem.batch_size
        steps = self.problem.steps(len(images))
        self._sums.fill(0.0)
        for step in range(steps):
            batch = slice(step * size, (step + 1) * size)
            self._train(images[batch], labels[batch])
            self._after_step()
        return _means(self._sums, steps * size)

    def networks(self) -> list[Network]:
        """The networks of a stack, as views."""
        trained = self.weights, self.biases, self.state
        return [
            Network(*([tensor[index] for tensor in tensors] for tensors in trained))
            for index in range(len(self.biases[0]))
        ]

    def on(self, xp: Any) -> Self:
        """The same networks, as they are now, with the arrays of another module."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list):
                setattr(other, name, [_copied(array, xp) for array in value])
            elif isinstance(value, type(self.biases[0])):
                setattr(other, name, _copied(value, xp))
        other.xp = xp
        other._begin()
        return other

    def load(self, other: Self) -> None:
        """Go on from where another oracle of the same networks is, with arrays of any module."""
        theirs = (*other.weights, *other.biases, *other.state)
        for own, tensor in zip((*self.weights, *self.biases, *self.state), theirs, strict=True):
            own[...] = self.xp.asarray(host(tensor))

    def _begin(self) -> None:
        """Prepare for the first step."""
        self._train = self._repeated(self._train_on)

    def _repeated(self, function: Callable[..., None]) -> Callable[..., None]:
        repeated: Callable[..., None] = getattr(self.xp, "repeated", lambda same: same)(function)
        return repeated

    def _train_on(self, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
        pixels = images.astype(self._dtype)
        pixels *= 1 / 256
        for number, part in enumerate(self._step(pixels, labels)):
            total = self._sums[number, ...]
            total += part

    def _step(self, images: FloatArray, labels: NDArray[np.uint8]) -> tuple[Any, Any, Any]:
        """Update from one batch; returns what it adds to the sums, before the update."""
        xp = self.xp
        weights = [self._factor(weight) for weight in self.weights]
        inputs, passing = [images], []
        for layer, (weight, bias) in enumerate(zip(weights[:-1], self.biases[:-1], strict=True)):
            outputs = self._product(inputs[-1], weight, ("outputs", layer)) + bias[..., None, :]
            passing.append(self._passes(outputs))
            inputs.append(self._factor(xp.maximum(outputs, 0.0)))
        logits = self._product(inputs[-1], weights[-1], ("outputs", len(passing))) + self.biases[-1][..., None, :]

        is_label = labels[:, None] == self._classes
        largest = logits.max(axis=-1, keepdims=True)
        shifted = logits - largest
        powers = xp.exp(shifted)
        sums = powers.sum(axis=-1, keepdims=True)
        doutput = self._probabilities(powers / sums)
        doutput -= is_label
        doutput = self._factor(self._of_mean(doutput))

        for layer in reversed(range(len(weights))):
            below = doutput
            if layer > 0:
                dinput = self._product(doutput, xp.swapaxes(weights[layer], -1, -2), ("dinput", layer))
                below = self._factor(dinput * passing[layer - 1])
            self._update(layer, inputs[layer], doutput)
            doutput = below
        of_labels = xp.where(is_label, shifted, 0.0).sum(axis=-1)
        log_sums = xp.log(sums[..., 0])
        loss = self._added_losses(log_sums, of_labels)
        sizes = xp.abs(log_sums + largest[..., 0])
        answers = self._compared(logits, is_label).argmax(axis=-1)
        return loss, (answers == labels).sum(axis=-1), sizes.sum(axis=-1)

    # What another implementation may do in another way, for a subclass to replace.

    def _passes(self, outputs: FloatArray) -> NDArray[np.bool_]:
        """Where ReLU passes the gradient on. At exactly zero, any share of it is a subgradient; most pass nothing."""
        return outputs > 0.0

    def _probabilities(self, exact: FloatArray) -> FloatArray:
        """Exponentials divided by their sums."""
        return exact

    def _compared(self, logits: FloatArray, is_label: NDArray[np.bool_]) -> FloatArray:  # noqa: ARG002
        """What an image's answer is the largest of."""
        return logits

    def _of_mean(self, doutput: FloatArray) -> FloatArray:
        """The gradient (M, O) of the images' mean loss, from that of each image's own."""
        mean: FloatArray = doutput / doutput.shape[-2]
        return mean

    def _added_losses(self, log_sums: FloatArray, of_labels: FloatArray) -> Any:
        """What a batch adds to the sum of losses, which are differences of these two (M,)."""
        return log_sums.sum(axis=-1) - of_labels.sum(axis=-1)

    def _factor(self, exact: FloatArray) -> FloatArray:
        """A tensor that the step multiplies."""
        return exact

    def _product(self, left: FloatArray, right: FloatArray, name: Name) -> FloatArray:  # noqa: ARG002
        """The product of (M, K) and (K, N)."""
        return product(left, right, self.xp)

    def _column_sums(self, terms: FloatArray, name: Name) -> FloatArray:  # noqa: ARG002
        """The sums (N,) of (M, N)."""
        sums: FloatArray = terms.sum(axis=-2)
        return sums

    def _update(self, layer: int, inputs: FloatArray, doutput: FloatArray) -> None:
        """Update a layer from its inputs (M, I) and the gradient of its outputs (M, O)."""
        dweight = self._product(self.xp.swapaxes(inputs, -1, -2), doutput, ("dweight", layer))
        dweight *= self.problem.learning_rate
        self._subtract(self.weights[layer], dweight, ("weight", layer))
        dbias = self._column_sums(doutput, ("dbias", layer))
        self._subtract(self.biases[layer], self.problem.learning_rate * dbias, ("bias", layer))

    def _subtract(self, parameters: FloatArray, update: FloatArray, name: Name) -> None:  # noqa: ARG002
        """Update a tensor in place."""
        parameters -= update

    def _after_step(self) -> None:
        """Whatever else happens to the parameters after a step."""


def product(left: FloatArray, right: FloatArray, xp: Any = np) -> FloatArray:
    """The product of (M, K) and (K, N), or of as many as are stacked.

    A left factor that a stack shares is multiplied once, by all right factors side by side. A column by a row needs no
    sum, and BLAS takes five times as long for it.
    """
    if left.ndim == right.ndim or left.shape[-1] == 1:
        result: FloatArray = left * right if left.shape[-1] == 1 else xp.matmul(left, right)
        return result
    networks, terms, columns = right.shape
    side_by_side = xp.matmul(left, xp.swapaxes(right, 0, 1).reshape(terms, networks * columns))
    stacked: FloatArray = xp.ascontiguousarray(xp.swapaxes(side_by_side.reshape(-1, networks, columns), 0, 1))
    return stacked


def host(array: Any) -> Any:
    """An array of NumPy with the values of any module's."""
    return array.get(out=touched(array.shape, array.dtype)) if hasattr(array, "get") else array


def _stacked(tensors: Sequence[FloatArray], xp: Any) -> FloatArray:
    """A stack of tensors; what stands there several times goes to the module's device once. Of one, a view."""
    if len(tensors) == 1:
        one: FloatArray = xp.asarray(tensors[0])[None]
        return one
    there = {id(tensor): xp.asarray(tensor) for tensor in tensors}
    stack: FloatArray = xp.stack([there[id(tensor)] for tensor in tensors])
    return stack


def _copied(array: Any, xp: Any) -> Any:
    """A copy with a module's array, by one copy alone: those of wide networks take long."""
    found = host(array)
    if found is not array:
        return xp.asarray(found)
    return copied(array) if xp is np else xp.array(array)


def _converted(array: Any, dtype: type[np.floating]) -> Any:
    """A copy of any module's array."""
    return copied(array, dtype) if isinstance(array, np.ndarray) else array.astype(dtype)


def _means(sums: FloatArray, images: int) -> list[OracleEpoch]:
    networks = zip(*sums.reshape(3, -1).tolist(), strict=True)
    return [OracleEpoch(*(total / images for total in network)) for network in networks]


Weights = Sequence[FloatArray]


def test_accuracy(weights: Weights, biases: Weights, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> float:
    """Share of images (N, I) whose largest logit is at their label (N,), by one float64 forward pass.

    NaN if any logit is NaN: a broken network has no accuracy.
    """
    return evaluate(weights, biases, images, labels).accuracy


def evaluate(weights: Weights, biases: Weights, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> OracleEpoch:
    """Mean cross-entropy and accuracy on images (N, I) and labels (N,), by one float64 forward pass; NaN likewise."""
    (seen,) = evaluate_all(weights, biases, images, labels)
    return seen


def evaluate_all(
    weights: Weights, biases: Weights, images: NDArray[np.uint8], labels: NDArray[np.uint8], xp: Any = np
) -> list[OracleEpoch]:
    """The same for each network of a stack, on arrays of a module."""
    exact = [weight if weight.dtype == np.float64 else _converted(weight, np.float64) for weight in weights]
    added = [bias[..., None, :] for bias in biases]
    sums = xp.zeros((3, *biases[0].shape[:-1]))
    classes = xp.arange(biases[-1].shape[-1])
    for start in range(0, len(images), EVALUATED_AT_ONCE):
        some = slice(start, start + EVALUATED_AT_ONCE)
        outputs = images[some].astype(np.float64)
        outputs *= 1 / 256
        for weight, bias in zip(exact[:-1], added[:-1], strict=True):
            outputs = xp.maximum(product(outputs, weight, xp) + bias, 0.0)
        logits = product(outputs, exact[-1], xp) + added[-1]
        largest = logits.max(axis=-1, keepdims=True)
        shifted = logits - largest
        log_sums = xp.log(xp.exp(shifted).sum(axis=-1))
        is_label = labels[some, None] == classes
        sums[0] += (log_sums - xp.where(is_label, shifted, 0.0).sum(axis=-1)).sum(axis=-1)
        sums[1] += (logits.argmax(axis=-1) == labels[some]).sum(axis=-1)
        sums[2] += xp.abs(log_sums + largest[..., 0]).sum(axis=-1)
        broken = xp.isnan(logits).any(axis=(-1, -2))
        sums += xp.where(broken, np.nan, 0.0)
    return _means(sums, len(images))
