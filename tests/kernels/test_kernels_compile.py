"""Every `.cu` file compiles for every supported architecture, and documents its kernels."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from _pytest.mark import ParameterSet

from common.cuda.compile import Macros, compile_cubin, local_sources
from common.cuda.dependent_launch import MACROS, waits
from common.problem import Problem
from stages.engine.workspace import ParameterMemory
from stages.persistent import fleet_columns
from stages.persistent.ahead_plan import AheadPlan
from stages.persistent.cluster_plan import EXACT, ROUNDED, plan_for
from stages.persistent.messages_plan import MessagesPlan
from stages.persistent.stationary_plan import StationaryPlan
from stages.streamed.epoch_plan import EpochPlan
from stages.streamed.ring_bf16 import BFloat16Ring
from stages.streamed.ring_gemm import RingGemm, rows_macro
from stages.streamed.ring_planes import PlanesRing
from stages.streamed.streamed_ring import ExactRing
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, cuda_files, kernels_in, parse
from tests.nvrtc import requires_nvrtc
from tests.stages.numpy_parts import HostDevice

ARCHITECTURES = (75, 80, 90, 100, 120)  # sm_89 runs the code of sm_80
WAITS_FROM = 90
SOURCES = cuda_files(KERNELS_FOLDER)
KERNELS = kernels_in(KERNELS_FOLDER)
RINGS: tuple[type[RingGemm], ...] = (ExactRing, BFloat16Ring, PlanesRing)
WARPGROUPS = KERNELS_FOLDER / "device/warpgroup.cuh"
MOST_REGISTERS = 64  # of a kernel without launch bounds: 1,024 threads of it fit in a multiprocessor

# Bytes, of one of its `plans` or of all; by warpgroups alone `ring_back` spills, compiled by NVRTC 13.0, and
# `grid_messages`, by 13.5.
MAY_SPILL: dict[tuple[str | int, ...], int] = {("ring_back", arch): 16 for arch in (90, 100, 120)}
MAY_SPILL |= {("cluster_ahead", 90, 0): 8, ("cluster_ahead", 100): 160, ("cluster_ahead", 120): 160}
MAY_SPILL |= {("cluster_ahead", 90, 1): 160}  # by warpgroups
MAY_SPILL |= {("stationary_epoch", 90): 320}  # by those that update, most of it while they load an epoch's weights
MAY_SPILL |= {("ring_forward", 90, 1): 48, ("ring_forward", 90, 3): 56}  # for 64 rows: exact by NVRTC 13.5, in bfloat16
MAY_SPILL |= {("cluster_mlp", 90, 0): 8, ("grid_messages", 90): 40, ("grid_messages", 100): 8}
MAY_SPILL |= {("divided_batch", 120): 24}

# Plans whose products are by single warps, though others of their files' are by warpgroups.
BY_WARPS = {("cluster_mlp.cu", 0), ("cluster_mlp.cu", 3), ("cluster_ahead.cu", 0)}
BY_WARPS |= {("ring.cu", bfloat16) for bfloat16 in (2, 3, 4, 5)}
HGMMA = (0x9F0, 0xDF0)  # a warpgroup's product, with its left factor in shared memory or in registers

# VIMNMX.RELU R0, P0, P0, R0, 0x2: max(0, min(2, x)), and wrongly whether that is 2 (docs/notebook/streamed.md).
FUSED = bytes.fromhex("48780000020000000011800300c80f00")
VIMNMX, RELU = (0x248, 0x848), 1 << 12
SHT_PROGBITS, SHF_EXECINSTR = 1, 4  # of ELF

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


def supported(source: Path) -> list[int]:
    """The architectures that all kernels of a file run on, by their `Needs: sm_..`."""
    kernels = parse(source)
    if any(kernel.section("Needs").startswith("sm_90a") for kernel in kernels):
        return [90]
    return [arch for arch in ARCHITECTURES if arch >= max(kernel.minimum_arch for kernel in kernels)]


class Plan(Protocol):
    """Of a kernel that is compiled for one problem."""

    def macros(self, weights: list[int], biases: list[int], /) -> Macros:
        """The kernel's macros, by the begins of the layers' parameters."""


def of_problem(hidden: tuple[int, ...], batch: int, plan_of: Callable[[Problem], Plan | None]) -> Macros:
    """A kernel's macros for a network of MNIST."""
    problem = Problem(inputs=784, classes=10, hidden=hidden, batch_size=batch)
    plan, memory = plan_of(problem), ParameterMemory(HostDevice().empty, problem)
    assert plan is not None
    return plan.macros(memory.weight_begins, memory.bias_begins)


