"""The public module has what a stage file needs, at no cost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import stages
from common.errors import UsageError
from stages import Gemm, cpu_kernel, rung
from stages.registry import load_all

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there_and_documented() -> None:
    for name in stages.__all__:
        assert getattr(stages, name).__doc__ or name in ("Array", "Group", "Precision"), name
    for name in ("Stage", "Trainer", "Params", "EpochMetrics", "Problem", "Split", "Gemm", "Setup", "Array", "rung"):
        assert name in stages.__all__
        assert f"`{name}`" in str(stages.__doc__) or f"{name}(" in str(stages.__doc__)


def test_importing_it_imports_no_gpu_library_and_no_rung() -> None:
    check = "import stages, sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"cupy", "cuda", "torch", "jax", "nvmath", "ladder", "reports"}
    assert not loaded & {entry.source.partition(":")[0] for entry in load_all().values()}


def test_a_rung_is_found_by_its_id() -> None:
    assert rung("cublas") is load_all()["cublas"].stage

    class Mine(Gemm):
        def __call__(self, *_: object, **__: object) -> None: ...

    mine = rung("cublas").climb("mine", "Mine", gemm=Mine)
    assert (mine.below, mine.changed, mine.precision, mine.needs) == ("cublas", "gemm: Mine", "float32", ("cuda",))


def test_an_unknown_id_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"stage 'cublass': .*did you mean cublas\?"):
        rung("cublass")


def test_kernels_of_one_s_own_need_one_module_more() -> None:
    for name in cpu_kernel.__all__:
        assert getattr(cpu_kernel, name).__doc__, name
        assert f"`{name}" in str(cpu_kernel.__doc__) or f"`@{name}(" in str(cpu_kernel.__doc__) or name == "part"
