"""What a run reports while it measures; the runner prints nothing itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class DownloadObserver(Protocol):
    """Hears of downloads."""

    def note(self, text: str) -> None:
        """A message for the user."""

    def download(self, done: int, total: int | None, name: str) -> None:
        """`done` bytes of a file have arrived; `total` is None if the server does not send it."""


class RunObserver(DownloadObserver, Protocol):
    """Receives the progress of a run."""

    def skip(self, reasons: Mapping[str, str]) -> None:
        """These stages are skipped, by name."""

    def begin(self, total_jobs: int, stages: list[str], why: str = "") -> None:
        """`total_jobs` processes will be started for these stages; `why` more follow than announced before."""

    def leave_out(self, stages: list[str], why: str) -> None:
        """One announced process of each of these stages is not started."""

    def start(self, stage: str, round: int, rounds: int, attempt: int = 1, attempts: int = 1) -> None:
        """A process starts; rounds and the attempts at a disturbed one count from 1."""

    def step(self, what: str) -> None:
        """The current activity changes."""

    def finish(
        self, stage: str, status: str, text: str, step_us: float | None = None, *, disturbed: bool = False
    ) -> None:
        """A process has ended and its result is saved; its own time of a step, or a text without a time."""

    def end(self) -> None:
        """The run is complete."""
