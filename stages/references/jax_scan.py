"""JAX scan: one jitted `lax.scan` trains a whole epoch.

Why: `lax.scan` gives the compiler the loop over the steps. The host launches once an epoch, with no graph to capture.
For small networks it is the strongest program that a page of Python can hold.

Change: none; it is a reference, not a rung. Data lie on the device as (steps, B, I). Parameters are donated and so
updated in place. On a GPU the loop is unrolled; `choices.json` can name another variant for a network and GPU. Products
are in true float32. Epochs with metrics have a compiled function of their own. The host waits once a run, after the
last epoch, and where it reads metrics.

Expect: 13 to 14 us per step for softmax regression on an H200 and 30 with a hidden layer of 256: three or four kernels
a step, launched by XLA's runtime.

Predict: on H200: 784-10, batch 128: 13 to 14 us; 784-256-10, batch 128: 30 us.

Found: it is faster than predicted: the unrolled loop leaves short kernels back to back, with hardly any time between
them. In float32 it is the fastest reference of most recorded networks with hidden layers. Why the estimate was too high
is not explained.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from common.cache import cache_folder
from common.choice import await_turn, shared_choice
from common.data.dataset import Split
from common.problem import Params, Problem, zero_params
from common.trainer import EpochMetrics
from stages.engine.stage import Stage
from stages.engine.validation import images_of_a_pass
from stages.references.choices import Rule, variant_for
from stages.references.jax_threads import use_fastest_threads

LIBRARIES = {"xla_gpu_enable_triton_gemm": False}
SMALL = {"xla_gpu_graph_min_graph_size": 1}
COMMANDS = {"xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CONDITIONAL,WHILE"}
UNTUNED = {"xla_gpu_autotune_level": 0}
_TUNING: ContextVar[Mapping[str, Any]] = ContextVar("tuning", default=MappingProxyType({}))  # more options
Product = Callable[[Any, Any], Any]
"""Inputs (B, I) and weight (I, O), both float32 or narrower, to float32 outputs (B, O)."""


@dataclass(frozen=True)
class Variant:
    """A way to compile the same epoch."""

    unroll: int  # steps at most, see `unrolled`
    options: Mapping[str, Any] = field(default_factory=dict)  # of XLA's compiler


DEFAULT = "unroll 16"  # measured on three small networks
VARIANTS = {
    "unroll 16": Variant(16),
    "unroll 8": Variant(8),
    "unroll 4": Variant(4),
    "unroll 1": Variant(1),
    "unroll 32": Variant(32),
    "unroll 16, products by libraries": Variant(16, LIBRARIES),
    "unroll 4, products by libraries": Variant(4, LIBRARIES),
    "unroll 1, products by libraries": Variant(1, LIBRARIES),
    "unroll 16, small graphs": Variant(16, SMALL),
    "unroll 16, small graphs, products by libraries": Variant(16, SMALL | LIBRARIES),
    "unroll 8, command buffers": Variant(8, COMMANDS),
    "unroll 1, command buffers": Variant(1, COMMANDS),
}
RULE = Rule("unroll 16", "unroll 1", "parameters", 1_400_000)
ON_CPU = VARIANTS["unroll 1"]


def float32_product(inputs: Any, weight: Any) -> Any:
    """True float32: no TF32."""
    import jax

    return jax.numpy.dot(inputs, weight, precision=jax.lax.Precision.HIGHEST)


class JaxScanTrainer:
    """SGD by `jax.grad` inside `jax.lax.scan`; on the CPU if JAX finds no GPU.

    Without a `variant` it takes the one of `variant_for`. Images are kept in `images`, a JAX type. On
    the CPU the first trainer of a process chooses its number of threads.
    """

    _layers: Any  # [(I, O), (O,)]
    cuda_stream: int | None = None  # XLA does not expose its streams

    def __init__(
        self,
        problem: Problem,
        train: Split,
        *,
        name: str = "jax-scan",
        product: Product = float32_product,
        images: str = "float32",
        variant: Variant | None = None,
    ) -> None:
        jax = self._jax = _imported()
        self._problem, again = problem, partial(type(self), name=name, product=product, images=images, variant=variant)
        on_cpu = use_fastest_threads(problem, again)
        self.device: Literal["cpu", "gpu"] = "cpu" if jax.devices()[0].platform == "cpu" else "gpu"
        self.detail = (on_cpu or "CPU") if self.device == "cpu" else ""
        if variant is None and self.device == "cpu":
            variant = ON_CPU
        elif variant is None:
            chosen, self.detail = variant_for(name, problem, VARIANTS, RULE, DEFAULT)
            variant = VARIANTS[chosen]
        if self.device == "gpu" and jax.config.jax_compilation_cache_dir is None:
            # PyTorch caches compiled code by default; JAX needs a folder.
            jax.config.update("jax_compilation_cache_dir", str(cache_folder("jax")))

        batch, self._steps = problem.batch_size, problem.steps(len(train.images))
        seen = train.first(self._steps * batch)
        self._image_type = images
        self._on_each, divided = self._placements()
        self._images = self._uploaded(seen.pixels().reshape(self._steps, batch, problem.inputs), divided)
        self._labels = jax.device_put(seen.labels.astype(np.int32).reshape(self._steps, batch), divided)
        self.load_params(zero_params(problem))
        unroll = 1 if _TUNING.get() else variant.unroll
        epoch = jax.jit(self._written(product, unroll), static_argnames="with_totals", donate_argnames="layers")
        self._options = {**variant.options, **_TUNING.get()}

        if self.device == "gpu":  # XLA times products while it compiles, and keeps its choices on disk
            shared_choice("compiled in its turn", _await_turn)

        def compiled(due: bool) -> Any:
            lowered = epoch.lower(self._layers, self._images, self._labels, with_totals=due)
            return lowered.compile(self._options)

        # In turn: the second compilation reuses XLA's choices for the first.
        self._epochs = {due: compiled(due) for due in (False, True)}
        self._last: EpochMetrics | None = None
        self._product, self._test_images = product, 0
        self._evaluations: list[tuple[Any, Any, Any]] = []

    def _placements(self) -> tuple[Any, Any]:
        """Where parameters and batches (steps, B, ...) lie; None: on the first device."""
        return None, None

    def _uploaded(self, pixels: Any, place: Any = None) -> Any:
        """Pixels on the device, in the type of images; bfloat16 holds them exactly."""
        return self._jax.device_put(pixels.astype(self._jax.numpy.dtype(self._image_type)), place)

    def load_params(self, params: Params) -> None:
        """Start from these parameters."""
        # Copies: on the CPU JAX would train in the caller's arrays.
        layers, copy = zip(params.weights, params.biases, strict=True), self._jax.numpy.array
        self._layers = self._jax.device_put([(copy(weight), copy(bias)) for weight, bias in layers], self._on_each)
        self._jax.block_until_ready(self._layers)  # XLA copies from its own threads, outside of any fence

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order."""
        due = self._problem.metrics_due(epoch)
        self._layers, totals = self._epochs[due](self._layers, self._images, self._labels)
        self._last = None
        if due:
            loss_sum, correct = (np.asarray(total, np.float64) for total in totals)
            self._last = self._metrics(loss_sum / self._steps, correct / (self._steps * self._problem.batch_size))

    def _written(self, product: Product, unroll: int) -> Any:
        """The epoch as a pure function of layers, images, labels and `with_totals`."""
        return epoch_of(self._problem, product, unroll)

    def _metrics(self, loss: Any, accuracy: Any) -> EpochMetrics:
        """From the totals' means."""
        return EpochMetrics(float(loss), float(accuracy))

    def wait(self) -> None:
        """Return when all epochs have finished: XLA may launch them from its own threads."""
        self._jax.block_until_ready(self._layers)

    def prepare_validation(self, test: Split) -> None:
        """Upload the test images; compile the full passes over them, and one over the rest."""
        jax, problem, images = self._jax, self._problem, len(test.images)
        self._test_images = images
        full = images_of_a_pass(images, problem.batch_size, on_gpu=self.device == "gpu")
        rest = images % max(full, 1)
        evaluate = jax.jit(_evaluation(problem, self._product))
        for rows, size in ((slice(images - rest), full), (slice(images - rest, None), rest)):
            part = Split(test.images[rows], test.labels[rows])
            if len(part.images):
                pixels = self._uploaded(part.pixels().reshape(-1, size, problem.inputs))
                labels = jax.device_put(part.labels.astype(np.int32).reshape(-1, size))
                compiled = evaluate.lower(self._layers, pixels, labels).compile(self._options)
                self._evaluations.append((compiled, pixels, labels))

    def validate(self) -> EpochMetrics:
        """Loss and accuracy on the test images."""
        totals = [evaluate(self._layers, images, labels) for evaluate, images, labels in self._evaluations]
        losses, corrects = zip(*self._jax.device_get(totals), strict=True)
        return EpochMetrics(float(sum(losses)) / self._test_images, int(sum(corrects)) / self._test_images)

    def last_metrics(self) -> EpochMetrics | None:
        """Metrics of the last epoch, if due."""
        return self._last

    def read_params(self) -> Params:
        """The current parameters."""
        return Params(
            tuple(np.array(weight) for weight, _ in self._layers), tuple(np.array(bias) for _, bias in self._layers)
        )

    def close(self) -> None:
        """Release the data and the compiled functions."""
        del self._epochs, self._evaluations, self._images, self._labels, self._layers


