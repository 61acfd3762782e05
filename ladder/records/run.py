"""`results.json`: everything a run found out, as plain data.

Every table, report and figure is a rendering of this file and of nothing else. Seconds are floats in `_s`,
microseconds in `_us`. A number that is not finite is written as null, since JSON has no other word for it.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ladder.records.limits import Floor, LimitsRecord
from ladder.records.profile import Profile, Split, Tool

SCHEMA_VERSION = 1

Status = Literal["passed", "failed", "skipped", "crashed"]
Group = Literal["reference", "ladder", "beyond", "memory", "data", "shapes", "devices"]
Precision = Literal["float32", "tf32", "bfloat16", "float16"]
Count = Annotated[int, msgspec.Meta(ge=1)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Pace = Annotated[float, msgspec.Meta(ge=1e-9)]  # times are divided by it
PREFERRED: tuple[Tool, ...] = ("cupti", "nsys")


class Spread(msgspec.Struct, frozen=True):
    """The middle and the ends of some samples."""

    median: Amount
    min: Amount
    max: Amount

    @classmethod
    def of(cls, samples: list[float]) -> Spread:
        """The spread of at least one sample."""
        return cls(statistics.median(samples), min(samples), max(samples))


class Check(msgspec.Struct, frozen=True):
    """One verification: an error, the limit it may not pass, and whether it stayed within (`error <= limit`)."""

    what: str
    error: float | None  # null: not a finite number
    limit: float
    passed: bool


class GpuState(msgspec.Struct, frozen=True):
    """What NVML said of the GPU after a run."""

    sm_mhz: int
    temperature_c: int
    power_w: float
    throttle_reasons: list[str]  # only those that slow a kernel down: power, thermal, hardware
    other_processes: int | None = None  # that compute on this GPU, beside ours; null where NVML did not say


class HostState(msgspec.Struct, frozen=True):
    """What others took of the host during a run."""

    waited_s: float  # for a core, all threads together
    stolen_s: float  # by other virtual machines, all cores together
    others: float = 0.0  # the share of the machine's cores that other processes kept busy
    idle_cores: float = 0.0  # of those that it may use, how many had nothing to do; 0 where the system does not say


class Process(msgspec.Struct, frozen=True):
    """What one fresh process measured in one round."""

    round: Annotated[int, msgspec.Meta(ge=0)]
    prepare_s: float
    warmups_s: list[float]  # each of half a run's epochs, or as many as it takes to compute metrics
    runs_s: list[float]  # each a whole training run of `epochs` epochs, fence to fence on the host's clock
    gpu_runs_s: list[float] | None  # the same runs between two CUDA events; null where the stage has no stream
    gpu_states: list[GpuState]
    gpu_memory_mib: float | None = None  # what it took on the device, its CUDA context among it
    host_states: list[HostState] = []  # of every run, warm-ups first; empty where the system does not say
    disturbed: list[str] = []  # by what, as `ladder.machine.disturbance` judges it; never by the times themselves
    seen: Split | None = None  # a step of this very process under CUPTI, after its runs; null where that saw nothing
    split: Split | None = None  # the same without what CUPTI costs: adds up to the median of these runs
    detail: str = ""  # what the trainer said of itself, such as `CPU, 2 threads`: it may differ from process to process
    epochs: Count | None = None  # of each of its runs; null in results that are older than this field
    pace_s: Pace | None = (
        None  # of the host's cores, before and after: see `ladder.machine.cpu_speed`; null of stages on a GPU
    )
    beside: int = 0  # up to so many others of the same run: then no time here says anything, and its stage has none
    took_s: dict[str, float] = {}  # where its own time went, by part; what is timed is "measure" alone


class Timing(msgspec.Struct, frozen=True):
    """A stage's times over all its processes."""

    epochs: Count  # in each run; fewer than the problem's where the budget was short
    steps_per_epoch: Count
    runs_s: list[float]
    warmups_s: list[float]
    prepare_s: float  # the slowest of the processes, or of the one that compiled for them: whose caches were cold
    epoch_s: Spread
    step_us: float
    gpu_epoch_s: float | None
    gpu_memory_mib: float | None  # the most that any of the processes took
    shortened: bool  # fewer runs or epochs than asked for, to keep to the budget
    throttled: bool

    @classmethod
    def of(
        cls,
        processes: list[Process],
        *,
        epochs: int,
        steps_per_epoch: int,
        shortened: bool,
        compiled_s: float | None = None,
    ) -> Timing:
        """Sum up the processes of one stage; there is at least one."""
        runs = [run for process in processes for run in process.runs_s]
        gpu_runs = [run for process in processes for run in process.gpu_runs_s or []]
        epoch = Spread.of([run / epochs for run in runs])
        return cls(
            epochs=epochs,
            steps_per_epoch=steps_per_epoch,
            runs_s=runs,
            warmups_s=[run for process in processes for run in process.warmups_s],
            prepare_s=max(compiled_s or 0.0, *(process.prepare_s for process in processes)),
            epoch_s=epoch,
            step_us=epoch.median / steps_per_epoch * 1e6,
            gpu_epoch_s=statistics.median(gpu_runs) / epochs if gpu_runs else None,
            gpu_memory_mib=max((p.gpu_memory_mib for p in processes if p.gpu_memory_mib is not None), default=None),
            shortened=shortened,
            throttled=any(state.throttle_reasons for process in processes for state in process.gpu_states),
        )


