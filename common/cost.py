"""The minimum cost of a training step: its operations, their bytes, and the bounds of its time on a GPU.

Two bounds follow from them. The *cheat limit* holds for the problem: no honest program is faster, and a stage below it
fails. The *floor of this design* holds for one stage, with its own kernels, arithmetic and waits; another design may be
faster.

The arithmetic is a roofline (Williams, Waterman, Patterson: Roofline, CACM 2009) plus the costs of launches, waits
and exchanges, which dominate steps this small. Every function is pure: it takes the problem and the measured limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from common.problem import Problem
from common.vocabulary import Precision as Precision

Kind = Literal["gemm", "layer", "softmax", "update"]
Unit = Precision  # the hardware that multiplies, by the format of its factors
Weights = Literal["gradients", "updated", "streamed", "planes", "kept"]
"""The transfers of the weights in a step.

`gradients`: read forward and backward, their gradients written and read, updated in a pass of its own. `updated`: read
forward and backward, then updated by the product that computes their gradient. `streamed`: the same, but the backward
pass and the update share one reading. `planes`: as `streamed`, and the forward pass reads half of each weight. `kept`:
as `streamed`, and only what exceeds the chip's shared memory and registers.
"""

FLOAT_BYTES = 4  # bytes of a float32, and of a label
TOTALS_BYTES = 2 * 8  # bytes of the epoch's totals

SERIAL_EXCHANGES = 1
"""Minimum number of dependent exchanges between multiprocessors in a step.

A split by features or units exchanges sums in every layer. A split by images runs forward and backward alone and
exchanges gradients once, at any depth; the next step waits for that exchange.
"""

HEADROOM = 1.5
"""Factor by which a kernel may beat the measured limits before its time counts as impossible.

Images are mostly zeros and draw less power than the random numbers of the measurement, so clocks may be higher. An
exchange written for one message may beat the general one. Neither effect reaches half.
"""


@dataclass(frozen=True)
class Operation:
    """One operation of the step, one kernel in the plain recipe.

    `bytes` counts each input read once and each output written once. `flops` counts matrix products only, two for a
    multiply-add: the other operations are limited by their bytes.
    """

    kind: Kind
    name: str
    layer: int | None  # None for an operation of the whole network
    flops: int
    bytes: int


@dataclass(frozen=True)
class Exchanges:
    """Dependent waits for other multiprocessors inside the kernels of a step. Profiles do not show them."""

    cluster_hops: int = 0  # waits for data through the cluster's shared memory
    grid_barriers: int = 0
    peer_bytes: int = 0  # to other GPUs, after the last product
    terms: dict[str, float] = field(default_factory=dict, compare=False)  # what expected times also grow with, by name


@dataclass(frozen=True)
class Arithmetic:
    """How a stage multiplies: the unit, and the number of its products for one product of two matrices.

    A float32 that is split in parts takes one product for each pair of parts that counts. Pixels are exact in one part.
    """

    unit: Unit
    products: int = 1
    image_products: int | None = None  # in the first layer, with images as one factor; None: as many
    multiprocessors: int | None = None  # that multiply; None: all

    def __str__(self) -> str:
        several = f"{self.products} x {self.unit}" if self.products > 1 else self.unit
        with_images = f" ({self.image_products} with images)" if self.image_products is not None else ""
        return several + with_images + (f" on {self.multiprocessors} SMs" if self.multiprocessors is not None else "")

    def us(self, operation: Operation, rates: Rates) -> float:
        """Time of the operation's arithmetic, in us."""
        with_images = operation.layer == 0 and self.image_products is not None
        products = self.image_products if with_images else self.products
        share = 1.0 if self.multiprocessors is None else min(self.multiprocessors / rates.multiprocessors, 1.0)
        return (products or 1) * rates.computing_us(operation.flops, self.unit) / share


