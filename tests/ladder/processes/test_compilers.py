"""Compilers beside each other, before anything is measured: what is shown of them, and what they cost if they fail."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ladder.processes import compilers
from ladder.records.run import Results, StageResult, load
from tests.ladder.harness import NUMPY, Watcher, prepare

COMPILES = [f"tests.planted:{name}" for name in ("COMPILES", "COMPILES_TOO", "COMPILES_AS_WELL")]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where these stages find what they have compiled; of cores there are enough for three."""
    folder = tmp_path / "compiled"
    folder.mkdir()
    monkeypatch.setenv("COMPILED", str(folder))
    monkeypatch.setattr(compilers, "cores_usable", lambda: 6)
    return folder


def said(folder: Path, log: str) -> list[tuple[str, float, float]]:
    """What each trainer's build did, and from when to when."""
    lines = (line.split() for line in (folder / "logs" / f"{log}.log").read_text().splitlines())
    return [(did, float(begin), float(end)) for did, begin, end in lines]


def compiled(folder: Path) -> dict[str, tuple[float, float]]:
    """From when to when each stage that had a compiler was compiled by it."""
    names = [path.name.removesuffix(".compiling.log") for path in (folder / "logs").glob("*.compiling.log")]
    spans = {}
    for name in names:
        (did, begin, end), *splits = said(folder, f"{name}.compiling")
        assert (did, {did for did, _, _ in splits}) == ("compiled", {"found"})
        spans[name] = (begin, end)
    return spans


def most_at_once(spans: dict[str, tuple[float, float]]) -> int:
    return max(sum(begin <= moment < end for begin, end in spans.values()) for moment, _ in spans.values())


def test_stages_compile_side_by_side_before_anything_is_measured(tmp_path: Path) -> None:
    results = prepare(tmp_path, NUMPY, *COMPILES, rounds=2).run(Watcher())
    numpy, *stages = results.stages
    spans = compiled(tmp_path)
    assert set(spans) == {stage.name for stage in stages}
    assert most_at_once(spans) == 3
    for stage in stages:
        for round_ in (1, 2):
            seen = said(tmp_path, f"{stage.name}.{round_}")
            assert {did for did, _, _ in seen} == {"found"}
            assert seen[0][1] > max(end for _, end in spans.values())
        assert stage.compiled_s is not None
        assert stage.timing is not None
        assert stage.compiled_s == stage.timing.prepare_s > 0.5 > max(one.prepare_s for one in stage.processes)
    assert numpy.compiled_s is None
    assert load(tmp_path) == results


def test_a_stage_may_compile_its_first_updates_alone_apart_from_what_is_timed(tmp_path: Path) -> None:
    results = prepare(tmp_path, COMPILES[0], "tests.planted:COMPILES_FIRST_UPDATES", rounds=2).run(Watcher())
    stage = results.stages[1]
    assert stage.status == "passed"
    ahead, first, second = (
        [did for did, _, _ in said(tmp_path, f"{stage.name}.{log}")] for log in ("compiling", "1", "2")
    )
    assert ahead == ["compiled", "found", "found"]  # three splits
    assert first == ["compiled", "found", "found", "found"]  # the one that is timed, and those
    assert second == ["found"]
    assert stage.compiled_s == 0.0
    assert stage.timing is not None
    assert stage.timing.prepare_s == stage.processes[0].prepare_s > 0.5


@pytest.mark.parametrize(("cores", "at_once"), [(2, 0), (3, 0), (4, 2), (5, 2)])
def test_no_more_compile_at_once_than_there_are_cores_for(
    cores: int, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "cores_usable", lambda: cores)
    stages = prepare(tmp_path, *COMPILES).run(Watcher()).stages
    assert [stage.status for stage in stages] == ["passed"] * 3
    spans = compiled(tmp_path)
    assert len(spans) == (3 if at_once else 0)
    if at_once:
        assert most_at_once(spans) == at_once
    for stage in stages:
        assert stage.timing is not None
        assert stage.timing.prepare_s > 0.5  # wherever it was compiled


def test_a_compiler_alone_is_none(tmp_path: Path) -> None:
    prepare(tmp_path, NUMPY, COMPILES[0]).run(Watcher())
    assert compiled(tmp_path) == {}


def test_compilers_that_fail_or_hang_cost_time_alone(tmp_path: Path) -> None:
    failing = ["tests.planted:COMPILER_FAILS", "tests.planted:COMPILER_HANGS"]
    results = prepare(tmp_path, *failing, COMPILES[0], timeout_s=5.0).run(Watcher())
    assert [stage.status for stage in results.stages] == ["passed"] * 3
    assert [stage.compiled_s == 0.0 for stage in results.stages] == [True, True, False]
    for stage in results.stages:
        assert stage.timing is not None
        assert stage.timing.prepare_s > 0.5


def cut(results: Results, *left: int) -> Results:
    """The same, with so many processes left of each stage."""

    def of(stage: StageResult, count: int) -> StageResult:
        if count:
            return msgspec.structs.replace(stage, processes=stage.processes[:count])
        return msgspec.structs.replace(stage, status="skipped", timing=None, processes=[])

    stages = [of(stage, count) for stage, count in zip(results.stages, left, strict=True)]
    return msgspec.structs.replace(results, stages=stages)


def test_a_run_that_goes_on_does_not_compile_again_and_shows_what_it_took_then(tmp_path: Path) -> None:
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
