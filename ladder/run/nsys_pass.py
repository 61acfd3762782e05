"""Profiles the stages that passed on the GPU under nsys, after all timed runs; it changes no stage's status.

They prepare side by side, and one runs at a time, while nsys writes and reads the reports of those before.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from ladder.processes.held_workers import HeldWorker
from ladder.profile import nsys
from ladder.profile.summary import with_bytes
from ladder.run.bench import Bench
from ladder.run.bounds import Bounds
from ladder.run.jury import Jury
from ladder.run.ledger import Ledger
from ladder.run.observer import RunObserver
from ladder.run.orders import Order, Orders
from ladder.run.stage_run import StageRun
from ladder.run.under_nsys import profiled

ACTIVITY = "profiling by nsys"
PROFILES = "profiles"  # subfolder for nsys reports


class NsysPass:
    """One more worker for each stage of a run that is to be profiled."""

    def __init__(
        self, ledger: Ledger, jury: Jury, bounds: Bounds, bench: Bench, orders: Orders, observer: RunObserver
    ) -> None:
        self._ledger, self._jury, self._bounds, self._bench = ledger, jury, bounds, bench
        self._orders, self._observer = orders, observer

    def run(self) -> None:
        """Profile what has no such profile yet, and save the results."""
        wanted = self._ledger.settings.nsys_stages
        requested = [stage for stage in self._ledger.stages if wanted is None or stage.name in wanted]
        stages = [stage for stage in requested if stage.needs_profile("nsys")]
        if (tool := nsys.find()) is None:
            for stage in stages:
                stage.set_unprofiled("nsys", nsys.WHERE_TO_GET_IT)
        elif stages:
            self._observer.begin(len(stages), [stage.name for stage in stages], "under nsys")
            self._profile([self._order(tool, stage) for stage in stages])
        self._ledger.save()

    def _order(self, tool: Path, stage: StageRun) -> Order:
        assert stage.step_us is not None  # it passed and was timed
        wrap = profiled(tool, self._ledger.folder / PROFILES, stage.name, self._jury.steps, stage.step_us)
        return self._orders.order(stage, 0).renamed("nsys", wrap, profile="nsys")

    def _profile(self, orders: Sequence[Order]) -> None:
        reading: list[tuple[StageRun, HeldWorker]] = []
        with self._bench.preparing(), ExitStack() as begun:
            for index, order in enumerate(orders):
                self._observer.start(f"{order.stage.name} under nsys", 1, 1)
                with self._ledger.timing(ACTIVITY):
                    if self._bench.may_hold(order.stage):
                        self._bench.prepare(orders[index:])
                    worker = self._bench.take(order) or self._bench.start(order, held=True)
                    begun.enter_context(closing(worker))
                    worker.work_alone(self._bench.timeout_s)
                reading.append((order.stage, worker))
                while reading and reading[0][1].has_ended:
                    self._record(*reading.pop(0))
            for stage, worker in reading:
                self._record(stage, worker)

    def _record(self, stage: StageRun, worker: HeldWorker) -> None:
        """Add what a worker leaves, once it has ended."""
        with self._ledger.timing(ACTIVITY), closing(worker):
            result = worker.take_turn(self._bench.timeout_s)
        if result.profile is None:
            stage.set_unprofiled("nsys", f"{result.error}")
            text = f"nsys: {result.error}"
        else:
            has_bytes = (
                stage.entry.stage.traits and self._jury.problem.networks == 1 and not stage.entry.stage.takes_gpus
            )
            stage.add_profile(with_bytes(result.profile, self._jury.problem) if has_bytes else result.profile)
            self._bounds.check(stage)
            text = f"profiled: {result.profile.kernels_per_step:.3g} kernels per step"
        shutil.rmtree(worker.folder, ignore_errors=True)
        self._ledger.save(measured=True)
        self._observer.finish(stage.name, stage.status or "crashed", text)
