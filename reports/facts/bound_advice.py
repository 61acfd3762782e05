"""A stage's bottleneck: its bound, in a sentence or two with a number, and one thing to try."""

from __future__ import annotations

from typing import NamedTuple


class Advice(NamedTuple):
    """Both are whole sentences."""

    bound: str
    next: str

    def __str__(self) -> str:
        return f"{self.bound} {self.next}".strip()
