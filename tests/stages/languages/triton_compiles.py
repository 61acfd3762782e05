"""Compiles every configuration of our Triton kernels, for the GPU named by its capability; prints a line for each."""

from __future__ import annotations

import json
import sys
from typing import Any

from common.cuda.triton_code import compile_triton
from stages.languages import triton_head, triton_kernels, triton_products, triton_update

F32, ALIGNED = ("fp32", False), ("*fp32", True)
SHAPES = ((128, 10, 784, 0, 0, 1), (128, 256, 784, 0, 0, 2), (128, 256, 10, 0, 1, 3), (784, 10, 128, 1, 0, 0))


def cases() -> list[tuple[str, Any, dict[str, int], Any]]:
    """Kernels, kinds of their arguments, constants, configurations."""
    found: list[tuple[str, Any, dict[str, int], Any]] = []
    for totals in (False, True):
        sizes = {"ROWS": 128, "CLASSES": 10, "WITH_TOTALS": int(totals)}
        kinds: Any = (ALIGNED, ("*i32", True), ALIGNED, ("*fp64", True))
        found.append(("triton_softmax_xent", kinds, sizes, triton_head.configs(128, 10, totals)))
    for outputs in (10, 256):
        sizes = {"BATCH": 128, "INPUTS": 784, "OUTPUTS": outputs}
        found.append(("triton_update", (*[ALIGNED] * 4, F32), sizes, triton_update.configs(outputs)))
    for m, n, k, a, b, fusion in SHAPES:
        sizes = {"M": m, "N": n, "K": k, "TRANS_A": a, "TRANS_B": b, "ADDS": a, "FUSION": fusion, "MASK_BYTES": 32}
        kinds = (*[ALIGNED] * 4, ("*u8", True), ALIGNED, ("*i32", True), F32, F32)
        found.append(("triton_product", kinds, sizes, triton_products.configs(m, n, k)))
    return found


if __name__ == "__main__":
    for name, kinds, sizes, configs in cases():
        for config in configs:
            constants = {**sizes, **dict(config.blocks)}
            function = getattr(triton_kernels, name)
            code = compile_triton(function, kinds, constants, config.warps, config.stages, int(sys.argv[1]))
            has_tf32 = "tf32" in code.asm["ptx"] or "mma" in code.asm["ptx"]
            told = {"name": name, "config": str(config), "shared": code.metadata.shared, "has_tf32": has_tf32}
            sys.stdout.write(json.dumps(told) + "\n")
