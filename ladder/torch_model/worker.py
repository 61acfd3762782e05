"""The process that prepares, judges and times some rungs: `python -m ladder.torch_model.worker FOLDER`.

A failed capture may leave CUDA or PyTorch's allocator in a state that poisons what follows, so rungs that capture or
compile have processes of their own. Only here is the user's file imported.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import msgspec

from common.errors import MisfitError
from common.files import atomic_write
from common.process_group import die_with_parent
from ladder.machine.gpu_monitor import GpuMonitor
from ladder.machine.host_monitor import HostMonitor
from ladder.processes.turn import Turn
from ladder.records.run import Process
from ladder.records.torch_run import ModelRecord, TorchCheck
from ladder.torch_model.contract import Opened, RefusedError, device_here, opened, schedule_in_words, their_error
from ladder.torch_model.facts import ModelFacts, facts
from ladder.torch_model.judge import FIRST, NUDGES, Judge, Reference, Snapshot, needs_own_trainer, new_trainer
from ladder.torch_model.messages import (
    Described,
    Done,
    Failed,
    Judged,
    Judging,
    Referenced,
    Refused,
    Time,
    Timed,
    TorchJob,
    Tried,
    encoded,
    read_order,
)
from stages.torch.r1_eager import RUNG as EAGER
from stages.torch.registry import rung_named
from stages.torch.trainer import Checkpoint, Trainer
from stages.torch.training_step import Rung

JOB = "job.json"
REFERENCE, PART = "reference.pt", ".part"  # the second one ends the name of what is not whole yet
TURN = "turn"  # a file that is locked by the process whose turn it is on the device
RUN_S = 0.25  # that a timed run should take
LEAST_STEPS, MOST_STEPS = 16, 20_000  # of a timed run
WARM_UP = 8  # steps, before the first reading of the clock
BEGINNING = FIRST[0]  # steps before the judge looks: three of warm-up, and the first replay of a graph
LEAVE_S = 5.0  # between two times at which a process leaves the reference that it makes
PROBE = 16  # steps that tell how many a run should have
OURS = ("common", "ladder", "stages", "__main__")  # packages, where a user's file lies in our own folder


@dataclass
class Prepared:
    """A rung's trainer that is ready to be timed, and where its runs begin."""

    trainer: Trainer
    start: Checkpoint
    first_step_s: float
    steps: int = 0


