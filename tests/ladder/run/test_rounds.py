"""Which processes are repeated and which rounds are added; a script makes up the times of processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from ladder.measure.protocol import salted_number
from ladder.records.exactness import decided
from ladder.records.limits_record import Chip, LimitsRecord, StepBounds
from ladder.records.run import StageResult, load
from ladder.records.statistics import median_interval
from ladder.run import bounds, preflight
from ladder.run.orders import Orders
from ladder.run.stage_run import BUSY, StageRun
from ladder.verify.gates import TIMER_CHECK, check, verify_timer
from reports.facts.warnings import notices
from stages.engine.stage import Stage
from stages.registry import Entry, load_entry
from tests.ladder.fake_bench import Script
from tests.ladder.harness import NUMPY, Watcher, prepare

OTHER, CPU_RUNG = "tests.planted:CANNOT_VALIDATE", "stages.cpu.blas:STAGE"


def rounds(stage: StageResult) -> list[int]:
    return [process.round for process in stage.processes]


def half_width(stage: StageResult) -> float:
    return median_interval([process.runs_s[0] for process in stage.processes]).half_width


def test_the_gpu_s_limits_come_after_the_first_rows_and_fail_those_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, lambda name, round_, attempt: (1.0, False), device="gpu")
    script.limits = LimitsRecord(Chip(1, 1, 1), [], {}, 1.0)

    def bounded(_: LimitsRecord, stage: Stage, *rest: object) -> StepBounds:
        return StepBounds(1e9 if stage.name == "numpy" else 0.0, None)

    monkeypatch.setattr(bounds, "keep_limits", lambda *_: None)
    for module in (preflight, bounds):
        monkeypatch.setattr(module, "missing", lambda needs: None)
    monkeypatch.setattr("ladder.run.bounds.bounds_of", bounded)
    entry = load_entry(NUMPY)
    on_gpu = replace(entry, stage=replace(entry.stage, needs=("cuda",)))
    watcher, environment = Watcher(), {"gpu": {"name": "a GPU"}}
    numpy, other = script.prepare(tmp_path, on_gpu, OTHER, rounds=2, environment=environment).run(watcher).stages
    assert script.limits_after == [2]  # once
    assert [status for _, status, _ in watcher.finished] == ["passed"] * 3
    assert (numpy.status, rounds(numpy), rounds(other)) == ("failed", [0], [0, 1])
    assert watcher.notes == [f"numpy: {numpy.reason}"]


def test_a_disturbed_process_is_repeated_and_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(
        monkeypatch, lambda name, round_, attempt: (1.0 + attempt, (name, round_, attempt) == ("numpy", 1, 0))
    )
    watcher = Watcher()
    numpy, other = script.prepare(tmp_path, NUMPY, OTHER, rounds=3, remeasure=2).run(watcher).stages
    assert script.asked[6:] == [("numpy", 1)]
    assert (rounds(numpy), rounds(other)) == ([0, 1, 2], [0, 1, 2])
    assert [process.runs_s for process in numpy.processes] == [[1.0], [2.0], [1.0]]
    assert [(process.round, process.runs_s) for process in numpy.set_aside] == [(1, [1.0])]
    assert numpy.set_aside[0].disturbed == ["waited for a busy core for 100% of the time that it wanted one"]
    assert numpy.timing is not None
    assert numpy.timing.runs_s == [1.0, 2.0, 1.0]
    assert watcher.tries[-1] == ("numpy", 2, 2, 3)
    assert [attempt for *_, attempt, _ in watcher.tries[:-1]] == [1] * 6
    assert load(tmp_path).stages[0] == numpy


@pytest.mark.parametrize(
    ("waited", "times", "kept"),
    [
        ((0.5, 0.2, 0.9), (1.0, 9.0, 2.0), 1),  # the least disturbed attempt, although it is the slowest
        ((0.2, 0.5, 0.9), (3.0, 2.0, 1.0), 0),
        ((0.9, 0.5, 0.2), (1.0, 2.0, 3.0), 2),
        ((0.9, 0.9, 0.9), (1.0, 2.0, 3.0), 2),  # the latest of equals
    ],
)
def test_of_disturbed_attempts_the_least_disturbed_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: tuple[float, ...], times: tuple[float, ...], kept: int
) -> None:
    script = Script(monkeypatch, lambda name, round_, attempt: (times[attempt], waited[attempt] if round_ else False))
    (stage,) = script.prepare(tmp_path, NUMPY, rounds=2, remeasure=2).run(Watcher()).stages
    assert [process.runs_s for process in stage.processes] == [[times[0]], [times[kept]]]
    assert stage.processes[1].disturbed == [
        f"waited for a busy core for {waited[kept]:.0%} of the time that it wanted one"
    ]
    assert sorted(process.runs_s[0] for process in stage.set_aside) == sorted({*times} - {times[kept]})
    assert all(process.disturbed for process in stage.set_aside)
    assert load(tmp_path).stages[0] == stage


def test_every_process_is_told_with_its_own_time_and_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = (0.5, 0.2, 0.9)
    script = Script(
        monkeypatch, lambda name, round_, attempt: (1.0 + attempt + round_, waited[attempt] if round_ else False)
    )
    watcher = Watcher()
    script.prepare(tmp_path, NUMPY, rounds=2, remeasure=2).run(watcher)
    first = watcher.steps[0][0]
    assert first is not None
    assert watcher.steps == [(first, False)] + [(pytest.approx(factor * first), True) for factor in (2.0, 3.0, 4.0)]
    assert watcher.notes == [
        "at most 2 more tries of each; Ctrl-C keeps what is measured",
        "at most 1 more try of each; Ctrl-C keeps what is measured",
    ]


def test_an_attempt_that_failed_the_timer_check_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(
        monkeypatch,
        lambda name, round_, attempt: (1.0 + attempt, (0.1, 0.9)[attempt] if round_ else False),
        checks=lambda round_, attempt: [verify_timer(9.0 if (round_, attempt) == (1, 0) else 0.0)],
    )
    (stage,) = script.prepare(tmp_path, NUMPY, rounds=2, remeasure=1).run(Watcher()).stages
    assert (stage.status, [process.runs_s for process in stage.processes]) == ("passed", [[1.0], [2.0]])


def test_a_disturbed_process_that_fails_only_the_timer_check_is_repeated_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(
        monkeypatch,
        lambda name, round_, attempt: (1.0, (round_, attempt) == (1, 0)),
        checks=lambda round_, attempt: [verify_timer(9.0 if (round_, attempt) == (1, 0) else 0.0)],
    )
    (stage,) = script.prepare(tmp_path, NUMPY, rounds=3, remeasure=1).run(Watcher()).stages
    assert [round_ for _, round_ in script.asked] == [0, 1, 1, 2]
    assert (stage.status, stage.reason, rounds(stage)) == ("passed", None, [0, 1, 2])
    assert [process.round for process in stage.set_aside] == [1]
    assert [one for one in stage.checks if one.what == TIMER_CHECK] == [verify_timer(0.0)]


def test_a_timer_failure_counts_if_repeated_or_not_the_only_one_and_says_that_the_machine_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for disturbed, more, remeasure, attempts, said in [
        (True, 0.0, 2, 3, BUSY),
        (False, 0.0, 2, 2, TIMER_CHECK),  # what disturbs may be unseen
        (True, 9.0, 2, 1, TIMER_CHECK),
        (True, 0.0, 0, 2, BUSY),  # a verdict gets a second process though times get none
    ]:
        checks = [verify_timer(9.0), check("first update", more, 1.0)]
        script = Script(monkeypatch, lambda *_, seen=disturbed: (1.0, seen), checks=lambda *_, found=checks: found)
        (stage,) = script.prepare(tmp_path, NUMPY, rounds=2, remeasure=remeasure).run(Watcher()).stages
        assert (len(script.asked), stage.status) == (attempts, "failed")
        assert (stage.reason or "").startswith(said)


def test_a_stage_that_failed_without_a_check_is_not_measured_again() -> None:
    stage = StageRun(load_entry(NUMPY), 1)
    stage.status = "failed"  # as one that overwrote the data
    assert not stage.should_repeat_timer_failure(0, 3)


def scattered(name: str, round_: int, attempt: int) -> tuple[float, bool]:
    """Numpy varies little between rounds, the other stage by up to 10 %."""
    return 1.0 + (0.0001 if name == "numpy" else 0.1) * (round_ * 0.618 % 1), False


def test_rounds_are_added_until_the_last_interval_is_narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, scattered)
    numpy, other = script.prepare(tmp_path, NUMPY, OTHER, rounds=2, precision=0.02).run(Watcher()).stages
    assert rounds(numpy) == list(range(8))  # fewer than eight never have a narrow interval
    assert len(rounds(other)) > 8
    assert rounds(other) == list(range(len(rounds(other))))
    assert script.asked[:16] == [(name, round_) for round_ in range(8) for name in ("numpy", "cannot-validate")]
    assert script.oracles == [salted_number(0, 1000 * round_) for round_ in rounds(other)]  # each once
    assert half_width(numpy) < half_width(other) <= 0.02
    earlier = msgspec.structs.replace(other, processes=other.processes[:-1])
    assert half_width(earlier) > 0.02  # one round fewer was not enough


@pytest.mark.parametrize(("requested", "cap_s", "asked"), [(2, 85.0, 9), (3, 1.0, 6)])
def test_rounds_end_when_the_time_is_up_after_the_requested_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requested: int, cap_s: float, asked: int
) -> None:
    script = Script(monkeypatch, scattered, seconds_each=10.0)
    script.prepare(tmp_path, NUMPY, OTHER, rounds=requested, precision=0.001, time_cap_s=cap_s).run(Watcher())
    assert len(script.asked) == asked  # the one started at 80 s finishes, and no other starts


def test_an_added_round_that_is_disturbed_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, lambda name, round_, attempt: (1.0, round_ == 3 and attempt == 0))
    (stage,) = script.prepare(tmp_path, NUMPY, rounds=2, precision=0.01, remeasure=1).run(Watcher()).stages
    assert [round_ for _, round_ in script.asked] == [0, 1, 2, 3, 3, 4, 5, 6, 7]
    assert (sorted(rounds(stage)), [process.round for process in stage.set_aside]) == ([0, 1, 2, 3, 4, 5, 6, 7], [3])


def test_a_resumed_run_adds_what_its_precision_still_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, scattered)
    whole = script.prepare(tmp_path, NUMPY, rounds=2, precision=0.01).run(Watcher())
    cut = msgspec.structs.replace(whole.stages[0], processes=whole.stages[0].processes[:4])
    script.asked.clear()
    again = script.prepare(tmp_path, NUMPY, known=msgspec.structs.replace(whole, stages=[cut])).run(Watcher())
    assert script.asked == [("numpy", round_) for round_ in range(4, 8)]
    assert again.stages == whole.stages


def crashed(stage: StageResult, rounds: int) -> StageResult:
    """The stage of a run that was killed after this many rounds."""
    processes = stage.processes[:rounds]
    return msgspec.structs.replace(stage, status="crashed", reason="killed", processes=processes, timing=None)


def test_a_resumed_crashed_stage_keeps_its_processes_and_records_the_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, scattered)
    whole = script.prepare(tmp_path, NUMPY, rounds=3).run(Watcher())
    (stage,) = whole.stages
    script.asked.clear()
    killed = msgspec.structs.replace(whole, stages=[crashed(stage, 2)])
    again = script.prepare(tmp_path, NUMPY, known=killed).run(Watcher())
    assert script.asked == [("numpy", 2)]
    assert again.stages == [msgspec.structs.replace(stage, crashed_before="killed")]
    assert "numpy crashed once and continued with --resume: killed" in [notice.text for notice in notices(again)]
    assert script.prepare(tmp_path, NUMPY, known=again).run(Watcher()).stages == again.stages


def test_a_crashed_stage_of_an_older_version_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, scattered)
    whole = script.prepare(tmp_path, NUMPY, rounds=2).run(Watcher())
    killed = crashed(whole.stages[0], 1)
    old = msgspec.structs.replace(killed, processes=[msgspec.structs.replace(killed.processes[0], epochs=None)])
    script.asked.clear()
    again = script.prepare(tmp_path, NUMPY, known=msgspec.structs.replace(whole, stages=[old])).run(Watcher())
    assert script.asked == [("numpy", 0), ("numpy", 1)]
    assert (again.stages[0].status, again.stages[0].crashed_before) == ("passed", "killed")


def test_a_resumed_run_does_not_retry_a_failed_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, scattered)
    whole = script.prepare(tmp_path, NUMPY, rounds=2).run(Watcher())
    wrong = msgspec.structs.replace(whole.stages[0], status="failed", reason="first update", timing=None)
    script.asked.clear()
    again = script.prepare(tmp_path, NUMPY, known=msgspec.structs.replace(whole, stages=[wrong])).run(Watcher())
    assert (script.asked, again.stages) == ([], [wrong])


def test_nothing_is_repeated_after_the_time_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, lambda name, round_, attempt: (1.0 + 0.1 * round_, round_ > 1), seconds_each=1.0)
    script.prepare(tmp_path, NUMPY, rounds=2, precision=0.001, time_cap_s=3.0, remeasure=2).run(Watcher())
    assert script.asked == [("numpy", 0), ("numpy", 1), ("numpy", 2)]


def test_on_a_busy_machine_nothing_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, watcher = Script(monkeypatch, lambda name, round_, attempt: (1.0, True)), Watcher()
    results = script.prepare(tmp_path, NUMPY, OTHER, rounds=2, remeasure=2).run(watcher)
    assert len(script.asked) == 4
    assert [note for note in watcher.notes if note.startswith("this machine is busy")]
    assert [(len(stage.processes), stage.set_aside) for stage in results.stages] == [(2, [])] * 2
    script.prepare(tmp_path, NUMPY, OTHER, known=results).run(watcher)
    assert len(script.asked) == 4  # resuming a finished run measures nothing


def test_measuring_again_takes_at_most_half_as_long_as_the_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, lambda name, round_, attempt: (1.0, name == "numpy"), seconds_each=10.0)
    script.prepare(tmp_path, NUMPY, OTHER, rounds=4, remeasure=2).run(Watcher())
    assert len(script.asked) == 8 + 4  # 80 s for all, then 40 s for numpy's; the second try finds no time


@pytest.mark.parametrize(
    ("total", "spent", "budgets"),
    [
        (None, (1.0, 1.0), (10.0, 10.0)),
        (30.0, (0.5, 9.0), (10.0, 10.0)),  # what the first leaves, the second may use
        (12.0, (5.0, 1.0), (6.0, 2.0)),  # 5 s a round are 10 s in two
        (12.0, (6.5, 1.0), (6.0, 0.1)),
    ],
)
def test_the_runs_budget_is_shared_out_by_need(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    total: float | None,
    spent: tuple[float, float],
    budgets: tuple[float, float],
) -> None:
    script = Script(monkeypatch, lambda name, round_, attempt: (1.0, False))
    script.measuring_s = dict(zip(("numpy", "cannot-validate"), spent, strict=True))
    script.prepare(tmp_path, NUMPY, OTHER, rounds=2, budget_s=10.0, budget_total_s=total).run(Watcher())
    assert script.budgets == [pytest.approx(budget / 2) for budget in budgets] + [None, None]


@pytest.mark.parametrize(
    ("seconds", "limits", "asked"),
    [
        ((3.1, 1.0), {"budget_total_s": 60.0}, [("numpy", 0), ("cannot-validate", 0), ("cannot-validate", 1)]),
        ((2.9, 1.0), {"budget_total_s": 60.0}, [(name, r) for r in (0, 1) for name in ("numpy", "cannot-validate")]),
        ((3.1, 1.0), {}, [(name, r) for r in (0, 1) for name in ("numpy", "cannot-validate")]),
    ],
)
def test_a_reference_far_behind_another_is_measured_once_where_time_is_short(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds: tuple[float, float],
    limits: dict[str, Any],
    asked: list[tuple[str, int]],
) -> None:
    took = dict(zip(("numpy", "cannot-validate"), seconds, strict=True))
    script, watcher = Script(monkeypatch, lambda name, round_, attempt: (took[name], False)), Watcher()
    results = script.prepare(tmp_path, NUMPY, OTHER, rounds=2, **limits).run(watcher)
    assert script.asked == asked  # the disturbed process included, which is not repeated
    assert watcher.left_out == (["numpy"] if len(asked) == 3 else [])
    script.prepare(tmp_path, NUMPY, OTHER, rounds=2, known=results).run(watcher)  # a resumed run leaves it out as well
    assert script.asked == asked


@pytest.mark.parametrize(
    ("rung_s", "limits", "asked_again"),
    [
        (0.4, {"budget_total_s": 60.0}, [1]), (0.6, {"budget_total_s": 60.0}, [0, 1]), (0.4, {}, [0, 1]),
        (0.4, {"budget_total_s": 60.0, "rounds": 3}, [0, 1, 0, 1]),
    ],
)  # fmt: skip
def test_a_reference_that_the_fastest_rung_leaves_behind_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rung_s: float, limits: dict[str, Any], asked_again: list[int]
) -> None:
    stages = [NUMPY, CPU_RUNG]
    took = {"numpy": 1.0, "cpu-blas": rung_s}
    script, watcher = Script(monkeypatch, lambda name, round_, attempt: (took[name], False)), Watcher()
    results = script.prepare(tmp_path, *stages, **{"rounds": 2, **limits}).run(watcher)
    names = list(took)
    assert [names.index(name) for name, round_ in script.asked if round_] == asked_again
    assert watcher.left_out == (["numpy"] if asked_again == [1] else [])
    assert [len(stage.processes) for stage in results.stages][1] == 1 + asked_again.count(1)


def test_what_decides_is_measured_first(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"quick": 9.0, "slow": 5.0, "fast": 2.0, "half": 1.0, "eager": 90.0}
    monkeypatch.setattr(
        "ladder.run.orders.expectations", lambda *_: {name: SimpleNamespace(us=us) for name, us in expected.items()}
    )
    kinds = {"eager": "reference", "quick": "reference", "unknown": "beyond", "mine": "own"}
    stages = [
        SimpleNamespace(
            name=name,
            processes=[],
            needs_round=lambda _: True,
            entry=SimpleNamespace(
                is_ours=name != "mine",
                stage=SimpleNamespace(
                    group=kinds.get(name, "ladder"), precision="bfloat16" if name == "half" else "float32"
                ),
            ),
        )
        for name in ("eager", "quick", "slow", "half", "fast", "unknown", "mine")
    ]
    problem, settings = SimpleNamespace(epochs=1, networks=1), SimpleNamespace(repeats=1, warmups=1)
    jury = cast(Any, SimpleNamespace(problem=problem, steps=1))
    for memory, names in (
        (1.0, ["mine", "half", "fast", "quick", "unknown", "eager", "slow"]),
        (None, [stage.name for stage in stages]),
    ):
        ledger = cast(Any, SimpleNamespace(stages=stages, settings=settings, gpu_memory_mib=memory))
        assert [stage.name for stage in Orders(ledger, jury).due(0)] == names


def test_a_stage_of_one_s_own_near_a_reference_has_it_measured_in_every_round() -> None:
    fast, slow, own = (
        SimpleNamespace(name=name, group=group, precision="float32", timing=SimpleNamespace(step_us=us))
        for name, group, us in (("rung", "ladder", 1.0), ("reference", "reference", 5.0), ("mine", "own", 6.0))
    )
    stages: list[Any] = [fast, slow, own]
    assert decided(stages) == {"reference"}
    assert decided(stages, own={"mine"}) == set()
    bf16 = SimpleNamespace(name="bf16", group="ladder", precision="bfloat16", timing=SimpleNamespace(step_us=4.0))
    assert decided([*stages, bf16]) == set()  # the fastest of its class, to which a float32 reference counts too
    assert decided([slow]) == set()


def test_a_reference_far_behind_another_is_not_repeated_when_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took = {"numpy": 9.0, "cannot-validate": 1.0}
    script = Script(monkeypatch, lambda name, round_, attempt: (took[name], attempt == 0))
    script.prepare(tmp_path, NUMPY, OTHER, rounds=1, remeasure=2, budget_total_s=60.0).run(Watcher())
    assert script.asked == [("numpy", 0), ("cannot-validate", 0), ("cannot-validate", 0)]


def test_a_stage_of_one_s_own_is_measured_in_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Entry, "is_ours", property(lambda entry: entry.stage.name != "numpy"))
    took = {"numpy": 9.0, "cannot-validate": 1.0}
    script = Script(monkeypatch, lambda name, round_, attempt: (took[name], False))
    script.prepare(tmp_path, NUMPY, OTHER, rounds=2, budget_total_s=60.0).run(Watcher())
    assert script.asked == [(name, round_) for round_ in (0, 1) for name in took]


def test_energy_is_measured_in_the_first_round_alone_and_only_if_asked_for(tmp_path: Path) -> None:
    for asked in (False, True):
        runner = prepare(tmp_path, NUMPY, rounds=2, energy=asked)
        runner.orders.dataset = tmp_path
        (stage,) = runner.ledger.stages
        assert [runner.orders.order(stage, round_).job.energy for round_ in range(2)] == [asked, False]
