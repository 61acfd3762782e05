"""Reads a user's file and checks it against the contract; what does not fit is refused in one line with a way out.

Only worker processes call this: whatever the file does when it is imported or called stays in them.
"""

from __future__ import annotations

import copy
import difflib
import importlib.util
import inspect
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common.errors import UsageError
from common.streams import printable
from stages.torch import dropout
from stages.torch.trainer import first_line
from stages.torch.training_step import Rung
from stages.torch.user_model import GRAIN, Data, Schedule, UserModel, nested, order_of, schedule_of, tensors_of, turns

REQUIRED = ("model", "loss", "optimizer", "data", "BATCH_SIZE")
OPTIONAL = ("scheduler", "after_backward", "augment", "metrics", "validation")
KNOWN = {*REQUIRED, *OPTIONAL, "EPOCHS"}
ALIKE = 0.8  # of a name that is likely meant: optimiser, schedular, after_backwards
SEED = 0  # of the model's and the data's random numbers
LOOKED_AT = 20  # items of a Dataset, read twice
READING_S = 60.0  # at most, to read a Dataset whole
DEVICE_SHARE = 0.5  # of the device's free memory, which resident data may take
REGISTERED = ("_parameters", "_buffers", "_modules")  # what a module keeps where rungs see it
SHOWN_TURNS = 3  # of a schedule
TINY = 1e-3  # of the highest learning rate: hardly anything is learnt
MODULE = "user_model_"  # begins the name of the module that a user's file becomes


class RefusedError(UsageError):
    """A model that the ladder cannot climb: one line with the file, the reason and a way out."""


class _UnfitError(Exception):
    """The same without the file's name."""


@dataclass(frozen=True)
class Opened:
    """A user's model, ready for trainers."""

    user: UserModel
    initial: Any  # the model before its first step, on the host
    data: Data
    schedule: Schedule
    optimizer: str
    is_dataset: bool  # else tensors
    data_words: str
    not_resident: str  # why its data cannot lie on the device; empty if it can
    has_dropout: bool
    has_convolution: bool
    notes: tuple[str, ...] = ()

    @property
    def is_random(self) -> bool:
        """Whether a step draws numbers: for dropout, in augment or elsewhere."""
        return self.has_dropout or self.user.draws

    def misfit(self, rung: Rung) -> str:
        """Why this model cannot have a rung, as far as that is known before it is built; empty if it can."""
        if self.not_resident and rung.step.batches.needs_resident:
            return self.not_resident
        return rung.only(self) or ""

    @property
    def module(self) -> Any:
        """What the user's file has become."""
        return sys.modules[f"{MODULE}{self.user.path.stem}"]


def opened(path: Path, epochs: int | None, device: Any) -> Opened:
    """Read the file, and try each of its functions once on the device. Raises RefusedError."""
    user = read(path, epochs)
    try:
        return _tried_whole(user, path, device)
    except _UnfitError as unfit:
        raise RefusedError(f"{path.name}: {unfit}") from unfit.__cause__


