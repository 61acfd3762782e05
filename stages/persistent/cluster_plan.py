"""How one cluster of blocks trains a network with hidden layers: what lies where, and what does not fit.

persistent-cluster hands problems with hidden layers to this part. Everything is counted in chunks of eight units, eight
images and sixteen features, padded with zeros, which train to zeros: chunk c of a hidden layer belongs to block c % 16,
which keeps the weights into the next layer from its own units, and everything else about them. The first layer is
wider than the others, so that `split` blocks share the features of what their units see, as few blocks as will do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from common.problem import Problem
from stages.engine.parts import float32, int32
from stages.engine.workspace import MOST_ELEMENTS, Array, Device, Setup

BLOCKS, WARPS, LANES = 16, 16, 32  # mlp_plan.cuh
THREADS = LANES * WARPS
SPLITS = (1, 2, 4, 8, 16)
MOST_LAYERS = 5
MOST_SHARED_BYTES = 227 * 1024 - 512  # of a block on sm_90, less what the kernel declares by itself
MOST_IMAGES, MOST_CLASSES = 128, 16  # eight images for each block's softmax; two chunks of classes
EDGE, CHUNK = 16, 8
TILE_BYTES = EDGE * EDGE * 2  # of pixels
WEIGHT_BYTES = CHUNK * CHUNK * 4  # of a chunk by a chunk, float32
HALF_BYTES = CHUNK * CHUNK * 2  # of such a matrix, float16; a number is the sum of so many of them:
EXACT, ROUNDED = 2, 1


class ClusterMlp:
    """An epoch of a network with hidden layers by one cluster, for problems without a misfit."""

    def __init__(self, setup: Setup, halves: int = EXACT) -> None:
        problem, tensors = setup.problem, setup.tensors
        plan = plan_for(problem, halves)
        assert plan is not None
        macros = plan.macros(tensors.parameters.weight_begins, tensors.parameters.bias_begins)
        self._train = setup.kernel("cluster/cluster_mlp.cu", "cluster_mlp", BLOCKS, plan.shared_bytes, macros=macros)
        images = matrices(setup.device, [images for images, _ in tensors.batches], plan.tiles)
        labels = setup.device.empty((len(tensors.batches), problem.batch_size), np.int32)
        for own, (_, batch) in zip(labels, tensors.batches, strict=True):
            own[...] = batch
        self._arguments = (images, labels, tensors.parameters.flat, tensors.totals)
        self._steps, self._learning_rate = int32(len(tensors.batches)), float32(problem.learning_rate)

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._train(1, THREADS, *self._arguments, self._steps, self._learning_rate, int32(with_metrics))


@dataclass(frozen=True)
class Plan:
    """Where a block keeps what in its shared memory; sizes in chunks, tiles and pairs of chunks, offsets in bytes."""

    problem: Problem
    split: int  # blocks among which the features of a unit are divided
    ways: int  # warps among which the features of a block are divided
    halves: int = EXACT  # float16 that are added up to a number: two to a float32, or one
    shares: bool = False  # logits lie where the first layer's exchange does, and have no memory of their own

    @property
    def pairs(self) -> int:
        """Of chunks of eight images, in a batch."""
        return -(-self.problem.batch_size // EDGE)

    @property
    def slice_tiles(self) -> int:
        """Of sixteen features, in one block."""
        return -(-self.problem.inputs // (EDGE * self.split))

    @property
    def tiles(self) -> int:
        """Of sixteen features, in a batch as it is uploaded."""
        return self.slice_tiles * self.split

    @property
    def slots(self) -> list[int]:
        """How many chunks of each hidden layer a block has."""
        return [-(-width // (CHUNK * BLOCKS)) for width in self.problem.hidden]

    @property
    def chunks(self) -> list[int]:
        """Of all layers."""
        return [*(slots * BLOCKS for slots in self.slots), MOST_CLASSES // CHUNK]

    @property
    def hops(self) -> int:
        """Exchanges of a step that follow each other: a layer's, one each way; the first one's only if it is split."""
        return 2 * (len(self.problem.hidden) + (self.split > 1))

    @property
    def can_share(self) -> bool:
        """Whether the first layer's exchange has room for logits, and is idle while they come and are read.

        With one hidden layer it is not: a block may send logits while another still waits for the first layer's parts.
        """
        return len(self.problem.hidden) > 1 and self._logits_bytes <= self._sections()["exchanges"][0]

    @property
    def shared_bytes(self) -> int:
        """Of each block."""
        return sum(sum(sizes) for sizes in self._sections().values())

    def macros(self, weight_begins: Sequence[int], bias_begins: Sequence[int]) -> tuple[tuple[str, str], ...]:
        """What the kernel is compiled with; where parameters begin as of `ParameterMemory`."""
        numbers = self.numbers(weight_begins, bias_begins)
        return (("PLAN", ",".join(map(str, numbers))), ("FACTOR_HALVES", str(self.halves)))

    def numbers(self, weight_begins: Sequence[int], bias_begins: Sequence[int]) -> list[int]:
        """What struct Plan of mlp_plan.cuh has; where parameters begin as of `ParameterMemory`."""
        offsets, end = {}, 0
        for name, sizes in self._sections().items():
            offsets[name] = [end + before for before in itertools.accumulate(sizes[:-1], initial=0)]
            end += sum(sizes)
        if self.shares:
            offsets["logits"] = offsets["exchanges"]
        problem, depth = self.problem, len(self.problem.layers)
        numbers = [self.shared_bytes, depth, problem.inputs, problem.batch_size, self.pairs, self.split, self.ways]
        numbers += [self.slice_tiles, self.tiles, *offsets["images"], offsets["logits"][0]]
        for index, layer in enumerate(problem.layers):
            numbers += [layer.fan_out, ([*self.slots, 0])[index], self.chunks[index], offsets["weights"][index]]
            numbers += [([*offsets["outputs"], 0])[index], offsets["biases"][index], offsets["exchanges"][index]]
            numbers += [weight_begins[index], bias_begins[index]]
        return numbers

    @property
    def _logits_bytes(self) -> int:
        """Of what all senders add to the logits of a block's eight images."""
        part = 2 * self.halves * HALF_BYTES  # of a sender, both chunks of classes
        return BLOCKS * (part + part // LANES)  # a lane's more, for the sake of shared memory's banks

    def _sections(self) -> dict[str, list[int]]:
        """Sizes in bytes of what a block keeps in shared memory, in this order."""
        first, matrix = self.slots[0], self.halves * HALF_BYTES
        part = 2 * matrix  # of a chunk by a pair, as it is sent to be added up: float32, or rounded too
        parts = [first * self.split * self.ways, *self.chunks[1:]]
        between = zip(self.slots, self.chunks[1:], strict=True)
        return {
            "images": [self.slice_tiles * self.pairs * TILE_BYTES] * 2,
            "weights": [
                2 * self.slice_tiles * first * self.split * WEIGHT_BYTES,
                *(slots * chunks * (WEIGHT_BYTES + matrix) for slots, chunks in between),
            ],
            "outputs": [slots * self.pairs * 2 * matrix for slots in self.slots],
            "exchanges": [count * self.pairs * part for count in parts],
            "logits": [0 if self.shares else self._logits_bytes],
            "biases": [slots * CHUNK * 4 for slots in self.slots] + [MOST_CLASSES * 4],
        }


def plan_for(problem: Problem, halves: int = EXACT) -> Plan | None:
    """How a problem's networks fit the cluster; None if never."""
    return next((plan for plan in plans(problem, halves) if plan.shared_bytes <= MOST_SHARED_BYTES), None)


def plans(problem: Problem, halves: int = EXACT) -> Iterator[Plan]:
    """Those to choose from, the best first: the features of a unit in as few blocks as will do.

    Then those whose logits have no memory of their own, also with fewer ways than there are warps for.
    """
    for shares, split in itertools.product((False, True), SPLITS):
        plan = Plan(problem, split, 1, halves, shares)
        chunks, strips = plan.slots[0] * split, -(-plan.pairs // 2)
        tasks = (chunks // 2 if chunks % 2 == 0 else chunks) * strips  # of the first layer
        ways = [ways for ways in SPLITS if ways == 1 or (ways * tasks <= WARPS and ways <= plan.slice_tiles)]
        if shares:
            fewer = (replace(plan, ways=number) for number in reversed(ways))
            yield from (plan for plan in fewer if plan.can_share)
        else:
            yield replace(plan, ways=ways[-1])


def misfit(problem: Problem, steps: int, halves: int = EXACT) -> str:
    """Why a problem with hidden layers does not fit the cluster; empty if it does."""
    hidden = ",".join(map(str, problem.hidden))
    if len(problem.layers) > MOST_LAYERS:
        return f"hidden layers of {hidden}: it takes {MOST_LAYERS - 1} at most"
    if problem.batch_size > MOST_IMAGES:
        return f"batch size {problem.batch_size}: it takes {MOST_IMAGES} at most"
    if problem.classes > MOST_CLASSES:
        return f"{problem.classes} classes: it takes {MOST_CLASSES} at most"
    plan = plan_for(problem, halves)
    if plan is None:
        return f"hidden layers of {hidden} with batches of {problem.batch_size}: too much for {BLOCKS} multiprocessors"
    most = steps * plan.tiles * plan.pairs * EDGE * EDGE
    return f"{steps:,} steps: its memory reaches {MOST_ELEMENTS:,} numbers" if most > MOST_ELEMENTS else ""


def matrices(device: Device, batches: Sequence[Array], tiles: int) -> Array:
    """Batches of images (B, I) as matrices of 8 images by 8 features, those of the same features side by side.

    Returns float16 (steps, 2 tiles, 2 pairs, 8, 8); zeros where there is no image or no feature.
    """
    steps, (batch, inputs) = len(batches), batches[0].shape
    pairs = -(-batch // EDGE)
    images = device.empty((steps, pairs * EDGE, tiles * EDGE), np.float16)
    images[...] = 0
    for own, pixels in zip(images, batches, strict=True):
        own[:batch, :inputs] = pixels
    split = images.reshape(steps, 2 * pairs, CHUNK, 2 * tiles, CHUNK).transpose(0, 3, 1, 2, 4)
    whole = device.empty(split.shape, np.float16)
    whole[...] = split
    return whole
