"""The schedule of cluster_mlp's two warp groups in NumPy: one hidden layer, half of a batch's images for each group.

As mlp_model, with its scheduler and regions, but with waits for each warp group of a block.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stages.persistent.cluster_plan import BLOCKS, CHUNK, Plan
from tests.stages.persistent.mlp_model import (
    GRADIENT_SCALE,
    OUTPUT_SCALE,
    WEIGHT_SCALE,
    Array,
    Cluster,
    Ready,
    Region,
    in_halves,
)

WARP_GROUPS = 2
PARTS, DLOGITS, LOGITS = 0, WARP_GROUPS, 2 * WARP_GROUPS  # a block's regions; the first two kinds have one a group


class WarpGroups(Cluster):
    """One launch with batches of 128; with `waits_for_update` the second group waits for the last layer's update."""

    def __init__(
        self, plan: Plan, images: Array, labels: Array, *, waits_for_update: bool = True, last_barrier: bool = True
    ) -> None:
        super().__init__(plan, images, labels, last_barrier=last_barrier)
        self.waits_for_update = waits_for_update
        self.regions = [[Region() for _ in range(2 * WARP_GROUPS + 1)] for _ in range(BLOCKS)]
        self.told = [0] * BLOCKS * WARP_GROUPS
        self.back = [[-1] * WARP_GROUPS for _ in range(BLOCKS)]  # the step whose doutputs a warp group shared last
        self.done = [[-1] * WARP_GROUPS for _ in range(BLOCKS)]  # and the step that it ended last
        self.updated = [-1] * BLOCKS  # the step whose update of the last layer has ended
        self.outputs = [[(-1, np.empty(0))] * WARP_GROUPS for _ in range(BLOCKS)]  # and the step that they are of

    def workers(self) -> list[Iterator[Ready]]:
        return [self.warp_group(rank, warp_group) for rank in range(BLOCKS) for warp_group in range(WARP_GROUPS)]

    def warp_group(self, rank: int, warp_group: int) -> Iterator[Ready]:
        split, half = self.plan.split, len(self.labels[0]) // WARP_GROUPS
        group = range(rank // split * split, rank // split * split + split)
        heads = range(warp_group * half // CHUNK, (warp_group + 1) * half // CHUNK)  # blocks with the group's softmax
        first = rank % split * self.plan.slice_tiles * 16
        features = slice(first, first + self.plan.slice_tiles * 16)
        first_own, count = first + warp_group * self.plan.slice_tiles * 8, self.plan.slice_tiles * 8
        own_features = slice(first_own, first_own + count)
        mine, regions, biases = slice(warp_group * half, (warp_group + 1) * half), self.regions[rank], self.biases[rank]
        own = self.own(0, rank)
        of_group = np.concatenate([self.own(0, member) for member in group])

        for step, (batch, labels) in enumerate(zip(self.images, self.labels, strict=True)):
            parts, below, dlogits = (step, "parts"), (step, "doutputs"), (step, "dlogits")
            if self.last_barrier:
                yield lambda step=step: min(self.told) >= step  # type: ignore[misc]
            for owner in group:
                weights = in_halves(self.weights[0][features, self.own(0, owner)], WEIGHT_SCALE)
                self.send(rank, owner, PARTS + warp_group, parts, (batch[mine, features] @ weights).astype(np.float32))
            yield lambda: True
            if warp_group == 0 and step > 0:
                self.update_classes(rank, step - 1)
            region = regions[PARTS + warp_group]
            yield region.holds(parts, split)
            if warp_group == 1 and self.waits_for_update:
                yield lambda step=step: self.updated[rank] >= step - 1  # type: ignore[misc]
            received = region.read(parts, split)
            region.is_read = True
            output = np.maximum(sum(received[1:], received[0]) + biases[0][own], np.float32(0))
            output = in_halves(output, OUTPUT_SCALE)
            self.outputs[rank][warp_group] = (step, output)
            part = (output @ in_halves(self.weights[1][own], WEIGHT_SCALE)).astype(np.float32)
            for i, head in enumerate(heads):
                self.send(rank, head, LOGITS, (step, "logits"), part[i * CHUNK : (i + 1) * CHUNK])
            yield lambda: True
            if rank in heads:
                yield regions[LOGITS].holds((step, "logits"), BLOCKS)
                logits = regions[LOGITS].read((step, "logits"), BLOCKS)
                regions[LOGITS].is_read = True
                shared = self.softmax(sum(logits[1:], logits[0]) + biases[1], labels[rank * CHUNK :][:CHUNK])
                for reader in range(BLOCKS):
                    self.send(rank, reader, DLOGITS + warp_group, dlogits, in_halves(shared, GRADIENT_SCALE))
            yield regions[DLOGITS + warp_group].holds(dlogits, len(heads))
            doutput = np.vstack(regions[DLOGITS + warp_group].read(dlogits, len(heads)))
            doutputs = (doutput @ in_halves(self.weights[1][own], WEIGHT_SCALE).T).astype(np.float32)
            doutputs = in_halves(np.where(output > 0, doutputs, np.float32(0)), GRADIENT_SCALE)
            for reader in group:
                self.send(rank, reader, PARTS + warp_group, below, doutputs)
            self.back[rank][warp_group] = step

            def is_back(other: int, step: int = step) -> Ready:
                return lambda: self.back[rank][other] >= step

            if warp_group == 1:
                yield is_back(0)
            yield regions[PARTS].holds(below, split)
            update = self.product(regions[PARTS], below, batch[:half, own_features])
            if warp_group == 0:
                yield is_back(1)
            yield regions[PARTS + 1].holds(below, split)
            update = update + self.product(regions[PARTS + 1], below, batch[half:, own_features])
            self.weights[0][own_features, of_group] -= self.rate * update
            if warp_group == 0:
                total = sum(regions[PARTS + i].received[0, rank].sum(axis=0) for i in range(WARP_GROUPS))
                biases[0][own] -= self.rate * np.float32(total)
            self.done[rank][warp_group] = step
            yield lambda step=step: min(self.done[rank]) >= step  # type: ignore[misc]
            regions[PARTS + warp_group].is_read = True
            self.told[rank * WARP_GROUPS + warp_group] += 1
        if warp_group == 0:
            yield lambda: min(self.done[rank]) == len(self.labels) - 1
            self.update_classes(rank, len(self.labels) - 1)

    def update_classes(self, rank: int, step: int) -> None:
        """The last layer's update of a step, by its outputs and all of its dlogits."""
        regions, own = self.regions[rank], self.own(0, rank)
        assert all(of == step for of, _ in self.outputs[rank]), f"outputs of step {step} are overwritten"
        whole = []
        for warp_group in range(WARP_GROUPS):
            whole += regions[DLOGITS + warp_group].read((step, "dlogits"), len(regions[DLOGITS + warp_group].received))
            regions[DLOGITS + warp_group].is_read = True
        dlogits, outputs = np.vstack(whole), np.vstack([output for _, output in self.outputs[rank]])
        self.weights[1][own] -= self.rate * (outputs.T @ dlogits).astype(np.float32)
        self.biases[rank][1] -= self.rate * dlogits.sum(axis=0).astype(np.float32)
        self.updated[rank] = step

    def product(self, region: Region, use: tuple[int, str], x: Array) -> Array:
        """What those images add to the update of the group's units, for x's features."""
        update: Array = (x.T @ np.hstack(region.read(use, self.plan.split))).astype(np.float32)
        return update
