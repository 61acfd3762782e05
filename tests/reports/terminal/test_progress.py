from __future__ import annotations

import io
from contextlib import suppress

import pytest
from rich.console import Console

from reports.terminal.progress import LiveView


class Clock:
    """A clock that a test moves on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def view(*, terminal: bool = False, width: int = 100) -> tuple[LiveView, io.StringIO, Clock]:
    file, clock = io.StringIO(), Clock()
    console = Console(file=file, width=width, force_terminal=terminal, highlight=False, legacy_windows=False)
    return LiveView(console, clock=clock), file, clock


def ladder(live: LiveView) -> None:
    with live:
        live.download(0, 9_900_000, "train-images")
        live.download(9_900_000, 9_900_000, "train-images")
        live.skip(dict.fromkeys((f"stage-{number}" for number in range(28)), "no CUDA device"))
        live.begin(4, ["numpy", "naive"])
        live.step("training in float64, to check against")
        for round in (1, 2):
            live.start("numpy", round, 2)
            live.step("measuring")
            live.finish("numpy", "passed", "", 1295.4, disturbed=round == 2)
            live.start("naive", round, 2)
            live.step("checking against float64")
            live.finish("naive", "crashed", "[signal 9] " + "x" * 100)
        live.begin(1, ["numpy"], "as other work disturbed them")
        live.start("numpy", 2, 2, 2, 3)
        live.finish("numpy", "passed", "", 610.0)
        live.note("numpy is shortened")


def test_a_file_gets_plain_single_lines() -> None:
    live, file, _ = view()
    ladder(live)
    assert file.getvalue().splitlines() == [
        "downloading train-images (9.9 MB)",
        "28 stages were skipped: no CUDA device.",
        "4 measurements: numpy and naive",
        "training in float64, to check against",
        "[1/4] numpy, round 1 of 2: 1,295 us/step",
        "[2/4] naive, round 1 of 2: crashed, [signal 9] " + "x" * 100,
        "[3/4] numpy, round 2 of 2: 1,295 us/step, disturbed",
        "[4/4] naive, round 2 of 2: crashed, [signal 9] " + "x" * 100,
        "1 measurement more, as other work disturbed them: numpy",
        "[1/1] numpy, round 2 of 2, try 2 of 3: 610 us/step",
        "numpy is shortened",
    ]


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"])
def test_a_terminal_gets_the_same_lines_and_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    live, file, _ = view(terminal=True)
    ladder(live)
    text = file.getvalue()
    for part in ("downloading train-images", "us/step", ", disturbed", "[signal 9]", "numpy is shortened"):
        assert part in text
    if term == "dumb":
        assert "\x1b[2K" not in text
    else:
        assert text.endswith(("\x1b[2K", "\x1b[?25h"))  # erase the bar's line, show the cursor


def test_a_job_shows_in_a_file_before_it_ends() -> None:
    live, file, _ = view()
    live.begin(1, ["numpy"])
    live.start("numpy", 1, 1)
    assert file.getvalue().endswith("[1/1] numpy")
    live.note("numpy: no answer for 60 s")
    live.finish("numpy", "crashed", "no answer")
    _, *lines = file.getvalue().splitlines()
    assert lines == ["[1/1] numpy", "numpy: no answer for 60 s", "[1/1] numpy: crashed, no answer"]


def test_stages_side_by_side_end_in_any_order() -> None:
    live, file, _ = view()
    live.begin(2, ["numpy", "naive"])
    for name in ("naive", "numpy"):
        live.start("2 side by side", 1, 1)
        live.finish(name, "passed", "not timed")
    assert [line for line in file.getvalue().splitlines() if "not timed" in line] == [
        "[1/2] naive: passed, not timed",
        "[2/2] numpy: passed, not timed",
    ]


def test_a_run_with_nothing_left_says_so() -> None:
    live, file, _ = view()
    live.begin(0, [])
    assert file.getvalue() == "Nothing is left to measure.\n"


def test_the_terminal_is_given_back_when_the_run_is_interrupted_and_no_line_stays_open() -> None:
    for terminal in (True, False):
        live, file, _ = view(terminal=terminal)
        with suppress(KeyboardInterrupt), live:
            live.begin(1, ["numpy"])
            live.start("numpy", 1, 1)
            raise KeyboardInterrupt
        if terminal:
            assert file.getvalue().count("\x1b[?25l") == file.getvalue().count("\x1b[?25h") == 1
        else:
            assert file.getvalue().endswith("numpy\n")


def test_the_time_left_is_that_of_the_finished_jobs() -> None:
    live, _, clock = view(terminal=True)
    shown = []
    with live:
        live.begin(3, ["naive"])
        for round, seconds in ((1, 30.0), (2, 10.0), (3, 10.0)):
            live.start("naive", round, 3)
            clock.now += seconds
            live.finish("naive", "passed", "", 85.5)
            shown.append(live._progress.tasks[0].fields["text"])
    assert shown == ["about 1 min 00 s left", "about 20 s left", ""]


def test_more_measurements_tell_how_long_they_last() -> None:
    live, file, clock = view(width=80)
    live.begin(2, ["naive"])
    for round in (1, 2):
        live.start("naive", round, 2)
        clock.now += 20.0
        live.finish("naive", "passed", "", 85.5)
    live.begin(
        3, ["numpy", "cpu-sparse-metrics", "cpu-fused-head", "cpu-tiles", "naive"], "as other work disturbed them"
    )
    live.skip({f"parallel-branches-{number}": "no CUDA device" if number < 9 else "no torch" for number in range(12)})
    lines = file.getvalue().splitlines()
    assert "3 measurements more, about 1 min 00 s, as other work disturbed them: numpy," in lines
    assert max(map(len, lines)) <= 80


def test_a_running_job_shows_how_long_it_has_taken() -> None:
    live, _, clock = view(terminal=True)
    live.begin(2, ["naive"])
    assert live._waited() == ""
    live.start("naive", 1, 2)
    clock.now = 75.0
    assert live._waited() == "(1 min 15 s)"
    assert live._progress.tasks[0].description == "[1/2] naive, round 1 of 2"
    live.end()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_bar_is_one_line_at_any_width(width: int) -> None:
    live, _, clock = view(terminal=True, width=width)
    live.begin(66, ["torch-dataloader"])
    live.start("torch-dataloader", 1, 2, 2, 3)
    clock.now = 30.0
    live.finish("torch-dataloader", "passed", "", 6844.0)
    live.start("torch-dataloader", 2, 2, 2, 3)
    live.step("checking against float64")
    clock.now = 45.0
    console = Console(file=io.StringIO(), width=width, highlight=False)
    lines = console.render_lines(live._progress.get_renderable(), pad=False)
    live.end()
    assert len(lines) == 1
    text = "".join(segment.text for segment in lines[0])
    assert len(text) <= width
    assert "[2/66] tor" in text


def test_a_download_of_unknown_size() -> None:
    live, file, _ = view()
    live.download(100, None, "labels")
    live.download(200, None, "labels")
    assert file.getvalue() == "downloading labels\n"
    assert live._progress.tasks[0].fields["text"] == "200 B"


def test_a_study_names_its_point_and_shows_its_time_left() -> None:
    live, file, clock = view()
    with live:
        for name, jobs_after in (("hidden-64", 4), ("hidden-128", 2)):
            live.point(name, 2, jobs_after)
            live.begin(1, ["numpy", "naive"])  # naive is skipped, so half of the next jobs likely are too
            live.start("numpy", 1, 1, 2, 3)
            assert "of the study" not in live._time_left()
            clock.now += 20.0
            live.note("numpy: no answer")
            live.finish("numpy", "passed", "", 610.0)
        live.point("hidden-256", 2, 0)
    assert [line for line in file.getvalue().splitlines() if "hidden" in line] == [
        "hidden-64",
        "[1/1] hidden-64, numpy, try 2 of 3",
        "hidden-64, numpy: no answer",
        "[1/1] hidden-64, numpy, try 2 of 3: 610 us/step",
        "hidden-128: about 1 min 20 s left of the study",
        "[1/1] hidden-128, numpy, try 2 of 3",
        "hidden-128, numpy: no answer",
        "[1/1] hidden-128, numpy, try 2 of 3: 610 us/step",
        "hidden-256: about 40 s left of the study",
    ]
