"""PyTorch with our kernels: the products and the head of `fused-bias` as operations of `torch.library`.

Why: a PyTorch user need not leave PyTorch for a kernel. Any launch on PyTorch's stream can be an operation that takes
and gives tensors, and that a graph captures like PyTorch's own.

Change: the kernels. A step is four kinds of operations: a layer with bias and ReLU, the head, the gradient of a layer's
inputs, and the update. Each calls what `fused-bias` calls. Data, memory, stream and captured graph are PyTorch's, as
in `torch-graph`. Weights lie in memory as (inputs, outputs); a `Linear` holds the transposed view. There is nothing
left to fuse, so nothing is compiled.

Expect: the time of `fused-bias`, since a graph holds the same kernels and no trace of who captured it: two thirds of
`torch-graph`'s for softmax regression, and for a hidden layer of 256.

Predict: on H100: 784-10, batch 128: 1 x of fused-bias; 784-256-10, batch 128: 1 x of fused-bias.

Found: as predicted, it takes the time of `fused-bias`: a graph holds the same kernels, however it was captured. The
expected lead over `torch-graph` is gone for softmax regression, since that reference was tuned. With a hidden layer of
256 a PyTorch user still gains about a fifth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from common.cuda.epilogue import Fusion, mask_shape
from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer
from stages.engine.recipe import FusingGemm
from stages.engine.stage import Stage
from stages.engine.workspace import Setup
from stages.fusion.head_kernel import HeadKernel
from stages.references.torch_common import RunEpoch, Tensor, TorchSetup, TorchTrainer
from stages.references.torch_graph import captured, use_one_stream
from stages.tiles.skinny_gemm import SkinnyGemm


class Kernels:
    """Our kernels on tensors of PyTorch: all contiguous, weights (I, O)."""

    def __init__(self, device: Any, gemm: FusingGemm, head: Callable[[int, int], Any]) -> None:
        self._view = device.view
        self._gemm = gemm
        self._head = head  # for logits (rows, classes)
        self._fusions: dict[tuple[Any, ...], Fusion] = {}  # one object each: it is part of a product's identity

    def _fusion(self, kind: Any, bias: Tensor | None, mask: Tensor | None) -> Fusion:
        key = kind, *(None if one is None else one.data_ptr() for one in (bias, mask))
        if key not in self._fusions:
            views = [None if one is None else self._view(one) for one in (bias, mask)]
            self._fusions[key] = Fusion(kind, *views)
        return self._fusions[key]

    def linear(self, inputs: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
        """Outputs (B, O); with a mask, which it writes, after ReLU."""
        out = inputs.new_empty((inputs.shape[0], weight.shape[1]))
        fusion = self._fusion("bias" if mask is None else "relu_bias", bias, mask)
        self._gemm.fused(self._view(inputs), self._view(weight), self._view(out), fusion)
        return out

    def linear_backward(self, doutput: Tensor, weight: Tensor, mask: Tensor) -> Tensor:
        """The gradient of a layer's inputs (B, I), cut off where their ReLU was."""
        out = doutput.new_empty((doutput.shape[0], weight.shape[0]))
        fusion = self._fusion("relu_backward", None, mask)
        self._gemm.fused(self._view(doutput), self._view(weight), self._view(out), fusion, trans_b=True)
        return out

    def cross_entropy(self, logits: Tensor, labels: Tensor, totals: Tensor, with_totals: bool) -> Tensor:
        """The gradient of the mean loss (B, C); adds the summed loss and the number correct to the totals."""
        out = logits.new_empty(logits.shape)
        self._head(*logits.shape)(*map(self._view, (logits, labels, out, totals)), with_totals)
        return out

    def update(self, inputs: Tensor, doutput: Tensor, weight: Tensor, bias: Tensor, rate: float) -> None:
        """One step of SGD for a layer, in place."""
        fusion = self._fusion("bias_row", bias, None)
        left, right, out = map(self._view, (inputs, doutput, weight))
        self._gemm.fused(left, right, out, fusion, trans_a=True, alpha=-rate, beta=1.0)