class LossPoint(msgspec.Struct, frozen=True):
    """Mean loss and accuracy of one epoch, counted from 1: over its training, or on the test images after it."""

    epoch: int
    loss: float | None
    accuracy: float | None


class Metrics(msgspec.Struct, frozen=True):
    """What the trained network is worth, by the harness's own float64 forward pass on the test images."""

    test_accuracy: float | None  # share of test images right, 0 to 1
    final_loss: float | None  # mean training loss of the last epoch that computed it
    loss_curve: list[LossPoint]
    validation: list[LossPoint] = []  # on the test images after these epochs, as the stage itself said in its run


class CurvePoint(msgspec.Struct, frozen=True):
    """What was seen after so many steps of a run: in training, the mean over the steps since the point before."""

    step: int
    loss: float | None
    accuracy: float | None


class Curve(msgspec.Struct, frozen=True):
    """A whole training run apart from the timed ones: in training, and on the test images after each epoch."""

    training: list[CurvePoint] = []
    validation: list[CurvePoint] = []


class StageDoc(msgspec.Struct, frozen=True):
    """The paragraphs of a stage's docstring: `expect` was written before the code, `found` where that was missed."""

    why: str
    change: str
    expect: str
    found: str = ""


class StageCode(msgspec.Struct, frozen=True):
    """Which code a stage was made of, as hashes; see `ladder.run.sources`."""

    sources: str  # its module and what it imports of ours
    kernels: str | None  # the CUDA files that these name, with their headers; null where there are none
    scheme: int = 1  # how they were hashed; only hashes of one scheme can be compared


class StageResult(msgspec.Struct, frozen=True):
    """One row: a stage that passed, failed a check, was skipped or crashed. Every stage asked for has one."""

    name: str
    title: str
    group: Group
    below: str | None  # the rung it climbs from
    changed: str | None  # the one choice that differs from `below`, such as `gemm: CublasGemm`
    precision: Precision
    status: Status
    reason: str | None = None  # why it is not `passed`
    device: Literal["cpu", "gpu"] | None = None  # where it ran; null when it did not
    detail: str = ""  # what its row says beside the title, such as `CPU, 2 BLAS threads`
    doc: StageDoc | None = None
    code: StageCode | None = None  # null in results that are older than this field
    timing: Timing | None = None  # null unless passed
    checks: list[Check] = []
    metrics: Metrics | None = None
    profiles: list[Profile] = []  # at most one a tool
    unprofiled: dict[Tool, str] = {}  # why a tool that was asked for saw nothing
    floor: Floor | None = None  # what a step takes at least; null where the GPU's limits were not measured
    processes: list[Process] = []  # what `timing` sums up, kept so that a run can be resumed
    set_aside: list[Process] = []  # those that were disturbed and measured again; in no time
    curve: Curve | None = None  # where it was asked for
    no_curve: str = ""  # why there is none, though it was asked for
    crashed_before: str = ""  # why an earlier try did, after which it was resumed
    compiled_s: float | None = None  # preparing, by a process that compiled before all others; 0: not done there

    @property
    def profile(self) -> Profile | None:
        """The profile that is shown: of the same tool in every stage, since tools cost differently; None without."""
        return min(self.profiles, key=lambda profile: PREFERRED.index(profile.tool), default=None)


