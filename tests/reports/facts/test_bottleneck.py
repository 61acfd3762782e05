"""Which part of a step is named, and what its advice must not say; tests/golden/advice.txt has the words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from common.vocabulary import ABLATIONS
from ladder.records.limits_record import Limit, LimitsRecord
from ladder.records.profile import Kind, Split
from ladder.records.run import MOST_LETTERS, all_results, load
from reports.facts.bottleneck import next_step
from reports.facts.launch_regimes import change_in_words, regime
from reports.facts.time_breakdown import Profiled, all_profiled
from stages.registry import load_all
from tests.reports import sample
from tests.reports.advice import BUSY, RECORDED, STAGE, advice, of_kernel
from tests.reports.profiles import kernel, profile


def test_no_recorded_stage_is_advised_what_its_design_rules_out() -> None:
    seen = 0
    for path in all_results(RECORDED.parent, "**"):
        run = load(path)
        for one in all_profiled(run):
            text, where, profile = next_step(run, one).next, f"{path.parent.name}, {one.stage.name}", one.profile
            seen += 1
            assert text, where
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


def test_a_kernel_of_few_blocks_leaves_multiprocessors_idle() -> None:
    text = of_kernel(kernel("slow", "gemm", 40.0, blocks=8))
    assert re.match(r"Kernels take 60.0 of 70.0 us \(85.7%\) at \S+ TFLOP/s. The slowest is slow with 40", text)
    assert "its 8 blocks leave 124 of 132 multiprocessors idle. Split its work over more blocks." in text
    assert "its 1 block leaves 131 of 132" in of_kernel(kernel("slow", "gemm", 40.0, blocks=1))
    unknown = replace(sample.results(), limits=None)
    seen = profile(BUSY, [kernel("slow", "gemm", 40.0, blocks=8)])
    assert "its 8 blocks leave most multiprocessors idle" in next_step(unknown, Profiled(STAGE, seen, 77.0)).bound


def test_the_bound_tells_the_rate_and_its_share_of_the_precisions_most() -> None:
    run = sample.results()
    rate = run.problem.product_operations / BUSY.kernels_us / 1e6
    most = replace(run, limits=_limits(2 * rate))
    one = Profiled(STAGE, profile(BUSY, [kernel("slow", "gemm", 40.0)]), 70.0)
    assert f" at {rate:.3g} TFLOP/s, 50% of float32's most here. " in next_step(most, one).bound
    # Numbers split for the tensor cores are multiplied faster than float32's own.
    split = next_step(replace(run, limits=_limits(rate / 2)), one).bound
    assert f" at {rate:.3g} TFLOP/s. " in split


def _limits(most: float) -> LimitsRecord:
    limits = sample.results().limits
    assert limits is not None
    others = [limit for limit in limits.limits if limit.name != "gemm_float32"]
    return replace(limits, limits=[*others, Limit("gemm_float32", "float32 products", "TFLOP/s", most, most, most)])


def test_a_persistent_step_is_told_as_a_multiple_of_one_exchange() -> None:
    run = load(RECORDED / "logistic")
    texts = {one.stage.name: next_step(run, one).bound for one in all_profiled(run)}
    assert re.search(
        r"a step takes 4\.\d times as long as one hop between its blocks \(0\.25\d us\)", texts["persistent-cluster"]
    )


def test_a_kernel_that_may_only_wait_for_others_is_not_blamed_without_saying_so() -> None:
    seen = profile(BUSY, [kernel("quick", "layer", 30.0), kernel("slow", "gemm", 40.0, blocks=8)])
    text = advice(replace(seen, overlap_us=10.0))
    assert "with 40.0 us per step (kernels overlap here, so it may only wait for another one): " in text
    assert "none of the 2 can be blamed alone" in advice(replace(seen, overlap_us=40.0))


@pytest.mark.parametrize("split", [BUSY, Split(1.0, 20.0, 2.0, 2.0, 1.0)])
def test_a_profile_that_names_nothing_says_so(split: Split) -> None:
    assert "does not name them" in advice(profile(split, []))


@pytest.mark.parametrize(
    ("step_us", "expected"), [(3.0, "Matrix products take 2.09 us of them at 50 TFLOP/s"), (1.0, "")]
)
def test_a_library_at_the_rate_of_the_gpu_is_bound_by_arithmetic(step_us: float, expected: str) -> None:
    run = sample.results()
    assert run.limits is not None
    rate = Limit("gemm_float32", "matrix product, float32", "TFLOP/s", 50.0, 50.0, 50.0)
    run = replace(run, limits=replace(run.limits, limits=[rate]))
    cases: list[tuple[str, Kind, bool]] = [
        ("cutlass_80", "gemm", True),
        ("cutlass_80", "fused", False),
        ("mine", "gemm", False),
    ]
    for name, kind, found in cases:
        seen = profile(Split(step_us, 0.0, 0.0, 0.0, 0.0), [kernel(name, kind, step_us, blocks=256)])
        bound = next_step(run, Profiled(STAGE, seen, step_us)).bound
        assert not found or expected in bound
        assert ("Matrix products" in bound) == (found and bool(expected))


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


def test_an_unknown_rung_shows_its_title() -> None:
    run = sample.unprofiled_results()
    stage = next(one for one in run.stages if one.name == "bf16-gemm")
    assert change_in_words(stage, run.problem) == "Tensor cores"
    assert regime(stage) == "unknown"
