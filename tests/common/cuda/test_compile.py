"""Compiling a `.cu` file: the cubin, what it takes, the cache, and what a user reads when it goes wrong."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from common.cache import cache_folder
from common.cuda import compile as compiler
from common.cuda.compile import CompileError, Cubin, Macros, cached_cubin, compile_cubin, parse_resources
from tests.nvrtc import requires_nvrtc

SCALE = """
#include "factor.h"
extern "C" __global__ void scale(float* x) { __shared__ float s[8]; s[threadIdx.x] = FACTOR; __syncthreads();
    x[threadIdx.x] *= s[7 - threadIdx.x]; }
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel with a header, and a cache of the test's own."""
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "factor.h").write_text("constexpr float FACTOR = 2.0f;\n")
    path = tmp_path / "scale.cu"
    path.write_text(SCALE)
    return path


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The architectures that were really compiled for, one item a compilation."""
    calls: list[str] = []

    def counting(source: Path, arch: str, macros: Macros) -> Cubin:
        calls.append(arch)
        return compile_cubin(source, arch, macros)

    monkeypatch.setattr(compiler, "compile_cubin", counting)
    return calls


@pytest.mark.parametrize("file", ["scale.cu", "factor.h"])
def test_a_file_in_another_encoding_is_told_with_its_line_and_the_way_out(source: Path, file: str) -> None:
    path = source.with_name(file)
    path.write_bytes("// one\n// réseau\n".encode("latin-1") + path.read_bytes())
    with pytest.raises(CompileError) as error:
        compiler.local_sources(source)
    assert str(error.value) == f"{path}:2: error: byte 0xe9 is not UTF-8; save the file as UTF-8"


@requires_nvrtc
def test_a_cubin_is_an_elf_file_with_its_kernels_resources(source: Path) -> None:
    cubin = compile_cubin(source, "sm_90")
    assert cubin.code.startswith(b"\x7fELF")
    assert b"scale" in cubin.code
    assert cubin.resources["scale"].shared_bytes == 32
    assert 0 < cubin.resources["scale"].registers < 64


@requires_nvrtc
def test_the_same_source_is_compiled_once(source: Path, compiled: list[str]) -> None:
    first = cached_cubin(source, "sm_90")
    assert cached_cubin(source, "sm_90") == first
    assert compiled == ["sm_90"]
    assert [entry.suffix for entry in cache_folder("kernels").iterdir()] == [".cubin"]  # no temporary file is left


@requires_nvrtc
def test_another_architecture_source_or_header_is_compiled_anew(source: Path, compiled: list[str]) -> None:
    before = cached_cubin(source, "sm_90")
    cached_cubin(source, "sm_80")
    assert compiled == ["sm_90", "sm_80"]

    (source.parent / "factor.h").write_text("constexpr float FACTOR = 3.0f;\n")
    changed = cached_cubin(source, "sm_90")
    assert len(compiled) == 3
    assert changed.code != before.code

    source.write_text(SCALE.replace("*=", "+="))
    cached_cubin(source, "sm_90")
    assert len(compiled) == 4


@requires_nvrtc
def test_other_macros_compile_anew_and_are_what_is_compiled(source: Path, compiled: list[str]) -> None:
    body = "__shared__ int own[SIZE]; own[threadIdx.x] = *out; __syncthreads(); *out = own[threadIdx.x ^ 1];"
    source.write_text(f'extern "C" __global__ void kernel(int* out) {{ {body} }}')
    sizes = [cached_cubin(source, "sm_90", (("SIZE", size),)).resources["kernel"].shared_bytes for size in ("64", "32")]
    assert sizes == [256, 128]
    cached_cubin(source, "sm_90", (("SIZE", "64"),))
    assert len(compiled) == 2


@requires_nvrtc
def test_another_nvrtc_compiles_anew(source: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cached_cubin(source, "sm_90")
    monkeypatch.setattr(compiler, "nvrtc_version", lambda: (99, 0))
    cached_cubin(source, "sm_90")
    assert len(compiled) == 2


@requires_nvrtc
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "folder"])
def test_a_damaged_entry_is_compiled_anew(source: Path, compiled: list[str], damage: str) -> None:
    good = cached_cubin(source, "sm_90")
    (entry,) = cache_folder("kernels").iterdir()
    stored = bytearray(entry.read_bytes())
    if damage == "flipped":
        stored[len(stored) // 2] ^= 1
    entry.unlink()
    if damage == "folder":
        entry.mkdir()
    else:
        entry.write_bytes({"flipped": bytes(stored), "cut": bytes(stored[:-1]), "empty": b""}[damage])

    assert cached_cubin(source, "sm_90").resources == good.resources
    assert len(compiled) == 2
    cached_cubin(source, "sm_90")
    assert len(compiled) == (3 if damage == "folder" else 2)  # mended, where it can be


@requires_nvrtc
def test_a_full_disk_is_no_error_and_leaves_nothing_behind(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert cached_cubin(source, "sm_90").code
    assert list(cache_folder("kernels").iterdir()) == []
    monkeypatch.setenv("LADDER_CACHE_DIR", str(source))  # a file, where the folder should be
    assert cached_cubin(source, "sm_90").code


@requires_nvrtc
def test_an_error_shows_file_and_line_before_any_warning(source: Path) -> None:
    source.write_text('\nextern "C" __global__ void f(float* x) {\n    int unused;\n    x[0] = missing;\n}\n')
    with pytest.raises(CompileError) as caught:
        compile_cubin(source, "sm_90")
    lines = str(caught.value).splitlines()
    assert lines[0] == f'{source}:4: error: identifier "missing" is undefined'
    assert "unused" not in str(caught.value)
    assert "sm_90" in lines[-1]
    source.write_text('extern "C" __global__ void f() { asm("no_such_instruction;"); }')  # an error without a line
    with pytest.raises(CompileError, match=f"^{source}.*no_such_instruction") as caught:
        compile_cubin(source, "sm_90")
    source.write_text(SCALE)
    with pytest.raises(CompileError, match="sm_12345"):
        compile_cubin(source, "sm_12345")
    (source.parent / "factor.h").write_text("\n\nconstexpr float FACTOR = ;\n")
    with pytest.raises(CompileError, match=r"factor\.h:3: error: expected an expression"):
        compile_cubin(source, "sm_90")


def test_resources_of_several_kernels_and_of_functions_that_were_not_inlined() -> None:
    log = """
ptxas info    : 4 bytes gmem, 8 bytes cmem[4]
ptxas info    : Compiling entry function 'first' for 'sm_75'
ptxas info    : Function properties for helper
    96 bytes stack frame, 92 bytes spill stores, 88 bytes spill loads
ptxas info    : Function properties for first
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 35 registers, used 1 barriers, 3072 bytes smem, 384 bytes cmem[0]
ptxas info    : Compiling entry function 'second' for 'sm_75'
ptxas info    : Function properties for second
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, 384 bytes cmem[0]
"""
    first, second = parse_resources(log)["first"], parse_resources(log)["second"]
    assert (first.registers, first.stack_frame, first.spill_stores, first.spill_loads) == (35, 16, 12, 8)
    assert first.shared_bytes == 3072
    assert (second.registers, second.stack_frame, second.shared_bytes) == (14, 0, 0)


@pytest.mark.parametrize("log", ["", "\0\0", "ptxas info : Compiling entry function 'f' for 'sm_90'\nall is well"])
def test_a_report_in_another_form_is_no_error(log: str) -> None:
    assert parse_resources(log) == {}