@dataclass(frozen=True)
class Design:
    """Counts of a stage's work, each a mean per step: some work happens in a few steps only."""

    kernels: float  # run on the device
    launches: float  # kernels or graphs launched by the host
    waits: float = 0.0  # waits of the host for the device, without a copy
    read_backs: float = 0.0  # copies to the host with a wait
    exchanges: Exchanges = Exchanges()  # declared by the stage
    are_dependents: bool = False  # launched by programmatic dependent launch
    arithmetic: tuple[Arithmetic, ...] = (Arithmetic("float32"),)  # alternatives: each product takes the fastest
    last_layer: Arithmetic | None = None  # of the last layer, if it differs
    weights: Weights = "gradients"

    def is_fused(self, step: Sequence[Operation]) -> bool:
        """Whether some kernel does several operations. A product that is split in several kernels hides that."""
        return self.weights != "gradients" or self.kernels < len(step)


@dataclass(frozen=True)
class Rates:
    """A GPU's measured limits: times in us, rates in bytes or operations per us."""

    launch_us: float
    node_us: float  # from one kernel of a graph to the next
    wait_us: float  # added to a launch by a wait
    read_back_us: float  # added to a launch by a copy to the host and its wait
    exchange_us: float  # the cheapest exchange between multiprocessors
    memory_bytes: float
    l2_bytes: float
    flops: Mapping[Precision, float]
    l2_size: int  # bytes
    on_chip_size: int  # bytes: shared memory and registers of all multiprocessors
    multiprocessors: int
    reading_bytes: float | None = None  # from memory, without a write; None: as `memory_bytes`
    cluster_hop_us: float | None = None  # None without clusters or measurement
    grid_barrier_us: float | None = None
    dependent_node_us: float | None = None  # `node_us` with dependent launch
    peer_hop_us: float | None = None  # a word's way to another GPU; None without one, as is the next
    peer_bytes: float | None = None

    def between_us(self, design: Design) -> float:
        """Minimum time from one kernel of the stage to the next, in us."""
        early = self.dependent_node_us if design.are_dependents else None
        return self.node_us if early is None else min(early, self.node_us)

    def moving_us(self, size: float) -> float:
        """Time to move `size` bytes, in us: all pass through L2, the part beyond its size comes from memory."""
        return max(size / self.l2_bytes, (size - self.l2_size) / self.memory_bytes)

    def between_gpus_us(self, design: Design) -> float:
        """Minimum time of what a step sends to other GPUs after its last product, in us; 0 if unmeasured."""
        size = design.exchanges.peer_bytes
        if not size or self.peer_hop_us is None or self.peer_bytes is None:
            return 0.0
        return self.peer_hop_us + size / self.peer_bytes

    def computing_us(self, flops: float, precision: Precision) -> float:
        """Time of `flops` operations, in us; an unmeasured precision counts at the highest rate."""
        return flops / self.flops.get(precision, self.highest)

    @property
    def highest(self) -> float:
        """Operations per us in the GPU's fastest precision."""
        return max(self.flops.values())


def operations(problem: Problem, with_totals: bool = False) -> tuple[Operation, ...]:
    """The operations of one step, in the plain recipe's order."""
    return tuple(_operations(problem, with_totals))


def _operations(problem: Problem, with_totals: bool) -> Iterator[Operation]:
    batch, classes = problem.batch_size, problem.classes
    layers = problem.layers
    last = len(layers) - 1
    for index, layer in enumerate(layers):
        yield _gemm("forward", index, batch, layer.fan_in, layer.fan_out)
        output = batch * layer.fan_out
        yield Operation("layer", "add_bias", index, 0, (2 * output + layer.fan_out) * FLOAT_BYTES)
        if index < last:
            yield Operation("layer", "relu", index, 0, 2 * output * FLOAT_BYTES)
    yield Operation("softmax", "softmax", None, 0, 2 * batch * classes * FLOAT_BYTES)
    yield Operation("softmax", "softmax_xent_backward", None, 0, (2 * batch * classes + batch) * FLOAT_BYTES)
    if with_totals:
        yield Operation(
            "softmax", "softmax_xent_totals", None, 0, (batch * classes + batch) * FLOAT_BYTES + 2 * TOTALS_BYTES
        )
    for index, layer in reversed(list(enumerate(layers))):
        if index > 0:
            yield _gemm("backward", index, batch, layer.fan_out, layer.fan_in)
            yield Operation("layer", "relu_backward", index - 1, 0, 3 * batch * layer.fan_in * FLOAT_BYTES)
        yield _gemm("weight_gradient", index, layer.fan_in, batch, layer.fan_out)
        yield Operation("layer", "bias_gradient", index, 0, (batch + 1) * layer.fan_out * FLOAT_BYTES)
    yield Operation("update", "sgd_update", None, 0, 3 * parameters(problem) * FLOAT_BYTES)


