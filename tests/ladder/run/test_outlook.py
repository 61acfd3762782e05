"""What a network should take: recorded, by the model, or carried over; and what a stage's state takes of profiles."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from common.cuda.driver import DeviceInfo
from common.errors import UsageError
from ladder.measure.protocol import JobResult
from ladder.measure.timing import Plan
from ladder.options.commands import Advise
from ladder.options.parsers import parse
from ladder.options.run_options import RunOptions
from ladder.records.expectation import CAPTURED, Outlook
from ladder.records.limits_record import StepBounds
from ladder.records.profile import Split, Tool
from ladder.records.program import ROOT
from ladder.records.run import Process, load
from ladder.run import outlook
from ladder.run.expected import recorded_costs
from ladder.run.outlook import (
    AGAIN,
    CHIPS,
    MODELLED,
    _captured,
    _layer_us,
    _recorded_on,
    chip_named,
    measuring,
    outlooks,
    with_measured,
)
from ladder.run.stage_run import StageRun
from ladder.verify.gates import check
from stages.registry import load_all, load_entry
from tests.ladder.harness import NUMPY
from tests.reports.profiles import own_kernels, profile

REFERENCE = Path(__file__).parents[3] / "results" / "reference" / "h200"


def asked(
    hidden: tuple[int, ...] = (), batch_size: int = 128, gpu: str = "H200", launch: float | None = None
) -> Advise:
    return Advise(options=RunOptions(hidden=hidden, batch_size=batch_size), gpu=gpu, launch=launch)


def stages(what: Advise) -> dict[str, Outlook]:
    return {stage.name: stage for stage in outlooks(what).stages}


def test_a_recorded_network_has_its_recorded_time() -> None:
    limits = load(REFERENCE / "hidden-256").limits
    assert limits is not None
    assert limits.chip.l2_bytes == MODELLED.l2_mib << 20
    found = stages(asked((1024,)))["torch-graph"]
    measured = next(stage for stage in load(REFERENCE / "hidden-1024").stages if stage.name == "torch-graph")
    assert measured.timing is not None
    assert found.is_recorded
    assert found.us == pytest.approx(measured.timing.step_us, abs=1e-3)
    eager = stages(asked((256,)))["torch-eager"]  # on another host
    assert eager.high_us / eager.us == pytest.approx(recorded_costs().eager_differs) == eager.us / eager.low_us


def test_another_gpu_s_own_records_go_before_times_that_are_carried_over() -> None:
    told = outlooks(asked((256,), gpu="NVIDIA H100 80GB HBM3"))
    found, run = {stage.name: stage for stage in told.stages}, load(REFERENCE.parent / "h100-80gb-hbm3" / "hidden-256")
    us = {stage.name: stage.timing.step_us for stage in run.stages if stage.timing}
    assert found["skinny-gemm"].is_recorded
    assert found["skinny-gemm"].us == pytest.approx(us["skinny-gemm"], abs=1e-3)
    assert told.guess.startswith("Times without ~ are recorded (results/reference/h100-80gb-hbm3/hidden-256)")
    assert {near.path.split("/")[2] for near in told.nearest} == {"h100-80gb-hbm3"}
    validated = outlooks(asked((2048,) * 4, 64))
    assert not any(stage.is_recorded for stage in validated.stages)  # its time has validations in it
    for name in ("NVIDIA H100 PCIe", "H100 NVL"):
        other = outlooks(asked((256,), gpu=name))
        assert other.guess.startswith("A guess: ")
        assert not any(stage.is_recorded for stage in other.stages)
    assert not any(stage.is_recorded for stage in outlooks(asked((300,), gpu="H100")).stages)
    assert not any(stage.is_recorded for stage in outlooks(replace(asked((256,), gpu="H100"), bandwidth=2e3)).stages)


def test_a_stage_without_a_model_is_told_where_it_is_recorded() -> None:
    run = load(REFERENCE.parent / "h100-80gb-hbm3" / "hidden-4096-4096-4096")
    timings = {stage.name: stage.timing for stage in run.stages if stage.timing}
    told = outlooks(asked((4096,) * 3, 32, gpu="H100"))
    for name in ("planes-dependent", "streamed-ring"):
        (found,) = (stage for stage in told.stages if stage.name == name)
        assert found.is_recorded
        assert found.us == pytest.approx(timings[name].step_us, abs=1e-3)
        assert found.prepare_s == pytest.approx(timings[name].prepare_s, abs=1e-3)
        assert found.low_us < found.us < found.high_us
    names = [stage.name for stage in told.stages]
    assert names == [*(name for name in load_all() if name in names), CAPTURED]
    other = outlooks(asked((4032,) * 3, 32, gpu="H100"))
    assert "planes-dependent" not in {stage.name for stage in other.stages}
    assert "planes-dependent" in other.untold


def test_nine_in_ten_recordings_of_a_network_repeat_within_the_range_of_a_stage_without_a_model() -> None:
    found, rungs = defaultdict(list), {name for name, entry in load_all().items() if entry.stage.group == "beyond"}
    for chip in CHIPS:
        for run in _recorded_on(chip.name).values():
            for name in run.us.keys() & rungs:
                found[chip.name, name, tuple(run.hidden), run.batch_size].append(run.us[name])
    differ = [max(us) / min(us) - 1 for us in found.values() if len(us) > 1]
    assert len(differ) >= 10
    assert np.quantile(differ, 0.9) <= AGAIN


def test_a_run_that_the_model_never_saw_lies_within_the_range() -> None:
    """The study validates inside its time, which is why the model left it out: a quarter is allowed for that."""
    run = load(REFERENCE / "studies" / "cpp-mlp" / "hidden-2048")
    assert not any(path.startswith("studies/cpp-mlp") for path in recorded_costs().runs)
    found = stages(asked(tuple(run.problem.hidden), run.problem.batch_size))
    timed = {stage.name: stage.timing.step_us for stage in run.stages if stage.timing and stage.name in found}
    assert {"torch-graph", "jax-scan", "persistent-grid", "grid-bf16"} <= timed.keys()
    for name, us in timed.items():
        assert found[name].low_us / 1.05 < us < 1.25 * found[name].high_us, name


def test_a_gpu_with_runs_of_its_own_has_the_error_of_networks_recorded_on_both() -> None:
    on = {gpu: stages(asked((300, 100), gpu=gpu)) for gpu in ("H200", "H100", "RTX 4090")}

    def width(gpu: str, name: str) -> float:
        return on[gpu][name].high_us / on[gpu][name].low_us

    for name in ("torch-graph", "jax-scan", "persistent-grid"):
        assert width("H200", name) < width("H100", name) < 1.15 * width("H200", name) < width("RTX 4090", name)
    assert width("H100", "torch-eager") == pytest.approx(width("RTX 4090", "torch-eager"))  # of another host


def test_the_range_widens_away_from_recorded_networks() -> None:
    near, far = (stages(asked((width, width)))["torch-graph"] for width in (250, 2500))
    assert not near.is_recorded
    assert not far.is_recorded
    assert far.high_us / far.us > 1.1 * near.high_us / near.us > 1.2


def test_stages_that_do_not_take_the_network_or_the_gpu_are_not_named() -> None:
    assert "persistent-cluster" in stages(asked((256,)))
    assert "persistent-cluster" not in stages(asked((1024,)))
    on_ada = stages(asked((256,), gpu="RTX 4090"))
    assert {"persistent-cluster", "last-layer", "dependent-launch"} & on_ada.keys() == set()
    assert {"persistent-grid", "exact-u8", "grid-bf16"} <= on_ada.keys()
    assert {"exact-u8", "grid-bf16"} & stages(asked((256,), gpu="T4")).keys() == set()


def test_another_gpu_is_a_guess_between_equal_and_scaled_work() -> None:
    own, guess = (outlooks(asked((300, 100), gpu=gpu)) for gpu in ("H200", "NVIDIA GeForce RTX 4090"))
    assert not own.guess
    assert "recorded on an NVIDIA H200" in guess.guess
    one, other = (next(stage for stage in one.stages if stage.name == "torch-graph") for one in (own, guess))
    assert other.carried_us[0] == pytest.approx(one.us)
    assert 132 * 1980 / (128 * 2520) < other.carried_us[1] / other.carried_us[0] < 1
    assert other.us == pytest.approx(math.sqrt(math.prod(other.carried_us)))
    assert other.high_us / other.us > one.high_us / one.us


@pytest.mark.parametrize(("hidden", "least", "most"), [((2048, 2048), 1.0, 1.3), ((4096, 4096, 4096), 1.5, 4.8)])
def test_the_bandwidth_counts_beyond_the_cache(hidden: tuple[int, ...], least: float, most: float) -> None:
    slow = outlooks(replace(asked(hidden, 32), bandwidth=1000.0))
    assert "1,000 GB/s, 1,980 MHz and 132 multiprocessors" in slow.guess
    streamed = next(stage for stage in slow.stages if stage.name == "torch-graph")
    assert least <= streamed.carried_us[1] / streamed.carried_us[0] < most


def test_a_limit_that_no_gpu_has_is_refused_and_an_unknown_one_told() -> None:
    for bandwidth, launch in ((0.001, None), (1e6, None), (None, 0.01), (None, 1e4)):
        with pytest.raises(UsageError, match=r"--bandwidth|--launch"):
            chip_named("H200", bandwidth, launch)
    for near in ("4090", "RTX 4900"):
        with pytest.raises(UsageError, match='did you mean "RTX 4090"'):
            chip_named(near, None, None)
    unknown = replace(asked(gpu="X1"), bandwidth=500.0)
    assert "all but what you named is an A100's" in outlooks(unknown).guess


def test_a_launch_scales_the_time_of_the_host_alone() -> None:
    twice = 2 * recorded_costs().launch_us
    plain, slow = stages(asked((300, 100), gpu="L4")), stages(asked((300, 100), gpu="L4", launch=twice))
    assert slow["torch-eager"].us == pytest.approx(2 * plain["torch-eager"].us)
    assert slow["torch-graph"].us == pytest.approx(plain["torch-graph"].us)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("h200", "H200"), ("NVIDIA H200", "H200"), ("NVIDIA H100 80GB HBM3", "H100"), ("rtx4090", "RTX 4090"),
        ("NVIDIA A100-SXM4-80GB", "A100"), ("A10", "A10"), ("Tesla T4", "T4"), ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4070", "RTX 4070"),
        ("RTX 4070 Ti", ""), ("RTX 4090 Laptop GPU", ""), ("A1000", ""), ("RTX 3090 Ti", ""),
    ],
)  # fmt: skip
def test_gpus_are_known_by_name(name: str, known: str) -> None:
    if known:
        assert chip_named(name, None, None) in CHIPS
        assert chip_named(name, None, None).name == known
    else:
        with pytest.raises(UsageError, match=f"--gpu {name}: not known; add --bandwidth"):
            chip_named(name, None, None)
        assert chip_named(name, 500.0, 4.0).memory_gb_s == 500.0


def test_measuring_is_a_short_run_of_these_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlook, "devices", list)
    with pytest.raises(UsageError, match="--measure: needs an NVIDIA GPU"):
        measuring(asked(), ["torch-graph"])
    monkeypatch.setattr(outlook, "devices", lambda: [DeviceInfo("NVIDIA L4", (8, 9), 1, "0")])
    run = measuring(asked((256,)), ["torch-graph", CAPTURED, "exact-u8"])
    assert run.options.stages == ("torch-graph", "exact-u8")
    assert run.options.hidden == (256,)
    assert run.options.seconds_in_all == outlook.BUDGET_S
    told = with_measured(outlooks(asked((4032,) * 3, 32)), load(REFERENCE / "hidden-4096-4096-4096"))
    (found,) = (stage for stage in told.stages if stage.name == "planes-dependent")
    assert found.measured_us == found.us == pytest.approx(130.3, abs=0.1)
    assert "planes-dependent" not in told.untold
    measured, captured = ({one.name: one for one in told.stages}[name] for name in ("torch-graph", CAPTURED))
    assert measured.measured_us is not None
    assert told.layer_us is not None
    assert captured.us == pytest.approx(measured.measured_us + 4 * told.layer_us)
    own = Advise(options=RunOptions(budget=1.0))
    assert measuring(own, ["torch-graph"]).options.seconds_in_all is None
    assert outlooks(Advise(options=RunOptions())).gpu == "L4"


STEPS = 100


@pytest.fixture
def stage_run() -> StageRun:
    """A stage that passed on the GPU with 10 us per step."""
    measured = StageRun(load_entry(NUMPY), STEPS)
    process = Process(0, 0.1, [], [2 * STEPS * 10e-6], None, [])
    result = JobResult(device="gpu", plan=Plan(2, 1, 0), process=process)
    measured.add_process(result, [check("first update", 0.0, 1.0)], 0.9, shortened=False)
    return measured


def test_a_profile_replaces_the_reason_why_there_was_none(stage_run: StageRun) -> None:
    stage_run.set_unprofiled("nsys", "not found")
    assert stage_run.needs_profile("nsys")
    assert stage_run.result().unprofiled == {"nsys": "not found"}
    stage_run.add_profile(profile(Split(5, 0, 1, 3, 1), own_kernels(), tool="nsys"))
    assert not stage_run.needs_profile("nsys")
    assert stage_run.result().unprofiled == {}
    assert [seen.tool for seen in stage_run.result().profiles] == ["nsys"]


def test_cuptis_profile_is_shown_before_nsyss(stage_run: StageRun) -> None:
    shown = []
    tools: tuple[Tool, ...] = ("nsys", "cupti")
    for tool in tools:
        stage_run.add_profile(profile(Split(5, 0, 1, 3, 1), own_kernels(), tool=tool))
        shown.append(stage_run.profile.tool if stage_run.profile else None)
    assert shown == ["nsys", "cupti"]


@pytest.mark.parametrize(("cheat_limit_us", "status"), [(9.0, "passed"), (11.0, "failed")])
def test_a_time_below_the_cheat_limit_fails_the_stage(stage_run: StageRun, cheat_limit_us: float, status: str) -> None:
    stage_run.check_speed(StepBounds(cheat_limit_us, None))
    result = stage_run.result()
    assert result.status == status
    assert (result.timing is None) == (status == "failed")
    assert (result.reason or "").startswith("" if status == "passed" else "cheat limit")
    assert result.bounds == StepBounds(cheat_limit_us, None)


def test_an_eager_step_of_one_s_own_scales_what_the_host_launches() -> None:
    known = {one.name: one for one in outlooks(asked()).stages}
    own = {one.name: one for one in outlooks(replace(asked(), measured_eager=20_000.0)).stages}
    times = 20_000 / known["torch-eager"].us
    assert (own["torch-eager"].us, own["torch-eager"].low_us, own["torch-eager"].high_us) == (20_000,) * 3
    assert own["torch-compile"].us == pytest.approx(known["torch-compile"].us * times)
    assert own["torch-compile"].high_us / own["torch-compile"].us == pytest.approx(
        known["torch-compile"].high_us / known["torch-compile"].us
    )
    assert {name for name in known if known[name] != own[name]} == {"torch-eager", "torch-compile"}
    fast = {one.name: one for one in outlooks(replace(asked(), measured_eager=20.0)).stages}
    assert fast["torch-compile"].us == fast["torch-graph-amp"].us  # a graph has the same arithmetic, and no launches
    with_adam = outlooks(replace(asked(), measured_eager=20_000.0, optimizer="adam")).stages
    changed = {one.name for one in with_adam if known[one.name] != one}
    assert changed == {"torch-eager", CAPTURED}  # the rest is plain SGD's; tabular takes longer to capture than mlp


@pytest.mark.parametrize(
    ("name", "inputs", "hidden", "batch_size"),
    [("mlp", 784, (256,), 128), ("tabular", 64, (256, 256), 256), ("ppo", 16, (64,) * 5, 256)],  # ppo has 2 x 3 layers
)
def test_a_captured_step_lies_within_its_range(
    name: str, inputs: int, hidden: tuple[int, ...], batch_size: int
) -> None:
    found = outlooks(replace(asked(hidden, batch_size), inputs=inputs))
    graph, captured = ({one.name: one for one in found.stages}[stage] for stage in ("torch-graph", CAPTURED))
    (model,) = (model for model in found.own_models if model.name == name)
    assert captured.us == pytest.approx(model.graph_us, rel=0.1)
    assert graph.us < captured.low_us < model.graph_us < captured.high_us


def test_a_captured_step_needs_the_record_of_one() -> None:
    found = outlooks(asked())
    assert found.layer_us is not None
    assert _layer_us(recorded_costs(), found.own_models[1:]) is None
    assert _captured(1, found.stages, found.own_models, None) == []
    eager, captured = ({one.name: one for one in found.stages}[name] for name in ("torch-eager", CAPTURED))
    assert captured.prepare_s - eager.prepare_s == pytest.approx(found.own_models[0].prepare_s)


def test_other_inputs_classes_and_rows_are_those_of_the_network() -> None:
    found = outlooks(replace(asked((256,)), inputs=54, classes=7, rows=12_800, optimizer="adam"))
    assert (found.network, found.steps_per_epoch) == ("54-256-7", 100)
    assert all(near.network.startswith("784-") for near in found.nearest)
    assert found.guess == ""
    assert (found.ignored, found.untold) == (["--optimizer adam"], [])
    assert found.own_model is not None
    assert (found.own_model.optimizer, found.own_model.has_dropout) == ("AdamW", True)
    plain = outlooks(parse(["advise", "--optimizer=SGD"]))  # type: ignore[arg-type]
    assert plain.own_model is not None
    assert (plain.ignored, plain.own_model.optimizer) == ([], "SGD")
    for model in (found.own_model, plain.own_model):
        bold = (ROOT / model.path / "report.md").read_text().partition("**")[2].partition("**")[0]
        assert f"For {model.epochs} epochs" in bold
        assert f"the whole training {model.times:.1f}x (" in bold
        assert model.resident_us is not None
        assert model.fused_us is not None
        assert model.graph_us < model.fused_us < model.resident_us < model.loop_us
