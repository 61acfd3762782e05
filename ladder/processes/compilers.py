"""Compiles stages side by side while nothing is measured, and leaves the compiled code on disk for their workers.

A compiler takes longer than the measurement of its stage, mostly on one core. Compiling within the measured processes,
one after the other, would leave the other cores idle. Code that a compiler selects by timing must not be compiled here,
while other processes use the GPU: see `Stage.compiles_within`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ladder.machine.environment import cores_usable
from ladder.measure.protocol import Job
from ladder.processes.fork_servers import ForkServer
from ladder.processes.worker_pool import WorkerPool

CORES_EACH = 2  # a compiler starts processes of its own


class Compilers(WorkerPool):
    """A worker for each job, given by stage name, as many at once as the cores allow.

    If only one could run at a time, no job runs: each stage's first process then compiles in the same time.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job],
        folder: Path,
        logs: Path,
        timeout_s: float,
        note: Callable[[str], object] = lambda _: None,
        fork_server_of: Callable[[str], ForkServer | None] = lambda _: None,
    ) -> None:
        """`fork_server_of` gives the fork server of the stage of this name."""
        at_once = cores_usable() // CORES_EACH
        self._stages = {f"{name}.compiling": name for name in jobs if min(len(jobs), at_once) > 1}
        super().__init__(
            {log: jobs[name] for log, name in self._stages.items()},
            at_once,
            folder,
            logs,
            timeout_s,
            note,
            lambda log: fork_server_of(self._stages[log]),
        )
        self.names = list(self._stages.values())

    def wait(self) -> dict[str, float]:
        """Wait for all jobs; returns the seconds that each stage's preparation took, by stage name.

        The time is 0 if the job failed or did not compile the timed trainer: the stage then compiles when measured.
        """
        return {
            self._stages[job.name]: (job.result.compiled_s or 0.0) if job.result.error is None else 0.0 for job in self
        }
