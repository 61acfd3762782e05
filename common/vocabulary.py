"""The words that stages, the harness and recorded results share."""

from __future__ import annotations

from typing import Literal

Precision = Literal["float32", "tf32", "bfloat16", "float16"]
"""The format of a product's factors."""

Group = Literal["reference", "cpu", "ladder", "beyond", "memory", "data", "shapes", "devices"]
"""Which table a stage stands in: `ladder` is the six classic rungs, `beyond` every rung above them."""
