from __future__ import annotations

import pytest
from msgspec.structs import replace

from ladder.records.run import Check, Results, Timing
from reports.facts.run_table import caption, title_of
from reports.facts.stage_facts import StageFacts, all_stage_facts
from reports.facts.warnings import notices
from tests.reports import recorded, sample


def row(run: Results, name: str) -> StageFacts:
    return next(row for row in all_stage_facts(run) if row.name == name)


def without(run: Results, name: str) -> Results:
    return replace(run, stages=[stage for stage in run.stages if stage.name != name])


def texts(run: Results) -> list[str]:
    return [notice.text for notice in notices(run)]


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


def test_the_caption_names_the_fastest_reference_of_each_class() -> None:
    run = sample.results()
    on_cpu = "torch-eager-cpu for float32 rows on the CPU"
    assert f": jax-scan for float32 rows and bf16/fp16 rows; {on_cpu}." in caption(run)
    failed = sample.replace_stage(run, "jax-scan", status="failed", reason="loss curve")
    assert (
        f": torch-eager for float32 rows; torch-amp for bf16/fp16 rows; {on_cpu}. jax-scan failed, and might have been "
        "faster."
    ) in caption(failed)
    crashed = sample.replace_stage(run, "torch-eager", status="crashed", reason="out of memory")
    assert caption(crashed).endswith("on the CPU. torch-eager crashed, and might have been faster.")
    skipped = sample.replace_stage(run, "torch-eager-cpu", status="skipped", reason="no wheel")
    assert not any("might have been faster" in caption(one) for one in (run, skipped))
    for name in ("torch-eager", "torch-eager-cpu", "torch-amp", "jax-scan", "numpy"):
        run = without(run, name)
    assert "No reference was timed" in caption(run)


def test_naive_is_compared_with_in_its_own_precision_alone() -> None:
    assert row(sample.results(), "bf16-gemm").versus_naive is None
    assert row(sample.results(), "torch-amp").versus_naive is None
    assert row(sample.results(), "numpy").versus_naive == pytest.approx(0.04 / 0.606)  # on another device
    assert "x of naive: the same against naive, in naive's precision only" in caption(sample.results())


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


@pytest.mark.parametrize("status", ["failed", "crashed", "skipped"])
def test_a_row_that_did_not_pass_gets_no_time(status: str) -> None:
    shown = row(sample.replace_stage(sample.results(), "async", status=status, reason="because\nof this"), "async")
    assert (shown.epoch_s, shown.step_us, shown.prepare_s, shown.gpu_memory_mib) == (None, None, None, None)
    assert (shown.launches_per_step, shown.times_floor, shown.times_cheat_limit) == (None, None, None)
    assert (shown.versus_parent, shown.versus_naive, shown.lead) == (None, None, None)
    assert shown.verdict == f"{status}: because of this"


def test_labels_say_where_a_reference_ran() -> None:
    run = sample.results()
    assert title_of(row(run, "numpy").stage) == "NumPy (CPU, 2 BLAS threads)"
    assert title_of(row(run, "torch-eager").stage) == "PyTorch eager (GPU)"
    assert title_of(row(run, "cublas").stage) == "cuBLAS GEMM"
    named = sample.replace_stage(run, "numpy", detail="CPU, 8 BLAS threads")
    assert title_of(row(named, "numpy").stage) == "NumPy (CPU, 8 BLAS threads)"


def test_other_data_has_a_loud_first_notice() -> None:
    first, *others = notices(sample.synthetic_results())
    assert first.loud
    assert "synthetic digits" in first.text
    assert "NOT MNIST; accuracies say nothing about MNIST" in first.text
    assert not any(notice.loud for notice in others)


def test_the_users_own_data_has_a_plain_notice() -> None:
    run = sample.results()
    problem = replace(run.problem, dataset="fashion", is_mnist=False, dataset_source="--data-dir")
    found = notices(replace(run, problem=problem))
    assert found[0].text == "The data is fashion (--data-dir), not MNIST."
    assert not any(notice.loud for notice in found)


@pytest.mark.parametrize(("factor", "told"), [(1.04, False), (0.96, False), (1.06, True), (0.8, True)])
def test_processes_that_disagree_share_a_notice(factor: float, told: bool) -> None:
    run = sample.results()
    for name in ("cublas", "async"):
        first, *_ = next(stage for stage in run.stages if stage.name == name).processes
        second = replace(first, round=1, runs_s=[seconds * factor for seconds in first.runs_s])
        run = sample.replace_stage(run, name, processes=[first, second])
    sentences = [text for text in texts(run) if "between the processes of" in text]
    gap = "6%" if factor == 1.06 else "25%"
    each = f"async ({gap}) and cublas ({gap})"
    expected = f"Times differ between the processes of {each}; ranges and verdicts allow for it."
    assert sentences == ([expected] if told else [])
    # A stage that did not pass has no times to disagree.
    failed = sample.replace_stage(run, "async", status="failed", reason="loss curve")
    assert not any("async and" in text for text in texts(failed))


