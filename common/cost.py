"""The minimum cost of a training step: its operations, their bytes, and the resulting floors on a GPU.

The arithmetic is a roofline (Williams, Waterman, Patterson: Roofline, CACM 2009) plus the costs of launches, waits
and exchanges, which dominate steps this small. Every function is pure: it takes the problem and the measured limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from common.problem import Problem
from common.vocabulary import Precision as Precision

Kind = Literal["gemm", "layer", "softmax", "update"]

FLOAT_BYTES = 4  # bytes of a float32, and of a label
TOTALS_BYTES = 2 * 8  # bytes of the epoch's totals

SERIAL_EXCHANGES = 1
"""Minimum number of dependent exchanges between multiprocessors in a step.

A split by features or units exchanges sums in every layer. A split by images runs forward and backward alone and
exchanges gradients once, at any depth; the next step waits for that exchange.
"""

PARAMETER_PASSES = 3
"""Transfers of all parameters in a step: read forward, read backward, written.

The backward pass starts after the whole forward pass, and the next step after the backward pass. A deferred update
still has to be read and written later.
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


@dataclass(frozen=True)
class Design:
    """Counts of a stage's work, each a mean per step: some work happens in a few steps only."""

    kernels: float  # run on the device
    launches: float  # kernels or graphs launched by the host
    waits: float = 0.0  # waits of the host for the device, without a copy
    read_backs: float = 0.0  # copies to the host with a wait
    exchanges: Exchanges = Exchanges()  # declared by the stage
    are_dependents: bool = False  # launched by programmatic dependent launch


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
    cluster_hop_us: float | None = None  # None without clusters or measurement
    grid_barrier_us: float | None = None
    dependent_node_us: float | None = None  # `node_us` with dependent launch

    def between_us(self, design: Design) -> float:
        """Minimum time from one kernel of the stage to the next, in us."""
        early = self.dependent_node_us if design.are_dependents else None
        return self.node_us if early is None else min(early, self.node_us)

    def moving_us(self, size: float) -> float:
        """Time to move `size` bytes, in us: all pass through L2, the part beyond its size comes from memory."""
        return max(size / self.l2_bytes, (size - self.l2_size) / self.memory_bytes)

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


def physical_floor(problem: Problem, precision: Precision, rates: Rates) -> float:
    """Time in us that no stage can beat: dense SGD as written, one step after the other, without any launch.

    Computing and moving overlap, so the larger counts. Computing is the products at the GPU's highest rate, since
    split numbers reach more precision than the unit that multiplies them. Moving is the batch at one byte a pixel, plus
    the parameters beyond all shared memory and registers, read and written. Dependent exchanges are added; latencies of
    the operations are not. A single multiprocessor needs no exchange but has only its share of the rate: if that is
    faster, it is the floor. The result is divided by `HEADROOM`.
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


def kernels_floor(problem: Problem, design: Design, precision: Precision, rates: Rates) -> float:
    """The device's time for a step, in us.

    Each kernel counts as the largest of three times: node to node, its operation's bytes, and its arithmetic in the
    stage's precision. Kernels beyond the step's operations count as one node each. Fewer kernels than operations means
    fusion, where only the parameters' bytes are known. Then the floor is the largest of: all nodes, all arithmetic, and
    the parameters that do not stay in L2 (or on the chip, if a kernel runs whole steps) from one pass to the next.
    """
    step, node_us = operations(problem), rates.between_us(design)
    computing = [rates.computing_us(operation.flops, precision) for operation in step]
    if design.kernels < len(step):
        cached = rates.l2_size + (rates.on_chip_size if design.kernels < 1 else 0)
        moved = max(parameters(problem) * FLOAT_BYTES - cached, 0)
        return max(design.kernels * node_us, sum(computing), PARAMETER_PASSES * moved / rates.memory_bytes)
    each = (max(node_us, rates.moving_us(op.bytes), us) for op, us in zip(step, computing, strict=True))
    return sum(each) + (design.kernels - len(step)) * node_us


def _gemm(name: str, layer: int, rows: int, inner: int, cols: int) -> Operation:
    """The product of (rows, inner) and (inner, cols)."""
    moved = rows * inner + inner * cols + rows * cols
    return Operation("gemm", name, layer, 2 * rows * inner * cols, moved * FLOAT_BYTES)
