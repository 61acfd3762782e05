"""Carries the CUDA 12 packages to a machine without a network, in parts of a size that the way there allows.

    python -m tools.cuda12_bundle pack FOLDER [--python 3.12] [--arch 90] [--part-mib 55] [--with REQUIREMENT ...]
    python3 -m tools.cuda12_bundle unpack FOLDER VENV

`pack` has pip fetch this project's dependencies, its extra `cuda12` and the further requirements for the other
machine's Python. It leaves out files that the ladder never loads, blanks GPU code for other architectures, and writes
the rest as xz-compressed parts with their hashes. `unpack` runs there, on any bare Python of that version: it checks
and joins the parts, and installs them into a new virtual environment.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from common.errors import UsageError
from tools.fatbins import blank_other_architectures

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = "bundle.json"
MIB = 1 << 20

# Wheels for any Linux of 2018 or later (glibc 2.28) will do.
PLATFORMS = [f"manylinux{tag}_x86_64" for tag in ("1", "2010", "2014", *(f"_2_{minor}" for minor in range(5, 29)))]

# What no rung loads: tools beside the libraries, static libraries, cuDNN beyond its softmax, which `libcudnn_ops` and
# `libcudnn_graph` hold, and what CUDA 13 would take of cuda.core.
LEFT_OUT = (
    "*.a",
    "*.pyx",
    "bin/*",
    "cuda/core/cu13/*",
    "nvidia/cublas/lib/libnvblas.so*",
    "nvidia/cuda_nvcc/bin/*",
    "nvidia/cuda_nvcc/nvvm/*",
    "nvidia/cuda_nvrtc/lib/*.alt.so*",
    "nvidia/cudnn/lib/libcudnn_adv.so*",
    "nvidia/cudnn/lib/libcudnn_cnn.so*",
    "nvidia/cudnn/lib/libcudnn_engines_*.so*",
    "nvidia/cudnn/lib/libcudnn_ext.so*",
    "nvidia/cudnn/lib/libcudnn_heuristic.so*",
)

# The x86 filter makes machine code of the host some per cent smaller.
FILTERS = [
    {"id": lzma.FILTER_X86},
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 128 * MIB},
]


def main(arguments: list[str]) -> int:
    """Pack or unpack; the exit status is 2 for what the user can mend."""
    parser = argparse.ArgumentParser(prog="tools.cuda12_bundle", description="CUDA 12 packages without a network.")
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="fetch the packages and write them as parts")
    packing.add_argument("folder", type=Path, help="where the parts go; new or empty")
    packing.add_argument("--python", default="3.12", help="version of the other machine's Python (3.12)")
    packing.add_argument("--arch", type=int, default=90, help="architecture of its GPU: 90 for sm_90 (90)")
    packing.add_argument("--part-mib", type=int, default=55, help="size of a part at most, in MiB (55)")
    packing.add_argument("--with", nargs="+", default=[], metavar="REQUIREMENT", help="more packages, or pins")
    unpacking = commands.add_parser("unpack", help="make a virtual environment of the parts")
    unpacking.add_argument("folder", type=Path, help="the folder with the parts")
    unpacking.add_argument("venv", type=Path, help="the virtual environment to make")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        if options.command == "pack":
            pack(options.folder, getattr(options, "with"), options.python, options.arch, options.part_mib * MIB)
        else:
            unpack(options.folder, options.venv)
    except (UsageError, OSError) as error:
        print(f"cuda12_bundle: {error}", file=sys.stderr)
        return 2
    print(f"cuda12_bundle: done in {time.monotonic() - begun:.0f} s")
    return 0


def pack(folder: Path, more: list[str], python: str, arch: int, part_bytes: int) -> None:
    """Write the parts and their manifest into `folder`; raises UsageError when it is in use, or pip fails."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; name a new folder")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        site = Path(scratch) / "site"
        fetch([*project_requirements(), *more], python, site)
        left_out = leave_out(site)
        blanked = sum(blank(library, arch) for library in site.rglob("*.so*") if library.is_file())
        print(f"cuda12_bundle: left out {left_out / MIB:.0f} MiB, blanked {blanked / MIB:.0f} MiB", flush=True)
        parts = write_parts(site, folder, part_bytes)
    manifest = {"python": python, "arch": arch, "parts": parts}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    sizes = ", ".join(f"{part['bytes'] / MIB:.1f}" for part in parts)
    print(f"cuda12_bundle: {len(parts)} parts in {folder}, in MiB: {sizes}")


def project_requirements() -> list[str]:
    """What pyproject.toml asks for with its extra `cuda12`, but for Numba, which compiles the CPU's rungs alone."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    needed = [one for one in project["dependencies"] if not one.startswith("numba")]
    return [*needed, *project["optional-dependencies"]["cuda12"]]


def fetch(requirements: list[str], python: str, site: Path) -> None:
    """Have pip install into `site` what fits that Python on x86-64 Linux; raises UsageError with pip's last words."""
    platforms = [word for tag in PLATFORMS for word in ("--platform", tag)]
    target = ["--python-version", python, "--implementation", "cp", "--only-binary", ":all:", *platforms]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
        "--no-input",
    ]
    command = [*pip, *target, "--target", str(site), *requirements]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if run.returncode:
        said = [line for line in run.stderr.splitlines() if line.strip()] or ["it said nothing"]
        raise UsageError(f"pip could not fetch the packages: {said[-1]}")