def test_processes_with_different_details_have_a_notice() -> None:
    run = sample.results()
    (one,) = next(stage for stage in run.stages if stage.name == "numpy").processes
    for details, told in (
        (["CPU, 2 threads"] * 3, []),
        (["", "CPU, 2 threads"], []),  # resumed from a run without details
        (["2 threads", "1 thread", "2 threads"], ["The processes of numpy differ: 2 threads (2); 1 thread (1)."]),
    ):
        processes = [replace(one, round=i, detail=detail) for i, detail in enumerate(details)]
        found = texts(sample.replace_stage(run, "numpy", processes=processes))
        assert [text for text in found if "processes of numpy" in text] == told


def test_stages_that_were_shortened_alike_share_a_notice() -> None:
    naive = next(stage for stage in sample.results().stages if stage.name == "naive")
    assert naive.timing is not None
    timing = replace(naive.timing, shortened=True)
    run = sample.results()
    for name in ("naive", "async"):
        run = sample.replace_stage(run, name, timing=timing)
    assert any(text.startswith("naive and async were measured over 3 runs of 20 epochs") for text in texts(run))


def test_stages_that_share_a_reason_share_a_notice() -> None:
    found = texts(sample.synthetic_results())
    assert "naive and async skipped: no CUDA device" in found
    assert "This run measured no stage on a GPU." in found


def test_disturbed_processes_have_notices() -> None:
    run = sample.results()
    (calm,) = next(stage for stage in run.stages if stage.name == "naive").processes
    heat, load = (replace(calm, disturbed=[why]) for why in ("heat", "load"))
    found = texts(sample.replace_stage(run, "naive", processes=[calm, load], set_aside=[heat, load]))
    assert "2 processes (2 of naive) were disturbed, set aside and measured again. First: heat." in found
    assert "1 process (1 of naive) was disturbed but counts. Reason: load." in found
    assert not any("disturbed" in text for text in texts(run))


def test_checks_that_were_not_judged_have_a_notice() -> None:
    open_one = Check("loss curve", None, 0.0, passed=True, judged=False, note="float32 cannot decide here")
    run = sample.replace_stage(sample.results(), "naive", checks=[open_one])
    told = 'naive passed without the check "loss curve": float32 cannot decide here.'
    assert told in texts(run)
    assert told not in texts(sample.results())


def test_a_missed_precision_has_a_notice() -> None:
    run = recorded.run(recorded.stage("naive", recorded.times(50.0, scatter=0.1)), recorded.stage("async", [40.0] * 8))
    for precision, told in ((None, False), (0.2, False), (0.02, True)):
        asked = replace(run, settings=replace(run.settings, precision=precision))
        wide = [text for text in texts(asked) if "--precision" in text]
        assert bool(wide) == told
        assert all(text.startswith("naive: not known to 2% (--precision)") for text in wide)


def test_a_time_is_shown_as_a_multiple_of_both_floors() -> None:
    shown = row(sample.results(), "async")
    assert shown.step_us is not None
    assert shown.times_floor == pytest.approx(shown.step_us / 40)
    assert shown.times_cheat_limit == pytest.approx(shown.step_us / 0.5)
    reference = row(sample.results(), "jax-scan")
    assert reference.times_floor is None
    assert reference.times_cheat_limit is not None


def test_what_nvml_does_not_tell_is_said_once() -> None:
    run = sample.results()
    assert not any("NVML" in text for text in texts(run))
    partly = replace(run, environment={**run.environment, "gpu_does_not_tell": ["power", "throttling"]})
    (told,) = (text for text in texts(partly) if "NVML" in text)
    assert told == "NVML does not tell this GPU's power and throttling: a run cannot see what they would show."


def test_locked_clocks_and_other_clocks_have_a_notice() -> None:
    run = sample.results()
    for mhz, otherwise in ((1980, False), (1500, True)):
        locked = replace(run, settings=replace(run.settings, lock_clocks_mhz=mhz))
        (text,) = (text for text in texts(locked) if "--lock-clocks" in text)
        assert text.startswith(f"The GPU's SM clock was locked at {mhz:,} MHz (--lock-clocks)")
        assert ("async ran at 1,980 MHz" in text) == otherwise
    assert not any("--lock-clocks" in text for text in texts(run))
