from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.expectation import Expected
from ladder.records.program import PROGRAM
from ladder.records.run import Check, Process, Results, StageResult, load
from reports.facts.ratios import Ratio
from reports.facts.study_points import load_results
from reports.facts.two_runs import compare
from reports.render import print_results, print_study
from reports.screens.compare import comparison_screen
from reports.screens.conclusion import found, try_next
from reports.screens.run import run_screen
from reports.writers.terminal import write_terminal
from tests.reports import recorded, sample
from tests.reports.reporting import report
from tests.reports.terminal.screens import screen, too_wide

RECORDED = Path(__file__).parents[3] / "results" / "reference"
RUNS = sorted(path.parent for path in RECORDED.glob("*/*/results.json.gz"))
WIDTHS = (40, 80, 120, 200)


def text_of(run: Results, width: int, folder: Path | None = Path("runs/sample"), encoding: str = "utf-8") -> str:
    return screen(
        lambda console: print_results(run, folder, console=console, recorded=RECORDED), width, encoding=encoding
    )


def row(text: str, name: str) -> list[str]:
    """The words of a stage's row."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [name])


def with_disturbed(run: Results, name: str, disturbed: int, processes: int) -> Results:
    """The run with so many processes of a stage, of which some were disturbed."""
    (first, *_) = next(stage for stage in run.stages if stage.name == name).processes
    measured: list[Process] = [
        replace(first, round=number, disturbed=["other work"] if number < disturbed else [])
        for number in range(processes)
    ]
    return sample.replace_stage(run, name, processes=measured)


def without_gpu(stages: list[StageResult], hidden: tuple[int, ...] = (256,), batch: int = 128) -> Results:
    """A run of these stages on a machine without a GPU; rungs were skipped."""
    run = sample.synthetic_results()
    problem = replace(run.problem, hidden=list(hidden), batch_size=batch)
    skipped = [stage for stage in run.stages if stage.status == "skipped"]
    return replace(run, stages=[*stages, *skipped], problem=problem)


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: folder.name)
def test_a_recorded_run_fits_the_terminal_and_a_rung_is_one_line_of_the_six_things_that_matter(folder: Path) -> None:
    run = load(folder)
    texts = {width: text_of(run, width) for width in WIDTHS}
    assert [line for width, text in texts.items() for line in too_wide(text, width)] == []
    for stage in run.stages:
        if stage.status == "passed":
            words = row(texts[80], stage.name)
            assert words[-1] == "passed"
            assert (stage.below or words[1]) == words[1]
    assert {"rung", "from", "us/step", "checked"} <= set(texts[80].split())


@pytest.mark.parametrize("width", WIDTHS)
def test_runs_of_any_kind_and_comparisons_fit_the_terminal(width: int) -> None:
    for run in (sample.results(), sample.synthetic_results(), sample.nothing_passed()):
        assert too_wide(text_of(run, width), width) == []
    assert "us/step" not in text_of(sample.nothing_passed(), width).split("Recorded on")[0]
    compared = compare(recorded.before(), recorded.after(), ("runs/before", "runs/after"))
    assert too_wide(screen(lambda console: write_terminal(comparison_screen(compared), console), width), width) == []


def test_long_names_fit_into_80_columns() -> None:
    text = text_of(sample.long_names(), 80)
    assert row(text, "parallel-branches")[:4] == ["parallel-branches", "persistent-cluster", "36.8", "throttled"]


def test_wider_terminals_add_columns() -> None:
    run = load(RUNS[-1])
    columns = [len(row(text_of(run, width), "rung")) for width in WIDTHS]
    assert columns == sorted(set(columns))
    assert "what it changes" in text_of(run, 140)
    assert "accuracy" in text_of(run, 200)


def test_a_column_without_a_value_is_left_out() -> None:
    for line in text_of(sample.synthetic_results(), 200).splitlines():
        if line.startswith("rung"):
            assert "from" not in line.split()
            assert "launches" not in line


@pytest.mark.parametrize("width", WIDTHS)
def test_a_disturbed_time_says_so_beside_it(width: int) -> None:
    run = with_disturbed(sample.results(), "async", 1, 2)
    for quiet in (text_of(sample.results(), width), text_of(with_disturbed(run, "async", 0, 2), width)):
        assert "disturbed" not in quiet
    text = text_of(run, width)
    time = row(text, "async").index("42.7")
    assert row(text, "async")[time + 1] in ("*", "disturbed", "1")
    assert "disturbed: other work ran beside it" in " ".join(text.split())
    assert "42.7  *" not in text_of(with_disturbed(sample.results(), "async", 1, 3), width)  # does not move the median


def test_a_rung_that_was_expected_to_lose_says_so_in_its_row_and_in_the_report() -> None:
    expected = Expected(66.2, 0.08, "NVIDIA H200", 0.8, "naive", 53.4)
    run = sample.replace_stage(sample.results(), "async", expected=expected)
    assert "expected to lose here: 66 us, naive 53" in text_of(run, 250)
    assert "async: expected to lose here: 66 us, naive 53" in report(run)
    winning = sample.replace_stage(run, "async", expected=Expected(66.2, 0.08, "NVIDIA H200", 1.2))
    assert "expected to lose" not in text_of(winning, 250) + report(winning)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("judged", [False, True], ids=["a whole check", "some of its tensors"])
def test_a_row_with_checks_that_rounding_decides_says_so(precision: str, judged: bool) -> None:
    undecided = Check("loss curve", None, 0.9, passed=True, judged=judged, note=f"{precision} cannot decide here")
    unreached = Check("loss curve", None, 0.0, passed=True, judged=False, note="it has one run")
    legend = "passed?: rounding decides some checks, as its controls show; the report names them"
    for check, says in ((undecided, True), (unreached, False)):
        text = text_of(sample.replace_stage(sample.results(), "async", checks=[check]), 120)
        assert ("passed?" in row(text, "async")) == says
        assert (legend in " ".join(text.split())) == says
        assert "passed" in row(text, "naive")
    failed = sample.replace_stage(sample.results(), "async", checks=[undecided], status="failed", reason="wrong")
    assert "failed" in row(text_of(failed, 120), "async")


@pytest.mark.parametrize(
    ("width", "name"), [(40, "persistent-cluster"), (80, "async"), (80, "persistent-cluster"), (200, "async")]
)
def test_a_row_with_checks_that_a_slow_oracle_left_out_says_so(width: int, name: str) -> None:
    run = sample.long_names() if name == "persistent-cluster" else sample.results()
    cut = Check("loss curve", None, 0.0, passed=True, judged=False, note="the oracle's time ended after epoch 1 of 20")
    alone = Check("judged run", None, 0.0, passed=True, judged=False, note="it has one run")
    run = sample.replace_stage(run, name, checks=[cut, alone, replace(cut, what="final parameters")])
    text = text_of(run, width)
    assert too_wide(text, width) == []
    sentence = f"{name} passed, 2 checks not made: the oracle's time ended after epoch 1 of 20."
    assert sentence in " ".join(text.split())
    marked = {80: "passed -2", 200: "passed, 2 checks not made"}.get(width, "")
    assert marked in next(line for line in text.splitlines() if line.startswith(name))
    assert "not made" not in text_of(sample.replace_stage(run, name, checks=[alone]), width)
    assert sentence in report(run)
    assert "| passed, 2 checks not made |" in report(run)
    assert "passed every check that was made" in report(run)
    facts = run_screen(run).facts
    assert sentence in facts["notices"]
    assert {row["name"]: row["checks_not_made"] for row in facts["stages"] if row["checks_not_made"]} == {name: 2}


def test_a_second_remark_without_room_has_a_mark() -> None:
    run = with_disturbed(sample.results(), "numpy", 2, 2)  # which is shortened
    text = text_of(run, 80)
    assert row(text, "numpy")[2] == "disturbed*"
    assert "*: also shortened." in text
    wide = text_of(run, 240)
    assert "disturbed, shortened to" in wide
    assert "*" not in wide


def test_what_was_found_tells_which_compared_times_were_disturbed() -> None:
    run = load(RECORDED / "h200" / "logistic")
    for stage in run.stages:
        run = with_disturbed(run, stage.name, 0, len(stage.processes)) if stage.timing else run
    assert "disturbed" not in found(run)
    run = with_disturbed(run, "naive", 2, 2)
    assert found(run).endswith("at least as exact; other work disturbed the time of naive.")
    for name in ("persistent-cluster", "torch-graph"):
        run = with_disturbed(run, name, 2, 2)
    assert found(run).endswith("at least as exact; other work disturbed these times.")


def test_without_a_gpu_the_next_step_explains_the_fastest_own_rung() -> None:
    rung = next(stage for stage in sample.results().stages if stage.name == "naive")
    rung = replace(rung, name="cpu-loops", group="cpu", device="cpu", profiles=[])
    text = text_of(without_gpu([rung]), 120)
    assert f"Next    {PROGRAM} explain cpu-loops; {PROGRAM} open" in text


def test_skipped_stages_are_no_rows_but_one_line() -> None:
    text = text_of(without_gpu([]), 80)
    assert "2 of this run's 2 stages skipped: no CUDA device." in text
    assert not [line for line in text.splitlines() if line.startswith(("naive ", "async ")) and "skipped" in line]
    several = sample.replace_stage(without_gpu([]), "async", reason="needs sm_90")
    several = sample.replace_stage(several, "naive", reason="Needs clusters.")
    assert "2 stages skipped; naive for this reason: Needs clusters.\n" in text_of(several, 80)


def test_a_run_that_timed_nothing_has_no_notes_on_times() -> None:
    run = sample.results()
    stages = [replace(stage, timing=None) for stage in run.stages if stage.status == "passed"]
    text = text_of(replace(run, stages=stages), 80)
    assert row(text, "naive")[:2] == ["naive", "passed"]
    for word in ("x of", "noise", "disturbed", "us/step"):
        assert word not in text
    assert "9 stages passed all checks; no stage was timed." in text


@pytest.mark.parametrize(
    ("hidden", "batch", "network"),
    [
        ((), 128, "784-10, batch 128"),
        ((300,), 128, "784-256-10, batch 128"),
        ((700, 700, 700, 700), 32, "784-784-784-784-784-10, batch 64"),
        ((2000,), 128, "784-1024-10, batch 128"),
    ],
)
def test_without_a_gpu_the_nearest_recorded_run_follows(hidden: tuple[int, ...], batch: int, network: str) -> None:
    text = " ".join(text_of(without_gpu([], hidden, batch), 80).split())
    recorded_on = re.search(rf"Recorded on an NVIDIA H\d00[^,:]*, not on this machine: {network}", text)
    assert recorded_on is not None
    apart = recorded_on.start()
    assert apart > text.index("skipped")
    assert "●" in text[apart:]
    assert ("The nearest recorded run to your" in text) == (not network.startswith("784-10,"))


def test_runs_on_a_gpu_and_runs_without_skipped_stages_show_no_recorded_run() -> None:
    run = sample.synthetic_results()
    only_numpy = replace(run, stages=[stage for stage in run.stages if stage.status == "passed"])
    for one in (sample.results(), only_numpy):
        assert "Recorded" not in text_of(one, 80)


def test_the_last_three_lines_are_findings_report_and_next_step(tmp_path: Path) -> None:
    *_, finding, report, next_step = text_of(sample.synthetic_results(), 80, tmp_path).splitlines()
    assert finding == "Found   No rung was timed; numpy, the fastest reference, takes 1,295 us a step."
    # Its file:// link would be wider than the screen.
    assert Path(report.removeprefix("Report  ")).resolve() == (tmp_path / "report.md").resolve()
    assert f"Report  {tmp_path.as_uri()}/report.md" in text_of(sample.synthetic_results(), 120, tmp_path)
    assert next_step == f"Next    {PROGRAM} explain cuda-graph; on a GPU: make ladder"
    assert "Report" not in text_of(sample.results(), 100, None)
    (tmp_path / "report.html").touch()
    assert "report.html" in text_of(sample.synthetic_results(), 80, tmp_path)


def test_the_link_is_one_even_where_only_the_path_fits(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    text = screen(lambda console: print_results(sample.results(), folder, console=console), 80, terminal=True)
    assert f"{folder.as_uri()}/report.md\x1b\\" in text


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_no_colour_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    shows = lambda console: print_results(sample.results(), console=console)  # noqa: E731
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32m" in screen(shows, 80, terminal=True)
    monkeypatch.setenv(variable, "dumb")
    assert "\x1b[32m" not in screen(shows, 80, terminal=True)


def test_brackets_in_names_are_text_and_not_markup() -> None:
    run = sample.replace_stage(sample.results(), "naive", name="[bold]naive[/]")
    assert "[bold]naive[/]" in text_of(run, 160)


@pytest.mark.parametrize("folder", sorted((RECORDED / "h200" / "studies").iterdir()), ids=lambda folder: folder.name)
def test_no_line_of_a_recorded_study_is_wider_than_the_terminal(folder: Path) -> None:
    results = load_results(folder)
    for width in WIDTHS:
        text = screen(lambda console: print_study(results, folder, console=console), width)
        assert too_wide(text, width) == []
        assert all(stage.name in text for stage in results.stages())


@pytest.mark.parametrize("given", ["--stage-file my_rung.py", "--stage-file=my_rung.py"])
def test_the_next_step_of_a_stage_from_a_file_names_the_file(given: str) -> None:
    run = replace(load(RECORDED / "h200" / "logistic"), command=f"{PROGRAM} --stages all {given}")
    assert try_next(run, None, None).replace("\N{NO-BREAK SPACE}", " ") == (
        f"{PROGRAM} explain persistent-cluster --stage-file my_rung.py"
    )
    broken = sample.replace_stage(run, "async", status="crashed", reason="no reason")
    assert "--stages async --stage-file my_rung.py" in try_next(broken, None, None).replace("\N{NO-BREAK SPACE}", " ")
    no_command_line = replace(run, command='an open " quote')
    assert "--stage-file" not in try_next(no_command_line, None, None)
    assert Ratio(1.13, 0.97, 1.31, is_noise=True).as_fast_as("numpy") == "as fast as numpy within noise (1.13x)"


def test_the_next_step_of_a_wrong_stage_from_a_file_is_to_check_it() -> None:
    given = f"{PROGRAM} --stages numpy --stage-file 'a b.py' --hidden 8 --rounds 1 --stage-file=c.py --batch-size=16"
    run = load(RECORDED / "amd-epyc-2-cores" / "logistic")
    *_, one, two = (stage.name for stage in run.stages)

    def said(*wrong: str, measured: bool = False) -> str:
        known = replace(run, command=given)
        for name in wrong:
            processes = run.stages[0].processes if measured else []
            known = sample.replace_stage(known, name, status="failed", reason="no reason", processes=processes)
        return try_next(known, Path("runs/one"), None).replace("\N{NO-BREAK SPACE}", " ")

    assert said(one) == f"mend {one}: {PROGRAM} check 'a b.py' --hidden 8 --batch-size 16"
    assert said(two) == f"mend {two}: {PROGRAM} check c.py --hidden 8 --batch-size 16"
    assert said(one, two) == f"{said(one)}; 1 more did not pass"
    assert said(two, measured=True).startswith(f"see runs/one/logs, then run {two} alone: ")
    assert said("numpy").startswith("see runs/one/logs, then run numpy alone: ")  # it is not from a file


def test_the_next_step_names_a_run_that_no_command_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    run, explain = load(RECORDED / "h200" / "logistic"), f"{PROGRAM} explain persistent-cluster"
    for folder, command in (("runs/one", explain), ("my runs/one", f"{explain} 'my runs/one'")):
        assert try_next(run, Path(folder), None).replace("\N{NO-BREAK SPACE}", " ") == command
