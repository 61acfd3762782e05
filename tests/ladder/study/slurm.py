"""A real Slurm of one node in a temporary folder, with its own munge; all of it ends with the context."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PROGRAMS = ("munged", "mungekey", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
SBIN = "/usr/sbin"  # where Debian keeps the daemons, off a user's PATH
READY_S = 30.0
CAN_DO_WITHOUT_CGROUPS = (23, 2)  # an older slurmd takes no such word
CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 Features=old,new State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class CannotStartError(Exception):
    """A daemon does not start on this machine: one line with its last words."""


def lacking() -> str | None:
    """Why no Slurm can be started here; None if one can."""
    absent = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:{SBIN}")]
    return f"Slurm is not installed (no {', '.join(absent)}): apt-get install slurm-wlm munge" if absent else None


def cannot_hide() -> str | None:
    """Why a node cannot have a folder of its own here; None if it can."""
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    return f"needs the right to mount: {tried.stderr.strip()}" if tried.returncode else None


@contextmanager
def one_node(folder: Path) -> Iterator[None]:
    """Run a cluster of this machine inside the context, where Slurm's commands find it by SLURM_CONF.

    Unless `cannot_hide`, `folder/hidden` exists on the machine, and not on the node: as a folder that nodes do not
    share. CannotStartError where a daemon needs more than this user may do.
    """
    for name in ("state", "spool", "hidden", "empty"):
        (folder / name).mkdir(parents=True)
    conf = folder / "slurm.conf"
    node, port = socket.gethostname().partition(".")[0], _free_port()
    conf.write_text(CONF.format(host=node, folder=folder, user=getpass.getuser(), port=port, node_port=_free_port()))
    began: list[subprocess.Popen[bytes]] = []
    before = {name: os.environ.get(name) for name in ("SLURM_CONF", "PATH")}
    os.environ |= {"SLURM_CONF": str(conf), "PATH": f"{os.environ['PATH']}:{SBIN}"}
    try:
        if _version() >= CAN_DO_WITHOUT_CGROUPS:  # which a slurmd that is not root's may not write
            (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        key, socket_ = folder / "munge.key", folder / "munge.socket"
        subprocess.run(["mungekey", "--create", f"--keyfile={key}"], check=True)
        files = [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
        _start(began, folder, "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket_}", *files)
        _wait_for(socket_.exists, folder)
        _start(began, folder, "slurmctld", "-D", "-f", str(conf))
        hide = f"mount --bind {folder}/empty {folder}/hidden && exec slurmd -D -f {conf}"
        hiding = ("unshare", "--mount", "sh", "-c", hide)
        _start(began, folder, *(("slurmd", "-D", "-f", str(conf)) if cannot_hide() else hiding))
        _wait_for(lambda: b"idle" in subprocess.run(["sinfo", "-h", "-o%T"], capture_output=True).stdout, folder)
        yield
    finally:
        subprocess.run(["scancel", "--user", getpass.getuser()], capture_output=True)
        _wait_for(lambda: not subprocess.run(["squeue", "-h"], capture_output=True).stdout, folder, must=False)
        for process in reversed(began):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def _start(began: list[subprocess.Popen[bytes]], folder: Path, *command: str) -> None:
    with (folder / f"{command[0]}.out").open("wb") as log:
        began.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))


def _version() -> tuple[int, ...]:
    """Slurm's version from its `slurm-wlm 22.05.8`: year and month."""
    said = subprocess.run(["slurmd", "-V"], capture_output=True, text=True)
    return tuple(int(part) for part in said.stdout.split()[-1].split(".")[:2])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _wait_for(ready: Callable[[], bool], folder: Path, *, must: bool = True) -> None:
    """Wait until it is so; CannotStartError if it `must` be and never is."""
    deadline = time.monotonic() + READY_S
    while not ready():
        if time.monotonic() > deadline:
            if must:
                raise CannotStartError(f"Slurm does not start here: {_last_error(folder)}")
            return
        time.sleep(0.1)


def _last_error(folder: Path) -> str:
    """The last error that a daemon wrote, else its last line."""
    logs = sorted([*folder.glob("*.out"), *folder.glob("*.log")])
    said = [line for path in logs for line in path.read_text().splitlines()]
    return next((line for line in reversed(said) if "error" in line or "fatal" in line), " ".join(said[-1:]))
