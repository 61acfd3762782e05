"""The operations and bytes of a network's weights."""

from __future__ import annotations

import itertools

from ladder.records.run import ProblemRecord

FLOAT32_BYTES = 4


def product_operations(problem: ProblemRecord) -> int:
    """Multiplications and additions of a step's products, of all networks; no gradient flows into the images."""
    layers = [outputs * inputs for inputs, outputs in _layers(problem)]
    return problem.networks * 2 * problem.batch_size * (3 * sum(layers) - layers[0])


def _layers(problem: ProblemRecord) -> list[tuple[int, int]]:
    return list(itertools.pairwise((problem.inputs, *problem.hidden, problem.classes)))


def weight_bytes(problem: ProblemRecord) -> int:
    """Bytes of all weights in float32."""
    return FLOAT32_BYTES * sum(inputs * outputs for inputs, outputs in _layers(problem))
