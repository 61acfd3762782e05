"""A user's model, its data and its schedule, as trainers use them; `ladder.torch_model.contract` reads them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

Batch = tuple[Any, Any]
"""A step's inputs and targets, each a tensor or a nest of tensors."""
GRAIN = 8  # the order's length is a multiple of it, so that graphs of eight steps end where it ends
MOST_ROWS = 4096  # of the order: more batches than a timed run of eager steps takes
MOST_STEPS = 50_000  # of a schedule that trainers follow; the exported loop has no limit
NUMBERS = (int, float)


@dataclass(frozen=True)
class UserModel:
    """What a user's file defines."""

    path: Path
    model: Callable[[], Any]
    loss: Callable[[Any, Any], Any]
    optimizer: Callable[[list[Any]], Any]
    data: Callable[[], Any]
    batch_size: int
    scheduler: Callable[[Any], Any] | None = None
    after_backward: Callable[[Any], Any] | None = None
    augment: Callable[[Batch], Batch] | None = None
    metrics: Callable[[Any, Any], dict[str, Any]] | None = None
    metric_names: tuple[str, ...] = ()
    validation: Callable[[], Any] | None = None
    epochs: int = 10
    draws: bool = True  # a step draws random numbers, for dropout, in augment or elsewhere
    outside: Callable[[], dict[str, Any]] = field(default=dict)
    """The tensors and numbers that the file's own module holds, by name."""


class Rows:
    """The batches of a DataLoader: rows of the order without end, from `row` on, which may be set at any time."""

    def __init__(self, order: Any, row: int = 0) -> None:
        self._order, self.row = order, row

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            row, self.row = self.row, self.row + 1
            yield self._order[row % len(self._order)].tolist()


@dataclass
class Data:
    """The training data; `inputs` and `targets` are nests of tensors of the same length, or None if only read by item.

    `order` (R, B) holds the rows of each batch: permutations of the data, one after the other, without part batches.
    """

    dataset: Any
    order: Any
    inputs: Any
    targets: Any
    device: Any

    def loader(self, row: int, **options: Any) -> Iterator[Batch]:
        """Batches by a DataLoader from this row of the order on."""
        return iter(self.data_loader(Rows(self.order, row), **options))

    def data_loader(self, rows: Iterable[list[int]], **options: Any) -> Any:
        """A DataLoader whose batches have these rows."""
        from torch.utils.data import DataLoader

        if self.device.type != "cuda":
            options = {name: value for name, value in options.items() if name != "pin_memory"}
        if options.get("num_workers"):
            options["multiprocessing_context"] = "fork"  # the user's Dataset need not be picklable
        return DataLoader(self.dataset, batch_sampler=rows, **options)

    def as_given(self, batch: Batch) -> Batch:
        """A loader's batch in the nests that `data()` returned: a DataLoader makes lists of tuples."""
        if self.inputs is None:
            return batch
        inputs, targets = batch
        return _shaped(inputs, self.inputs), _shaped(targets, self.targets)

    @cached_property
    def resident(self) -> Batch:
        """All rows on the device; one copy for all trainers of a process."""
        whole: Batch = nested(lambda tensor: tensor.to(self.device), (self.inputs, self.targets))
        return whole

    @property
    def resident_bytes(self) -> int:
        """What the rows take of the device, if they lie there already."""
        whole = self.__dict__.get("resident")
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(whole)) if whole else 0

    @cached_property
    def order_on_device(self) -> Any:
        """The order on the device."""
        return self.order.to(self.device)


def _shaped(nest: Any, given: Any) -> Any:
    """A nest with the containers of another one of the same parts."""
    if hasattr(given, "dtype"):
        return nest
    if type(given) in (tuple, list):
        return type(given)([_shaped(part, wanted) for part, wanted in zip(nest, given, strict=True)])
    if type(given) is dict:
        return {name: _shaped(nest[name], wanted) for name, wanted in given.items()}
    from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

    return tree_unflatten(tree_leaves(nest), tree_structure(given))