def _tried_whole(user: UserModel, path: Path, device: Any) -> Opened:
    import torch

    dropout.SWITCH.used = False
    torch.manual_seed(SEED)
    began = time.perf_counter()
    with _theirs(path, "data()"):
        given = user.data()
        dataset, inputs, targets, words, not_resident = _data(given, device)
    words += f", read in {time.perf_counter() - began:.1f} s"
    rows = len(dataset)
    if rows < user.batch_size:
        raise _UnfitError(
            f"data() has {rows} rows and BATCH_SIZE is {user.batch_size}; choose a batch that the data fills"
        )
    torch.manual_seed(SEED)
    with _theirs(path, "model()"):
        initial = user.model()
    if not isinstance(initial, torch.nn.Module):
        raise _UnfitError(f"model() returns {type(initial).__name__}; return a torch.nn.Module")
    _check_parameters(initial)
    dropout.switch(initial, on=True)  # a recurrent module's dropout is seen here, and not in its step
    order = order_of(rows, user.batch_size, SEED)
    data = Data(dataset, order, inputs, targets, device)
    user, optimizer = _tried(user, initial, data, path)
    steps = user.epochs * (rows // user.batch_size)
    with _theirs(path, "scheduler(optimizer)"):
        _check_scheduler(user, initial)
        schedule = schedule_of(user, [parameter.shape for parameter in initial.parameters()], steps)
    if schedule.steps < GRAIN:
        raise _UnfitError(f"the scheduler ends after {schedule.steps} steps; give it those of the training, {steps:,}")
    return Opened(
        user, initial, data, schedule, optimizer, not isinstance(given, (tuple, list)), words, not_resident,
        dropout.SWITCH.used,
        any(isinstance(module, torch.nn.modules.conv._ConvNd) for module in initial.modules()),
        notes=(*_mistyped(user), *_notes(user, schedule, steps)),
    )  # fmt: skip


def read(path: Path, epochs: int | None = None) -> UserModel:
    """Import the file, which may import modules beside it, and take its functions. Raises RefusedError.

    `epochs` become the module's own, which a schedule may read.
    """
    if not path.is_file():
        raise RefusedError(f"{path}: {'not a file' if path.exists() else 'no such file'}; name a .py file")
    if path.suffix != ".py":
        raise RefusedError(f"{path}: not a .py file; name the Python file that defines model() and data()")
    if path.stem == "torch" or path.stem in sys.stdlib_module_names:
        raise RefusedError(f"{path}: has the name of a module that training scripts import; rename it to my_model.py")
    dropout.install()
    name = f"{MODULE}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.append(str(path.resolve().parent))  # last, so that no file there shadows a module of ours
    with _theirs(path, "import"):
        spec.loader.exec_module(module)
    if missing := [name for name in REQUIRED if not hasattr(module, name)]:
        likely = {name: f"rename {other} to {name}" for name, other in mistyped(module)}
        example = ["see a whole file by `run_ladder.py torch --example tabular`"]
        way = ", and ".join([*likely.values(), *([] if likely.keys() >= {*missing} else example)])
        raise RefusedError(f"{path.name}: lacks {', '.join(missing)}; {way}")
    size = module.BATCH_SIZE
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise RefusedError(f"{path.name}: BATCH_SIZE = {size!r}; give a whole number from 1 on")
    own_epochs = getattr(module, "EPOCHS", 10)
    if isinstance(own_epochs, bool) or not isinstance(own_epochs, int) or own_epochs < 1:
        raise RefusedError(f"{path.name}: EPOCHS = {own_epochs!r}; give a whole number from 1 on")
    epochs = epochs or own_epochs
    if hasattr(module, "EPOCHS"):
        vars(module)["EPOCHS"] = epochs
    import torch

    functions: dict[str, Any] = {name: getattr(module, name, None) for name in (*REQUIRED[:-1], *OPTIONAL)}
    if isinstance(functions["model"], torch.nn.Module):
        raise RefusedError(f"{path.name}: model is a module; write it as a function that returns a new one")
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise RefusedError(f"{path.name}: {name} is {type(function).__name__}; write it as a function")
    return UserModel(path, batch_size=size, epochs=epochs, outside=lambda: _held(vars(module)), **functions)


def mistyped(module: Any) -> list[tuple[str, str]]:
    """Names of the contract that a module lacks, each with a function or number it defines that was likely meant."""
    own = {
        name
        for name, value in vars(module).items()
        if isinstance(value, int) or (inspect.isfunction(value) and value.__module__ == module.__name__)
    } - KNOWN
    found = []
    for name in sorted(KNOWN - vars(module).keys()):
        alike = {other.lower(): other for other in own if other.isupper() or not name.isupper()}
        found += [(name, alike[other]) for other in difflib.get_close_matches(name.lower(), alike, 1, ALIKE)]
    return found


@contextmanager
def _theirs(path: Path, what: str) -> Iterator[None]:
    """Turn an exception of the user's code into a refusal, with the line of their file; a GPU's come when it waits."""
    import torch

    try:
        yield
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except (_UnfitError, RefusedError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RefusedError(their_error(error, path, what)) from error


def their_error(error: BaseException, path: Path, what: str) -> str:
    """What a user's code raised and where, in one line."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve().parent == path.resolve().parent
    ]  # fmt: skip
    where = "".join(f" ({Path(frame.filename).name}:{frame.lineno}: {frame.line})" for frame in frames[-1:])
    if isinstance(error, SystemExit):
        way = 'move what a script alone does below `if __name__ == "__main__":`'
        return f"{path.name}: {what} ends its process by sys.exit{printable(where)}; {way}"
    if isinstance(error, ModuleNotFoundError):
        return f"{path.name}: {what} needs {error.name}, which is not installed here; install it{printable(where)}"
    return f"{path.name}: {what} raises {type(error).__name__}: {printable(first_line(error) + where)}"


def _data(given: Any, device: Any) -> tuple[Any, Any, Any, str, str]:
    """The dataset, its inputs and targets as nests of tensors, words for it, and why it cannot be resident."""
    import torch
    from torch.utils._pytree import tree_leaves
    from torch.utils.data import TensorDataset

    if isinstance(given, (tuple, list)):
        if len(given) != 2:
            raise _UnfitError(
                f"data() returns {_parts(given)}; return (inputs, targets), tensors or nests of them, "
                "or a Dataset of such pairs"
            )
        inputs, targets = given
        for part, nest in (("inputs", inputs), ("targets", targets)):
            others = [leaf for leaf in tree_leaves(nest) if not isinstance(leaf, torch.Tensor)]
            if others or not tensors_of(nest):
                kind = type(others[0]).__name__ if others else "nothing"
                raise _UnfitError(
                    f"the {part} of data() hold {kind} in place of a tensor; return them as torch.as_tensor"
                )
        tensors = tensors_of((inputs, targets))
        lengths = {len(tensor) if tensor.dim() else 0 for tensor in tensors}
        if len(lengths) > 1:
            raise _UnfitError(f"data() returns tensors of {_listed(lengths)} rows; give each the same number")
        both = isinstance(inputs, torch.Tensor) and isinstance(targets, torch.Tensor)
        dataset: Any = TensorDataset(inputs, targets) if both else _NestedRows(inputs, targets)
        words, why = "tensors", ""
    elif hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, torch.Tensor):
        dataset, words = given, type(given).__name__
        _check_items(dataset)
        inputs, targets, why = _read_whole(dataset)
        if inputs is not None:
            words += ", read once into tensors"
    elif isinstance(given, torch.Tensor):
        raise _UnfitError("data() returns one tensor; return (inputs, targets), for an autoencoder (x, x)")
    else:
        raise _UnfitError(
            f"data() returns {type(given).__name__}; return (inputs, targets) or a Dataset with items by number"
        )
    tensors = tensors_of((inputs, targets)) if inputs is not None else tensors_of(tuple(dataset[0]))
    for tensor in tensors:
        if tensor.is_complex():
            raise _UnfitError("data() has complex numbers, which the judge cannot compare; split them in two")
        if tensor.device.type != "cpu":
            raise _UnfitError(f"data() has tensors on {tensor.device}; return them on the CPU: the ladder moves them")
        if tensor.layout != torch.strided:
            raise _UnfitError("data() has sparse tensors; make them dense by .to_dense()")
    if inputs is not None:
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        words += f", {size / 1e6:,.{1 if size < 1e7 else 0}f} MB"
        if device.type == "cuda" and size > DEVICE_SHARE * (free := torch.cuda.mem_get_info()[0]):
            why = (
                f"the data takes {size / 1e9:.1f} GB and the device has {free / 1e9:.1f} GB free: "
                "rungs with resident data are left out"
            )
    return dataset, inputs, targets, words, why


class _NestedRows:
    """A map-style Dataset of two nests of tensors, read as one would by hand: a general walk takes 8 times as long."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self._rows = len(tensors_of(inputs)[0])
        self._input, self._target = _reader(inputs), _reader(targets)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, row: int) -> Any:
        return self._input(row), self._target(row)


def _reader(nest: Any) -> Callable[[int], Any]:
    """A function that returns a row of each tensor of a nest."""
    if hasattr(nest, "dtype"):
        return lambda row: nest[row]
    named = isinstance(nest, Mapping)
    keys, parts = (list(nest), list(nest.values())) if named else ([], list(nest))
    if not all(hasattr(part, "dtype") for part in parts):
        readers = [_reader(part) for part in parts]
        read: Callable[[int], Any] = lambda row: [reader(row) for reader in readers]  # noqa: E731
        return (lambda row: dict(zip(keys, read(row), strict=True))) if named else read
    if named:
        return lambda row: {name: tensor[row] for name, tensor in nest.items()}
    return lambda row: [tensor[row] for tensor in parts]


def _check_items(dataset: Any) -> None:
    """Raise RefusedError for a Dataset whose items have another form, or are random."""
    if not len(dataset):
        raise _UnfitError("data() is an empty Dataset; check where it looks for its files")
    for row in range(0, len(dataset), max(1, len(dataset) // LOOKED_AT)):
        first, second = dataset[row], dataset[row]
        if not isinstance(first, (tuple, list)) or len(first) != 2:
            form = f"has {_parts(first)}" if isinstance(first, (tuple, list)) else f"is a {type(first).__name__}"
            raise _UnfitError(f"item {row} of data() {form}; let each be (input, target), for an autoencoder (x, x)")
        if not _same(first, second):
            raise _UnfitError(
                f"item {row} of data() differs between two reads; "
                "move the random transform to augment(batch), which runs on the device"
            )


def _same(first: Any, second: Any) -> bool:
    import torch
    from torch.utils._pytree import tree_leaves

    pairs = zip(tree_leaves(tuple(first)), tree_leaves(tuple(second)), strict=True)
    return all(torch.equal(torch.as_tensor(one), torch.as_tensor(other)) for one, other in pairs)


def _read_whole(dataset: Any) -> tuple[Any, Any, str]:
    """All items stacked, or why they are not: it would take too long."""
    from torch.utils.data import default_collate

    began, items = time.perf_counter(), []
    for row in range(len(dataset)):
        items.append(dataset[row])
        took = time.perf_counter() - began
        if row == LOOKED_AT * 10 and took / row * len(dataset) > READING_S:
            whole = took / row * len(dataset)
            return None, None, (
                f"reading the data whole would take {whole:,.0f} s: rungs with resident data are left out; "
                "keep decoded tensors in a file"
            )  # fmt: skip
    try:
        inputs, targets = default_collate(items)
    except (RuntimeError, TypeError) as error:
        raise _UnfitError(f"items of data() do not stack ({first_line(error)}); pad them to one shape") from error
    return inputs, targets, ""


def _check_parameters(model: Any) -> None:
    import torch

    parameters = list(model.parameters())
    if not any(parameter.requires_grad for parameter in parameters):
        raise _UnfitError("model() has no parameters that learn; check requires_grad")
    if any(isinstance(parameter, torch.nn.UninitializedParameter) for parameter in parameters):
        raise _UnfitError("model() has lazy parameters; run it once on an example before you return it")
    for label, parameter in model.named_parameters():
        if parameter.is_complex():
            raise _UnfitError(f"{label} is complex; hold it as two real tensors, which can be compared")
    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        raise _UnfitError("model() is spread over devices; return the plain module, as the ladder uses one")
    if len(places := {str(parameter.device) for parameter in parameters}) > 1:
        raise _UnfitError(f"model() lies on {_listed(places)}; return it on one device")
    for label, module in model.named_modules():
        if getattr(module, "sparse", False):
            what = f"{type(module).__name__} {label}".rstrip()
            raise _UnfitError(f"{what} has sparse=True, whose gradients no graph holds; leave sparse out")


def _check_scheduler(user: UserModel, initial: Any) -> None:
    if user.scheduler is None:
        return
    import torch

    optimizer = user.optimizer([torch.nn.Parameter(torch.zeros_like(value)) for value in initial.parameters()])
    scheduler = user.scheduler(optimizer)
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise _UnfitError(
            "scheduler() is ReduceLROnPlateau, which follows a metric and not the step; "
            "use a schedule of steps, such as CosineAnnealingLR"
        )
    if not hasattr(scheduler, "step"):
        raise _UnfitError(f"scheduler(optimizer) returns {type(scheduler).__name__}; return a torch scheduler")


def _tried(user: UserModel, initial: Any, data: Data, path: Path) -> tuple[UserModel, str]:
    """Take steps with a copy of the model; refuse what no rung could do.

    Returns the user's model with what the steps showed, and the optimizer's class.
    """
    import torch

    with _theirs(path, "copying the model"):
        model = copy.deepcopy(initial).to(data.device).train()
    with _theirs(path, "optimizer(params)"):
        optimizer = user.optimizer(list(model.parameters()))
    if not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        raise _UnfitError(f"optimizer(params) returns {kind}; return a torch.optim.Optimizer")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise _UnfitError("LBFGS calls the model several times per step; use AdamW or SGD")
    held = sum(len(group["params"]) for group in optimizer.param_groups)
    if held < len([parameter for parameter in model.parameters() if parameter.requires_grad]):
        trained = len(list(model.parameters()))
        raise _UnfitError(f"the optimizer holds {held} of {trained} parameters; freeze the others in model()")
    before = {label: value.clone() for label, value in model.state_dict().items()}
    outside, attributes = _copied(user.outside()), _copied(_attributes(model))
    batches = data.loader(0)
    names: tuple[str, ...] = ()
    draws = False
    _check_forward(model, data.as_given(next(batches))[0])
    for _ in range(2):
        batch = nested(lambda tensor: tensor.to(data.device), tuple(data.as_given(next(batches))))
        before_draws = generators()
        if user.augment is not None:
            with _theirs(path, "augment(batch)"):
                changed: Any = user.augment(batch)
            if not isinstance(changed, (tuple, list)) or len(changed) != 2:
                form = f"{len(changed)} parts" if isinstance(changed, (tuple, list)) else type(changed).__name__
                raise _UnfitError(f"augment(batch) returns {form}; return (inputs, targets)")
            batch = tuple(changed)
        optimizer.zero_grad()
        doubles = any(tensor.dtype == torch.float64 for tensor in tensors_of(batch[0]))
        with _theirs(path, f"the model{', on float64 inputs,' * doubles}"):
            output = model(batch[0])
        with _theirs(path, "loss(output, target)"):
            loss = user.loss(output, batch[1])
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or loss.dim():
            shape = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise _UnfitError(f"loss(output, target) returns {shape}; return a scalar tensor, such as a mean")
        if not loss.requires_grad:
            raise _UnfitError("the loss depends on no parameter that learns; check .detach() and no_grad")
        if not bool(torch.isfinite(loss)):
            raise _UnfitError(f"the loss of the first steps is {float(loss.detach())}; check learning rate and inputs")
        if user.metrics is not None:
            with _theirs(path, "metrics(output, target)"), torch.no_grad():
                values = user.metrics(output, batch[1])
            _check_metrics(values)
            names = tuple(values)
        with _theirs(path, "backward"):
            loss.backward()
        if user.after_backward is not None:
            with _theirs(path, "after_backward(model)"):
                user.after_backward(model)
        with _theirs(path, "the optimizer's step"):
            optimizer.step()
        draws = draws or generators() != before_draws
    if all(torch.equal(value, before[label]) for label, value in model.state_dict().items()):
        raise _UnfitError("two steps change no parameter; check the learning rate")
    strays = [*_changed(outside, user.outside()), *_changed(attributes, _attributes(model))]
    if strays:
        raise _UnfitError(
            f"a step changes {_listed(strays)}; a graph would freeze all but the model's parameters and "
            "buffers and the optimizer's state: register a buffer in model(), or leave the change out"
        )
    return replace(user, metric_names=names, draws=draws), type(optimizer).__name__


def generators() -> list[bytes]:
    """The states of PyTorch's generators: they change when a number is drawn."""
    import torch

    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else ())]
    return [state.numpy().tobytes() for state in states]


def _check_metrics(values: Any) -> None:
    import torch

    if not isinstance(values, dict):
        kind = type(values).__name__
        raise _UnfitError(f"metrics(output, target) returns {kind}; return a dict of scalar tensors")
    for label, value in values.items():
        if not isinstance(value, torch.Tensor):
            raise _UnfitError(
                f"metrics(output, target): {label} is a {type(value).__name__}; "
                "return a scalar tensor, and leave .item() out"
            )
        if value.dim():
            raise _UnfitError(
                f"metrics(output, target): {label} has shape {tuple(value.shape)}; "
                "return a scalar tensor, such as its .mean()"
            )


def _check_forward(model: Any, inputs: Any) -> None:
    """Raise RefusedError for a model that cannot be called with the inputs as its only argument."""
    try:
        inspect.signature(model.forward).bind(inputs)
    except TypeError as error:
        form = (
            f"a {type(inputs).__name__} of {_parts(inputs)}" if isinstance(inputs, (tuple, list, dict)) else "a tensor"
        )
        raise _UnfitError(
            f"forward() does not take the inputs ({error}); it gets them as one argument, here {form}"
        ) from error


def _held(names: dict[str, Any], most: int = 3) -> dict[str, Any]:
    """The tensors and numbers in a namespace: in its modules, containers, functions and classes, and their objects."""
    import numpy as np
    import torch

    found: dict[str, Any] = {}

    def look(label: str, value: Any, depth: int) -> None:
        if isinstance(value, (torch.Tensor, np.ndarray, int, float)) and not isinstance(value, bool):
            found[label] = value
        elif isinstance(value, torch.nn.Module):  # an average of the weights, for example
            found.update(
                {f"{label}.{key}": inner for key, inner in (*value.named_parameters(), *value.named_buffers())}
            )
            if depth and _is_of_user(value):
                look_within(label, value, depth)
        elif depth and isinstance(value, dict):
            for key, inner in list(value.items())[:256]:
                look(f"{label}[{key!r}]", inner, depth - 1)
        elif depth and isinstance(value, (list, tuple)):
            for index, inner in enumerate(value[:256]):
                look(f"{label}[{index}]", inner, depth - 1)
        elif depth and hasattr(value, "__dict__") and _is_of_user(value):
            look_within(label, value, depth)

    def look_within(label: str, value: Any, depth: int) -> None:
        for key, inner in list(vars(value).items()):
            if not key.startswith("__") and key not in REGISTERED:
                look(f"{label}.{key}", inner, depth - 1)

    for label, value in names.items():
        if not label.startswith("__"):
            look(label, value, most)
    return found


def _is_of_user(value: Any) -> bool:
    """Whether a function or class, or an object's class, is written in the user's file."""
    defined = value if isinstance(value, (type, types.FunctionType)) else type(value)
    return str(defined.__module__).startswith(MODULE)


def _attributes(model: Any) -> dict[str, Any]:
    """The tensors and numbers of a model that are neither parameters nor buffers."""
    skip = {*REGISTERED, "training", "dropout_written"}
    found = {}
    for label, module in model.named_modules():
        computed = {getattr(hook, "name", "") for hook in module._forward_pre_hooks.values()}  # by spectral_norm
        for name, value in vars(module).items():
            if name not in skip | computed:
                found.update(_held({".".join(("model", *([label] if label else []), name)): value}, 1))
    own = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}  # recurrent modules list theirs once more
    return {name: value for name, value in found.items() if id(value) not in own}


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.detach().clone() if hasattr(value, "detach") else copy.copy(value) for name, value in values.items()
    }


