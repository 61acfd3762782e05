"""A run of the ladder over a user's model: which processes there are, when each is timed, and what is recorded.

Preparation runs side by side, timing alone: a rung is timed as soon as it is judged, while all other processes stand
still. So rows come as they are ready, and a run that is interrupted keeps them. Until the first row, for which the user
waits, the processes beside its own load their libraries and leave the device alone. Each further round has fresh
processes: those of a family come one after the other, and in the second round those that leave one change of the best
rung out.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path

import msgspec

from common.cpu.cores import usable_cores
from common.errors import UsageError
from ladder.machine import environment
from ladder.machine.disturbance import with_disturbances
from ladder.machine.gpu_monitor import NO_ENERGY
from ladder.options.commands import Torch
from ladder.processes.paused import paused
from ladder.processes.worker_process import StartedWorker, first_printed
from ladder.records.run import StageDoc
from ladder.records.torch_run import (
    FIRST_ROW,
    RIGHT,
    ModelRecord,
    TorchProcess,
    TorchResults,
    TorchRung,
    TorchSettings,
    TorchStatus,
    failure_of,
    has_record,
    load,
    save,
)
from ladder.run.folders import alone_in, forget, make_folder, scratch_folder
from ladder.torch_model import messages
from ladder.torch_model.contract import RefusedError
from ladder.torch_model.facts import ModelFacts
from ladder.torch_model.messages import (
    Described,
    Done,
    Failed,
    Judged,
    Judging,
    Message,
    Referenced,
    Refused,
    Timed,
    TorchJob,
    Tried,
)
from ladder.torch_model.progress import Progress, TorchObserver, is_calm
from ladder.torch_model.worker import PART, REFERENCE, digest, leave_job
from stages.engine.stage import Doc
from stages.torch.registry import DOCS, RUNGS, chosen, left_outs, rung_named, with_base
from stages.torch.training_step import WITHOUT, Rung

EAGER = "eager"
LOGS = "logs"  # in the run's folder
ENERGY_S = 5.0  # of training, for which NVML's counter is good to one or two per cent
COMPILE_THREADS = 4
SCRATCH_BYTES = 64 << 20
SOCKET_NAME = "ladder"


@dataclass
class Family:
    """Rungs that share a process, and their process of one round."""

    whole: list[Rung]
    rungs: list[Rung]  # that have to run in this round
    round: int
    folder: Path
    worker: StartedWorker | None = None
    connection: Connection | None = None
    is_first: bool = False  # of the run
    has_begun: bool = False
    has_ended: bool = False
    waiting: list[str] = field(default_factory=list)  # rungs that have no verdict from this process yet


@contextmanager
def opened(asked: Torch, view: TorchObserver, command: str) -> Iterator[Session]:
    """A new or a stopped run with its folder, which it has to itself. Raises UsageError for a run that cannot be."""
    on_gpu = has_gpu()
    earlier = None
    if asked.resume is not None:
        earlier = load(asked.resume)
        _check_resumable(asked, earlier)
        if earlier.environment.get("code") != environment.describe().get("code"):
            (asked.resume / REFERENCE).unlink(missing_ok=True)  # another version of ours made it
        asked = _as_it_began(asked, earlier.settings)
    check_file(asked.model)
    rungs = chosen(asked.stages, on_gpu=on_gpu)
    if asked.write is not None and all(rung.group == "instead" for rung in rungs):
        names = ", ".join(rung.name for rung in rungs)
        raise UsageError(f"--write {asked.write}: {names} has no script; add a rung of ours, such as --stages resident")
    if asked.out is not None and has_record(asked.out):
        raise UsageError(
            f"{asked.out}: holds a torch.json; continue it with --resume {asked.out}, or name another --out"
        )
    rungs = rungs if asked.check else with_base(rungs)
    if asked.energy and not on_gpu:
        view.note(NO_ENERGY)
    was_there = asked.resume is not None or (asked.out is not None and asked.out.exists())
    folder = asked.resume if asked.resume is not None else make_folder(asked.out)
    folder = folder if folder.is_dir() else folder.parent
    with ExitStack() as within:
        within.enter_context(alone_in(folder))
        scratch = within.enter_context(scratch_folder(folder, SCRATCH_BYTES))
        session = Session(asked, rungs, folder, scratch, view, command, earlier)
        try:
            yield session
        finally:
            (folder / REFERENCE).with_suffix(PART).unlink(missing_ok=True)
            if not has_record(folder):
                (folder / REFERENCE).unlink(missing_ok=True)
            if not (session.names_a_log or has_record(folder)):
                forget(folder, folder / LOGS, was_there=was_there)


def with_model(asked: Torch) -> Torch:
    """What was asked, with the file that a stopped run's command named. Raises UsageError where it is not there."""
    if asked.model is not None or asked.resume is None:
        return asked
    earlier, words = load(asked.resume), list[str]()
    with suppress(ValueError):  # no shell would take it
        words = shlex.split(earlier.command)
    named = [file for word in words if (file := Path(word)).name == earlier.model.file and file.is_file()]
    if not named:
        way_out = f"name it: torch {earlier.model.file} --resume {asked.resume}"
        raise UsageError(f"--resume {asked.resume}: {earlier.model.file} is not where it was; {way_out}")
    return msgspec.structs.replace(asked, model=min(named, key=lambda file: digest(file) != earlier.model.sha256))


