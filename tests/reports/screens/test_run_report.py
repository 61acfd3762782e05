from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.machine.limits import PRIMITIVES
from ladder.records.limits_record import SHARED, Chip, Limit, LimitsRecord
from reports.markdown.method_limits import EARLIER_US, limits_block, limits_table
from tests.reports import sample
from tests.reports.reporting import report


def section(text: str, name: str) -> str:
    return text.split(f"### `{name}`: ")[1].split("\n### ")[0].split("\n## ")[0]


def test_text_like_html_is_shown() -> None:
    run = sample.replace_stage(sample.results(), "cuda-graph", reason="<unknown error> in `vector<float>`")
    assert "&lt;unknown error> in `vector<float>`" in report(run)


def test_a_run_without_a_time_has_no_figures() -> None:
    text = report(sample.nothing_passed())
    assert ".svg" not in text
    assert "there are no figures" in text


def test_a_failed_stage_without_a_docstring_is_just_its_reason() -> None:
    run = sample.replace_stage(sample.results(), "cuda-graph", doc=None)
    assert section(report(run), "cuda-graph").strip() == (
        "Cuda graph\n\nFrom `sparse-metrics`: one launch an epoch.\n\n"
        "**Crashed:** the worker ended with signal 9 (SIGKILL) in run 3"
    )


def test_a_time_that_was_disturbed_is_marked() -> None:
    run = sample.results()
    assert "†" not in report(run)
    calm = next(stage for stage in run.stages if stage.name == "async").processes
    busy = [replace(one, disturbed=["busy"]) for one in calm]
    median = statistics.median(calm[0].runs_s)
    still, moved = (replace(busy[1], runs_s=[median * factor]) for factor in (1.01, 1.03))
    for processes, mark in ((busy, "‡"), ([calm[0], moved], "†"), ([calm[0], still], "")):
        text = report(sample.replace_stage(run, "async", processes=processes))
        assert f"| `async` | `naive` | 42.7{mark} |" in text
        assert ("†: other programs or a falling clock moved the time of a process by more than 2%;" in text) is bool(
            mark
        )


def test_many_skipped_stages_are_a_number_and_a_reason() -> None:
    run = sample.results()
    for stage in run.stages[:7]:
        run = sample.replace_stage(run, stage.name, status="skipped", reason="no CUDA device.", timing=None)
    assert "Skipped: 8 stages, 7 of them for one reason: no CUDA device. The page" in report(run)


MOST_WORDS = 4400  # of 44 stages


@pytest.mark.parametrize("path", sorted(Path("results/reference").glob("**/report.md")), ids=str)
def test_a_recorded_report_is_read_in_a_few_screens(path: Path) -> None:
    shown = path.read_text(encoding="utf-8")
    if "studies" in path.parts:
        shown = re.sub(r"<details>.*?</details>", "", shown, flags=re.S)
    elif "torch" in path.parts:
        shown = re.sub(r"<details>.*?</details>", "", shown, flags=re.S)
        assert shown.index("](figures/ladder.svg)") < shown.index("## Rungs") < shown.index("## What to write")
    else:
        assert shown.index("](figures/ladder.svg)") < shown.index("| Stage |") < shown.index("## Rungs")
    assert len(re.findall(r"\w\S*", shown)) <= MOST_WORDS


def test_missing_profiles_have_notices() -> None:
    run = sample.unprofiled_results()
    run = replace(run, settings=replace(run.settings, profile=["cupti"]))
    for name in ("naive", "async"):
        run = sample.replace_stage(run, name, unprofiled={"cupti": "cupti-python is not installed"})
    text = report(run)
    assert "- naive and async not profiled with cupti: cupti-python is not installed" in text
    assert "- The GPU's limits were not measured" in text
    assert run.limits is None
    shared = replace(sample.limits(), skipped={"graph node, 1 block": SHARED})
    text = report(replace(run, limits=shared))
    assert "- Some of the GPU's limits were not measured, so there are no floors or cheat limits: another" in text


def record(**medians: float) -> LimitsRecord:
    limits = [Limit(name, f"the {name}", "us", us, us, us) for name, us in medians.items()]
    return LimitsRecord(Chip(132, 60 << 20, 64 << 20), limits, {}, 4.5)


def test_every_earlier_time_is_of_a_primitive_in_us() -> None:
    assert set(EARLIER_US) <= {primitive.name for primitive in PRIMITIVES if primitive.unit == "us"}


def test_deviations_are_shown_and_said() -> None:
    told = limits_table([("a", record(launch=3.6, grid_barrier=0.69)), ("b", record(launch=3.96))])
    assert "| Primitive, us | Earlier | a | b | Furthest from earlier | Runs differ by |" in told
    assert "| the launch | 3.60 | 3.60 | 3.96 | +10% | 10% |" in told
    assert "| the grid_barrier | 0.920 | 0.690 | - | -25% | - |" in told
    assert "More than 15% from the earlier value in at least one run: the grid_barrier (-25%)." in told
    assert "More than 5% apart between runs: the launch (10%)." in told
    told = limits_table([("a", record(launch=3.6)), ("b", record(launch=3.7))])
    assert told.endswith(" in at least one run: none. More than 5% apart between runs: none.")


def test_the_table_is_of_the_h200_alone() -> None:
    runs = [
        (f"results/reference/{gpu}/logistic", replace(sample.results(), limits=record(launch=us)))
        for gpu, us in (("h200", 3.5), ("rtx-3060", 9.0))
    ]
    assert limits_block(runs).startswith("| Primitive, us | Earlier | logistic |")
    assert "9.00" not in limits_block(runs)
    assert limits_block(runs[1:]) == "No run is recorded."
