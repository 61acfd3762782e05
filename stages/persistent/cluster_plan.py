"""The memory plan of a cluster that trains a network with hidden layers, and its limits.

persistent-cluster uses it for all problems with hidden layers. Everything is counted in chunks of eight units, eight
images and sixteen features, padded with zeros, which train to zeros. Chunk c of a hidden layer belongs to block c %
16, which keeps everything about it, including the weights from its units to the next layer. The first layer is wider
than the others: `split` blocks share the features of their units, as few blocks as fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from common.errors import MisfitError
from common.problem import Problem
from stages.engine.misfit import require_cluster
from stages.engine.parts import int32
from stages.engine.workspace import MOST_ELEMENTS, Setup
from stages.persistent.fragments import matrices

BLOCKS, WARPS, LANES = 16, 16, 32  # mlp_plan.cuh
THREADS = LANES * WARPS
SPLITS = (1, 2, 4, 8, 16)
MOST_LAYERS = 5
MOST_SHARED_BYTES = 227 * 1024  # of a block, on the GPUs that have most
STATIC_BYTES = 512  # room for the kernel's own static memory
MOST_IMAGES, MOST_CLASSES = 32, 64  # of a block in the softmax, two a warp; four classes a lane
EDGE, CHUNK = 16, 8
TILE_BYTES = EDGE * EDGE * 2  # of pixels
WEIGHT_BYTES = CHUNK * CHUNK * 4  # of a chunk by a chunk, float32
HALF_BYTES = CHUNK * CHUNK * 2  # of a float16 matrix; a number is the sum of this many:
EXACT, ROUNDED = 2, 1


class ClusterMlp:
    """An epoch of a network with hidden layers by a cluster for each network; MisfitError if no plan fits this GPU.

    Of several networks, which share the batches, `setup` is the first one's. Their parameters lie one after the other,
    and so do their totals.
    """

    def __init__(
        self, setup: Setup, halves: int = EXACT, learning_rates: Sequence[float] = (), blocks: int = BLOCKS
    ) -> None:
        problem, tensors = setup.problem, setup.tensors
        rates = np.array(learning_rates or [problem.learning_rate], np.float32)
        plan = plan_for(problem, halves, setup.device.block_shared_bytes, blocks)
        if plan is None:
            raise MisfitError(_too_large(problem, setup.device.block_shared_bytes, blocks))
        macros = plan.macros(tensors.parameters.weight_begins, tensors.parameters.bias_begins)
        self._train = setup.kernel("cluster/cluster_mlp.cu", "cluster_mlp", blocks, plan.shared_bytes, macros=macros)
        require_cluster(self._train, THREADS, blocks)
        images = matrices(setup.device, [images for images, _ in tensors.batches], plan.tiles)
        labels = setup.device.empty((len(tensors.batches), problem.batch_size), np.int32)
        for own, (_, batch) in zip(labels, tensors.batches, strict=True):
            own[...] = batch
        parameters = tensors.parameters.flat
        self._arguments = (images, labels, parameters, tensors.totals, setup.device.upload(rates))
        self._networks, self._sizes = len(rates), (int32(len(tensors.batches)), int32(parameters.size))

    def __call__(self, with_metrics: bool) -> None:
        """Enqueue every step of an epoch, in order."""
        self._train(self._networks, THREADS, *self._arguments, *self._sizes, int32(with_metrics))


@dataclass(frozen=True)
class Plan:
    """Layout of a block's shared memory; sizes in chunks, tiles and pairs of chunks, offsets in bytes."""

    problem: Problem
    split: int  # blocks that share the features of a unit
    ways: int  # warps that share the features of a block
    halves: int = EXACT  # float16 summands of a number: two for float32's class, or one
    shares: bool = False  # logits use the memory of the first layer's exchange
    blocks: int = BLOCKS  # of the cluster

    @property
    def pairs(self) -> int:
        """Pairs of chunks of eight images in a batch."""
        return -(-self.problem.batch_size // EDGE)

    @property
    def slice_tiles(self) -> int:
        """Tiles of sixteen features in a block."""
        return -(-self.problem.inputs // (EDGE * self.split))

    @property
    def tiles(self) -> int:
        """Tiles of sixteen features in an uploaded batch."""
        return self.slice_tiles * self.split

    @property
    def slots(self) -> list[int]:
        """Chunks of each hidden layer in a block."""
        return [-(-width // (CHUNK * self.blocks)) for width in self.problem.hidden]

    @property
    def chunks(self) -> list[int]:
        """Chunks of every layer."""
        return [*(slots * self.blocks for slots in self.slots), 2 * self.class_pairs]

    @property
    def by_warpgroups(self) -> bool:
        """Whether warpgroups multiply in the first layer: BY_WGMMA of mlp_plan.cuh, where the GPU has them."""
        unit_warps, left = divmod(self.slots[0] * self.split * self.halves, 2)
        features = -(-2 * self.slice_tiles * unit_warps // WARPS)
        updated = 7 if features <= 7 else 13
        part_pairs = -(-self.pairs // 2) if unit_warps == 4 else self.pairs
        sum_bytes = 2 * 4 * LANES * 2 * part_pairs * (8 if self.halves == EXACT else 16)
        fits = features <= updated <= 2 * self.slice_tiles and sum_bytes <= self.slice_tiles * self.pairs * TILE_BYTES
        return fits and self.ways == 1 and not left and unit_warps in (4, 8) and 2 < self.pairs <= 8

    @property
    def class_pairs(self) -> int:
        """Pairs of chunks of classes."""
        return -(-self.problem.classes // EDGE)

    @property
    def hops(self) -> int:
        """Dependent exchanges of a step: one each way a layer; the first layer's only if it is split."""
        return 2 * (len(self.problem.hidden) + (self.split > 1))

    @property
    def terms(self) -> dict[str, float]:
        """What a step also grows with: the messages that a block receives."""
        return {"thousand bytes of messages": sum(self._sections()["exchanges"][self.split == 1 :]) / 1e3}

    @property
    def can_share(self) -> bool:
        """Whether the first layer's exchange has room for logits and is idle while they arrive and are read.

        With one hidden layer it is not idle: a block may send logits while another still waits for the first layer.
        """
        return len(self.problem.hidden) > 1 and self._logits_bytes <= self._sections()["exchanges"][0]

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block, in bytes."""
        return sum(sum(sizes) for sizes in self._sections().values())

    def macros(self, weight_begins: Sequence[int], bias_begins: Sequence[int]) -> tuple[tuple[str, str], ...]:
        """The kernel's macros; the begins of parameters are those of `ParameterMemory`."""
        numbers = self.numbers(weight_begins, bias_begins)
        plan = (("PLAN", ",".join(map(str, numbers))), ("FACTOR_HALVES", str(self.halves)))
        return plan if self.blocks == BLOCKS else (*plan, ("BLOCKS_OF_CLUSTER", str(self.blocks)))

    def numbers(self, weight_begins: Sequence[int], bias_begins: Sequence[int]) -> list[int]:
        """The fields of struct Plan in mlp_plan.cuh; the begins of parameters are those of `ParameterMemory`."""
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
        """Bytes of all senders' parts of the logits of a block's images."""
        part = 2 * self.halves * HALF_BYTES  # one sender's, of a pair of chunks of classes
        heads = -(-2 * self.pairs // self.blocks)  # chunks of images
        return heads * self.blocks * (self.class_pairs * part + part // LANES)  # one lane more avoids bank conflicts

    def _sections(self) -> dict[str, list[int]]:
        """Sizes in bytes of the sections of a block's shared memory, in order."""
        first, matrix = self.slots[0], self.halves * HALF_BYTES
        part = 2 * matrix  # a partial sum of a chunk by a pair: float32, or float16
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
            "biases": [slots * CHUNK * 4 for slots in self.slots] + [self.class_pairs * EDGE * 4],
        }


def plan_for(
    problem: Problem, halves: int = EXACT, shared_bytes: int = MOST_SHARED_BYTES, blocks: int = BLOCKS
) -> Plan | None:
    """The best plan that fits a cluster whose blocks have so much shared memory; None if none does."""
    most = shared_bytes - STATIC_BYTES
    return next((plan for plan in plans(problem, halves, blocks) if plan.shared_bytes <= most), None)


def plans(problem: Problem, halves: int = EXACT, blocks: int = BLOCKS) -> Iterator[Plan]:
    """Candidate plans, best first: features of a unit in as few blocks as possible.

    Those by warpgroups come first. Plans whose logits share memory come last, also with fewer warps than there are.
    """
    every = [Plan(problem, split, 1, halves, blocks=blocks) for split in SPLITS if split <= blocks]
    yield from (plan for plan in every if plan.by_warpgroups)
    for shares, plan in itertools.product((False, True), every):
        plan = replace(plan, shares=shares)
        chunks, strips = plan.slots[0] * plan.split, -(-plan.pairs // 2)
        tasks = (chunks // 2 if chunks % 2 == 0 else chunks) * strips  # of the first layer's products
        ways = [ways for ways in SPLITS if ways == 1 or (ways * tasks <= WARPS and ways <= plan.slice_tiles)]
        if shares:
            fewer = (replace(plan, ways=number) for number in reversed(ways))
            yield from (plan for plan in fewer if plan.can_share)
        else:
            yield replace(plan, ways=ways[-1])


def misfit(problem: Problem, steps: int, halves: int = EXACT, blocks: int = BLOCKS) -> str:
    """Why a problem with hidden layers fits no GPU's cluster, as a sentence; empty if it fits one."""
    if len(problem.layers) > MOST_LAYERS:
        return f"{len(problem.hidden)} hidden layers ({_hidden(problem)}) exceed the limit of {MOST_LAYERS - 1}."
    if problem.batch_size > (most := MOST_IMAGES * blocks):
        return f"Batch size {problem.batch_size} exceeds the limit of {most}."
    if problem.classes > MOST_CLASSES:
        return f"{problem.classes} classes exceed the limit of {MOST_CLASSES}."
    plan = plan_for(problem, halves, blocks=blocks)
    if plan is None:
        return _too_large(problem, MOST_SHARED_BYTES, blocks)
    most = steps * plan.tiles * plan.pairs * EDGE * EDGE
    return f"{steps:,} steps exceed the limit of {MOST_ELEMENTS:,} numbers." if most > MOST_ELEMENTS else ""


def _too_large(problem: Problem, shared_bytes: int, blocks: int) -> str:
    layers = f"Hidden layers {_hidden(problem)} at batch size {problem.batch_size}"
    return f"{layers} do not fit {blocks} multiprocessors with {shared_bytes >> 10} KiB of shared memory each."


def _hidden(problem: Problem) -> str:
    return ",".join(map(str, problem.hidden))
