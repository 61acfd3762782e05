"""What bounds a stage, on a GPU and on a CPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from common.vocabulary import ABLATIONS
from ladder.records.run import MOST_LETTERS, all_results, load
from reports.facts.bottleneck import next_step
from reports.facts.cpu_bottleneck import next_on_cpu
from reports.facts.launch_regimes import regime
from reports.facts.time_breakdown import all_profiled
from reports.figures.roofline import drawn
from stages.registry import load_all
from tests.reports import sample
from tests.reports.advice import RECORDED

# Which part of a step is named, and what its advice must not say; tests/golden/advice.txt has the words.


def test_no_recorded_stage_is_advised_what_its_design_rules_out() -> None:
    seen = 0
    for path in all_results(RECORDED.parent, "**"):
        run = load(path)
        for one in all_profiled(run):
            told, where, profile = next_step(run, one), f"{path.parent.name}, {one.stage.name}", one.profile
            text, seen = told.next, seen + 1
            assert text or "mostly kernels" in told.bound or "Its design" not in told.bound, where
            assert "Exchange less" not in text or "mostly kernels" not in told.bound, where
            share = re.search(r"Its design takes at least .*?\((\d+)%\)", told.bound)
            assert ("not attributed" in told.bound) == (share is not None and int(share[1]) < 50), where
            slowest = max(profile.kernels, key=lambda kernel: kernel.us_per_step)
            if profile.launches_per_step < 1 or profile.graph_launches_per_epoch:
                assert "Capture" not in text, where
            if profile.kernels_per_step < 1:
                assert not re.search("neighbour|Split its work|registers or", text), where
            if slowest.cluster >= 16:
                assert "Split its work" not in text, where
            if re.match("cutlass|sm80|nvjet|triton|gemm_fusion", slowest.name):
                assert not re.search("Split its work|Use fewer registers", text), where
            if any(copy.direction == "host to device" and copy.per_epoch > 20 for copy in profile.copies):
                assert "Capture" not in text, where
            if profile.allocations_per_epoch.get("cudaMalloc", 0) > 20:
                assert "Capture" not in text, where
    assert seen > 200


def test_a_persistent_step_is_told_beside_the_floor_that_the_roofline_shows() -> None:
    run = load(RECORDED / "logistic")
    (one,) = (one for one in all_profiled(run) if one.stage.name == "persistent-cluster")
    assert one.design
    told, least, step = next_step(run, one), f"{one.design.total_us:.3f}", f"{one.step_us:.2f}"
    share = f"({one.design.total_us / one.step_us:.0%})"
    assert f"Its design takes at least {least} us per step {share}, mostly exchanges between blocks; " in told.bound
    assert f"its design's floor is {least} of its {step} us {share}, mostly exchanges" in drawn(run).svg()
    assert told.next == "Shorten both its products and its exchanges, which overlap."  # as its author found
    assert "peak" not in told.bound  # of float32: it multiplies in float16


RUNS = sorted(Path("results/reference").glob("*/*/results.json.gz"))


def test_every_rung_of_the_ladder_has_short_words() -> None:
    stages = [entry.stage for entry in load_all().values()]
    assert [one.name for one in stages if not one.words and one.group not in ("reference", *ABLATIONS)] == []
    assert [one.name for one in stages if len(one.words) > MOST_LETTERS] == []


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.parent.name)
def test_declared_regimes_are_those_of_recorded_profiles(path: Path) -> None:
    run, known = load(path), {name: entry.stage for name, entry in load_all().items()}
    profiled = [stage for stage in run.stages if stage.profile and stage.name in known and stage.group != "reference"]
    for stage in profiled:
        assert known[stage.name].regime == regime(replace(stage, regime=None)), stage.name


def test_a_run_from_before_recorded_words_gets_those_of_its_time() -> None:
    older = next(path for path in RUNS if b'"words"' not in path.read_bytes())
    assert any(stage.words for stage in load(older).stages)


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
