"""Compares the stages' times with what GPU and CPU can do; the GPU's limits are measured beside nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.cpu.cores import cores_allowed
from ladder.machine.cpu_limits import cpu_cheat_limit
from ladder.machine.environment import missing
from ladder.machine.limits import bounds_of, keep_limits
from ladder.run.bench import Bench
from ladder.run.jury import Jury
from ladder.run.ledger import Ledger
from ladder.run.observer import RunObserver
from ladder.run.stage_run import StageRun

ACTIVITY = "measuring limits"


class Bounds:
    """The bounds of the stages of a run. Where limits cannot be measured, stages only lack bounds."""

    def __init__(self, ledger: Ledger, jury: Jury, bench: Bench) -> None:
        self._ledger, self._bench, self._problem, self._steps = ledger, bench, jury.problem, jury.steps
        self._density = float(np.mean(jury.dataset.train.images > 0))

    def measure(self, stages: Sequence[StageRun], observer: RunObserver) -> None:
        """Measure the GPU's limits, unless they are known, or none of these stages needs a GPU.

        They take longer than the first rows, and so come after them: a row that lies below them fails then.
        """
        if self._ledger.settings.at_once > 1 or self._ledger.results.limits or missing(("cuda",)) is not None:
            return
        if not any(stage.entry.stage.needs for stage in stages):
            return
        observer.step("measuring the GPU's limits")
        with self._ledger.timing(ACTIVITY):
            limits = self._bench.gpu_limits()
        if limits is not None:
            keep_limits(self._ledger.results.environment, limits)
        self._ledger.keep(limits=limits)
        for stage in [stage for stage in self._ledger.stages if stage.device == "gpu"]:
            passed = stage.status == "passed"
            self.check(stage)
            if passed and stage.status != "passed":
                observer.note(f"{stage.name}: {stage.reason}")

    def check(self, stage: StageRun) -> None:
        """Compare a stage's time with its bounds on its device, and fail it if no machine can be as fast."""
        if stage.device == "gpu" and self._ledger.results.environment.get("gpu"):
            self._check_on_gpu(stage)
        else:  # whatever device it names; by affinity alone: a step is shorter than the period of a group's quota
            stage.check_time(cpu_cheat_limit(self._problem, cores_allowed(), self._density))

    def _check_on_gpu(self, stage: StageRun) -> None:
        if (limits := self._ledger.results.limits) is None:
            return
        bounds = bounds_of(limits, stage.entry.stage, self._problem.alone(0), self._steps, stage.profile)
        if self._problem.networks == 1:
            stage.check_speed(bounds)
        elif bounds is not None:  # several take no less time than one; the rest is of one network's design
            stage.check_time(bounds.cheat_limit_us)
