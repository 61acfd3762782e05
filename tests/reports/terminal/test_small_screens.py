"""The live view of a study's jobs; tests/golden has its screen and that of `doctor`."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from ladder.records.jobs import PointJob
from reports.terminal.jobs_view import JobsView

NOW = 1000.0
JOBS = [
    PointJob("hidden-8", "measured", job="12_0", host="node1", began=900.0, ended=940.0),
    PointJob("hidden-16", "stopped", "out of time", "12_1", "node2", 900.0, 990.0),
    PointJob("hidden-32", "running", job="12_2", host="node1", began=980.0),
    PointJob("hidden-64", job="12_3"),
    PointJob("hidden-128", "skipped", "it has no room", "12_4", "node1", 900.0, 901.0),
]


def view(width: int = 80, height: int = 24, *, terminal: bool = False) -> tuple[JobsView, StringIO]:
    out = StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=terminal, color_system=None, _environ={})
    return JobsView(console, lambda: NOW), out


def test_a_file_gets_a_line_when_a_point_changes_its_state() -> None:
    shown, out = view()
    for _ in range(2):
        shown.show(JOBS, 2)
    shown.end()
    assert out.getvalue().splitlines() == [
        "hidden-8: measured in 40 s",
        "hidden-16: stopped: out of time",
        "hidden-32: running, job 12_2 on node1",
        "hidden-128: skipped: it has no room",
        "1 running, 1 stopped, 1 waiting, 1 measured, 1 skipped; about 30 s left",  # (2 x 40 s - 20 s) by two at once
    ]


def test_a_point_that_goes_back_into_the_queue_waits_again() -> None:
    shown, out = view()
    for job in (JOBS[2], PointJob("hidden-32", job="12_2")):
        shown.show([job], 2)
    assert out.getvalue().splitlines()[2:] == ["hidden-32: waiting again, job 12_2", "1 waiting"]


def test_a_terminal_gets_a_table_that_fits() -> None:
    shown, out = view(terminal=True)
    shown.show(JOBS, 2)
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines if line.strip().startswith("hidden")] == [job.name for job in JOBS]
    assert any(line.split() == ["hidden-32", "running", "12_2", "node1", "20", "s"] for line in lines)
    assert any("stopped: out of time" in line for line in lines)
    shown.end()


def test_a_low_terminal_shows_the_points_that_need_a_look() -> None:
    shown, out = view(height=6, terminal=True)
    shown.show(JOBS, 2)
    shown.end()
    assert "hidden-16" in out.getvalue()
    assert "hidden-32" in out.getvalue()
    assert "hidden-8 " not in out.getvalue()


FINDINGS = [
    ("Python", "3.12.3", "", False),
    ("NVIDIA driver", "none", "on a machine with a GPU: `make ladder`", True),
    ("data", "MNIST is not in the cache, /root/.cache/optimisation-ladder/mnist", "use --data-dir [FOLDER]", False),
    ("nsys", "not found", "it is at https://developer.nvidia.com/nsight-systems-and-more-of-this, or do without", True),
]
