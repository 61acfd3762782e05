"""The kind of a kernel: figures colour it and reports group it by that kind.

A kernel of ours declares its kind in the comment above it: `Kind: gemm.` A library's or a compiler's is known by its
name alone.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import get_args

from ladder.records.profile import Kind

STAGES = Path(__file__).resolve().parents[2] / "stages"
KINDS: tuple[Kind, ...] = get_args(Kind)
# A comment's kind, then the function that it stands above; a file has several.
DECLARED = re.compile(
    r"Kind:\s+(\w+)\.(?:(?!Kind:).)*?(?:__global__ void (?:__launch_bounds__\([^)]*\) )?|\ndef )(\w+)\(", re.S
)

# Kernels that are not ours. The first match wins: a fused kernel carries the names of everything that it fuses.
FOREIGN: tuple[tuple[str, Kind], ...] = (
    (r"gemm|gemv|splitk|cutlass|cublas|xmma|^nvjet|^triton_(tem|mm)", "gemm"),
    (r"^triton|fusion", "fused"),
    (r"softmax|nll_loss|cross_entropy|argmax", "softmax"),
    (r"memcpy|memset|copy|fill", "copy"),
    (r"adam|sgd|multi_tensor|foreach", "update"),
    (r"relu|threshold|clamp_min|reduce|bias|^globalKernel$", "layer"),
)


def kind_of(kernel: str) -> Kind:
    """The kind of a kernel of this name; `other` if neither a file of ours nor a pattern knows it."""
    if kernel in declared():
        return declared()[kernel]
    return next((kind for pattern, kind in FOREIGN if re.search(pattern, kernel, re.IGNORECASE)), "other")


@cache
def declared() -> dict[str, Kind]:
    """The kinds that our kernels declare, by their names; ValueError for an unknown kind."""
    kinds: dict[str, Kind] = {}
    for file in (*STAGES.glob("kernels/**/*.cu"), *STAGES.glob("cpu/kernels/*.py"), *STAGES.glob("languages/*.py")):
        for kind, name in DECLARED.findall(file.read_text(encoding="utf-8")):
            if kind not in KINDS:
                raise ValueError(f"{file}: kernel {name} has the kind {kind}; choose from {', '.join(KINDS)}")
            kinds[name] = kind
    return kinds
