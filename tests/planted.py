"""Stages that crash, hang or misbehave in other ways; tests/cheats has those that compute wrongly or cheat.

Why: a stage's failure must stay within its process.

Change: each is the NumPy trainer, or a failure in its place, with one fault.

Expect: each is recorded with the reason that its test names, and the run continues.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from common.choice import await_turn
from common.cuda import driver
from common.data.dataset import Split
from common.errors import MisfitError
from common.problem import Params, Problem
from ladder.profile import cupti
from ladder.profile.trace import Kernel, Trace, Window
from stages.engine.stage import Stage
from stages.references.numpy_cpu import NumpyTrainer


def _stage(name: str, build: Any) -> Stage:
    return Stage(name, name, "reference", "float32", (), build)


def _hang(problem: Problem, train: Split) -> NumpyTrainer:
    time.sleep(1000)
    raise AssertionError


def _kill(problem: Problem, train: Split) -> NumpyTrainer:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _crash(problem: Problem, train: Split) -> NumpyTrainer:
    """Reads address 0, like a faulty library."""
    ctypes.string_at(0)
    raise AssertionError


def _fill_the_disk(problem: Problem, train: Split) -> NumpyTrainer:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _leave(problem: Problem, train: Split) -> NumpyTrainer:
    os._exit(7)


def _run_out_of_memory(problem: Problem, train: Split) -> NumpyTrainer:
    raise MemoryError("Unable to allocate 9 TiB")


def _raise(problem: Problem, train: Split) -> NumpyTrainer:
    raise RuntimeError("the kernel said no\nand more")


def _does_not_fit(problem: Problem, train: Split) -> NumpyTrainer:
    raise MisfitError("This GPU cannot run a cluster of 16 blocks. Closest rung here: `persistent-grid`.")


class _Prints(NumpyTrainer):
    """Prints on both streams, which must not disturb the harness."""

    def run_epoch(self, epoch: int) -> None:
        os.write(1, b'{"error": "rubbish"}\n\xff\xfe')
        os.write(2, b"rubbish\n")
        super().run_epoch(epoch)


def _print_and_err(problem: Problem, train: Split) -> NumpyTrainer:
    """Learns at twice the rate, and its library says something of it."""
    os.write(2, b"\n\x1b[31m ** On entry to SGEMM an illegal value\nmore\n")
    return NumpyTrainer(replace(problem, learning_rate=2 * problem.learning_rate), train)


class _WrongShapes(NumpyTrainer):
    def read_params(self) -> Params:
        params = super().read_params()
        return Params(tuple(weight.T.copy() for weight in params.weights), params.biases)


class _Slow(NumpyTrainer):
    def run_epoch(self, epoch: int) -> None:
        time.sleep(0.2)
        super().run_epoch(epoch)


class _HasNoParts(NumpyTrainer):
    """Fails on a split of five batches, which curves use."""

    def __init__(self, problem: Problem, train: Split) -> None:
        super().__init__(problem, train)
        if len(self._batches) == 5:
            raise RuntimeError("no part of an epoch")


def _tell_parent(problem: Problem, train: Split) -> NumpyTrainer:
    """Prints the id of the fork server, or of the keeper if the process was started, once per trainer."""
    parent = os.getppid()
    if _is_forked():
        parent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
    os.write(1, b"%d\n" % parent)
    return NumpyTrainer(problem, train)


def _is_forked() -> bool:
    return b"ladder.processes.fork_server" in Path(f"/proc/{os.getppid()}/cmdline").read_bytes()


def _kill_keeper(problem: Problem, train: Split) -> NumpyTrainer:
    if _is_forked():
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return NumpyTrainer(problem, train)


def _fail_if_forked(problem: Problem, train: Split) -> NumpyTrainer:
    _tell_parent(problem, train)
    if _is_forked():
        raise RuntimeError("not after a fork")
    return NumpyTrainer(problem, train)


class _NotToBeAsked(NumpyTrainer):
    def prepare_validation(self, test: Split) -> None:
        raise AssertionError("validation was not requested")


class _CannotValidate:
    """A trainer with only the required methods."""

    device, cuda_stream, detail = "cpu", None, ""

    def __init__(self, problem: Problem, train: Split) -> None:
        trainer = NumpyTrainer(problem, train)
        self.load_params, self.run_epoch, self.read_params = trainer.load_params, trainer.run_epoch, trainer.read_params
        self.last_metrics, self.close = trainer.last_metrics, trainer.close


NOT_TO_BE_ASKED = _stage("not-to-be-asked", _NotToBeAsked)
CANNOT_VALIDATE = _stage("cannot-validate", _CannotValidate)
NO_PARTS = _stage("no-parts", _HasNoParts)
HANGS = _stage("hangs", _hang)
FORKED = _stage("forked", _fail_if_forked)
KILLS_ITS_KEEPER = _stage("kills-its-keeper", _kill_keeper)
PARENT = _stage("parent", _tell_parent)
PARENT_TOO = _stage("parent-too", _tell_parent)
KILLED = _stage("killed", _kill)
SEGFAULT = _stage("segfault", _crash)
DISK_FULL = _stage("disk-full", _fill_the_disk)
LEAVES = _stage("leaves", _leave)
OUT_OF_MEMORY = _stage("out-of-memory", _run_out_of_memory)
RAISES = _stage("raises", _raise)
MISFIT = _stage("misfit", _does_not_fit)
PRINTS = _stage("prints", _Prints)
PRINTS_AND_ERRS = _stage("prints-and-errs", _print_and_err)
SHAPES = _stage("shapes", _WrongShapes)
SLOW = _stage("slow", _Slow)
NEEDY = Stage("needy", "Needy", "reference", "float32", ("sm_999",), NumpyTrainer)


def _take_all_gpu_memory(problem: Problem, train: Split) -> NumpyTrainer:
    import cupy

    kept = [cupy.empty(1 << 38, cupy.uint8) for _ in range(8)]  # 2 TiB
    raise AssertionError(f"{len(kept)} arrays, more than any GPU holds")


def _write_to_nowhere(problem: Problem, train: Split) -> NumpyTrainer:
    """Writes out of bounds: a sticky error, after which every CUDA call of this process fails."""
    import cupy

    kernel = cupy.RawKernel('extern "C" __global__ void astray(int* p) { p[threadIdx.x] = 1; }', "astray")
    kernel((1,), (32,), (cupy.uint64(8),))
    return NumpyTrainer(problem, train)


def _compile(name: str) -> Any:
    """A build that takes half a second unless its file in `$COMPILED` exists; prints what it did, and when.

    Times are of the monotonic clock, which all processes share. The file holds PyTorch's number of compilers.
    """

    def build(problem: Problem, train: Split) -> NumpyTrainer:
        kept, begin = Path(os.environ["COMPILED"]) / name, time.monotonic()
        found = kept.exists()
        if not found:
            time.sleep(0.5)
        kept.write_text(os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", ""))
        os.write(1, f"{'found' if found else 'compiled'} {begin} {time.monotonic()}\n".encode())
        return NumpyTrainer(problem, train)

    return build


@contextmanager
def _hang_compiling() -> Iterator[None]:
    os.write(1, b"%d\n" % os.getpid())
    time.sleep(1000)
    yield


def _fail_compiling() -> Any:
    raise RuntimeError("not beside others")


def _compiling(name: str, within: Any = nullcontext) -> Stage:
    return replace(_stage(name, _compile(name)), compiles_within=within)


@contextmanager
def _apart() -> Iterator[None]:
    """Uses a separate folder for compiled code inside the context."""
    before = os.environ["COMPILED"]
    os.environ["COMPILED"] = str(Path(before) / "apart")
    Path(before, "apart").mkdir(exist_ok=True)
    yield
    os.environ["COMPILED"] = before


COMPILES_FIRST_UPDATES = replace(
    _stage("compiles-first-updates", _compile("compiles-first-updates")), first_updates_within=_apart
)
COMPILES = _compiling("compiles")
COMPILES_TOO = _compiling("compiles-too")
COMPILES_AS_WELL = _compiling("compiles-as-well")
COMPILER_HANGS = _compiling("compiler-hangs", _hang_compiling)
COMPILER_FAILS = _compiling("compiler-fails", _fail_compiling)

GPU_MEMORY = _stage("gpu-memory", _take_all_gpu_memory)
ASTRAY = _stage("astray", _write_to_nowhere)


class _OnGpu(NumpyTrainer):
    """Claims to run on a GPU, so that its process is profiled."""

    device = "gpu"


class _DiesOnClosing(_OnGpu):
    """Crashes when closed after profiling."""

    profiled = False

    def close(self) -> None:
        if self.profiled:
            os.kill(os.getpid(), signal.SIGSEGV)


def _profiled_by(record: Any, trainer: type[NumpyTrainer] = _OnGpu) -> Any:
    """A build that replaces CUPTI's recording in its process by this function."""

    def recorded(epochs: Any, run_epoch: Any, **_: bool) -> Trace:
        _DiesOnClosing.profiled = True
        seen: Trace = record(epochs, run_epoch)
        return seen

    class Driver:
        """Says that this process has used a GPU."""

        @staticmethod
        def cuDevicePrimaryCtxGetState(device: int, flags: Any, active: Any) -> int:  # noqa: N802
            active._obj.value = 1
            return 0

        def __getattr__(self, name: str) -> Any:
            raise driver._NoDeviceError("no GPU")

    def build(problem: Problem, train: Split) -> NumpyTrainer:
        vars(driver)["_library"] = Driver
        cupti.available = lambda: True
        cupti.record = recorded
        return trainer(problem, train)

    return build


