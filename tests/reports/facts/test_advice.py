"""The gains that advice rests on; tests/golden/outlooks.txt has what is said of them."""

from __future__ import annotations

import math
import re
from inspect import signature

import pytest
from msgspec.structs import replace

from ladder.options.commands import OPTIMIZERS
from ladder.records.expectation import CAPTURED, Outlook
from reports.facts.advice import CAPTURABLE, FUSED, advice_facts, gain, reasons, verdict, whole
from reports.screens.advise import advise_screen
from reports.screens.blocks import Table
from tests.golden.outlooks import GRID, ORDER, captured, one, outlooks, small, with_own_eager


@pytest.mark.parametrize(
    ("base", "new", "times", "sure"),
    [
        (one("torch-compile", 20.0, 1.3), one("torch-graph", 10.0, 1.3), 2.0, True),  # 15.4 over 13
        (one("torch-compile", 20.0, 1.5), one("torch-graph", 10.0, 1.5), 2.0, False),  # 13.3 below 15
        (one("torch-compile", 20.0, 1.0), one("torch-graph", 10.0, 1.0, carried=4.0), 1.0, False),  # 20 below 40
        (one("torch-compile", 20.0, 9.0, measured_us=30.0), one("torch-graph", 10.0, 9.0, measured_us=10.0), 3.0, True),
    ],
)
def test_a_gain_is_sure_where_the_ranges_do_not_overlap(base: Outlook, new: Outlook, times: float, sure: bool) -> None:
    found = gain(base, new)
    assert found.times == pytest.approx(times)
    assert found.is_sure == sure


@pytest.mark.parametrize(("eager_s", "steady_s"), [(5.0, 10.0), (20.0, 100.0)])
def test_a_gain_of_a_whole_training_is_unsure_where_either_preparation_varies(eager_s: float, steady_s: float) -> None:
    eager = replace(one("torch-eager", 1.0, 1.0), prepare_s=20.0, prepare_ends_s=[20.0, 20.0])
    steady = replace(one("jax-scan", 1.0, 1.0), prepare_s=10.0, prepare_ends_s=[10.0, 10.0])
    found = outlooks(eager, steady, epochs=1)
    assert gain(whole(eager, found), whole(steady, found)).is_sure
    eager = replace(eager, prepare_ends_s=[eager_s, 20.0])
    assert not gain(whole(eager, found), whole(replace(steady, prepare_ends_s=[10.0, steady_s]), found)).is_sure


def test_an_own_step_decides_whether_and_how_much_a_graph_saves() -> None:
    """Of 120,000 steps of 140 us (93 to 210) in a graph, which is recorded 0.3 s later."""
    told = {us: verdict(with_own_eager(us))[0] for us in (100.0, 150.0, 200.0, 220.0, 2000.0)}
    assert "should save little" in told[100.0]
    assert "should save little" in told[150.0]  # 1.1x
    # 120,000 x 60 us - 0.3 s
    assert "in any case. The graph may save 6.9 s, or nothing, as the ranges overlap: measure it" in told[200.0]
    assert "should save 9.3 s (0.90-15 s)" in told[220.0]  # at least 120,000 x 10 us - 0.3 s
    assert "should save 3 min 43 s (3.6-3.8 min)" in told[2000.0]
    assert not any("in 100" in told[us] for us in (100.0, 200.0, 2000.0))


def test_a_host_twice_as_fast_is_told_the_same_on_both_screens() -> None:
    """Of 120,000 steps of 470 us instead of 940, and 140 us in a graph, which is recorded 0.3 s later."""
    levels = set()
    for us, saves in (
        (940.0, "should save 39 s"),
        (620.0, "should save 20 s"),
        (560.0, "may save 16 s, or nothing"),
        (400.0, "may save 6.9 s, or nothing"),
    ):
        here, sure = verdict(captured(*small(**{"torch-eager": us})))[:2]
        there = verdict(captured(*small(**{"torch-eager": us / 2})))[0]
        level = "uncertain" if "may" in saves else "likely"
        assert sure.startswith(
            f"Elsewhere a gain is {level}: on a host twice as fast, say a desktop, the graph {saves}. "
        )
        assert saves in there
        assert "should save" in here
        levels.add(level)
    assert len(levels) == 2
    unsure = verdict(captured(*small(**{"torch-eager": 280.0})))
    assert "may save 16 s, or nothing" in unsure[0]
    assert unsure[1].startswith("Elsewhere a gain is uncertain: ")  # none is left on a host twice as fast


