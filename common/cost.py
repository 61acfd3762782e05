"""What a training step costs at least: its operations, the bytes they move, and the floors that follow on a GPU.

The arithmetic is that of a roofline (Williams, Waterman, Patterson: Roofline, CACM 2009), with the costs of launching,
waiting and exchanging beside it, which are what such small steps are made of. Everything is a pure function of the
problem and of what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from common.problem import Problem

Precision = Literal["float32", "tf32", "bfloat16", "float16"]
Kind = Literal["gemm", "layer", "softmax", "update"]

NUMBER = 4  # bytes of a float32, and of a label
TOTALS = 2 * 8  # bytes of the epoch's totals

SERIAL_HOPS = 1
"""Exchanges between multiprocessors that follow each other in every step, at least.

Whoever splits the features or the units of a layer exchanges sums in every layer. But whoever splits the batch runs
forward and backward through all layers without a word to the others, and exchanges gradients once, however deep the
network is; and the next step cannot begin before that.
"""

PASSES = 3
"""How often all parameters travel in a step: read forward, read on the way back, and written.

The way back cannot begin before all layers have been gone through forward, nor the next step before it has ended. An
update may wait for the next way forward, but has to be read and written then.
"""

HEADROOM = 1.5
"""By how much a kernel may beat what was measured before it counts as impossible.

Images that are mostly zeros draw less power than the random numbers of the measurement, and a chip that is not at its
power limit clocks higher; a hop that is written for one message may beat the general one. Neither makes up a half.
"""


@dataclass(frozen=True)
class Operation:
    """One operation of the step as the plain recipe runs it: one kernel.

    `bytes` is each input read once and each output written once. `flops` are those of matrix products, a
    multiplication and an addition counting as two; the other operations move far more than they compute.
    """

    kind: Kind
    name: str
    layer: int | None  # None where it is not of one layer
    flops: int
    bytes: int


@dataclass(frozen=True)
class Exchanges:
    """How often a step waits for other multiprocessors within a kernel, one after the other: no profile sees that."""

    cluster_hops: int = 0  # data through the cluster's shared memory, which the next thing to do needs
    grid_barriers: int = 0


@dataclass(frozen=True)
class Design:
    """What a stage does in a step, counted: means, since some of it does not happen in every step."""

    kernels: float  # that the device runs
    launches: float  # calls by which the host hands kernels or graphs to the device
    waits: float = 0.0  # of the host for the device, without a copy
    read_backs: float = 0.0  # copies to the host that it waits for
    exchanges: Exchanges = Exchanges()  # as the stage itself says
    are_dependents: bool = False  # kernels that start before the one in front of them has ended


@dataclass(frozen=True)
class Rates:
    """What a GPU can do at best; times in us, bytes and operations per us."""

    launch_us: float
    node_us: float  # from one kernel to the next where the device has all of them before it
    wait_us: float  # what a wait adds to a launch
    read_back_us: float  # what a copy to the host and the wait for it add to a launch
    exchange_us: float  # the cheapest between multiprocessors
    memory_bytes: float
    l2_bytes: float
    flops: Mapping[Precision, float]
    l2_size: int  # bytes
    on_chip_size: int  # bytes: shared memory and registers of all multiprocessors
    multiprocessors: int
    cluster_hop_us: float | None = None  # None where the GPU has no clusters, or it was not measured
    grid_barrier_us: float | None = None
    dependent_node_us: float | None = None  # the same where the next one is in place already; None where there is none

    def between_us(self, design: Design) -> float:
        """From one kernel of a stage to the next at least."""
        early = self.dependent_node_us if design.are_dependents else None
        return self.node_us if early is None else min(early, self.node_us)

    def moving_us(self, size: float) -> float:
        """Moving so many bytes: all pass through L2, and what it cannot hold comes from memory."""
        return max(size / self.l2_bytes, (size - self.l2_size) / self.memory_bytes)

    def computing_us(self, flops: float, precision: Precision) -> float:
        """So many operations of matrix products; at the highest rate of all where this one was not measured."""
        return flops / self.flops.get(precision, self.highest)

    @property
    def highest(self) -> float:
        """The operations per us of the precision in which the GPU is fastest."""
        return max(self.flops.values())


def operations(problem: Problem, with_totals: bool = False) -> tuple[Operation, ...]:
    """The operations of one step in the order in which the plain recipe enqueues them."""
    return tuple(_operations(problem, with_totals))


def _operations(problem: Problem, with_totals: bool) -> Iterator[Operation]:
    batch, classes = problem.batch_size, problem.classes
    layers = problem.layers
    last = len(layers) - 1
    for index, layer in enumerate(layers):
        yield _gemm("forward", index, batch, layer.fan_in, layer.fan_out)
        output = batch * layer.fan_out
        yield Operation("layer", "add_bias", index, 0, (2 * output + layer.fan_out) * NUMBER)
        if index < last:
            yield Operation("layer", "relu", index, 0, 2 * output * NUMBER)
    yield Operation("softmax", "softmax", None, 0, 2 * batch * classes * NUMBER)
    yield Operation("softmax", "softmax_xent_backward", None, 0, (2 * batch * classes + batch) * NUMBER)
    if with_totals:
        yield Operation("softmax", "softmax_xent_totals", None, 0, (batch * classes + batch) * NUMBER + 2 * TOTALS)
    for index, layer in reversed(list(enumerate(layers))):
        if index > 0:
            yield _gemm("backward", index, batch, layer.fan_out, layer.fan_in)
            yield Operation("layer", "relu_backward", index - 1, 0, 3 * batch * layer.fan_in * NUMBER)
        yield _gemm("weight_gradient", index, layer.fan_in, batch, layer.fan_out)
        yield Operation("layer", "bias_gradient", index, 0, (batch + 1) * layer.fan_out * NUMBER)
    yield Operation("update", "sgd_update", None, 0, 3 * parameters(problem) * NUMBER)


def parameters(problem: Problem) -> int:
    """How many weights and biases the network has."""
    return sum((layer.fan_in + 1) * layer.fan_out for layer in problem.layers)


def physical_floor(problem: Problem, precision: Precision, rates: Rates) -> float:
    """A step of this problem in us, below which no stage can be: SGD as written, dense, one step after the other.

    Nothing is launched. The larger of two times counts, since they overlap: the operations of the products, at the
    GPU's highest rate, since numbers split in halves have more precision than the units that multiply them; and the
    bytes that cannot stay on the chip, which are the batch's pixels at one byte each, and what of the parameters is
    more than all shared memory and registers hold, read and written. On top of it come the exchanges that follow each
    other. The latencies of the step's own operations are left out. One multiprocessor alone needs no exchange, but has
    only its share of the operations' rate: where that is less, it is the floor. All of it is divided by `HEADROOM`.
    """
    flops = sum(operation.flops for operation in operations(problem))
    number = 2 if precision in ("bfloat16", "float16") else NUMBER
    homeless = max(parameters(problem) * number - rates.on_chip_size, 0)
    moving = rates.moving_us(problem.batch_size * problem.inputs + 2 * homeless)
    computing = flops / rates.highest
    everyone = max(moving, computing) + SERIAL_HOPS * rates.exchange_us
    alone = computing * rates.multiprocessors
    return min(everyone, alone) / HEADROOM


def launching_floor(design: Design, rates: Rates) -> float:
    """The host's time a step, in us: its launches, each at what a launch costs back to back."""
    return design.launches * rates.launch_us


