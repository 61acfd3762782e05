"""User files for tests: a small network of two layers, and what a test adds to it."""

from __future__ import annotations

import textwrap
from pathlib import Path

from ladder.torch_model.contract import Opened, device_here, opened

HEAD = """
import torch
from torch import nn
from torch.nn import functional as F

BATCH_SIZE = 8
EPOCHS = 12
"""

PARTS = {
    "model": """
def model():
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
""",
    "loss": """
def loss(output, target):
    return F.cross_entropy(output, target)
""",
    "optimizer": """
def optimizer(params):
    return torch.optim.AdamW(params, lr=3e-3, weight_decay=0.1)
""",
    "data": """
def data():
    inputs = torch.randn(104, 6)
    return inputs, (inputs[:, :3].abs() + 0.3 * torch.randn(104, 3)).argmax(1)
""",
}


def source(extra: str = "", **parts: str) -> str:
    """The text of a user's file: the small network, with these parts in place of its own and `extra` at the end."""
    chosen = {**PARTS, **parts}
    return "\n".join(textwrap.dedent(text) for text in (HEAD, *chosen.values(), extra))


def opened_text(folder: Path, text: str) -> Opened:
    """A user's file of this text in the folder, read and checked."""
    file = folder / "my_model.py"
    file.write_text(text)
    return opened(file, None, device_here())
