"""The training step, written once, and the trainer that repeats it; a recipe supplies the parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from common.cuda.nvtx import marked
from common.data.dataset import Split
from common.errors import MisfitError
from common.problem import Params, Problem
from common.trainer import EpochMetrics, mean_of
from stages.engine.recipe import Recipe, RunStep
from stages.engine.validation import images_of_a_pass
from stages.engine.workspace import (
    Array,
    Device,
    ParameterMemory,
    Setup,
    Workspace,
    check_sizes,
    load_params,
    read_params,
)


def set_up(
    recipe: Recipe, problem: Problem, split: Split, device: Device, parameters: ParameterMemory | None = None
) -> Setup:
    """The setup that a recipe's parts are made from, with new parameters unless some are given.

    Raises MisfitError if a tensor is too large for the kernels' indices.
    """
    check_sizes(problem, problem.steps(len(split.images)))
    memory, batches = recipe.memory(device), recipe.data(device, problem, split)
    return Setup(problem, device, Workspace(device, problem, memory, batches, parameters))


class Step:
    """One step of SGD: forward, head, backward, update."""

    def __init__(self, recipe: Recipe, setup: Setup) -> None:
        self._outputs = setup.tensors.outputs
        self._layers = range(len(setup.problem.layers) - recipe.head.writes_parameters)
        gemm = recipe.gemm(setup)
        self._flush = gemm.flush
        self._epilogue = marked(recipe.epilogue(setup, gemm), "epilogue")
        self._head = marked(recipe.head(setup), "head")
        self._update = marked(recipe.update(setup, gemm), "update")

    def __call__(self, images: Array, labels: Array, with_totals: bool) -> None:
        """Enqueue one step on images (B, I) and labels (B,)."""
        for layer in self._layers:
            self._epilogue.forward(layer, self._inputs(layer, images))
        self._head(labels, with_totals)
        for layer in reversed(self._layers):
            if layer > 0:  # before the update, since the gradient needs the weights of the forward pass
                self._epilogue.backward(layer)
            self._update(layer, self._inputs(layer, images))
        self._update.finish()
        self._flush()

    def _inputs(self, layer: int, images: Array) -> Array:
        return self._outputs[layer - 1] if layer > 0 else images


def _no_step(*_: object, **__: object) -> None:
    """The step of a launch that trains by itself: to tune products that it never runs would take seconds."""
    raise AssertionError("a launch that writes parameters trains without the step")


class Forward:
    """The first half of a step: forward and head."""

    def __init__(self, recipe: Recipe, setup: Setup) -> None:
        self._outputs = setup.tensors.outputs
        gemm = recipe.gemm(setup)
        self._flush = gemm.flush
        self._epilogue = recipe.epilogue(setup, gemm)
        self._head = recipe.head.for_validation()(setup)

    def __call__(self, images: Array, labels: Array, with_totals: bool) -> None:
        """Enqueue the pass on images (B, I) and labels (B,). The head also writes the logits' gradient, unused here."""
        inputs = images
        for layer, output in enumerate(self._outputs):
            self._epilogue.forward(layer, inputs)
            inputs = output
        self._flush()
        self._head(labels, with_totals)


class Evaluation:
    """Forward passes of a trainer's parameters, each over as many images, by the parts of its training."""

    def __init__(self, recipe: Recipe, problem: Problem, split: Split, training: Setup) -> None:
        setup = set_up(recipe, problem, split, training.device, training.tensors.parameters)
        setup.device.zero(setup.tensors.totals)
        # Kept, with the setup: a captured graph holds addresses, but no memory.
        self._forward = setup.tensors.memory.around(Forward(recipe, setup))
        self._setup = setup
        self._metrics = recipe.metrics(setup)
        images, labels = next(iter(setup.tensors.batches))
        self._forward(images, labels, with_totals=True)
        self._launch = recipe.launch.for_validation()(setup, self._forward, self._metrics)
        self.images = len(setup.tensors.batches) * problem.batch_size

    def enqueue(self) -> None:
        """Enqueue the pass."""
        self._metrics.begin_epoch()
        self._launch(with_metrics=True)

    def result(self) -> EpochMetrics:
        """Loss and accuracy; waits for the pass."""
        return self._metrics.end_epoch()


