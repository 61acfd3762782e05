"""The description of the machine, and what stages lack on it."""

from __future__ import annotations

import json
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from common.cuda import driver
from ladder import doctor
from ladder.machine import environment
from tests.ladder import gpus
from tests.ladder.gpus import H200, RTX_3060, FakeNvml

Install = Callable[..., None]


@pytest.fixture
def only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Makes these the only packages that can be found; each is an empty module.

    Packages that other tests have imported come back afterwards. Importing a C library a second time can damage the
    memory of the process: PyTorch registers its methods twice, from a list that has moved meanwhile.
    """

    def imported() -> list[str]:
        return [name for name in sys.modules if name.split(".")[0] in ("cupy", "cuda", "nvmath", "torch", "jax")]

    def install(*modules: str) -> None:
        for module in modules:
            folder = tmp_path.joinpath(*module.split("."))
            folder.mkdir(parents=True)
            (folder / "__init__.py").touch()
        monkeypatch.setattr(sys, "path", [str(tmp_path)])

    before = {name: sys.modules.pop(name) for name in imported()}
    yield install
    for name in imported():
        del sys.modules[name]
    sys.modules.update(before)


@pytest.mark.parametrize(
    ("packages", "needs", "reason"),
    [
        (("cupy", "cuda.core"), ["cuda"], None),
        (("cuda.core",), ["cuda"], "CuPy is not installed"),
        (("cupy",), ["cuda"], "cuda-core is not installed"),
        (("cupy", "cuda.bindings"), ["cuda"], "cuda-core is not installed"),
        (("cupy", "cuda.core"), ["cuda", "cublas"], "nvmath-python is not installed"),
        (("cupy", "cuda.core", "nvmath"), ["cuda", "cublas"], None),
        ((), ["torch"], "PyTorch is not installed"),
        (("torch",), ["torch"], None),
        ((), ["torch-cuda"], "PyTorch is not installed"),
        (("torch",), ["torch-cuda"], "PyTorch is installed without CUDA"),
        ((), ["jax"], "JAX is not installed"),
        (("jax",), ["jax"], None),
        ((), ["sm_86"], None),
        ((), ["sm_80"], None),
        ((), ["sm_90"], "needs sm_90 or newer, this GPU is sm_86"),
        ((), ["sm_90", "torch"], "needs sm_90 or newer, this GPU is sm_86"),
    ],
)
def test_missing_on_a_machine_with_a_gpu(
    monkeypatch: pytest.MonkeyPatch, only: Install, packages: tuple[str, ...], needs: list[str], reason: str | None
) -> None:
    gpus.show(monkeypatch, RTX_3060)
    only(*packages)
    assert environment.missing(needs) == reason


@pytest.mark.parametrize(
    ("gpu", "major", "reason"),
    [
        (gpus.V100, 13, "CUDA 13 needs sm_75 or newer, this GPU is sm_70: `make ladder CUDA=12`"),
        (gpus.V100, 12, None),
        (gpus.K80, 12, "CUDA 12 needs sm_50 or newer, this GPU is sm_37: `make ladder CUDA=cpu`"),
        (H200, 13, None),
    ],
)
def test_nothing_runs_on_a_gpu_that_the_installed_cuda_left_behind(
    monkeypatch: pytest.MonkeyPatch, only: Install, gpu: driver.DeviceInfo, major: int, reason: str | None
) -> None:
    gpus.show(monkeypatch, gpu)
    only("cupy", "cuda.core")
    monkeypatch.setattr(environment, "libraries", lambda names: {name: "14" for name in names if f"{major}x" in name})
    assert environment.missing(["cuda"]) == reason


def test_pytorch_for_cuda_has_its_library(monkeypatch: pytest.MonkeyPatch, only: Install, tmp_path: Path) -> None:
    gpus.show(monkeypatch, H200)
    only("torch", "torch.lib")
    (tmp_path / "torch" / "lib" / "libtorch_cuda.so").touch()
    assert environment.missing(["torch-cuda"]) is None
    gpus.hide(monkeypatch)
    for need in ("cuda", "sm_75", "torch-cuda"):
        assert environment.missing([need]) == "no CUDA device: no NVIDIA driver (libcuda.so.1 not found)"


def test_an_unknown_need_is_an_error_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.show(monkeypatch, H200)
    for need in ("cudda", "sm_", "sm_9x", "90"):
        with pytest.raises(ValueError, match=f"need '{need}': unknown; choose from cuda, cublas, .*torch.* and sm_NN"):
            environment.missing([need])


def test_looking_for_packages_imports_none(monkeypatch: pytest.MonkeyPatch, only: Install) -> None:
    gpus.show(monkeypatch, H200)
    only("cupy", "cuda.core", "nvmath", "torch")
    assert environment.missing(["cuda", "cublas", "torch", "sm_90"]) is None
    assert not {"cupy", "cuda.core", "nvmath", "torch"} & set(sys.modules)


def test_packages_are_imported_when_asked(only: Install) -> None:
    only("cupy", "cuda.core", "nvmath.bindings.cublasLt")
    environment.import_packages(("cuda", "cublas", "sm_90"))
    assert {"cupy", "cuda.core", "nvmath.bindings.cublasLt"} <= set(sys.modules)


def test_describe_is_plain_data_without_host_or_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.hide(monkeypatch)
    found = environment.describe()
    text = json.dumps(found)
    assert found["gpu"] == {"none": "no NVIDIA driver (libcuda.so.1 not found)"}
    assert found["libraries"]["numpy"] == np.__version__
    assert environment.libraries(["numpy", "no-such-package"]) == {"numpy": np.__version__}
    assert found["python"] == platform.python_version()
    assert found["cpu"]["cores_usable"] >= 1
    assert found["memory_mib"] > 100
    assert f'"{socket.gethostname()}"' not in text
    assert str(Path.home()) not in text


def test_what_libraries_read_is_recorded_without_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "generic", "XLA_FLAGS": "--xla_dump_to=/home/me/x --a=1",
        "LD_PRELOAD": "/usr/lib/libjemalloc.so:/me/b.so", "CUDA_DEVICE_MAX_CONNECTIONS": "1", "PYTHONOPTIMIZE": "1",
        "PYTHON_CPU_COUNT": "1", "PYTHON_GIL": "1", "ONEDNN_MAX_CPU_ISA": "AVX2", "CXX": "clang++",
    }  # fmt: skip
    others = ("CUDA_HOME", "NCCL_VERSION", "CUDA_VISIBLE_DEVICES", "TF_CLI_CONFIG_FILE", "OMPI_RANK", "TORCH_HOME")
    for name, value in (given | dict.fromkeys(others, "x")).items():
        monkeypatch.setenv(name, value)
    shown = given | {"XLA_FLAGS": "--xla_dump_to=x --a=1", "LD_PRELOAD": "libjemalloc.so:b.so"}
    found = environment.describe()["variables"]
    assert shown.items() <= found.items()
    assert not {*others} & found.keys()


def test_describe_the_first_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus.show(monkeypatch, H200, RTX_3060)
    FakeNvml(RTX_3060.pci_bus_id, H200.pci_bus_id).install(monkeypatch)
    found = environment.describe()
    assert found["gpu_clocks"] == {"sm_mhz": 1001, "application_sm_mhz": 1830}
    assert found["gpu"] == {
        "name": "NVIDIA H200",
        "compute_capability": "9.0",
        "memory_mib": 141 << 10,
        "visible_gpus": 2,
        "supports_cuda": "13.0",
        "driver": "580.65.06",
        "power_limit_w": 700.0,
        "max_sm_mhz": 1980,
    }


def test_the_compiler_is_the_one_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> tuple[int, int]:
        raise RuntimeError("no libnvrtc")

    monkeypatch.setattr(environment, "nvrtc_version", lambda: (13, 5))
    assert environment.describe()["libraries"]["NVRTC"] == "13.5"
    monkeypatch.setattr(environment, "nvrtc_version", nowhere)
    assert "NVRTC" not in environment.describe()["libraries"]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Git in an empty folder that is no repository yet."""
    # A hook of git runs with these set, and they would send the commands below to the repository of the hook.
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    def run(*arguments: str) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        command = ["git", *identity, "-C", str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    return run


def test_git_state(git: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.git_state(tmp_path) == (None, None)
    git("init")
    (tmp_path / "code").write_text("1")
    git("add", "code")
    git("commit", "-m", "first")
    head = git("rev-parse", "HEAD")
    assert environment.git_state(tmp_path) == (head, False)
    (tmp_path / "code").write_text("2")
    assert environment.git_state(tmp_path) == (head, True)
    inner = tmp_path / "inner"
    inner.mkdir()
    assert environment.git_state(inner) == (None, None)
    monkeypatch.setenv("PATH", str(inner))
    assert environment.git_state(tmp_path) == (None, None)


def test_a_git_that_refuses_is_told_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, git: Callable[..., str], tmp_path: Path
) -> None:
    assert environment.git_refusal(tmp_path) is None  # no repository
    git("init")
    git("commit", "--allow-empty", "-m", "first")
    assert environment.git_refusal(tmp_path) is None
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")  # it may call every folder safe
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own tests pretend another owner so
    assert environment.git_state(tmp_path) == (None, None)
    assert (environment.git_refusal(tmp_path) or "").endswith(
        f"(dubious ownership), so no commit is recorded: `git config --global --add safe.directory {tmp_path}`"
    )
    monkeypatch.setattr(environment, "git_refusal", partial(environment.git_refusal, tmp_path))
    monkeypatch.setattr(doctor, "git_refusal", environment.git_refusal)
    (row,) = (row for row in doctor.doctor() if row.what == "git")
    assert row.advice.startswith("`git config")
    monkeypatch.setenv("PATH", "")
    assert environment.git_refusal() is None