def plans(name: str) -> list[Macros]:
    """As stages compile a file on an H100 or H200: by plans that take most registers, or multiply by warpgroups."""
    match name:
        case "cluster_mlp.cu":
            wide = [of_problem((256,), 128, partial(plan_for, halves=halves)) for halves in (EXACT, ROUNDED)]
            return [(), *wide, of_problem((128,) * 3, 32, partial(plan_for, halves=ROUNDED, blocks=4))]
        case "cluster_ahead.cu":
            return [(), AheadPlan(Problem(inputs=784, classes=10, hidden=(1000,), batch_size=120)).macros]
        case "fleet_columns.cu":
            return [fleet_columns.macros(Problem(inputs=784, classes=10, batch_size=128), each) for each in (1, 3)]
        case "grid_messages.cu":
            return [of_problem((784,) * 4, 64, partial(MessagesPlan, halves=halves)) for halves in (EXACT, ROUNDED)]
        case "ring.cu":
            return [ring.macros_on(90) + rows_macro(batch) for ring in RINGS for batch in (32, 64)]
        case "stationary_epoch.cu":
            return [of_problem(hidden, 32, StationaryPlan) for hidden in ((2048,) * 3, (1200,) * 4)]
        case "streaming_epoch.cu":
            sizes = ((2048, 4, 64), (2048, 3, 32), (4096, 3, 32), (8192, 2, 32))
            each = [of_problem((units,) * depth, batch, EpochPlan) for units, depth, batch in sizes]
            return [*each, of_problem((4096,) * 3, 32, partial(EpochPlan, deferred=True))]
    return [()]


def compilations() -> Iterator[ParameterSet]:
    """A file, an architecture, a plan by number and its macros, on newer ones with the waits of dependent launches."""
    for source in SOURCES:
        for arch in supported(source):
            waiting = MACROS if waits(source) and arch >= WAITS_FROM else ()
            others = [ring.macros for ring in RINGS] if source.name == "ring.cu" else [()]
            for plan, macros in enumerate(plans(source.name) if arch == 90 else others):
                yield pytest.param(source, arch, plan, macros + waiting, id=f"{source.name}-sm_{arch}-{plan}")


@requires_nvrtc
@pytest.mark.parametrize(("source", "arch", "plan", "macros"), [*compilations()])
def test_it_compiles_and_stays_in_registers(source: Path, arch: int, plan: int, macros: Macros) -> None:
    cubin = compile_cubin(source, "sm_90a" if arch == 90 else f"sm_{arch}", macros)  # as `Gpu` does
    assert fused_comparisons(cubin.code) == 0
    resources, kernels = cubin.resources, parse(source)
    assert sorted(resources) == sorted(kernel.name for kernel in kernels)
    for kernel in kernels:
        used = resources[kernel.name]
        most = MAY_SPILL.get((kernel.name, arch, plan), MAY_SPILL.get((kernel.name, arch), 0))
        assert max(used.spill_stores, used.spill_loads, used.stack_frame) <= most, kernel.name
        assert 0 < used.registers <= (MOST_REGISTERS if not kernel.is_bounded else 255), kernel.name
    has_warpgroups = arch == 90 and WARPGROUPS in local_sources(source) and (source.name, plan) not in BY_WARPS
    assert has_warpgroups == any(low & 0xFFF in HGMMA for low, _ in instructions(cubin.code))


def instructions(cubin: bytes) -> Iterator[tuple[int, int]]:
    """Each instruction's lower and upper half; they have 16 bytes from sm_70 on."""
    begin, size, count = *struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<2H", cubin, 0x3A)
    for section in range(begin, begin + size * count, size):
        kind, flags, _, at, length = struct.unpack_from("<4xI4Q", cubin, section)
        if kind == SHT_PROGBITS and flags & SHF_EXECINSTR:
            yield from struct.iter_unpack("<2Q", cubin[at : at + length])


def fused_comparisons(cubin: bytes) -> int:
    """How many instructions clamp a number and tell its bounds at once, as FUSED does."""
    found = [high for low, high in instructions(cubin) if low & 0xFFF in VIMNMX and high & RELU != 0]
    return sum(high >> 17 & 63 != 63 for high in found)  # predicates, of three bits each; 7 is none


def test_a_fused_comparison_is_found_among_instructions() -> None:
    exit_ = bytes.fromhex("4d790000000000000000800300ea0f00")
    header = b"\x7fELF".ljust(0x28, b"\0") + struct.pack("<Q10xHH", 0x40, 0x40, 1)
    section = struct.pack("<4xI4Q", SHT_PROGBITS, SHF_EXECINSTR, 0, 0x80, 48).ljust(0x40, b"\0")
    assert fused_comparisons(header.ljust(0x40, b"\0") + section + exit_ + FUSED + exit_) == 1


def test_no_kernel_escapes_the_parser() -> None:
    written = sum(source.read_text().count("__global__") for source in SOURCES)
    assert written == len(KERNELS) > 0


@each_kernel
def test_a_comment_block_stands_above_it(kernel: Kernel) -> None:
    text = "\n".join(kernel.comment)
    assert text.startswith(f"{kernel.name}: "), "the block above a kernel begins with its name"
    for title in ("Launch", "Needs", "Order"):
        assert kernel.section(title), f"the comment of {kernel.name} says nothing about {title}"
    for parameter in kernel.parameters:
        if parameter.is_tensor:
            direction = "in, out|out" if parameter.is_written else "in"
            described = rf"^  {parameter.name}\s+\(.*\).*\s[fiu]\d+\s+({direction})\b"
            assert re.search(described, text, re.MULTILINE), f"{parameter.name}: shape, dtype and direction are missing"
        else:
            assert re.search(rf"\b{parameter.name}\b", text), f"{parameter.name}: is not explained"
