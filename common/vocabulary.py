"""The words that stages, the harness and recorded results share."""

from __future__ import annotations

import re
from typing import Literal, get_args

Precision = Literal["float32", "tf32", "bfloat16", "float16"]
"""The format of a product's factors."""

Regime = Literal["host", "graph", "one kernel", "CPU"]
"""How a rung's kernels start: by the host, in a graph, as one kernel that runs an epoch; or on the CPU."""

STAGE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
"""A stage's name, which names files, folders and logs, and stands in lists with commas and dots."""

MOST_LETTERS = 44  # of the words for what a rung changes: a figure has no room for more

Group = Literal["reference", "cpu", "ladder", "beyond", "memory", "data", "shapes", "languages", "devices"]
"""Which table a stage stands in: `ladder` is the six classic rungs, `beyond` every rung above them."""

BLOCKS: dict[Group, str] = {
    "reference": "References",
    "memory": "Ablations: memory",
    "data": "Ablations: data path",
    "shapes": "Ablations: launch shapes",
    "languages": "Ablations: languages",
    "devices": "Several GPUs",
}
"""The headings of a table's blocks below the ladder, in their order."""

ABLATIONS = tuple(group for group in BLOCKS if group != "reference")
"""They vary a choice that the ladder holds fixed; `all` does not include them."""

EARLIER: tuple[Group, ...] = ("shapes",)
"""Groups of recorded stages that are none of today's."""

GROUPS: dict[str, tuple[Group, ...]] = {
    "all": tuple(group for group in get_args(Group) if group not in ABLATIONS),
    "classic": ("ladder",),  # not `ladder`: `make ladder` runs all
    "references": ("reference",),
    **{group: (group,) for group in ("beyond", "cpu", *ABLATIONS) if group not in EARLIER},
}
"""The words of `--stages` that name several stages."""

CONTENDERS = "contenders"
"""The word of `--stages` for every rung that may be the fastest on a network."""
