"""Primitives, ranges for profilers, and the memory of a step, on a CUDA that is made up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.cuda import nvtx
from common.cuda.compile import compile_cubin
from common.cuda.epilogue import mask_shape
from common.cuda.step_memory import StepAllocator
from tests.cpu_cuda.kernel_sources import Kernel, parse
from tests.kernels.primitive_launches import launch_of
from tests.kernels.test_kernels_compile import ARCHITECTURES
from tests.nvrtc import requires_nvrtc

FOLDER = Path(__file__).parents[3] / "common" / "cuda"
SOURCE = FOLDER / "primitives.cu"
KERNELS = parse(SOURCE)


@requires_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_all_kernels_are_there_on_every_architecture_and_stay_in_registers(arch: int) -> None:
    resources = compile_cubin(SOURCE, f"sm_{arch}").resources
    assert sorted(resources) == sorted(kernel.name for kernel in KERNELS)
    for name, used in resources.items():
        assert (used.spill_stores, used.spill_loads, used.stack_frame) == (0, 0, 0), name
        assert used.registers <= 64, name  # 1,024 threads of read_repeatedly fit in a multiprocessor


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_comment_block_stands_above_each_kernel(kernel: Kernel) -> None:
    text = "\n".join(kernel.comment)
    assert text.startswith(f"{kernel.name}: ")
    for title in ("Launch", "Needs", "Order"):
        assert kernel.section(title), f"the comment of {kernel.name} says nothing about {title}"
    for parameter in kernel.parameters:
        assert re.search(rf"\b{parameter.name}\b", text), f"{parameter.name}: is not explained"


def test_no_kernel_escapes_the_parser() -> None:
    assert SOURCE.read_text().count("__global__") == len(KERNELS) > 0


def test_instructions_of_newer_architectures_are_guarded() -> None:
    assert {kernel.name for kernel in KERNELS if kernel.minimum_arch == 90} == {
        "pass_on_early", "cluster_barrier", "cluster_hop",
    }  # fmt: skip


def test_what_kernel_and_launch_code_share_is_the_same() -> None:
    """Read as text, since the module imports CuPy."""
    in_kernel = re.search(r"constexpr int READS_AT_ONCE = (\d+);", SOURCE.read_text())
    in_launch = re.search(r"^READS_AT_ONCE = (\d+)", (FOLDER / "primitives.py").read_text(), re.MULTILINE)
    assert in_kernel is not None
    assert in_launch is not None
    assert in_kernel[1] == in_launch[1]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_primitive_is_launched_by_a_gpu_test_with_what_it_takes(kernel: Kernel) -> None:
    given = launch_of(kernel.name, np.random.default_rng(0))
    assert list(given.args) == [parameter.name for parameter in kernel.parameters]
    assert {name for name in given.args if isinstance(given.args[name], np.ndarray)} == {
        parameter.name for parameter in kernel.parameters if parameter.is_tensor
    }
    assert set(given.left) == {parameter.name for parameter in kernel.parameters if parameter.is_written}


class Nvtx:
    """Remembers what is pushed and popped."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def RangePush(self, name: str) -> None:  # noqa: N802
        self.told.append(name)

    def RangePop(self) -> None:  # noqa: N802
        self.told.append("pop")


class Part:
    """A part of a step."""

    def __call__(self, number: int) -> int:
        return number + 1

    def finish(self, *, number: int) -> int:
        return number + 2


def test_a_part_stays_what_it_is_where_ranges_are_off() -> None:
    part = Part()
    assert nvtx.marked(part, "update") is part
    with nvtx.named("epoch 0"):
        pass


def test_calls_and_blocks_are_ranges_where_they_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Nvtx()
    monkeypatch.setattr(nvtx, "_nvtx", fake)
    part: Any = nvtx.marked(Part(), "update")
    with nvtx.named("step"):
        assert part(1) == 2
    assert part.finish(number=1) == 3
    assert fake.told == ["step", "update", "pop", "pop", "update.finish", "pop"]


def test_a_range_ends_with_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Nvtx()
    monkeypatch.setattr(nvtx, "_nvtx", fake)
    with pytest.raises(ZeroDivisionError), nvtx.named("step"):
        1 / 0  # noqa: B018
    assert fake.told == ["step", "pop"]


class Block:
    """Memory that says when it comes and goes."""

    def __init__(self, size: int, calls: list[str]) -> None:
        self.ptr = 1000 * (1 + sum(call.startswith("take") for call in calls))
        self._calls = calls
        calls.append(f"take {size}")
        self._size = size

    def __del__(self) -> None:
        self._calls.append(f"give back {self._size}")


def test_each_tensor_takes_and_gives_back_memory_of_its_own() -> None:
    calls: list[str] = []
    step_allocator = StepAllocator(lambda size: Block(size, calls))
    first, second = step_allocator.empty((3, 2), np.float32), step_allocator.empty((5,), np.float64)
    assert (first.size, first.nbytes, second.nbytes) == (6, 24, 40)
    for _ in range(2):
        step_allocator.acquire()
        assert calls == ["take 24", "take 40"]
        step_allocator.release()
        assert calls[2:] == ["give back 24", "give back 40"]
        calls.clear()


def test_views_move_with_the_whole() -> None:
    calls: list[str] = []
    step_allocator = StepAllocator(lambda size: Block(size, calls))
    whole = step_allocator.empty((24,), np.float32)
    part = whole[4:10].reshape((2, 3))
    other = step_allocator.empty((2, 2), np.float32).reshape((4,))
    step_allocator.acquire()
    assert (whole.data.ptr, part.data.ptr, other.data.ptr) == (1000, 1016, 2000)
    assert (part.shape, part.size, part.nbytes) == ((2, 3), 6, 24)
    step_allocator.release()
    step_allocator.acquire()
    assert part.data.ptr == whole.data.ptr + 16 == 3016


def test_a_tensor_without_memory_has_no_address() -> None:
    step_allocator = StepAllocator(lambda size: Block(size, []))
    whole = step_allocator.empty((24,), np.float32)
    part = whole[:3]
    for tensor in (whole, part):
        with pytest.raises(AttributeError):
            assert tensor.data.ptr
    step_allocator.acquire()
    step_allocator.release()
    with pytest.raises(AttributeError):
        assert part.data.ptr


@pytest.mark.parametrize(("n", "row_bytes"), [(1, 16), (127, 16), (128, 16), (129, 32), (784, 112)])
def test_a_row_of_a_mask_has_a_bit_for_each_output_and_is_padded(n: int, row_bytes: int) -> None:
    assert mask_shape(5, n) == (5, row_bytes)
