"""Weights rounded to float16, and the totals of blocks."""

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


def double(weights: Any, block_totals: Any, totals: Any, with_totals: int, **_: Any) -> dict[str, Any]:
    return {"halves": weights.astype(np.float16), "totals": totals + with_totals * block_totals.sum(axis=0)}


def cases(random: Generator) -> Iterator[Case]:
    memory = ParameterMemory(HostDevice().empty, problem := Problem(3, 2, (5,), 1))
    for i, numbers in enumerate((8, 128, 2 * EACH * THREADS, 2 * EACH * THREADS + 128)):
        args: Args = {"weights": normal(random, (numbers,)), "halves": np.full(numbers, 0x7E00, np.uint16)}
        args |= {"block_totals": random.random((37, 2)), "totals": np.array([12.5, 3.0])}
        args |= {"numbers": numbers, "blocks": 37, "with_totals": i % 2}
        how: dict[str, Any] = {"macros": macros(problem, memory.weight_begins, memory.bias_begins)}
        how |= {"readings": {"halves": lambda bits: bits.view(np.float16)}}
        grid = -(-numbers // (EACH * THREADS))
        yield Case("round_padded", (grid,), (THREADS,), args, {"halves": 0.0, "totals": 1e-12}, **how)
