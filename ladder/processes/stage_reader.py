"""The process that imports a user's stage file: `python -m ladder.processes.stage_reader FOLDER`.

It answers one question, which a file in the folder asks: what the stage is, and what it says to a problem. Whatever the
file does when imported, such as changing the environment, hanging, exiting or printing, stays in this process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from common.cost import Exchanges
from common.errors import UsageError, describe_error
from common.files import atomic_write
from common.problem import Problem
from common.process_group import die_with_parent
from common.streams import flush_output
from common.vocabulary import Regime
from stages.engine.recipe import PartUse, Traits
from stages.engine.stage import Doc, Stage
from stages.engine.user_stage import enter_folder, load_file, own_parts

QUESTION, ANSWER = "question.json", "answer.json"


class Question(msgspec.Struct, frozen=True):
    """Asks for the stage of a file; with a problem, also for its misfit; with a GPU's size, for exchanges."""

    file: str
    problem: Problem | None = None
    steps: int = 0  # an epoch
    multiprocessors: int = 0  # of the GPU; 0: not asked
    block_shared_bytes: int = 0


class Description(msgspec.Struct, frozen=True):
    """A stage without its code; the fields are those of `stages.engine.stage.Stage`."""

    name: str
    title: str
    group: str
    precision: str
    needs: tuple[str, ...]
    below: str | None
    changed: str | None
    compiles: bool
    compiles_first_updates: bool
    traits: Traits | None
    doc: Doc
    words: str = ""
    regime: Regime | None = None
    parts: tuple[PartUse, ...] = ()
    own: tuple[str, ...] = ()  # of the parts, and `build`: those that the file writes itself


class Answer(msgspec.Struct, frozen=True):
    """The answer: the stage, or the error that its user is to read."""

    error: str = ""
    stage: Description | None = None
    misfit: str | None = None
    exchanges: Exchanges = Exchanges()


def main(folder: Path) -> None:
    """Answer the question in the folder by a file there."""
    die_with_parent()
    question = msgspec.json.decode((folder / QUESTION).read_bytes(), type=Question)
    enter_folder(path := Path(question.file))
    atomic_write(folder / ANSWER, msgspec.json.encode(_answer(path, question)))


def _answer(path: Path, question: Question) -> Answer:
    try:
        stage, doc = load_file(path)
    except UsageError as error:
        return Answer(error=str(error))
    try:
        misfit, exchanges = None, Exchanges()
        if (problem := question.problem) is not None:
            misfit = stage.misfit(problem, question.steps)
        if problem is not None and question.multiprocessors:
            size = question.multiprocessors, question.block_shared_bytes
            exchanges = stage.exchanges(problem, question.steps, *size)
    except Exception as error:
        return Answer(error=f"--stage-file {path}: cannot judge the problem: {describe_error(error, path)}; correct it")
    return Answer("", _described(path, stage, doc), misfit, exchanges)


def _described(path: Path, stage: Stage, doc: Doc) -> Description:
    return Description(
        **{name: getattr(stage, name) for name in Description.__struct_fields__ if hasattr(stage, name)},
        compiles=stage.compiles_within is not None,
        compiles_first_updates=stage.first_updates_within is not None,
        doc=doc,
        own=own_parts(path, stage),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    flush_output()
    os._exit(0)  # without the files' threads and exit functions