class Worker:
    """Does one job."""

    def __init__(self, job: TorchJob, session: Connection) -> None:
        self._job, self._session = job, session
        self._prepared: dict[str, Prepared] = {}
        self._device: Any = None
        self._judge: Judge | None = None
        self._left_at = 0.0  # by the clock, when it last left the reference
        self._turn = Turn(Path(job.address).parent / TURN)

    def run(self) -> None:
        """Prepare, judge and time each rung once the session lets it begin; it also orders each timing."""
        import_module("torch._dynamo")  # as every optimizer of PyTorch does
        job, path = self._job, Path(self._job.model)
        read_order(self._session.recv_bytes())
        try:
            self._device = device_here()
            model = opened(path, job.epochs, self._device)
            self._tell(Described(described(model), model.user.epochs, facts_of(model) if job.is_first else None))
            with self._turn if job.is_first else contextlib.nullcontext():  # its rows come first
                if job.is_first and job.judged:
                    if job.is_timed and EAGER.name in job.judged:
                        self._tell(Tried(self._first_steps_s(model)))
                    self._judge = self._made_judge(model)
                for name in job.rungs:
                    self._prepare(rung_named(name), model)
                if job.is_first and job.has_others and self._judge is not None:  # with what judging added to it
                    if model.is_random:
                        self._judge.add_random()
                    self._leave_reference(self._judge.reference)
        except RefusedError as error:
            self._tell(Refused(str(error)))
            return
        self._tell(Done())

    def _first_steps_s(self, model: Opened) -> float:
        """The fastest of eager's first steps in seconds, for whoever waits for the judge; other work slows some."""
        took = []
        try:
            trainer = Trainer(model.user, model.initial, model.data, model.schedule, EAGER.step)
            trainer.run(WARM_UP)
            for _ in range(PROBE):
                self._fence()
                began = time.perf_counter()
                trainer.run(1)
                self._fence()
                took.append(time.perf_counter() - began)
            trainer.close()
        except Exception as error:
            traceback.print_exc()
            raise RefusedError(their_error(error, model.user.path, "eager training")) from error
        return min(took)

    def _made_judge(self, model: Opened) -> Judge:
        """The judge, with the reference that it finds, or makes if its turn is the first."""
        import torch

        file = Path(self._job.reference)
        with self._turn:  # when it comes, the first process's reference has all that judging its rungs added
            known: Reference | None = None
            if file.exists():
                with torch.serialization.safe_globals([Reference, Snapshot, Checkpoint]):
                    known = torch.load(file, weights_only=True, map_location="cpu")
            self._left_at = time.monotonic()
            is_made = known is None or known.runs < len(NUDGES)
            try:
                judge = Judge(model, known, turn=self._turn, told=self._told)
            except RefusedError:
                raise
            except Exception as error:  # in eager float32, which every rung is compared with
                traceback.print_exc()
                raise RefusedError(their_error(error, model.user.path, "eager training")) from error
            if is_made:
                self._leave_reference(judge.reference)
            if is_made or self._job.is_first:
                self._tell(Referenced(judge.reference.kind, judge.reference.is_repeatable, waits_of(model)))
            return judge

    def _told(self, run: int, runs: int, begun: Reference | None) -> None:
        """A training of those begins that make the reference; what has been made is left now and then."""
        if begun is not None and time.monotonic() - self._left_at > LEAVE_S:
            self._leave_reference(begun)
            self._left_at = time.monotonic()
        self._tell(Judging(run, runs))

    def _leave_reference(self, reference: Reference) -> None:
        """Leave the reference for the other processes, whole or not at all."""
        import torch

        file = Path(self._job.reference)
        part = file.with_suffix(PART)
        torch.save(reference, part)
        part.rename(file)

    def _prepare(self, rung: Rung, model: Opened) -> None:
        """Build, judge and keep a rung; whatever it raises becomes its row's reason."""
        try:
            self._tell(self._prepared_and_judged(rung, model))
        except MisfitError as error:
            self._tell(Judged(rung.name, misfit=str(error)))
        except RefusedError:
            raise
        except Exception as error:
            traceback.print_exc()
            self._tell(Judged(rung.name, error=their_error(error, model.user.path, "training")))
        if self._job.is_timed and (order := read_order(self._session.recv_bytes())).rung:
            self._time(order)
        gc.collect()

    def _prepared_and_judged(self, rung: Rung, model: Opened) -> Judged:
        if why := model.misfit(rung):
            raise MisfitError(why)
        sync = self._fence
        shared_bytes = model.data.resident_bytes if rung.step.batches.needs_resident else 0
        with peak_memory(self._device, shared_bytes) as peak:
            sync()
            built_at = began = time.monotonic()
            trainer = Trainer(model.user, model.initial, model.data, model.schedule, rung.step)
            trainer.run(1)
            sync()
            first_step_s = time.monotonic() - began
            began = time.monotonic()
            trainer.run(BEGINNING - 1)
            sync()
            if trainer.is_captured:  # three steps are warm-up, then the step is recorded
                first_step_s += time.monotonic() - began
            start = trainer.checkpoint()
        checks: list[TorchCheck] = []
        ratio, same_bits = None, False
        if rung.name in self._job.judged:
            has_own = needs_own_trainer(model, rung.step)
            compared = None if has_own else trainer
            if has_own and (self._job.round == 1 or rung.group == "left out"):  # which no earlier round has compared
                compared = new_trainer(model, rung.step)
                compared.run(BEGINNING)
            draws = model.is_random and (trainer.is_captured or rung.step.compiler.arguments is not None)
            judge = self._judge = self._judge or self._made_judge(model)  # all is compiled while it is made elsewhere
            if compared is not None:
                checks, ratio, same_bits = judge.judged(compared)
                compared.close()
                trainer.notes = list(dict.fromkeys([*trainer.notes, *compared.notes]))
            if draws:
                checks += judge.masks(trainer)
            elif has_own and not model.is_random:
                checks.append(judge.as_timed(trainer))
        self._prepared[rung.name] = Prepared(trainer, start, first_step_s)
        trainer.close()
        return Judged(
            rung.name, checks=checks, error_ratio=ratio, same_bits=same_bits, began=built_at,
            first_step_s=first_step_s, peak_mib=peak(), notes=trainer.notes,
        )  # fmt: skip

    def _time(self, order: Time) -> None:
        """Time a rung's runs, each from the same checkpoint."""
        try:
            self._tell(self._timed(self._prepared[order.rung], order))
        except Exception as error:
            traceback.print_exc()
            self._tell(Failed(order.rung, their_error(error, Path(self._job.model), "training")))

    def _timed(self, prepared: Prepared, order: Time) -> Timed:
        trainer, clock = prepared.trainer, time.perf_counter
        if not prepared.steps:
            trainer.load(prepared.start)
            trainer.run(WARM_UP)
            self._fence()
            began = clock()
            trainer.run(PROBE)
            self._fence()
            prepared.steps = self._steps(trainer, (clock() - began) / PROBE)
        host, runs, launched = HostMonitor(), [], []
        gpu_states, host_states = [], []
        with GpuMonitor() as gpu:
            gpu.waiting = order.waiting
            for _ in range(self._job.repeats):
                trainer.load(prepared.start)
                trainer.run(WARM_UP)
                self._fence()
                host.read()
                began = clock()
                trainer.run(prepared.steps)
                launched.append(clock() - began)
                self._fence()
                runs.append(clock() - began)
                host_states += host.read()
                gpu_states += gpu.read() if self._device.type == "cuda" else []
            joules = self._energy(prepared, gpu, order.energy_s) if order.energy_s else None
        trainer.close()
        measured = Process(
            round=self._job.round, prepare_s=prepared.first_step_s, warmups_s=[], runs_s=runs, gpu_runs_s=None,
            gpu_states=gpu_states, host_states=host_states,
        )  # fmt: skip
        return Timed(order.rung, measured, prepared.steps, launched, joules)

    def _steps(self, trainer: Trainer, step_s: float) -> int:
        """The steps of a timed run: of some length, within the schedule, and a multiple of a launch's."""
        left = trainer.schedule.steps - 2 * WARM_UP - trainer.position
        steps = max(LEAST_STEPS, min(int(RUN_S / step_s), MOST_STEPS, left))
        at_once = max(1, trainer.launch.steps)
        return max(at_once, steps // at_once * at_once)

    def _energy(self, prepared: Prepared, gpu: GpuMonitor, seconds: float) -> float | None:
        """Joules a step of the whole GPU, from so many seconds of training."""
        trainer, done = prepared.trainer, 0
        before, began = gpu.energy_j(), time.perf_counter()
        if before is None:
            return None
        while time.perf_counter() - began < seconds:
            trainer.load(prepared.start)
            trainer.run(prepared.steps)
            self._fence()
            done += prepared.steps
        after = gpu.energy_j()
        return None if after is None else (after - before) / done

    def _fence(self) -> None:
        if self._device.type == "cuda":
            import torch

            torch.cuda.synchronize()

    def _tell(self, message: msgspec.Struct) -> None:
        self._session.send_bytes(encoded(message))


@contextlib.contextmanager
def peak_memory(device: Any, shared_bytes: int) -> Iterator[Callable[[], float | None]]:
    """The most that PyTorch takes of the device inside the block, in MiB, beyond what other rungs hold.

    `shared_bytes` of what is held already is data that this rung uses as well.
    """
    import torch

    if device.type != "cuda":
        yield lambda: None
        return
    held = torch.cuda.memory_allocated() - shared_bytes
    torch.cuda.reset_peak_memory_stats()
    peaks: list[float] = []
    yield lambda: peaks[0]
    peaks.append((torch.cuda.max_memory_allocated() - held) / 2**20)


def digest(file: Path) -> str:
    """The SHA-256 of a file's bytes."""
    return sha256(file.read_bytes()).hexdigest()


def beside(file: Path) -> dict[str, str]:
    """The SHA-256 of each module in the folder of a user's file that is imported, by its path from there."""
    folder, found = file.resolve().parent, {}
    for name, module in sorted(sys.modules.items()):
        if "site-packages" in (place := getattr(module, "__file__", None) or "/"):
            continue  # of thousands, each would be looked up on the disk
        path = Path(place).resolve()
        is_theirs = folder in path.parents and name.partition(".")[0] not in OURS
        # `torch.ops` names a file `_ops.py` that is nowhere.
        if is_theirs and path.suffix == ".py" and path != file.resolve() and path.is_file():
            found[str(path.relative_to(folder))] = digest(path)
    return found


def described(model: Opened) -> ModelRecord:
    """What a record keeps of the model."""
    user = model.user
    rows = len(model.data.dataset)
    steps_per_epoch = rows // user.batch_size
    return ModelRecord(
        file=user.path.name, sha256=digest(user.path), beside=beside(user.path),
        parameters=sum(parameter.numel() for parameter in model.initial.parameters()), batch_size=user.batch_size,
        rows=rows, steps_per_epoch=steps_per_epoch, optimizer=model.optimizer, moving=model.schedule.moving,
        schedule=schedule_in_words(model.schedule, user.epochs * steps_per_epoch),
        has_dropout=model.has_dropout, has_convolution=model.has_convolution, reference="", data=model.data_words,
        notes=[*([model.not_resident] if model.not_resident else []), *model.notes],
    )  # fmt: skip


def facts_of(model: Opened) -> ModelFacts | None:
    """What the exporter has to know of a model; None where that raises."""
    try:
        return facts(model)
    except Exception:
        traceback.print_exc()
        return None


def waits_of(model: Opened) -> list[str]:
    """The lines of the user's folder that make the host wait in a step, as PyTorch notices them."""
    import torch

    if model.data.device.type != "cuda":
        return []
    trainer = new_trainer(model, rung_named("no-item").step)
    trainer.run(2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            trainer.run(2)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    trainer.close()
    folder = model.user.path.resolve().parent
    places = [(Path(warning.filename), warning.lineno) for warning in seen if "synchroniz" in str(warning.message)]
    return sorted({f"{file.name}:{line}" for file, line in places if file.resolve().parent == folder})


def main(folder: Path) -> int:
    """Do the job in the folder."""
    die_with_parent()
    job = msgspec.json.decode((folder / JOB).read_bytes(), type=TorchJob)
    with Client(job.address, "AF_UNIX") as session:
        session.send_bytes(str(folder.name).encode())
        import torch

        warnings.filterwarnings("ignore")  # of compilers and schedulers, on their own choices
        torch.backends.cuda.matmul.allow_tf32 = False
        stream: Any = contextlib.nullcontext()
        if torch.cuda.is_available():
            stream = torch.cuda.stream(torch.cuda.Stream())  # a graph is recorded on the stream that all steps run on
        with stream:
            Worker(job, session).run()
    return 0


def leave_job(job: TorchJob, folder: Path) -> None:
    """Leave a job in a new folder."""
    folder.mkdir(parents=True)
    atomic_write(folder / JOB, msgspec.json.encode(job))


if __name__ == "__main__":
    code = 1
    with suppress(EOFError, ConnectionError):  # the session has ended
        code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # skips the teardown of libraries, which may hang or crash
