"""A bench that starts nothing, and a jury that trains nothing: a script makes up what processes measure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from ladder.measure.protocol import Job, JobResult
from ladder.measure.timing import Plan
from ladder.processes.fork_servers import ForkServers
from ladder.processes.seed_server import JUDGED_RUN, Attempt
from ladder.records.limits_record import LimitsRecord
from ladder.records.run import Check, HostState, OracleRecord, Process
from ladder.run.bench import Bench, Finished
from ladder.run.judge import Judged
from ladder.run.jury import Jury
from ladder.run.orders import Order
from ladder.run.runner import Runner
from ladder.run.stage_run import StageRun
from stages.registry import Entry
from tests.ladder.harness import prepare, small_dataset, small_problem

# stage, round, attempt -> time in s, and is it disturbed, or the share of the time that it waited for a core
Measure = Callable[[str, int, int], tuple[float, bool | float]]


class Script:
    """What processes measure and oracles train, and the order in which they were asked to."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        measure: Measure,
        seconds_each: float = 0.0,
        checks: Callable[[int, int], list[Check]] = lambda round_, attempt: [],
        device: Literal["cpu", "gpu"] = "cpu",
    ) -> None:
        self.measure, self.checks, self.device = measure, checks, device
        self.asked: list[tuple[str, int]] = []
        self.budgets: list[float | None] = []
        self.measuring_s: dict[str, float] = {}  # by stage
        self.oracles: list[int] = []
        self.limits: LimitsRecord | None = None
        self.limits_after: list[int] = []  # processes
        self.seconds_each, self.now_s = seconds_each, 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.now_s)

    def prepare(self, folder: Path, *sources: str | Entry, **more: Any) -> Runner:
        """A run of these stages by this script."""
        ledger = prepare(folder, *sources, **more).ledger
        return Runner(FakeBench(self, folder), ledger, FakeJury(self))


class FakeBench(Bench):
    """Starts nothing."""

    def __init__(self, script: Script, folder: Path) -> None:
        super().__init__(folder, 60.0)
        self._script = script

    def imports(self, round_: int, stages: Sequence[StageRun]) -> ForkServers:
        return super().imports(round_, [])

    def run(self, order: Order) -> Finished:
        script, name, round_ = self._script, order.stage.name, order.job.round
        attempt = script.asked.count((name, round_))
        script.asked.append((name, round_))
        script.budgets.append(order.job.budget_s)
        script.now_s += script.seconds_each
        seconds, disturbed = script.measure(name, round_, attempt)
        took = {"measure": script.measuring_s.get(name, 0.0)}
        host = HostState(seconds * disturbed, 0.0)
        process = Process(round_, 0.1, [], [seconds], None, [], None, [host], epochs=2, took_s=took)
        result = JobResult(device=script.device, plan=Plan(2, 1, 0), process=process)
        return Finished(order, result, Attempt(), script.seconds_each)

    def gpu_limits(self) -> LimitsRecord | None:
        self._script.limits_after.append(len(self._script.asked))
        return self._script.limits


class FakeJury(Jury):
    """Trains nothing, and finds what the script says."""

    def __init__(self, script: Script) -> None:
        super().__init__(small_problem(), small_dataset(), 0, 0, timed=True)
        self._script = script

    @property
    def has_trained(self) -> bool:
        return bool(self._script.oracles)

    def untrained(self, rounds: Iterable[int], own: Collection[str] = ()) -> list[int]:
        runs = [self.number(round_, JUDGED_RUN) for round_ in rounds]
        return [run for run in runs if run not in self._script.oracles]

    def train(self, untrained: list[int], *_: object) -> None:
        self._script.oracles += untrained

    def record(self, round_: int) -> OracleRecord:
        return OracleRecord(None, [])

    def judge(self, precision: str, job: Job, result: JobResult, attempt: Attempt, folder: Path) -> Judged:
        name = folder.name.rpartition(".")[0]
        return Judged(self._script.checks(job.round, self._script.asked.count((name, job.round)) - 1), 0.9)