def parameters(problem: Problem) -> int:
    """Number of weights and biases."""
    return sum((layer.fan_in + 1) * layer.fan_out for layer in problem.layers)


def cheat_limit(problem: Problem, precision: Precision, rates: Rates) -> float:
    """Time in us that no honest stage can beat: dense SGD as written, one step after the other, without any launch.

    Computing and moving overlap, so the larger counts. Computing is the products at the GPU's highest rate, since
    split numbers reach more precision than the unit that multiplies them. Moving is the batch at one byte per pixel,
    plus the parameters beyond all shared memory and registers, read and written. Dependent exchanges are added;
    latencies of the operations are not. A single multiprocessor needs no exchange but has only its share of the rate:
    if that is faster, it is the limit. The result is divided by `HEADROOM`.
    """
    flops = sum(operation.flops for operation in operations(problem))
    number = 2 if precision in ("bfloat16", "float16") else FLOAT_BYTES
    off_chip = max(parameters(problem) * number - rates.on_chip_size, 0)
    moving = rates.moving_us(problem.batch_size * problem.inputs + 2 * off_chip)
    computing = flops / rates.highest
    whole_chip = max(moving, computing) + SERIAL_EXCHANGES * rates.exchange_us
    one_multiprocessor = computing * rates.multiprocessors
    return min(whole_chip, one_multiprocessor) / HEADROOM


def launching_floor(design: Design, rates: Rates) -> float:
    """The host's time for a step's launches, in us, each at the back-to-back cost."""
    return design.launches * rates.launch_us


def waiting_floor(design: Design, rates: Rates) -> float:
    """Time added to a step by the host's waits, in us: neither launches nor kernels overlap with them."""
    return design.waits * rates.wait_us + design.read_backs * rates.read_back_us


def exchanging_floor(design: Design, rates: Rates) -> float:
    """Time of a step's dependent exchanges inside kernels, in us, without the work between them.

    An unmeasured kind of exchange counts as the cheapest measured one.
    """
    measured = (rates.cluster_hop_us, rates.grid_barrier_us)
    hop_us, barrier_us = (rates.exchange_us if us is None else us for us in measured)
    return design.exchanges.cluster_hops * hop_us + design.exchanges.grid_barriers * barrier_us


def kernels_floor(problem: Problem, design: Design, rates: Rates) -> float:
    """The device's time for a step, in us.

    With a kernel for each operation, each counts as the largest of three times: node to node, its operation's bytes,
    and its arithmetic. Further kernels count as one node each. With fused kernels, the floor is the largest of: all
    nodes, all arithmetic, all bytes through L2, and the weights that come from memory. Gradients travel to other GPUs
    after all arithmetic, beside one kernel.
    """
    step, node_us, peers_us = operations(problem), rates.between_us(design), rates.between_gpus_us(design)
    computing = [computing_floor(problem, operation, design, rates) for operation in step]
    if design.is_fused(step):
        through_l2 = traffic(problem, design, rates) / rates.l2_bytes
        forward, *others = weight_transfers(problem, design, rates)
        reading_bytes = max(rates.reading_bytes or 0.0, rates.memory_bytes)
        from_memory = forward / reading_bytes + sum(others) / rates.memory_bytes
        nodes = design.kernels * node_us + max(peers_us - node_us, 0.0)
        return max(nodes, sum(computing) + peers_us, through_l2, from_memory)
    computing[-1] = max(computing[-1], peers_us)  # of the update
    each = (max(node_us, rates.moving_us(op.bytes), us) for op, us in zip(step, computing, strict=True))
    return sum(each) + (design.kernels - len(step)) * node_us


