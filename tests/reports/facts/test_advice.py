"""The advice: whether to leave PyTorch, from times and their ranges."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.expectation import NearRun, Outlook, Outlooks
from ladder.records.run import Precision
from reports.facts.advice import REFERENCES, advice_facts, deciding, gain, training_s, verdict

ORDER = ("torch-eager", "torch-compile", "torch-graph", "jax-scan")


def one(
    name: str,
    us: float,
    factor: float = 1.1,
    precision: Precision = "float32",
    carried: float = 1.0,
    measured_us: float | None = None,
) -> Outlook:
    """A stage's outlook, within a factor; `carried` is how much slower it is on another GPU."""
    return Outlook(
        name=name,
        words="the same in bfloat16" if precision == "bfloat16" else "on all multiprocessors",
        group="reference" if name in REFERENCES else "beyond",
        precision=precision,
        regime=None if name in REFERENCES else "one kernel",
        us=us * carried**0.5,
        low_us=us / factor,
        high_us=us * carried * factor,
        carried_us=[us, us * carried],
        is_recorded=False,
        median_error=0.06,
        most_error=factor - 1,
        networks=20,
        prepare_s={"torch-compile": 11.0, "torch-graph": 38.0, "jax-scan": 8.0}.get(name, 0.5),
        measured_us=measured_us,
    )


def outlooks(*stages: Outlook, epochs: int = 200, guess: str = "") -> Outlooks:
    return Outlooks(
        gpu="NVIDIA H200",
        recorded_gpu="NVIDIA H200",
        host="Xeon",
        eager_differs=3.53,
        dataloader=[1.35, 3.54],
        no_gpu=False,
        guess=guess,
        network="784-300-100-10",
        batch_size=100,
        epochs=epochs,
        images=60_000,
        steps_per_epoch=600,
        stages=list(stages),
        nearest=[NearRun("results/reference/h200/studies/depth/depth-2", [256, 256], 128, 0.4)],
    )


def small(**changes: float) -> list[Outlook]:
    us = {"torch-eager": 940.0, "torch-compile": 110.0, "torch-graph": 45.0, "jax-scan": 38.0} | changes
    return [one(name, us[name], 1.35, "bfloat16" if name == "torch-compile" else "float32") for name in ORDER]


GRID, GRID_BF16 = one("persistent-grid", 11.0, 1.14), one("grid-bf16", 9.7, 1.27, "bfloat16")


def test_six_stages_decide_and_slower_ones_of_lower_precision_do_not() -> None:
    slower, late = one("exact-u8", 30.0), one("streamed-bf16", 12.0, precision="bfloat16")
    six = deciding(outlooks(*small(), slower, GRID, GRID_BF16))
    assert [stage.name for stage in six] == [*ORDER, "persistent-grid", "grid-bf16"]
    assert [stage.name for stage in deciding(outlooks(*small(), GRID, late))] == [*ORDER, "persistent-grid"]


@pytest.mark.parametrize(
    ("base", "new", "times", "sure"),
    [
        (one("torch-compile", 20.0, 1.3), one("torch-graph", 10.0, 1.3), 2.0, True),  # 2 over 1.45
        (one("torch-compile", 20.0, 1.9), one("torch-graph", 10.0, 1.3), 2.0, False),
        # What another GPU slows alike does not make a gain unsure, and measured times count as they are.
        (one("jax-scan", 20.0, 1.2, carried=4.0), one("persistent-grid", 10.0, 1.2, carried=4.0), 2.0, True),
        (one("torch-compile", 20.0, 9.0, measured_us=30.0), one("torch-graph", 10.0, 9.0, measured_us=10.0), 3.0, True),
    ],
)
def test_a_gain_is_sure_beyond_the_errors_of_both(base: Outlook, new: Outlook, times: float, sure: bool) -> None:
    found = gain(base, new)
    assert found.times == pytest.approx(times)
    assert found.is_sure == sure


@pytest.mark.parametrize(
    ("stages", "told"),
    [
        (
            [*small(**{"torch-graph": 70.0, "jax-scan": 71.0}), one("persistent-grid", 60.0)],
            "Counting the time to compile, it pays to change to `torch-compile` from about 22 epochs on. Use "
            "torch.compile (whole step, reduce-overhead, bf16): 8.5x (5.6-13) as fast as eager "
            "mode; an epoch in a graph (float32) may gain another 1.6x (1.0-2.4): measure it by `advise --measure`. No "
            "float32 rung here is surely faster than the best library, `torch-graph`.",
        ),
        (
            [*small(**{"torch-graph": 800.0, "torch-compile": 820.0, "jax-scan": 900.0}), one("cuda-graph", 810.0)],
            "Stay with PyTorch as it is: torch.compile is not surely faster, and an epoch in a graph (float32) gains "
            "nothing. No float32 rung here is surely faster than the best library, `torch-graph`.",
        ),
    ],
)
def test_the_verdict_follows_the_times(stages: list[Outlook], told: str) -> None:
    assert " ".join(verdict(outlooks(*stages))[:-1]) == told


