"""A run of the ladder over a user's model: which processes there are, when each is timed, and what is recorded.

Preparation runs side by side, timing alone: a process that has prepared and judged its rungs waits until the session
gives it its turn. The rungs of the usual loop are timed as soon as they are judged, while all other processes stand
still, so that their rows come within seconds. The first round times the others one after the other. Each further round
has fresh processes, and times all rungs anew, with those that leave one change of the best one out.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    Failed,
    Judged,
    Judging,
    Message,
    Ready,
    Referenced,
    Refused,
    Timed,
    TorchJob,
)
from ladder.torch_model.progress import Progress, TorchObserver, is_calm
from ladder.torch_model.worker import REFERENCE, digest, leave_job
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
    """The rungs of one process, and the process."""

    name: str
    rungs: list[Rung]
    folder: Path
    worker: StartedWorker | None = None
    connection: Connection | None = None
    makes_reference: bool = False
    is_timed_at_once: bool = False
    is_ready: bool = False
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
        asked = _as_it_began(asked, earlier.settings)
    if asked.model is None:
        raise UsageError(
            f"--resume {asked.resume}: name the model's file, too: torch my_model.py --resume {asked.resume}"
        )
    check_file(asked.model)
    rungs = chosen(asked.stages, on_gpu=on_gpu)
    if asked.write is not None and all(rung.group == "instead" for rung in rungs):
        names = ", ".join(rung.name for rung in rungs)
        raise UsageError(f"--write {asked.write}: {names} has no script; add a rung of ours, such as --stages resident")
    if asked.out is not None and has_record(asked.out):
        raise UsageError(
            f"{asked.out}: holds a torch.json; continue it with --resume {asked.out}, or name another --out"
        )
    if not asked.check and rungs != (based := with_base(rungs)):
        if earlier is None:
            view.note(f"{EAGER} is timed, too: speedups are over it")
        rungs = based
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
            if not (session.names_a_log or has_record(folder)):
                forget(folder, folder / LOGS, was_there=was_there)


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
    if asked.model is not None:
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
        self._began, self._phase_began = time.monotonic(), time.monotonic()
        self._took: dict[str, float] = dict(earlier.took_s) if earlier else {}
        self._before_s = earlier.seconds if earlier else 0.0
        self._rows: dict[str, TorchRung] = {rung.name: rung for rung in earlier.rungs} if earlier else {}
        self._model: ModelRecord | None = earlier.model if earlier else None
        self.facts: ModelFacts | None = None  # of the user's file, for the exporter
        self.names_a_log = False  # to the user, who would want to read it
        self._environment = earlier.environment if earlier else environment.describe()
        self._created = earlier.created if earlier else datetime.now(UTC).isoformat(timespec="seconds")
        self._command = earlier.command if earlier else command
        self._judgements: dict[str, Judged] = {}
        self._progress = Progress(view, asked.model.name, asked.rounds, times=not asked.check, has_row=bool(self._rows))
        self._has_begun = False
        self._model_epochs = 1

    def run(self) -> TorchResults:
        """Measure; raises UsageError where the user's file does not fit the contract."""
        address = str(Path(tempfile.mkdtemp(prefix=SOCKET_NAME, dir=self._scratch)) / "s")
        with Listener(address, "AF_UNIX", backlog=64) as self._listener:
            families = self._families(self._rungs)
            for number in range(1, (1 if self._asked.check else self._asked.rounds) + 1):
                self._round(families, number, times=not self._asked.check)
                if number == 1:
                    families = self._families([*self._rungs, *self._left_out()])
        if not self._has_begun:
            self._view.note("nothing is left to measure")
        self._progress.writing()
        self._save()
        return self.results

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
            seconds=self._before_s + time.monotonic() - self._began, took_s=self._took,
        )  # fmt: skip

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

    # A round

    def _round(self, families: Sequence[Sequence[Rung]], number: int, *, times: bool) -> None:
        """Prepare all rungs of a round in processes of their own, and time them."""
        todo = [
            [rung for rung in family if self._has_to_run(rung, number)] for family in families
        ]  # the first family makes the reference, whatever else it still has to do
        running = [
            Family("-".join([str(number), str(index)]), rungs, self._scratch / f"{number}-{index}")
            for index, rungs in enumerate(todo)
        ]
        if not any(family.rungs for family in running):
            return
        self._has_begun = True
        first, others = running[0], [family for family in running[1:] if family.rungs]
        first.makes_reference = number == 1
        first.is_timed_at_once = number == 1 and times  # so that rows come while the others prepare
        try:
            self._progress.round(number, todo, places(has_row=True))
            others.sort(key=lambda family: family.rungs[0].step.compiler.arguments is None)  # compiling takes longest
            waiting, preparing = [first, *others], list[Family]()
            while waiting or any(not (family.is_ready or family.has_ended) for family in preparing):
                busy = [family for family in preparing if not (family.is_ready or family.has_ended)]
                room = places(has_row=bool(self._rows)) - len(busy)
                starting, waiting = waiting[:room], waiting[room:]
                for family in starting:
                    self._start(family, number)
                self._connect(starting)
                preparing += starting
                self._hear([*busy, *starting], preparing)
            self._since("preparing and judging")
            if times:
                self._time_all([family for family in running if not family.is_timed_at_once], running)
        finally:
            with ThreadPoolExecutor() as pool:  # each may take seconds to end what it has started
                list(pool.map(self._end, running))
        self._since("timing" if times else "")

    def _has_to_run(self, rung: Rung, number: int) -> bool:
        row = self._rows.get(rung.name)
        if row is None:
            return True
        return (
            not self._asked.check
            and row.status in RIGHT
            and sum(process.measured.round == number for process in row.processes) == 0
        )

    def _start(self, family: Family, number: int) -> None:
        address = self._listener.address
        assert isinstance(address, str)
        job = TorchJob(
            model=str(self._model_file.resolve()), epochs=self._asked.epochs,
            rungs=[rung.name for rung in family.rungs], round=number, repeats=self._asked.repeats, address=address,
            reference=str(self._scratch / REFERENCE), makes_reference=family.makes_reference,
            is_judged=number == 1 or not all(is_calm(rung) for rung in family.rungs),
            times_at_once=family.is_timed_at_once,
        )  # fmt: skip
        leave_job(job, family.folder)
        family.waiting = list(job.rungs)
        self._progress.started(family.rungs)
        command = [*MODULE, str(family.folder)]
        cache = self._scratch / "inductor" / code_of(family.rungs)
        variables = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "PYTHONUNBUFFERED": "1"}
        variables["TORCHINDUCTOR_COMPILE_THREADS"] = str(COMPILE_THREADS if number == 1 else 1)  # later ones find code
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

    def _hear(self, families: Sequence[Family], running: Sequence[Family]) -> None:
        """Take in the next messages of processes that prepare; `running` are all that there are."""
        by_connection = {one.connection: one for one in families if one.connection is not None and not one.has_ended}
        ready = wait(list(by_connection), self._asked.timeout)
        if not ready:
            for family in families:
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
                if family.is_timed_at_once and isinstance(message, Judged):
                    self._time_at_once(family, message.rung, running)

    def _time_at_once(self, family: Family, name: str, running: Sequence[Family]) -> None:
        """Time a rung as soon as it is judged, while all other processes stand still."""
        if self._rows[name].status not in RIGHT:
            self._order(family, messages.Time(""))
            return
        others = [other.worker.id for other in running if other.worker is not None and other is not family]
        with paused(others):
            self._order(family, messages.Time(name, self._energy_s(name), waiting=len(others)))
            self._timed(family, name)

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
            if family.makes_reference:
                for note in message.model.notes:
                    self._view.note(note)
            self._progress.read(compiles=1 + message.model.has_dropout)
        elif isinstance(message, Judging):
            self._progress.judging(message.run, message.runs)
        elif isinstance(message, Referenced):
            assert self._model is not None
            self._model = msgspec.structs.replace(
                self._model, reference=message.kind, is_repeatable=message.is_repeatable, waits=message.waits
            )
            self._progress.referenced()
        elif isinstance(message, Judged):
            family.waiting.remove(message.rung)
            self._progress.judged(message.rung)
            self._judge(message)
        elif isinstance(message, (Timed, Failed)):
            self._time_taken(message.rung, message)
            self._progress.timed(message.rung)
            self._took.setdefault(FIRST_ROW, time.monotonic() - self._began)
        elif isinstance(message, Ready):
            family.is_ready = True

    def _judge(self, message: Judged) -> None:
        """Give a rung its verdict; of several processes the worst one counts."""
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

    def _time_all(self, families: Sequence[Family], running: Sequence[Family]) -> None:
        """Time the rungs of these processes, one at a time, in the order of the ladder."""
        by_rung = {rung.name: family for family in families for rung in family.rungs}
        alive = sum(family.worker is not None and not family.has_ended for family in running)
        for name in sorted(by_rung, key=_place):
            row, family = self._rows.get(name), by_rung[name]
            if row is None or row.status not in RIGHT or family.has_ended or family.connection is None:
                continue
            self._progress.timing(name)
            self._order(family, messages.Time(name, self._energy_s(name), waiting=alive - 1))
            self._timed(family, name)

    def _timed(self, family: Family, name: str) -> None:
        assert family.connection is not None
        try:
            if not family.connection.poll(self._asked.timeout):
                self._lost(family, f"no answer within {self._asked.timeout:g} s (--timeout)", [name])
                return
            message = messages.read(family.connection.recv_bytes())
        except (EOFError, ConnectionError):
            self._lost(family, "its process ended while it was timed", [name])
            return
        self._take(family, message)

    def _time_taken(self, name: str, message: Timed | Failed) -> None:
        row = self._rows[name]
        if isinstance(message, Failed):
            row = msgspec.structs.replace(row, status="crashed", reason=message.error)
        else:
            judged, first_step_s = self._judgements[name], self._judgements[name].first_step_s
            whole, compiled = self._rows.get(name.partition(WITHOUT)[0]), rung_named(name).step.compiler.arguments
            if row.group == "left out" and compiled is not None and whole is not None:
                first_step_s = max(first_step_s, whole.first_step_s)
                row = msgspec.structs.replace(row, notes=[*judged.notes, FOUND_CODE.format(whole.name)])
            own = TorchProcess(
                message.measured, message.steps, message.host_s, first_step_s, judged.peak_mib, message.step_joules
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

    def _lost(self, family: Family, why: str, rungs: Sequence[str] | None = None) -> None:
        """A process is gone: the rungs that it still owed crashed."""
        family.has_ended = True
        said = first_printed(self._log(family))
        reason = f"{why}{f'; it printed: {said}' if said else ''}; see {self._log(family)}"
        if self._model is None:
            self.names_a_log = True
            raise UsageError(f"{self._model_file.name}: cannot be climbed: {reason}")
        for name in family.waiting if rungs is None else rungs:
            self._progress.judged(name)
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
            if family.is_ready:
                self._order(family, messages.Time(""))
            family.connection.close()
        family.worker.end()

    def _since(self, activity: str) -> None:
        now = time.monotonic()
        if activity:
            self._took[activity] = self._took.get(activity, 0.0) + now - self._phase_began
        self._phase_began = now

    def _save(self) -> None:
        if self._model is not None:
            save(self.results, self.folder)


WAITING = "OMP_WAIT_POLICY"  # passive: where no step is timed, threads that wait for each other leave the core
MODULE = [sys.executable, "-m", "ladder.torch_model.worker"]
POLL_S = 0.1
FOUND_CODE = "its first step is that of {}, whose compiled code it found"
SEVERITY: tuple[TorchStatus, ...] = ("passed", "less exact", "refused", "crashed", "wrong")


def places(*, has_row: bool) -> int:
    """How many processes may prepare at once.

    Until there is a row, for which the user waits, there are only as many as have a core for each of their threads.
    """
    cores = usable_cores()
    return max(1, cores * 3 // 4 if has_row else cores // (1 + COMPILE_THREADS))


def code_of(rungs: Sequence[Rung]) -> str:
    """The folder of the code that these rungs compile: their own, so that a first step compiles all that it needs.

    The best rung with a change left out finds that rung's.
    """
    return rungs[0].name.partition(WITHOUT)[0] if rungs else EAGER


def _place(name: str) -> int:
    names = list(RUNGS)
    return names.index(name) if name in names else len(names)


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
