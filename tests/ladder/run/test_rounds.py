"""Which processes are repeated and which rounds are added; a script makes up the times of processes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from ladder.measure.protocol import salted_number
from ladder.records.exactness import clear, decided, settled
from ladder.records.limits_record import Chip, LimitsRecord, StepBounds
from ladder.records.run import Process, Results, StageResult, Status, load
from ladder.records.statistics import median_interval
from ladder.run import bounds, preflight
from ladder.run.orders import Orders
from ladder.run.stage_run import BUSY, StageRun
from ladder.verify.gates import SPEED_CHECK, check, verify_timer
from reports.facts.warnings import notices
from stages.engine.stage import Stage
from stages.registry import Entry, load_entry
from tests.ladder.fake_bench import Measure, Script
from tests.ladder.harness import NUMPY, Watcher, prepare

OTHER, CPU_RUNG = "tests.planted:CANNOT_VALIDATE", "stages.cpu.blas:STAGE"


def rounds(stage: StageResult) -> list[int]:
    return [process.round for process in stage.processes]


def half_width(stage: StageResult) -> float:
    return median_interval([process.runs_s[0] for process in stage.processes]).half_width


def scattered(name: str, round_: int, attempt: int) -> tuple[float, bool]:
    """Numpy varies little between rounds, the other stage by up to 10 %."""
    return 1.0 + (0.0001 if name == "numpy" else 0.1) * (round_ * 0.618 % 1), False


def attempts(*seconds_and_waits: tuple[float, float]) -> Measure:
    """The attempts at the second round; the first is calm."""
    return lambda name, round_, attempt: (seconds_and_waits[attempt][0], round_ and seconds_and_waits[attempt][1])


def behind(seconds: float, disturbed: bool = False) -> Measure:
    """Numpy takes so long, the other stage one second; first attempts may be disturbed."""
    return lambda name, round_, attempt: (seconds if name == "numpy" else 1.0, disturbed and not attempt)


def only(round_: int, name: str = "numpy") -> Measure:
    """Only the first attempt of a stage at this round is disturbed."""
    return lambda *asked: (1.0 + asked[2], asked == (name, round_, 0))


def calm(*_: object) -> tuple[float, bool]:
    return 1.0, False


def busy(*_: object) -> tuple[float, bool]:
    return 1.0, True


def numpys(name: str, *_: object) -> tuple[float, bool]:
    return 1.0, name == "numpy"


def from_third(name: str, round_: int, attempt: int) -> tuple[float, bool]:
    return 1.0 + 0.1 * round_, round_ > 1


def in_second(round_: int, attempt: int) -> bool:
    return (round_, attempt) == (1, 0)


def cut(whole: Results, count: int, status: Status = "passed") -> Results:
    """A run whose first stage has so many processes, and ended so."""
    first, *others = whole.stages
    timing, reason = (first.timing, None) if status == "passed" else (None, "killed")
    first = msgspec.structs.replace(
        first, processes=first.processes[:count], status=status, timing=timing, reason=reason
    )
    return msgspec.structs.replace(whole, stages=[first, *others])


def older(whole: Results) -> Results:
    """A crashed run whose record does not say how many epochs its runs had."""
    killed = cut(whole, 1, "crashed")
    process = msgspec.structs.replace(killed.stages[0].processes[0], epochs=None)
    return msgspec.structs.replace(killed, stages=[msgspec.structs.replace(killed.stages[0], processes=[process])])


@dataclass(frozen=True)
class Case:
    """What processes measure, the settings of their run, and what it goes on from, if it is resumed."""

    measure: Measure
    settings: dict[str, Any]
    stages: tuple[str, ...] = (NUMPY,)
    seconds_each: float = 0.0
    late: Callable[[int, int], bool] = lambda round_, attempt: False  # whether an attempt fails the timer check
    error: float = 0.0  # of the first update
    resumed: Callable[[Results], Results] | None = None


def late(measure: Measure, remeasure: int = 2, error: float = 0.0) -> Case:
    """Every attempt fails the timer check."""
    return Case(measure, {"rounds": 2, "remeasure": remeasure}, late=lambda *_: True, error=error)


def far(measure: Measure, total_s: float | None = 60.0, rounds: int = 2, other: str = OTHER, **more: Any) -> Case:
    """A run that has so many seconds."""
    return Case(measure, {"rounds": rounds, "remeasure": 2, "budget_total_s": total_s}, (NUMPY, other), **more)


def narrow(measure: Measure, precision: float, seconds_each: float = 0.0, rounds: int = 2, **settings: Any) -> Case:
    """A run that adds rounds."""
    return Case(measure, {"rounds": rounds, "precision": precision, **settings}, BOTH, seconds_each)


def resumed(count: int, change: Callable[[Results], Results], precision: float | None = None) -> Case:
    return Case(scattered, {"rounds": count, "precision": precision}, resumed=change)


BOTH = NUMPY, OTHER
TWICE, ONCE = ({"rounds": rounds, "remeasure": tries} for rounds, tries in ((2, 2), (3, 1)))
CASES = {
    "a disturbed process is repeated and set aside": Case(only(1), {"rounds": 3, "remeasure": 2}, BOTH),
    "the least disturbed attempt counts, although the slowest": Case(attempts((1, 0.5), (9, 0.2), (2, 0.9)), TWICE),
    "so does the first": Case(attempts((3, 0.2), (2, 0.5), (1, 0.9)), TWICE),
    "so does the last": Case(attempts((1, 0.9), (2, 0.5), (3, 0.2)), TWICE),
    "the latest of equals counts": Case(attempts((1, 0.9), (2, 0.9), (3, 0.9)), TWICE),
    "an attempt that failed the timer check is not kept": Case(attempts((1, 0.1), (2, 0.9)), ONCE, late=in_second),
    "one that fails only the timer check is repeated at once": Case(only(1), ONCE, late=in_second),
    "repeated, a timer failure counts, and the machine is busy": late(busy),
    "what disturbs may be unseen": late(calm),
    "a timer failure beside another counts": late(busy, error=9.0),
    "a verdict gets a second process though times get none": late(busy, remeasure=0),
    "no round starts when the time is up": narrow(scattered, 0.001, 10.0, time_cap_s=85.0),
    "the requested rounds start nevertheless": narrow(scattered, 0.001, 10.0, rounds=3, time_cap_s=1.0),
    "nothing is repeated after the time cap": narrow(from_third, 0.001, 1.0, time_cap_s=5.5, remeasure=2),
    "an added round that is disturbed is measured again": narrow(only(3), 0.01, remeasure=1),
    "measuring again takes at most half as long as the stages": far(numpys, None, 4, seconds_each=10.0),
    "on a busy machine nothing is measured again": far(busy, None),
    "resuming a finished run measures nothing": far(busy, None, resumed=lambda whole: whole),
    "a resumed run adds what its precision still lacks": resumed(2, lambda whole: cut(whole, 4), 0.01),
    "a resumed crashed stage keeps its processes": resumed(3, lambda whole: cut(whole, 2, status="crashed")),
    "a crashed stage of an older version is measured anew": resumed(2, older),
    "a resumed run does not retry a failed stage": resumed(2, lambda whole: cut(whole, 2, status="failed")),
    "a reference far behind another is measured once where time is short": far(behind(3.1)),
    "also of a resumed run": far(behind(3.1), resumed=lambda whole: whole),
    "one not so far behind is not": far(behind(2.9)),
    "with time enough it is not": far(behind(3.1), None),
    "one that the fastest rung leaves behind is measured once": far(behind(2.5), other=CPU_RUNG),
    "one nearer to the fastest rung is not": far(behind(1.6), other=CPU_RUNG),
    "with time enough neither is it": far(behind(2.5), None, other=CPU_RUNG),
    "nor where three rounds are asked for": far(behind(2.5), rounds=3, other=CPU_RUNG),
    "far behind, a disturbed one is not repeated": far(behind(9.0, disturbed=True), rounds=1),
}
TOLD = dict(line.split(": ", 1) for line in Path(__file__).with_name("rounds.txt").read_text().splitlines())
"""What comes of each."""


def told(watcher: Watcher, stages: list[StageResult]) -> str:
    """The processes in order, the time of each as it was told, times the first, and those that each stage keeps."""

    def kept(processes: list[Process]) -> str:
        return " ".join(f"{one.round}={one.runs_s[0]:.3g}{'*' * bool(one.disturbed)}" for one in processes)

    def became(stage: StageResult) -> str:
        reason = "busy" if (stage.reason or "").startswith(BUSY) else (stage.reason or "").partition(":")[0]
        aside = f" aside {kept(stage.set_aside)}" if stage.set_aside else ""
        how = [stage.status, reason, *([f"once {stage.crashed_before}"] if stage.crashed_before else [])]
        return f"{' '.join(filter(None, how))} {kept(stage.processes)}{aside}"

    asked = [
        f"{name[0]}{round_ - 1}{f':{attempt}/{attempts}' * (attempt > 1)}"
        for name, round_, attempt, attempts in watcher.tries
    ]
    first = next((step_us for step_us, _ in watcher.steps if step_us), 1.0)
    heard = [f"{step_us / first:.3g}{'*' * mark}" if step_us else f"-{'*' * mark}" for step_us, mark in watcher.steps]
    out = [f"out {name}" for name in watcher.left_out]
    notes = [note.partition(": other")[0] for note in watcher.notes]
    return " | ".join([" ".join(asked), " ".join(heard), *map(became, stages), *out, *notes])


@pytest.mark.parametrize("name", CASES)
def test_what_comes_of_a_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    script = Script(
        monkeypatch,
        case.measure,
        case.seconds_each,
        lambda *asked: [verify_timer(9.0 if case.late(*asked) else 0.0), check("first update", case.error, 1.0)],
    )
    whole = results = script.prepare(tmp_path, *case.stages, **case.settings).run(watcher := Watcher())
    if case.resumed is not None:
        script.asked.clear()
        known = case.resumed(whole)
        results = script.prepare(tmp_path, *case.stages, known=known).run(watcher := Watcher())
        unmarked = [msgspec.structs.replace(stage, crashed_before="") for stage in results.stages]
        assert (unmarked == whole.stages) == (known.stages[0].status != "failed")
        assert script.prepare(tmp_path, *case.stages, known=results).run(Watcher()).stages == results.stages
        once = "numpy crashed once and continued with --resume: killed" in [notice.text for notice in notices(results)]
        assert once == (known.stages[0].status == "crashed")
    assert told(watcher, results.stages) == TOLD[name]
    assert load(tmp_path).stages == results.stages
    for stage in results.stages:
        assert stage.timing is None or stage.timing.runs_s == [process.runs_s[0] for process in stage.processes]


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


def test_a_run_says_how_long_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, calm, seconds_each=2.0)
    script.now_s, script.measuring_s["numpy"] = 50.0, 0.5
    results = script.prepare(tmp_path, NUMPY, OTHER).run(Watcher())
    assert results.seconds == 4.0
    assert [stage.processes[0].took_s["start and end"] for stage in results.stages] == [1.5, 2.0]


def test_an_epoch_takes_a_run_by_its_epochs_and_a_step_an_epoch_by_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, lambda *_: (3.0, False))
    (stage,) = script.prepare(tmp_path, NUMPY).run(Watcher()).stages
    assert stage.timing is not None
    assert (stage.timing.epochs, stage.timing.epoch_s.median) == (2, 1.5)
    assert stage.timing.step_us == pytest.approx(1.5e6 / stage.timing.steps_per_epoch)


@pytest.mark.parametrize("environment", [{}, {"gpu": {"name": "a GPU"}}])
def test_a_time_that_no_cpu_can_have_fails_its_row(
    environment: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, lambda name, *_: (1e-12 if name == "numpy" else 1.0, False))
    numpy, other = script.prepare(tmp_path, NUMPY, OTHER, environment=environment).run(Watcher()).stages
    assert (numpy.status, other.status) == ("failed", "passed")
    assert re.match(rf"{SPEED_CHECK}: error \d", f"{numpy.reason}")


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


def test_a_run_that_trains_nothing_records_no_salt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, calm)
    assert script.prepare(tmp_path, "tests.planted:NEEDY").run(Watcher()).settings.salt == 0


def test_a_stage_that_failed_without_a_check_is_not_measured_again() -> None:
    stage = StageRun(load_entry(NUMPY), 1)
    stage.status = "failed"  # as one that overwrote the data
    assert not stage.should_repeat_timer_failure(0, 3)


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
        for name in ("eager", "quick", "slow", "fast", "half", "unknown", "mine")
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
    stages.append(bf16)
    assert decided(stages) == set()  # the fastest of its class, to which a float32 reference counts too
    assert decided(stages[1:2]) == set()


@pytest.mark.parametrize(
    ("changes", "is_clear"),
    [
        ({}, True),
        ({"parent": 5.4}, False),
        ({"child": 5.4}, False),
        ({"reference": 5.4}, False),
        ({"reference": 5.4, "precision": "float16"}, True),  # of a reference, which is no match for float32
        ({"best": 4.6, "child": 9.0}, False),
        ({"own": 4.0}, False),  # the fastest itself
        ({"regime": "host"}, False),
        ({"device": "cpu"}, False),
    ],
    ids=str,
)
def test_a_rung_far_from_all_that_it_is_compared_with_needs_no_second_process(
    changes: dict[str, Any], is_clear: bool
) -> None:
    us = {"parent": 9.0, "own": 5.0, "child": 4.0, "best": 3.0, "reference": 50.0} | changes
    stages: list[Any] = [
        SimpleNamespace(
            name=name,
            below={"own": "parent", "child": "own"}.get(name),
            group="reference" if name == "reference" else "ladder",
            precision=changes.get("precision", "float32") if name == "reference" else "float32",
            device=changes.get("device", "gpu"),
            regime=changes.get("regime", "graph"),
            timing=SimpleNamespace(step_us=us[name]),
        )
        for name in ("parent", "own", "child", "best", "reference")
    ]
    if changes == {"own": 4.0}:
        del stages[2:4]
    assert ("own" in clear(stages)) == is_clear
    assert "own" not in settled(stages, own={"own"})
