from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console

from reports.terminal.progress import LiveView


def view(times: Iterator[float], *, terminal: bool = False) -> tuple[LiveView, io.StringIO]:
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=terminal, highlight=False, legacy_windows=False)
    return LiveView(console, clock=lambda: next(times)), file


def ladder(live: LiveView) -> None:
    with live:
        live.download(0, 9_900_000, "train-images")
        live.download(9_900_000, 9_900_000, "train-images")
        live.begin(4, ["numpy", "naive"])
        live.step("training the float64 oracle")
        for round in (1, 2):
            live.start("numpy", round, 2)
            live.step("warming up")
            live.finish("numpy", "passed", "606 ms/epoch")
            live.start("naive", round, 2)
            live.step("checking against the oracle")
            live.finish("naive", "crashed", "[signal 9] " + "x" * 100)
        live.note("numpy is shortened")


def ticks() -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += 10.0


def test_a_file_gets_plain_single_lines() -> None:
    live, file = view(ticks())
    ladder(live)
    assert file.getvalue().splitlines() == [
        "downloading train-images (9.9 MB)",
        "4 jobs: numpy, naive",
        "training the float64 oracle",
        "[1/4] numpy, round 1 of 2",
        "numpy  passed   606 ms/epoch",
        "[2/4] naive, round 1 of 2",
        "naive  crashed  [signal 9] " + "x" * 100,
        "[3/4] numpy, round 2 of 2",
        "numpy  passed   606 ms/epoch",
        "[4/4] naive, round 2 of 2",
        "naive  crashed  [signal 9] " + "x" * 100,
        "numpy is shortened",
    ]


def test_a_terminal_gets_the_same_lines_and_a_bar_that_goes_away() -> None:
    live, file = view(ticks(), terminal=True)
    ladder(live)
    text = file.getvalue()
    for part in ("downloading train-images", "606 ms/epoch", "[signal 9]", "numpy is shortened", "\x1b["):
        assert part in text
    assert text.endswith(("\x1b[2K", "\x1b[?25h"))  # erase the bar's line, show the cursor


def test_the_terminal_is_given_back_when_the_run_is_interrupted() -> None:
    live, file = view(ticks(), terminal=True)
    try:
        with live:
            live.begin(1, ["numpy"])
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert file.getvalue().count("\x1b[?25l") == file.getvalue().count("\x1b[?25h") == 1


def test_the_time_left_is_that_of_the_finished_jobs() -> None:
    live, _ = view(iter([100.0, 130.0, 130.0, 140.0, 140.0, 150.0]), terminal=True)
    shown = []
    with live:
        live.begin(3, ["naive"])
        for round in (1, 2, 3):  # of 30, 10 and 10 seconds
            live.start("naive", round, 3)
            live.finish("naive", "passed", "40 ms/epoch")
            shown.append(live._progress.tasks[0].fields["text"])
    assert shown == ["1 of 3, about 1 min 00 s left", "2 of 3, about 20 s left", "3 of 3"]


def test_a_download_of_unknown_size() -> None:
    live, file = view(ticks())
    live.download(100, None, "labels")
    live.download(200, None, "labels")
    assert file.getvalue() == "downloading labels\n"
    assert live._progress.tasks[0].fields["text"] == "200 B"


def test_a_study_shows_its_time_left() -> None:
    live, file = view(ticks())
    with live:
        for name, jobs_after in (("hidden-64", 4), ("hidden-128", 2)):
            live.point(name, 2, jobs_after)
            live.begin(1, ["numpy", "naive"])  # naive is skipped, so half of the next jobs likely are too
            live.start("numpy", 1, 1)
            assert "of the study" not in live._time_left()
            live.finish("numpy", "passed", "606 ms/epoch")
        live.point("hidden-256", 2, 0)
    assert [line for line in file.getvalue().splitlines() if "hidden" in line] == [
        "hidden-64",
        "hidden-128: about 40 s left of the study",
        "hidden-256: about 20 s left of the study",
    ]