def test_the_host_is_told_only_where_nobody_measured_it() -> None:
    found = captured(*small())
    recorded = captured(*(replace(stage, is_recorded=True) for stage in small()))
    timed = captured(*(replace(stage, measured_us=stage.us) for stage in small()))
    hosts = {
        "On a slow cloud host (5.39 us per launch), 200 epochs": found,
        "On a slow cloud host, 200 epochs": recorded,
        "On a host with 5.39 us per launch, 200 epochs": replace(found, own_launch=True),
        "200 epochs": timed,
    }
    for told, one_of in hosts.items():
        total, sure = verdict(one_of)[:2]
        assert total.startswith(told)
        assert ("twice as fast" in sure) == ("slow" in told) == ("--launch" in sure)
        assert "`--measured-eager 2ms`" in sure


def test_a_graph_saves_no_more_than_eager_mode_takes() -> None:
    found = captured(*small())
    told = verdict(found)[0]
    assert ", 200 epochs should take 1 min 53 s (1.4-2.5 min) in eager PyTorch with data on the device, and a " in told
    assert "one CUDA graph per step alone should save 1 min 36 s (0.97-2.3 min)" in told  # 2.3 of 2.5 at most
    table = next(block for block in advise_screen(found).blocks if isinstance(block, Table))
    assert [column.cells[0] for column in table.columns][-2:] == ["1 min 53 s", "1.4-2.5 min"]
    short = verdict(captured(*small(), epochs=22))[0]
    assert "should save 10 s (6.1-15 s), or 17 min in 100 such trainings" in short  # 10.26 s, of which 10 are shown


def crossing(epochs: int) -> str:
    """The third sentence of a verdict on JAX, which compiles for 12 s at most, beside a graph per step."""
    return verdict(captured(*small(), epochs=epochs))[2]


def test_a_crossing_of_two_ways_is_told_on_either_side_of_it() -> None:
    """JAX takes 38 us (28.1 to 51.3) and 8 s (6.67 to 9.6), a graph 140 us (93.3 to 210) and 0.8 s (0.42 to 0.6)."""
    least = math.ceil(7.2e6 / (140 - 38) / 600)
    surely = math.ceil((9.6e6 - 0.5e6 / 1.2) / (140 / 1.5 - 38 * 1.35) / 600)
    assert (least, surely) == (118, 365)
    later = "`jax-scan` should take less from about 120 epochs on, at worst from 370."
    assert crossing(least - 1) == f"Stay with PyTorch: no other library clearly beats the changes below. {later}"
    assert re.fullmatch(
        r"Stay with PyTorch: `jax-scan` should take .* s against .* s for `step-graph`, too close to call. At worst, "
        r"`jax-scan` takes less from about 370 epochs on.",
        crossing(least),
    )
    assert re.match(r"Stay with PyTorch, or time the other: .*, but the ranges overlap. ", crossing(surely - 1))
    assert crossing(surely).startswith("Better, use JAX as in `jax-scan`")


@pytest.mark.parametrize(
    ("us", "doubt"),
    [
        (139.0, "Your 140 us is 6.8 times below our estimate of 940 us: was the GPU synchronised? "),
        (140.0, ""),  # 940 / 1.35 / 5 is 139.3
        (6_345.0, ""),
        (9_400.0, "Your 9,400 us is 10 times our estimate of 940 us: look for the cause (data loading?) first. "),
    ],
)
def test_an_own_step_far_from_the_estimate_is_doubted(us: float, doubt: str) -> None:
    found = replace(with_own_eager(us), ignored=[])
    told = verdict(found)
    assert told[0].startswith(f"{doubt}At ")
    assert ("A gain is uncertain, as your step" in told[1]) == bool(doubt)
    assert any(line.startswith("Your step ") for line in reasons(found)) != bool(doubt)


