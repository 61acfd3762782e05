from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from ladder.records.run import Results, StageDoc
from reports.facts.predictions import judge, outcome, predictions
from stages.registry import load_all
from tests.reports import sample

# In the sample 784-256-10 takes 85.5 us per step with naive, 42.7 with async and 36.8 with cublas.
HERE = "784-256-10, batch 128"


def run_with(text: str, name: str = "async") -> Results:
    return sample.replace_stage(sample.results(), name, doc=StageDoc("w", "c", "e", predict=text))


def verdict(text: str, name: str = "async") -> str | None:
    run = run_with(text, name)
    found = judge(next(stage for stage in run.stages if stage.name == name), run)
    return found.text if found else None


def test_every_prediction_of_ours_can_be_read_and_all_rungs_have_one() -> None:
    for name, entry in load_all().items():
        assert bool(entry.doc.predict) == bool(predictions(entry.doc.predict)), name
        assert entry.doc.predict or entry.stage.below is None, name
    doc = msgspec.json.decode(b'{"why": "w", "change": "c", "expect": "e"}', type=StageDoc)
    assert doc.predict == ""  # of an older run


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("35 to 45 us", "hit"),
        ("43.6 to 50 us", "hit"),  # 2 % away: two recordings may differ as much
        ("43.7 to 50 us", "missed: 2.2% faster than predicted"),
        ("30 to 35 us", "missed: 22.1% slower than predicted"),
        ("39 us", "hit"),  # a single number: within 10 %
        ("38 us", "missed: 12.5% slower than predicted"),
        ("at most 60 us", "hit"),
        ("at most 40 us", "missed: 6.8% slower than predicted"),
        ("40 us less than naive", "hit"),  # 42.7 less
        ("20 us less than naive", "missed: 42.7 us less than naive"),
        ("5 us more than naive", "missed: 42.7 us less than naive"),
        ("2 x of naive", "hit"),
        ("2.2 to 3 x of naive", "missed: 2.00x as fast as naive"),
        ("0.86 x of cublas", "hit: 0.86x as fast as cublas"),
        ("2.2 x of naive", "missed: 2.00x as fast as naive"),
        ("6 us more than cublas", "hit: 5.98 us more than cublas"),
    ],
)
def test_a_prediction_is_hit_or_missed(text: str, expected: str) -> None:
    assert verdict(f"on H200: {HERE}: {text}.") == expected
    assert verdict(f"{HERE}: {text}.") == expected
    run = run_with(f"on H100 80GB HBM3: {HERE}: {text}.")
    stage = next(stage for stage in run.stages if stage.name == "async")
    told = f"{text.replace(' x of ', 'x as fast as ')} on H100 80GB HBM3"
    beside = expected.removeprefix("hit") if "cublas" in text else ""  # the report shows the ratio to naive
    assert outcome(stage, run) == (told, f"not judged on another GPU{beside}")
    like = judge(stage, run, on_like_chip=True)
    assert like is not None
    assert (like.predicted, like.text) == (told, expected)


@pytest.mark.parametrize(
    ("text", "us", "expected"),
    [
        ("2.5 x of naive", [42.7], "undecided: 2.00x as fast as naive"),  # a process each: within noise, up to 4.5x
        ("5 x of naive", [42.7], "missed: 2.00x as fast as naive"),
        ("2.5 x of naive", [42.7] * 4, "missed: 2.00x as fast as naive"),  # beyond noise
        ("60 us less than naive", [42.7], "undecided: 42.7 us less than naive"),
        ("30 to 35 us", [35.5, 42.7, 44.0], "undecided: 22.1% slower than predicted"),
        ("30 to 35 us", [36.0, 42.7, 44.0], "missed: 22.1% slower than predicted"),
    ],
)
def test_a_miss_is_undecided_where_noise_may_be_why(text: str, us: list[float], expected: str) -> None:
    run = sample.with_processes(run_with(f"{HERE}: {text}."), "async", us)
    judgement = judge(next(stage for stage in run.stages if stage.name == "async"), run)
    assert judgement is not None
    assert judgement.text == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"on A100: {HERE}: 43 us.",
        "on H200: 784-10, batch 128: 43 us.",
        "on H200: 784-256-10, batch 64: 43 us.",
        f"on H200: {HERE}: 2 x of cuda-graph.",  # which crashed
        f"on H200: {HERE}: 2 x of nothing.",
        f"{HERE}: about half of it.",
    ],
)
def test_nothing_is_judged_without_the_same_problem_gpu_and_base(text: str) -> None:
    assert verdict(text) is None


@pytest.mark.parametrize(("gpu", "judged_there"), [("H200", True), ("H100 80GB HBM3", False)])
def test_memory_tells_one_chip_from_its_like_where_weights_exceed_the_cache(gpu: str, judged_there: bool) -> None:
    run = run_with(f"on {gpu}: 784-4096x3-10, batch 128: 43 us.")
    wide = replace(run, problem=replace(run.problem, hidden=[4096] * 3))
    (stage,) = (stage for stage in wide.stages if stage.name == "async")
    assert (judge(stage, wide, on_like_chip=True) is not None) == judged_there


def test_networks_may_share_a_prediction_and_be_shortened() -> None:
    found = predictions("on H200: 784-10 and 784-128x3-10, batch 32: 25 us; 784-64x2-10, batch 8: 1 to 2 us.")
    assert [(one.network, one.batch, one.low, one.high, one.gpu) for one in found] == [
        ("784-10", 32, 25.0, 25.0, "H200"),
        ("784-128-128-128-10", 32, 25.0, 25.0, "H200"),
        ("784-64-64-10", 8, 1.0, 2.0, "H200"),
    ]


def test_another_form_is_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match="not a prediction: a third less; write NETWORK, batch B"):
        predictions("on H200: a third less.")


@pytest.mark.parametrize(
    ("where", "judged_here"),
    [("CPU", True), ("CPU with 2 cores", True), ("CPU with 12 cores", False), ("H200", True), ("A100", False)],
)
def test_a_rung_on_the_cpu_is_judged_there(where: str, judged_here: bool) -> None:
    run = run_with(f"on {where}: {HERE}: 2 x of naive.")
    run = sample.replace_stage(run, "async", device="cpu")
    run = replace(run, environment=run.environment | {"cpu": {"cores_usable": 2}})
    (stage,) = (one for one in run.stages if one.name == "async")
    assert outcome(stage, run) == (
        ("2x as fast as naive", "hit")
        if judged_here
        else (
            f"2x as fast as naive on {where}",
            f"not judged on another {where.partition(' ')[0].replace('A100', 'GPU')}",
        )
    )


def test_a_prediction_for_several_networks_is_judged_in_runs_of_as_many() -> None:
    (one,) = predictions("7 of 784-128x3-10, batch 32: 6.5 us.")
    assert (one.count, one.network, one.batch, one.low) == (7, "784-128-128-128-10", 32, 6.5)
    for text, is_judged in ((f"{HERE}: 10 us", (True, False)), (f"7 of {HERE}: 10 us", (False, True))):
        run = run_with(text)
        several = replace(run, problem=replace(run.problem, networks=7))
        stage = next(stage for stage in run.stages if stage.name == "async")
        assert (judge(stage, run) is not None, judge(stage, several) is not None) == is_judged
