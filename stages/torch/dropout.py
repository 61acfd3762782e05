"""A switch for all dropout of a model, so that runs whose masks would differ can be compared.

The functions of `torch.nn.functional` are replaced by ones that ask the switch; modules call them too. Recurrent
modules, whose dropout is an argument of a library's kernel, are told by their attribute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

FUNCTIONS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


class _Switch:
    """Whether dropout drops, and whether a model was seen to use it."""

    on = True
    used = False


SWITCH = _Switch()


def install() -> None:
    """Replace the functions, before the user's file can import them by name; a second call does nothing."""
    import torch.nn.functional as F  # noqa: N812

    if hasattr(F.dropout, "asks_switch"):
        return
    for name in FUNCTIONS:
        setattr(F, name, _asking(getattr(F, name)))
    attention = F.scaled_dot_product_attention

    @functools.wraps(attention)
    def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                                     *args: Any, **options: Any) -> Any:  # fmt: skip
        if dropout_p:
            SWITCH.used = True
        return attention(query, key, value, attn_mask, dropout_p if SWITCH.on else 0.0, *args, **options)

    F.scaled_dot_product_attention = scaled_dot_product_attention


def _asking(drop: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(drop)
    def asking(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if training and p > 0:
            SWITCH.used = True
        return drop(input, p, training and SWITCH.on, inplace)

    asking.asks_switch = True  # type: ignore[attr-defined]
    return asking


def switch(model: Any, *, on: bool) -> None:
    """Turn the dropout of all models on or off, and of this one's recurrent modules."""
    import torch

    SWITCH.on = on
    for module in model.modules():
        if isinstance(module, torch.nn.RNNBase) and (module.dropout or hasattr(module, "dropout_written")):
            module.dropout_written = getattr(module, "dropout_written", module.dropout)
            SWITCH.used = True
            module.dropout = module.dropout_written if on else 0.0
