"""Compilers side by side, before anything is measured: processes that leave on disk what those to be measured need.

A compiler takes longer than all that is measured of its stage, and most of that on one core. One after the other, as
stages are measured, they would keep all other cores waiting. What they are not to leave there is anything that they
chose by timing it, while others use the GPU: see `Stage.compiles_within`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ladder.machine.environment import cores_usable
from ladder.measure.protocol import Job
from ladder.processes.worker_pool import SideBySide

CORES_EACH = 2  # a compiler has processes of its own for its kernels


class Compilers(SideBySide):
    """A process for each job, by the name of what it is for, of which as many run at once as the cores can take.

    Where that is no more than one at a time, there are none: it would take as long as each stage's own first process
    does.
    """

    def __init__(self, jobs: Mapping[str, Job], folder: Path, logs: Path, timeout_s: float) -> None:
        at_once = cores_usable() // CORES_EACH
        self._of = {f"{name}.compiling": name for name in jobs if min(len(jobs), at_once) > 1}
        super().__init__({log: jobs[name] for log, name in self._of.items()}, at_once, folder, logs, timeout_s)
        self.names = list(self._of.values())

    def wait(self) -> dict[str, float]:
        """Until all have ended, or been ended as too late; how long preparing took each, in seconds, by its name.

        0 for one that did not prepare what is timed, or failed, which has cost its time and no more: its stage compiles
        when it is measured.
        """
        return {self._of[one.name]: (one.report.compiled_s or 0.0) if one.report.error is None else 0.0 for one in self}
