from __future__ import annotations

import re

import msgspec
import pytest

from ladder.results import Results
from reports.markdown import report, stage_table
from tests.reports import sample

CELL_BORDER = re.compile(r"(?<!\\)\|")


def replaced_environment(environment: dict[str, object]) -> Results:
    return msgspec.structs.replace(sample.results(), environment=environment)


def section(text: str, name: str) -> str:
    return text.split(f"(`{name}`)")[1].split("\n### ")[0].split("\n## ")[0]


def test_bars_and_newlines_stay_inside_their_cell() -> None:
    run = sample.replace_stage(sample.results(), "naive", title="a | b", changed="x|y")
    run = sample.replace_stage(run, "cuda-graph", reason="one\ntwo | three")
    table = stage_table(run)
    assert "a \\| b" in table
    assert "one two \\| three" in table
    assert {len(CELL_BORDER.findall(line)) for line in table.splitlines()} == {11}


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
    for part in ("2.00x the speed of Hand-written kernels", "18.0 ms/epoch by the GPU's own events", "0.31 s"):
        assert part in text
    assert "| first update, weight[0] | 3.4e-07 | 3.0e-06 | passed |" in text


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
