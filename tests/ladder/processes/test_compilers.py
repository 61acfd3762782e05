"""Compiling side by side while nothing is measured: what results record, and what a failure costs."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from ladder.measure.protocol import Job
from ladder.processes import worker_pool, worker_process
from ladder.records.run import Results, StageResult, load
from ladder.run import session
from ladder.run.bench import Bench
from ladder.study import study_session
from tests.ladder.harness import NUMPY, Watcher, prepare, small_problem

COMPILES = [f"tests.planted:{name}" for name in ("COMPILES", "COMPILES_TOO", "COMPILES_AS_WELL")]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which these stages keep compiled code; the machine has cores for three worker_pool."""
    folder = tmp_path / "compiled"
    folder.mkdir()
    monkeypatch.setenv("COMPILED", str(folder))
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(worker_pool, "cores_usable", lambda: 6)
    return folder


def builds(folder: Path, log: str) -> list[tuple[str, float, float]]:
    """What each build of a trainer did, with its start and end."""
    lines = (line.split() for line in (folder / "logs" / f"{log}.log").read_text().splitlines())
    return [(did, float(begin), float(end)) for did, begin, end in lines]


def compiled(folder: Path) -> dict[str, tuple[float, float]]:
    """Start and end of each stage's compilation ahead of the run."""
    names = [path.name.removesuffix(".compiling.log") for path in (folder / "logs").glob("*.compiling.log")]
    spans = {}
    for name in names:
        (did, begin, end), *splits = builds(folder, f"{name}.compiling")
        assert (did, {did for did, _, _ in splits}) == ("compiled", {"found"})
        spans[name] = (begin, end)
    return spans


def most_at_once(spans: dict[str, tuple[float, float]]) -> int:
    return max(sum(begin <= moment < end for begin, end in spans.values()) for moment, _ in spans.values())


def test_stages_compile_side_by_side_before_anything_is_measured_and_all_are_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "16")
    monkeypatch.setattr(worker_process, "StartedWorker", lambda *arguments: started.append(arguments))
    results = prepare(tmp_path, NUMPY, *COMPILES, rounds=2).run(Watcher())
    numpy, *stages = results.stages
    spans = compiled(tmp_path)
    assert set(spans) == {stage.name for stage in stages}
    assert most_at_once(spans) == 3
    for stage in stages:
        for round_ in (1, 2):
            seen = builds(tmp_path, f"{stage.name}.{round_}")
            assert {did for did, _, _ in seen} == {"found"}
            assert seen[0][1] > max(end for _, end in spans.values())
        assert stage.compiled_s is not None
        assert stage.timing is not None
        assert stage.compiled_s == stage.timing.prepare_s > 0.5
        assert (tmp_path / "compiled" / stage.name).read_text() == "1"  # for processes after those that compiled
    assert numpy.compiled_s is None
    assert [(stage.status, len(stage.processes)) for stage in results.stages] == [("passed", 2)] * 4
    assert started == []
    assert load(tmp_path) == results


def test_in_a_single_round_stages_compile_while_they_prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait, logs = worker_pool.Compilers.wait, [tmp_path / "logs" / f"{name}.1.log" for name in ("compiles", "marks")]
    monkeypatch.setattr(session, "side_by_side", lambda *_: 4)
    monkeypatch.setattr(Bench, "may_hold", lambda self, stage: stage.name != "numpy")

    def wait_for_both(self: worker_pool.Compilers) -> dict[str, float]:
        deadline = time.monotonic() + 60
        while not all(log.exists() and log.read_text() for log in logs) and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.append([log.exists() for log in logs])
        return wait(self)

    seen: list[list[bool]] = []
    monkeypatch.setattr(worker_pool.Compilers, "wait", wait_for_both)
    _, *stages, _ = prepare(tmp_path, NUMPY, *COMPILES, "tests.planted:MARKS").run(Watcher()).stages
    assert seen == [[True, True]]
    ended = max(builds(tmp_path, f"{stage.name}.compiling")[0][2] for stage in stages)
    for stage in stages:
        assert stage.status == "passed"
        _, *in_turn = builds(tmp_path, f"{stage.name}.1")
        assert {did for did, _, _ in in_turn} == {"found"}
        assert min(begin for _, begin, _ in in_turn) > ended
        assert stage.compiled_s is not None


def test_another_run_finds_compiled_stages_in_the_cache_and_compiles_nothing_ahead(tmp_path: Path) -> None:
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    for folder in (first, again, other):
        folder.mkdir()
    prepare(first, *COMPILES).run(Watcher())
    assert len(compiled(first)) == 3
    stages = prepare(again, *COMPILES).run(Watcher()).stages
    assert [(stage.status, stage.compiled_s) for stage in stages] == [("passed", None)] * 3
    assert compiled(again) == {}
    prepare(other, *COMPILES, problem=small_problem(batch_size=31)).run(Watcher())  # other shapes are compiled anew
    assert len(list((other / "logs").glob("*.compiling.log"))) == 3


