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

from stages.persistent.cluster_plan import BLOCKS, CHUNK, EDGE, EXACT, Plan

Array = NDArray[Any]
Ready = Callable[[], bool]

WEIGHT_SCALE, OUTPUT_SCALE, GRADIENT_SCALE = 16.0, 16.0, 256.0


def in_halves(numbers: Array, scale: float) -> Array:
    """What is left of numbers that are kept as two float16 of `scale` times them."""
    scaled = (np.float32(scale) * numbers).astype(np.float32)
    high = scaled.astype(np.float16)
    low = (scaled - high.astype(np.float32)).astype(np.float16)
    return (high.astype(np.float64) + low.astype(np.float64)) / scale


def turns_of(plan: Plan) -> int:
    """In how many turns messages between hidden layers come, each with as many of the images: TURNS of mlp_plan.cuh."""
    are_long = plan.halves == EXACT and len(plan.problem.hidden) > 1 and plan.slots[1] > 1
    return 2 if are_long and plan.pairs % 2 == 0 else 1


@dataclass
class Region:
    """Shared memory of one block that others write, by turn and sender: parts of a sum, or doutputs."""

    use: tuple[int, str] = (-1, "")
    received: dict[tuple[int, int], Array] = field(default_factory=dict)
    is_read: bool = True

    def arrive(self, use: tuple[int, str], key: tuple[int, int], part: Array) -> None:
        if use != self.use:
            assert self.is_read, f"{use} overwrites {self.use}, which is yet to be read"
            self.use, self.received, self.is_read = use, {}, False
        self.received[key] = part

    def of_turn(self, turn: int) -> list[Array]:
        return [self.received[key] for key in sorted(self.received) if key[0] == turn]

    def holds(self, use: tuple[int, str], count: int, turn: int = 0) -> Ready:
        return lambda: self.use == use and len(self.of_turn(turn)) == count

    def read(self, use: tuple[int, str], count: int, turn: int = 0) -> list[Array]:
        assert self.use == use, f"{use} is read where {self.use} is"
        received = self.of_turn(turn)
        assert len(received) == count, f"{use} is read too early"
        return received