def _as_it_began(asked: Torch, before: TorchSettings) -> Torch:
    """A resumed run with the settings of its beginning; other epochs are for the recipe."""
    return msgspec.structs.replace(
        asked, stages=tuple(before.stages), rounds=before.rounds, repeats=before.repeats, energy=before.energy,
        check=before.is_check, epochs=asked.epochs or (None if before.is_check else before.epochs),
    )  # fmt: skip


def check_file(model: Path | None) -> None:
    """Raise UsageError unless this is a file, if one is named."""
    if model is not None and not model.is_file():
        start = f"name a .py file, or make one: torch --example tabular > {model}"
        raise UsageError(f"{model}: {'not a file' if model.exists() else 'no such file'}; {start}")


def has_gpu() -> bool:
    """Whether PyTorch can use a GPU here; raises UsageError without PyTorch."""
    if environment.missing(("torch",)) is not None:
        raise UsageError("torch: PyTorch is not installed; `make setup TORCH=1` adds it")
    return environment.missing(("torch", "torch-cuda")) is None


def _check_resumable(asked: Torch, earlier: TorchResults) -> None:
    assert asked.model is not None
    measured = {asked.model.name: earlier.model.sha256, **earlier.model.beside}
    for name, expected in measured.items():
        file = asked.model.parent / name
        if not file.is_file() or digest(file) != expected:
            raise UsageError(f"{file}: is not the file that {asked.resume} measured; start anew")
    now = environment.describe()
    for part in ("gpu", "cpu", "libraries"):
        if now.get(part) != earlier.environment.get(part):
            raise UsageError(f"{asked.resume}: was measured with another {part} than this one; start anew")


