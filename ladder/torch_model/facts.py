"""What a user's file is like, for the exporter; `python -m ladder.torch_model.facts my_model.py` prints it as JSON."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

LOOKED_AT = 8  # rows, of which metrics are computed


def facts(user: Any, data: Any, model: Any) -> dict[str, Any]:
    """What the exporter has to know: parts of the contract, form of the data, options of the optimizer, metrics.

    `user` is the file's module, and `data` and `model` are what its functions return.
    """
    import torch
    from torch.utils._pytree import tree_map
    from torch.utils.data import default_collate

    is_dataset = not isinstance(data, tuple | list)
    first = data[0] if is_dataset else data
    metrics: dict[str, Any] = {}
    if hasattr(user, "metrics"):
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        rows = default_collate([data[row] for row in range(min(LOOKED_AT, len(data)))]) if is_dataset else data
        inputs, targets = tree_map(lambda part: part[:LOOKED_AT].to(device), rows)
        metrics = user.metrics(model.to(device)(inputs), targets)
    group = user.optimizer(model.parameters()).param_groups[0]
    return {
        "defined": [name for name in dir(user) if not name.startswith("_")],
        "is_dataset": is_dataset,
        "is_nested": any(isinstance(part, tuple | list | dict) for part in first),
        "has_tuples": any(_has_tuple(part) for part in first),
        "way": _way_to_tensor(first[0]),
        "options": {name: group[name] for name in ("fused", "foreach", "capturable") if name in group},
        "metric_names": list(metrics),
        "metrics_learn": any(value.requires_grad for value in metrics.values()),
        "has_norms": any(isinstance(part, torch.nn.modules.batchnorm._BatchNorm) for part in model.modules()),
        "has_rnn": any(isinstance(part, torch.nn.RNNBase) for part in model.modules()),
    }


def facts_of_file(file: Path) -> dict[str, Any]:
    """The same of a file that is not imported yet."""
    sys.path.insert(0, str(file.parent))
    user = importlib.import_module(file.stem)
    return facts(user, user.data(), user.model())


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


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(facts_of_file(Path(sys.argv[1])))}\n")
