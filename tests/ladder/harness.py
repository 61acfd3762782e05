"""A small problem that runs the whole harness in seconds, and an observer that records calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from common.data.dataset import Dataset, Split
from common.problem import Problem
from ladder.records.run import Results, Settings
from ladder.run.preflight import describe_problem
from ladder.run.runner import Runner
from ladder.run.session import assembled
from stages.registry import Entry, load_entry

NUMPY = "stages.references.numpy_cpu:STAGE"


def small_dataset() -> Dataset:
    """6x6 images of 4 noisy classes, which a linear classifier separates imperfectly."""
    random = np.random.default_rng(0)
    centres = random.integers(0, 256, (4, 36))

    def split(count: int) -> Split:
        labels = random.integers(0, 4, count, dtype=np.uint8)
        noisy = centres[labels] + random.normal(0, 110, (count, 36))
        return Split(np.clip(noisy, 0, 255).astype(np.uint8), labels)

    return Dataset("noise", False, "test", {"train": "0"}, (6, 6), 4, split(515), split(200))


def small_problem(**changes: object) -> Problem:
    """Two epochs of sixteen steps, three images left over; metrics after each epoch."""
    sizes = {"inputs": 36, "classes": 4, "batch_size": 32, "epochs": 2, "metrics_every": 1}
    return Problem(**{**sizes, **changes})  # type: ignore[arg-type]


class Watcher:
    """An observer that records what the runner reports."""

    def __init__(self) -> None:
        self.finished: list[tuple[str, str, str]] = []
        self.steps: list[tuple[float | None, bool]] = []  # of each process: its time of a step in us, and its mark
        self.notes: list[str] = []
        self.jobs = 0
        self.skipped: dict[str, str] = {}
        self.left_out: list[str] = []
        self.tries: list[tuple[str, int, int, int]] = []  # stage, round, attempt, attempts

    def skip(self, reasons: Mapping[str, str]) -> None:
        self.skipped.update(reasons)

    def begin(self, total_jobs: int, stages: list[str], why: str = "") -> None:
        self.jobs = total_jobs

    def leave_out(self, stages: list[str], why: str) -> None:
        self.left_out += stages

    def start(self, stage: str, round: int, rounds: int, attempt: int = 1, attempts: int = 1) -> None:
        self.tries.append((stage, round, attempt, attempts))

    def step(self, what: str) -> None:
        pass

    def finish(
        self, stage: str, status: str, text: str, step_us: float | None = None, *, disturbed: bool = False
    ) -> None:
        self.finished.append((stage, status, text))
        self.steps.append((step_us, disturbed))

    def note(self, text: str) -> None:
        self.notes.append(text)

    def download(self, done: int, total: int | None, name: str) -> None:
        pass

    def end(self) -> None:
        pass


def prepare(
    folder: Path,
    *sources: str | Entry,
    problem: Problem | None = None,
    known: Results | None = None,
    threads: int | None = 1,
    **settings: object,
) -> Runner:
    """A run of stages, each given as `module:attribute` or as its entry.

    They use one core, so that no time is spent on reading the pace of all.
    """
    problem = problem or small_problem()
    dataset = small_dataset()
    salt, environment = settings.pop("salt", 0), settings.pop("environment", {})
    wanted = {"rounds": 1, "repeats": 2, "warmups": 1, "budget_s": 30.0, "timeout_s": 60.0, **settings}
    results = known or Results(
        created="2026-01-01T00:00:00+00:00",
        command="test",
        environment=environment,  # type: ignore[arg-type]
        problem=describe_problem(problem, dataset),
        settings=Settings(**wanted),  # type: ignore[arg-type]
        stages=[],
    )
    entries = [load_entry(source) if isinstance(source, str) else source for source in sources]
    runner = assembled(results, entries, dataset, problem, folder, salt)  # type: ignore[arg-type]
    runner.orders.blas_threads = threads
    return runner
