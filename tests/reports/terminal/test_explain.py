from __future__ import annotations

import io

import pytest
from rich.console import Console

from ladder.records.run import Results
from reports.terminal.explain import ExplainError, explain, print_explain
from tests.reports import sample


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
            "bf16-gemm (Tensor cores), from cublas by gemm: Bf16Gemm: 45.9 us/step",
            "Why: Why bf16-gemm is there.",
            "Found by the author, not in this run: It was slower.",
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
        line.split("  ")[1].strip(): line.count("█")
        for line in text(sample.results(), "naive").splitlines()
        if "█" in line
    }
    assert bars == {"kernels": 16, "between queued kernels": 3, "host launching": 8, "host waiting": 8}


def test_the_first_rung_has_nothing_below_it() -> None:
    told = text(sample.results(), "naive")
    assert "vs " not in told
    assert "Before fitting" not in told
    assert "nsys and CUPTI agree" in told


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, text(sample.results(), "torch-eager", width).splitlines())) <= width


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cublass", r"^cublass: no such stage in this run; try cublas$"),
        ("qqq", r"^qqq: no such stage in this run; try numpy, .* and bf16-gemm$"),
        (
            "torch-amp",
            r"^torch-amp: no profile in this run; leave the run out .*--stages torch-amp --profile cupti$",
        ),
        (
            "cuda-graph",
            r"^cuda-graph: crashed in this run, .* \(the worker ended .* run 3\); repair it and run it again$",
        ),
        (
            "persistent",
            r"^persistent: skipped in this run, .* \(needs .*\); leave the run out to take one that profiled it$",
        ),
    ],
)
def test_a_stage_without_an_explanation_is_one_line(name: str, message: str) -> None:
    with pytest.raises(ExplainError, match=message):
        explain(sample.results(), name)


def test_a_stage_whose_profiler_broke_says_why() -> None:
    run = sample.replace_stage(sample.results(), "torch-amp", unprofiled={"cupti": "CUPTI is\nnot installed"})
    with pytest.raises(ExplainError, match=r"^torch-amp: no profile in this run \(CUPTI is not installed\); leave"):
        explain(run, "torch-amp")


def test_a_stage_measured_side_by_side_has_no_time_to_explain() -> None:
    run = sample.replace_stage(sample.results(), "naive", timing=None)
    with pytest.raises(ExplainError, match=r"^naive: passed in this run without a time; measure it without --at-once$"):
        explain(run, "naive")


def test_a_stage_on_the_cpu_is_told_its_arithmetic_rate() -> None:
    told = text(sample.results(), "numpy")
    assert "Why: Why numpy is there." in told
    assert "Bound: 104.7 million operations of matrix products in " in told
    assert "GPU" not in told.split("Bound: ")[1]
    assert "Next: Join the operations" in told or "Next: Try a BLAS" in told
