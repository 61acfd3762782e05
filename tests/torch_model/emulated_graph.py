"""CUDA graphs on the CPU: a function's tensor operations are recorded once, and each replay does them again.

As in a graph, a replay reads and writes the tensors of the recording at their addresses, and knows nothing of what
Python computed between the operations. As a capture does, the recording leaves every tensor as it was. It has to run
the operations, so it keeps the contents of each tensor that it meets, and puts them back.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from common.errors import MisfitError

WAITS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
"""Tags of the operations for which a host waits, which no graph holds."""
SUPPORTED = "_get_capturable_supported_devices"
FOREACH = "_get_foreach_kernels_supported_devices"


class Recording(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Records the operations inside of its block, and puts back what they changed."""

    def __init__(self) -> None:
        super().__init__()
        # By whether gradients are on: each operation, its arguments, and the places and tensors of what it makes.
        self._operations: list[tuple[bool, list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]]]] = []
        self._made: set[int] = set()  # addresses of storages that the recorded operations make
        self._kept: dict[int, tuple[Any, Any]] = {}  # the others, with their contents before

    def __enter__(self) -> Self:
        self._generator = torch.get_rng_state()
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        for storage, contents in self._kept.values():
            storage.copy_(contents)
        self._kept.clear()
        torch.set_rng_state(self._generator)

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, and note its arguments and what it makes."""
        if any(tag in operation.tags for tag in WAITS):
            raise MisfitError(f"the step makes the host wait ({operation}), which a graph cannot hold")
        kwargs = kwargs or {}
        for storage in map(_storage, _tensors((args, kwargs))):
            if storage.data_ptr() not in self._made and storage.data_ptr() not in self._kept:
                self._kept[storage.data_ptr()] = storage, storage.clone()
        made = operation(*args, **kwargs)
        results = []
        for at, tensor in enumerate(_tensors(made)):
            address = _storage(tensor).data_ptr()
            if address not in self._made and address not in self._kept:
                results.append((at, tensor.detach()))
                self._made.add(address)
        shared = tree_map_only(torch.Tensor, lambda tensor: tensor.detach(), (args, kwargs))
        if not self._operations or self._operations[-1][0] != torch.is_grad_enabled():
            self._operations.append((torch.is_grad_enabled(), []))
        self._operations[-1][1].append((operation, *shared, results))
        return made

    def replay(self) -> None:
        """Do the operations again, into the same memory."""
        for learns, operations in self._operations:
            with torch.set_grad_enabled(learns):  # some operations keep more for a backward pass
                for operation, args, kwargs, results in operations:
                    made = operation(*args, **kwargs)
                    if results:
                        new = _tensors(made)
                        for at, old in results:
                            old.copy_(new[at])


def recorded(body: Callable[[], None]) -> Callable[[], None]:
    """Record a function as a CUDA graph would; its replay is returned. A `Recorder` for trainers and judges."""
    with Recording() as recording:
        body()
    return recording.replay


@contextmanager
def capturable_on_cpu() -> Iterator[None]:
    """Have all optimizers take `capturable=True` on the CPU, and `foreach` by default, as on a GPU.

    Without `foreach`, PyTorch's capturable Adam divides by the rate: once that is 0, what never had a gradient is NaN.
    """
    modules = [import_module(f"torch.optim.{found.name}") for found in pkgutil.iter_modules(torch.optim.__path__)]
    asking = [(module, name) for module in modules for name in (SUPPORTED, FOREACH) if hasattr(module, name)]
    before = [getattr(module, name) for module, name in asking]
    try:
        for module, name in asking:
            setattr(module, name, lambda *_args, **_options: ["cpu", "cuda"])
        yield
    finally:
        for (module, name), function in zip(asking, before, strict=True):
            setattr(module, name, function)


def _tensors(nest: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(nest) if isinstance(leaf, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> Any:
    return tensor.untyped_storage()
