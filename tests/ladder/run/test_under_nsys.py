"""Profiling a stage under nsys, with a fake nsys: which files are profiles, and what a failure costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ladder.measure.protocol import Job, JobResult
from ladder.measure.timing import Plan
from ladder.profile import nsys, nsys_export
from ladder.profile.trace import ProfileError, Trace
from ladder.records.profile import Profile
from ladder.run import under_nsys
from tests.ladder.harness import NUMPY, small_problem
from tests.ladder.profile.test_summary import STEPS, epoch_of

JOB = Job(
    source=NUMPY,
    problem=small_problem(metrics_every=10, epochs=20),
    dataset="nowhere",
    round=0,
    first_updates=[],
    wanted=Plan(20, 1, 0),
    profile="nsys",
    budget_s=None,
)
Profiler = Callable[[Trace, JobResult], Profile]


@pytest.fixture
def profile_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profiler:
    """Profiles a process that returns the given result, with the given trace in nsys's report."""
    profiles = tmp_path / "profiles"

    def run(trace: Trace, result: JobResult) -> Profile:
        def run_job(
            job: Job, folder: Path, log: Path, timeout_s: float, wrap: Callable[[Sequence[str]], list[str]]
        ) -> JobResult:
            assert wrap(["python"])[-3:] == ["-o", str(profiles / "naive"), "python"]
            assert not (profiles / "naive.nsys-rep").exists()
            return result

        monkeypatch.setattr(under_nsys, "run_job", run_job)
        monkeypatch.setattr(nsys, "export", lambda *_: None)
        monkeypatch.setattr(nsys_export, "read", lambda _: trace)
        return under_nsys.profile_under_nsys(
            Path("nsys"),
            JOB,
            "naive",
            STEPS,
            9.0,
            scratch=tmp_path,
            profiles=profiles,
            log=tmp_path / "log",
            timeout_s=1,
        )

    return run


def two_epochs() -> Trace:
    first, second = epoch_of(8, 0, totals=False), epoch_of(9, 100_000, totals=True)
    return Trace(
        [*first.windows, *second.windows],
        [*first.kernels, *second.kernels],
        [*first.copies, *second.copies],
        [*first.calls, *second.calls],
    )


def test_profiling_writes_a_profile_and_a_trace(profile_trace: Profiler, tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "naive.nsys-rep").write_text("an older run's")
    profile = profile_trace(two_epochs(), JobResult())
    assert (profile.tool, profile.kernels_per_step, profile.plain_step_us) == ("nsys", 2, 9.0)
    assert [path.name for path in (tmp_path / "profiles").iterdir()] == ["naive.nsys.trace.json.gz"]


def test_a_failed_process_leaves_no_profile(profile_trace: Profiler) -> None:
    with pytest.raises(ProfileError, match="killed by SIGSEGV"):
        profile_trace(two_epochs(), JobResult(error="killed by SIGSEGV"))


def test_a_trace_without_all_epochs_is_refused(profile_trace: Profiler) -> None:
    with pytest.raises(ProfileError, match="nsys recorded 1 whole epochs instead of 2"):
        profile_trace(epoch_of(8, 0, totals=False), JobResult())
