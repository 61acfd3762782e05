"""Every `.cu` file compiles for every supported architecture, and documents its kernels."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from common.cuda.compile import Macros, compile_cubin
from common.cuda.dependent_launch import MACROS, waits
from common.problem import Problem
from stages.engine.workspace import ParameterMemory
from stages.persistent import fleet_columns
from stages.persistent.cluster_plan import EXACT, ROUNDED, plan_for
from stages.persistent.cluster_plan import THREADS as MLP_THREADS
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
SOURCES, RING = cuda_files(KERNELS_FOLDER), KERNELS_FOLDER / "streamed/ring.cu"
KERNELS = kernels_in(KERNELS_FOLDER)
MOST_REGISTERS = 64  # of a kernel without launch bounds: 1,024 threads of it fit in a multiprocessor

# Bytes; by warpgroups alone `ring_back` spills, compiled by NVRTC 13.0, and `grid_messages`, by 13.5.
MAY_SPILL = {("cluster_ahead", 90): 8, ("cluster_ahead", 100): 160, ("cluster_ahead", 120): 160}
MAY_SPILL |= {("ring_back", arch): 16 for arch in (90, 100, 120)}
MAY_SPILL |= {("stationary_epoch", 90): 320}  # by those that update, most of it while they load an epoch's weights
MAY_SPILL |= {("ring_forward", 90): 48}  # exact, for 64 rows, by NVRTC 13.5
MAY_SPILL |= {("cluster_mlp", 90): 8, ("grid_messages", 90): 40, ("grid_messages", 100): 8, ("divided_batch", 120): 24}

# VIMNMX.RELU R0, P0, P0, R0, 0x2: max(0, min(2, x)), and wrongly whether that is 2 (docs/notebook/streamed.md).
FUSED = bytes.fromhex("48780000020000000011800300c80f00")
VIMNMX, RELU = (0x248, 0x848), 1 << 12
SHT_PROGBITS, SHF_EXECINSTR = 1, 4  # of ELF

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


def supported(source: Path) -> list[int]:
    """The architectures that all kernels of a file run on, by their `Needs: sm_..`."""
    oldest = max(kernel.minimum_arch for kernel in parse(source))
    return [arch for arch in ARCHITECTURES if arch >= oldest]


def compiled(source: Path, macros: Macros = ()) -> Iterator[ParameterSet]:
    """A file and its macros for each of its architectures, on the newer ones with the waits of dependent launches."""
    for arch in supported(source):
        waiting = MACROS if waits(source) and arch >= WAITS_FROM else ()
        yield pytest.param(source, arch, macros + waiting, id=f"{source.name}-sm_{arch}-{len(macros)}")


@requires_nvrtc
@pytest.mark.parametrize(
    ("source", "arch", "macros"),
    [*chain(*map(compiled, SOURCES), *(compiled(RING, ring.macros) for ring in (BFloat16Ring, PlanesRing)))],
)
def test_it_compiles_and_stays_in_registers(source: Path, arch: int, macros: Macros) -> None:
    cubin = compile_cubin(source, f"sm_{arch}", macros)
    assert fused_comparisons(cubin.code) == 0
    resources, kernels = cubin.resources, parse(source)
    assert sorted(resources) == sorted(kernel.name for kernel in kernels)
    for kernel in kernels:
        used = resources[kernel.name]
        most = MAY_SPILL.get((kernel.name, arch), 0)
        assert max(used.spill_stores, used.spill_loads, used.stack_frame) <= most, kernel.name
        assert 0 < used.registers <= (MOST_REGISTERS if not kernel.is_bounded else 255), kernel.name


@requires_nvrtc
@pytest.mark.parametrize("halves", [EXACT, ROUNDED])
def test_the_wide_plan_of_cluster_mlp_compiles_with_warpgroups_and_fits_its_registers(halves: int) -> None:
    # Only sm_90a has wgmma, and only this plan of the kernel uses it.
    problem = Problem(inputs=784, classes=10, hidden=(256,), batch_size=128)
    plan, memory = plan_for(problem, halves), ParameterMemory(HostDevice().empty, problem)
    assert plan is not None
    macros = plan.macros(memory.weight_begins, memory.bias_begins)
    source = KERNELS_FOLDER / "cluster/cluster_mlp.cu"
    with_warpgroups, without = (compile_cubin(source, arch, macros) for arch in ("sm_90a", "sm_90"))
    used = with_warpgroups.resources["cluster_mlp"]
    assert len(with_warpgroups.code) != len(without.code)
    assert used.registers * MLP_THREADS <= 65536, "a block's registers are all there are"
    assert (used.spill_stores, used.spill_loads) == (0, 0), "what is spilled comes from L2 in every step"


@requires_nvrtc
def test_a_cluster_of_four_blocks_keeps_a_network_in_float16_in_its_registers() -> None:
    problem = Problem(inputs=784, classes=10, hidden=(128, 128, 128), batch_size=32)
    plan, memory = plan_for(problem, ROUNDED, blocks=4), ParameterMemory(HostDevice().empty, problem)
    assert plan is not None
    macros = plan.macros(memory.weight_begins, memory.bias_begins)
    used = compile_cubin(KERNELS_FOLDER / "cluster/cluster_mlp.cu", "sm_90a", macros).resources["cluster_mlp"]
    assert used.registers * MLP_THREADS <= 65536
    assert (used.spill_stores, used.spill_loads) == (0, 0)


@requires_nvrtc
@pytest.mark.parametrize("networks", [1, 3])
def test_fleet_columns_keeps_its_weights_in_the_registers_of_a_warp_group(networks: int) -> None:
    macros = fleet_columns.macros(Problem(inputs=784, classes=10, batch_size=128), networks)
    used = compile_cubin(KERNELS_FOLDER / "cluster/fleet_columns.cu", "sm_90a", macros).resources["fleet_columns"]
    assert (used.spill_stores, used.spill_loads, used.stack_frame) == (0, 0, 0)


@requires_nvrtc
@pytest.mark.parametrize("batch", [32, 64])
@pytest.mark.parametrize("ring", [ExactRing, BFloat16Ring, PlanesRing], ids=lambda ring: ring.__name__)
def test_rings_fit_the_registers_of_their_warps(ring: type[RingGemm], batch: int) -> None:
    resources = compile_cubin(
        KERNELS_FOLDER / "streamed/ring.cu", "sm_90a", ring.macros_on(90) + rows_macro(batch)
    ).resources
    for name, used in resources.items():
        assert max(used.spill_stores, used.spill_loads, used.stack_frame) <= MAY_SPILL[name, 90], name


@requires_nvrtc
@pytest.mark.parametrize("halves", [EXACT, ROUNDED])
def test_the_plan_of_grid_messages_compiles_with_warpgroups_and_fits_the_registers(halves: int) -> None:
    problem = Problem(inputs=784, classes=10, hidden=(784,) * 4, batch_size=64)
    plan, memory = MessagesPlan(problem, halves), ParameterMemory(HostDevice().empty, problem)
    macros = plan.macros(memory.weight_begins, memory.bias_begins)
    used = compile_cubin(KERNELS_FOLDER / "grid/grid_messages.cu", "sm_90a", macros).resources["grid_messages"]
    assert max(used.spill_stores, used.spill_loads, used.stack_frame) <= MAY_SPILL["grid_messages", 90]


@requires_nvrtc
@pytest.mark.parametrize(
    ("units", "depth", "batch", "deferred"),
    [(2048, 4, 64, False), (2048, 3, 32, False), (4096, 3, 32, False), (8192, 2, 32, False), (4096, 3, 32, True)],
)
def test_the_plan_of_streaming_epoch_fits_the_registers(units: int, depth: int, batch: int, deferred: bool) -> None:
    problem = Problem(inputs=784, classes=10, hidden=(units,) * depth, batch_size=batch)
    memory = ParameterMemory(HostDevice().empty, problem)
    macros = EpochPlan(problem, deferred=deferred).macros(memory.weight_begins, memory.bias_begins)
    compiled = compile_cubin(KERNELS_FOLDER / "streamed/streaming_epoch.cu", "sm_90a", macros)
    used = compiled.resources["streaming_epoch"]
    assert (used.spill_stores, used.spill_loads, used.stack_frame) == (0, 0, 0)
    assert fused_comparisons(compiled.code) == 0


@requires_nvrtc
@pytest.mark.parametrize("hidden", [(2048,) * 3, (1200,) * 4], ids=["2048x3", "1200x4"])
def test_stationary_epoch_keeps_its_weights_in_registers(hidden: tuple[int, ...]) -> None:
    problem = Problem(inputs=784, classes=10, hidden=hidden, batch_size=32)
    memory = ParameterMemory(HostDevice().empty, problem)
    macros = StationaryPlan(problem).macros(memory.weight_begins, memory.bias_begins)
    compiled = compile_cubin(KERNELS_FOLDER / "grid/stationary_epoch.cu", "sm_90a", macros)
    used = compiled.resources["stationary_epoch"]
    assert max(used.spill_stores, used.spill_loads, used.stack_frame) <= MAY_SPILL["stationary_epoch", 90]
    assert fused_comparisons(compiled.code) == 0


def fused_comparisons(cubin: bytes) -> int:
    """How many instructions clamp a number and tell its bounds at once, as FUSED does; of 16 bytes, from sm_70 on."""
    begin, size, count = *struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<2H", cubin, 0x3A)
    found = 0
    for section in range(begin, begin + size * count, size):
        kind, flags, _, at, length = struct.unpack_from("<4xI4Q", cubin, section)
        if kind == SHT_PROGBITS and flags & SHF_EXECINSTR:
            for low, high in struct.iter_unpack("<2Q", cubin[at : at + length]):
                predicates = high >> 17 & 63  # of three bits each; 7 is none
                found += low & 0xFFF in VIMNMX and high & RELU != 0 and predicates != 63
    return found


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