class ProblemRecord(msgspec.Struct, frozen=True):
    """What was trained, on which data."""

    dataset: str  # `MNIST`, `synthetic digits`, or the name of the user's folder
    is_mnist: bool
    dataset_source: str
    dataset_sha256: dict[str, str]  # of the decompressed files
    train_images: int
    test_images: int
    inputs: int
    hidden: list[int]
    classes: int
    batch_size: int
    learning_rate: float
    epochs: int
    seed: int
    metrics_every: int
    max_steps: int | None = None  # where an epoch was cut to so many steps; null: all images
    validate_every: int = 0  # after every so many epochs a look at the test images, within the time; 0: never

    @property
    def network(self) -> str:
        """The layer sizes as one word: `784-256-10`."""
        return "-".join(str(size) for size in (self.inputs, *self.hidden, self.classes))


class Settings(msgspec.Struct, frozen=True):
    """How it was measured."""

    rounds: int
    repeats: int
    warmups: int
    budget_s: float
    timeout_s: float
    profile: list[Tool] = []  # what to profile with, once all is timed
    remeasure: int = 0  # how often a disturbed process is measured again at most
    precision: float | None = None  # rounds go on until every stage's interval is within this share of its median
    time_cap_s: float = 600.0  # ... or so much time has passed
    salt: int = 0  # drawn for each run of the ladder; with the seed, it decides what parameters training begins from
    curve_steps: int = 0  # a point of the curves every so many steps; 0: none are recorded
    at_once: int = 1  # processes of stages side by side; more than one where no time is asked for
    lock_clocks_mhz: Count | None = None  # what the GPU's SM clock was held at; null: it chose for itself
    nsys_stages: list[str] | None = None  # those that nsys sees, where it sees any; null: all


class OracleRecord(msgspec.Struct, frozen=True):
    """What the float64 reference of the last round reached."""

    test_accuracy: float | None
    loss_curve: list[LossPoint]
    curve: Curve | None = None  # of the first round, where curves were asked for


class Results(msgspec.Struct, frozen=True):
    """One run of the ladder."""

    created: str  # ISO 8601, UTC
    command: str
    environment: dict[str, Any]
    problem: ProblemRecord
    settings: Settings
    stages: list[StageResult]  # in ladder order, never speed order
    oracle: OracleRecord | None = None
    limits: LimitsRecord | None = None  # of the GPU, measured before the stages; null without one
    seconds: float = 0.0  # that it took, all its resumptions together
    took_s: dict[str, float] = {}  # of them, by what was done
    schema_version: int = SCHEMA_VERSION


class ResultsError(Exception):
    """A results file that cannot be read: one line with the file and the reason."""


def save(results: Results, path: Path) -> None:
    """Replace a results file in one step."""
    write_whole(results, path)


def write_whole(data: msgspec.Struct, path: Path) -> None:
    """Replace a file in one step, so that whoever reads it, or kills us, finds the old one or the new one whole."""
    temporary = path.with_suffix(".json.part")
    try:
        with temporary.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(data), indent=1))
            file.write(b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:  # a full disk, above all, which needs no half of a file
        temporary.unlink(missing_ok=True)
        raise


def load(path: Path) -> Results:
    """Read a results file, or the `results.json` of a run's folder; ResultsError says what is wrong with it."""
    if path.is_dir():
        path = path / "results.json"
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        version = msgspec.json.decode(raw, type=_Versioned).schema_version
        if version != SCHEMA_VERSION:
            raise ResultsError(f"{path}: schema version {version}, this program reads {SCHEMA_VERSION}")
        results = msgspec.json.decode(raw, type=Results)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path}: not a results file of this program ({error})") from error
    for stage in results.stages:
        if (timing := stage.timing) is None:
            continue
        if any(min(process.runs_s, default=0.0) <= 0 for process in stage.processes):
            raise ResultsError(f"{path}: not a results file of this program ({stage.name}: a process has no time)")
        if not timing.epoch_s.min <= timing.epoch_s.median <= timing.epoch_s.max:
            raise ResultsError(f"{path}: not a results file of this program ({stage.name}: its median is no middle)")
    return results


class _Versioned(msgspec.Struct):
    """The one field that every version of the schema has."""

    schema_version: int