def _record(epochs: Any, run_epoch: Any) -> Trace:
    """Records one kernel for the first half of each epoch, and nothing for the second."""
    trace = Trace()
    for epoch in epochs:
        begin = time.perf_counter_ns()
        run_epoch(epoch)
        end = time.perf_counter_ns()
        trace.windows.append(Window(epoch, begin, end))
        trace.kernels.append(Kernel("gemm_naive", begin, (begin + end) // 2, epoch))
    return trace


def _record_and_die(epochs: Any, run_epoch: Any) -> Trace:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def _refuse(epochs: Any, run_epoch: Any) -> Trace:
    raise PermissionError("not for you")


def _hang_on(epochs: Any, run_epoch: Any) -> Trace:
    time.sleep(1000)
    raise AssertionError


PROFILED = _stage("profiled", _profiled_by(_record))
PROFILER_DIES = _stage("profiler-dies", _profiled_by(_record_and_die))
PROFILER_REFUSES = _stage("profiler-refuses", _profiled_by(_refuse, _DiesOnClosing))
PROFILER_HANGS = _stage("profiler-hangs", _profiled_by(_hang_on))
DIES_ON_CLOSING = _stage("dies-on-closing", _profiled_by(_record, _DiesOnClosing))


class _Marks(NumpyTrainer):
    """Tells its log when it prepared, chose by timing, and trained: a word, begin and end by the machine's clock."""

    def __init__(self, problem: Problem, train: Split, *, chooses: bool = False) -> None:
        begin = time.monotonic()
        super().__init__(problem, train)
        _meet()
        self._mark("prepared", begin)
        if chooses:
            await_turn()
            begin = time.monotonic()
            self._mark("chose", begin)

    def run_epoch(self, epoch: int) -> None:
        begin = time.monotonic()
        super().run_epoch(epoch)
        self._mark("trained", begin)

    def _mark(self, what: str, begin: float) -> None:
        os.write(1, f"{what} {begin} {time.monotonic()}\n".encode())


def _meet() -> None:
    """Wait until four processes are here, if $MEET names a folder; each meets once."""
    if folder := os.environ.pop("MEET", ""):
        here, deadline = Path(folder) / f"met.{os.getpid()}", time.monotonic() + 60
        here.touch()
        while len(list(here.parent.glob("met.*"))) % 4 and time.monotonic() < deadline:
            time.sleep(0.01)


MARKS, MARKS_TOO, MARKS_AS_WELL = (_stage(name, _Marks) for name in ("marks", "marks-too", "marks-as-well"))
CHOOSES = _stage("chooses", partial(_Marks, chooses=True))
