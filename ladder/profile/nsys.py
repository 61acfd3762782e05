"""Nsight Systems' command line, nsys: where it is, how a program is run under it, and its report as a database.

nsys watches a process from outside, and leaves a report that its own window can open. See its "User Guide", sections
"CLI Profile Command Switch Options" and "CLI Export Command Switch Options".
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.errors import UsageError
from ladder.profile.nsys_export import read
from ladder.profile.trace import ProfileError

__all__ = ["WHERE_TO_GET_IT", "command", "export", "find", "read", "version"]

WHERE_TO_GET_IT = (
    "nsys is part of Nsight Systems: get it from https://developer.nvidia.com/nsight-systems, or with "
    "`apt install nsight-systems-cli` from NVIDIA's repository; NSYS=/path/to/nsys names one in another place"
)

# Folders of packages, of installers and of toolkits that brought it along. Nsight Compute has a copy, too, for which
# libraries may be missing: it comes last.
ROOT = Path("/")
INSTALLED = (
    "opt/nvidia/nsight-systems/*",
    "opt/nvidia/nsight-systems-cli/*",
    "usr/local/cuda*/nsight-systems-*",
    "usr/local/cuda*",
    "usr/lib/nsight-systems",
)
AT_HOME = ("nsight-systems*", "nsight-systems*/*", "opt/nvidia/nsight-systems*/*")
IN_NSIGHT_COMPUTE = ("opt/nvidia/nsight-compute/*/host", "usr/local/cuda*/nsight-compute-*/host")
PROGRAMS = ("bin/nsys", "target-linux-*/nsys")

PATIENCE_S = 120  # with an export, which takes a second
REPORT_SUFFIX = ".nsys-rep"  # which nsys adds by itself

# Sampling the processor would take nsys seven times as long. A graph traced as a whole would hide its kernels. After
# the range the program goes on to its own end, and nsys returns its exit code.
PROFILE_FLAGS = (
    *("-s", "none", "--cpuctxsw=none"),
    *("-t", "cuda,nvtx,cublas,cudnn", "--cuda-graph-trace=node"),
    *("--capture-range=cudaProfilerApi", "--capture-range-end=stop"),
    "--force-overwrite=true",
)


def find() -> Path | None:
    """The nsys to use: what $NSYS names, else the first that works on the PATH or, newest first, where it is installed.

    Raises UsageError where $NSYS is set and no program.
    """
    if named := os.environ.get("NSYS"):
        if not _is_program(Path(named)):
            raise UsageError(f"NSYS={named} is no program that can be run; name the file nsys itself, or unset NSYS")
        return Path(named)
    # The one in a CUDA toolkit may be a script that only says that Nsight Systems is not installed.
    return next((program for program in _programs() if _works(program)), None)


def version(nsys: Path) -> str:
    """Its version, such as 2025.3.2.367-253236389321v0; raises ProfileError where it does not say."""
    said = _run(nsys, "--version")
    if found := re.search(r"version (\d\S*)", said):
        return found[1]
    raise ProfileError(f"{nsys} does not say its version: {_last_line(said)}")


def command(nsys: Path, report: Path, wrapped: Sequence[str]) -> list[str]:
    """The command that runs a command under nsys and returns its exit code.

    What runs between CUDA's profiler start and stop is recorded, into the file `report`, which is replaced where it
    exists. Temporary files go to $TMPDIR. nsys writes messages of its own among what the command writes.
    """
    output = str(report).removesuffix(REPORT_SUFFIX).replace("%", "%%")  # `%h` and the like have meanings in a name
    return [str(nsys), "profile", *PROFILE_FLAGS, "-o", output, *wrapped]


def export(nsys: Path, report: Path, sqlite: Path) -> None:
    """Write the report as an SQLite database, replacing what is there; raises ProfileError with what nsys says."""
    if not report.is_file():
        raise ProfileError(f"nsys left no report {report}: it saw no range to record, or could not write it")
    said = _run(nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={sqlite}", str(report))
    if not sqlite.is_file():
        raise ProfileError(f"nsys export wrote no {sqlite}: {_last_line(said)}")


def _programs() -> Iterator[Path]:
    """What is called nsys and can be run, the best first."""
    if on_path := shutil.which("nsys"):
        yield Path(on_path)
    for places in (((ROOT, INSTALLED), (Path.home(), AT_HOME)), ((ROOT, IN_NSIGHT_COMPUTE),)):
        found = [
            program
            for root, folders in places
            for folder in folders
            for name in PROGRAMS
            for program in root.glob(f"{folder}/{name}")
            if _is_program(program)
        ]
        yield from sorted(found, key=_version_in, reverse=True)


def _version_in(path: Path) -> list[int]:
    """The last version in a path, in numbers: 2024.10 is newer than 2024.9."""
    versions = re.findall(r"\d+(?:\.\d+)+", str(path))
    return [int(number) for number in versions[-1].split(".")] if versions else []


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _works(nsys: Path) -> bool:
    try:
        version(nsys)
    except ProfileError:
        return False
    return True


def _run(nsys: Path, *arguments: str) -> str:
    """What nsys says; raises ProfileError where it fails."""
    try:
        done = subprocess.run(
            [str(nsys), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
        )
    except OSError as error:
        raise ProfileError(f"{nsys} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ProfileError(f"nsys {arguments[0]} has not ended within {PATIENCE_S} s") from error
    if done.returncode != 0:
        said = _last_line(done.stderr) or _last_line(done.stdout) or "nothing"
        raise ProfileError(f"nsys {arguments[0]} failed with exit code {done.returncode}: {said}")
    return done.stdout


def _last_line(said: str) -> str:
    """The last line with anything in it; progress bars overwrite theirs."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", said)]
    return next((line for line in reversed(lines) if line), "")