SCHEMAS = {
    "linear": "(Tensor inputs, Tensor weight, Tensor bias, Tensor(a!)? mask) -> Tensor",
    "linear_backward": "(Tensor doutput, Tensor weight, Tensor mask) -> Tensor",
    "cross_entropy": "(Tensor logits, Tensor labels, Tensor(a!) totals, bool with_totals) -> Tensor",
    "update": "(Tensor inputs, Tensor doutput, Tensor(a!) weight, Tensor(b!) bias, float rate) -> ()",
}
MUTATED = {"linear": ("mask",), "linear_backward": (), "cross_entropy": ("totals",), "update": ("weight", "bias")}


def register(kernels: Kernels, namespace: str = "ladder") -> Any:
    """The operations `torch.ops.ladder`, once a process."""
    import torch

    for name, schema in SCHEMAS.items():
        run = getattr(kernels, name)
        torch.library.custom_op(f"{namespace}::{name}", run, mutates_args=MUTATED[name], schema=schema)
    return getattr(torch.ops, namespace)


@cache
def _operations() -> Any:
    """Our kernels on PyTorch's stream."""
    import torch

    from common.cuda.gpu import Gpu

    gpu = Gpu(torch.cuda.current_stream().cuda_stream)
    setup = Setup(Problem(inputs=1, classes=1), gpu, None)  # type: ignore[arg-type]  # float32 tiles ask for neither
    return register(Kernels(gpu, SkinnyGemm(setup), cache(partial(HeadKernel, setup))))


def prepare(setup: TorchSetup, operations: Any = None) -> RunEpoch:
    """Capture one graph without and one with totals, by these operations or ours."""
    import torch

    operations = operations or _operations()
    for linear in setup.linears:
        transposed = torch.empty(linear.weight.T.shape, device=setup.device)
        linear.weight = torch.nn.Parameter(transposed.T, requires_grad=False)
    layers = [(linear.weight.detach().T, linear.bias.detach()) for linear in setup.linears]
    batch, rate = setup.problem.batch_size, setup.problem.learning_rate
    masks = [
        torch.zeros(mask_shape(batch, weight.shape[1]), dtype=torch.uint8, device=setup.device) for weight, _ in layers
    ]
    masks[-1] = None
    totals = torch.zeros(2, dtype=torch.float64, device=setup.device)
    batches = [(images, labels.to(torch.int32)) for images, labels in setup.resident_batches()]

    def step(images: Tensor, labels: Tensor, due: bool) -> None:
        inputs = [images]
        for (weight, bias), mask in zip(layers, masks, strict=True):
            inputs.append(operations.linear(inputs[-1], weight, bias, mask))
        doutput = operations.cross_entropy(inputs.pop(), labels, totals, due)
        for index in reversed(range(len(layers))):
            weight, bias = layers[index]
            below = operations.linear_backward(doutput, weight, masks[index - 1]) if index else None
            operations.update(inputs[index], doutput, weight, bias, rate)
            doutput = below

    def epoch(due: bool) -> None:
        totals.zero_()
        for images, labels in batches:
            step(images, labels, due)
        if due:
            setup.totals.loss_sum.add_(totals[0] / batch)
            setup.totals.correct.add_(totals[1].to(torch.int64))

    if not setup.on_gpu:
        return epoch
    with torch.no_grad():
        graphs = {due: captured(partial(epoch, due)) for due in (False, True)}
    return partial(_replay, graphs, (layers, masks, totals, batches))


def _replay(graphs: Mapping[bool, Any], kept: object, due: bool) -> None:  # noqa: ARG001
    """Run an epoch. The arguments keep the tensors alive: a graph stores addresses only."""
    graphs[due].replay()


def build(problem: Problem, train: Split) -> Trainer:
    """A trainer whose epoch is one graph of our kernels."""
    use_one_stream()
    return TorchTrainer(problem, train, prepare)


STAGE = Stage(
    "torch-op",
    "PyTorch, our kernels as its operations",
    "languages",
    "float32",
    ("torch-cuda", "cuda", "cublas"),
    build,
    words="PyTorch with our kernels as operations",
)
