"""What a network should take, and which stages a run has for it: recorded, by the model, or carried over."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from common.cuda.driver import DeviceInfo
from common.errors import UsageError
from common.problem import Problem
from ladder.measure.protocol import JobResult
from ladder.measure.timing import Plan
from ladder.options.commands import Advise
from ladder.options.parsers import parse
from ladder.options.run_options import RunOptions
from ladder.records import torch_run
from ladder.records.expectation import CAPTURED, CHECKED, PLAIN, Expected, Outlook
from ladder.records.limits_record import StepBounds
from ladder.records.profile import Split, Tool
from ladder.records.program import ROOT
from ladder.records.run import Process, Results, load
from ladder.run import outlook, session
from ladder.run.entries import CLASSES, CLOSE, INPUTS, contenders, stages_of
from ladder.run.expected import Costs, RecordedRun, RungCost, expectations, expected_here, recorded_costs
from ladder.run.outlook import (
    AGAIN,
    CHIPS,
    MODELLED,
    MORE_KERNELS,
    _captured,
    _layer_us,
    _recorded_on,
    chip_named,
    measuring,
    outlooks,
    with_measured,
)
from ladder.run.stage_run import StageRun
from ladder.study.study_file import point_options, read_study
from ladder.verify.gates import check
from reports.facts.advice import verdict
from stages.registry import load_all, load_entry
from tests.ladder.harness import NUMPY, Watcher, prepare, small_dataset, small_problem
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


def test_eager_mode_takes_no_less_than_a_replay_of_its_kernels() -> None:
    told = outlooks(asked((1024, 1024), 8192, gpu="RTX 4090"))
    found = {stage.name: stage for stage in told.stages}
    eager, graph = found["torch-eager"], found[CAPTURED]
    assert eager.us >= graph.us
    assert eager.low_us >= graph.low_us
    assert eager.high_us >= graph.high_us
    assert any("The GPU is the limit; a graph cannot help." in line for line in verdict(told))


def test_another_gpu_s_own_records_go_before_times_that_are_carried_over() -> None:
    told = outlooks(asked((256,), gpu="NVIDIA H100 80GB HBM3"))
    found, run = {stage.name: stage for stage in told.stages}, load(REFERENCE.parent / "h100-80gb-hbm3" / "hidden-256")
    us = {stage.name: stage.timing.step_us for stage in run.stages if stage.timing}
    assert found["skinny-gemm"].is_recorded
    assert found["skinny-gemm"].us == pytest.approx(us["skinny-gemm"], abs=1e-3)
    assert told.guess.startswith("Times without ~ are recorded (results/reference/h100-80gb-hbm3/hidden-256)")
    assert {near.path.split("/")[2] for near in told.nearest} == {"h100-80gb-hbm3"}
    others = outlooks(asked((128,) * 3, gpu="H100")).guess  # it has loss curves alone
    assert others.startswith("A guess, as on an H100 other networks are recorded: scaled from an NVIDIA H200")
    validated = outlooks(asked((2048,) * 4, 64))
    assert not any(stage.is_recorded for stage in validated.stages)  # its time has validations in it
    for name in ("NVIDIA H100 PCIe", "H100 NVL"):
        other = outlooks(asked((256,), gpu=name))
        assert other.guess.startswith("A guess, as no such H100 is recorded: ")
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
    for hidden, batch_size in (((), 4096), ((512,), 8192)):  # plans of which do not fit 28 multiprocessors
        assert "torch-graph" in stages(asked(hidden, batch_size, gpu="RTX 3060"))


def test_another_gpu_is_a_guess_between_equal_and_scaled_work() -> None:
    own, guess = (outlooks(asked((300, 100), gpu=gpu)) for gpu in ("H200", "NVIDIA GeForce RTX 4090"))
    assert not own.guess
    assert guess.guess.startswith("A guess, as no RTX 4090 is recorded: scaled from an NVIDIA H200")
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
    for near in ("GTX 4090", "RTX 4900", "RTX4090Ti", "RTX 4090 Laptop GPU"):
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
        ("NVIDIA GeForce RTX 4070", "RTX 4070"), ("4090", "RTX 4090"),
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
    recorded = load(REFERENCE / "hidden-4096-4096-4096")
    (timing,) = (stage.timing for stage in recorded.stages if stage.name == "planes-dependent")
    assert timing is not None
    told = with_measured(outlooks(asked((4032,) * 3, 32)), recorded)
    (found,) = (stage for stage in told.stages if stage.name == "planes-dependent")
    us = statistics.median(timing.runs_s) / timing.epochs / timing.steps_per_epoch * 1e6
    assert found.measured_us == found.us == pytest.approx(us)
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


def test_an_eager_step_of_one_s_own_changes_no_other_row() -> None:
    """It may have loading in it, which no other row has."""
    known = {one.name: one for one in outlooks(asked()).stages}
    own = {one.name: one for one in outlooks(replace(asked(), measured_eager=20_000.0)).stages}
    assert own == {**known, "torch-eager": replace(known["torch-eager"], measured_us=20_000.0)}
    with_adam = outlooks(replace(asked(), measured_eager=20_000.0, optimizer="Adam")).stages
    changed = {one.name for one in with_adam if own[one.name] != one}
    assert changed == {CAPTURED}  # the rest is plain SGD's; tabular takes longer to capture than mlp


NETWORKS = {
    "mlp": (784, (256,), 128),
    "tabular": (64, (256, 256), 256),
    "ppo": (16, (64,) * 5, 256),
}  # ppo: 2 x 3 layers


@pytest.mark.parametrize("name", [PLAIN, *CHECKED])
def test_a_captured_step_lies_within_its_range(name: str) -> None:
    inputs, hidden, batch_size = NETWORKS[name]
    found = outlooks(replace(asked(hidden, batch_size), inputs=inputs))
    graph, captured = ({one.name: one for one in found.stages}[stage] for stage in ("torch-graph", CAPTURED))
    (model,) = (model for model in found.own_models if model.name == name)
    assert captured.us == pytest.approx(model.graph_us, rel=0.1)
    assert graph.us < captured.low_us < model.graph_us < captured.high_us


@pytest.mark.parametrize("name", CHECKED)
def test_a_model_with_another_optimizer_saves_more_than_estimated(name: str) -> None:
    inputs, hidden, batch_size = NETWORKS[name]
    found = outlooks(replace(asked(hidden, batch_size), inputs=inputs, optimizer="Adam"))
    eager, captured = ({one.name: one for one in found.stages}[stage] for stage in ("torch-eager", CAPTURED))
    (model,) = (model for model in found.own_models if model.name == name)
    fused = torch_run.load(ROOT / model.path).rung("fused-optimizer")
    assert "Adam" in model.optimizer
    assert fused is not None
    assert fused.step_us is not None
    assert fused.step_us - model.graph_us > eager.us - captured.us


def test_a_captured_step_needs_the_record_of_one() -> None:
    found = outlooks(asked())
    assert found.layer_us is not None
    assert _layer_us(recorded_costs(), found.own_models[1:]) is None
    assert _captured(1, found.stages, found.own_models, None) == []
    named = {one.name: one for one in found.stages}
    eager, graph, captured = (named[name] for name in ("torch-eager", "torch-graph", CAPTURED))
    more_us = captured.us - graph.us
    ends_us = captured.low_us - graph.low_us, captured.high_us - graph.high_us
    assert ends_us == pytest.approx((more_us / MORE_KERNELS, more_us * MORE_KERNELS))
    assert captured.prepare_s - eager.prepare_s == pytest.approx(found.own_models[0].prepare_s)


def test_other_inputs_classes_and_rows_are_those_of_the_network() -> None:
    found = outlooks(replace(asked((256,)), inputs=54, classes=7, rows=12_800, optimizer="Adam"))
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


# Estimates: of which runs there are any, and when a rung is said to lose.


pytestmark = pytest.mark.usefixtures("in_process")

LOGISTIC = Problem(784, 10)
LARGEST = recorded_costs().largest


def model(below: float, above: float, error: float) -> Costs:
    """cuda-graph, and fused-head that adds to it, in us per step."""
    rungs = {
        "cuda-graph": RungCost("", {"step": below}, 0.5, 0.4, 0.9, 0.1, 9, 1.0, [0.8, 1.2]),
        "fused-head": RungCost("cuda-graph", {"step": above}, error, error, error, 0.1, 9, 1.0, [0.8, 1.2]),
    }
    return Costs("a GPU", "a host", 2.5, 132, 232_448, {}, 0.3, LARGEST, [1.0, 2.0], rungs)


@pytest.mark.parametrize(("name", "times"), [("torch-eager", 1.5), ("torch-compile", 1.5), ("torch-graph", 1.0)])
def test_a_host_s_pace_differs_between_recordings_of_a_network_by_eager_or_compiled_steps(
    name: str, times: float
) -> None:
    runs = {str(us): RecordedRun("", [], 128, {name: us}) for us in (20.0, 30.0)}
    runs["another network"] = RecordedRun("", [256], 128, {name: 90.0})
    assert replace(model(10.0, 1.0, 0.1), runs=runs).eager_differs == times


@pytest.mark.parametrize(("adds", "error", "loses"), [(1.2, 0.036, True), (1.2, 0.038, False), (0.4, 0.01, False)])
def test_a_rung_loses_by_more_than_five_per_cent_and_the_error(adds: float, error: float, loses: bool) -> None:
    found = expectations(LOGISTIC, 468, model(10, adds, error))["fused-head"]
    assert found.us == pytest.approx(10 + adds)
    assert found.times_from == pytest.approx(10 / (10 + adds))
    assert found.error == pytest.approx((0.5**2 + error**2) ** 0.5)
    assert found.remark == ("expected to lose here: 11 us, cuda-graph 10" if loses else "")


def test_nothing_is_expected_of_another_gpu_or_of_a_timed_validation() -> None:
    gpu = recorded_costs().gpu
    assert "cuda-graph" in expected_here(LOGISTIC, 468, gpu)
    assert expected_here(LOGISTIC, 468, "NVIDIA H100 80GB HBM3") == {}
    assert expected_here(LOGISTIC, 468, None) == {}
    for other in (Problem(784, 10, validate_every=1), Problem(784, 10, networks=2)):
        assert expected_here(other, 468, gpu) == {}
    for larger in (Problem(784, 10, (64,) * 400), Problem(784, 10, batch_size=8_193)):
        assert expectations(larger, 1) == {}


def test_a_rung_that_does_not_take_the_network_has_no_estimate() -> None:
    assert "last-layer" not in expectations(LOGISTIC, 468)
    assert "persistent-cluster" not in expectations(Problem(784, 10, (1024,)), 468)
    assert "persistent-cluster" in expectations(Problem(784, 10, (256,)), 468)


def test_a_run_says_and_records_it_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Expected(66.0, 0.1, "a GPU", 0.8, "exact-u8", 53.0)
    monkeypatch.setattr(session, "expected_here", lambda *_: {"numpy": expected})
    watcher = Watcher()
    prepare(tmp_path, NUMPY).run(watcher)
    assert watcher.notes[0] == "numpy: expected to lose here: 66 us, exact-u8 53"
    assert [stage.expected for stage in load(tmp_path).stages] == [expected]


def test_a_rung_that_should_lose_to_another_chosen_one_is_timed_by_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Expected(66.0, 0.1, "a GPU", 0.8, "cpu-loops", 53.0)
    monkeypatch.setattr(session, "expected_here", lambda *_: {"cpu-blas": expected})
    monkeypatch.setattr(session, "posed", lambda *_: (small_problem(), small_dataset()))
    for words, timed in (
        (["cpu-loops..cpu-blas"], ["cpu-loops"]),
        (["cpu-loops", "cpu-blas"], ["cpu-loops", "cpu-blas"]),
        (["cpu-blas..cpu-sparse-metrics"], ["cpu-blas", "cpu-sparse-metrics"]),
    ):
        watcher, options = Watcher(), RunOptions(stages=tuple(words), profile=())
        runner, _ = session.begin(options, load_all(), tmp_path / words[0], watcher, "test")
        assert [stage.name for stage in runner.ledger.stages] == timed
        told = "cpu-blas: expected to lose here: 66 us, cpu-loops 53; it is not timed unless --stages names it"
        assert (told in watcher.notes) == (len(timed) == 1)


# Which stages a run has: the rule for rungs that may be the fastest.


RUNS = sorted(file.parent for file in (ROOT / "results" / "reference" / "h200").rglob("results.json.gz"))
ENTRIES = load_all()
WIDE = Problem(INPUTS, CLASSES, hidden=(1024,) * 3, batch_size=32)


def fastest(run: Results) -> set[str]:
    """The fastest rung beyond the classic ones of each class; none of a run with one of them or two."""
    us = {stage.name: stage.timing.step_us for stage in run.stages if stage.timing and stage.name in ENTRIES}
    rungs = [ENTRIES[name].stage for name in us if ENTRIES[name].stage.group == "beyond"]
    classes = ([rung for rung in rungs if rung.precision == "float32"], rungs)
    return {min(each, key=lambda rung: us[rung.name]).name for each in classes if len(each) > 2}


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: str(folder.relative_to(RUNS[0].parents[0])))
def test_the_fastest_recorded_rungs_are_contenders(folder: Path) -> None:
    run = load(folder)
    own = run.problem
    if own.networks == own.gpus == 1:
        problem = Problem(own.inputs, own.classes, tuple(own.hidden), own.batch_size)
        steps = next((stage.timing.steps_per_epoch for stage in run.stages if stage.timing), 1)
        found, expected = contenders(problem, steps), expectations(problem, steps)
        newer = {*found} & expected.keys() - {each.name for each in run.stages if each.timing}
        least = min((expected[name].us for name in newer), default=math.inf)
        assert all(expected[name].us > CLOSE * least for name in fastest(run) - {*found})  # of a rung that is newer


def test_contenders_fit_and_are_not_expected_far_behind() -> None:
    found = contenders(WIDE, 128)
    assert {"grid-messages", "grid-messages-fp16", "planes-dependent"} <= set(found)  # the last has no model
    assert not {"persistent-cluster", "cluster-fp16"} & set(found)  # do not fit
    assert not {"cuda-graph", "fused-bias", "bf16", "grid-bf16"} & set(found)  # classic, or far slower by the model
    assert found == [name for name in ENTRIES if name in found]


def test_contenders_are_a_word_beside_others() -> None:
    options = RunOptions(stages=("jax-scan", "contenders", "grid-bf16"), hidden=(1024,) * 3, batch_size=32)
    names = [entry.stage.name for entry in stages_of(options, ENTRIES)]
    assert names == [name for name in ENTRIES if name in {"jax-scan", "grid-bf16", *contenders(WIDE, 1875)}]
    assert "contenders" not in ENTRIES


@pytest.mark.parametrize("study", ["hidden-size", "depth", "batch-size", "cpp-mlp"])
def test_studies_with_leads_time_every_contender(study: str) -> None:
    for point in read_study(ROOT / "experiments" / f"{study}.toml", "", "").points:
        options = RunOptions(**point_options(point))
        steps = min(options.problem(INPUTS, CLASSES).steps(60_000), options.max_steps or 60_000)
        names = {entry.stage.name for entry in stages_of(options, ENTRIES)}
        assert set(contenders(options.problem(INPUTS, CLASSES), steps)) <= names, point.name
