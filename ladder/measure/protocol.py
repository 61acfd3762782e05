"""What the harness and a stage's process tell each other: a folder with a job going in and a report coming out.

Files, not pipes: a stage may print what it likes, and what a killed process left behind can be told from an answer.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from common.problem import Params, Problem
from common.trainer import EpochMetrics
from ladder.measure.displacement import Displacement
from ladder.measure.timing import Plan
from ladder.records.profile import Profile, Tool
from ladder.records.run import Curve, Process

JOB, REPORT, TRACE = "job.json", "report.msgpack", "trace.json.gz"
RUNS_PER_ROUND = 1000
FIRST_UPDATE_RUN = 900  # + the number of batches
COLD_RUN = 999
PROFILING = "profile and close"  # the part of a process's own time that CUPTI takes, among other things


class Job(msgspec.Struct, frozen=True):
    """One stage, one round, one process."""

    source: str  # `module:attribute` of the stage
    problem: Problem
    dataset: str  # the folder of a saved dataset
    round: int
    first_updates: list[int]  # check the parameters after this many batches, each from a fresh trainer
    wanted: Plan
    profile: Tool | None  # cupti: once all is timed and told; nsys: watches from outside, nothing is timed or judged
    budget_s: float | None  # null: `wanted` is what an earlier round found affordable
    salt: int = 0  # see `drawn`
    curve_steps: int = 0  # record the curves with a point every so many steps; 0: do not
    blas_threads: int | None = None  # at most, beside others; null: as many as it likes
    compiles: bool = False  # beside others, for what that leaves on disk: only preparing is timed, nothing judged


class FirstUpdate(msgspec.Struct, frozen=True):
    """What a trainer on a split of a few batches said of its one epoch; its parameters lie beside the report."""

    batches: int
    metrics: EpochMetrics | None


class JobResult(msgspec.Struct, frozen=True):
    """What the process measured, or the one line of why it could not."""

    error: str | None = None
    misfit: str = ""  # why it cannot do what it was asked for, which is no error
    detail: str = ""
    device: Literal["cpu", "gpu"] | None = None
    plan: Plan | None = None
    process: Process | None = None
    first_updates: list[FirstUpdate] = []
    from_zero: EpochMetrics | None = None  # of one epoch from zeros; its parameters lie beside the report, too
    profile: Profile | None = None  # by CUPTI; the trace lies beside the report
    unprofiled: str = ""  # why there is none, though it was asked for
    profiling: bool = False  # all but the profile, left while that is taken; gone again once it is
    metrics: dict[int, EpochMetrics] = {}  # of the run that is judged, by epoch from 0
    validations: dict[int, EpochMetrics] = {}  # of that run as well, on the test images
    share_outside: float = (
        math.nan
    )  # of the work, by what the timed runs take: see `ladder.measure.timing.share_outside`
    displacements: dict[int, Displacement] = {}  # of the timed runs, by number
    curve: Curve | None = None
    no_curve: str = ""  # why there is none, though it was asked for
    compiled_s: float | None = None  # how long preparing took where it was all that was asked for


def encoded(report: JobResult) -> bytes:
    """A report as bytes. Not as JSON, which has no word for a loss that is NaN.

    Numbers of NumPy's or PyTorch's own are numbers, too; of a stage that says something else, the report says that.
    """
    try:
        return msgspec.msgpack.encode(report, enc_hook=float)
    except (TypeError, ValueError, OverflowError) as error:
        return msgspec.msgpack.encode(JobResult(error=f"a metric or detail that is neither number nor text ({error})"))


def decoded(raw: bytes) -> JobResult:
    """A report from its bytes; raises ValueError for what is none."""
    return msgspec.msgpack.decode(raw, type=JobResult)


def drawn(problem: Problem, salt: int) -> Problem:
    """The problem as `initial_params` is to have it: with a seed that no stage is told.

    A stage knows the problem before it is timed. With its seed alone, it could train at leisure from all the parameters
    to come.
    """
    return replace(problem, seed=problem.seed + (salt << 64))


def run_number(round_: int, run: int) -> int:
    """The number that `common.problem.initial_params` takes, different for every run of every round."""
    return round_ * RUNS_PER_ROUND + run


def save_params(path: Path, params: Params) -> None:
    """Write parameters to an .npy file, one tensor after the other: an .npz takes longer."""
    with path.open("wb") as file:
        for tensor in (*params.weights, *params.biases):
            np.save(file, tensor, allow_pickle=False)


def load_params(path: Path, problem: Problem) -> Params:
    """Read them again; raises OSError or ValueError unless they are whole and of the problem's shapes."""
    layers = len(problem.layers)
    with path.open("rb") as file:
        try:
            tensors = [np.lib.format.read_array(file, allow_pickle=False) for _ in range(2 * layers)]
        except Exception as error:  # a header is parsed as Python, so that a damaged one raises whatever Python has
            raise ValueError(f"{path.name}: {type(error).__name__}: {error}") from error
        if file.read(1):
            raise ValueError(f"{path.name}: more than the parameters of {layers} layers")
    params = Params(tuple(tensors[:layers]), tuple(tensors[layers:]))
    for layer, weight, bias in zip(problem.layers, params.weights, params.biases, strict=True):
        if weight.shape != (layer.fan_in, layer.fan_out) or bias.shape != (layer.fan_out,):
            raise ValueError(f"parameters of shapes {weight.shape} and {bias.shape}")
        if weight.dtype != np.float32 or bias.dtype != np.float32:
            raise ValueError(f"parameters of {weight.dtype} and {bias.dtype}, not float32")
    return params
