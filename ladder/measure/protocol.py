"""The files that the harness and a stage's process exchange: a folder with a job going in and a result coming out.

Files, not pipes: a stage may print freely, and a file that a killed process left behind is whole or missing.
"""

from __future__ import annotations

import math
import os
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from common.arrays import LOADING, read_array, write_arrays
from common.files import atomic_write, explained
from common.problem import Params, Problem
from common.trainer import EpochMetrics
from ladder.measure.timing import Plan
from ladder.records.checked import Counts
from ladder.records.foreign import visible_in
from ladder.records.profile import Profile, Tool
from ladder.records.run import Curve, Process

JOB, RESULT, ENDING = "job.json", "result.msgpack", "ending.json"
NO_ROOM_CODE = os.EX_IOERR  # the exit code of a process whose result finds no room on the disk
RUNS_PER_ROUND = 1000
FIRST_UPDATE_RUN = 900  # + the number of batches
REPEATED_RUN, REPEATED_EPOCHS = 920, 3  # + the number of batches
POSITIVE_RUN = 940
SHARED_RUNS = range(FIRST_UPDATE_RUN, RUNS_PER_ROUND)  # the next number is the next round's judged run
COLD_RUN = 999
LATE_EPOCHS = range(20, 60)  # of a few batches, after one of which a late epoch begins
PROFILING = "profile and close"  # the phase that CUPTI and time stamps take part in


Choices = Annotated[dict[str, int], msgspec.Meta(max_length=16)]
"""What a stage chose by timing, by name; it may fill no disk and no memory of the run."""


class Job(msgspec.Struct, frozen=True):
    """The work of one process: one stage in one round."""

    source: str  # `module:attribute` of the stage
    problem: Problem
    dataset: str  # the folder of a saved dataset
    round: int
    first_updates: list[int]  # numbers of batches; the parameters after each are checked, each by a new trainer
    wanted: Plan  # no repeats: nothing is timed
    # cupti, stamps: after the timed runs; nsys: around the process, which then times and judges nothing
    profile: Tool | None
    budget_s: float | None  # seconds; null if `wanted` is already what an earlier round could afford
    repeated: list[int] = []  # those of `first_updates` whose trainer makes a run of REPEATED_EPOCHS epochs as well
    trained: str = ""  # a file of parameters, from which the trainer of `repeated[0]` makes an epoch with metrics
    positive: bool = False  # train an epoch from positive hidden biases as well
    late: list[int] = []  # those of `first_updates`, or all batches, whose trainer makes an epoch that begins late
    seeds: str = ""  # where to ask for the runs' seeds, see `ladder.measure.seeds`; no salt, which would tell them all
    curve_steps: int = 0  # steps between two points of the curves; 0 for no curves
    energy: bool = False  # measure the energy of an epoch after the timed runs
    blas_threads: int | None = None  # at most, beside other processes; null for no limit
    searches: bool = False  # references try many kernels, as `--tune-references` asks for
    compilers: bool = True  # PyTorch may start processes that compile
    compiles: bool = False  # only fill the compiler's cache, beside other processes; preparing alone is timed
    counts: bool = False  # count kernels and reads of the host at the end
    choices: Choices = {}  # by timing, of the stage's earlier processes
    mark: str = ""  # a file that is there once the compiler's cache is filled

    @property
    def is_timed(self) -> bool:
        """Whether there are timed runs; without them, the process only leaves the short runs that are verified."""
        return self.wanted.repeats > 0


class FirstUpdate(msgspec.Struct, frozen=True):
    """The metrics of one epoch on a few batches; its parameters lie beside the result."""

    batches: int
    metrics: EpochMetrics | None
    repeated: EpochMetrics | None = None  # of the last epoch of the repeated run
    trained: EpochMetrics | None = None  # of the epoch from trained parameters, in which metrics are due

    def all_metrics(self) -> tuple[EpochMetrics | None, ...]:
        """Of every short run."""
        return self.metrics, self.repeated, self.trained


class LateEpoch(msgspec.Struct, frozen=True):
    """The metrics of an epoch after `after` others; the parameters before and after it lie beside the result."""

    batches: int
    after: int  # epochs of the same run
    metrics: EpochMetrics | None