def waiting_floor(design: Design, rates: Rates) -> float:
    """What the host's waits add to a step, in us: neither launching nor kernels go on meanwhile."""
    return design.waits * rates.wait_us + design.read_backs * rates.read_back_us


def exchanging_floor(design: Design, rates: Rates) -> float:
    """What the exchanges within its kernels take a step, in us: those that follow each other, and nothing between them.

    One that was not measured counts as the cheapest that was.
    """
    measured = (rates.cluster_hop_us, rates.grid_barrier_us)
    hop_us, barrier_us = (rates.exchange_us if us is None else us for us in measured)
    return design.exchanges.cluster_hops * hop_us + design.exchanges.grid_barriers * barrier_us


def kernels_floor(problem: Problem, design: Design, precision: Precision, rates: Rates) -> float:
    """The device's time a step, in us.

    The sum over all kernels of the largest of three times: from one kernel to the next, the operation's bytes, and its
    arithmetic in the stage's own precision. Kernels beyond the step's operations count as the first of these alone.
    Where there are fewer, operations are fused, and of the bytes that still travel only those of the parameters are
    known: then the largest of all kernels' first time, all arithmetic, and what of the parameters is more than stays
    where it is from one pass to the next, in L2 or, where a kernel runs whole steps, on the chip.
    """
    step, node_us = operations(problem), rates.between_us(design)
    computing = [rates.computing_us(operation.flops, precision) for operation in step]
    if design.kernels < len(step):
        staying = rates.l2_size + (rates.on_chip_size if design.kernels < 1 else 0)
        travelling = max(parameters(problem) * NUMBER - staying, 0)
        return max(design.kernels * node_us, sum(computing), PASSES * travelling / rates.memory_bytes)
    each = (max(node_us, rates.moving_us(op.bytes), us) for op, us in zip(step, computing, strict=True))
    return sum(each) + (design.kernels - len(step)) * node_us


def _gemm(name: str, layer: int, rows: int, inner: int, cols: int) -> Operation:
    """A product (rows, inner) by (inner, cols)."""
    moved = rows * inner + inner * cols + rows * cols
    return Operation("gemm", name, layer, 2 * rows * inner * cols, moved * NUMBER)
