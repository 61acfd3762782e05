from __future__ import annotations

import msgspec
import pytest

from ladder.records.limits import SHARED
from ladder.records.run import Results
from reports.markdown.run_report import report
from tests.reports import recorded, sample


def replaced_environment(environment: dict[str, object]) -> Results:
    return msgspec.structs.replace(sample.results(), environment=environment)


def section(text: str, name: str) -> str:
    return text.split(f"### `{name}`: ")[1].split("\n### ")[0].split("\n## ")[0]


def test_text_like_html_is_shown() -> None:
    run = sample.replace_stage(sample.results(), "cuda-graph", reason="<unknown error> in `vector<float>`")
    assert "&lt;unknown error> in `vector<float>`" in report(run, [])


def test_other_data_than_mnist_is_a_warning_before_the_table() -> None:
    before, _ = report(sample.synthetic_results(), []).split("| Stage |")
    assert "[!WARNING]" in before
    assert "NOT MNIST" in before


def test_figures_are_linked_where_they_were_drawn() -> None:
    text = report(sample.results(), ["ladder.svg", "loss_distance.svg"])
    assert "](figures/ladder.svg)" in text
    assert "](figures/loss_distance.svg)" in text
    text = report(sample.nothing_passed(), [])
    assert ".svg" not in text
    assert "there are no figures" in text


def test_a_median_has_an_interval_with_enough_processes() -> None:
    few = recorded.run(recorded.stage("naive", recorded.times(50.0, processes=5)))
    enough = recorded.run(recorded.stage("naive", [49.0, 49.0, 49.0, 50.0, 50.0, 51.0, 51.0, 51.0]))
    assert "interval of the median" not in report(few, ())
    assert "95% interval of the median 4.90-5.10, from 8 processes;" in report(enough, ())  # of 100 steps


def test_a_stage_shows_its_measurement_beside_its_expectation() -> None:
    text = section(report(sample.results(), []), "async")
    for part in (
        "What async is expected to gain.",
        "20.0 (19.8-21.0) ms/epoch over 3 runs of 20 epochs",
        "42.7 us/step (84,600 cycles at 1,980 MHz)",
    ):
        assert part in text
    for part in (
        "2.00x (1.98-2.10) the speed of `naive`",
        "1.25x (1.24-1.31) of the fastest reference, `jax-scan` in float32 on the GPU, within noise",
        "18.0 ms/epoch between GPU events",
        "launches per step 8, kernels per step 8",
        "710 MiB of GPU memory",
        "0.31 s",
    ):
        assert part in text
    assert "| first update, weight[0] | 3.4e-07 | 3.0e-06 | passed |" in text


def test_graphs_are_counted_by_epoch_and_uncounted_launches_left_out() -> None:
    text = report(sample.results(), [])
    assert "launches per step 0.002 (1 graph an epoch), kernels per step 8.5" in section(text, "cublas")
    assert "per step" not in section(text, "torch-amp")


def test_a_reference_is_compared_on_its_own_device() -> None:
    text = report(sample.results(), [])
    on_cpu = "0.66x (0.65-0.70) of the fastest reference, `torch-eager-cpu` in float32 on the CPU"
    assert on_cpu in section(text, "numpy")
    assert "; the fastest float32 reference on the GPU;" in section(text, "jax-scan")
    assert "of the fastest reference, `jax-scan` in float32 on the GPU" in section(text, "bf16-gemm")


def test_a_slower_rung_is_named_under_the_table() -> None:
    text = report(sample.results(), [])
    _, after = text.split("\n\nms/epoch: the median")
    assert (
        "- `bf16-gemm` is slower than `cublas`, which it climbs from: 0.80x (0.80-0.80) its speed. See Found"
        in after.split("## Stages")[0]
    )
    assert "| **Found by the author, not in this run** | It was slower. |" in section(text, "bf16-gemm")


def test_a_failed_stage_shows_its_checks_and_no_time() -> None:
    text = section(report(sample.results(), []), "sparse-metrics")
    assert "**Failed**: first update of weight[0]" in text
    assert "| loss curve | not finite | 1.0e-03 | **failed** |" in text
    assert "ms/epoch" not in text


def test_a_stage_without_a_docstring_or_a_time_is_just_its_reason() -> None:
    run = sample.replace_stage(sample.results(), "persistent", doc=None)
    assert section(report(run, []), "persistent").strip() == (
        "Persistent\n\n**Skipped**: needs sm_100 or newer, this GPU is sm_90; try persistent-grid"
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


def test_limits_and_bounds_have_a_section() -> None:
    text = report(sample.results(), [])
    assert "| graph node, 1 block | 0.860 | 0.850 | 0.875 | us |" in text
    assert "- not measured: cluster barrier, 2 blocks: needs sm_90" in text
    assert "| `naive` | float32 | 40.0 | 12.5 | 0.00 | 10.0 | 50.0 | 0.500 |" in text
    assert "| x floor | x cheat limit |" in text
    without = report(sample.unprofiled_results(), [])
    assert "## Limits" not in without
    assert "| x floor |" not in without


def test_missing_profiles_have_notices() -> None:
    run = sample.unprofiled_results()
    run = msgspec.structs.replace(run, settings=msgspec.structs.replace(run.settings, profile=["cupti"]))
    for name in ("naive", "async"):
        run = sample.replace_stage(run, name, unprofiled={"cupti": "cupti-python is not installed"})
    text = report(run, [])
    assert "- naive and async not profiled with cupti: cupti-python is not installed" in text
    assert "- The GPU's limits were not measured" in text
    assert run.limits is None
    shared = msgspec.structs.replace(sample.limits(), skipped={"graph node, 1 block": SHARED})
    text = report(msgspec.structs.replace(run, limits=shared), [])
    assert "- Some of the GPU's limits were not measured, so there are no floors or cheat limits: another" in text


def test_cycles_need_a_clock() -> None:
    assert "| Cycles/step |" in report(sample.results(), [])
    for run in (sample.nothing_passed(), _without_clocks(sample.results())):
        assert "ycles" not in report(run, [])


def _without_clocks(run: Results) -> Results:
    for stage in run.stages:
        processes = [msgspec.structs.replace(process, gpu_states=[]) for process in stage.processes]
        run = sample.replace_stage(run, stage.name, processes=processes)
    return run


def test_the_parts_of_a_run_s_time_come_longest_first() -> None:
    took_s = {"checking": 0.4, "compiling": 20.0, "stages' processes": 61.0}
    text = report(msgspec.structs.replace(sample.results(), seconds=100.0, took_s=took_s), [])
    assert "; it took 100 s, " in text
    assert "compiled stages (stages' processes 61, compiling 20). This" in text
