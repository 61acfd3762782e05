"""Sends a study's points to Slurm, or to a process of this host that outlives the terminal; asks how they are.

submitit writes the jobs' files into `jobs/` of the study's folder.
"""

from __future__ import annotations

import atexit
import io
import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

from common.cuda.driver import devices
from common.errors import UsageError
from ladder.records.jobs import JOBS, Engine, Submission
from ladder.run.folders import environment_of
from ladder.study.point_queue import PROGRAM, Slot, measure_points, slots

MONTH_MIN = 30 * 24 * 60  # a local job has no limit of its own
NOT_SHARED = 66  # exit status of a job whose node does not see the study's folder
ALIVE = {  # Slurm's states of a job that goes on: whether it has begun
    "PENDING": False, "REQUEUED": False, "REQUEUE_HOLD": False, "REQUEUE_FED": False, "SPECIAL_EXIT": False,
    "RESV_DEL_HOLD": False, "CONFIGURING": False, "RUNNING": True, "COMPLETING": True, "SUSPENDED": True,
    "STOPPED": True, "STAGE_OUT": True, "SIGNALING": True, "RESIZING": True,
}  # fmt: skip
ENDINGS = {
    "CANCELLED": "cancelled", "TIMEOUT": "out of time", "PREEMPTED": "preempted", "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "out of memory", "FAILED": "its job failed",
}  # fmt: skip

_begun_here: list[Any] = []  # submitit's local jobs: without them Python would complain of a process that lives on
atexit.register(_begun_here.clear)  # their __del__ needs submitit's modules, which Python takes apart after this


def check_engine(on: Engine) -> None:
    """Raise UsageError where this engine cannot be used."""
    if on == "slurm" and not shutil.which("sbatch"):
        raise UsageError("--on slurm: no sbatch on the PATH; log in to the cluster first, or choose --on local")
    try:
        import submitit  # noqa: F401, late, as only jobs need it
    except ModuleNotFoundError:
        raise UsageError(f"--on {on}: needs submitit, which is not installed: `make setup CLUSTER=1`") from None


def local_gpus() -> list[str]:
    """The GPUs of this host, as CUDA_VISIBLE_DEVICES names them."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    ordinals = [str(ordinal) for ordinal in range(len(devices()))]
    return (named or ordinals)[: len(ordinals)]  # CUDA takes names up to the first that it does not know


def local_slots(parallel: int, gpus: int) -> list[Slot]:
    """The slots of this host; UsageError if it has too few GPUs for them."""
    here = local_gpus()
    if (wanted := parallel * gpus) > len(here):
        raise UsageError(f"--parallel {parallel}: with --gpus {gpus} needs {wanted} GPUs, this host has {len(here)}")
    return slots(parallel, here[:wanted])


def submit(folder: Path, names: Sequence[str], how: Submission, words: Sequence[str]) -> dict[str, str]:
    """Send these points, each with a job's id; UsageError in one line if Slurm refuses them."""
    import submitit

    folder = folder.absolute()
    with _own_environment():
        if how.on == "local":
            local = submitit.LocalExecutor(folder / JOBS)
            local.update_parameters(timeout_min=MONTH_MIN)
            job = local.submit(measure_points, folder, list(names), local_slots(how.parallel, how.gpus), words)
            _begun_here.append(job)
            return dict.fromkeys(names, job.job_id)
        slurm = submitit.SlurmExecutor(folder / JOBS)
        slurm.update_parameters(**_sbatch_options(folder, how))
        measure = [partial(measure_points, folder, [name], [Slot()], words) for name in names]
        try:
            with redirect_stderr(io.StringIO()):
                return {name: job.job_id for name, job in zip(names, slurm.submit_array(measure), strict=True)}
        except submitit.core.utils.FailedJobError as error:
            said = str(error).strip().splitlines() or ["it gave no reason"]
            raise UsageError(f"--on slurm: sbatch refused the jobs: {said[-1].removeprefix('sbatch: ')}") from error


def _sbatch_options(folder: Path, how: Submission) -> dict[str, Any]:
    """The options of sbatch by submitit's names; the user's own win."""
    given: dict[str, Any] = {key: value or True for key, value in how.slurm.items()}
    cores = how.slurm.get("cpus-per-task")
    return {
        "job_name": f"study-{folder.name}",
        "array_parallelism": how.parallel,
        "gpus_per_node": how.gpus or None,
        "time": None,  # the partition's
        "wckey": None,
        "setup": [f"[ -e {shlex.quote(str(folder / JOBS))} ] || exit {NOT_SHARED}", *_exports()],
        "srun_args": [f"--cpus-per-task={cores}"] if cores else None,  # which srun does not take over from sbatch
        "additional_parameters": given,
    }


def _exports() -> list[str]:
    """Lines that set what a job needs of this environment, which a cluster may not hand over to it or its steps."""
    needed = {name: text for name, text in os.environ.items() if name == "PYTHONPATH" or name.startswith("LADDER_")}
    return [*(f"export {name}={shlex.quote(text)}" for name, text in needed.items()), "export SLURM_EXPORT_ENV=ALL"]


@contextmanager
def _own_environment() -> Iterator[None]:
    """Jobs begun inside the context find our modules, and live on after Ctrl-C and the end of the terminal."""
    path = os.pathsep.join(filter(None, [str(PROGRAM.parent), os.environ.get("PYTHONPATH")]))
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        with environment_of({"PYTHONPATH": path}):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def states(folder: Path, how: Submission) -> Mapping[str, str] | None:
    """The state of each job by its id, in Slurm's words; one that ended long ago has none. None: Slurm does not say."""
    if how.on == "local":
        if how.host != socket.gethostname():
            raise UsageError(f"{folder}: its points are measured on {how.host}; continue it there")
        return {job: "RUNNING" for job in set(how.jobs.values()) if _runs(job, folder)}
    jobs = f"--jobs={','.join(_arrays(how.jobs.values()))}"
    asked = _ask("squeue", "--noheader", "--array", "--states=all", "--format=%i %T", jobs)
    if asked.returncode and "Invalid job id" not in asked.stderr:
        return None
    by_job = _pairs(asked.stdout)
    if set(how.jobs.values()) - by_job.keys() and shutil.which("sacct"):  # which fails on a cluster without accounting
        by_job = (
            _pairs(_ask("sacct", "--noheader", "--allocations", "--format=JobID%40,State%20", jobs).stdout) | by_job
        )
    return by_job


def _ask(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _pairs(text: str) -> dict[str, str]:
    """The state of each job in a table, without what follows it, such as `by 1000`."""
    return {words[0]: words[1] for line in text.splitlines() if len(words := line.split()) > 1}


def _runs(process: str, folder: Path) -> bool:
    """Whether this process of submitit lives; its id may have gone to another one."""
    try:
        return os.fsencode(folder.absolute() / JOBS) in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def stop_command(how: Submission) -> list[str]:
    """The command that ends all jobs."""
    return ["scancel" if how.on == "slurm" else "kill", *_arrays(how.jobs.values())]


def _arrays(jobs: Iterable[str]) -> list[str]:
    return sorted({job.partition("_")[0] for job in jobs})
