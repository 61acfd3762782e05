"""Compile `.cu` files with g++ against the shim, and launch their kernels on NumPy arrays."""

from __future__ import annotations

import hashlib
import math
import os
import re
import shlex
import shutil
import subprocess
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from common.cuda.compile import Macros, include_folders, local_sources
from tests.cpu_cuda.executor import REPORT_BYTES, Executor, Request
from tests.cpu_cuda.guarded import ALIGNMENT, Guarded
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, parse

HERE = Path(__file__).parent
LIMIT_S = 20

# Some distributions check longjmp() by default, and take another fibre's stack for a broken one.
FLAGS = ["-std=c++17", "-Og", "-U_FORTIFY_SOURCE", "-w", "-fPIC", "-fno-strict-aliasing", f"-I{HERE}"]
# Undefined behaviour traps, without a library. This finds an index outside a shared array. Two kinds that take a
# quarter of the time to compile find nothing: memory here is no object, and pages around it are guarded.
UNDEFINED = ["-fsanitize=undefined", "-fno-sanitize=object-size,pointer-overflow", "-fsanitize-undefined-trap-on-error"]
# A kernel may have the same name as a function of the C library.
LINK = ["-shared", "-Wl,-Bsymbolic"]

DTYPES: dict[str, np.dtype[Any]] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "int": np.dtype(np.int32),
    "unsigned": np.dtype(np.uint32),
    "unsigned int": np.dtype(np.uint32),
    "unsigned char": np.dtype(np.uint8),
    "unsigned short": np.dtype(np.uint16),
    "long long": np.dtype(np.int64),
}

UNITS = ("uint4",)  # of 16 bytes, whatever an array holds

requires_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

Size = int | tuple[int, ...]
Argument = NDArray[Any] | int | float


class KernelFault(Exception):  # noqa: N818
    """A launch that would have failed, hung, or gone wrong unnoticed on a GPU."""


