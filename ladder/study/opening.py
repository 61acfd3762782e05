"""Opens a study for measuring: here, point by point; by jobs; or, inside a job, at one point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from common.errors import UsageError
from ladder.options.commands import MeasureStudy, ResumeStudy
from ladder.records.jobs import load_submission
from ladder.records.study import as_found, load_study
from ladder.run.entries import all_entries
from ladder.run.folders import alone_in, make_folder
from ladder.study import study_session
from ladder.study.point_session import PointSession
from ladder.study.spread import SpreadSession, how_to_send
from ladder.study.study_file import with_settings
from ladder.study.study_session import StudyObserver, StudySession
from stages.registry import Entry

Session = StudySession | SpreadSession | PointSession


@contextmanager
def opened(asked: MeasureStudy | ResumeStudy, observer: StudyObserver, command: str) -> Iterator[Session]:
    """A new or a stopped study, which has its folder to itself until the block ends.

    UsageError for a study that cannot be, or cannot go on. `command` is the command line, recorded with every run.
    """
    entries, _ = all_entries()
    if isinstance(asked, ResumeStudy):
        if asked.in_job:
            plan = load_study(asked.resume)
            study = StudySession(plan, asked.resume, asked.points, asked.data_dir, entries, observer, plan.command)
            yield PointSession(study, asked.in_job)
            return
        with alone_in(asked.resume):
            if asked.on or load_submission(asked.resume) is not None:
                yield _resumed_jobs(asked, entries, observer)
            else:
                plan, folder = study_session.resume_study(asked, entries, observer)
                yield StudySession(plan, folder, asked.points, asked.data_dir, entries, observer, command)
        return
    plan, data = study_session.begin_study(asked, entries, observer, command)
    how = how_to_send(asked, plan, entries, data) if asked.on else None
    if how and how.on == "local" and how.parallel > 1 and "remeasure" not in asked.changes:
        plan = with_settings(plan, {"remeasure": 0})  # the others disturb each process, and would the next one
    folder = make_folder(asked.out, f"{plan.name}-")
    with alone_in(folder):
        study_session.refuse_begun(folder)  # once more: another may have begun while the data was downloaded
        if how is None:
            yield StudySession(plan, folder, asked.points, asked.data_dir, entries, observer, command)
        else:
            yield SpreadSession(folder, plan, how, asked.points, _words(asked), observer)


def _resumed_jobs(asked: ResumeStudy, entries: Mapping[str, Entry], observer: StudyObserver) -> SpreadSession:
    """The jobs of a study, with new options where they are given."""
    folder = asked.resume
    plan, submission = as_found(load_study(folder), folder), load_submission(folder)
    study_session.due(plan, asked.points)
    data = submission.data if submission else study_session.data_hashes(plan, entries, asked.data_dir, observer)
    how = submission or how_to_send(asked, plan, entries, data)
    session = SpreadSession(folder, plan, how, asked.points, _words(asked), observer)
    if submission is not None and asked.asks_jobs:
        if session.goes_on():
            raise UsageError(f"{folder}: its jobs go on; leave out their options, or stop them: `{session.stop}`")
        session.how = how_to_send(asked, plan, entries, data, submission)
    return session


def _words(asked: MeasureStudy | ResumeStudy) -> list[str]:
    return [] if asked.data_dir is None else ["--data-dir", str(asked.data_dir.absolute())]
