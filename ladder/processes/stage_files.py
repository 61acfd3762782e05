"""The stages in users' files, as a process for each describes them: the harness never imports such a file."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import NoReturn

import msgspec

from common.cost import Exchanges
from common.errors import UsageError
from common.problem import Problem
from common.process_group import kill_group
from common.streams import printable
from common.trainer import Trainer
from ladder.processes.stage_reader import Answer, Question
from stages.engine.recipe import Traits
from stages.engine.stage import Stage
from stages.engine.user_stage import ATTRIBUTE, check_described
from stages.registry import Entry

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60.0
DRAIN_S = 1.0  # for what an ended process has printed
ANSWER_LIMIT = 1 << 20  # bytes; a longer one is no description
OUTPUT_KEPT = 4096  # bytes of what the file prints last: the reason may be there if the process ends


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
    """The answer of a process of its own; UsageError for a file that fails."""
    try:
        answer = msgspec.json.decode(_line(question), type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = Answer()
    if answer.error:
        raise UsageError(printable(answer.error))
    if answer.stage is None:
        _refuse(question, "wrote to a pipe that is not its own; leave descriptors above 2 alone")
    return answer


def _refuse(question: Question, what: str) -> NoReturn:
    raise UsageError(f"--stage-file {question.file}: its import {what}")


def _line(question: Question) -> bytes:
    """The line that answers; UsageError for a file that takes too long, exits, or answers too much."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ladder.processes.stage_reader", str(os.getpid())],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        with suppress(BrokenPipeError):  # it has ended already; reading says how
            process.stdin.write(msgspec.json.encode(question))
            process.stdin.close()
        return _read(process, process.stdout.fileno(), process.stderr.fileno(), question)
    finally:
        kill_group(process.pid)
        process.wait()
        process.stdout.close()
        process.stderr.close()


def _read(process: subprocess.Popen[bytes], answer: int, output: int, question: Question) -> bytes:
    """Read the answer, and what the file prints, so that it never waits for a full pipe."""
    raw, printed, listening = b"", b"", [answer, output]
    deadline = time.monotonic() + TIMEOUT_S
    while b"\n" not in raw:
        ready, _, _ = select.select(listening, [], [], max(deadline - time.monotonic(), 0.0))
        if time.monotonic() >= deadline:
            _refuse(question, f"did not end within {TIMEOUT_S:g} s; move slow work into the trainer")
        for pipe in ready:
            chunk = os.read(pipe, 1 << 16)
            if pipe == output:
                printed = (printed + chunk)[-OUTPUT_KEPT:]
                listening = listening if chunk else [answer]
                continue
            raw += chunk
            if len(raw) > ANSWER_LIMIT:
                _refuse(question, f"describes its stage in more than {ANSWER_LIMIT:,} bytes; shorten its texts")
            if not chunk:
                _refuse(question, _how_it_ended(process, printed, output))
    return raw.partition(b"\n")[0]


def _how_it_ended(process: subprocess.Popen[bytes], printed: bytes, output: int) -> str:
    code = process.wait(TIMEOUT_S)
    kill_group(process.pid)  # any other process of it could print
    while select.select([output], [], [], DRAIN_S)[0] and (chunk := os.read(output, 1 << 16)):
        printed = (printed + chunk)[-OUTPUT_KEPT:]
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended Python with exit code {code}"
    lines = printed.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{how}{f' ({printable(last[:200])})' if last else ''}; correct it"
