"""Has a float64 training draw the random numbers of float32, so that a model with noise has a float64 reference.

PyTorch draws other numbers for another precision, even from the same seed. While `in_float32` is open, a random
operation whose result would be float64 draws in float32, and its result is widened.
"""

from __future__ import annotations

from typing import Any

FUNCTIONS = {
    "bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial", "normal",
    "normal_", "normal_functional", "rand", "rand_like", "randn", "randn_like", "uniform", "uniform_",
}  # fmt: skip
"""Names of operations that draw; what a training computes with the numbers stays in float64."""


def in_float32() -> Any:
    """A context in which draws in float64 are those in float32."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves, tree_map

    def narrow(leaf: Any) -> Any:
        if leaf is torch.float64:
            return torch.float32
        return leaf.float() if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64 else leaf

    class Float32Draws(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self,
            function: Any,
            types: Any,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            kwargs = kwargs or {}
            if function.overloadpacket.__name__ not in FUNCTIONS:
                return function(*args, **kwargs)
            narrowed = tree_map(narrow, (args, kwargs))
            if all(old is new for old, new in zip(tree_leaves((args, kwargs)), tree_leaves(narrowed), strict=True)):
                return function(*args, **kwargs)
            drawn = function(*narrowed[0], **narrowed[1])
            return args[0].copy_(drawn) if function._schema.is_mutable else _widened(drawn)

    return Float32Draws()


def _widened(drawn: Any) -> Any:
    return drawn.double() if drawn.is_floating_point() else drawn
