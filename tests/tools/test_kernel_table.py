"""The table of kernels is the one that the sources give."""

from __future__ import annotations

import pytest

from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, kernels_in
from tools.kernel_table import README, first_user, summary, with_table


def test_the_readme_has_today_s_table() -> None:
    text = README.read_text()
    assert with_table(text) == text, "run python -m tools.kernel_table"


def test_every_kernel_has_a_row() -> None:
    text = README.read_text()
    for kernel in kernels_in(KERNELS_FOLDER):
        assert f"| `{kernel.name}` | {summary(kernel)} |" in text


def test_a_summary_is_one_sentence() -> None:
    comment = ("add: a sum of", "0.5 and 1. Then more.", "Launch: any.")
    assert summary(Kernel("add", README, (), comment)) == "a sum of 0.5 and 1"
    assert all("Launch:" not in summary(kernel) for kernel in kernels_in(KERNELS_FOLDER))


@pytest.mark.parametrize(
    ("kernel", "stage"),
    [("gemm_naive", "naive"), ("bias_update", "fused-update"), ("cluster_mlp", "persistent-cluster")],
)
def test_the_first_user_is_the_rung_that_brings_the_kernel(kernel: str, stage: str) -> None:
    assert first_user(kernel) == stage


def test_a_kernel_that_no_stage_launches_is_an_error() -> None:
    with pytest.raises(ValueError, match="forgotten: no stage names it"):
        first_user("forgotten")


def test_a_readme_without_markers_is_an_error() -> None:
    with pytest.raises(ValueError, match="put both lines where the table belongs"):
        with_table("# Kernels\n")