def computing_floor(problem: Problem, operation: Operation, design: Design, rates: Rates) -> float:
    """Time of an operation's arithmetic in this design, in us."""
    last = len(problem.layers) - 1
    if design.last_layer is not None and operation.layer == last:
        return design.last_layer.us(operation, rates)
    return min(arithmetic.us(operation, rates) for arithmetic in design.arithmetic)


def weight_transfers(problem: Problem, design: Design, rates: Rates) -> list[float]:
    """Bytes from or to memory of each pass over the parameters in a step; the first alone only reads.

    Of a pass over all layers, L2 can hold its own size since the pass before. A layer that is read once more right
    after its backward pass may be in L2 whole. The backward pass skips the first layer, whose update reads it instead.
    """
    held = rates.l2_size + (rates.on_chip_size if design.weights == "kept" else 0)
    every = FLOAT_BYTES * parameters(problem)
    passes = [every] * (6 if design.weights == "gradients" else 3)
    if design.weights == "planes":
        passes[0] //= 2
    if design.last_layer is not None:  # its kernel reads the weights once for both passes
        last = problem.layers[-1]
        passes[1] -= FLOAT_BYTES * last.fan_in * last.fan_out
    excess_bytes = [float(max(size - held, 0)) for size in passes]
    if design.weights == "updated":
        sizes = (FLOAT_BYTES * layer.fan_in * layer.fan_out for layer in problem.layers[1:])
        excess_bytes += [float(max(size - rates.l2_size, 0)) for size in sizes]
    return excess_bytes


def traffic(problem: Problem, design: Design, rates: Rates) -> float:
    """Bytes that a step's kernels must exchange with L2 or memory: nothing stays on the chip between two kernels.

    One kernel an operation moves the operations' bytes. Fused kernels move the factors and results of the products. A
    kernel that runs whole steps moves the batch's pixels, at one byte each, and the weights that the chip cannot hold.
    """
    if design.weights == "kept":
        off_chip = max(FLOAT_BYTES * parameters(problem) - rates.on_chip_size, 0)
        return problem.batch_size * problem.inputs + 3 * off_chip
    step = operations(problem)
    if not design.is_fused(step):
        return sum(operation.bytes for operation in step)
    return sum(_layer_traffic(problem, index, design) for index in range(len(problem.layers)))


def _layer_traffic(problem: Problem, index: int, design: Design) -> float:
    """Bytes of one layer's fused kernels in a step; a pixel may be one byte."""
    layer, is_first, is_last = problem.layers[index], index == 0, index == len(problem.layers) - 1
    weights, outputs = FLOAT_BYTES * layer.fan_in * layer.fan_out, FLOAT_BYTES * problem.batch_size * layer.fan_out
    inputs = (1 if is_first else FLOAT_BYTES) * problem.batch_size * layer.fan_in
    if is_last and design.last_layer is not None:
        return 2 * inputs + 2 * weights  # read once for all; the inputs' gradient and the weights are written
    forward = inputs + weights // (2 if design.weights == "planes" else 1) + outputs
    backward = 0 if is_first else outputs + weights + inputs
    update = inputs + outputs + (4 if design.weights == "gradients" else 2) * weights
    shared = outputs + weights if design.weights in ("streamed", "planes") and not is_first else 0
    return forward + backward + update - shared


def _gemm(name: str, layer: int, rows: int, inner: int, cols: int) -> Operation:
    """The product of (rows, inner) and (inner, cols)."""
    moved = rows * inner + inner * cols + rows * cols
    return Operation("gemm", name, layer, 2 * rows * inner * cols, moved * FLOAT_BYTES)