class Cluster:
    """One launch. Images (steps, B, I), labels (steps, B); `last_barrier` is the one at a step's end."""

    def __init__(self, plan: Plan, images: Array, labels: Array, *, last_barrier: bool = True) -> None:
        self.plan, self.images, self.labels = plan, images.astype(np.float64), labels
        self.last_barrier = last_barrier
        self.last = len(plan.problem.layers) - 1
        self.told = [0] * BLOCKS  # of how many steps' ends
        self.hops = [0] * BLOCKS  # how often each block has waited for others
        self.under_way: list[tuple[Region, tuple[int, str], tuple[int, int], Array]] = []
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
        region, use, key, part = self.under_way.pop(i)
        region.arrive(use, key, part)

    def send(self, sender: int, receiver: int, index: int, use: tuple[int, str], part: Array, turn: int = 0) -> None:
        self.under_way.append((self.regions[receiver][index], use, (turn, sender), part))

    def receive(self, rank: int, index: int, use: tuple[int, str], count: int, turn: int = 0) -> Ready:
        """Wait for so many messages, this block's own among them; what is returned says whether all have come."""
        self.hops[rank] += count > 1 and turn == 0
        return self.regions[rank][index].holds(use, count, turn)

    def end_step(self, rank: int) -> Ready:
        """Arrive at the cluster's barrier; what is returned says whether all have."""
        self.told[rank] += 1
        wanted = self.told[rank]
        return lambda: not self.last_barrier or min(self.told) >= wanted

    def own(self, index: int, rank: int) -> Array:
        """The units of a hidden layer that a block owns."""
        return np.flatnonzero(np.arange(self.plan.problem.hidden[index]) // CHUNK % BLOCKS == rank)

    def owners(self, index: int) -> range:
        """The blocks whose units of a hidden layer travel: an even number, or all where logits share memory."""
        return range(BLOCKS if self.plan.shares else min(BLOCKS, -(-self.plan.problem.hidden[index] // EDGE) * 2))

    def block(self, rank: int) -> Iterator[Ready]:
        plan, last, split = self.plan, self.last, self.plan.split
        hidden, group = plan.problem.hidden, range(rank // split * split, rank // split * split + split)
        biases, regions, everyone = self.biases[rank], self.regions[rank], range(BLOCKS)
        heads = range(2 * plan.pairs)  # chunks of eight images, whose softmax block head % BLOCKS takes
        features = slice(rank % split * plan.slice_tiles * 16, (rank % split + 1) * plan.slice_tiles * 16)
        of_group = np.concatenate([self.own(0, member) for member in group])
        count = turns_of(plan)
        in_turn = plan.pairs // count * EDGE
        turns = [slice(turn * in_turn, (turn + 1) * in_turn) for turn in range(count)]
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
                outputs.append(np.zeros((len(x), len(own))))
                for turn, images in enumerate(turns):
                    travels = index == 1 or rank in self.owners(index - 1)
                    if travels and (index > 1 or turn == 0):  # the first layer's parts do not come in turns
                        yield self.receive(rank, index - 1, (step, "parts"), senders, turn)
                        parts = regions[index - 1].read((step, "parts"), senders, turn)
                        regions[index - 1].is_read = index == 1 or turn == count - 1
                        output = np.maximum(sum(parts[1:], parts[0]) + biases[index - 1][own], np.float32(0))
                        outputs[-1][images if index > 1 else slice(None)] = in_halves(output, OUTPUT_SCALE)
                    weights = in_halves(self.weights[index][own], WEIGHT_SCALE)
                    part = (outputs[-1][images] @ weights).astype(np.float32)
                    of_turn = heads[images.start // CHUNK : images.stop // CHUNK]
                    for receiver in self.owners(index) if index < last else of_turn:
                        if index < last:
                            self.send(rank, receiver, index, (step, "parts"), part[:, self.own(index, receiver)], turn)
                        else:
                            first = receiver * CHUNK - images.start
                            own_part, head = part[first : first + CHUNK], receiver // BLOCKS
                            self.send(rank, receiver % BLOCKS, last + 1, (step, "logits"), own_part, head)

            for head in heads[rank::BLOCKS]:
                yield self.receive(rank, last + 1, (step, "logits"), BLOCKS, head // BLOCKS)
                logits = regions[last + 1].read((step, "logits"), BLOCKS, head // BLOCKS)
                regions[last + 1].is_read = head + BLOCKS not in heads
                dlogits = self.softmax(sum(logits[1:], logits[0]) + biases[last], labels[head * CHUNK :][:CHUNK])
                for receiver in everyone:
                    self.send(head, receiver, last, (step, "doutputs"), in_halves(dlogits, GRADIENT_SCALE))
            yield self.receive(rank, last, (step, "doutputs"), len(heads))

            for index in range(last, 0, -1):
                own = self.own(index - 1, rank)
                if index == last:
                    doutputs = np.vstack(regions[index].read((step, "doutputs"), len(heads)))
                else:
                    doutputs = np.zeros((len(x), hidden[index]))
                for turn, images in enumerate(turns):
                    if index < last:
                        owners = self.owners(index)
                        yield self.receive(rank, index, (step, "doutputs"), len(owners), turn)
                        received = regions[index].read((step, "doutputs"), len(owners), turn)
                        doutputs[images] = self.joined(received, owners, index)
                    below = doutputs[images] @ in_halves(self.weights[index][own], WEIGHT_SCALE).T
                    below = np.where(outputs[index - 1][images] > 0, below.astype(np.float32), np.float32(0))
                    travels = index == 1 or rank in self.owners(index - 1)
                    for receiver in () if not travels else everyone if index > 1 else group:
                        self.send(rank, receiver, index - 1, (step, "doutputs"), in_halves(below, GRADIENT_SCALE), turn)
                yield lambda: True  # here others may get ahead
                self.weights[index][own] -= self.rate * (outputs[index - 1].T @ doutputs).astype(np.float32)
                owned = slice(None) if index == last else self.own(index, rank)
                biases[index][owned] -= self.rate * doutputs[:, owned].sum(axis=0).astype(np.float32)
                regions[index].is_read = True
            doutputs = np.zeros((len(x), hidden[0]))
            for turn, images in enumerate(turns):
                yield self.receive(rank, 0, (step, "doutputs"), split, turn)
                doutputs[images] = self.joined(regions[0].read((step, "doutputs"), split, turn), group, 0)
            own, doutputs = self.own(0, rank), doutputs[:, of_group]
            yield lambda: True
            self.weights[0][features, of_group] -= self.rate * (x.T @ doutputs).astype(np.float32)
            biases[0][own] -= self.rate * doutputs[:, np.isin(of_group, own)].sum(axis=0).astype(np.float32)
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
