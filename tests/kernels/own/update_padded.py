"""The update of padded weights, biases behind their last rows; with a rate of 0 it only rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.random import Generator

from common.problem import Problem
from stages.engine.workspace import ParameterMemory
from stages.large_batch.large_batch_wide import ALIGNMENT, THREADS, macros, shapes
from stages.large_batch.layout import up
from tests.kernels.cases import HALF_UNIT, UNIT, Args, Case, normal
from tests.stages.numpy_parts import HostDevice


def double(
    problem: Problem, memory: ParameterMemory, gradients: Any, parameters: Any, halves: Any, **args: Any
) -> dict[str, Any]:
    updated, halves, begin = parameters.copy(), halves.astype(np.uint16).view(np.float16).astype(np.float64), 0
    places = zip(problem.layers, memory.weight_begins, memory.bias_begins, shapes(problem), strict=True)
    for layer, weights, bias, size in places:
        padded = slice(begin, begin + math.prod(size))
        step = args["rate"] * gradients[padded].reshape(size)[: layer.fan_in + 1, : layer.fan_out]
        end = weights + layer.fan_in * layer.fan_out
        updated[weights:end] -= step[:-1].ravel()
        updated[bias : bias + layer.fan_out] -= step[-1]
        rounded = halves[padded].reshape(size)
        rounded[: layer.fan_in, : layer.fan_out] = updated[weights:end].reshape(layer.fan_in, layer.fan_out)
        rounded[layer.fan_in, : layer.fan_out] = updated[bias : bias + layer.fan_out]
        begin += up(math.prod(size), ALIGNMENT)
    totals = args["totals"] + args["with_totals"] * args["block_totals"].sum(axis=0)
    return {"parameters": updated, "halves": halves, "totals": totals}


def cases(random: Generator) -> Iterator[Case]:
    for hidden, classes, rate in (((1,), 10, 0.25), ((40, 7), 8, 0.0), ((9, 33, 20), 10, 0.25)):  # 8 needs no padding
        problem = Problem(17, classes, hidden)
        memory = ParameterMemory(HostDevice().empty, problem)
        count = sum(up(math.prod(size), ALIGNMENT) for size in shapes(problem))
        args: Args = {"gradients": normal(random, (count,)), "parameters": normal(random, memory.flat.shape)}
        args |= {"halves": np.full(count, 0x7E00, np.uint16), "block_totals": random.random((37, 2))}
        args |= {"totals": np.array([12.5, 3.0]), "blocks": 37, "rate": rate, "with_totals": int(rate > 0)}
        bounds: dict[str, Any] = {"parameters": 16 * UNIT, "halves": 8 * HALF_UNIT, "totals": 1e-12}
        grid = -(-sum((layer.fan_in + 1) * layer.fan_out for layer in problem.layers) // THREADS)
        how: dict[str, Any] = {"macros": macros(problem, memory.weight_begins, memory.bias_begins)}
        how |= {"besides": {"memory": memory, "problem": problem}}
        how |= {"readings": {"halves": lambda bits: bits.view(np.float16)}}
        yield Case("update_padded", (grid,), (THREADS,), args, bounds, **how)