def leave_out(site: Path) -> int:
    """Delete what is never loaded; returns how many bytes that was."""
    files = [path for path in site.rglob("*") if path.is_file()]
    unused = [path for path in files if any(fnmatch(path.relative_to(site).as_posix(), one) for one in LEFT_OUT)]
    size = sum(path.stat().st_size for path in unused)
    for path in unused:
        path.unlink()
    return size


def blank(library: Path, arch: int) -> int:
    """Blank other architectures' GPU code in this file; returns how many bytes that was."""
    content = bytearray(library.read_bytes())
    blanked = blank_other_architectures(content, arch)
    if blanked:
        library.write_bytes(content)
    return blanked


class PartWriter(io.RawIOBase):
    """A stream that leaves files `part-00.xz`, `part-01.xz`, ...: each a whole xz stream, and joined, one as well."""

    def __init__(self, folder: Path, part_bytes: int) -> None:
        self.parts: list[dict[str, Any]] = []
        self._folder = folder
        self._limit = part_bytes - min(MIB, part_bytes // 2)  # the compressor still holds something when it is asked
        self._begin()

    def _begin(self) -> None:
        self._compressor = lzma.LZMACompressor(filters=FILTERS)
        self._compressed = bytearray()
        self._taken = 0

    def writable(self) -> bool:
        """It is written to, and only that."""
        return True

    def write(self, data: bytes | memoryview) -> int:  # type: ignore[override]
        """Compress these bytes; ends a part that has become large enough."""
        self._compressed += self._compressor.compress(data)
        self._taken += len(data)
        if len(self._compressed) >= self._limit:
            self._end()
            self._begin()
        return len(data)

    def close(self) -> None:
        """End the last part."""
        if not self.closed and self._taken:
            self._end()
        super().close()

    def _end(self) -> None:
        self._compressed += self._compressor.flush()
        name = f"part-{len(self.parts):02}.xz"
        (self._folder / name).write_bytes(self._compressed)
        digest = hashlib.sha256(self._compressed).hexdigest()
        self.parts.append(
            {"name": name, "bytes": len(self._compressed), "unpacked_bytes": self._taken, "sha256": digest}
        )
        self._taken = 0
        print(f"cuda12_bundle: {name}, {len(self._compressed) / MIB:.1f} MiB", flush=True)


def write_parts(site: Path, folder: Path, part_bytes: int) -> list[dict[str, Any]]:
    """Write the folder's content as parts of a tar archive; returns their rows of the manifest."""
    with PartWriter(folder, part_bytes) as writer, tarfile.open(fileobj=writer, mode="w|") as archive:
        for path in sorted(site.iterdir()):
            archive.add(path, path.name)
    return writer.parts


def unpack(folder: Path, environment: Path) -> None:
    """Make the virtual environment; raises UsageError for missing or damaged parts, or another Python."""
    manifest = read_manifest(folder)
    python = ".".join(str(number) for number in sys.version_info[:2])
    if manifest["python"] != python:
        raise UsageError(f"{folder} was packed for Python {manifest['python']}, this is {python}")
    if environment.exists():
        raise UsageError(f"{environment} exists; name a new folder")
    missing = [part["name"] for part in manifest["parts"] if not (folder / part["name"]).is_file()]
    if missing:
        raise UsageError(f"{folder} lacks {', '.join(missing)}; bring the rest first")
    try:
        venv.EnvBuilder(symlinks=True).create(environment)
        site = environment / "lib" / f"python{python}" / "site-packages"
        with tempfile.TemporaryFile(dir=environment) as archive:
            join(folder, manifest["parts"], archive.fileno())
            with tarfile.open(fileobj=archive, mode="r:") as files:
                files.extractall(site, filter="data")
    except BaseException:
        shutil.rmtree(environment, ignore_errors=True)
        raise
    print(f"cuda12_bundle: {environment}/bin/python run_ladder.py --doctor says what is there")


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `pack` left beside the parts; raises UsageError where there is none."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        raise UsageError(f"{folder} has no {MANIFEST}; it lies beside the parts that `pack` wrote") from None
    except ValueError as error:
        raise UsageError(f"{folder / MANIFEST} is damaged: {error}") from None
    return manifest


def join(folder: Path, parts: list[dict[str, Any]], archive: int) -> None:
    """Write the parts' content, one after the other, into the open file; a core works on each."""
    ends = list(itertools.accumulate(part["unpacked_bytes"] for part in parts))
    with ThreadPoolExecutor() as pool:  # hashing and decompressing let other threads run
        list(pool.map(lambda part, end: expand(folder, part, archive, end - part["unpacked_bytes"]), parts, ends))


def expand(folder: Path, part: dict[str, Any], archive: int, position: int) -> None:
    """Write one part's content into the open file from there; raises UsageError when it is not what was packed."""
    compressed = (folder / part["name"]).read_bytes()
    if hashlib.sha256(compressed).hexdigest() != part["sha256"]:
        raise UsageError(f"{folder / part['name']} is damaged; bring it again")
    with lzma.open(io.BytesIO(compressed)) as content:
        while piece := content.read(MIB):
            position += os.pwrite(archive, piece, position)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
