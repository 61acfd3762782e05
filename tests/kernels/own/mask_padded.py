"""ReLU's mask on gradients: zeros of either sign, numbers below 0 and columns behind the units leave 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.random import Generator

from common.problem import Problem
from stages.engine.workspace import ParameterMemory
from stages.large_batch.large_batch_plain import EACH
from stages.large_batch.large_batch_wide import THREADS, macros
from tests.kernels.cases import Args, Case, normal
from tests.stages.numpy_parts import HostDevice


def double(outputs: Any, dsums: Any, units: int, **_: Any) -> dict[str, Any]:
    is_kept = (outputs.view(np.float16) > 0) & (np.arange(outputs.shape[1]) < units)
    return {"dsums": np.where(is_kept, dsums.view(np.float16).astype(np.float64), 0.0)}


def cases(random: Generator) -> Iterator[Case]:
    memory = ParameterMemory(HostDevice().empty, problem := Problem(3, 2, (5,), 1))
    for rows, columns, units in ((1, 8, 1), (33, 40, 35), (7, 304, 303), (5, 16, 16)):
        outputs = np.maximum(normal(random, (rows, columns)), 0).astype(np.float16)
        outputs[random.random(outputs.shape) < 0.1] = np.float16(-0.0)
        outputs[random.random(outputs.shape) < 0.1] *= -1
        outputs[:, units:] = 1
        args: Args = {"outputs": outputs.view(np.uint16)}
        args |= {"dsums": normal(random, (rows, columns)).astype(np.float16).view(np.uint16)}
        args |= {"rows": rows, "columns": columns, "units": units}
        how: dict[str, Any] = {"macros": macros(problem, memory.weight_begins, memory.bias_begins)}
        how |= {"readings": {"dsums": lambda bits: bits.view(np.float16)}}
        grid = -(-rows * columns // (EACH * THREADS))
        yield Case("mask_padded", (grid,), (THREADS,), args, {"dsums": 0.0}, **how)
