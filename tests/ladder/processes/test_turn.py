"""Turns: one at a time, again inside, and given back at the end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ladder.processes.turn import Turn


def entered(turn: Turn) -> threading.Event:
    """Is set once another thread has had the turn."""
    event = threading.Event()

    def enter() -> None:
        with turn:
            event.set()

    threading.Thread(target=enter, daemon=True).start()
    return event


def test_another_waits_for_the_outermost_end(tmp_path: Path) -> None:
    mine, other = Turn(tmp_path / "turn"), Turn(tmp_path / "turn")
    with mine:
        with mine:
            had = entered(other)
        assert not had.wait(0.2)
    assert had.wait(30)


def test_an_error_gives_the_turn_back(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Turn(tmp_path / "turn"):
        raise KeyError
    assert entered(Turn(tmp_path / "turn")).wait(30)
