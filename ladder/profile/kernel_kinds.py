"""The kind of a kernel, from its name alone: figures colour it and reports group it by that kind."""

from __future__ import annotations

import re

from ladder.records.profile import Kind

# The first match wins: a compiler's fused kernel carries the names of everything that it fuses.
KINDS: tuple[tuple[str, Kind], ...] = (
    (r"^(persistent|cluster)_|^last_layer|^hidden_", "fused"),
    (
        r"gemm|gemv|splitk|cutlass|cublas|xmma|^nvjet|^triton_(tem|mm)|_product_|_grams$|^streamed_"
        r"|product$|^rows_by_columns|^spread$|^add_outer",
        "gemm",
    ),
    (r"^triton|fusion", "fused"),
    (r"softmax|nll_loss|cross_entropy|argmax", "softmax"),
    (r"memcpy|memset|copy|fill|^expand_", "copy"),
    (r"adam|sgd|multi_tensor|foreach|_update$|^update_", "update"),
    (r"relu|threshold|clamp_min|reduce|bias|^globalKernel$|^sum_partials$", "layer"),
)


def kind_of(kernel: str) -> Kind:
    """The kind of a kernel of this name; `other` if no pattern matches."""
    return next((kind for pattern, kind in KINDS if re.search(pattern, kernel, re.IGNORECASE)), "other")