class Session:
    """Runs the ladder; what it has measured is in the folder after every message of a process."""

    def __init__(
        self, asked: Torch, rungs: Sequence[Rung], folder: Path, scratch: Path, view: TorchObserver, command: str,
        earlier: TorchResults | None = None,
    ) -> None:  # fmt: skip
        assert asked.model is not None
        self.folder, self._scratch, self._view, self._asked = folder, scratch, view, asked
        self._model_file, self._rungs = asked.model, list(rungs)
        self._began = time.monotonic()
        self._took: dict[str, float] = dict(earlier.took_s) if earlier else {}
        self._pauses: list[tuple[float, float]] = []  # by the clock, in which one process was timed
        self._before_s = earlier.seconds if earlier else 0.0
        self._rows: dict[str, TorchRung] = {rung.name: rung for rung in earlier.rungs} if earlier else {}
        self._model: ModelRecord | None = earlier.model if earlier else None
        self.facts: ModelFacts | None = None  # of the user's file, for the exporter
        self.names_a_log = False  # to the user, who would want to read it
        self._environment = earlier.environment if earlier else environment.describe()
        self._created = earlier.created if earlier else datetime.now(UTC).isoformat(timespec="seconds")
        self._command = earlier.command if earlier else command
        self._judgements: dict[str, Judged] = {}
        self._progress = Progress(view, asked.model.name, times=not asked.check, has_row=bool(self._rows))
        self._running: list[Family] = []
        self._endings: list[Future[None]] = []  # of processes that are done
        self._is_open = bool(self._rows)  # processes but the first may begin
        self._started = 0
        self._model_epochs = 1

    def run(self) -> TorchResults:
        """Measure; raises UsageError where the user's file does not fit the contract."""
        address = str(Path(tempfile.mkdtemp(prefix=SOCKET_NAME, dir=self._scratch)) / "s")
        with Listener(address, "AF_UNIX", backlog=64) as self._listener, ThreadPoolExecutor() as self._ending:
            try:
                self._climb()
            finally:
                list(self._ending.map(self._end, self._running))  # each may take seconds to end what it has started
        if not self._started:
            self._view.note("nothing is left to measure")
        self._progress.writing()
        self._save()
        (self.folder / REFERENCE).unlink(missing_ok=True)
        return self.results

    def kept(self) -> bool:
        """Whether an interrupted run has anything to go on with: rows, or runs that eager is judged by."""
        if (self.folder / REFERENCE).exists():
            self._save()
        return has_record(self.folder)

    @property
    def results(self) -> TorchResults:
        """What is known by now."""
        assert self._model is not None
        order = [*RUNGS, *(name for name in self._rows if name not in RUNGS)]
        asked = self._asked
        settings = TorchSettings(
            epochs=asked.epochs or self._model_epochs, rounds=asked.rounds, repeats=asked.repeats,
            stages=list(asked.stages), energy=asked.energy, is_check=asked.check,
        )  # fmt: skip
        return TorchResults(
            created=self._created, command=self._command, environment=self._environment, model=self._model,
            settings=settings, rungs=[self._rows[name] for name in order if name in self._rows],
            words={name: RUNGS[name].words for row in self._rows.values() for name in row.changes if name in RUNGS},
            seconds=self._before_s + time.monotonic() - self._began, took_s=self._took_by_now(),
        )  # fmt: skip

    def _took_by_now(self) -> dict[str, float]:
        timing = sum(end - begin for begin, end in self._pauses)
        parts = {"preparing and judging": time.monotonic() - self._began - timing, "timing": timing}
        return {**self._took, **{part: self._took.get(part, 0.0) + took for part, took in parts.items() if took}}

    # Families

    def _families(self, rungs: Sequence[Rung]) -> list[list[Rung]]:
        """The rungs by process: one for all that neither capture nor compile, and one for each other."""
        calm = [rung for rung in rungs if is_calm(rung)]
        return [*([calm] if calm else []), *([rung] for rung in rungs if not is_calm(rung))]

    def _left_out(self) -> list[Rung]:
        """The best rung as exact as eager with each change left out."""
        if self._model is None or (recipe := self.results.recipe()) is None:
            return []
        if "all" not in self._asked.stages:
            return []
        return left_outs(rung_named(recipe.fastest))

    def _next(self, rungs: list[Rung], after: int = 0) -> Family | None:
        """The next process of these rungs, in the first round after this one in which some still have to run."""
        for number in range(after + 1, self._rounds + 1):
            if due := [rung for rung in rungs if self._has_to_run(rung, number)]:
                self._started += 1
                return Family(rungs, due, number, self._scratch / f"{number}-{self._started - 1}")
        return None

    @property
    def _rounds(self) -> int:
        return 1 if self._asked.check else self._asked.rounds

    # Processes

    def _climb(self) -> None:
        """Have all processes that are due, as many side by side as there are cores for."""
        families = self._families(self._rungs)
        families.sort(key=lambda rungs: (not is_calm(rungs[0]), rungs[0].step.compiler.arguments is None))
        queue = [family for rungs in families if (family := self._next(rungs))]
        if queue:
            queue[0].is_first = True  # the others follow, those first that compile, which takes longest
            for row in [row for row in self._rows.values() if row.is_timed or row.status not in RIGHT]:
                self._show(row)  # that an earlier session has measured
        has_left_out = False
        self._plan(queue)
        while queue or self._running or not has_left_out:
            if not has_left_out and all(family.round > 1 for family in (*queue, *self._running)):
                has_left_out = True
                queue += [family for rungs in self._families(self._left_out()) if (family := self._next(rungs, 1))]
                self._plan(queue)
                continue
            room = places() - len(self._running)
            starting, queue = queue[:room], queue[room:]
            self._running += starting
            for family in starting:
                self._start(family)
            self._connect(starting)
            for family in self._running:
                if (family.is_first or self._is_open) and not (family.has_begun or family.has_ended):
                    family.has_begun = True
                    self._order(family, messages.Time(""))
            self._hear()
            for family in [family for family in self._running if family.has_ended]:
                self._is_open = True
                self._running.remove(family)
                self._endings.append(self._ending.submit(self._end, family))
                queue += [following] if (following := self._next(family.whole, family.round)) else []

    def _plan(self, queue: Sequence[Family]) -> None:
        """Tell how much there is still to do."""
        rounds = range(1, self._rounds + 1)
        chains = [
            [(number, family.whole if number > family.round else family.rungs) for number in rounds[family.round - 1 :]]
            for family in (*self._running, *queue)
        ]
        self._progress.planned(chains, places())

    def _has_to_run(self, rung: Rung, number: int) -> bool:
        row = self._rows.get(rung.name)
        if row is None:
            return True
        return (
            not self._asked.check
            and row.status in RIGHT
            and sum(process.measured.round == number for process in row.processes) == 0
        )

    def _start(self, family: Family) -> None:
        address = self._listener.address
        assert isinstance(address, str)
        job = TorchJob(
            model=str(self._model_file.resolve()), epochs=self._asked.epochs,
            rungs=[rung.name for rung in family.rungs], round=family.round, repeats=self._asked.repeats,
            address=address, reference=str((self.folder / REFERENCE).resolve()), is_first=family.is_first,
            has_others=len(self._families(self._rungs)) > 1,
            judged=[rung.name for rung in family.rungs if rung.name not in self._rows or not is_calm(rung)],
            is_timed=not self._asked.check,
        )  # fmt: skip
        leave_job(job, family.folder)
        family.waiting = list(job.rungs)
        self._progress.started(family.round, family.rungs)
        command = [*MODULE, str(family.folder)]
        cache = self._scratch / "inductor" / code_of(family.rungs)
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "PYTHONUNBUFFERED": "1"}
        threads = COMPILE_THREADS if family.round == 1 else 1  # later ones find code
        variables["TORCHINDUCTOR_COMPILE_THREADS"] = str(threads)
        if self._asked.check:
            variables[WAITING] = os.environ.get(WAITING, "PASSIVE")
        family.worker = StartedWorker(command, family.folder / "ending.json", self._log(family), variables)

    def _connect(self, families: Sequence[Family]) -> None:
        """Accept the connections of workers that have just been started, in whatever order they come."""
        missing = {family.folder.name: family for family in families}
        until = time.monotonic() + self._asked.timeout
        socket = self._listener._listener._socket  # type: ignore[attr-defined]
        socket.settimeout(POLL_S)
        while missing and time.monotonic() < until:
            with suppress(TimeoutError):
                connection = self._listener.accept()
                missing.pop(connection.recv_bytes().decode()).connection = connection
            for name in [name for name, one in missing.items() if one.worker is None or one.worker.has_ended()]:
                self._lost(missing.pop(name), "its process did not start")
        for family in missing.values():
            self._lost(family, f"no answer within {self._asked.timeout:g} s (--timeout)")

    def _hear(self) -> None:
        """Take in the next messages of the processes that run, and time what has been judged."""
        by_connection = {
            one.connection: one for one in self._running if one.connection is not None and not one.has_ended
        }
        ready = wait(list(by_connection), self._asked.timeout) if by_connection else []
        if not ready:
            for family in by_connection.values():
                self._lost(family, f"no answer within {self._asked.timeout:g} s (--timeout)")
        for connection in ready:
            assert isinstance(connection, Connection)
            family = by_connection[connection]
            try:
                message = messages.read(connection.recv_bytes())
            except (EOFError, ConnectionError):
                self._lost(family, "its process ended")
            else:
                self._take(family, message)
                if isinstance(message, Judged) and not self._asked.check:
                    self._time(family, message.rung)

    def _time(self, family: Family, name: str) -> None:
        """Time a rung that is right, while all other processes stand still, and those that are done have gone."""
        if self._rows[name].status not in RIGHT:
            self._order(family, messages.Time(""))
            return
        for ending in self._endings:
            ending.result()
        self._endings.clear()
        others = [other.worker.id for other in self._running if other.worker is not None and other is not family]
        began = time.monotonic()
        with paused(others):
            self._order(family, messages.Time(name, self._energy_s(name), waiting=len(others)))
            self._timed(family, name)
        self._pauses.append((began, time.monotonic()))

    def _energy_s(self, name: str) -> float:
        """Seconds to train for a rung's energy, which is measured once."""
        is_known = any(process.step_joules for process in self._rows[name].processes)
        return ENERGY_S if self._asked.energy and not is_known else 0.0

    def _take(self, family: Family, message: Message) -> None:
        if isinstance(message, Refused):
            raise RefusedError(message.line)
        if isinstance(message, Described):
            self._model = self._model or message.model
            if (message.model.sha256, message.model.beside) != (self._model.sha256, self._model.beside):
                raise UsageError(f"{self._model_file}: it or a module beside it changed during the run; start anew")
            self._model_epochs, self.facts = message.epochs, message.facts or self.facts
            if family.is_first:
                for note in message.model.notes:
                    self._view.note(note)
            self._progress.read(compiles=1 + message.model.has_dropout)
        elif isinstance(message, Tried):
            self._progress.tried(message.step_s)
        elif isinstance(message, Judging):
            self._progress.judging(message.run, message.runs)
        elif isinstance(message, Referenced):
            assert self._model is not None
            self._model = msgspec.structs.replace(
                self._model, reference=message.kind, is_repeatable=message.is_repeatable, waits=message.waits
            )
            self._progress.referenced()
            self._is_open = self._is_open or self._asked.check
        elif isinstance(message, Judged):
            family.waiting.remove(message.rung)
            self._progress.judged()
            self._judge(message)
            if self._rows[message.rung].status not in RIGHT or self._asked.check:
                self._progress.done(family.round, message.rung, is_timed=False)
        elif isinstance(message, (Timed, Failed)):
            self._took.setdefault(FIRST_ROW, self._before_s + time.monotonic() - self._began)
            self._time_taken(message.rung, message)
            self._progress.done(family.round, message.rung)
            self._is_open = True
        elif isinstance(message, Done):
            family.has_ended = True

    def _judge(self, message: Judged) -> None:
        """Give a rung its verdict; of several processes the worst one counts."""
        still = sum(
            max(0.0, min(message.began + message.first_step_s, end) - max(message.began, begin))
            for begin, end in self._pauses
        )
        message = msgspec.structs.replace(message, first_step_s=message.first_step_s - still)
        rung = rung_named(message.rung)
        row = row_of(rung, message)
        known = self._rows.get(rung.name)
        if known is not None:
            if SEVERITY.index(row.status) <= SEVERITY.index(known.status):
                row = known
            else:
                row = msgspec.structs.replace(row, processes=known.processes)
        self._judgements[rung.name] = message
        self._rows[rung.name] = row
        self._save()
        if row.status not in RIGHT or self._asked.check:
            self._show(row)

    def _timed(self, family: Family, name: str) -> None:
        assert family.connection is not None
        try:
            if not family.connection.poll(self._asked.timeout):
                self._lost(family, f"no answer within {self._asked.timeout:g} s (--timeout)", name)
                return
            message = messages.read(family.connection.recv_bytes())
        except (EOFError, ConnectionError):
            self._lost(family, "its process ended while it was timed", name)
            return
        self._take(family, message)

    def _time_taken(self, name: str, message: Timed | Failed) -> None:
        row = self._rows[name]
        if isinstance(message, Failed):
            row = msgspec.structs.replace(row, status="crashed", reason=message.error)
        else:
            judged = self._judgements[name]
            measured = msgspec.structs.replace(message.measured, prepare_s=judged.first_step_s)
            own = TorchProcess(
                measured, message.steps, message.host_s, judged.first_step_s, judged.peak_mib, message.step_joules
            )
            row = msgspec.structs.replace(row, processes=self._with_disturbances([*row.processes, own]))
        self._rows[name] = row
        self._save()
        self._show(row)

    def _show(self, row: TorchRung) -> None:
        """Have the view show a row; what leaves one change out has no process of the first round."""
        self._view.row(row, self._rows.get(EAGER), self._asked.rounds - (row.group == "left out"))

    def _with_disturbances(self, processes: Sequence[TorchProcess]) -> list[TorchProcess]:
        measured = [process.measured for process in processes]
        judged = with_disturbances(measured, [], on_gpu=any(process.gpu_states for process in measured))
        return [msgspec.structs.replace(process, measured=own) for process, own in zip(processes, judged, strict=True)]

    def _lost(self, family: Family, why: str, *timed: str) -> None:
        """A process is gone: the rungs that it still owed crashed, with the one that it timed."""
        family.has_ended = True
        said = first_printed(self._log(family))
        reason = f"{why}{f'; it printed: {said}' if said else ''}; see {self._log(family)}"
        if self._model is None:
            self.names_a_log = True
            raise UsageError(f"{self._model_file.name}: cannot be climbed: {reason}")
        for name in (*timed, *family.waiting):
            self._progress.done(family.round, name, is_timed=False)
            rung = rung_named(name)
            known = self._rows.get(name) or row_of(rung, Judged(name))
            self._rows[name] = msgspec.structs.replace(known, status="crashed", reason=reason)
            self._show(self._rows[name])
        family.waiting = []
        self._save()

    def _log(self, family: Family) -> Path:
        """Where the output of a process goes."""
        return self.folder / LOGS / f"{family.folder.name}-{family.rungs[0].name if family.rungs else EAGER}.log"

    def _order(self, family: Family, order: messages.Time) -> None:
        assert family.connection is not None
        with suppress(ConnectionError):  # told by the answer that does not come
            family.connection.send_bytes(messages.encoded(order))

    def _end(self, family: Family) -> None:
        if family.worker is None:
            return
        if family.connection is not None:
            family.connection.close()
        family.worker.end()

    def _save(self) -> None:
        if self._model is not None:
            save(self.results, self.folder)


