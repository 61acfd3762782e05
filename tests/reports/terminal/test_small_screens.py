"""The live view of a study's jobs; tests/golden has the screen of `doctor`."""

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


def view() -> tuple[JobsView, StringIO]:
    out = StringIO()
    return JobsView(Console(file=out), lambda: NOW), out


def test_a_line_is_printed_when_a_point_changes_its_state() -> None:
    shown, out = view()
    for _ in range(2):
        shown.show(JOBS, 2)
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


FINDINGS = [
    ("Python", "3.12.3", "", False),
    ("NVIDIA driver", "none", "on a machine with a GPU: `make ladder`", True),
    ("data", "MNIST is not in the cache, /root/.cache/optimisation-ladder/mnist", "use --data-dir [FOLDER]", False),
    ("nsys", "not found", "it is at https://developer.nvidia.com/nsight-systems-and-more-of-this, or do without", True),
]