class Toolchain:
    """Compiles kernels into a folder, which several processes may share, and executes them."""

    def __init__(self, build: Path) -> None:
        self._build = build
        build.mkdir(exist_ok=True)
        self.executor = Executor(self._made("executor", ["-std=c++17", "-O1", str(HERE / "executor.cpp"), "-ldl"]))

    def close(self) -> None:
        """End the executing process."""
        self.executor.close()

    @cached_property
    def _runtime(self) -> Path:
        return self._made("runtime.o", [*FLAGS, "-O2", "-c", str(HERE / "runtime.cpp")])

    @cached_property
    def _header(self) -> Path:
        """The precompiled header of all kernels; g++ takes it if its folder is searched before the header's own."""
        name = "cuda_shim.h"
        return self._made(f"{name}.gch", [*FLAGS, *UNDEFINED, "-x", "c++-header", str(HERE / name)])

    def library(self, source: Path, macros: Macros = ()) -> Path:
        """A `.cu` file as a shared library, compiled with these macros."""
        translated = translate(source)
        defined = [f"-D{name}={text}" for name, text in macros]
        hashed = hashlib.sha256("\0".join([translated, *defined]).encode())
        for file in local_sources(source):
            hashed.update(file.read_bytes())
        name = f"{source.stem}-{hashed.hexdigest()[:16]}"
        unit = self._build / f"{os.getpid()}-{name}.cpp"
        unit.write_text(translated)
        include = [f"-I{self._header.parent}", *FLAGS, "-include", "cuda_shim.h"]
        include += [f"-I{folder}" for folder in include_folders(source)]
        return self._made(f"{name}.so", [*include, *UNDEFINED, *defined, *LINK, str(unit), str(self._runtime)])

    def _made(self, name: str, arguments: list[str]) -> Path:
        made, under_way = self._build / name, self._build / f"{os.getpid()}-{name}"
        if not made.exists():
            command = ["g++", *arguments, "-o", str(under_way)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{shlex.join(command)}\n{done.stderr}")
            under_way.rename(made)
        return made


class Shim:
    """Kernels by name; a file is compiled at the first launch of one of its kernels."""

    def __init__(self, sources: list[Path], toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._kernels = {kernel.name: kernel for source in sources for kernel in parse(source)}
        self._libraries: dict[tuple[Path, Macros], Path] = {}

    def launch(
        self,
        name: str,
        grid: Size,
        block: Size,
        *args: Argument,
        seed: int = 0,
        shared_bytes: int = 0,
        cooperative: bool = False,
        cluster: int | None = None,
        dependent: bool = False,
        limit_s: int = LIMIT_S,
        macros: Macros = (),
    ) -> None:
        """Run a kernel to its end; it writes into the arrays that are not const to it.

        Blocks run one after the other, or all at once if it is `cooperative`, or if they come in clusters of `cluster`,
        which the grid counts then. If it is `dependent`, it has begun while the kernel before it still runs: each block
        has to wait for that, before it touches any tensor that its comment does not call early. The order of its
        threads and blocks follows from `seed`. Raises KernelFault for what a kernel must not do, and TypeError for
        arguments that do not fit its signature.
        """
        kernel = self._kernels[name]
        _check(kernel, args)
        clusters = _three(grid)
        blocks = (clusters[0] * (cluster or 1), *clusters[1:])
        if together := cluster or int(cooperative):
            shared_bytes = -(-shared_bytes // ALIGNMENT) * ALIGNMENT  # so that the next block's is aligned alike
        executor = self._toolchain.executor
        base = executor.base
        memory, end = np.frombuffer(executor.memory, np.uint8), REPORT_BYTES
        tensors: dict[int, Guarded] = {}
        shared_array: NDArray[Any] = np.zeros(shared_bytes * (math.prod(blocks) if together else 1), np.uint8)
        for array in (*args, shared_array):
            if isinstance(array, np.ndarray) and id(array) not in tensors:
                tensors[id(array)] = Guarded(array, memory, end)
                end = tensors[id(array)].end
        shared = tensors.pop(id(shared_array))
        early = {
            id(arg) for parameter, arg in zip(kernel.parameters, args, strict=True) if parameter.name in kernel.early
        }
        pages = [tensor.pages for key, tensor in tensors.items() if key not in early] if dependent else []

        values: list[NDArray[Any]] = [
            np.full((), base + tensors[id(arg)].place, np.uint64)
            if isinstance(arg, np.ndarray)
            else np.full((), arg, DTYPES[parameter.type])
            for arg, parameter in zip(args, kernel.parameters, strict=True)
        ]
        fault = executor.execute(
            Request(
                self._library(kernel.source, macros),
                f"call_{name}",
                blocks,
                _three(block),
                base + shared.place,
                shared_bytes,
                not kernel.source.is_relative_to(KERNELS_FOLDER),
                together,
                seed,
                limit_s,
                [base + guard for tensor in (*tensors.values(), shared) for guard in tensor.guards],
                [number for begin, size in pages for number in (base + begin, size)],
                [value.tobytes() for value in values],
            )
        )
        named = {p.name: tensors[id(arg)] for p, arg in zip(kernel.parameters, args, strict=True) if p.is_tensor}
        named["dynamic shared memory"] = shared
        if fault is not None:
            where = "" if fault.address is None else _where(fault.address - base, named)
            raise KernelFault(f"{name}: {fault.what}{where}")
        for tensor, copy in named.items():
            if damage := copy.damage():
                raise KernelFault(f"{name}: {tensor}: {damage}")
        for parameter, arg in zip(kernel.parameters, args, strict=True):
            if parameter.is_written and isinstance(arg, np.ndarray):
                arg[...] = tensors[id(arg)].array

    def _library(self, source: Path, macros: Macros) -> Path:
        if (source, macros) not in self._libraries:
            self._libraries[source, macros] = self._toolchain.library(source, macros)
        return self._libraries[source, macros]


def translate(source: Path) -> str:
    """The file as C++: the same line for line, then a function `call_<kernel>(void** args)` for each kernel."""
    # The launch sizes this memory in CUDA; an `extern`, unlike a `static`, may not name a section.
    text = re.sub(
        r"extern __shared__ (?:__align__\(\d+\) )?(.+?) (\w+)\[\];",
        r"\1* \2 = static_cast<\1*>(cpu_cuda::dynamic_shared);",
        source.read_text(),
    )
    lines = [f'#line 1 "{source}"', text]
    for kernel in parse(source):
        casts = [f"*static_cast<{p.type}*>(args[{index}])" for index, p in enumerate(kernel.parameters)]
        lines.append(f'extern "C" void call_{kernel.name}(void** args) {{ {kernel.name}({", ".join(casts)}); }}')
    return "\n".join(lines) + "\n"


def _three(size: Size) -> tuple[int, ...]:
    sizes = (size,) if isinstance(size, int) else size
    return (*sizes, *[1] * (3 - len(sizes)))


def _check(kernel: Kernel, args: tuple[Argument, ...]) -> None:
    if len(args) != len(kernel.parameters):
        raise TypeError(f"{kernel.name}: takes {len(kernel.parameters)} arguments, was given {len(args)}")
    for parameter, arg in zip(kernel.parameters, args, strict=True):
        type_ = parameter.type.removeprefix("const ").removesuffix("*")
        if parameter.is_tensor != isinstance(arg, np.ndarray):
            raise TypeError(f"{kernel.name}: {parameter.name} is {parameter.type}, was given a {type(arg).__name__}")
        if isinstance(arg, np.ndarray) and type_ not in UNITS and arg.dtype != DTYPES[type_]:
            raise TypeError(f"{kernel.name}: {parameter.name} is {parameter.type}, was given an array of {arg.dtype}")


def _where(place: int, tensors: dict[str, Guarded]) -> str:
    for name, memory in tensors.items():
        offset = memory.offset(place)
        if offset is not None:
            return f", at byte {offset} of {name} ({memory.nbytes} bytes)"
    return ""
