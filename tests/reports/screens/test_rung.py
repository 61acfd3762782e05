"""A stage in full, in short and on its page; tests/golden has the exact text of two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import load, save
from reports.facts.run_table import networks_in_words
from reports.facts.stage_facts import StageFacts
from reports.report_error import ReportError
from reports.screens.rung import details, measured_facts, moved
from tests.reports import sample
from tests.reports.reporting import explanation
from tests.reports.terminal.screens import too_wide

RECORDED = Path(__file__).parents[3] / "results" / "reference" / "h200"


@pytest.mark.parametrize("width", [40, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert too_wide(explanation(sample.results(), "torch-eager", width), width) == []
    run = load(RECORDED / "logistic")
    for stage in run.stages:
        if stage.profile is not None:
            assert too_wide(explanation(run, stage.name, width), width) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cublass", r"^cublass: no such stage in this run; try cublas$"),
        ("qqq", r"^qqq: no such stage in this run; try numpy, \S+, \S+ and \d+ more$"),
        (
            "cuda-graph",
            r"^cuda-graph: crashed in this run, .* \(the worker .* run 3\); repair it, then .* --hidden 256 .*$",
        ),
        (
            "persistent",
            r"^persistent: skipped in this run, .* \(needs .*\); leave the run out to take one that timed it$",
        ),
    ],
)
def test_a_stage_without_an_explanation_is_one_line(name: str, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        explanation(sample.results(), name)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("cuda-graph", {}, r"--stages cuda-graph --hidden 256 --batch-size 128 --stage-file 'my stage.py'$"),
        ("naive", {"timing": None}, r"^naive: passed in this run without a time; measure it without --at-once$"),
    ],
)
def test_a_user_s_stage_and_an_untimed_stage_are_told(name: str, changes: dict[str, object], message: str) -> None:
    run = sample.replace_stage(sample.results(), name, **changes)
    command = "python run_ladder.py --stage-file 'my stage.py' --epochs 3"
    with pytest.raises(ReportError, match=message):
        explanation(replace(run, command=command), name)


def test_a_tool_that_turns_a_difference_round_is_told() -> None:
    run = sample.results()
    timing = next(stage.timing for stage in run.stages if stage.name == "cublas")
    assert timing is not None
    slower = sample.replace_stage(run, "cublas", timing=replace(timing, step_us=90.0))
    slower = sample.with_processes(slower, "cublas", [90.0] * 2)
    assert "Unfitted, the profiles differ from async's by 216% of the timed difference" in explanation(
        run, "cublas", 120
    )
    assert "the difference from async has the other sign: do not trust the split." in explanation(slower, "cublas", 120)


def test_a_stage_without_a_profile_is_told_what_is_measured_and_how_to_get_one() -> None:
    why = {"cupti": "CUPTI is\nnot installed"}
    run = sample.replace_stage(sample.results(), "torch-amp", below="naive", unprofiled=why)
    run = replace(run, command="python run_ladder.py --stage-file 'my stage.py'", problem=replace(run.problem, gpus=2))
    told = " ".join(explanation(run, "torch-amp").split())
    assert "as fast as naive" in told.split("measured")[1]
    assert "test accuracy" in told
    assert "No profile in this run: CUPTI is not installed; record one" in told
    assert told.endswith("--hidden 256 --batch-size 128 --stage-file 'my stage.py' --gpus 2 --profile cupti")


def test_a_stage_on_the_cpu_is_told_its_arithmetic_rate() -> None:
    told = " ".join(explanation(sample.results(), "numpy").split()) + "\n"
    assert "Why: Why numpy is there." in told
    assert "Bound: 104.7 million operations of matrix products in " in told
    assert "GPU" not in told.split("Bound: ")[1]
    assert told.endswith("so what bounds the step is not known.\n")


def test_a_disturbed_time_and_the_ratio_of_an_unprofiled_stage_are_told() -> None:
    run = sample.results()
    assert "disturbed" not in explanation(run, "numpy")
    (process, *_) = next(stage for stage in run.stages if stage.name == "numpy").processes
    disturbed = [replace(process, disturbed=["other work"])]
    run = sample.replace_stage(run, "numpy", below="naive", processes=disturbed)
    told = explanation(run, "numpy")
    assert "as fast as naive" in told
    assert "Other work or a falling clock disturbed the time of numpy." in told


def test_the_time_of_several_networks_is_told_as_in_tables() -> None:
    run = sample.results()
    several = replace(run, problem=replace(run.problem, networks=4))
    heading, told, *_ = explanation(several, "numpy", 200).splitlines()
    assert heading == "numpy (NumPy): 1,295 us/step of 4 networks, 324 us a network-step"
    assert told == networks_in_words(several)
    assert "network" not in explanation(run, "numpy").partition("Why:")[0]


def test_a_recorded_run_is_named_as_one_and_any_run_is_named(tmp_path: Path) -> None:
    def told(run: Path, name: str) -> str:
        return explanation(load(run), name, 200, run, RECORDED.parent)

    recorded = told(RECORDED / "logistic", "cuda-graph")
    assert "\nRecorded on another machine: NVIDIA H200.\n" in recorded
    assert "results/reference/h200/logistic: 784-10 (softmax regression) on MNIST" in recorded
    assert re.search(r"cuda-graph \(one launch an epoch\): 1\d\.\d us/step, \d\.\d+x as fast as cudnn-soft", recorded)
    assert "GraphEpoch" not in recorded.split("Why:")[0]
    assert "Predicted: 15 to 20 us; hit\n" in recorded
    for name, launch in (("grid-messages", "MessagesEpoch"), ("large-batch", "HalvesEpoch")):
        alone = told(RECORDED.parent / "h100-80gb-hbm3/hidden-256", name)
        assert "The parts of its step; the launch does the rest itself\n" in alone
        assert launch in alone
        assert "CublasGemm" not in alone
    save(sample.results(), tmp_path / "results.json")
    own = told(tmp_path, "naive")
    assert "Recorded" not in own
    assert f"{tmp_path.name}: 784-256-10 (one hidden layer of 256)" in own.splitlines()[1]


def rung(name: str) -> StageFacts:
    run = sample.results()
    return StageFacts(next(stage for stage in run.stages if stage.name == name), run)


def test_a_stage_without_a_profile_has_neither_kernels_nor_advice() -> None:
    for name in ("torch-amp", "cuda-graph"):
        assert not any("kernels" in folded.title for folded in details(rung(name)))
        assert (rung(name).advice, moved(rung(name))) == (None, "")


def test_no_reference_leads_over_itself() -> None:
    leads = [
        words for words, _ in measured_facts(rung("jax-scan")) if words.startswith("as fast as the fastest reference")
    ]
    assert leads == []
    assert any(words.endswith("fastest reference, jax-scan") for words, _ in measured_facts(rung("cublas")))
