from __future__ import annotations

import pytest
from msgspec.structs import replace

from reports.facts.cpu_bottleneck import next_on_cpu
from tests.reports import sample


def advice(detail: str, pace_s: float | None, pace_cores: int, step_us: float = 2000.0) -> str:
    """What is said of a stage with 104.7 million operations a step."""
    run = sample.results()
    numpy = next(stage for stage in run.stages if stage.name == "numpy")
    assert numpy.timing is not None
    processes = [replace(one, pace_s=pace_s, pace_cores=pace_cores) for one in numpy.processes]
    timing = replace(numpy.timing, step_us=step_us)
    stage = replace(numpy, detail=detail, timing=timing, processes=processes)
    return str(next_on_cpu(run, stage))


@pytest.mark.parametrize(
    ("pace_s", "cores", "expected"),
    [
        (None, 0, ": 52 GFLOP/s on 1 thread. It has no profile"),
        (0.33554432e-3, 0, ": 52 GFLOP/s on 1 thread. It has no profile"),  # an older record, of all cores
        (0.33554432e-3, 2, ": 52 GFLOP/s on 1 thread. It has no profile"),  # of other cores than the stage's
        (0.33554432e-3, 1, "on 1 thread, 52% of the 100 GFLOP/s that NumPy's float32 product reached beside it on 1"),
        (3.3554432e-3, 1, "on 1 thread, above the 10 GFLOP/s that NumPy's float32 product reached beside it on 1 core"),
    ],
)
def test_a_rate_is_a_share_of_a_measured_one_only(pace_s: float | None, cores: int, expected: str) -> None:
    text = advice("CPU, 1 thread", pace_s, cores)
    assert "104.7 million operations of matrix products in 2,000 us" in text
    assert expected in text
