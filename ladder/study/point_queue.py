"""Runs inside a job: measures points one after the other in each slot, every point in a process of its own.

A point whose process dies is marked with the reason, and the others go on. On Slurm a job has one point; on a
workstation one job has them all, and as many slots as points run at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from ladder.records.jobs import JobState, PointJob, load_job, save_job

PROGRAM = Path(__file__).parents[2] / "run_ladder.py"
CPUS = Path("/sys/devices/system/cpu")
POLL_S = 0.1
Thing = TypeVar("Thing")
GRACE_S = 20.0  # for a point to stop after SIGTERM; Slurm kills a cancelled job after 30
WARNINGS = {  # signals that end a job, by their reasons
    signal.SIGTERM: "cancelled or preempted",
    signal.SIGUSR2: "out of time",
}


class Slot(NamedTuple):
    """The GPUs of one point at a time, as CUDA_VISIBLE_DEVICES names them, and its cores; None: all of the job."""

    gpus: str | None = None
    cores: set[int] | None = None


class Running(NamedTuple):
    """A point that is being measured."""

    name: str
    slot: Slot
    process: subprocess.Popen[bytes]


def slots(number: int, gpus: Sequence[str], cpus: Path = CPUS) -> list[Slot]:
    """So many slots, with equal shares of the GPUs and of the cores; hyperthreads of a core stay together."""
    cores = list(_siblings(cpus))
    shares = zip(_shares(gpus, number), _shares(cores, number), strict=True)
    return [
        Slot(",".join(own), {thread for core in near or cores for thread in core} if number > 1 else None)
        for own, near in shares
    ]


def _shares(things: Sequence[Thing], number: int) -> list[list[Thing]]:
    each = len(things) // number
    return [list(things[slot * each : (slot + 1) * each]) for slot in range(number)]


def _siblings(cpus: Path) -> Iterator[list[int]]:
    """The usable hardware threads, core by core."""
    usable = sorted(os.sched_getaffinity(0))
    seen: set[int] = set()
    for core in usable:
        if core not in seen:
            together = [core]
            with contextlib.suppress(OSError, ValueError):
                together = _numbers((cpus / f"cpu{core}/topology/thread_siblings_list").read_text())
            siblings = [core for core in together if core in usable] or [core]
            seen.update(siblings)
            yield siblings


def _numbers(text: str) -> list[int]:
    """The CPU numbers of a list such as `0,64` or `0-1`."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return [number for first, *last in ends for number in range(int(first), int(last[0] if last else first) + 1)]


def job_id() -> str:
    """The id of this job, as the engine names it."""
    array, task = (os.environ.get(f"SLURM_ARRAY_{name}_ID", "") for name in ("JOB", "TASK"))
    local = os.environ.get("SUBMITIT_LOCAL_JOB_ID", "")
    return f"{array}_{task}" if array else local or os.environ.get("SLURM_JOB_ID", "")


def measure_points(folder: Path, names: Sequence[str], free: list[Slot], words: Sequence[str]) -> None:
    """Measure these points, as many at once as slots are free; `words` follow the study's command.

    When the job receives such a signal, the points stop where they are, and are marked with the reason.
    """
    told: list[str] = []
    for number in WARNINGS:
        signal.signal(number, lambda number, _: told.append(WARNINGS[signal.Signals(number)]))
    waiting, running, kill_at = list(names), list[Running](), float("inf")
    while (waiting and not told) or running:
        while waiting and free and not told:
            running.append(_begin(folder, waiting.pop(0), free.pop(0), words))
        if told and kill_at == float("inf"):
            kill_at = time.monotonic() + GRACE_S
            for job in running:
                for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process hears nothing
                    job.process.send_signal(number)
        for job in running:
            if job.process.poll() is None and time.monotonic() > kill_at:
                job.process.kill()
        for job in [job for job in running if job.process.poll() is not None]:
            running.remove(job)
            free.append(job.slot)
            if load_job(job.name, folder).state == "running":
                code = job.process.returncode
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
                finish(folder, job.name, "stopped", told[0] if told else f"its process {how}")
        time.sleep(POLL_S)


def finish(folder: Path, name: str, state: JobState, reason: str | None = None) -> None:
    """Write the end of a point that has begun."""
    save_job(replace(load_job(name, folder), state=state, reason=reason, ended=time.time()), folder)


def _begin(folder: Path, name: str, slot: Slot, words: Sequence[str]) -> Running:
    save_job(PointJob(name, "running", job=job_id(), host=socket.gethostname(), began=time.time()), folder)
    command = [
        sys.executable,
        str(PROGRAM),
        "study",
        "--resume",
        str(folder),
        "--points",
        name,
        "--in-job",
        str(os.getpid()),
        *words,
    ]
    environment = os.environ | ({} if slot.gpus is None else {"CUDA_VISIBLE_DEVICES": slot.gpus})
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, slot.cores or own)  # inherited by the process and its children
    try:
        log = folder / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as file:
            process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True
            )
    finally:
        os.sched_setaffinity(0, own)
    return Running(name, slot, process)
