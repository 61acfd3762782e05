"""Nsight Systems' command line, nsys: finds it, builds its commands, and exports its report as a database.

nsys profiles a process from outside and writes a report for the Nsight Systems GUI. See its "User Guide", sections "CLI
Profile Command Switch Options" and "CLI Export Command Switch Options".
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.errors import UsageError
from ladder.profile.trace import ProfileError

WHERE_TO_GET_IT = (
    "nsys is part of Nsight Systems: get it from https://developer.nvidia.com/nsight-systems, or with "
    "`apt install nsight-systems-cli` from NVIDIA's repository; if it is elsewhere, set NSYS=/path/to/nsys"
)

# Folders of packages, installers and CUDA toolkits. Nsight Compute contains a copy as well, which may lack libraries:
# it comes last.
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

VERSION_TIMEOUT_S, NSYS_TIMEOUT_S = 10, 120  # a version normally takes a tenth of a second, an export one
REPORT_SUFFIX = ".nsys-rep"  # added by nsys itself

# CPU sampling would make nsys seven times slower. Tracing graphs as a whole would hide their kernels. After the range,
# the program continues to its end, and nsys returns its exit code.
PROFILE_FLAGS = (
    *("-s", "none", "--cpuctxsw=none"),
    *("-t", "cuda,nvtx,cublas,cudnn", "--cuda-graph-trace=node"),
    *("--capture-range=cudaProfilerApi", "--capture-range-end=stop"),
    "--force-overwrite=true",
)


def find() -> Path | None:
    """The nsys to use: $NSYS, or else the first working one on the PATH or in the usual folders, newest first.

    None if there is none. Raises UsageError if $NSYS does not report its version.
    """
    if named := os.environ.get("NSYS"):
        if not _is_program(Path(named)):
            raise UsageError(f"NSYS={named} is not an executable file; set it to the nsys program, or unset NSYS")
        try:
            nsys_version(Path(named))
        except ProfileError as error:
            raise UsageError(f"NSYS={named}: {error}; set it to an nsys that works, or unset NSYS") from error
        return Path(named)
    # In a CUDA toolkit, nsys may be a script that only reports that Nsight Systems is not installed.
    return next((program for program in _programs() if _works(program)), None)


def nsys_version(nsys: Path) -> str:
    """The version of nsys, such as 2025.3.2.367-253236389321v0; raises ProfileError if it prints none."""
    output = _run(nsys, "--version")
    if match := re.search(r"version (\d\S*)", output):
        return match[1]
    raise ProfileError(f"{nsys} prints no version: {_last_line(output) or 'no message'}")


def command(nsys: Path, report: Path, wrapped: Sequence[str]) -> list[str]:
    """The command that runs another command under nsys and returns its exit code.

    nsys records the range between CUDA's profiler start and stop into the file `report`, replacing it. Temporary files
    go to $TMPDIR. nsys mixes its own messages into the command's output.
    """
    output = str(report).removesuffix(REPORT_SUFFIX).replace("%", "%%")  # nsys would expand `%h` and the like
    return [str(nsys), "profile", *PROFILE_FLAGS, "-o", output, *wrapped]


def export(nsys: Path, report: Path, sqlite: Path) -> None:
    """Export the report as an SQLite database, replacing an old one; raises ProfileError with nsys's message."""
    if not report.is_file():
        raise ProfileError(f"nsys left no report {report}: it found no range to record, or could not write it")
    output = _run(nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={sqlite}", str(report))
    if not sqlite.is_file():
        raise ProfileError(f"nsys export wrote no {sqlite}: {_last_line(output)}")


def _programs() -> Iterator[Path]:
    """All executable files named nsys, the preferred one first."""
    if on_path := shutil.which("nsys"):
        yield Path(on_path)
    for places in (((ROOT, INSTALLED), (Path.home(), AT_HOME)), ((ROOT, IN_NSIGHT_COMPUTE),)):
        programs = [
            program
            for root, folders in places
            for folder in folders
            for name in PROGRAMS
            for program in root.glob(f"{folder}/{name}")
            if _is_program(program)
        ]
        yield from sorted(programs, key=_version_in, reverse=True)


def _version_in(path: Path) -> list[int]:
    """The last version in a path, as numbers: 2024.10 is newer than 2024.9."""
    versions = re.findall(r"\d+(?:\.\d+)+", str(path))
    return [int(number) for number in versions[-1].split(".")] if versions else []


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _works(nsys: Path) -> bool:
    try:
        nsys_version(nsys)
    except ProfileError:
        return False
    return True


def _run(nsys: Path, *arguments: str) -> str:
    """The output of nsys; raises ProfileError if it fails."""
    limit_s = VERSION_TIMEOUT_S if arguments == ("--version",) else NSYS_TIMEOUT_S
    try:
        done = subprocess.run(
            [str(nsys), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
        )
    except OSError as error:
        raise ProfileError(f"{nsys} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise ProfileError(f"nsys {arguments[0]} has not ended within {limit_s} s") from error
    if done.returncode != 0:
        message = _last_line(done.stderr) or _last_line(done.stdout) or "no message"
        raise ProfileError(f"nsys {arguments[0]} failed with exit code {done.returncode}: {message}")
    return done.stdout


def _last_line(output: str) -> str:
    """The last line that is not empty; progress bars overwrite theirs by carriage returns."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", output)]
    return next((line for line in reversed(lines) if line), "")