def _changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names whose values differ now."""
    import torch

    changed = []
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, torch.Tensor) and isinstance(old, torch.Tensor):
            if value.shape != old.shape or not torch.equal(value.cpu(), old.cpu()):
                changed.append(name)
        elif isinstance(value, torch.Tensor) or isinstance(old, torch.Tensor):
            changed.append(name)
        elif hasattr(value, "dtype"):  # an array
            if not bool((value == old).all()):
                changed.append(name)
        elif value != old:
            changed.append(name)
    return changed


def _mistyped(user: UserModel) -> Iterator[str]:
    for name, other in mistyped(sys.modules[f"{MODULE}{user.path.stem}"]):
        yield f"`{other}` is not part of the contract, so the ladder does not call it; rename it if `{name}` is meant."


def schedule_in_words(schedule: Schedule, steps: int) -> str:
    """What a schedule does in a training, by its values at the ends and where they turn; empty without one."""
    told = []
    for column, (group, name) in enumerate(schedule.columns):
        if group == schedule.columns[0][0]:
            values = schedule.values(column, steps)
            turned = turns(values)
            some = [f"{values[at]:.3g}" for at in (0, *turned[:SHOWN_TURNS])] + ["..."] * (len(turned) > SHOWN_TURNS)
            told.append(f"{name} {' -> '.join([*some, f'{values[-1]:.3g}'])}")
    return f"{', '.join(told)} after {len(values):,} steps" if told else ""


def _oddity(schedule: Schedule, steps: int, epochs: int) -> str:
    """What a learning rate does that counts epochs, as most do in tutorials, and is stepped after each step."""
    of_epoch, rates = steps // epochs, schedule.values(schedule.columns.index((0, "lr")), steps)
    turned = turns(rates)
    longest = max((after - before for before, after in zip(turned, turned[2:], strict=False)), default=0)
    if 0 < longest <= 2 * epochs and longest % of_epoch:  # a whole cycle
        return f"turns {len(turned):,} times in {len(rates):,} steps"
    low = max((step for step, rate in enumerate(rates, 1) if rate >= TINY * max(rates)), default=0)
    if 2 * low <= len(rates):
        return f"is below {TINY:g} of its highest value after {low:,} of {len(rates):,} steps"
    if epochs > 1 and rates[-1] < rates[0] and schedule.last_change < of_epoch:
        return f"has its last value after {schedule.last_change:,} of {len(rates):,} steps"
    return ""


def _notes(user: UserModel, schedule: Schedule, steps: int) -> Iterator[str]:
    of_epoch = steps // user.epochs
    if of_epoch > 1 and (0, "lr") in schedule.columns and (what := _oddity(schedule, steps, user.epochs)):
        yield (
            f"The scheduler is stepped after each step, so that lr {what}; if its numbers count epochs, write them in "
            f"steps: an epoch has {of_epoch:,}."
        )
    if schedule.steps < steps:
        yield (
            f"The scheduler ends after {schedule.steps:,} steps, and {user.epochs} epochs have {steps:,}: "
            "the plain loop would stop there with an error."
        )


def _parts(of: Sized) -> str:
    return f"{len(of)} part" if len(of) == 1 else f"{len(of)} parts"


def _listed(things: Any) -> str:
    words = sorted(map(str, things))
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")


def device_here() -> Any:
    """The device that the ladder climbs on."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
