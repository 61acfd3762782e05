"""One point of a study, measured inside a job: only on the study's machine and data, and by one job at a time."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from common.cache import cache_folder
from common.errors import UsageError
from common.process_group import die_with_parent
from ladder.machine import environment
from ladder.options.run_options import RunOptions
from ladder.processes.turn import Turn
from ladder.records.jobs import JOBS, load_submission
from ladder.records.run import ResultsError
from ladder.run.folders import alone_in
from ladder.run.preflight import dataset_of
from ladder.run.runner import Runner
from ladder.study.point_queue import finish
from ladder.study.study_session import StudySession, compile_points, options_at

MACHINE = "machine.json"  # of the job that measured first; the others must have one like it
WAY_OUT = "name one kind of node, such as --slurm constraint=NAME, then continue with --resume"


@dataclass(frozen=True)
class PointSession:
    """The point that `study` is asked for, in a study that jobs measure."""

    study: StudySession
    parent: int  # the job's process

    @property
    def folder(self) -> Path:
        """The study's folder."""
        return self.study.folder

    def measure(self) -> list[Path]:
        """Measure the point or continue it, and leave its state for those who watch; there is nothing to render."""
        die_with_parent(self.parent)  # else a killed job would go on, and another one would measure beside it
        (point,) = (point for point in self.study.plan.points if point.name in (self.study.only or ()))
        run = self.folder / point.name
        run.mkdir(exist_ok=True)
        try:
            with alone_in(run):
                options = options_at(point, self.study.entries, self.study.data_dir)
                self._check_node(options)
                reason = self.study.measure_point(point, run, lambda runner: self._compile_once(runner, options))
            finish(self.folder, point.name, "skipped" if reason else "measured", reason)
        except (UsageError, ResultsError) as error:
            self.study.observer.note(f"{point.name}: stopped: {error}")
            finish(self.folder, point.name, "stopped", str(error))
        finally:
            with suppress(OSError):  # only an empty one goes
                run.rmdir()
        return []

    def check_measured(self) -> None:
        """Do nothing: the point's state tells."""

    def _check_node(self, options: RunOptions) -> None:
        """Raise UsageError on a node that has another GPU, driver, library, commit or data set than the study's."""
        how = load_submission(self.folder)
        if how is None:
            raise UsageError(f"{self.folder / JOBS}: does not say how the study was sent; send it anew with --resume")
        host, now = socket.gethostname(), machine()
        if how.gpus and "none" in now["gpu"]:
            raise UsageError(f"{host}: {now['gpu']['none']}; {WAY_OUT}")
        then = _claimed(now, self.folder / JOBS / MACHINE)
        if other := machine_differences(then, now):
            raise UsageError(f"{host}: {other}; {WAY_OUT}")
        data = dataset_of(data_dir=options.data_dir, seed=0, observer=self.study.observer)
        if data.sha256 not in how.data:
            raise UsageError(f"{host}: found {data.name}, not the data that the study began with; give its --data-dir")

    def _compile_once(self, runner: Runner, options: RunOptions) -> None:
        """Compile the point's stages; a job with the same network waits, and then finds them in the shared cache."""
        stages = [self.study.entries[name].stage for name in options.stages]
        if not any(stage.compiles_within or stage.first_updates_within for stage in stages):
            return
        alike = [options.hidden, options.batch_size, options.epochs, options.max_steps, options.stages]
        name = hashlib.sha256(msgspec.json.encode(alike)).hexdigest()[:16]
        with Turn(cache_folder("compiling") / name):
            compile_points({"stages": runner}, self.folder, options.timeout, self.study.observer)


def machine() -> dict[str, Any]:
    """The parts of this machine that all points of a study have in common."""
    described = environment.describe()
    gpu = {key: value for key, value in described["gpu"].items() if key != "visible_gpus"}
    return {
        "gpu": gpu,
        "cpu": {"model": described["cpu"]["model"]},
        "libraries": described["libraries"],
        "code": {"git_commit": described["code"]["git_commit"]},
    }


def machine_differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first part in which this machine differs from the study's: `gpu name A100, not H200`; empty if none does."""
    for part, present in now.items():
        before = then.get(part, {})
        for key in dict.fromkeys([*before, *present]):
            if before.get(key) != present.get(key):
                return f"{part} {key} {present.get(key, 'missing')}, the study's is {before.get(key, 'missing')}"
    return ""


def _claimed(now: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """The study's machine: the one in this file, else this one; of two jobs that write at once, one wins."""
    own = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    own.write_bytes(msgspec.json.encode(now))
    try:
        with suppress(FileExistsError):
            os.link(own, path)
    finally:
        own.unlink()
    claimed: Mapping[str, Any] = msgspec.json.decode(path.read_bytes())
    return claimed
