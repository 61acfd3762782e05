"""Blanking GPU code: what a GPU loads stays byte for byte, and what is not understood stays as well."""

from __future__ import annotations

import pytest

from tests.tools.libraries import MACHINE_CODE, PTX, Code, container, library
from tools.fatbins import blank_other_architectures


def blanked(*entries: Code, arch: int = 90) -> list[Code]:
    """The entries of a library with one container whose payloads are zeros afterwards."""
    content = bytearray(library(container(*entries)))
    before, count = bytes(content), blank_other_architectures(content, arch)
    gone = [entry for entry in entries if entry.payload not in content]
    assert count == sum(len(entry.payload) for entry in gone)
    assert len(content) == len(before)
    restored = library(
        container(*(Code(e.kind, e.arch, bytes(len(e.payload)) if e in gone else e.payload) for e in entries))
    )
    assert content == restored  # headers and all other bytes are as they were
    return gone


SM_80, SM_86, SM_90, SM_100 = (
    Code(MACHINE_CODE, arch, f"machine code {arch:3}".encode()) for arch in (80, 86, 90, 100)
)
PTX_80, PTX_90, PTX_120 = (Code(PTX, arch, f"assembly of {arch:3} ".encode()) for arch in (80, 90, 120))


def test_the_own_machine_code_stays_alone() -> None:
    assert blanked(SM_80, SM_90, SM_100, PTX_90, PTX_120) == [SM_80, SM_100, PTX_90, PTX_120]


def test_where_there_is_none_ptx_that_can_be_compiled_stays() -> None:
    assert blanked(SM_80, SM_100, PTX_80, PTX_120) == [SM_80, SM_100, PTX_120]


def test_code_of_an_earlier_minor_version_runs_and_of_a_later_one_does_not() -> None:
    assert blanked(SM_80, SM_86, SM_90, arch=86) == [SM_90]
    assert blanked(SM_80, SM_86, SM_90, arch=80) == [SM_86, SM_90]


def test_several_containers_in_one_section() -> None:
    content = bytearray(library(container(SM_80, SM_90) + bytes(24) + container(SM_100)))
    assert blank_other_architectures(content, 90) == len(SM_80.payload) + len(SM_100.payload)
    assert SM_90.payload in content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"#!/bin/sh\n",
        container(SM_80, SM_90),  # in a file that is no ELF library
        library(container(SM_80, SM_90), section=b".rodata"),
        library(container(SM_80, SM_90)[:-8]),  # cut off
        library(container(SM_80, SM_90, lengthened=4) + b"more"),  # its entries do not fill it
    ],
)
def test_what_is_not_understood_stays(content: bytes) -> None:
    changed = bytearray(content)
    assert blank_other_architectures(changed, 90) == 0
    assert changed == content
