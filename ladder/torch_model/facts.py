"""Prints what a user's file is like, as JSON, for the exporter: `python -m ladder.torch_model.facts my_model.py`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def facts(file: Path) -> dict[str, Any]:
    """The parts of the contract that a file defines, the form of its data, and the options of its optimizer."""
    import torch

    sys.path.insert(0, str(file.parent))
    user = importlib.import_module(file.stem)
    data = user.data()
    is_dataset = not isinstance(data, tuple | list)
    inputs, targets = data[0] if is_dataset else data
    groups = user.optimizer([torch.nn.Parameter(part) for part in user.model().parameters()]).param_groups
    return {
        "defined": [name for name in dir(user) if not name.startswith("_")],
        "is_dataset": is_dataset,
        "is_nested": any(isinstance(part, tuple | list | dict) for part in (inputs, targets)),
        "first": f"data[0]{_way_to_tensor(inputs)}",
        "takes": [name for name in ("fused", "foreach", "capturable") if name in groups[0]],
    }


def _way_to_tensor(nest: Any) -> str:
    """The subscripts that lead to a nest's first tensor, such as `["tokens"][0]`."""
    if isinstance(nest, dict):
        name, part = next(iter(nest.items()))
        return f'["{name}"]{_way_to_tensor(part)}'
    return f"[0]{_way_to_tensor(nest[0])}" if isinstance(nest, tuple | list) else ""


if __name__ == "__main__":
    sys.stdout.write(f"{json.dumps(facts(Path(sys.argv[1])))}\n")