class RecipeTrainer:
    """The trainer of every rung: a `ValidatingTrainer` made from a recipe; MisfitError where a part refuses."""

    def __init__(self, recipe: Recipe, problem: Problem, train: Split, device: Device) -> None:
        self._recipe = recipe
        self._evaluations: list[Evaluation] = []
        if reason := recipe.misfit(problem, problem.steps(len(train.images))):
            raise MisfitError(reason)
        self._shapes = problem.shapes
        problem = recipe.padded(problem)
        self._setup = set_up(recipe, problem, train.padded(problem.inputs), device)
        device.zero(self._setup.tensors.totals)
        self._metrics = marked(recipe.metrics(self._setup), "metrics")
        # Kept: a captured graph holds addresses, but no memory.
        self._step = _no_step if recipe.launch.writes_parameters else self._loaded_step()
        self._launch = recipe.launch(self._setup, self._step, self._metrics)
        self._last: EpochMetrics | None = None
        self.detail = device.detail
        self.device: Literal["cpu", "gpu"] = device.kind
        self.cuda_stream: int | None = device.stream_handle

    def _loaded_step(self) -> RunStep:
        """The training step, whose kernels are loaded and tuned now, and not in the timed run."""
        setup = self._setup
        step: RunStep = marked(setup.tensors.memory.around(Step(self._recipe, setup)), "step")
        images, labels = next(iter(setup.tensors.batches))
        step(images, labels, with_totals=True)
        return step

    def load_params(self, params: Params) -> None:
        """Start from these parameters."""
        load_params(self._setup, self._recipe.gemm.packed(params.fitted(self._setup.problem.shapes)))

    def run_epoch(self, epoch: int) -> None:
        """Train on every full batch once, in order."""
        due = self._metrics.due(epoch)
        if due:
            self._metrics.begin_epoch()
        self._launch(with_metrics=due)
        self._last = self._metrics.end_epoch() if due else None

    def last_metrics(self) -> EpochMetrics | None:
        """The metrics of the last epoch; None if it was not due."""
        return self._last

    def prepare_validation(self, test: Split) -> None:
        """Prepare one evaluation for the full passes over the test images and one for the rest."""
        images, batch = len(test.images), self._setup.problem.batch_size
        test = test.padded(self._setup.problem.inputs)
        size = images_of_a_pass(images, batch, on_gpu=self.device == "gpu")
        if not self._fits(size):
            size = min(images, batch)
        whole = images - images % max(size, 1)
        rest = Split(test.images[whole:], test.labels[whole:])
        for part in (test.first(whole), rest):
            if part_size := min(len(part.images), size):
                own = replace(self._setup.problem, batch_size=part_size)
                self._evaluations.append(Evaluation(self._recipe, own, part, self._setup))

    def _fits(self, batch_size: int) -> bool:
        """Whether the parts of a forward pass take this many images at once."""
        own = replace(self._setup.problem, batch_size=max(batch_size, 1))
        parts = (self._recipe.gemm, self._recipe.epilogue, self._recipe.head.for_validation())
        return not any(part.misfit(own, 1) for part in parts)

    def validate(self) -> EpochMetrics:
        """Loss and accuracy on the test images."""
        for evaluation in self._evaluations:
            evaluation.enqueue()
        return mean_of([(evaluation.result(), evaluation.images) for evaluation in self._evaluations])

    def read_params(self) -> Params:
        """The current parameters."""
        return self._recipe.gemm.unpacked(read_params(self._setup)).fitted(self._shapes)

    def close(self) -> None:
        """Release the memory."""
        del self._launch, self._step, self._metrics, self._setup, self._evaluations
