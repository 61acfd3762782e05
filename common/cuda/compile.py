"""CUDA C++ to machine code (a cubin) by NVRTC, without a GPU or a driver.

Floating point follows NVRTC's defaults: a product and a sum may fuse into a multiply-add, everything else rounds by
IEEE 754, denormals stay. No fast-math option is ever passed: no kernel gains speed from lower accuracy. CUDA packages
are imported on first compilation, so this module imports anywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from common.cache import cache_folder
from common.files import atomic_write
from common.source_hash import source_hash


@dataclass(frozen=True)
class Resources:
    """One kernel's resources as reported by ptxas; all but `registers` in bytes."""

    registers: int  # per thread
    spill_stores: int
    spill_loads: int
    stack_frame: int
    shared_bytes: int  # static, per block


@dataclass(frozen=True)
class Cubin:
    """A compiled `.cu` file; `resources` by kernel name, without kernels absent from ptxas's report."""

    code: bytes
    resources: dict[str, Resources]


class CompileError(Exception):
    """Errors of a `.cu` file as `file.cu:line: error: ...`, in order."""


Macros = tuple[tuple[str, str], ...]  # names and their replacements


def compile_cubin(source: Path, arch: str, macros: Macros = (), *, lineinfo: bool = False) -> Cubin:
    """Compile one file for an architecture such as `sm_90`, if asked with the source line of each instruction.

    Raises CompileError for an error in the source; ImportError or RuntimeError without cuda.core or NVRTC.
    """
    from cuda.core import Program, ProgramOptions

    log = io.StringIO()
    try:
        how = {"define_macro": list(macros) or None, "lineinfo": lineinfo or None}
        options = ProgramOptions(name=str(source), arch=arch, **how, **_options(source))
        program = Program(source_text(source), "c++", options)
        code = program.compile("cubin", logs=log).code
    except Exception as error:
        # cuda.core keeps this exception's class private; its text has NVRTC's status and log.
        if "NVRTC_ERROR" not in str(error):
            raise
        raise CompileError(_errors(str(error), source, arch)) from error
    return Cubin(code, parse_resources(log.getvalue()))


def cached_cubin(source: Path, arch: str, macros: Macros = ()) -> Cubin:
    """Like `compile_cubin`, with a cache on disk in the folder `kernels`.

    The key is a hash of everything that affects the machine code. A damaged entry is compiled again. A cache that
    cannot be read or written costs time but raises no error.
    """
    entry = cache_folder("kernels") / f"{source.stem}-{arch}-{source_key(source, arch, macros)}.cubin"
    cubin = _load(entry)
    if cubin is None:
        cubin = compile_cubin(source, arch, macros)
        _save(cubin, entry)
    return cubin


def nvrtc_version() -> tuple[int, int]:
    """Version of NVRTC; ImportError or RuntimeError without one."""
    from cuda.bindings import nvrtc

    status, major, minor = nvrtc.nvrtcVersion()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"NVRTC: no version ({status.name})")
    return major, minor


def nvrtc_path() -> str:
    """The file of the NVRTC that we compile with, for libraries that look for one of an installed toolkit."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    return str(load_nvidia_dynamic_lib("nvrtc").abs_path)


def include_folders(source: Path) -> list[Path]:
    """Folders searched for quoted headers: the file's own, then its parent (for `device/cluster.cuh`)."""
    return [source.parent, source.parent.parent]


def source_text(file: Path) -> str:
    """The text of a file; CompileError with the line unless it is UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise CompileError(f"{file}:{line}: error: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8") from error


def local_sources(source: Path) -> list[Path]:
    """The file and, depth first, its quoted headers from `include_folders`."""
    folders = include_folders(source)
    files: list[Path] = []

    def visit(file: Path) -> None:
        if file in files or not file.is_file():
            return
        files.append(file)
        for name in re.findall(r'^\s*#\s*include\s+"(.+?)"', source_text(file), re.MULTILINE):
            visit(next((path for folder in folders if (path := folder / name).is_file()), folders[0] / name))

    visit(source)
    return files


def parse_resources(log: str) -> dict[str, Resources]:
    """Parse the report of `ptxas -v`; kernels with an unknown form of report are left out."""
    resources = {}
    for report in log.split("Compiling entry function '")[1:]:
        name = report[: report.find("'")]
        # The name selects the kernel: functions that were not inlined are reported beside it.
        memory = re.search(
            rf"properties for {re.escape(name)}\s.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
            r"(\d+) bytes spill loads",
            report,
            re.DOTALL,
        )
        used = re.search(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?", report)
        if memory and used:
            frame, stores, loads = map(int, memory.groups())
            resources[name] = Resources(int(used[1]), stores, loads, frame, int(used[2] or 0))
    return resources


def _options(source: Path) -> dict[str, list[str]]:
    """NVRTC's options besides the architecture."""
    from cuda.pathfinder import find_nvidia_header_directory

    cuda_headers = find_nvidia_header_directory("cudart")
    folders = [*map(str, include_folders(source)), *([cuda_headers] if cuda_headers else [])]
    return {"include_path": folders, "ptxas_options": ["-v"]}


def source_key(source: Path, arch: str, macros: Macros = ()) -> str:
    """A hexadecimal hash of everything that affects a file's machine code."""
    everything = json.dumps([arch, macros, nvrtc_version(), source_hash(local_sources(source))])
    return hashlib.sha256(everything.encode()).hexdigest()


def _load(entry: Path) -> Cubin | None:
    """A cached cubin; None if it is missing or damaged."""
    try:
        stored = entry.read_bytes()
        digest, payload = stored[:32], stored[32:]
        if hashlib.sha256(payload).digest() != digest:
            return None
        return msgspec.msgpack.decode(payload, type=Cubin)
    except (OSError, msgspec.MsgspecError):
        return None


def _save(cubin: Cubin, entry: Path) -> None:
    """Write the entry in one step, since several workers may compile the same file at once."""
    payload = msgspec.msgpack.encode(cubin)
    with contextlib.suppress(OSError):
        entry.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(entry, hashlib.sha256(payload).digest() + payload)


def _errors(log: str, source: Path, arch: str) -> str:
    """The errors in NVRTC's log without warnings, in a form that editors can open."""
    messages = re.split(r"\n\s*\n", log.strip("\0\n "))
    errors = [message for message in messages if re.search(r"\berror\b", message.splitlines()[0])]
    text = re.sub(r"^(.+)\((\d+)\): ", r"\1:\2: ", "\n".join(errors or messages), flags=re.MULTILINE)
    if not text.startswith(str(source)):  # from ptxas or about an option: without a line
        text = f"{source}: {text}"
    return f"{text}\n(compiled for {arch} by NVRTC {'.'.join(map(str, nvrtc_version()))})"