def test_an_own_loop_stands_above_the_expected_one() -> None:
    table = next(block for block in advise_screen(with_own_eager()).blocks if isinstance(block, Table))
    cells = {column.header: column.cells[:2] for column in table.columns if column.header != "range"}
    assert cells["way to train"] == ["your loop", "torch-eager"]
    assert cells["us/step"] == ["1,300", "~940"]
    assert cells["in all"] == ["2 min 36 s", "1 min 53 s"]


@pytest.mark.parametrize(("us", "below"), [(696.0, ["step-graph"]), (697.0, ["torch-eager", "step-graph"])])
def test_an_own_loop_below_the_range_refutes_the_row_of_eager_mode(us: float, below: list[str]) -> None:
    """940 / 1.35 is 696.3."""
    found = with_own_eager(us)
    table = next(block for block in advise_screen(found).blocks if isinstance(block, Table))
    assert table.columns[0].cells == ["your loop", *below]
    assert any("less than eager mode should (700-1,300 us)" in told for told in reasons(found)) == (len(below) == 1)


def test_our_kernels_are_told_by_the_whole_training() -> None:
    """Of 200 epochs and 0.5 s of start-up; a graph per step takes 140 us, JAX 38, and compiles for 8 s."""
    begins = (
        "Our own CUDA kernels are for learning, and train by plain SGD alone. In all, `persistent-grid` should take"
    )
    sure = "1.8 s, 6.9x (4.8-10) as fast as `jax-scan`. Its step alone is 3.5x (2.2-5.3) as fast as that of `jax-scan`."
    for kernel, told in (
        (GRID, sure),
        (one("persistent-grid", 90.0, 1.6), "11 s against 13 s for `jax-scan`: the ranges overlap."),
        (one("persistent-grid", 120.0), "no less than `jax-scan`."),
    ):
        assert verdict(captured(*small(), kernel))[-1] == f"{begins} {told}"


def test_json_has_the_verdict_and_the_stages_that_decide() -> None:
    found = outlooks(*small(), one("exact-u8", 30.0), GRID)
    facts = advice_facts(found)
    assert facts["verdict"] == [*verdict(found), *reasons(found)]
    assert facts["deciding"] == (told := [*ORDER, "persistent-grid"])
    assert [(stage["name"], stage["optimizer"]) for stage in facts["stages"]] == [(name, "sgd") for name in told]
    assert facts["stages"][0]["nine_in_ten_error"] == 0.35
    assert facts["stages"][0]["low_us"] == 696.3  # of 940 / 1.35
    (of_grid,) = (one for one in facts["gains"] if one["stage"] == "persistent-grid")
    assert of_grid["least"] < of_grid["times"] == 85.45 < of_grid["most"]
    assert (facts["guess"], facts["guess_reason"]) == (False, "")
    own = advice_facts(with_own_eager())
    assert [(stage["name"], stage["optimizer"]) for stage in own["stages"]] == [
        ("torch-eager", "own"),
        (CAPTURED, "sgd"),
    ]
    assert (len(own["changes"]), own["gains"]) == (4, [])
    assert facts["changes"] == []
    guess = advice_facts(outlooks(*small(), guess="A guess."))
    assert (guess["guess"], guess["guess_reason"]) == (True, "A guess.")


@pytest.mark.torch
def test_optimizers_are_advised_to_take_what_they_take() -> None:
    import torch

    for option, names in (
        ("capturable", CAPTURABLE),
        ("fused", (*FUSED, "Adagrad")),
    ):  # Adagrad is fused on a CPU alone
        assert {name for name in OPTIMIZERS if option in signature(getattr(torch.optim, name)).parameters} == {*names}
