"""The schedule of persistent_cluster in NumPy: which warp holds what, what it sends where, and what it waits for.

Every warp is a generator that yields its waits. A scheduler runs the warps that can go on in a random order, and lets
messages arrive in a random order, some of them late. A remote buffer knows the step of its contents, so a write before
the last read, or a read before the write, is always an error. Numbers are rounded where the kernel rounds them: factors
to two float16 halves, sums to float32.

The products of neighbouring batches are made by one more such generator, epoch after epoch, which lives on from launch
to launch, as a second stream does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Half = NDArray[np.float16]
Ready = Callable[[], bool]
Warp = Iterator[Ready]

BLOCKS, BACKWARD_WARPS, FORWARD_WARPS, HEAD_WARPS, MOST_PAIRS = 16, 4, 8, 4, 8
PAIRS_A_WARP = MOST_PAIRS // HEAD_WARPS
WEIGHT_SCALE, DLOGIT_SCALE = np.float32(16), np.float32(1024)
CLASSES = 16  # rows of a fragment


def matrix(parts: Half) -> Half:
    """The matrix (16, 16) of its four of 8 by 8, (2, 2, 8, 8)."""
    return np.block([[parts[i, j] for j in range(2)] for i in range(2)])


def right_factor(first: Half, second: Half) -> Half:
    """The matrix (16, 8) of a right factor, from the two pairs of numbers of each lane, (32, 2) both."""
    factor = np.full((16, 8), np.nan, np.float16)
    for lane in range(32):
        row, column = lane % 4 * 2, lane // 4
        factor[row : row + 2, column] = first[lane]
        factor[row + 8 : row + 10, column] = second[lane]
    return factor


def halves(numbers: Array) -> tuple[Half, Half]:
    """Two float16 whose sum has 22 bits of each number."""
    high = numbers.astype(np.float16)
    return high, (numbers - high.astype(np.float32)).astype(np.float16)


def product(left: Half, right: Half, total: Array) -> Array:
    """total + left @ right, the factors' products exact, the sum float32."""
    return (total + left.astype(np.float64) @ right.astype(np.float64)).astype(np.float32)


