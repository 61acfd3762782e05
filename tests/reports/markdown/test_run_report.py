from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from ladder.records.limits import SHARED
from ladder.records.run import OracleRecord, Results, StageDoc
from reports.markdown.run_report import report
from tests.reports import recorded, sample


def replaced_environment(environment: dict[str, object]) -> Results:
    return msgspec.structs.replace(sample.results(), environment=environment)


def section(text: str, name: str) -> str:
    return text.split(f"### `{name}`: ")[1].split("\n### ")[0].split("\n## ")[0]


def test_text_like_html_is_shown() -> None:
    run = sample.replace_stage(sample.results(), "cuda-graph", reason="<unknown error> in `vector<float>`")
    assert "&lt;unknown error> in `vector<float>`" in report(run, [])


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


def test_a_failed_stage_without_a_docstring_is_just_its_reason() -> None:
    run = sample.replace_stage(sample.results(), "cuda-graph", doc=None)
    assert section(report(run, []), "cuda-graph").strip() == (
        "Cuda graph\n\nFrom `sparse-metrics`: one launch an epoch.\n\n"
        "**Crashed**: the worker ended with signal 9 (SIGKILL) in run 3"
    )


def test_a_time_that_was_disturbed_is_marked() -> None:
    run = sample.results()
    assert "†" not in report(run, [])
    calm = next(stage for stage in run.stages if stage.name == "async").processes
    busy = [msgspec.structs.replace(one, disturbed=["busy"]) for one in calm]
    for processes, mark in ((busy, "‡"), ([calm[0], busy[1]], "†")):
        text = report(sample.replace_stage(run, "async", processes=processes), [])
        assert f"| `async` | `naive` | 42.7{mark} |" in text
        assert "†, ‡: other work or a falling clock disturbed some, or all, of its processes." in text


def test_many_skipped_stages_are_a_number_and_a_reason() -> None:
    run = sample.results()
    for stage in run.stages[:7]:
        run = sample.replace_stage(run, stage.name, status="skipped", reason="no CUDA device", timing=None)
    assert "Skipped: 8 stages, 7 of them for one reason: no CUDA device. " in report(run, [])


def outside_of_details(text: str) -> str:
    """What a reader sees before anything is unfolded."""
    depth, seen = 0, []
    for line in text.splitlines():
        depth += line.startswith("<details>")
        if not depth:
            seen.append(line)
        depth -= line == "</details>"
    assert depth == 0
    return "\n".join(seen)


def test_the_first_screen_is_a_verdict_the_picture_and_a_table_of_six_columns() -> None:
    title, verdict, picture, problem, few, *_ = report(sample.results(), ["ladder.svg"]).split("\n\n")
    assert title == "# 784-256-10, batch 128, on NVIDIA H200"
    assert verdict.count(". ") == 2
    assert picture.endswith("](figures/ladder.svg)")
    assert problem.startswith("784-256-10 on MNIST, batch 128, ")
    assert few.splitlines()[0].count("|") == 7


def test_a_rung_is_predicted_measured_and_judged_before_anything_unfolds() -> None:
    doc = StageDoc("w", "c", "e", predict="on H200: 784-256-10, batch 128: 30 to 35 us.")
    run = sample.replace_stage(sample.results(), "async", doc=doc)
    shown = section(outside_of_details(report(run, [])), "async")
    assert "| 30 to 35 us | 42.7 us, 2.00x (1.98-2.10) of `naive` | missed: 22% slower |" in shown
    assert "**Moved:** host waiting -19.9; host launching -17.5; " in shown
    assert "**Bound now:** Kernels take " in shown
    assert "| Check |" not in shown
    assert "0 of 1 prediction were hit" in report(run, [])


RECORDED = sorted(Path("results/reference").glob("*/*/results.json"))
MOST_WORDS = 4000


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_a_recorded_report_is_read_in_a_few_screens(path: Path) -> None:
    shown = outside_of_details((path.parent / "report.md").read_text(encoding="utf-8"))
    assert len(re.findall(r"\w\S*", shown)) <= MOST_WORDS
    assert shown.index("](figures/ladder.svg)") < shown.index("| Stage |") < shown.index("## Rungs")


@pytest.mark.parametrize("path", sorted(Path("results/reference").glob("*/studies/*/report.md")), ids=str)
def test_a_recorded_study_is_read_in_a_few_screens(path: Path) -> None:
    shown = outside_of_details(path.read_text(encoding="utf-8"))
    assert len(re.findall(r"\w\S*", shown)) <= MOST_WORDS


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


@pytest.mark.parametrize(
    ("device", "not_on_gpu", "line"),
    [
        ("gpu", "", "| Oracle trained on | the GPU |"),
        ("cpu", "no CUDA device", "| Oracle trained on | the CPU, not on a GPU: no CUDA device |"),
        ("cpu", "it failed there (a | b)", "| Oracle trained on | the CPU, not on a GPU: it failed there (a \\| b) |"),
    ],
)
def test_the_oracle_s_device_is_told(device: Literal["cpu", "gpu"], not_on_gpu: str, line: str) -> None:
    run = sample.results()
    assert "Oracle trained on" not in report(run, [])  # recorded before its device
    oracle = OracleRecord(0.9, [], None, device, not_on_gpu)
    assert line in report(msgspec.structs.replace(run, oracle=oracle), []).splitlines()


def test_the_parts_of_a_run_s_time_come_longest_first() -> None:
    took_s = {"checking": 0.4, "compiling": 20.0, "stages' processes": 61.0}
    text = report(msgspec.structs.replace(sample.results(), seconds=100.0, took_s=took_s), [])
    assert "; it took 100 s, " in text
    assert "compiled stages (stages' processes 61, compiling 20). This" in text
