from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from ladder.records.run import Results, load, save
from reports.errors import ReportError
from reports.terminal.explain import print_explain
from tests.reports import sample
from tests.reports.terminal.screens import screen, too_wide

RECORDED = Path(__file__).parents[3] / "results" / "reference" / "h200"


def text(run: Results, name: str, width: int = 100) -> str:
    file = io.StringIO()
    print_explain(run, name, console=Console(file=file, width=width, highlight=False))
    return file.getvalue()


def test_a_stage_is_explained_from_its_docstring_to_the_next_try() -> None:
    run = sample.with_processes(sample.results(), "cublas", [36.0, 37.0])
    told = text(sample.with_processes(run, "bf16-gemm", [45.0, 46.0]), "bf16-gemm")
    places = [
        told.index(part)
        for part in (
            "bf16-gemm (Tensor cores): 45.9 us/step, 0.80x as fast as cublas",
            "Why: Why bf16-gemm is there.",
            "Found by the author, in recorded runs: It was slower.",
            "vs cublas",
            "host launching          ████████ ",
            "+11.3",
            "Profiled by nsys, under which a step takes 10% longer; fitted to the time without the tool.",
            "Before fitting, the profiles saw",
            "sm80_xmma_gemm…",
            "Bound: Kernels take 24.0 of 44.6 us",
        )
    ]
    assert places == sorted(places)


def test_bars_are_as_long_as_their_parts() -> None:
    bars = {
        line.split("  ")[0].strip(): line.count("█")
        for line in text(sample.results(), "naive").splitlines()
        if "█" in line
    }
    assert bars == {"kernels": 16, "between queued kernels": 3, "host launching": 8, "host waiting": 8}


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert too_wide(text(sample.results(), "torch-eager", width), width) == []
    for stage in load(RECORDED / "logistic").stages:
        if stage.profile is not None:
            assert too_wide(text(load(RECORDED / "logistic"), stage.name, width), width) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cublass", r"^cublass: no such stage in this run; try cublas$"),
        ("qqq", r"^qqq: no such stage in this run; try numpy, \S+, \S+ and \d+ more$"),
        ("torch-amp", r"^torch-amp: no profile in this run; leave the run out .*--stages torch-amp --profile cupti$"),
        (
            "cuda-graph",
            r"^cuda-graph: crashed in this run, .* \(the worker .* run 3\); repair it, then .*--stages cuda-graph$",
        ),
        (
            "persistent",
            r"^persistent: skipped in this run, .* \(needs .*\); leave the run out to take one that profiled it$",
        ),
    ],
)
def test_a_stage_without_an_explanation_is_one_line(name: str, message: str) -> None:
    with pytest.raises(ReportError, match=message):
        text(sample.results(), name)


def test_a_stage_of_the_users_is_measured_again_from_its_file() -> None:
    run = msgspec.structs.replace(
        sample.results(), command="python run_ladder.py --stage-file 'my stage.py' --epochs 3"
    )
    with pytest.raises(ReportError, match=r"run_ladder.py --stages cuda-graph --stage-file 'my stage.py'$"):
        text(run, "cuda-graph")
    with pytest.raises(ReportError, match=r"--stages torch-amp --stage-file 'my stage.py' --profile cupti$"):
        text(run, "torch-amp")


def test_a_stage_whose_profiler_broke_says_why() -> None:
    run = sample.replace_stage(sample.results(), "torch-amp", unprofiled={"cupti": "CUPTI is\nnot installed"})
    with pytest.raises(ReportError, match=r"^torch-amp: no profile in this run \(CUPTI is not installed\); leave"):
        text(run, "torch-amp")


def test_a_stage_measured_side_by_side_has_no_time_to_explain() -> None:
    run = sample.replace_stage(sample.results(), "naive", timing=None)
    with pytest.raises(ReportError, match=r"^naive: passed in this run without a time; measure it without --at-once$"):
        text(run, "naive")


def test_a_stage_on_the_cpu_is_told_its_arithmetic_rate() -> None:
    told = " ".join(text(sample.results(), "numpy").split()) + "\n"
    assert "Why: Why numpy is there." in told
    assert "Bound: 104.7 million operations of matrix products in " in told
    assert "GPU" not in told.split("Bound: ")[1]
    assert told.endswith("so what bounds the step is not known.\n")


def test_a_disturbed_time_and_the_ratio_of_an_unprofiled_stage_are_told() -> None:
    run = sample.results()
    assert "disturbed" not in text(run, "numpy")
    (process, *_) = next(stage for stage in run.stages if stage.name == "numpy").processes
    disturbed = [msgspec.structs.replace(process, disturbed=["other work"])]
    run = sample.replace_stage(run, "numpy", below="naive", processes=disturbed)
    told = text(run, "numpy")
    assert "as fast as naive" in told
    assert "Other work disturbed the time of numpy." in told


def test_a_recorded_run_is_named_as_one_and_any_run_is_named() -> None:
    def told(run: Path) -> str:
        return screen(
            lambda console: print_explain(load(run), "cuda-graph", run, console, recorded=RECORDED.parent), 80
        )

    recorded = told(RECORDED / "logistic")
    assert recorded.startswith("Recorded on another machine: NVIDIA H200.\n")
    assert "results/reference/h200/logistic: 784-10 (softmax regression) on MNIST" in recorded
    assert "cuda-graph (one launch an epoch): 17.6 us/step, 2.96x as fast as cudnn-softmax" in recorded
    assert "GraphEpoch" not in recorded.split("Why:")[0]


def test_a_run_of_ones_own_is_not_called_recorded(tmp_path: Path) -> None:
    save(sample.results(), tmp_path / "results.json")
    text = screen(lambda console: print_explain(load(tmp_path), "naive", tmp_path, console, recorded=RECORDED), 200)
    assert "Recorded" not in text
    assert f"{tmp_path.name}: 784-256-10 (one hidden layer of 256)" in text.splitlines()[0]
