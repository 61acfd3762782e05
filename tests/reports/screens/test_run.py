"""A run's screen and its report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.program import PROGRAM
from ladder.records.run import Results, StageResult, load
from reports.facts.study_points import load_results
from reports.facts.time_breakdown import all_profiled
from reports.facts.verdict import gains
from reports.render import print_results, print_study
from reports.screens.conclusion import try_next
from reports.screens.run import report_screen
from reports.screens.rung import ALIKE
from reports.writers.markdown import markdown
from tests.reports import sample
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
    assert {"rung", "parent", "us/step", "checked"} <= set(texts[80].split())


def test_without_a_gpu_the_next_step_explains_the_fastest_own_rung() -> None:
    rung = next(stage for stage in sample.results().stages if stage.name == "naive")
    rung = replace(rung, name="cpu-loops", group="cpu", device="cpu", profiles=[])
    text = text_of(without_gpu([rung]), 120)
    assert f"Next    {PROGRAM} explain cpu-loops; {PROGRAM} open" in text


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
    assert "us/step" in text[apart:]
    assert ("The nearest recorded run to your" in text) == (not network.startswith("784-10,"))


def test_the_last_three_lines_are_findings_report_and_next_step(tmp_path: Path) -> None:
    text = text_of(sample.synthetic_results(), 80, tmp_path)
    found = "Found No rung was timed; numpy, the fastest reference, takes 1,295 us per step. Report "
    assert found in " ".join(text.split())
    *_, report, next_step = text.splitlines()
    # Its file:// link would be wider than the screen.
    assert Path(report.removeprefix("Report  ")).resolve() == (tmp_path / "report.md").resolve()
    assert f"Report  {tmp_path.as_uri()}/report.md" in text_of(sample.synthetic_results(), 120, tmp_path)
    assert next_step == f"Next    {PROGRAM} explain cuda-graph; on a GPU: make ladder"
    assert "Report" not in text_of(sample.results(), 100, None)
    (tmp_path / "report.html").touch()
    assert "report.html" in text_of(sample.synthetic_results(), 80, tmp_path)


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_no_colour_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    shows = lambda console: print_results(sample.results(), console=console)  # noqa: E731
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[32m" in screen(shows, 80, terminal=True)
    monkeypatch.setenv(variable, "dumb")
    assert "\x1b[32m" not in screen(shows, 80, terminal=True)


@pytest.mark.parametrize(
    ("folder", "told"),
    {
        "h100-80gb-hbm3/logistic": [
            "In `persistent-grid` and `persistent-cluster` several change at once (epilogue, gemm, head, memory, "
            "update; work ahead in `persistent-cluster`): a speedup there is of all of them together.",
            "a sum of 3 bfloat16 numbers in `persistent-grid`, and of 2 float16 numbers in `persistent-cluster`.",
            "; others multiply ahead.",
            "(`jax-scan-bf16`, in bf16, takes 8.00 us)",
            "Profiled, a step of `persistent-cluster` took 115% longer: take its split as a guide.",
        ],
        "h200/hidden-256": [
            "1 of the 75 processes that count (1 of torch-dataloader) was disturbed: its threads waited for a core",
            "1 check was made of no stage: an epoch of all 468 batches takes too long to repeat.",
            'Rounding decides "epoch from positive biases, tensors", or a part of it, for every stage.',
            "missed: 15% faster than predicted",
            "train an epoch and keep the weights.",
            "Unmarked: no process was disturbed",
        ],
    }.items(),
)
def test_a_report_says_what_its_table_alone_would_hide(folder: str, told: list[str]) -> None:
    text = markdown(report_screen(load(RECORDED / folder)))
    assert [words for words in told if words not in text] == []
    assert ("ReLU" in text) == ("hidden" in folder)


@pytest.mark.parametrize("folder", sorted((RECORDED / "h200" / "studies").iterdir()), ids=lambda folder: folder.name)
def test_no_line_of_a_recorded_study_is_wider_than_the_terminal(folder: Path) -> None:
    results = load_results(folder)
    for width in WIDTHS:
        text = screen(lambda console: print_study(results, folder, console=console), width)
        assert too_wide(text, width) == []
        assert all(stage.name in text for stage in results.stages())


def test_the_next_step_names_a_run_that_no_command_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    run, explain = load(RECORDED / "h200" / "logistic"), f"{PROGRAM} explain persistent-cluster"
    for folder, command in (("runs/one", explain), ("my runs/one", f"{explain} 'my runs/one'")):
        assert try_next(run, Path(folder), None).replace("\N{NO-BREAK SPACE}", " ") == command


def test_a_report_without_rungs_within_noise_has_no_table_of_them() -> None:
    text = markdown(report_screen(sample.results()))
    assert ALIKE not in text
    assert "\n|  |\n" not in text


def test_a_report_has_a_table_of_rungs_within_noise_and_predicts_nothing_for_another_gpu() -> None:
    told = {gpu: (RECORDED / gpu / "logistic" / "report.md").read_text("utf-8") for gpu in ("h100-80gb-hbm3", "h200")}
    text = told["h100-80gb-hbm3"]
    assert ("redict" in text, "| Predicted |" in told["h200"]) == (False, True)
    run, alike = load(RECORDED / "h100-80gb-hbm3" / "logistic"), text.partition(f"### {ALIKE}\n")[2]
    every = {stage.name: gain for stage, gain in gains(run)}
    noise = [name for name, gain in every.items() if gain.is_noise]
    assert re.findall(r"^\| `([\w-]+)`: ", alike, re.MULTILINE) == noise
    assert not set(noise) & set(re.findall(r"^### `([\w-]+)`: ", text, re.MULTILINE))
    same = re.findall(r"^\| `([\w-]+)`: .*Here it runs the kernels of its parent", alike, re.MULTILINE)
    assert same == ["streamed", "streamed-bf16"]
    faster = sum(gain.times > 1 and not gain.is_noise for gain in every.values())
    assert f"- {faster} of {len(every) - len(same)} rungs are faster" in text
    assert "and 2 more run the kernels of their parents." in text
    longest = max(one.profile.slowdown for one in all_profiled(run) if one.stage.group != "reference")
    assert f"took {longest:.0%} longer" in text
    assert "with 2 processes on each side, at least 3.6% up and down" in text
    assert "`persistent-cluster` climbs from `cuda-graph`, and the 15 rungs between them are on other" in text
    assert "waited for a core for 0.17 s in 0.83 s (20%; the limit is 5%)" in text
    assert "torch-graph (unroll 1, coordinate descent) for float32" in text


MOST_WORDS = 4000  # unfolded, of 48 stages


@pytest.mark.parametrize("path", sorted(Path("results/reference").glob("**/report.md")), ids=str)
def test_a_recorded_report_is_read_in_a_few_screens(path: Path) -> None:
    shown = re.sub(r"<details>.*?</details>", "", path.read_text(encoding="utf-8"), flags=re.S)
    if "torch" in path.parts:
        assert shown.index("](figures/ladder.svg)") < shown.index("## Rungs") < shown.index("## What to write")
    elif "studies" not in path.parts:
        assert shown.index("](figures/ladder.svg)") < shown.index("| Stage |") < shown.index("## Rungs")
    assert len(re.findall(r"\w\S*", shown)) <= MOST_WORDS
