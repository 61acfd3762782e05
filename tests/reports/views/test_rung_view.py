"""What a rung's view knows."""

from __future__ import annotations

from ladder.records.run import Results
from reports.views.rung_view import RungView, rung_view
from tests.reports import sample


def view(name: str, run: Results | None = None) -> RungView:
    run = run or sample.results()
    return rung_view(next(stage for stage in run.stages if stage.name == name), run)


def test_a_step_is_told_kernel_by_kernel_with_the_host_s_work() -> None:
    rung = view("naive")
    (first, *_) = kernels = rung.kernels(20)
    assert (first.name, first.kind, first.us, first.registers) == ("gemm_naive", "gemm", "23.5", "32")
    assert (first.grid, first.occupancy, first.bytes) == ("8 x 256", "62.5%", "0.4 MB")
    assert len(kernels) == 8
    assert dict(rung.host)["Synchronisations"].startswith("468 an epoch")
    assert rung.agreement.endswith("busy 38.5 / 39.0 us (1.3%)")


def test_a_step_of_many_kernels_is_cut() -> None:
    assert len(view("torch-eager").kernels(8)) == 8


def test_a_stage_without_a_profile_has_neither_kernels_nor_advice() -> None:
    for name in ("torch-amp", "cuda-graph"):
        rung = view(name)
        assert (rung.kernels(20), rung.host, rung.advice, rung.moved) == ([], [], None, "")
