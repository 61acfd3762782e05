from __future__ import annotations

import msgspec
import pytest

from ladder.records.run import Precision, Results, Spread, StageResult
from reports.facts.baselines import epoch_s, fastest_peer, ratio, references, torch_stages
from reports.facts.summary import rows
from tests.reports import sample


def stage(run: Results, name: str) -> StageResult:
    return next(stage for stage in run.stages if stage.name == name)


def torch_of(run: Results, name: str) -> str | None:
    """The name of the PyTorch that a row is compared with."""
    peer = fastest_peer(stage(run, name), torch_stages(run))
    return peer.name if peer else None


def versus_torch(run: Results, name: str) -> float | None:
    return next(row.versus_torch for row in rows(run) if row.name == name)


def test_a_class_is_compared_with_itself_alone() -> None:
    run = sample.results()
    assert torch_of(run, "cublas") == "torch-eager"  # 200 ms; torch-amp has 100 ms in another class
    assert versus_torch(run, "async") == pytest.approx(10.0)
    assert torch_of(run, "bf16-gemm") == "torch-amp"
    assert versus_torch(run, "bf16-gemm") == pytest.approx(0.1 / 0.0215)


@pytest.mark.parametrize("precision", ["tf32", "bfloat16", "float16"])
def test_a_class_without_pytorch_gets_no_ratio(precision: Precision) -> None:
    run = sample.replace_stage(sample.results(), "torch-amp", precision="float32")
    run = sample.replace_stage(run, "async", precision=precision)
    assert versus_torch(run, "async") is None
    assert versus_torch(run, "cublas") == pytest.approx(0.1 / 0.0172)


def test_the_two_formats_of_mixed_precision_are_one_class() -> None:
    assert torch_of(sample.replace_stage(sample.results(), "async", precision="float16"), "async") == "torch-amp"


def test_a_gpu_is_not_compared_with_the_cpu_where_pytorch_ran_on_one() -> None:
    run = sample.results()
    cpu = stage(run, "torch-eager-cpu").timing
    run = sample.replace_stage(run, "torch-eager-cpu", timing=stage(run, "cublas").timing)  # a CPU that is faster
    assert cpu is not None
    assert torch_of(run, "async") == "torch-eager"
    assert torch_of(run, "numpy") == "torch-eager-cpu"
    # Nor if only another class ran on the GPU.
    assert torch_of(sample.replace_stage(run, "torch-eager", status="failed"), "async") is None


def test_a_gpu_is_compared_with_the_cpu_where_pytorch_ran_on_nothing_else() -> None:
    run = sample.results()
    for name in ("torch-eager", "torch-amp"):
        run = sample.replace_stage(run, name, status="skipped", reason="PyTorch is installed without CUDA")
    assert torch_of(run, "async") == "torch-eager-cpu"
    assert versus_torch(run, "async") == pytest.approx(20.0)


def test_a_cpu_is_never_compared_with_a_gpu() -> None:
    run = sample.replace_stage(sample.results(), "torch-eager-cpu", status="failed")
    assert torch_of(run, "numpy") is None


def test_the_fastest_reference_is_whatever_is_fastest() -> None:
    run = sample.results()
    fastest = fastest_peer(stage(run, "naive"), references(run))
    assert fastest is not None
    assert fastest.name == "jax-scan"


@pytest.mark.parametrize("strange", [0.0, float("nan"), float("inf")])
def test_a_time_that_cannot_be_divided_by_is_none(strange: float) -> None:
    run = sample.results()
    timing = stage(run, "torch-eager").timing
    assert timing is not None
    timing = msgspec.structs.replace(timing, epoch_s=Spread(strange, strange, strange))
    run = sample.replace_stage(run, "torch-eager", timing=timing)
    assert epoch_s(stage(run, "torch-eager")) is None
    assert ratio(stage(run, "torch-eager"), stage(run, "naive")) is None
    assert torch_of(run, "naive") is None
