"""Parameters to padded weights and back; what lies between them stays as it is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from numpy.random import Generator

from common.problem import Problem
from stages.engine.workspace import ParameterMemory
from stages.large_batch.large_batch_wide import ALIGNMENT, THREADS, macros, shapes
from stages.large_batch.layout import up
from tests.kernels.cases import Args, Case, normal
from tests.stages.numpy_parts import HostDevice


def double(parameters: Any, weights: Any, back: int, problem: Problem, memory: Any) -> dict[str, Any]:
    flat, padded, begin = parameters.copy(), weights.copy(), 0
    for layer, at, bias, size in zip(
        problem.layers, memory.weight_begins, memory.bias_begins, shapes(problem), strict=True
    ):
        place = slice(begin, begin + math.prod(size))
        own = padded[place].reshape(size)[: layer.fan_in + 1, : layer.fan_out]
        inner, biases = flat[at : at + layer.fan_in * layer.fan_out], flat[bias : bias + layer.fan_out]
        if back:
            inner[...], biases[...] = own[:-1].ravel(), own[-1]
        else:
            own[:-1], own[-1] = inner.reshape(layer.fan_in, layer.fan_out), biases
        begin += up(math.prod(size), ALIGNMENT)
    return {"parameters": flat, "weights": padded}


def cases(random: Generator) -> Iterator[Case]:
    for i, (hidden, classes) in enumerate((((1,), 10), ((40, 7), 8), ((9, 33, 20), 10), ((5,), 1))):
        problem = Problem(17, classes, hidden)
        memory = ParameterMemory(HostDevice().empty, problem)
        count = sum(up(math.prod(size), ALIGNMENT) for size in shapes(problem))
        args: Args = {"parameters": normal(random, memory.flat.shape), "weights": normal(random, (count,))}
        args |= {"back": i % 2}
        grid = -(-sum((layer.fan_in + 1) * layer.fan_out for layer in problem.layers) // THREADS)
        how: dict[str, Any] = {"macros": macros(problem, memory.weight_begins, memory.bias_begins)}
        how |= {"besides": {"memory": memory, "problem": problem}}
        yield Case("move_padded", (grid,), (THREADS,), args, {"parameters": 0.0, "weights": 0.0}, **how)
