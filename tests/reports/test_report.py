from __future__ import annotations

import msgspec
import pytest

from ladder.results import Results
from reports.report import report
from tests.reports import sample


def replaced_environment(environment: dict[str, object]) -> Results:
    return msgspec.structs.replace(sample.results(), environment=environment)


def section(text: str, name: str) -> str:
    return text.split(f"(`{name}`)")[1].split("\n### ")[0].split("\n## ")[0]


def test_what_looks_like_html_is_shown() -> None:
    run = sample.replace_stage(sample.results(), "cuda-graph", reason="<unknown error> in `vector<float>`")
    assert "&lt;unknown error> in `vector<float>`" in report(run, [])


def test_data_that_is_not_mnist_is_a_warning_before_the_table() -> None:
    before, _ = report(sample.synthetic_results(), []).split("| Stage |")
    assert "[!WARNING]" in before
    assert "NOT MNIST" in before


def test_figures_are_linked_where_they_were_drawn() -> None:
    assert "](figures/loss_curves.svg)" in report(sample.results(), ["epoch_time.svg", "loss_curves.svg"])
    text = report(sample.nothing_passed(), [])
    assert ".svg" not in text
    assert "there are no figures" in text


def test_a_stage_shows_what_was_measured_beside_what_was_expected() -> None:
    text = section(report(sample.results(), []), "async")
    for part in (
        "What async is expected to gain.",
        "20.0 (19.8-21.0) ms/epoch over 3 runs of 20 epochs",
        "42.7 us/step",
    ):
        assert part in text
    for part in (
        "2.00x the speed of Hand-written kernels",
        "1.25x the speed of JAX lax.scan, unrolled (GPU), the fastest float32 reference on the GPU",
        "18.0 ms/epoch by the GPU's own events",
        "launches per step 9, kernels per step 9",
        "710 MiB of GPU memory",
        "0.31 s",
    ):
        assert part in text
    assert "| first update, weight[0] | 3.4e-07 | 3.0e-06 | passed |" in text


def test_a_graph_an_epoch_is_told_and_what_was_not_counted_is_not() -> None:
    text = report(sample.results(), [])
    assert "launches per step 0.002 (1 graph an epoch), kernels per step 9" in section(text, "cublas")
    assert "per step" not in section(text, "jax-scan")


def test_a_reference_is_compared_on_its_own_device() -> None:
    text = report(sample.results(), [])
    assert "0.66x the speed of PyTorch eager (CPU), the fastest float32 reference on the CPU" in section(text, "numpy")
    assert "; the fastest float32 reference on the GPU;" in section(text, "jax-scan")
    assert "the fastest bf16/fp16 reference on the GPU" in section(text, "bf16-gemm")


def test_a_rung_that_lost_is_told_under_the_table_with_its_finding() -> None:
    text = report(sample.results(), [])
    _, after = text.split("\n\nms/epoch is the median")
    assert "- bf16-gemm is slower than cublas here (0.80x its speed); see Found" in after.split("## Stages")[0]
    assert "| **Found** | It was slower. |" in section(text, "bf16-gemm")


def test_a_failed_stage_shows_its_checks_and_no_time() -> None:
    text = section(report(sample.results(), []), "sparse-metrics")
    assert "**Failed**: first update of weight[0]" in text
    assert "| loss curve | not finite | 1.0e-03 | **failed** |" in text
    assert "ms/epoch" not in text


def test_a_stage_without_a_docstring_or_a_time_is_just_its_reason() -> None:
    run = sample.replace_stage(sample.results(), "persistent", doc=None)
    assert section(report(run, []), "persistent").strip() == (
        "**Skipped**: needs sm_100 or newer, this GPU is sm_90; try persistent-grid"
    )


@pytest.mark.parametrize(
    ("environment", "line"),
    [
        ({"gpu": "H200"}, "| gpu | H200 |"),
        ({"gpu": {"driver_version": 580}}, "| gpu driver version | 580 |"),
        ({"gpu": None}, "| gpu | - |"),
        ({"ok": False}, "| ok | False |"),
        ({"cpus": ["a", "b"]}, "| cpus | a, b |"),
    ],
)
def test_the_environment_may_be_flat_or_nested(environment: dict[str, object], line: str) -> None:
    assert line in report(replaced_environment(environment), [])
