"""Kernels, parameters and comments parsed from a `.cu` file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cpu_cuda.kernel_sources import Kernel, Parameter, parse

SOURCE = """
#include "helpers.cuh"

// Not of any kernel.

// plain: y = x, and asm is only spoken of.
//   x  (count,)  f32  in
// Launch: any,
//   on two lines.
// Needs:  any architecture.
// Order:  elementwise; repeats bit
//   for bit.
extern "C" __global__ void plain(const float* __restrict__ x, float *y,
                                 int count) { helper(x, y); guarded(*x); /* asm */ }

// Needs:  sm_90a; clusters.
// Order:  atomics; does not repeat bit for bit.
extern "C" __global__ void __launch_bounds__(128) fancy(float* x) { if (x) { indirect(x); } }
"""


@pytest.fixture
def kernels(tmp_path: Path) -> tuple[Kernel, Kernel]:
    (tmp_path / "some.cu").write_text(SOURCE)
    plain, fancy = parse(tmp_path / "some.cu")
    return plain, fancy


def test_names_and_parameters(kernels: tuple[Kernel, Kernel]) -> None:
    plain, fancy = kernels
    assert (plain.name, fancy.name) == ("plain", "fancy")
    assert plain.parameters == (Parameter("const float*", "x"), Parameter("float*", "y"), Parameter("int", "count"))
    assert [parameter.is_tensor for parameter in plain.parameters] == [True, True, False]
    assert [parameter.is_written for parameter in plain.parameters] == [False, True, False]


def test_comment_blocks(kernels: tuple[Kernel, Kernel]) -> None:
    plain, fancy = kernels
    assert plain.comment[0] == "plain: y = x, and asm is only spoken of."
    assert plain.section("Launch") == "any, on two lines."
    assert (plain.minimum_arch, fancy.minimum_arch) == (0, 90)
    assert (plain.claims_repeatable, fancy.claims_repeatable) == (True, False)
    assert (plain.is_bounded, fancy.is_bounded) == (False, True)
    assert fancy.section("Launch") == ""
