"""The schedule of cluster_mlp in NumPy: which block has what, what it sends where, and which barriers it waits at.

Every block is a generator that yields what it waits for; a scheduler runs those that can go on in a random order, some
of them rarely. As in the kernel, a block waits for the messages that it wants itself, and these arrive in any order, as
late as may be; only a step's end is a barrier of all blocks. A region of shared memory knows whether its owner has read
what is in it, so that one that is overwritten or read too early is an error and not a coincidence; logits have one of
their own, or share that of the first layer's exchange. Numbers are rounded where the kernel rounds them: factors to two
float16 halves, sums to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.cluster_mlp import BLOCKS, CHUNK, Plan

Array = NDArray[Any]
Ready = Callable[[], bool]

WEIGHT_SCALE, OUTPUT_SCALE, GRADIENT_SCALE = 16.0, 16.0, 256.0


def in_halves(numbers: Array, scale: float) -> Array:
    """What is left of numbers that are kept as two float16 of `scale` times them."""
    scaled = (np.float32(scale) * numbers).astype(np.float32)
    high = scaled.astype(np.float16)
    low = (scaled - high.astype(np.float32)).astype(np.float16)
    return (high.astype(np.float64) + low.astype(np.float64)) / scale


@dataclass
class Region:
    """Shared memory of one block that others write: parts of a sum by sender, or doutputs by chunk."""

    use: tuple[int, str] = (-1, "")
    received: dict[int, Array] = field(default_factory=dict)
    is_read: bool = True

    def arrive(self, use: tuple[int, str], key: int, part: Array) -> None:
        if use != self.use:
            assert self.is_read, f"{use} overwrites {self.use}, which is yet to be read"
            self.use, self.received, self.is_read = use, {}, False
        self.received[key] = part

    def holds(self, use: tuple[int, str], count: int) -> Ready:
        return lambda: self.use == use and len(self.received) == count

    def read(self, use: tuple[int, str], count: int) -> list[Array]:
        assert self.use == use, f"{use} is read where {self.use} is"
        assert len(self.received) == count, f"{use} is read too early"
        return [self.received[key] for key in sorted(self.received)]


class Cluster:
    """One launch. Images (steps, B, I), labels (steps, B); `last_barrier` is the one at a step's end."""

    def __init__(self, plan: Plan, images: Array, labels: Array, *, last_barrier: bool = True) -> None:
        self.plan, self.images, self.labels = plan, images.astype(np.float64), labels
        self.last_barrier = last_barrier
        self.last = len(plan.problem.layers) - 1
        self.told = [0] * BLOCKS  # of how many steps' ends
        self.hops = [0] * BLOCKS  # how often each block has waited for others
        self.under_way: list[tuple[Region, tuple[int, str], int, Array]] = []
        # By block: a region for each layer's exchange, and one for the logits.
        self.regions = [[Region() for _ in range(self.last + 2)] for _ in range(BLOCKS)]
        if plan.shares:
            for regions in self.regions:
                regions[self.last + 1] = regions[0]

    def train(
        self, weights: list[Array], biases: list[Array], learning_rate: float, random: np.random.Generator
    ) -> tuple[list[Array], list[Array]]:
        """The parameters after all steps; AssertionError for a schedule that does not hold."""
        self.weights = [weight.copy() for weight in weights]  # each block touches what it owns
        self.biases = [[bias.copy() for bias in biases] for _ in range(BLOCKS)]
        self.rate = np.float32(learning_rate / self.plan.problem.batch_size)
        self.random = random
        self.run(self.workers())
        for index in range(self.last):
            for rank in range(BLOCKS):
                own = self.own(index, rank)
                self.biases[0][index][own] = self.biases[rank][index][own]
        return self.weights, self.biases[0]

    def workers(self) -> list[Iterator[Ready]]:
        """Those that go on by themselves."""
        return [self.block(rank) for rank in range(BLOCKS)]

    def run(self, blocks: list[Iterator[Ready]]) -> None:
        waits: dict[int, Ready] = dict.fromkeys(range(len(blocks)), lambda: True)
        haste = self.random.choice([0.02, 0.3, 1.0], len(blocks))
        while waits:
            ready = [i for i in waits if waits[i]()]
            assert ready or self.under_way, "all wait for each other"
            for i in self.random.permutation([i for i in ready if self.random.random() < haste[i]]):
                try:
                    waits[i] = next(blocks[i])
                except StopIteration:
                    del waits[i]
            for i in sorted(self.random.permutation(len(self.under_way))[:20], reverse=True):
                self.arrive(i)

    def arrive(self, i: int) -> None:
        region, use, sender, part = self.under_way.pop(i)
        region.arrive(use, sender, part)

    def send(self, sender: int, receiver: int, index: int, use: tuple[int, str], part: Array) -> None:
        self.under_way.append((self.regions[receiver][index], use, sender, part))

    def receive(self, rank: int, index: int, use: tuple[int, str], count: int) -> Ready:
        """Wait for so many messages, this block's own among them; what is returned says whether all have come."""
        self.hops[rank] += count > 1
        return self.regions[rank][index].holds(use, count)

    def end_step(self, rank: int) -> Ready:
        """Arrive at the cluster's barrier; what is returned says whether all have."""
        self.told[rank] += 1
        wanted = self.told[rank]
        return lambda: not self.last_barrier or min(self.told) >= wanted

    def own(self, index: int, rank: int) -> Array:
        """The units of a hidden layer that a block owns."""
        return np.flatnonzero(np.arange(self.plan.problem.hidden[index]) // CHUNK % BLOCKS == rank)

    def block(self, rank: int) -> Iterator[Ready]:
        plan, last, split = self.plan, self.last, self.plan.split
        hidden, group = plan.problem.hidden, range(rank // split * split, rank // split * split + split)
        biases, regions, everyone = self.biases[rank], self.regions[rank], range(BLOCKS)
        heads = range(2 * plan.pairs)  # blocks that have the softmax of eight images
        features = slice(rank % split * plan.slice_tiles * 16, (rank % split + 1) * plan.slice_tiles * 16)
        of_group = np.concatenate([self.own(0, member) for member in group])
        ended: Ready = lambda: True  # noqa: E731
        for step, (batch, labels) in enumerate(zip(self.images, self.labels, strict=True)):
            x = batch[:, features]
            outputs: list[Array] = []
            yield ended
            for owner in group:
                weights = in_halves(self.weights[0][features, self.own(0, owner)], WEIGHT_SCALE)
                self.send(rank, owner, 0, (step, "parts"), (x @ weights).astype(np.float32))
            for index in range(1, last + 1):
                own = self.own(index - 1, rank)
                senders = split if index == 1 else BLOCKS
                yield self.receive(rank, index - 1, (step, "parts"), senders)
                parts = regions[index - 1].read((step, "parts"), senders)
                regions[index - 1].is_read = True
                output = np.maximum(sum(parts[1:], parts[0]) + biases[index - 1][own], np.float32(0))
                outputs.append(in_halves(output, OUTPUT_SCALE))
                part = (outputs[-1] @ in_halves(self.weights[index][own], WEIGHT_SCALE)).astype(np.float32)
                for receiver in everyone if index < last else heads:
                    if index < last:
                        self.send(rank, receiver, index, (step, "parts"), part[:, self.own(index, receiver)])
                    else:
                        images = part[receiver * CHUNK : receiver * CHUNK + CHUNK]
                        self.send(rank, receiver, last + 1, (step, "logits"), images)

            if rank in heads:
                yield self.receive(rank, last + 1, (step, "logits"), BLOCKS)
                logits = regions[last + 1].read((step, "logits"), BLOCKS)
                regions[last + 1].is_read = True
                dlogits = self.softmax(sum(logits[1:], logits[0]) + biases[last], labels[rank * CHUNK :][:CHUNK])
                for receiver in everyone:
                    self.send(rank, receiver, last, (step, "doutputs"), in_halves(dlogits, GRADIENT_SCALE))
            yield self.receive(rank, last, (step, "doutputs"), len(heads))

            for index in range(last, 0, -1):
                own = self.own(index - 1, rank)
                received = regions[index].read((step, "doutputs"), len(heads) if index == last else BLOCKS)
                doutputs = np.vstack(received) if index == last else self.joined(received, range(BLOCKS), index)
                below = (doutputs @ in_halves(self.weights[index][own], WEIGHT_SCALE).T).astype(np.float32)
                below = in_halves(np.where(outputs[index - 1] > 0, below, np.float32(0)), GRADIENT_SCALE)
                for receiver in everyone if index > 1 else group:
                    self.send(rank, receiver, index - 1, (step, "doutputs"), below)
                yield lambda: True  # here others may get ahead
                self.weights[index][own] -= self.rate * (outputs[index - 1].T @ doutputs).astype(np.float32)
                owned = slice(None) if index == last else self.own(index, rank)
                biases[index][owned] -= self.rate * doutputs[:, owned].sum(axis=0).astype(np.float32)
                regions[index].is_read = True
                yield self.receive(rank, index - 1, (step, "doutputs"), BLOCKS if index > 1 else split)
            received = regions[0].read((step, "doutputs"), split)
            doutputs = self.joined(received, group, 0)[:, of_group]
            yield lambda: True
            self.weights[0][features, of_group] -= self.rate * (x.T @ doutputs).astype(np.float32)
            own = self.own(0, rank)
            biases[0][own] -= self.rate * received[rank % split].sum(axis=0).astype(np.float32)
            regions[0].is_read = True
            ended = self.end_step(rank)
        assert len(outputs) == len(hidden)

    def joined(self, parts: list[Array], owners: range, index: int) -> Array:
        """A layer's doutputs (B, O) from what its units' owners sent; zeros for other units."""
        doutputs = np.zeros((len(parts[0]), self.plan.problem.hidden[index]))
        for owner, part in zip(owners, parts, strict=True):
            doutputs[:, self.own(index, owner)] = part
        return doutputs

    def softmax(self, logits: Array, labels: Array) -> Array:
        powers = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
        dlogits: Array = powers / powers.sum(axis=1, keepdims=True)
        dlogits[np.arange(len(labels)), labels] -= np.float32(1)
        return dlogits
