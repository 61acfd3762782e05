"""What the exporter has to know of a user's file."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from ladder.torch_model.contract import Opened
from stages.torch.user_model import nested


class ModelFacts(msgspec.Struct, frozen=True):
    """What the written loop depends on."""

    on_gpu: bool
    defined: frozenset[str]  # the optional parts of the contract that it has, and EPOCHS
    is_dataset: bool
    is_nested: bool  # inputs or targets are more than a tensor
    has_tuples: bool  # inside of inputs or targets
    way: str  # the subscripts that lead to a tensor of the inputs, such as `["tokens"][0]`
    options: dict[str, bool | None]  # fused, foreach and capturable, as its optimizer has them
    metric_names: list[str]
    metrics_learn: bool  # a metric has a gradient
    has_norms: bool  # has batch normalization, which computes otherwise in evaluation
    has_rnn: bool  # has recurrent layers, whose backward pass needs training
    moving: frozenset[str]  # hyperparameters that its scheduler changes
    has_dropout: bool


def facts(opened: Opened) -> ModelFacts:
    """The facts of a file that fits the contract; whatever one of its functions raises on a batch."""
    import torch

    user, data = opened.user, opened.data
    given = data.dataset[0] if opened.is_dataset else (data.inputs, data.targets)
    model = copy.deepcopy(opened.initial).to(data.device)
    metrics: dict[str, Any] = {}
    if user.metrics is not None:
        batch = nested(lambda tensor: tensor.to(data.device), tuple(data.as_given(next(data.loader(0)))))
        inputs, targets = user.augment(batch) if user.augment is not None else batch
        metrics = user.metrics(model(inputs), targets)
    group = user.optimizer(list(model.parameters())).param_groups[0]
    return ModelFacts(
        on_gpu=data.device.type == "cuda",
        defined=frozenset(name for name in dir(opened.module) if not name.startswith("_")),
        is_dataset=opened.is_dataset, is_nested=any(isinstance(part, tuple | list | dict) for part in given),
        has_tuples=any(_has_tuple(part) for part in given), way=_way_to_tensor(given[0]),
        options={name: group[name] for name in ("fused", "foreach", "capturable") if name in group},
        metric_names=list(metrics), metrics_learn=any(value.requires_grad for value in metrics.values()),
        has_norms=any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in model.modules()),
        has_rnn=any(isinstance(part, torch.nn.RNNBase) for part in model.modules()),
        moving=frozenset(opened.schedule.moving), has_dropout=opened.has_dropout,
    )  # fmt: skip


def _has_tuple(nest: Any) -> bool:
    if isinstance(nest, dict):
        return any(map(_has_tuple, nest.values()))
    return isinstance(nest, tuple) or (isinstance(nest, list) and any(map(_has_tuple, nest)))


def _way_to_tensor(nest: Any) -> str:
    """The subscripts that lead to a nest's first tensor, such as `["tokens"][0]`."""
    if isinstance(nest, dict):
        name, part = next(iter(nest.items()))
        return f'["{name}"]{_way_to_tensor(part)}'
    return f"[0]{_way_to_tensor(nest[0])}" if isinstance(nest, tuple | list) else ""