def test_a_stage_may_compile_only_its_first_updates_ahead(tmp_path: Path) -> None:
    results = prepare(tmp_path, COMPILES[0], "tests.planted:COMPILES_FIRST_UPDATES", rounds=2).run(Watcher())
    stage = results.stages[1]
    assert stage.status == "passed"
    ahead, first, second = (
        [did for did, _, _ in builds(tmp_path, f"{stage.name}.{log}")] for log in ("compiling", "1", "2")
    )
    assert ahead == ["compiled", "found", "found"]  # three splits
    assert first == ["compiled", "found", "found", "found"]  # the timed trainer compiles, the first updates find theirs
    assert second == ["found"]
    assert stage.compiled_s == 0.0
    assert stage.timing is not None
    assert stage.timing.prepare_s == stage.processes[0].prepare_s > 0.5


@pytest.mark.parametrize(("cores", "at_once"), [(3, 0), (4, 2)])
def test_cores_limit_how_many_compile_at_once(
    cores: int, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_pool, "cores_usable", lambda: cores)
    stages = prepare(tmp_path, *COMPILES).run(Watcher()).stages
    assert [stage.status for stage in stages] == ["passed"] * 3
    spans = compiled(tmp_path)
    assert len(spans) == (3 if at_once else 0)
    if at_once:
        assert most_at_once(spans) == at_once
    for stage in stages:
        assert stage.timing is not None
        assert stage.timing.prepare_s > 0.5  # whether compiled ahead or when measured


def test_of_several_points_what_compiles_longest_begins_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def compilers(jobs: dict[str, Job], *_: object) -> nullcontext[SimpleNamespace]:
        begun.extend(jobs)
        return nullcontext(SimpleNamespace(names=[]))

    monkeypatch.setattr(study_session, "Compilers", compilers)
    runners = {
        name: prepare(tmp_path, *COMPILES[:2], problem=small_problem(hidden=hidden))
        for name, hidden in (("flat", ()), ("deep", (8, 8)))
    }
    study_session.compile_points(runners, tmp_path, 60.0, Watcher())
    assert begun == ["deep.compiles", "flat.compiles", "deep.compiles-too", "flat.compiles-too"]


@pytest.mark.parametrize("room", [0, 4])
def test_a_single_stage_is_compiled_ahead_only_beside_the_oracle(
    room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "side_by_side", lambda *_: room)
    prepare(tmp_path, NUMPY, COMPILES[0]).run(Watcher())
    assert len(compiled(tmp_path)) == bool(room)


def test_failing_or_hanging_compilers_cost_only_time(tmp_path: Path) -> None:
    failing = ["tests.planted:COMPILER_FAILS", "tests.planted:COMPILER_HANGS"]
    watcher = Watcher()
    results = prepare(tmp_path, *failing, COMPILES[0], timeout_s=5.0).run(watcher)
    assert "compiler-hangs.compiling: no answer for 1 s; it is ended after 5 s (--timeout)" in watcher.notes
    assert [stage.status for stage in results.stages] == ["passed"] * 3
    assert [stage.compiled_s == 0.0 for stage in results.stages] == [True, True, False]
    for stage in results.stages:
        assert stage.timing is not None
        assert stage.timing.prepare_s > 0.5


def cut(results: Results, *left: int) -> Results:
    """The results with only the first processes of each stage, as many as given."""

    def of(stage: StageResult, count: int) -> StageResult:
        if count:
            return replace(stage, processes=stage.processes[:count])
        return replace(stage, status="skipped", timing=None, processes=[])

    stages = [of(stage, count) for stage, count in zip(results.stages, left, strict=True)]
    return replace(results, stages=stages)


def test_a_resumed_run_does_not_compile_again_and_keeps_the_compile_times(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    first.mkdir()
    again.mkdir()
    whole = prepare(first, *COMPILES, rounds=2).run(Watcher())
    resumed = prepare(again, *COMPILES, known=cut(whole, 2, 1, 0)).run(Watcher())
    assert compiled(again) == {}
    for then, now in zip(whole.stages, resumed.stages, strict=True):
        assert then.timing is not None
        assert now.timing is not None
        assert len(now.processes) == 2
        assert (now.compiled_s, now.timing.prepare_s) == (then.compiled_s, then.timing.prepare_s)


def test_a_run_that_goes_on_beside_an_empty_cache_compiles_what_it_still_measures(tmp_path: Path, kept: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    first.mkdir()
    again.mkdir()
    whole = prepare(first, *COMPILES, "tests.planted:COMPILER_FAILS", rounds=3).run(Watcher())
    for file in (*kept.iterdir(), *(tmp_path / "cache" / "compiled").iterdir()):
        file.unlink()
    resumed = prepare(again, *COMPILES, "tests.planted:COMPILER_FAILS", known=cut(whole, 3, 1, 1, 1)).run(Watcher())
    logs = {path.name.partition(".")[0] for path in (again / "logs").glob("*.compiling.log")}
    assert logs == {"compiles-too", "compiles-as-well", "compiler-fails"}
    assert [len(stage.processes) for stage in resumed.stages] == [3] * 4
    for then, now in zip(whole.stages, resumed.stages, strict=True):
        assert then.compiled_s is not None
        assert now.compiled_s is not None
        assert now.compiled_s >= then.compiled_s  # the slower of two