def _await_turn() -> int:
    """Wait until no other process of the run works; returns 1, for `shared_choice`."""
    await_turn()
    return 1


def _losses_and_logits(problem: Problem, product: Product, layers: Any, images: Any, labels: Any) -> Any:
    """Losses (B,) and logits (B, C) of images (B, I) and labels (B,)."""
    import jax

    outputs = images
    for index, (weight, bias) in enumerate(layers):
        inputs = jax.nn.relu(outputs) if index else outputs
        outputs = product(inputs, weight) + bias
    wanted = jax.nn.one_hot(labels, problem.classes)
    return -(wanted * jax.nn.log_softmax(outputs)).sum(axis=1), outputs


def _evaluation(problem: Problem, product: Product) -> Any:
    """Function from layers [(I, O), (O,)], images (batches, B, I), labels (batches, B) to summed loss and hits."""
    import jax
    import jax.numpy as jnp

    def evaluate(layers: Any, images: Any, labels: Any) -> Any:
        def batch(_: None, data: Any) -> Any:
            losses, logits = _losses_and_logits(problem, product, layers, *data)
            return None, (losses.sum(), (logits.argmax(axis=1) == data[1]).sum())

        _, seen = jax.lax.scan(batch, None, (images, labels))
        return jax.tree.map(jnp.sum, seen)

    return evaluate