def neighbour_grams(images: Half) -> Half:
    """What the kernel of that name makes of images (steps, tiles, P, 2, 2, 8, 8): (steps - 1, 2 P, P, 32, 8)."""
    steps, tiles, pairs = images.shape[:3]
    batches = [np.block([[matrix(images[s, t, p]) for t in range(tiles)] for p in range(pairs)]) for s in range(steps)]
    grams = np.full((steps - 1, 2 * pairs, pairs, 32, 8), np.nan, np.float16)
    for step in range(steps - 1):
        before, after = batches[step].astype(np.float32), batches[step + 1].astype(np.float32)
        for owner, pair, lane in np.ndindex(2 * pairs, pairs, 32):
            image = after[8 * owner + lane // 4]
            rows = 16 * pair + lane % 4 * 2 + np.array([0, 1, 8, 9])
            grams[step, owner, pair, lane] = np.concatenate(halves(before[rows] @ image))
    return grams


class Products:
    """What a second stream makes of the images for each epoch, counted from 1, into the next of so many buffers."""

    def __init__(self, images: Half, epochs: int, *, buffers: int = 2, waits: bool = True) -> None:
        self._grams = neighbour_grams(images)
        self._ready = np.zeros((buffers, len(self._grams)), np.int64)  # the epoch that a step's are of
        self._waits = waits
        self.trained = 0  # epochs
        self.stream = self._make(epochs)

    def _make(self, epochs: int) -> Warp:
        for epoch in range(1, epochs + 1):
            yield partial(self._is_free_for, epoch)
            for step in range(len(self._grams)):
                self._ready[epoch % len(self._ready), step] = epoch
                yield lambda: True

    def _is_free_for(self, epoch: int) -> bool:
        return not self._waits or self.trained >= epoch - 2

    def are_ready(self, epoch: int, step: int) -> Ready:
        def ready() -> bool:
            made = self._ready[epoch % len(self._ready), step]
            assert made <= epoch, f"products of epoch {epoch} were overwritten before they were read"
            return bool(made == epoch)

        return ready

    def of(self, epoch: int, step: int) -> Half:
        assert self.are_ready(epoch, step)()
        gram: Half = self._grams[step]
        return gram


@dataclass
class RemoteBuffer:
    """What has arrived for one step: from each block a matrix (16, 8)."""

    step: int
    parts: dict[int, Array]


class Cluster:
    """One launch, with totals; the steps take turns at `remote_buffers` of each kind (the kernel has two)."""

    def __init__(
        self, images: Half, labels: NDArray[np.int32], products: Products, *, remote_buffers: int, meets: bool = True
    ) -> None:
        self.images, self.labels, self.products = images, labels, products
        self.epoch = products.trained + 1
        self.steps, self.tiles, self.pairs = images.shape[:3]
        self.remote_buffers = remote_buffers
        self.mail: dict[tuple[str, int, int], RemoteBuffer] = {}
        self.under_way: list[tuple[str, int, int, int, Array]] = []
        self.met: dict[tuple[str, int, int], int] = {}
        self.published: dict[tuple[int, int, int], tuple[int, Array]] = {}
        self.sums: dict[tuple[int, int, int], tuple[int, Array]] = {}
        self.meets = meets  # whether the head's warps wait for the totals' one
        self.totals = np.zeros((2 * self.pairs, 2))  # of each block: loss and number right

    def train(
        self, weight: Array, bias: Array, learning_rate: float, random: np.random.Generator
    ) -> tuple[Array, Array]:
        """The parameters after all steps; AssertionError for a schedule that does not hold."""
        self.classes = len(bias)
        self.rate = np.float32(learning_rate) / np.float32(16 * self.pairs) / DLOGIT_SCALE
        augmented = np.zeros((16 * self.tiles, CLASSES), np.float32)
        augmented[: len(weight), : self.classes] = weight
        augmented[len(weight), : self.classes] = bias
        self.weights = [augmented[16 * tile : 16 * tile + 16].T.copy() for tile in range(self.tiles)]
        warps = [self.backward_warp(block, warp) for block in range(BLOCKS) for warp in range(BACKWARD_WARPS)]
        warps += [self.forward_warp(block, warp) for block in range(BLOCKS) for warp in range(FORWARD_WARPS)]
        warps += [self.head_warp(block, warp) for block in range(2 * self.pairs) for warp in range(HEAD_WARPS)]
        warps += [self.totals_warp(block) for block in range(2 * self.pairs)]
        self.run(warps, random)
        self.products.trained += 1
        trained = np.concatenate([tile.T for tile in self.weights])[:, : self.classes]
        return trained[: len(weight)], trained[len(weight)]

    def run(self, warps: list[Warp], random: np.random.Generator) -> None:
        """Until all have ended. Some warps are slow, so that others run as far ahead as they can."""
        side, warps = len(warps), [*warps, self.products.stream]
        waits: dict[int, Ready] = dict.fromkeys(range(len(warps)), lambda: True)
        haste = random.choice([0.03, 0.3, 1.0], len(warps))
        while waits.keys() - {side}:
            ready = [i for i in waits if waits[i]()]
            assert ready or self.under_way, "all wait for each other"
            for i in random.permutation([i for i in ready if random.random() < haste[i]]):
                try:
                    waits[i] = next(warps[i])
                except StopIteration:
                    del waits[i]
            for i in sorted(random.permutation(len(self.under_way))[: random.integers(0, 400)], reverse=True):
                self.arrive(*self.under_way.pop(i))
        assert not self.under_way

    def send(self, kind: str, step: int, sender: int, receiver: int, part: Array) -> None:
        self.under_way.append((kind, step, sender, receiver, part))

    def arrive(self, kind: str, step: int, sender: int, receiver: int, part: Array) -> None:
        key = (kind, receiver, step % self.remote_buffers)
        box = self.mail.get(key)
        if box is None or box.step != step:
            assert box is None or len(box.parts) == self.senders(kind), f"{kind} of step {step} came too early"
            box = self.mail[key] = RemoteBuffer(step, {})
        assert sender not in box.parts
        box.parts[sender] = part

    def senders(self, kind: str) -> int:
        return BLOCKS if kind == "logits" else 2 * self.pairs

    def is_full(self, kind: str, step: int, receiver: int) -> Ready:
        def full() -> bool:
            box = self.mail.get((kind, receiver, step % self.remote_buffers))
            assert box is None or box.step <= step, f"{kind} of step {step} was overwritten before it was read"
            return box is not None and box.step == step and len(box.parts) == self.senders(kind)

        return full

    def read(self, kind: str, step: int, receiver: int, sender: int) -> Array:
        box = self.mail[kind, receiver, step % self.remote_buffers]
        assert box.step == step, f"{kind} of step {box.step} where those of {step} should be"
        return box.parts[sender]

    def meet(self, role: str, block: int, meeting: int, warps: int, counts: bool = True) -> Ready:
        key = (role, block, meeting)
        self.met[key] = self.met.get(key, 0) + counts
        return lambda: self.met[key] == warps

    def own_tiles(self, block: int) -> range:
        return range(block * self.tiles // BLOCKS, (block + 1) * self.tiles // BLOCKS)

    def backward_warp(self, block: int, warp: int) -> Warp:
        for step in range(min(2, self.steps)):
            self.publish(block, warp, step)
        for step in range(self.steps):
            yield self.is_full("dlogits", step, block)
            if warp < len(self.own_tiles(block)):
                self.backward(block, self.own_tiles(block)[warp], step)
            yield lambda: True  # here others may get ahead
            if step + 2 < self.steps:
                self.publish(block, warp, step + 2)

    def publish(self, block: int, warp: int, step: int) -> None:
        """Weights for the forward pass of that step."""
        if warp < len(self.own_tiles(block)):
            weights = self.weights[self.own_tiles(block)[warp]]
            self.published[block, step % self.remote_buffers, warp] = step, weights.copy()
        self.meet("weights", block, step, BACKWARD_WARPS + FORWARD_WARPS)

    def forward_warp(self, block: int, warp: int) -> Warp:
        for step in range(self.steps):
            yield self.meet("weights", block, step, BACKWARD_WARPS + FORWARD_WARPS)
            pair = (warp + block) % MOST_PAIRS
            if pair < self.pairs:
                self.forward(block, pair, step)

    def backward(self, block: int, tile: int, step: int) -> None:
        for half in range(2):  # of the tile's features
            sums = np.zeros((2, CLASSES, 8), np.float32)
            for pair in range(self.pairs):
                dlogits = np.hstack([self.read("dlogits", step, block, 2 * pair + i) for i in range(2)])
                x = matrix(self.images[step, tile, pair])[:, 8 * half : 8 * half + 8]
                sums = np.stack([product(part, x, sums[i]) for i, part in enumerate(halves(dlogits))])
            self.weights[tile][:, 8 * half : 8 * half + 8] -= self.rate * (sums[0] + sums[1])

    def forward(self, block: int, pair: int, step: int) -> None:
        for half in range(2):
            sums = np.zeros((2, CLASSES, 8), np.float32)
            for i, tile in enumerate(self.own_tiles(block)):
                x = matrix(self.images[step, tile, pair])[8 * half : 8 * half + 8].T
                published, weights = self.published[block, step % self.remote_buffers, i]
                assert published == step, f"weights for step {step} were overwritten before they were read"
                sums = np.stack([product(part, x, sums[j]) for j, part in enumerate(halves(WEIGHT_SCALE * weights))])
            self.send("logits", step, block, 2 * pair + half, sums[0] + sums[1])

    def head_warp(self, block: int, warp: int) -> Warp:
        share = BLOCKS // HEAD_WARPS
        for step in range(self.steps):
            yield self.is_full("logits", step, block)
            logits = np.zeros((CLASSES, 8), np.float32)
            for sender in range(share * warp, share * warp + share):
                logits += self.read("logits", step, block, sender)
            logits /= WEIGHT_SCALE
            if step > 0:
                yield self.products.are_ready(self.epoch, step - 1)
                yield self.is_full("dlogits", step - 1, block)
                logits -= self.rate * self.last_update(block, warp, step)
            self.sums[block, step % 2, warp] = step, logits
            yield self.meet("head", block, step, HEAD_WARPS + self.meets)
            dlogits = self.softmax(self.logits(block, step), self.labels[step, 8 * block : 8 * block + 8])
            for receiver in range(share * warp, share * warp + share):
                self.send("dlogits", step, block, receiver, dlogits)

    def totals_warp(self, block: int) -> Warp:
        for step in range(self.steps):
            yield self.meet("head", block, step, HEAD_WARPS + self.meets, self.meets)
            yield from [lambda: True] * 10  # here others may get ahead, as far as they can
            logits, labels = self.logits(block, step)[: self.classes], self.labels[step, 8 * block : 8 * block + 8]
            shifted = logits - logits.max(axis=0)
            losses = np.log(np.exp(shifted).sum(axis=0)) - shifted[labels, np.arange(8)]
            self.totals[block] += losses.sum(dtype=np.float64), (logits.argmax(axis=0) == labels).sum()

    def logits(self, block: int, step: int) -> Array:
        """The shares of the head's warps together."""
        steps, shares = zip(*(self.sums[block, step % 2, warp] for warp in range(HEAD_WARPS)), strict=True)
        assert set(steps) == {step}, f"sums of step {step} were overwritten before they were read"
        total: Array = sum(shares[1:], shares[0])
        return total

    def last_update(self, block: int, warp: int, step: int) -> Array:
        sums = np.zeros((CLASSES, 8), np.float32)
        for pair in range(PAIRS_A_WARP * warp, min(PAIRS_A_WARP * warp + PAIRS_A_WARP, self.pairs)):
            dlogits = np.hstack([self.read("dlogits", step - 1, block, 2 * pair + i) for i in range(2)])
            high, low = halves(dlogits)
            gram = self.products.of(self.epoch, step - 1)[block, pair]
            gram_high, gram_low = (right_factor(gram[:, i : i + 2], gram[:, i + 2 : i + 4]) for i in (0, 4))
            for left, right in itertools.product((high, low), (gram_high, gram_low)):
                sums = product(left, right, sums)
        return sums

    def softmax(self, logits: Array, labels: NDArray[np.int32]) -> Array:
        classes = logits[: self.classes]
        powers = np.exp(classes - classes.max(axis=0))
        dlogits = np.full((CLASSES, 8), np.float32(0))
        dlogits[: self.classes] = DLOGIT_SCALE * powers / powers.sum(axis=0)
        dlogits[labels, np.arange(8)] -= DLOGIT_SCALE
        return dlogits
