"""Writes down what a run does, in order: activities, processes, what is saved, and what its observer hears.

Nothing is started: below the harness's own code a script stands in for processes and for the oracle, and a clock moves
only when they would take time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec
import pytest

from common.problem import Params
from ladder.machine.gpu_monitor import GpuMonitor
from ladder.measure.protocol import JOB, Job, JobResult, write_result
from ladder.measure.timing import Plan
from ladder.processes import fork_servers, held_workers, worker_pool, worker_process
from ladder.records import run
from ladder.records.profile import Split
from ladder.records.run import HostState, OracleRecord, Process, Results
from ladder.run import bounds, jury, preflight
from ladder.run.judge import Judge, Judged
from ladder.run.ledger import Ledger
from ladder.verify.oracle_runs import Computed, OracleRun
from stages.registry import Entry, load_entry
from tests.ladder.harness import NUMPY, Watcher, prepare
from tests.reports.profiles import profile

CPU_RUNG = "stages.cpu.loops:STAGE"


def named(name: str, source: str = NUMPY, **changes: Any) -> Entry:
    """A stage under another name."""
    entry = load_entry(source)
    return replace(entry, stage=replace(entry.stage, name=name, **changes))


class Order:
    """The log of one run, and the script of its processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: Literal["cpu", "gpu"] = "cpu") -> None:
        self.lines: list[str] = []
        self.now_s, self.device = 0.0, device
        self.disturbed: set[tuple[str, int]] = set()  # processes, and their attempts from 0
        self.crashes: set[tuple[str, int]] = set()
        self._started: dict[str, int] = {}
        self._saved: dict[str, str] = {}
        patch = monkeypatch.setattr
        patch("time.monotonic", lambda: self.now_s)
        patch("time.sleep", self._pass)
        for module in (worker_process, held_workers, worker_pool):
            patch(module, "launch", self._launch)
        self._started_worker = type("OfThisOrder", (Started,), {"order": self})
        patch(worker_process, "StartedWorker", self._started_worker)
        patch(fork_servers, "ForkServer", lambda needs, log: FakeForkServer(self, needs, log))
        patch(held_workers, "ThreadPoolExecutor", lambda threads: Immediately())
        patch(run, "write_whole", self._write)
        patch(jury, "compute_all", self._train)
        patch(Judge, "record", lambda judge, round_: OracleRecord(0.9, []))
        patch(Judge, "judge", self._judge)
        patch(Ledger, "timing", self._timing(Ledger.timing))
        for reading in ("energy_j", "memory_used_mib"):  # wherever this runs, there is no GPU
            patch(GpuMonitor, reading, lambda monitor: None)
        for module in (preflight, bounds):
            patch(module, "missing", lambda needs: "needs a GPU" if {*needs} - {"numba"} else None)

    def on_gpu(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
        """As on a GPU with room for all; the run's environment."""
        monkeypatch.setattr(GpuMonitor, "memory_used_mib", lambda monitor: 100.0)
        monkeypatch.setattr(GpuMonitor, "takes_several_processes", lambda monitor: True)
        for module in (preflight, bounds):
            monkeypatch.setattr(module, "missing", lambda needs: None)
        return {"gpu": {"name": "a GPU", "memory_mib": 80_000}}

    def of(self, folder: Path, *stages: str | Entry, known: Results | None = None, **settings: Any) -> Results:
        """Run these stages; the log is extended."""
        return prepare(folder, *stages, known=known, salt=7, **settings).run(Listener(self))

    def say(self, line: str) -> None:
        """Add a line to the log."""
        self.lines.append(line)

    def say_end(self, name: str) -> None:
        """Add the end of a process, which may be asked for twice."""
        if self.lines[-1] != f"end {name}":
            self.say(f"end {name}")

    def _pass(self, seconds: float) -> None:
        self.now_s += seconds

    def _timing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def timing(ledger: Any, what: str) -> Iterator[None]:
            self.say(f"[ {what}")
            with original(ledger, what):
                yield
            self.say(f"] {what}")

        return timing

    def _launch(
        self, folder: Path, log: Path, server: Any = None, variables: Mapping[str, str] | None = None, wrap: Any = list
    ) -> Any:
        job = msgspec.json.decode((folder / JOB).read_bytes(), type=Job)
        attempt = self._started[folder.name] = self._started.get(folder.name, -1) + 1
        plan = f"{job.wanted.epochs}x{job.wanted.repeats}+{job.wanted.warmups}"
        flags = ["first"] * bool(job.first_updates) + ["compiles"] * job.compiles + ["energy"] * job.energy
        self.say(
            f"start {folder.name} by {server or 'the harness'}: round {job.round}, plan {plan}, budget {job.budget_s}, "
            f"profile {job.profile}, curve {job.curve_steps}, threads {job.blas_threads} {variables or ''} "
            f"{' '.join([*flags, *wrap([])[2:4:2]])}".rstrip()
        )
        log.parent.mkdir(exist_ok=True)
        log.touch()
        self.now_s += 1.0
        write_result(folder, self._result(folder, job, attempt))

        if server is None:
            return self._started_worker([folder.name], folder, log)

        def end() -> None:
            self.say_end(folder.name)

        return SimpleNamespace(server=server, has_ended=lambda: True, wait=lambda limit_s: 0, end=end)

    def _result(self, folder: Path, job: Job, attempt: int) -> JobResult:
        if (folder.name, attempt) in self.crashes:
            return JobResult(error="it crashed")
        if job.compiles:
            return JobResult(compiled_s=2.0)
        if job.profile == "nsys":
            return JobResult(profile=profile(Split(1.0, 1.0, 1.0, 1.0, 1.0), [], tool="nsys"))
        busy = HostState(1.0 if (folder.name, attempt) in self.disturbed else 0.0, 0.0)
        process = Process(job.round, 0.1, [], [1.0], None, [], None, [busy], epochs=2, took_s={"measure": 1.0})
        return JobResult(device=self.device, plan=Plan(2, 1, 0), process=process)

    def _write(self, results: Results, path: Path) -> None:
        state = {
            one.name: f"{one.status} {len(one.processes)}-{len(one.set_aside)} {one.compiled_s or ''}".rstrip()
            for one in results.stages
        } | {what: f"{seconds:.2f} s" for what, seconds in results.took_s.items()}
        new = ", ".join(f"{what} {told}" for what, told in state.items() if self._saved.get(what) != told)
        self._saved = state
        self.say(f"save at {results.seconds:.2f} s, salt {results.settings.salt}: {new}".rstrip())

    def _train(
        self, problem: object, dataset: object, runs: list[int], *rest: Any, trained: bool, short: object
    ) -> Any:
        self.say(f"train {len(runs)} oracles")
        self.now_s += 1.0
        return Computed({one: OracleRun() for one in runs}, Params((), ()) if trained else None)

    def _judge(self, precision: str, job: Job, *rest: object) -> Judged:
        self.say(f"judge {precision} of round {job.round}")
        return Judged([], 0.9)


class Started:
    """A worker that no fork server forked, or a process that measures limits, in vain."""

    order: Order

    def __init__(self, command: list[str], ending: Path, log: Path) -> None:
        self._name = command[-1] if len(command) == 1 else command[2]
        if len(command) > 1:
            self.order.say(f"start {self._name}")
            self.order.now_s += 1.0

    def has_ended(self) -> bool:
        return True

    def wait(self, timeout_s: float) -> int:
        return 0

    def end(self) -> None:
        self.order.say_end(self._name)


class FakeForkServer:
    """Tells what is asked of it."""

    def __init__(self, order: Order, needs: list[str], log: Path) -> None:
        self._order, self._name = order, log.stem
        order.say(f"{self} begins: {' '.join(needs)}".rstrip())

    def __str__(self) -> str:
        return self._name

    def wait(self) -> None:
        self._order.say(f"{self} is awaited")

    def retire(self) -> None:
        self._order.say(f"{self} retires")

    def close(self) -> None:
        self._order.say(f"{self} is closed")


class Immediately:
    """Does at once what threads would do."""

    def __enter__(self) -> Immediately:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future = Future[Any]()
        future.set_result(work(*arguments))
        return future


class Listener(Watcher):
    """Writes every call of the observer down."""

    def __init__(self, order: Order) -> None:
        super().__init__()
        self._order = order

    def __getattribute__(self, name: str) -> Any:
        if name in ("skip", "begin", "leave_out", "start", "step", "finish", "note", "end"):
            return lambda *told, **more: self._order.say(
                f"{name} {', '.join(map(str, (*told, *more.values())))}".rstrip()
            )
        return super().__getattribute__(name)
