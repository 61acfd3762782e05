"""Runs commands side by side, each on a GPU of its own with its share of the cores; on one GPU, one after the other.

    python -m tools.side_by_side LOGS NAME COMMAND [NAME COMMAND ...]

On one GPU a command has the terminal; on several it writes to LOGS/NAME.log. Status 1 means that a command measured and
found something wrong. A larger status means that it was refused or interrupted; the others are then
interrupted, too. Exits with the largest status, and prints how long each command took.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from common.cuda.driver import devices

CPUS = Path("/sys/devices/system/cpu")
MEASURED = 1  # the largest status of a command that measured to its end
POLL_S = 0.2


class Slot(NamedTuple):
    """A GPU, as CUDA_VISIBLE_DEVICES names it, and the cores beside it."""

    gpu: str
    cores: set[int]


class Running(NamedTuple):
    """A running command."""

    name: str
    slot: Slot
    process: subprocess.Popen[bytes]
    begun: float


def slots(gpus: int, cpus: Path = CPUS) -> list[Slot]:
    """One slot a GPU, with an equal share of the cores; hyperthreads of a core stay together."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    names = named if len(named) == gpus > 1 else [str(number) for number in range(gpus)]
    cores = list(_siblings(cpus))
    share = len(cores) // gpus
    shares = [cores[n * share : (n + 1) * share] if share else cores for n in range(gpus)]
    return [Slot(name, {thread for core in own for thread in core}) for name, own in zip(names, shares, strict=True)]


def _siblings(cpus: Path) -> Iterator[list[int]]:
    """The usable hardware threads, core by core."""
    usable = sorted(os.sched_getaffinity(0))
    seen: set[int] = set()
    for core in usable:
        if core not in seen:
            together = [core]
            with contextlib.suppress(OSError, ValueError):
                together = _numbers((cpus / f"cpu{core}/topology/thread_siblings_list").read_text())
            found = [one for one in together if one in usable] or [core]
            seen.update(found)
            yield found


def _numbers(text: str) -> list[int]:
    """The CPU numbers of a list such as `0,64` or `0-1`."""
    ends = [part.split("-") for part in text.strip().split(",")]
    return [number for first, *last in ends for number in range(int(first), int(last[0] if last else first) + 1)]


def run(jobs: Sequence[tuple[str, str]], free: list[Slot], logs: Path) -> int:
    """Run the (name, command) pairs in order as slots come free; returns their largest status."""
    alone, waiting, running, worst, told = len(free) == 1, list(jobs), list[Running](), 0, False
    try:
        while waiting or running:
            while waiting and free:
                running.append(_begin(*waiting.pop(0), free.pop(0), None if alone else logs))
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                free.append(one.slot)
                print(f"{one.name} took {time.monotonic() - one.begun:.0f} s", flush=True)
                worst = max(worst, _status(one.process))
            if worst > MEASURED:
                return worst
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        worst, told = 128 + signal.SIGINT, alone  # alone, the terminal has interrupted it already
    finally:
        for one in running:
            if not told:
                _interrupt(one.process, alone)
        for one in running:
            one.process.wait()
    return worst


def _interrupt(process: subprocess.Popen[bytes], alone: bool) -> None:
    """Send Ctrl-C to a command: to its whole process group if it has one, since a shell does not pass it on."""
    if alone:
        process.send_signal(signal.SIGINT)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)


def _status(process: subprocess.Popen[bytes]) -> int:
    """The exit status as a shell gives it: 128 plus the signal's number for a killed process."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _begin(name: str, command: str, slot: Slot, logs: Path | None) -> Running:
    if logs is None:
        return Running(name, slot, subprocess.Popen(shlex.split(command)), time.monotonic())
    logs.mkdir(parents=True, exist_ok=True)
    environment, own = os.environ | {"CUDA_VISIBLE_DEVICES": slot.gpu}, os.sched_getaffinity(0)
    os.sched_setaffinity(0, slot.cores)  # inherited by the command and its children
    try:
        with (logs / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                shlex.split(command), env=environment, stdout=log, stderr=log, start_new_session=True
            )
    finally:
        os.sched_setaffinity(0, own)
    return Running(name, slot, process, time.monotonic())


def main(arguments: Sequence[str]) -> int:
    """Run the commands of the command line; returns the exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # its finally blocks interrupt the commands
    logs, *rest = arguments
    free = slots(len(devices()) or 1)
    return run(list(zip(rest[::2], rest[1::2], strict=True)), free, Path(logs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
