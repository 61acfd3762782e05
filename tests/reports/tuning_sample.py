"""A tuning record with invented times: two products, and the narrower panels of records from before version 0.2."""

from __future__ import annotations

from ladder.records.run import Spread
from ladder.records.tuning import TriedShape, TunedKernel, TuningRecord
from stages.shapes.launch_shapes import AXES, SHAPES, Shape

SIZES = {
    "gemm_naive": ("128 x 10 over 784", "784 x 10 over 128, a transposed"),
    "add_bias": ("128 x 10",),
    "softmax": ("128 x 10",),
    "softmax_xent_backward": ("128 x 10",),
    "softmax_xent_totals": ("128 x 10",),
    "bias_gradient": ("128 x 10",),
    "sgd_update": ("7,872",),
}
NARROW_AXES = ("threads of a block", "outputs of a thread")
THREADS = (256, 32, 64, 128, 512, 1024)
REFUSED = "CUDAError: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"


def tuning() -> TuningRecord:
    kernels = [_kernel(name, sizes) for name, all_sizes in SIZES.items() for sizes in all_sizes]
    command = "python run_ladder.py tune"
    return TuningRecord("2026-11-21T17:00:00+00:00", command, "NVIDIA H200", "784-10", 128, kernels)


def _kernel(name: str, sizes: str) -> TunedKernel:
    """Blocks of four warps are fastest, and so are threads with two outputs; 1,024 threads with 16 are refused."""
    product = name == "gemm_naive"
    shapes = SHAPES if product else [Shape((threads, 1), (tile, 1)) for tile in (1, 2, 4, 8) for threads in THREADS]
    tried, times = [], []
    for shape in shapes:
        threads, outputs = shape.block[0] * shape.block[1], shape.tile[0] * shape.tile[1]
        time = (20.0 if product else 2.0) * max(threads / 128, 128 / threads) ** 0.4
        time *= max(outputs / 2, 2 / outputs) ** 0.3 + 0.01 * shape.block[0] / 64
        refused = threads * outputs > 1 << 13
        times.append(float("inf") if refused else time)
        labels = shape.labels if product else (str(shape.block[0]), str(shape.tile[0]))
        spread = None if refused else Spread(time, time * 0.99, time * 1.04)
        tried.append(TriedShape(*labels, spread, REFUSED if refused else ""))
    chosen = times.index(min(times)) if name != "sgd_update" else 0
    return TunedKernel(name, sizes, AXES if product else NARROW_AXES, tried, chosen, was_kept=name == "softmax")
