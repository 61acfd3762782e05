"""The words that stages, the harness and recorded results share."""

from __future__ import annotations

import re
from typing import Literal

Precision = Literal["float32", "tf32", "bfloat16", "float16"]
"""The format of a product's factors."""

Regime = Literal["host", "graph", "one kernel", "CPU"]
"""How a rung's kernels start: by the host, in a graph, as one kernel that runs an epoch; or on the CPU."""

STAGE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
"""A stage's name, which names files, folders and logs, and stands in lists with commas and dots."""

MOST_LETTERS = 44  # of the words for what a rung changes: a figure has no room for more

Group = Literal["reference", "cpu", "ladder", "beyond", "memory", "data", "shapes", "languages", "devices"]
"""Which table a stage stands in: `ladder` is the six classic rungs, `beyond` every rung above them."""