def unrolled(steps: int, most: int) -> int:
    """The steps of a loop's body, at most so many: all without a loop, else few behind it: XLA tunes those anew."""
    return steps if steps <= most else min(range(most // 2 + 1, most + 1), key=lambda unroll: (steps % unroll, -unroll))


def epoch_of(problem: Problem, product: Product, unroll: int, rate: Any = None, over: str | None = None) -> Any:
    """The epoch as a pure function of layers [(I, O), (O,)], images (steps, B, I) and labels (steps, B).

    Without a `rate`, the problem's. Gradients become the means `over` an axis of devices.
    """
    import jax
    import jax.numpy as jnp

    rate = problem.learning_rate if rate is None else rate

    def loss_and_logits(layers: Any, images: Any, labels: Any) -> Any:
        losses, logits = _losses_and_logits(problem, product, layers, images, labels)
        return losses.mean(), logits

    def epoch(layers: Any, images: Any, labels: Any, *, with_totals: bool) -> Any:
        def step(layers: Any, batch: Any) -> Any:
            (loss, logits), gradients = jax.value_and_grad(loss_and_logits, has_aux=True)(layers, *batch)
            gradients = gradients if over is None else jax.lax.pmean(gradients, over)
            updated = jax.tree.map(lambda old, gradient: old - rate * gradient, layers, gradients)
            return updated, (loss, (logits.argmax(axis=1) == batch[1]).sum()) if with_totals else None

        layers, seen = jax.lax.scan(step, layers, (images, labels), unroll=unrolled(len(images), unroll))
        return layers, jax.tree.map(jnp.sum, seen)

    return epoch


@contextmanager
def untuned() -> Iterator[None]:
    """Inside, trainers are compiled in seconds: no loop is unrolled, XLA times nothing, and all is cached.

    XLA times products while it compiles, and beside others it chooses badly, by 1 to 4 % of a step. Its options are
    part of a cache's keys, so a timed epoch finds nothing of what is compiled here.
    """
    jax = _imported()
    if jax.devices()[0].platform == "cpu":
        yield
        return
    least = "jax_persistent_cache_min_compile_time_secs"
    before, token = getattr(jax.config, least), _TUNING.set(UNTUNED)
    jax.config.update(least, 0.0)
    try:
        yield
    finally:
        jax.config.update(least, before)
        _TUNING.reset(token)


def _imported() -> Any:
    """Import JAX late: a machine without it still lists the stage."""
    # By default JAX reserves most of the GPU's memory, and other users of the GPU fail.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    return jax


STAGE = Stage(
    "jax-scan",
    "JAX, an epoch in a scan",
    "reference",
    "float32",
    ("jax",),
    JaxScanTrainer,
    first_updates_within=untuned,
)