class JobResult(msgspec.Struct, frozen=True):
    """The measurements of a process, or the one line that says why there are none."""

    error: str | None = None
    misfit: str = ""  # why the stage does not take this run; that is no error
    detail: str = ""
    device: Literal["cpu", "gpu"] | None = None
    plan: Plan | None = None
    process: Process | None = None
    first_updates: list[FirstUpdate] = []
    from_zero: EpochMetrics | None = None  # of the epoch from zeros; its parameters lie beside the result
    late: list[LateEpoch] = []
    profile: Profile | None = None  # by CUPTI or time stamps; the trace lies beside the result
    unprofiled: str = ""  # why a requested profile, or a count of kernels, is missing
    counts: Counts | None = None
    profiling: bool = False  # complete but for the profile, which is being taken
    metrics: dict[int, EpochMetrics] = {}  # of the judged run, by epoch from 0
    validations: dict[int, EpochMetrics] = {}  # of the judged run on the test images, by epoch from 0
    share_outside: float = math.nan  # work outside of the timed runs; see `ladder.measure.timing.share_outside`
    curve: Curve | None = None
    no_curve: str = ""  # why a requested curve is missing
    compiled_s: float | None = None  # seconds of preparing, for a job that only compiles
    gpu_peak_mib: float | None = None  # of the GPU memory that all processes used
    waited_s: float = 0.0  # for the process's turn
    closing: bool = False  # no result: a trainer is being closed
    left: list[str] = []  # processes that it left behind
    stopped_s: float = 0.0  # for which a signal had stopped the process
    hung: bool = False  # ended by the time limit
    lost_rank: bool = False  # the error is another rank's
    retried: str = ""  # why an earlier attempt at the job failed; this is the second
    choices: Choices = {}  # by timing, for the stage's next process


def write_result(folder: Path, result: JobResult) -> None:
    """Leave the result in the folder."""
    atomic_write(folder / RESULT, encoded(result))


def no_room(error: OSError) -> str:
    """The reason in the row of a stage whose parameters or result find no room on the disk."""
    return explained(error, "continue with --resume; TMPDIR names another folder")


def encoded(result: JobResult) -> bytes:
    """A result as MessagePack, since JSON has no NaN, which a loss may be.

    Numbers of NumPy and PyTorch count as numbers. A stage that returns anything else gets an error for a result.
    """
    try:
        return msgspec.msgpack.encode(result, enc_hook=float)
    except (TypeError, ValueError, OverflowError) as error:
        return msgspec.msgpack.encode(JobResult(error=f"a metric or detail that is neither number nor text ({error})"))


def decoded(raw: bytes) -> JobResult:
    """A result from its bytes, its texts made visible; raises ValueError or msgspec.DecodeError for other bytes."""
    return msgspec.convert(visible_in(msgspec.msgpack.decode(raw)), JobResult)


def one_line(error: BaseException) -> str:
    """An exception as the reason in a row: its type and the first line of its text."""
    name = type(error).__name__
    text = (str(error).strip().splitlines() or [""])[0]
    if "OutOfMemory" in name or isinstance(error, MemoryError):
        return f"out of memory: {text}" if text else "out of memory"
    return f"{name}: {text}" if text else name


def run_file(run: int) -> str:
    """The name of the file with the parameters after a timed run, counted from 0."""
    return f"timed-{run}.npy"


def run_number(round_: int, run: int) -> int:
    """A number for `common.problem.initial_params`, different for every run of every round."""
    return round_ * RUNS_PER_ROUND + run


def salted_number(salt: int, number: int, own: str = "") -> int:
    """The number of a judged run for `common.problem.initial_params`: it reveals neither the salt nor another run.

    A stage knows the problem, with its seed, before it is timed, and could compute the parameters of a plain number.
    `own` names the stage if no other one may have the run.
    """
    return int.from_bytes(sha256(f"{salt} {number} {own}".strip().encode()).digest()[:16])


def save_params(path: Path, params: Params) -> None:
    """Write parameters to an .npy file, one tensor after the other; an .npz takes longer. OSError names the file."""
    write_arrays(path, *params.arrays)


def load_params(path: Path, problem: Problem) -> Params:
    """Read parameters; raises OSError or ValueError unless they are complete and of the problem's shapes."""
    layers = len(problem.layers)
    with path.open("rb") as file, LOADING:
        try:
            arrays = [read_array(file) for _ in problem.shapes]
        except Exception as error:  # NumPy parses the header as Python: a damaged one may raise any error
            raise ValueError(f"{path.name}: {type(error).__name__}: {error}") from error
        if file.read(1):
            raise ValueError(f"{path.name}: more than the parameters of {layers} layers")
    params = Params.of(arrays, layers)
    stacked = (problem.networks,) if problem.networks > 1 else ()
    for layer, weight, bias in zip(problem.layers, params.weights, params.biases, strict=True):
        if weight.shape != (*stacked, layer.fan_in, layer.fan_out) or bias.shape != (*stacked, layer.fan_out):
            raise ValueError(f"parameters of shapes {weight.shape} and {bias.shape}")
        if weight.dtype != np.float32 or bias.dtype != np.float32:
            raise ValueError(f"parameters of {weight.dtype} and {bias.dtype}, not float32")
    for array, shape in zip(params.state, problem.state_shapes, strict=True):
        if array.shape != (*stacked, *shape) or array.dtype != np.float32:
            raise ValueError(f"an optimizer's state of shape {array.shape} and {array.dtype}")
    return params
