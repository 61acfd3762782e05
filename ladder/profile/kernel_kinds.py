"""What a kernel is for, by its name: our own by what they are called, a library's by what such kernels are called."""

from __future__ import annotations

import re

from ladder.records.profile import Kind

OWN: dict[str, Kind] = {
    "gemm_naive": "gemm",
    "gemm_shaped": "gemm",
    "tile_product_f32": "gemm",
    "tile_product_tf32": "gemm",
    "tile_product_bf16": "gemm",
    "tile_product_f16": "gemm",
    "tile_product_split": "gemm",
    "tile_product_u8": "gemm",
    "streamed_forward_split": "gemm",
    "streamed_forward_bf16": "gemm",
    "streamed_back_split": "gemm",
    "streamed_back_bf16": "gemm",
    "add_bias": "layer",
    "relu": "layer",
    "relu_backward": "layer",
    "bias_gradient": "layer",
    "softmax": "softmax",
    "softmax_xent_backward": "softmax",
    "softmax_xent_totals": "softmax",
    "softmax_xent": "softmax",
    "last_layer": "fused",
    "bias_update": "update",
    "sgd_update": "update",
    "expand_pixels": "copy",
    "neighbour_grams": "gemm",
    "persistent_grid": "fused",
    "persistent_cluster": "fused",
    "cluster_mlp": "fused",
}

# In this order: a compiler's fused kernel has the names of all that it fuses in its own.
LIBRARY: tuple[tuple[str, Kind], ...] = (
    (r"gemm|gemv|splitk|cutlass|cublas|xmma|^nvjet|^triton_(tem|mm)", "gemm"),
    (r"^triton|fusion", "fused"),
    (r"softmax|nll_loss|cross_entropy|argmax", "softmax"),
    (r"memcpy|memset|copy|fill", "copy"),
    (r"adam|sgd|multi_tensor|foreach", "update"),
    (r"relu|threshold|clamp_min|reduce|bias|^globalKernel$", "layer"),
)


def kind_of(kernel: str) -> Kind:
    """What a kernel of this name is for; `other` where the name does not tell."""
    if kernel in OWN:
        return OWN[kernel]
    return next((kind for pattern, kind in LIBRARY if re.search(pattern, kernel, re.IGNORECASE)), "other")
