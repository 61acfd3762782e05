"""The facts of a run's rows: times, energy, profiles and the files of their code."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.profile import Profile, Split
from ladder.records.run import Check, Energy, LossPoint, PartRecord, Results, StageResult, Timing
from reports.facts.energy import saving
from reports.facts.profiles import agree, kernel_names
from reports.facts.resolved_recipe import resolved_recipe
from reports.facts.run_table import lacks_a_check, passed_in_words, yardsticks
from reports.facts.stage_facts import StageFacts, all_stage_facts
from reports.facts.warnings import not_made_in_words
from reports.figures.energy_figure import headline
from stages.registry import load_all
from tests.reports import sample
from tests.reports.profiles import CUBLAS, own_kernels, profile


def row(run: Results, name: str) -> StageFacts:
    return next(row for row in all_stage_facts(run) if row.name == name)


def without(run: Results, name: str) -> Results:
    return replace(run, stages=[stage for stage in run.stages if stage.name != name])


def test_ratios_are_above_one_for_faster_rows() -> None:
    run = sample.results()
    fast = row(run, "async")  # 20 ms, naive 40 ms, JAX 25 ms
    assert fast.versus_parent is not None
    assert fast.versus_parent.times == pytest.approx(2.0)
    assert fast.versus_naive == pytest.approx(2.0)
    assert fast.lead is not None
    assert fast.lead.reference.name == "jax-scan"
    assert fast.lead.ratio.times == pytest.approx(0.025 / 0.02)
    assert row(run, "torch-eager").versus_naive == pytest.approx(0.2)
    assert row(run, "naive").versus_parent is None
    assert row(without(run, "naive"), "async").versus_parent is None
    failed = row(sample.replace_stage(run, "naive", status="failed", reason="first update", metrics=None), "async")
    assert (failed.versus_parent, failed.versus_naive) == (None, None)
    assert failed.lead is not None


def processes_of(run: Results, name: str, *steps_us: float) -> Results:
    """The run with processes of these times of a step, and their median."""
    run = sample.with_processes(run, name, list(steps_us))
    shown = next(stage for stage in run.stages if stage.name == name)
    assert shown.timing is not None
    timing = Timing.of(
        shown.processes, epochs=shown.timing.epochs, steps_per_epoch=shown.timing.steps_per_epoch, shortened=False
    )
    return sample.replace_stage(run, name, timing=timing)


def test_one_process_of_a_rung_that_the_host_launches_shows_no_small_effect() -> None:
    run = processes_of(processes_of(sample.results(), "naive", 80.0), "async", 64.0)
    shown = row(run, "async").versus_parent
    assert shown is not None
    assert shown.is_noise
    assert shown.text == "1.25x, within noise"
    shown = row(processes_of(run, "async", 32.0), "async").versus_parent
    assert shown is not None
    assert not shown.is_noise


def test_a_run_says_why_no_rung_is_compared_with_a_reference() -> None:
    def said(*names: str) -> str:
        return yardsticks(replace(run, stages=[stage for stage in run.stages if stage.name in names]))

    run = sample.results()

    assert said("jax-scan", "numpy") == "No rung was timed, so none is compared."
    assert said("jax-scan", "sparse-metrics") == said("jax-scan")  # failed
    assert said("naive", "sparse-metrics") == said() == "No reference was timed in this run."
    assert said("naive", "torch-amp").startswith("No rung is compared with a reference: none with a time is as exact")
    assert said("naive", "jax-scan").startswith("Speedup over the fastest reference")


@pytest.mark.parametrize("status", ["failed", "crashed", "skipped"])
def test_a_row_that_did_not_pass_gets_no_time(status: str) -> None:
    shown = row(sample.replace_stage(sample.results(), "async", status=status, reason="because\nof this"), "async")
    assert (shown.epoch_s, shown.step_us, shown.prepare_s, shown.gpu_memory_mib) == (None, None, None, None)
    assert (shown.launches_per_step, shown.times_floor, shown.times_cheat_limit) == (None, None, None)
    assert (shown.versus_parent, shown.versus_naive, shown.lead) == (None, None, None)
    assert shown.verdict == f"{status}: because of this"


# What a run tells of energy, and of the time to an accuracy.


DRAWN = Energy(joules=0.4, watts=300.0, idle_w=120.0, seconds=5.1)
TARGET = 0.9


def measured() -> Results:
    """A run whose `async` and `cublas` were measured, and reach 90% after the third epoch and never."""
    run = sample.results()
    settings = replace(run.settings, energy=True, target_accuracy=TARGET)
    for name, best in (("async", 0.93), ("cublas", 0.89)):
        stage = next(stage for stage in run.stages if stage.name == name)
        first, *others = stage.processes
        assert stage.metrics is not None
        points = [LossPoint(epoch, 0.3, best - 0.1 / epoch) for epoch in range(1, 6)]
        run = sample.replace_stage(
            run,
            name,
            processes=[replace(first, energy=DRAWN), *others],
            metrics=replace(stage.metrics, validation=points),
        )
    return replace(run, settings=settings)


def test_a_rung_s_energy_is_told_beside_the_most_frugal_reference_s() -> None:
    run = measured()
    assert saving(run) == ""
    for name, spent in (("jax-scan", 1.2), ("torch-eager", 0.9)):
        (first,) = next(stage for stage in run.stages if stage.name == name).processes
        run = sample.replace_stage(run, name, processes=[replace(first, energy=replace(DRAWN, joules=spent))])
    run = sample.replace_stage(run, "torch-eager", precision="bfloat16")  # less exact, and so no reference of `async`
    said = (
        "`async` takes 0.4 J per epoch; 120 of its 300 W flow at rest too; "
        "`jax-scan`, the most frugal reference of the same precision or a higher one, takes 3.00 times as much"
    )
    assert saving(run) == said
    assert headline(run) == said.replace("`", "")


def stage(name: str) -> StageResult:
    return next(stage for stage in sample.results().stages if stage.name == name)


GENERATED = ["triton_tem_fused_addmm_t_0", "triton_tem_fused_mm_t_7", "triton_tem_fused_mm_sub_t_4", "triton_poi_2"]
GENERATED += [f"triton_per_fused__log_softmax_arange_eq_expand_nll_loss_sub_view_where_{number}" for number in (2, 15)]
GENERATED += [CUBLAS, CUBLAS.replace("execute_kernel", "execute_split_k_kernel")]
GENERATED += ["gemm_" + "x" * length for length in (40, 39)]


@pytest.mark.parametrize("limit", [18, 24, 36])
def test_no_two_kernels_of_a_table_have_one_name(limit: int) -> None:
    short = kernel_names(GENERATED, limit)
    assert list(short) == GENERATED
    assert len(set(short.values())) == len(GENERATED)
    assert max(map(len, short.values())) <= limit
    assert short["triton_poi_2"] == "triton_poi_2"


def test_kernels_that_begin_alike_show_their_differences() -> None:
    assert list(kernel_names(GENERATED[:3], 18).values()) == [
        "triton_t…addmm_t_0", "triton_tem…mm_t_7", "triton…mm_sub_t_4",
    ]  # fmt: skip


def busy(us: float, kernels: float = 8.0) -> Profile:
    return profile(Split(us, 0, 0, 50.0, 0), own_kernels(), tool="nsys", kernels_per_step=kernels)


@pytest.mark.parametrize(
    ("other", "same"), [(busy(30.0), True), (busy(31.5), True), (busy(31.7), False), (busy(28.4), False)]
)
def test_tools_agree_within_five_percent_of_the_busy_time(other: Profile, same: bool) -> None:
    one = profile(Split(30.0, 0, 0, 50.0, 0), own_kernels())
    assert agree(one, other) == agree(other, one) == same


def test_only_parts_that_have_effect_are_named() -> None:
    stages = {name: load_all()[name].stage for name in ("large-batch", "persistent-grid", "fused-head", "cpu-cores")}
    own = {name: [part.name for part in stage.parts if not part.replaced] for name, stage in stages.items()}
    alone, whole = ["data", "metrics", "launch"], [part.name for part in stages["fused-head"].parts]
    assert own == {"large-batch": alone, "persistent-grid": alone, "fused-head": whole, "cpu-cores": whole}
    for regime, name, known in (("graph", "large-batch", True), ("one kernel", "persistent-grid", False)):
        parts = [PartRecord(p.name, p.chosen, p.file, known and p.replaced) for p in stages[name].parts]
        run = sample.replace_stage(sample.results(), "cublas", recipe=parts, regime=regime)
        assert [part.name for part in resolved_recipe(run.stages[7], run)] == alone


def test_every_rung_of_ours_knows_the_files_of_its_parts() -> None:
    stage = load_all()["last-layer"].stage
    files = {part.name: part.file for part in stage.parts}
    assert files["launch"] == "stages/classic/cuda_graph.py"
    assert files["head"] == "stages/streamed/last_layer_head.py"
    assert len(files) == 8


def test_a_check_that_no_stage_had_marks_no_row_but_is_told_once() -> None:
    late = Check("late epoch, tensors", None, 0.0, passed=True, judged=False, note="an epoch takes too long to repeat")
    undecided = Check("weights", 1.0, 2.0, passed=True, note="bias[0]; float32 cannot decide here")
    run = sample.results()
    passed = [stage for stage in run.stages if stage.status == "passed"]
    for stage in passed:
        run = sample.replace_stage(run, stage.name, checks=[late, undecided])
    first, second = (replace(stage, checks=[late, undecided]) for stage in passed[:2])
    assert not lacks_a_check(first, run)
    assert passed_in_words(first, run) == "passed"
    assert [*not_made_in_words(run)] == [
        "1 check was made of no stage: an epoch takes too long to repeat.",
        'Rounding decides "weights", or a part of it, for every stage.',
    ]
    run = sample.replace_stage(run, second.name, checks=[])
    assert lacks_a_check(first, run)
    assert passed_in_words(first, run) == "passed, 1 check not made"
    assert not lacks_a_check(replace(second, checks=[]), run)
    assert not any("no stage" in told for told in not_made_in_words(run))
