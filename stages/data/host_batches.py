"""Batches in host memory, each contiguous for a single copy: its images, then its labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.data.dataset import Split
from common.problem import Problem
from stages.engine.workspace import Array


def packed(problem: Problem, train: Split) -> NDArray[np.float32]:
    """All full batches as rows (steps, B * I + B): images (B, I) float32, then the bits of labels (B,) int32."""
    batch, steps = problem.batch_size, problem.steps(len(train.images))
    used = train.first(steps * batch)
    rows = np.empty((steps, batch * (problem.inputs + 1)), np.float32)
    rows[:, : batch * problem.inputs] = used.pixels().reshape(steps, -1)
    rows[:, batch * problem.inputs :] = used.labels.astype(np.int32).view(np.float32).reshape(steps, batch)
    return rows


def unpacked(row: Array, problem: Problem) -> tuple[Array, Array]:
    """Images (B, I) float32 and labels (B,) int32 of one row, as views."""
    images, labels = row[: problem.batch_size * problem.inputs], row[problem.batch_size * problem.inputs :]
    return images.reshape(problem.batch_size, problem.inputs), labels.view(np.int32)
