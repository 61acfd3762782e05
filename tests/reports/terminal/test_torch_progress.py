from __future__ import annotations

from msgspec.structs import replace
from rich.console import Console

from reports.terminal.torch_progress import TorchView
from tests.reports.terminal.screens import screen, too_wide
from tests.reports.torch_sample import a_rung, a_torch_run

RUN = a_torch_run()


def whole(console: Console) -> None:
    with TorchView(console) as view:
        view.note("A note.")
        for rung in RUN.rungs:
            view.doing("timing rungs", rung.name, [130.0])
            view.doing("timing rungs", rung.name, [120.0])
            view.row(rung, RUN.rung("eager"), 2)
            view.row(rung, RUN.rung("eager"), 2)


def lines(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"{name} ")]


def test_a_rung_has_one_line_with_its_time_and_speedup() -> None:
    text = screen(whole, 80)
    assert not too_wide(text, 80)
    assert lines(text, "step-graph")[0].split() == ["step-graph", "201", "13.0x", "as", "exact"]
    assert lines(text, "no-item")[0].split()[2] == "~1.01x"
    assert lines(text, "eager")[0].split()[2] == "-"
    assert all(len(lines(text, rung.name)) == 1 for rung in RUN.rungs if rung.group != "left out")
    assert text.splitlines().count("timing rungs, about 2 min left") == 1
    assert "timing rungs:" not in text


def test_a_rung_without_a_time_shows_its_reason() -> None:
    (line,) = lines(screen(whole, 200), "graph-tf32")
    assert RUN.rungs[10].reason in line


def test_a_check_has_no_columns_of_times() -> None:
    judged = a_rung("eager", None, None)

    def shows(console: Console) -> None:
        view = TorchView(console)
        for rung in (judged, judged, replace(judged, status="crashed", reason="it ended")):
            view.row(rung, None, 2)

    text = screen(shows, 80)
    assert text.splitlines()[0].split() == ["rung", "check"]
    first, second = lines(text, "eager")
    assert first.split() == ["eager", "as", "exact"]
    assert "it ended" in second


def test_a_rung_that_fails_once_it_is_timed_has_two_lines() -> None:
    timed = a_rung("eager", None, 100.0)

    def shows(console: Console) -> None:
        view = TorchView(console)
        for rung in (timed, timed, replace(timed, status="crashed", reason="it ended")):
            view.row(rung, None, 2)

    first, second = lines(screen(shows, 80), "eager")
    assert first.split()[1] == "100"
    assert "it ended" in second


def test_a_terminal_redraws_what_goes_on_and_removes_it() -> None:
    text = screen(whole, 80, terminal=True)
    assert "\x1b[?25l" in text
    assert text.endswith("\x1b[2K")


def test_a_terminal_shows_a_phase_with_its_time_and_what_is_left() -> None:
    clock = iter([100.0, 100.0, *[130.0] * 3, *[141.0] * 50])

    def shows(console: Console) -> None:
        view = TorchView(console, lambda: next(clock))
        view.doing("judging eager", "run 3 of 8", [60.0], "the first row")
        view._now.began = 100.0
        console.print(view._now)
        view.end()

    text = screen(shows, 100, terminal=True)
    assert "judging eager: run 3 of 8 (" in text
    assert "until the first row" in text


def test_a_file_has_a_line_a_minute_of_what_a_long_phase_does() -> None:
    seconds = [0.0]

    def shows(console: Console) -> None:
        view = TorchView(console, lambda: seconds[0])
        for at in (0.0, 20.0, 40.0, 65.0, 80.0, 130.0):
            seconds[0] = at
            view.doing("judging eager", f"run after {at:g} s")

    assert screen(shows, 80).splitlines() == [
        "judging eager", "judging eager: run after 65 s", "judging eager: run after 130 s",
    ]  # fmt: skip


def test_a_file_has_the_time_left_as_soon_as_it_is_known() -> None:
    def shows(console: Console) -> None:
        view = TorchView(console, lambda: 0.0)
        for run, left_s in ((1, []), (2, [20.0, 160.0]), (3, [50.0])):
            view.doing("judging eager", f"run {run} of 8", left_s, "the first row")
        view.doing("preparing and timing rungs", "compile, 1 of 28 done", [170.0])

    assert screen(shows, 80).splitlines() == [
        "judging eager", "judging eager: run 2 of 8, about 20 s to 3 min until the first row",
        "preparing and timing rungs, about 3 min left",
    ]  # fmt: skip


def test_a_speedup_of_too_few_processes_is_marked_and_the_mark_explained_once() -> None:
    eager, twice = a_rung("eager", None, 2600.0), a_rung("step-graph", "eager", 200.0)
    once = replace(twice, name="resident", processes=twice.processes[:1])
    other = replace(once, name="workers")

    def shows(console: Console, processes: int) -> None:
        view = TorchView(console)
        for rung in (eager, once, other, twice):
            view.row(rung, eager, processes)

    text = screen(lambda console: shows(console, 2), 80)
    marks = {name: lines(text, name)[0].split()[2] for name in ("resident", "workers", "step-graph")}
    assert marks == {"resident": "~13.1x", "workers": "~13.1x", "step-graph": "13.0x"}
    mark = "~ marks a speedup that may be noise, or comes from the first of 2 processes."
    assert text.splitlines().count(mark) == 1
    assert "~" not in screen(lambda console: shows(console, 1), 80)


def test_a_note_is_one_line_so_that_its_command_can_be_copied() -> None:
    note = f"interrupted; continue with: {'a/long/folder/' * 8} --resume run"
    assert note in screen(lambda console: TorchView(console).note(note), 80).splitlines()