def nested(function: Callable[[Any], Any], nest: Any) -> Any:
    """A nest of tensors with the function of each tensor in its place."""
    if hasattr(nest, "dtype"):
        return function(nest)
    if type(nest) in (tuple, list):
        return type(nest)([nested(function, part) for part in nest])
    if type(nest) is dict:
        return {name: nested(function, part) for name, part in nest.items()}
    from torch.utils._pytree import tree_map  # knows every other kind, and takes several times as long

    return tree_map(lambda leaf: function(leaf) if hasattr(leaf, "dtype") else leaf, nest)


def tensors_of(nest: Any) -> list[Any]:
    """The tensors of a nest."""
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(nest) if hasattr(leaf, "dtype")]


def order_of(rows: int, batch_size: int, seed: int) -> Any:
    """An order (R, B) of whole batches: as many permutations as it takes."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    steps = rows // batch_size
    wanted = max(GRAIN, min(MOST_ROWS, -(-MOST_ROWS // steps) * steps) // GRAIN * GRAIN)
    passes = [
        torch.randperm(rows, generator=generator)[: steps * batch_size].view(steps, batch_size)
        for _ in range(-(-wanted // steps))
    ]
    return torch.cat(passes)[:wanted].contiguous()


@dataclass(frozen=True)
class Schedule:
    """What the user's scheduler sets at each step, found by running it on an optimizer of shadow parameters."""

    columns: tuple[tuple[int, str], ...]  # group and name of each hyperparameter that moves
    rows: list[list[float]]  # its value at each step; one row without a scheduler
    ends: bool = False  # the scheduler refuses steps after the last row

    @property
    def moving(self) -> list[str]:
        """The names of the hyperparameters that move."""
        return sorted({name for _, name in self.columns})

    @property
    def steps(self) -> int:
        """The steps that it covers; without movement there is no end."""
        return len(self.rows) - self.ends if self.columns or self.ends else 1 << 40

    def values(self, column: int, steps: int) -> list[float]:
        """What one of them is in the first so many steps, or in those that it covers."""
        return [row[column] for row in self.rows[: min(steps, self.steps)]]

    @property
    def last_change(self) -> int:
        """The first step of those at the end that all have the same numbers."""
        return max((step for step, (old, new) in enumerate(itertools.pairwise(self.rows), 1) if old != new), default=0)


def turns(values: Sequence[float]) -> list[int]:
    """The places of the values after which they rise where they fell, or fall where they rose."""
    found, before = [], 0
    for place, (old, new) in enumerate(itertools.pairwise(values)):
        way = (new > old) - (new < old)
        if way * before < 0:
            found.append(place)
        before = way or before
    return found


def schedule_of(user: UserModel, shapes: Sequence[Any], steps: int) -> Schedule:
    """The schedule of a training of so many steps; parameters have these shapes."""
    import torch

    if user.scheduler is None:
        return Schedule((), [[]])
    shadows = [torch.nn.Parameter(torch.zeros(()).expand(shape)) for shape in shapes]
    optimizer = user.optimizer(shadows)
    seen: list[dict[tuple[int, str], Any]] = []
    ends = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimizer never steps
        scheduler = user.scheduler(optimizer)
        for _ in range(min(steps + GRAIN, MOST_STEPS)):
            seen.append(hyperparameters(optimizer))
            try:
                scheduler.step()
            except ValueError:  # OneCycleLR, after its last step
                ends = True
                break
    columns = tuple(name for name in seen[0] if any(now.get(name) != seen[0][name] for now in seen))
    return Schedule(columns, [[now[name] for name in columns] for now in seen], ends)


def hyperparameters(optimizer: Any) -> dict[tuple[int, str], float]:
    """The numbers of each group by group and name; of `betas` the first one, which schedulers move."""
    numbers: dict[tuple[int, str], float] = {}
    for index, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            if name == "betas":
                numbers[index, name] = float(value[0])
            elif name == "lr" or (name not in ("params", "initial_lr") and type(value) in NUMBERS):
                numbers[index, name] = float(value)
    return numbers
