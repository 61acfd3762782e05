"""The chapters of the climb: current, made of recorded numbers alone, and with commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import astuple, replace

from ladder.options.parsers import parse
from ladder.records.run import Results, Spread, load
from reports.markdown.climb import FOLDER, ChapterRun, chapters, diff, rendered
from reports.report_error import ReportError

ROOT = Path(__file__).parents[3]
CLIMB = ROOT / "docs" / "climb"
REFERENCE = ROOT / "results" / "reference"
LOGISTIC = REFERENCE / FOLDER / "logistic"
TEMPLATES = sorted((CLIMB / "templates").glob("*.md.j2"))
ESSAY = ROOT / "docs" / "essay.md.j2"
CHAPTERS = [page for page in sorted(CLIMB.glob("*.md")) if page.name != "README.md"]
PARTS = ["Question", "Prediction", "The change", "Before and after", "What moved", "Surprise", "Exercise"]
FILLED_IN = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|```.*?```|`[^`]*`", re.DOTALL)  # placeholders, statements and code
MEASURED = re.compile(r"\d[\d.,]* ?(?:us|ms|s|%|TFLOP/s|GB/s|MHz|per cent)(?![\w-])|\dx(?!\w)|\d\.\d")
COMMAND = re.compile(r"^ *(?:\w+=\w+ )*(?:taskset -c 0 )?python run_ladder\.py (.*)$", re.MULTILINE)


def typed_by_hand(template: str) -> list[str]:
    """The numbers with a unit or decimals in a template that are neither a placeholder nor code."""
    return MEASURED.findall(FILLED_IN.sub(" ", template))


def test_every_chapter_has_a_template() -> None:
    assert {page.name for page in CLIMB.glob("*.md")} == {one.name.removesuffix(".j2") for one in TEMPLATES}


@pytest.mark.parametrize("template", [*TEMPLATES, ESSAY], ids=lambda path: path.name)
def test_no_measured_number_is_typed_by_hand(template: Path) -> None:
    assert typed_by_hand(template.read_text(encoding="utf-8")) == []


def test_a_number_typed_by_hand_is_found() -> None:
    found = typed_by_hand(
        '`a` takes {{ us["a"] }} us and b 17.6 us, 3 % more, 3x\n```\n9 us\n```\n784-10, batch 128, 16 bits'
    )
    assert found == ["17.6 us", "3 %", "3x"]


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda path: path.name)
def test_a_chapter_has_every_part_and_fits_a_short_read(page: Path) -> None:
    text, _, answers = page.read_text(encoding="utf-8").partition("<details><summary>Answers</summary>")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == PARTS
    assert 550 <= len(text.split()) <= 850
    assert "*No GPU" in text.partition("## Exercise")[2]
    assert answers or page.name.startswith("12")  # whose result is the reader's own


def test_the_essay_is_written_with_the_chapters_and_is_short() -> None:
    text = dict(chapters(CLIMB, REFERENCE))[ESSAY.with_suffix("")]
    first, *_ = text.splitlines()
    assert first == "<!-- Written by `python run_ladder.py readme` from docs/essay.md.j2. Do not edit. -->"
    assert "\n# From 80 microseconds to 1.21\n" in text
    assert len(text.split()) <= 2500


def test_the_essay_s_trick_gives_the_same_logits() -> None:
    random = np.random.default_rng(0)
    before, after, weight, gradient = (random.normal(size=size) for size in ((8, 5), (8, 5), (5, 3), (8, 3)))
    usual = after @ (weight - 0.1 * before.T @ gradient)
    assert np.allclose(after @ weight - 0.1 * (after @ before.T) @ gradient, usual, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_verdict_is_told_before_the_reader_has_guessed(template: Path) -> None:
    guessing = template.read_text(encoding="utf-8").partition("## Prediction")[2].partition("## Before and after")[0]
    assert "verdict[" not in guessing


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda path: path.name)
def test_the_commands_of_a_chapter_are_taken(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("experiments", "results"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for name in ("first", "second", "own", "loops"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "results.json").symlink_to(LOGISTIC / "results.json")
    (tmp_path / "my_rung.py").write_text("STAGE = None\n")
    commands = COMMAND.findall(page.read_text(encoding="utf-8"))
    assert commands
    for command in commands:
        parse(shlex.split(command.partition(" > ")[0]))  # what follows is the shell's


def test_a_placeholder_without_a_value_is_one_line(tmp_path: Path) -> None:
    runs = {"logistic": ChapterRun(load(LOGISTIC))}
    for text in (
        '{{ us["no-such-rung"] }}',
        "{{ nothing }}",
        '{{ run["no-such-run"].heading }}',
        '{{ moved["naive"] }}',
    ):
        page = tmp_path / "page.md.j2"
        page.write_text(text)
        with pytest.raises(ReportError, match=r"page\.md\.j2: ") as refused:
            rendered(page, runs)
        assert "\n" not in str(refused.value)


def test_every_figure_of_the_climb_stands_in_a_chapter() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in CHAPTERS)
    drawn = {path.name for path, _ in chapters(CLIMB, REFERENCE) if path.suffix == ".svg"}
    assert {path.name for path in (CLIMB / "figures").iterdir()} == drawn
    assert [name for name in sorted(drawn) if f"](figures/{name})" not in text] == []


def test_a_pair_of_timelines_and_a_way_name_both_of_their_ends_and_numbers_are_recorded(tmp_path: Path) -> None:
    run = ChapterRun(load(LOGISTIC))
    assert "<title>naive takes 80.3 us per step (GPU busy: 58%), async takes 64.0" in run.timeline("async")
    assert "<title>18.2 to " in run.way("cuda-graph", "fused-bias")
    with pytest.raises(LookupError, match="no way from cuda-graph to async"):
        run.way("cuda-graph", "async")
    page = tmp_path / "page.md.j2"
    page.write_text('{{ us["naive"] }} {{ less("async", "naive") }} {{ launches["naive"] }}')
    assert rendered(page, {"logistic": run}).splitlines()[-1] == "80.3 16.4 8"


def test_a_diff_has_both_classes_without_docstrings(tmp_path: Path) -> None:
    block = diff("stages/classic/naive.py:MetricsEveryStep", "stages/classic/async_metrics.py:MetricsEveryEpoch")
    assert block.splitlines() == [
        "```diff",
        "-class MetricsEveryStep(EpochTotals):",
        "+class MetricsEveryEpoch(EpochTotals):",
        "     def due(self, epoch: int) -> bool:",
        "         return True",
        "-    def end_step(self) -> None:",
        "-        self.read()",
        "```",
    ]
    page = tmp_path / "page.md.j2"
    page.write_text('{{ diff("stages/classic/naive.py:Gone", "stages/classic/naive.py:Gone") }}')
    with pytest.raises(ReportError, match=r"naive\.py has no class Gone"):
        rendered(page, {"logistic": ChapterRun(load(LOGISTIC))})


def test_a_recording_that_contradicts_a_sentence_is_refused(tmp_path: Path) -> None:
    run = load(LOGISTIC)
    chapter = next(path for path in TEMPLATES if path.name.startswith("05"))
    again = {"six-rungs run": ChapterRun(load(LOGISTIC.parent / "studies" / "six-rungs" / "run"))}
    rendered(chapter, {"logistic": ChapterRun(run), **again})
    with pytest.raises(ReportError, match="no longer holds"):
        rendered(chapter, {"logistic": ChapterRun(_slower(run, "torch-graph")), **again})


def test_a_folder_of_templates_becomes_chapters(tmp_path: Path) -> None:
    assert chapters(tmp_path, REFERENCE) == []
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "one.md.j2").write_text("{{ heading }}\n")
    assert "784-10 on MNIST" in dict(chapters(tmp_path, REFERENCE))[tmp_path / "one.md"]


def _slower(run: Results, name: str) -> Results:
    """The run with one stage ten times as slow."""
    stages = [
        replace(one, timing=replace(one.timing, epoch_s=Spread(*(10 * s for s in astuple(one.timing.epoch_s)))))
        if one.name == name and one.timing
        else one
        for one in run.stages
    ]
    return replace(run, stages=stages)
