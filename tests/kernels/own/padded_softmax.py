"""The head on padded logits: what lies behind the classes is not read, and its gradients are zeros."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.random import Generator

from common.problem import Problem
from stages.engine.workspace import ParameterMemory
from stages.large_batch.large_batch_wide import ROWS, THREADS, macros, shapes
from tests.kernels import doubles
from tests.kernels.cases import HALF_UNIT, Args, Case, exp_error, labels_of, logits_of, poison
from tests.stages.numpy_parts import HostDevice


def double(logits: Any, labels: Any, block_totals: Any, rows: int, scale: float, with_totals: int, **known: Any) -> Any:
    classes, dlogits = known["classes"], np.zeros_like(logits)
    seen = logits[:, :classes]
    dlogits[:, :classes] = scale * (doubles.softmax(seen, seen, rows, classes)["probs"] - np.eye(classes)[labels])
    if with_totals:
        parts = np.array_split(np.arange(rows), range(ROWS, rows, ROWS))
        each = [doubles.softmax_xent_totals(seen[own], labels[own], np.zeros(2), len(own), classes) for own in parts]
        block_totals = np.stack([one["totals"] for one in each])
    return {"dlogits": dlogits, "block_totals": block_totals}


def cases(random: Generator) -> Iterator[Case]:
    for i, (rows, classes) in enumerate([(1, 1), (7, 2), (16, 10), (21, 33), (9, 62), (5, 8)]):
        problem = Problem(3, classes, (5,), rows)
        memory, columns = ParameterMemory(HostDevice().empty, problem), shapes(problem)[-1][1]
        logits, labels, blocks = poison((rows, columns)), labels_of(random, rows, classes), -(-rows // ROWS)
        logits[:, :classes] = logits_of(random, rows, classes)
        args: Args = {"logits": logits, "labels": labels, "dlogits": np.full((rows, columns), 0x7E00, np.uint16)}
        args |= {"block_totals": np.full((blocks, 2), -1.0), "rows": rows, "scale": 4.0, "with_totals": i % 2}
        error = exp_error(logits[:, :classes])
        bounds: dict[str, Any] = {"dlogits": 4 * (2 * error + HALF_UNIT) + 2.0**-24}
        bounds["block_totals"] = np.array([ROWS * 2 * error, 0.0])
        how: dict[str, Any] = {"macros": macros(problem, memory.weight_begins, memory.bias_begins)}
        how |= {"besides": {"classes": classes}, "readings": {"dlogits": lambda bits: bits.view(np.float16)}}
        yield Case("padded_softmax", (blocks,), (THREADS,), args, bounds, **how)
