"""What a run knows so far: the state of its stages, its results and the account of its time, saved in one file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ladder.records.run import OracleRecord, Results, save
from ladder.run.stage_run import StageRun


class Ledger:
    """The stages and the results of one run; nothing else writes its `results.json`.

    The salt of the initial parameters is in no file before everything is measured: see `reveal`.
    """

    def __init__(self, results: Results, stages: Sequence[StageRun], folder: Path) -> None:
        """`results` are those of a stopped run, or have no stages yet."""
        self.folder = folder.resolve()  # absolute, since workers have another working folder
        self.stages = list(stages)
        self.settings = results.settings
        self.results = _with_salt(results, 0)
        """What is measured, as it was saved last, but for limits and oracle, which `keep` adds."""
        self._began = time.monotonic() - results.seconds
        self._took_s = dict(results.took_s)

    @property
    def gpu_memory_mib(self) -> float | None:
        """The memory of the GPU; None without one."""
        memory: float | None = (self.results.environment.get("gpu") or {}).get("memory_mib")
        return memory

    def keep(self, **measured: Any) -> None:
        """Replace these fields of the results."""
        self.results = msgspec.structs.replace(self.results, **measured)

    def keep_oracle(self, oracle: OracleRecord) -> None:
        """Add the oracle's record; a resumed run keeps the curves that some stages have theirs beside."""
        if (was := self.results.oracle) and was.curve:
            oracle = msgspec.structs.replace(oracle, earlier_curves=[*was.earlier_curves, was.curve])
        self.keep(oracle=oracle)

    def keep_compile_times(self, took_s: Mapping[str, float]) -> None:
        """Record each stage's preparation time by name; saved now, as the measured processes will not compile again."""
        for stage in self.stages:
            if (took := took_s.get(stage.name)) is not None:
                stage.compiled_s, stage.may_compile = max(took, stage.compiled_s or 0.0), False
        self.save()  # without counting the time: compilers may have served other points of a study as well

    @contextmanager
    def timing(self, activity: str) -> Iterator[None]:
        """Add the time inside the context to the account of this activity."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._took_s[activity] = self.took_s(activity) + time.monotonic() - began

    def took_s(self, activity: str) -> float:
        """The seconds that an activity has taken."""
        return self._took_s.get(activity, 0.0)

    def save(self, *, measured: bool = False) -> None:
        """Save the current state; the run's duration grows only if something was measured."""
        seconds = time.monotonic() - self._began if measured else self.results.seconds
        self.keep(stages=[stage.result() for stage in self.stages], seconds=seconds, took_s=dict(self._took_s))
        save(self.results, self.folder / "results.json")

    def reveal(self, salt: int | None) -> None:
        """Record the salt; None where no oracle was trained, so that an earlier run's stays."""
        self.results = _with_salt(self.results, self.settings.salt if salt is None else salt)


def _with_salt(results: Results, salt: int) -> Results:
    return msgspec.structs.replace(results, settings=msgspec.structs.replace(results.settings, salt=salt))
