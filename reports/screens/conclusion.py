"""The last three lines of a run: what it found, where its report is, and what to try next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ladder.records.program import PROGRAM
from ladder.records.run import ABLATIONS, Results, StageResult
from reports.facts import numbers
from reports.facts.baselines import fastest
from reports.facts.verdict import verdict_sentences
from reports.screens.blocks import Answers, unbroken

# The options of `check` that choose what it trains.
OF_CHECK = ("--hidden", "--batch-size", "--learning-rate", "--metrics-every", "--max-steps", "--data-dir")
RUNS = Path("runs")  # where a command looks for the newest run
REPORTS = ("report.html", "report.md")  # the first that was written is named


def conclusion(results: Results, folder: Path | None, example: tuple[Path, Results] | None) -> Answers:
    """The three lines; without a folder there is no report to name."""
    report = {} if folder is None else {"Report": report_in(folder)}
    return Answers({"Found": found(results), **report, "Next": try_next(results, folder, example)})


def report_in(folder: Path) -> Path:
    """The folder's report: its page, or where that was not written, its document."""
    return next((folder / name for name in REPORTS if (folder / name).exists()), folder / REPORTS[-1])


def found(results: Results) -> str:
    """What the run found, in a sentence or two."""
    broken = [stage.name for stage in results.stages if stage.status in ("failed", "crashed")]
    sentences = [f"{numbers.brief(broken)} did not pass."] if broken else []
    best = _best(results)
    if best is None:
        passed = sum(stage.status == "passed" for stage in results.stages)
        made = " that were made" if any(stage.not_made for stage in results.stages) else ""
        checked = f"{numbers.count(passed, 'stage')} passed all checks{made}; no" if passed else "No"
        beside = " side by side (--at-once)" if results.settings.at_once > 1 else ""
        sentences.append(f"{checked} stage was timed{beside}.")
    else:
        sentences.append(verdict_sentences(results)[0].replace("`", ""))
    return " ".join(sentences)


def _best(results: Results) -> StageResult | None:
    """The fastest rung; if none was timed, the fastest reference."""
    return fastest(_rungs(results)) or fastest(results.stages)


def _rungs(results: Results) -> list[StageResult]:
    return [stage for stage in results.stages if stage.group not in ("reference", *ABLATIONS)]


def try_next(results: Results, folder: Path | None, example: tuple[Path, Results] | None) -> str:
    """One thing to try, with its command; that names the files of stages, which no other run knows."""
    paths = list(dict.fromkeys(path for _, path in given(results.command, ["--stage-file"])))
    files = "".join(f" --stage-file {shlex.quote(path)}" for path in paths)
    broken = [stage for stage in results.stages if stage.status in ("failed", "crashed")]
    if broken:
        first, more = broken[0], f"; {len(broken) - 1} more did not pass" if len(broken) > 1 else ""
        own = dict(zip((stage.name for stage in reversed(results.stages)), reversed(paths), strict=False))
        if first.name in own and not first.processes:  # checked before anything was measured
            same = "".join(f" {option} {shlex.quote(value)}" for option, value in given(results.command, OF_CHECK))
            return f"mend {first.name}: {unbroken(f'{PROGRAM} check {shlex.quote(own[first.name])}{same}')}{more}"
        logs = shlex.quote(str(folder / "logs")) if folder is not None else "logs"
        return f"see {logs}, then run {first.name} alone: {unbroken(f'{PROGRAM} --stages {first.name}{files}')}{more}"
    best = _best(results)
    run = _named(folder)
    if example is not None:
        if best in _rungs(results):
            return f"{unbroken(f'{PROGRAM} explain {best.name}{run}{files}')}; {unbroken(f'{PROGRAM} open{run}')}"
        return f"{unbroken(f'{PROGRAM} explain cuda-graph')}; on a GPU: {unbroken('make ladder')}"
    if best is not None and (best.device == "cpu" or best.profile is not None):
        return f"{unbroken(f'{PROGRAM} explain {best.name}{run}{files}')}"
    return f"{unbroken(f'{PROGRAM} list')}"


def _named(folder: Path | None) -> str:
    """The folder as one more word of a command; empty for one in `runs/`, where the command finds it by itself."""
    if folder is None or folder.resolve().parent == RUNS.resolve():
        return ""
    return f" {shlex.quote(numbers.shortest(folder))}"


def given(command: str, options: Sequence[str]) -> list[tuple[str, str]]:
    """Those of some options that a command has, each with its value."""
    try:
        given = shlex.split(command)
    except ValueError:  # of a record that was not written by this program
        return []
    words = [part for word in given for part in (word.split("=", 1) if word.startswith("--") else [word])]
    return [(option, value) for option, value in pairwise(words) if option in options]