WAITING = "OMP_WAIT_POLICY"  # passive: where no step is timed, threads that wait for each other leave the core
MODULE = [sys.executable, "-m", "ladder.torch_model.worker"]
POLL_S = 0.1
SEVERITY: tuple[TorchStatus, ...] = ("passed", "less exact", "refused", "crashed", "wrong")


def places() -> int:
    """How many processes may be there at once."""
    return max(1, usable_cores() * 3 // 4)


def code_of(rungs: Sequence[Rung]) -> str:
    """The folder of the code that these rungs compile: their own, so that a first step compiles all that it needs.

    The best rung with a change left out finds that rung's.
    """
    return rungs[0].name.partition(WITHOUT)[0] if rungs else EAGER


def row_of(rung: Rung, judged: Judged) -> TorchRung:
    """A rung's row by what its process found."""
    doc = Doc.of_any(DOCS[rung.name]) if rung.name in DOCS else None
    status, reason = verdict(judged)
    return TorchRung(
        name=rung.name, parent=rung.parent.name if rung.parent else None, group=rung.group, words=rung.words,
        changed=rung.changed, changes=rung.changes, precision=rung.step.arithmetic.name,
        doc=StageDoc(why=doc.why, change=doc.change, expect=doc.expect, summary=doc.summary) if doc else LEFT_OUT,
        status=status, reason=reason, notes=list(judged.notes), checks=list(judged.checks),
        error_ratio=judged.error_ratio, same_bits=judged.same_bits,
    )  # fmt: skip


LEFT_OUT = StageDoc(
    why="A recipe should hold no change that buys nothing.",
    change="One change of the fastest rung is taken back to the usual loop's choice.",
    expect="Slower than the fastest rung by what the change is worth there.",
)


def verdict(judged: Judged) -> tuple[TorchStatus, str]:
    """A rung's status by its checks, and why it is not `passed`."""
    if judged.misfit:
        return "refused", judged.misfit
    if judged.error:
        return "crashed", judged.error
    if why := failure_of(judged.checks):
        return "wrong" if any(check.is_wrong for check in judged.checks) else "less exact", why
    return "passed", ""
