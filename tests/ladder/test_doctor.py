"""The findings of `doctor` on machines of several kinds."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from common.cuda.driver import DeviceInfo
from ladder import doctor
from ladder.doctor import Finding
from ladder.machine import environment
from ladder.machine.environment import ROOT
from tests.ladder import gpus
from tests.ladder.gpus import H200

Has = Callable[..., None]
with (ROOT / "pyproject.toml").open("rb") as file:
    BOUNDS = [re.match(r"([\w.-]+)>=([\d.]+)", one) for one in tomllib.load(file)["project"]["dependencies"]]
    PACKAGES = {found[1]: found[2] for found in BOUNDS if found}


@pytest.fixture
def has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Has:
    """Makes these the installed packages, on a machine with an empty cache and no profiler."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("LADDER_DATA_DIR", raising=False)

    def install(**versions: str) -> None:
        installed = {name.replace("_", "-"): version for name, version in versions.items()}
        for module in (doctor, environment):
            monkeypatch.setattr(
                module, "libraries", lambda names: {name: installed[name] for name in names if name in installed}
            )

    return install


def findings(what: str) -> list[Finding]:
    return [finding for finding in doctor.doctor() if finding.what == what]


def test_no_driver(monkeypatch: pytest.MonkeyPatch, has: Has) -> None:
    gpus.hide(monkeypatch)
    has(numpy="2.3.1")
    (found,) = findings("NVIDIA driver")
    assert found.found == "no NVIDIA driver (libcuda.so.1 not found)"
    assert found.advice.endswith("`make ladder`")
    assert findings("numpy") == [Finding("numpy", "2.3.1")]
    assert [one.what for one in doctor.doctor() if one.what.startswith("cuda")] == []
    assert findings("torch")[0].advice == "`make ladder TORCH=1`"  # plain pip would install gigabytes of CUDA
    assert not [finding for finding in doctor.doctor() if finding.what.startswith(("GPU", "cupy"))]


def test_a_laptop_is_ready_for_the_cpu_ladder_unless_a_package_lacks(monkeypatch: pytest.MonkeyPatch, has: Has) -> None:
    gpus.hide(monkeypatch)
    has(**PACKAGES)
    found = doctor.doctor()
    assert found[0] == Finding("ladder", "ready for the CPU ladder (`--stages cpu`)")
    assert [one.what for one in found if one.advice] == ["NVIDIA driver", "torch", "jax", "data", "nsys"]
    assert all(one.optional for one in found if one.advice)
    has(**{name: version for name, version in PACKAGES.items() if name != "numba"})
    assert findings("ladder")[0].found == "not ready"
    assert [one.what for one in doctor.doctor() if one.advice and not one.optional] == ["ladder", "numba"]


@pytest.mark.parametrize("version", ["1.26.4", "2.6.0", "10.1"])
def test_a_version_outside_of_its_bounds_is_not_ready(monkeypatch: pytest.MonkeyPatch, has: Has, version: str) -> None:
    gpus.hide(monkeypatch)
    has(**PACKAGES | {"numpy": version})
    advice = "`rm -r .venv && make ladder`, or `python -m pip install 'numpy>=2,<2.6'`"
    assert findings("numpy") == [Finding("numpy", f"{version}, not numpy>=2,<2.6", advice)]
    assert findings("ladder")[0].found == "not ready"


@pytest.mark.parametrize(
    ("version", "requirement", "within"),
    [
        ("2.5.9", "numpy>=2,<2.6", True), ("2", "numpy>=2.0.1", False), ("2.13.0+cpu", "torch==2.13.0", True),
        ("2.10.1", "torch==2.10.*", True), ("2.1.0", "torch==2.10.*", False), ("0.1", "nvidia-cudnn-cu13", True),
    ],
)  # fmt: skip
def test_the_bounds_of_a_requirement(version: str, requirement: str, within: bool) -> None:
    assert doctor.is_within(version, requirement) == within


@pytest.mark.parametrize("major", [12, 13])
def test_a_gpu_and_nothing_installed(monkeypatch: pytest.MonkeyPatch, has: Has, major: int) -> None:
    gpus.show(monkeypatch, H200, version=(major, 0))
    has()
    assert findings("NVIDIA driver") == [Finding("NVIDIA driver", f"supports CUDA {major}.0")]
    assert findings("GPU 0") == [Finding("GPU 0", f"NVIDIA H200, sm_90, {141 << 10} MiB")]
    (cupy,) = findings(f"cupy-cuda{major}x")
    assert cupy.found == "missing"
    assert cupy.advice == f"`make ladder CUDA={major}`, or `python -m pip install 'cupy-cuda{major}x>=14,<15'`"


@pytest.mark.parametrize(
    ("gpu", "version", "wheels", "said"),
    [
        (H200, (13, 0), [12], None),
        (
            H200, (13, 0), [12, 13],
            ("cupy-cuda12x and cupy-cuda13x install the same files", "`rm -r .venv && make ladder CUDA=13`"),
        ),
        (H200, (12, 8), [13], ("cupy-cuda13x, but the driver is older than CUDA 13", "`make ladder CUDA=12`")),
        (gpus.V100, (13, 0), [13], ("CUDA 13 needs sm_75 or newer, this GPU is sm_70", "`make ladder CUDA=12`")),
        (gpus.V100, (13, 0), [12], None),
    ],
)  # fmt: skip
def test_cupy_has_to_fit_the_driver_and_the_gpu(
    monkeypatch: pytest.MonkeyPatch, has: Has, gpu: DeviceInfo, version: tuple[int, int], wheels: list[int],
    said: tuple[str, str] | None,
) -> None:  # fmt: skip
    gpus.show(monkeypatch, gpu, version=version)
    has(**{f"cupy_cuda{major}x": "14.2.0" for major in wheels})
    assert findings("CuPy") == ([Finding("CuPy", *said)] if said else [])
    assert not said or findings("ladder")[0].found == "not ready"
    if gpu is gpus.V100:
        has()
        assert findings("cupy-cuda12x")[0].found == "missing"
        assert findings("cupy-cuda13x") == []


def test_an_old_driver_and_a_driver_without_a_device(monkeypatch: pytest.MonkeyPatch, has: Has) -> None:
    has()
    gpus.show(monkeypatch, H200, version=(11, 4))
    assert findings("NVIDIA driver")[0].advice == "too old for CUDA 12: update it to 525 or newer"
    gpus.show(monkeypatch)
    assert findings("GPU")[0].found == "none: driver present but no CUDA device"


def test_missing_data(monkeypatch: pytest.MonkeyPatch, has: Has, tmp_path: Path) -> None:
    has()
    (found,) = findings("data")
    assert found.found == f"MNIST is not in the cache, {tmp_path / 'mnist'}"
    assert "--data-dir FOLDER" in found.advice
    monkeypatch.setenv("LADDER_DATA_DIR", str(tmp_path))
    (found,) = findings("data")
    assert found.found.startswith("$LADDER_DATA_DIR cannot be used:")
    assert str(tmp_path) in found.found


def test_the_profiler(has: Has, tmp_path: Path) -> None:
    has()
    assert findings("nsys")[0].found == "not found"
    program = tmp_path / "nsys"
    program.write_text("#!/bin/sh\necho NVIDIA Nsight Systems version 2025.3.1.0\n")
    program.chmod(0o755)
    assert findings("nsys") == [Finding("nsys", f"2025.3.1.0, {program}")]


def test_this_machine() -> None:
    found = doctor.doctor()
    assert [one.what for one in found[:2]] == ["ladder", "Python"]
    assert all(finding.found for finding in found)
