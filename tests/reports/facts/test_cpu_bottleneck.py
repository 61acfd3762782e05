from __future__ import annotations

import msgspec
import pytest

from reports.facts.cpu_bottleneck import next_on_cpu
from tests.reports import sample


@pytest.mark.parametrize(
    ("detail", "step_us", "expected"),
    [
        (
            "CPU, 4 threads",
            837.0,
            "104.7 million operations of matrix products in 837 us: 125 GFLOP/s on 4 threads, 49%",
        ),
        ("2 BLAS threads", 8370.0, "13 GFLOP/s on 2 threads, 10% of the rate of as many cores"),
        ("2 BLAS threads", 8370.0, "Join the operations between the products in compiled loops."),
        ("CPU, 1 thread", 2000.0, "52 GFLOP/s on 1 thread, 82% of the rate"),
        ("CPU, 1 thread", 2000.0, "Arithmetic bounds the step."),
        ("CPU", 2000.0, "52 GFLOP/s. Far below the CPU's own rate, join"),
    ],
)
def test_a_stage_on_the_cpu_is_judged_by_its_arithmetic(detail: str, step_us: float, expected: str) -> None:
    run = sample.results()
    numpy = next(stage for stage in run.stages if stage.name == "numpy")
    assert numpy.timing is not None
    timing = msgspec.structs.replace(numpy.timing, step_us=step_us)
    text = str(next_on_cpu(run.problem, msgspec.structs.replace(numpy, detail=detail, timing=timing)))
    assert expected in text
    assert "GPU" not in text