def test_a_reference_of_lower_precision_decides_if_it_beats_its_float32_form() -> None:
    amp, jax = one("torch-graph-amp", 20.0, precision="bfloat16"), one("jax-scan-bf16", 39.0, precision="bfloat16")
    found = outlooks(*small(), amp, jax, GRID, GRID_BF16)
    assert [each.name for each in deciding(found)][3:] == [amp.name, "jax-scan", GRID.name, GRID_BF16.name]
    told, unsure = verdict(found)[1], verdict(outlooks(*small(), amp, GRID, one("bf16", 10.0, 2.0, "bfloat16")))[1]
    assert told.startswith("Once an epoch is captured in a graph (bf16), it is 47x")
    assert "In bf16, `torch-graph-amp` gains 1.9x (1.4-2.6) over `jax-scan`. In bf16, `grid-bf16` gains 2.1x" in told
    assert unsure.endswith("No rung here of lower precision is surely faster than `torch-graph-amp`.")


def test_what_it_saves_is_told_in_time_and_a_short_training_is_not_worth_it() -> None:
    stages = [*small(), GRID]
    assert verdict(outlooks(*stages))[-1] == (
        "200 epochs of 60,000 images, with the time to prepare, should take 1 min 53 s in eager mode and 1.8 s at "
        "best, by `persistent-grid` (float32)."
    )
    assert verdict(outlooks(*stages, epochs=1))[-1].endswith(": hardly worth a change, unless you train often.")


@pytest.mark.parametrize(
    ("epochs", "told"),
    [
        (21, "For 21 epochs, eager mode is the sure choice"), (22, "For 22 epochs, `torch-compile` is the sure choice"),
        (692, "For 692 epochs, `torch-compile` is the sure choice"), (693, "Counting the time to compile"),
    ],
)  # fmt: skip
def test_the_way_that_is_fastest_with_compiling_is_named(epochs: int, told: str) -> None:
    found = outlooks(*small(), epochs=epochs)
    assert verdict(found)[0].startswith(told)
    fastest = min(small()[:3], key=lambda one: training_s(one, found)).name
    assert fastest == ("torch-eager" if epochs < 22 else "torch-compile" if epochs < 693 else "torch-graph")


def test_a_graph_in_float32_may_pay_before_one_in_mixed_precision() -> None:
    amp = replace(one("torch-graph-amp", 20.0, 1.35, "bfloat16"), prepare_s=80.0)
    found = outlooks(*small(), amp, epochs=1000)
    assert verdict(found)[0].startswith("For 1,000 epochs, `torch-graph` is the sure choice")
    assert "`torch-graph` from about 693 epochs on, then to `torch-graph-amp` from about 2,800" in verdict(found)[0]
    assert min([*small()[:3], amp], key=lambda one: training_s(one, found)).name == "torch-graph"


def test_a_graph_that_pays_before_compiled_steps_takes_their_place() -> None:
    eager, compiled, graph, _ = small()
    found = outlooks(eager, compiled, replace(graph, prepare_s=compiled.prepare_s))
    assert "it pays to change to `torch-graph` from about 20 epochs on." in verdict(found)[0]


def test_json_has_the_verdict_and_every_stage() -> None:
    found = outlooks(*small(), one("exact-u8", 30.0), GRID)
    facts = advice_facts(found)
    assert facts["verdict"] == verdict(found)
    assert facts["deciding"] == [*ORDER, "persistent-grid"]
    assert [stage["name"] for stage in facts["stages"]] == [*ORDER, "exact-u8", "persistent-grid"]
    assert facts["stages"][0]["nine_in_ten_error"] == 0.35
    assert facts["stages"][0]["low_us"] == 696.3  # of 940 / 1.35
    (of_grid,) = (one for one in facts["gains"] if one["stage"] == "persistent-grid")
    assert of_grid["least"] < of_grid["times"] == 85.45 < of_grid["most"]
    assert (facts["guess"], facts["guess_reason"]) == (False, "")
    guess = advice_facts(outlooks(*small(), guess="A guess."))
    assert (guess["guess"], guess["guess_reason"]) == (True, "A guess.")
