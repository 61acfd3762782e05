from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from ladder.records.run import StageCode, StageResult, save
from reports.markdown.readme import recorded_code_block
from tests.reports import sample

CODE, OTHER = StageCode("a", None, scheme=2), StageCode("a", "b", scheme=2)


def row_of(
    reference: Path, run: str, *stages: StageResult, today: dict[str, StageCode], created: str = ""
) -> list[str]:
    (reference / run).mkdir(parents=True)
    run_then = replace(sample.results(), stages=list(stages), created=created or sample.results().created)
    save(run_then, reference / run / "results.json")
    *_, row = recorded_code_block(reference, today).splitlines()
    return [cell.strip() for cell in row.strip("|").split("|")]


def passed(code: StageCode | None, *names: str) -> list[StageResult]:
    stage = next(stage for stage in sample.results().stages if stage.status == "passed")
    return [replace(stage, name=name, code=code) for name in names]


def test_what_passed_is_counted_and_what_ran_other_code_is_named(tmp_path: Path) -> None:
    today = {"naive": CODE, "async": CODE, "cublas": CODE}
    skipped = replace(passed(OTHER, "cublas")[0], status="skipped", timing=None)
    *machine, rows, same = row_of(
        tmp_path / "same", "h200/hidden-256", *passed(CODE, "naive", "async"), skipped, today=today
    )
    day = sample.results().created[:10]
    assert (machine[2:], rows, same) == ([day, "784-256-10"], "2", "all")
    assert machine[1] in sample.results().environment["code"]["git_commit"]
    stages = [*passed(OTHER, "naive"), *passed(None, "async"), *passed(CODE, "gone", "cublas")]
    *_, rows, same = row_of(tmp_path / "other", "h200/hidden-256", *stages, today=today)
    assert (rows, same) == ("4", "1, not `naive`, `async` and `gone`")


def test_a_machine_of_any_name_is_text(tmp_path: Path) -> None:
    run = sample.results()
    named = replace(run, environment={**run.environment, "gpu": {"name": "<b>H200 | [x](javascript:y)"}})
    (tmp_path / "h200" / "hidden-256").mkdir(parents=True)
    save(named, tmp_path / "h200" / "hidden-256" / "results.json")
    *_, row = recorded_code_block(tmp_path, {}).splitlines()
    assert row.startswith("| &lt;b>H200 \\| [x&#93;(javascript:y) |")


def test_a_study_s_points_share_a_line(tmp_path: Path) -> None:
    row_of(tmp_path, "h200/studies/depth/depth-1", *passed(CODE, "naive"), today={})
    *_, day, what, rows, same = row_of(
        tmp_path,
        "h200/studies/depth/depth-2",
        *passed(CODE, "naive"),
        today={"naive": CODE},
        created="2027-03-01T08:00:00+00:00",
    )
    assert (day, what, rows, same) == (f"{sample.results().created[:10]} to 2027-03-01", "`depth`", "2", "all")
    *_, same = row_of(tmp_path, "h200/studies/depth/depth-3", *passed(CODE, "naive"), today={"naive": OTHER})
    assert same == "none"  # without a list of all stages


def test_hashes_of_another_scheme_are_told_as_such(tmp_path: Path) -> None:
    today = {"naive": StageCode("a", None, scheme=3)}
    *_, same = row_of(tmp_path, "h200/hidden-256", *passed(CODE, "naive"), today=today)
    assert same == "older hashes"
