"""Dependent launches: a kernel that does not wait for the one before it is caught."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cpu_cuda.conftest import Plant
from tests.cpu_cuda.shim import KernelFault, requires_compiler

pytestmark = requires_compiler

HEAD = '#include "device/dependent.cuh"\nextern "C" __global__ void f(const float* x, float* y) {'


def run(plant: Plant, body: str, *, dependent: bool = True) -> np.ndarray:
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    plant(f"{HEAD} const int i = blockIdx.x * 64 + threadIdx.x; {body} }}").launch(
        "f", 2, 64, x, y, dependent=dependent
    )
    return y


@pytest.mark.parametrize(
    "body",
    [
        "griddepcontrol_launch_dependents(); griddepcontrol_wait(); y[i] = x[i];",
        "griddepcontrol_wait(); y[i] = x[i]; griddepcontrol_launch_dependents();",
        "griddepcontrol_wait(); griddepcontrol_wait(); y[i] = x[i];",
        "__shared__ float s[64]; s[63 - threadIdx.x] = i; __syncthreads(); const float k = s[63 - threadIdx.x]; "
        "griddepcontrol_wait(); y[i] = x[i] + 0.0f * k;",
    ],
    ids=["before", "after", "twice", "behind a barrier"],
)
def test_a_kernel_that_waits_does_what_it_does_anyway(plant: Plant, body: str) -> None:
    np.testing.assert_array_equal(run(plant, body), np.arange(128))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y[i] = x[i];", "touched before it waited for the kernel before, .* of x "),
        ("y[i] = 1.0f;", "touched before it waited for the kernel before, .* of y "),
        ("const float k = x[i]; griddepcontrol_wait(); y[i] = k;", "touched before it waited .* of x "),
        ("griddepcontrol_launch_dependents(); y[i] = x[i]; griddepcontrol_wait();", "touched before .* of x "),
        ("if (threadIdx.x > 0) griddepcontrol_wait(); y[i] = x[i];", "touched before it waited .* of x "),
        ("griddepcontrol_launch_dependents();", "ended without waiting for the kernel before of block"),
        ("if (blockIdx.x > 0) griddepcontrol_wait();", r"ended without waiting .* of block \(0, 0, 0\)"),
        ("if (threadIdx.x < 32) griddepcontrol_wait(); __syncthreads(); y[i] = x[i];", "others for threads"),
    ],
)
def test_a_kernel_that_does_not_is_caught(plant: Plant, body: str, reason: str) -> None:
    with pytest.raises(KernelFault, match=reason):
        run(plant, body)
    run(plant, body, dependent=False)  # as an ordinary launch it shows nothing


def test_a_block_may_meet_while_another_waits(plant: Plant) -> None:
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    body = "if (blockIdx.x == 0) __syncthreads(); griddepcontrol_wait(); y[i] = x[i];"
    plant(f"{HEAD} const int i = blockIdx.x * 64 + threadIdx.x; {body} }}").launch(
        "f", 1, 64, x, y, dependent=True, cluster=2
    )
    np.testing.assert_array_equal(y, x)


def test_what_it_faulted_on_can_be_read_again(plant: Plant) -> None:
    shim = plant(f"{HEAD} if (y[0] == 0) griddepcontrol_wait(); y[0] = x[0]; }}")
    with pytest.raises(KernelFault, match="touched before"):
        shim.launch("f", 1, 1, np.ones(1, np.float32), np.zeros(1, np.float32), dependent=True)
    y = np.zeros(1, np.float32)
    shim.launch("f", 1, 1, np.ones(1, np.float32), y)
    assert y[0] == 1
