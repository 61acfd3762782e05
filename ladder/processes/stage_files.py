"""The stages in users' files, as a process for each describes them: the harness never imports such a file."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import msgspec

from common.cost import Exchanges
from common.errors import UsageError
from common.problem import Problem
from common.streams import printable
from common.trainer import Trainer
from ladder.processes.stage_reader import ANSWER, QUESTION, Answer, Question
from ladder.processes.worker_process import run_to_end
from stages.engine.recipe import Traits
from stages.engine.stage import Stage
from stages.engine.user_stage import ATTRIBUTE, check_described
from stages.registry import Entry

TIMEOUT_S = 60.0
ANSWER_LIMIT = 1 << 20  # bytes; a longer one is no description
LOG = "printed.log"


@dataclass(frozen=True)
class OwnStage(Stage):
    """A stage in a user's file, known by its description. Processes of its own build and ask it."""

    file: Path = Path()
    described_traits: Traits | None = None
    own: tuple[str, ...] = ()  # of its parts, and `build`: those that the file writes itself

    @property
    def traits(self) -> Traits | None:
        """The properties of its recipe that no profile shows; None without a recipe."""
        return self.described_traits

    def misfit(self, problem: Problem, steps: int) -> str | None:
        """Why the stage cannot train this problem; UsageError if its file cannot say."""
        return _about(self.file, problem, steps, 0, 0).misfit

    def exchanges(self, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Exchanges:
        """How often a step waits for other blocks inside a kernel; UsageError if its file cannot say."""
        return _about(self.file, problem, steps, multiprocessors, block_shared_bytes).exchanges


def described(files: Sequence[Path]) -> list[Entry]:
    """The stages of these files, in their order; UsageError for the first file without a valid stage."""
    return [_entry(file, _ask(Question(str(file)))) for file in files]


def _entry(file: Path, answer: Answer) -> Entry:
    """The stage that an answer describes. The answer comes from the user's code: all of it is checked again."""
    assert answer.stage is not None
    told = answer.stage
    stage = OwnStage(
        **{field.name: getattr(told, field.name) for field in fields(OwnStage) if hasattr(told, field.name)},
        build=_built_elsewhere,
        compiles_within=nullcontext if told.compiles else None,
        first_updates_within=nullcontext if told.compiles_first_updates else None,
        file=file,
        described_traits=told.traits,
    )
    check_described(file, stage, told.doc)
    return Entry(f"{file}:{ATTRIBUTE}", stage, told.doc)


def _built_elsewhere(*_: object) -> Trainer:
    raise TypeError("a user's stage is built in processes of its own alone")


@cache
def _about(file: Path, problem: Problem, steps: int, multiprocessors: int, block_shared_bytes: int) -> Answer:
    """The answer of one file about a problem."""
    answer = _ask(Question(str(file), problem, steps, multiprocessors, block_shared_bytes))
    return msgspec.structs.replace(answer, misfit=printable(answer.misfit) if answer.misfit else None)


def _ask(question: Question) -> Answer:
    """The answer of a process of its own; UsageError for a file that fails, takes too long, exits, or answers much."""
    with TemporaryDirectory(prefix="ladder-file-") as name:
        folder = Path(name)
        (folder / QUESTION).write_bytes(msgspec.json.encode(question))
        command = [sys.executable, "-m", "ladder.processes.stage_reader", name]
        try:
            code = run_to_end(command, folder / "ending.json", folder / LOG, TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _refuse(question, f"did not end within {TIMEOUT_S:g} s; move slow work into the trainer")
        if not (folder / ANSWER).exists():
            _refuse(question, _how_it_ended(code, folder / LOG))
        with (folder / ANSWER).open("rb") as file:
            raw = file.read(ANSWER_LIMIT + 1)
    if len(raw) > ANSWER_LIMIT:
        _refuse(question, f"describes its stage in more than {ANSWER_LIMIT:,} bytes; shorten its texts")
    answer = msgspec.json.decode(raw, type=Answer)
    if answer.error:
        raise UsageError(printable(answer.error))
    return answer


def _refuse(question: Question, what: str) -> NoReturn:
    raise UsageError(f"--stage-file {question.file}: its import {what}")


def _how_it_ended(code: int, log: Path) -> str:
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended Python with exit code {code}"
    lines = log.read_text(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{how}{f' ({printable(last[:200])})' if last else ''}; correct it"
