"""Compile `.cu` files with g++ against the shim, and launch their kernels on NumPy arrays."""

from __future__ import annotations

import ctypes
import itertools
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from common.cuda.compile import Macros
from tests.cpu_cuda.guarded import Guarded
from tests.cpu_cuda.sources import Kernel, parse

HERE = Path(__file__).parent
LIMIT_S = 20

FLAGS = ["-std=c++17", "-O1", "-w", "-fPIC", "-fno-strict-aliasing", f"-I{HERE}"]
# Undefined behaviour traps, needing no library: an index outside a shared array is found this way.
UNDEFINED = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
# A kernel may have the name of a function of the C library, and must then not be taken for it.
LINK = ["-shared", "-Wl,-Bsymbolic"]

DTYPES: dict[str, np.dtype[Any]] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "int": np.dtype(np.int32),
    "unsigned": np.dtype(np.uint32),
    "unsigned int": np.dtype(np.uint32),
    "unsigned char": np.dtype(np.uint8),
    "long long": np.dtype(np.int64),
}

requires_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

Size = int | tuple[int, ...]
Argument = NDArray[Any] | int | float


class KernelFault(Exception):  # noqa: N818
    """A launch that a GPU would have failed, hung in, or passed over in silence."""


def compile_runtime(build: Path) -> Path:
    """The object file that every shim links with."""
    runtime = build / "runtime.o"
    _run(["g++", *FLAGS, "-c", str(HERE / "runtime.cpp"), "-o", str(runtime)])
    return runtime


class Shim:
    """Kernels that can be launched by name; a file is compiled when one of its kernels is first asked for."""

    def __init__(self, sources: list[Path], build: Path, runtime: Path) -> None:
        self._build = build
        self._runtime = runtime
        self._kernels = {kernel.name: kernel for source in sources for kernel in parse(source)}
        self._libraries: dict[tuple[Path, Macros], ctypes.CDLL] = {}

    def launch(
        self,
        name: str,
        grid: Size,
        block: Size,
        *args: Argument,
        seed: int = 0,
        shared_bytes: int = 0,
        cooperative: bool = False,
        dependent: bool = False,
        limit_s: int = LIMIT_S,
        macros: Macros = (),
    ) -> None:
        """Run a kernel to its end; arrays that are not const to it then hold what it wrote.

        Blocks run one after the other, or all at once if it is `cooperative`. If it is `dependent`, it has begun while
        the kernel before it still runs: each block has to wait for that, before it touches any tensor. The order of its
        threads and blocks follows from `seed`. Raises KernelFault for what a kernel must not do, and TypeError for
        arguments that do not fit its signature.
        """
        kernel = self._kernels[name]
        _check(kernel, args)
        tensors = {id(arg): Guarded(arg) for arg in args if isinstance(arg, np.ndarray)}
        pages = [number for tensor in tensors.values() for number in tensor.pages] if dependent else []
        shared = Guarded(np.zeros(shared_bytes * (math.prod(_three(grid)) if cooperative else 1), np.uint8))

        values: list[NDArray[Any]] = [
            np.full((), tensors[id(arg)].address, np.uint64)
            if isinstance(arg, np.ndarray)
            else np.full((), arg, DTYPES[parameter.type])
            for arg, parameter in zip(args, kernel.parameters, strict=True)
        ]
        library = self._library(kernel.source, macros)
        fault_at = ctypes.c_void_p()
        fault = library.launch_on_cpu(
            library[f"call_{name}"],
            (ctypes.c_void_p * len(values))(*[value.ctypes.data for value in values]),
            _three(grid),
            _three(block),
            ctypes.c_void_p(shared.address),
            ctypes.c_size_t(shared_bytes),
            ctypes.c_bool(cooperative),
            ctypes.c_uint(seed),
            ctypes.c_uint(limit_s),
            (ctypes.c_uint64 * len(pages))(*pages),
            ctypes.c_size_t(len(pages) // 2),
            ctypes.byref(fault_at),
        )
        named = {p.name: tensors[id(arg)] for p, arg in zip(kernel.parameters, args, strict=True) if p.is_tensor}
        named["dynamic shared memory"] = shared
        if fault is not None:
            raise KernelFault(f"{name}: {fault.decode()}{_where(fault_at.value, named)}")
        for tensor, memory in named.items():
            if damage := memory.damage():
                raise KernelFault(f"{name}: {tensor}: {damage}")
        for parameter, arg in zip(kernel.parameters, args, strict=True):
            if parameter.is_written and isinstance(arg, np.ndarray):
                arg[...] = tensors[id(arg)].array

    def _library(self, source: Path, macros: Macros) -> ctypes.CDLL:
        if (source, macros) not in self._libraries:
            library = ctypes.CDLL(str(self._compile(source, macros)))
            library.launch_on_cpu.restype = ctypes.c_char_p
            self._libraries[source, macros] = library
        return self._libraries[source, macros]

    def _compile(self, source: Path, macros: Macros) -> Path:
        unit = self._build / ("-".join([source.stem, *itertools.chain.from_iterable(macros)]) + ".cpp")
        unit.write_text(translate(source))
        library = unit.with_suffix(".so")
        include = ["-include", "cuda_shim.h", f"-I{source.parent}"]
        defined = [f"-D{name}={text}" for name, text in macros]
        _run(["g++", *FLAGS, *defined, *UNDEFINED, *include, *LINK, str(unit), str(self._runtime), "-o", str(library)])
        return library


def translate(source: Path) -> str:
    """The file as C++: the same line for line, then a function `call_<kernel>(void** args)` for each kernel."""
    # Unlike `static`, `extern` may not name a section, and this is where CUDA hands over memory sized by the launch.
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


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


def _three(size: Size) -> ctypes.Array[ctypes.c_uint]:
    sizes = (size,) if isinstance(size, int) else size
    return (ctypes.c_uint * 3)(*sizes, *[1] * (3 - len(sizes)))


def _check(kernel: Kernel, args: tuple[Argument, ...]) -> None:
    if len(args) != len(kernel.parameters):
        raise TypeError(f"{kernel.name}: takes {len(kernel.parameters)} arguments, was given {len(args)}")
    for parameter, arg in zip(kernel.parameters, args, strict=True):
        dtype = DTYPES[parameter.type.removeprefix("const ").removesuffix("*")]
        if parameter.is_tensor != isinstance(arg, np.ndarray):
            raise TypeError(f"{kernel.name}: {parameter.name} is {parameter.type}, was given a {type(arg).__name__}")
        if isinstance(arg, np.ndarray) and arg.dtype != dtype:
            raise TypeError(f"{kernel.name}: {parameter.name} is {parameter.type}, was given an array of {arg.dtype}")


def _where(address: int | None, tensors: dict[str, Guarded]) -> str:
    for name, memory in tensors.items():
        offset = memory.offset(address) if address is not None else None
        if offset is not None:
            return f", at byte {offset} of {name} ({memory.nbytes} bytes)"
    return ""
