"""`results.json`: everything that a run measured, as plain data.

Every table, report and figure is a rendering of this file alone. Names ending in `_s` are seconds, in `_us`
microseconds. A number that is not finite becomes null, since JSON has no NaN.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from common.files import atomic_write
from common.vocabulary import ABLATIONS as ABLATIONS
from common.vocabulary import BLOCKS as BLOCKS
from common.vocabulary import MOST_LETTERS as MOST_LETTERS
from common.vocabulary import STAGE_NAME
from common.vocabulary import Group as Group
from common.vocabulary import Precision as Precision
from common.vocabulary import Regime as Regime
from ladder.records.expectation import Expected
from ladder.records.foreign import NOT_OURS, read_json
from ladder.records.foreign import ResultsError as ResultsError
from ladder.records.limits_record import LimitsRecord, StepBounds
from ladder.records.profile import Profile, Split, Tool

SCHEMA_VERSION = 1
LEAST, MOST = 1e-100, 1e100  # of the measurements in a record, but for 0; products and ratios of such stay finite
EARLIER_WORDS: dict[str, dict[str, str]] = msgspec.json.decode(
    Path(__file__).with_name("earlier_words.json").read_bytes()
)  # of rungs in files from before they recorded their own; never added to
JUDGED = ("error", "loss", "final_loss")  # a stage that computes nonsense may have any of these
# A text with neither, once each of its digits is 0, has no number beyond them: an exponent of three digits; a hundred.
EXPONENT, HUNDRED = re.compile(rb"e[+-]?0{3,}\s*[,\]}]"), b"0" * 100
AS_ZEROS = bytes.maketrans(b"E123456789", b"e" + b"0" * 9)

Status = Literal["passed", "failed", "skipped", "crashed"]
Count = Annotated[int, msgspec.Meta(ge=1)]
Whole = Annotated[int, msgspec.Meta(ge=0)]
MOST_LAYERS, MOST_NETWORKS = 1000, 100_000  # of a recorded problem, which may be a stranger's
Rate = Annotated[float, msgspec.Meta(gt=0)]
Rates = Annotated[list[Rate], msgspec.Meta(max_length=MOST_NETWORKS)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Pace = Annotated[float, msgspec.Meta(ge=1e-9)]  # positive, since readers divide by it
# Rows and columns of the product that a pace times. Two cores take 0.15 ms for it; synchronising them is part of it, as
# in a stage's products.
PACE_SIZE = 256
PREFERRED: tuple[Tool, ...] = ("cupti", "nsys", "stamps")


class Spread(msgspec.Struct, frozen=True):
    """Median, minimum and maximum of some samples."""

    median: Amount
    min: Amount
    max: Amount

    @classmethod
    def of(cls, samples: list[float]) -> Spread:
        """The spread of at least one sample."""
        return cls(statistics.median(samples), min(samples), max(samples))


CANNOT_DECIDE = "cannot decide here"  # after a precision: its rounding moves a correct stage as far as an error would
ORACLE_ENDED = "the oracle's time ended"  # before the epoch that a check compares with
TAKES_TOO_LONG = "takes too long"  # an epoch that a check would need


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One verification: an error, its limit, and whether it passed (`error <= limit`)."""

    what: str  # the check's name
    error: float | None  # null: not finite
    limit: Amount
    passed: bool
    judged: bool = True  # false: it cannot fail, for the reason in `note`
    note: str = ""  # the tensor that was nearest to its limit, or what was not judged and why
    factor: float | None = None  # how many times the oracle's it was: an update along it (0 did not move), or a loss

    @property
    def is_undecided(self) -> bool:
        """Whether rounding decides it, or a part of it."""
        return CANNOT_DECIDE in self.note

    @property
    def is_not_made(self) -> bool:
        """Whether the oracle, or the stage, was too slow for it."""
        return not self.judged and (ORACLE_ENDED in self.note or TAKES_TOO_LONG in self.note)


class GpuState(msgspec.Struct, frozen=True):
    """The GPU after a run, as NVML reports it; null for a value that it refuses, as of many laptops' power."""

    sm_mhz: int | None
    temperature_c: int | None
    power_w: float | None
    throttle_reasons: list[str] | None  # only those that slow a kernel down: power, thermal, hardware
    other_processes: int | None = None  # other processes that compute on this GPU


# A process counts as disturbed if it waited or was held back for a larger share of the time that the readings cover.
LOST_LIMIT = 0.05


class HostState(msgspec.Struct, frozen=True):
    """The share of the host that other work took during a run."""

    waited_s: float  # waiting for a core, all threads together
    stolen_s: float  # taken by other virtual machines, all cores together
    others: float = 0.0  # share of the machine's cores that other processes kept busy
    idle_cores: float = 0.0  # idle ones among the cores that this process may use; 0 if the system does not report them
    over_s: float = 0.0  # that the reading covers: the run, and what came before it since the last reading; 0: unknown
    own_s: float = 0.0  # the process's CPU time in them, all threads together
    cores: int = 0  # of the machine; 0: unknown
    throttled_s: float = 0.0  # held back by the CPU quotas of its control groups, all cores together


def lost_in_words(lost_s: float, in_s: float) -> str:
    """Time that a process lost, beside what the readings cover: `0.17 s in 0.83 s (20%; the limit is 5%)`."""
    return f"{lost_s:.2g} s in {in_s:.2g} s ({lost_s / in_s:.0%}; the limit is {LOST_LIMIT:.0%})"


class Energy(msgspec.Struct, frozen=True):
    """What the whole GPU drew, by NVML's counter, while a process trained on after its timed runs."""

    joules: Amount  # an epoch, with the GPU's idle power and the validation that a timed epoch has
    watts: Amount  # while training
    idle_w: Amount  # without work, with the contexts of all waiting processes
    seconds: Amount  # of training


class Process(msgspec.Struct, frozen=True):
    """The measurements of one fresh process in one round."""

    round: Whole
    prepare_s: float
    warmups_s: list[float]  # each has half a run's epochs, or as many as metrics need
    runs_s: list[float]  # each a whole training run of `epochs` epochs, fence to fence on the host's clock
    gpu_runs_s: list[float] | None  # the same runs between two CUDA events; null if the stage has no stream
    gpu_states: list[GpuState]
    gpu_memory_mib: float | None = None  # taken by this process, including its CUDA context
    host_states: list[HostState] = []  # one per run, warm-ups first; empty if the system does not report them
    disturbed: list[str] = []  # reasons found by `ladder.machine.disturbance`, which never looks at the times
    seen: Split | None = None  # a step of this process under CUPTI, after its runs; null if CUPTI recorded nothing
    split: Split | None = None  # the same without CUPTI's own time; adds up to the median of these runs
    detail: str = ""  # the trainer's description of itself, such as `CPU, 2 threads`; may differ between processes
    epochs: Count | None = None  # per run; null in results older than this field
    pace_s: Pace | None = None  # the faster of two readings of `ladder.machine.cpu_speed`; null for stages on a GPU
    pace_cores: int = 0  # that this pace is of: one, or all that the process may use; 0 in older results, which had all
    beside: int = 0  # processes of the same run at the same time, at most; if any, the stage gets no time
    took_s: dict[str, float] = {}  # its time by phase, and the runner's for "checking" it; only "measure" is timed
    stopped_s: Amount = 0.0  # for which a signal had stopped the process
    left_behind: list[str] = []  # processes that it left when it ended; of older runs also files
    energy: Energy | None = None  # if it was asked for, of the first round
    no_energy: str = ""  # why it is missing


class Timing(msgspec.Struct, frozen=True):
    """A stage's times over all its processes."""

    epochs: Count  # per run; fewer than the problem's if the budget was short
    steps_per_epoch: Count
    runs_s: list[float]
    warmups_s: list[float]
    prepare_s: float  # the slowest process's, or the compiling process's before them: the one with cold caches
    epoch_s: Spread
    step_us: float
    gpu_epoch_s: float | None
    gpu_memory_mib: float | None  # the highest of the processes
    shortened: bool  # fewer runs or epochs than asked for, to keep the budget
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
        """The times over at least one process of a stage."""
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


class LossPoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Mean loss and accuracy of one epoch, counted from 1: of its training, or on the test images after it."""

    epoch: int
    loss: float | None
    accuracy: float | None
    networks: list[float | None] = []  # each one's accuracy, where several trained; the rest is their mean


class Metrics(msgspec.Struct, frozen=True):
    """The quality of the trained network."""

    test_accuracy: float | None  # from 0 to 1, by the harness's own float64 forward pass
    final_loss: float | None  # mean training loss of the last epoch that computed it
    loss_curve: list[LossPoint]
    validation: list[LossPoint] = []  # on the test images after these epochs, as the stage itself computed it
    networks: list[float | None] = []  # each one's test accuracy, where several trained; the rest is their mean


class CurvePoint(msgspec.Struct, frozen=True):
    """Loss and accuracy after `step` steps of a run; training points are means over the steps since the last point."""

    step: int
    loss: float | None
    accuracy: float | None


class Curve(msgspec.Struct, frozen=True):
    """One more training run, not timed: points of the training, and on the test images after each epoch."""

    training: list[CurvePoint] = []
    validation: list[CurvePoint] = []
    begins: str = ""  # a hash of its initial parameters, which a resumed run draws anew


class StageDoc(msgspec.Struct, frozen=True):
    """The paragraphs of a stage's docstring: `expect` was written before the code, `found` after measuring it."""

    why: str
    change: str
    expect: str
    found: str = ""
    predict: str = ""  # the numbers of `expect`; `reports.facts.predictions` gives their form
    summary: str = ""  # what the stage changes, in one line


class PartRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part of a rung's recipe: `launch`, `GraphEpoch`, `stages/classic/cuda_graph.py`."""

    name: str
    chosen: str  # the class
    file: str  # that defines it, from the root of the project
    replaced: bool = False  # the launch does its work instead; older results do not say so


class StageCode(msgspec.Struct, frozen=True):
    """Hashes of the code that a stage ran; see `ladder.run.code_watch`."""

    sources: str  # in Python
    kernels: str | None  # in compiled files; null if there is none
    scheme: int = 1  # the way of hashing; only hashes of the same scheme can be compared
    timer: str = ""  # the harness's loop that took its time; empty in results older than this field


class StageResult(msgspec.Struct, frozen=True):
    """The result of one stage: it passed, failed a check, was skipped or crashed. Every requested stage has one."""

    name: str
    title: str
    group: Group
    below: str | None  # the rung it climbs from
    changed: str | None  # the one choice that differs from `below`, such as `gemm: CublasGemm`
    precision: Precision
    status: Status
    reason: str | None = None  # why the status is not `passed`
    device: Literal["cpu", "gpu"] | None = None  # null if it did not run
    detail: str = ""  # shown beside the title, such as `CPU, 2 BLAS threads`
    doc: StageDoc | None = None
    code: StageCode | None = None  # null in results older than this field
    timing: Timing | None = None  # null unless passed
    checks: list[Check] = []
    metrics: Metrics | None = None
    profiles: list[Profile] = []  # at most one per tool
    unprofiled: dict[Tool, str] = {}  # why a requested tool produced no profile
    # What bounds a step's time; null if its device's limits were not measured.
    bounds: StepBounds | None = msgspec.field(name="floor", default=None)
    processes: list[Process] = []  # the processes in `timing`, kept so that a run can be resumed
    set_aside: list[Process] = []  # disturbed processes that were measured again; not in `timing`
    curve: Curve | None = None  # if curves were requested
    no_curve: str = ""  # why a requested curve is missing
    crashed_before: str = ""  # why an earlier attempt crashed, before the run was resumed
    retries: list[str] = []  # the failure of each process that a second one repeated, with its round
    compiled_s: float | None = None  # preparation time in a process that only compiled; 0: it did not compile the stage
    expected: Expected | None = None  # a model's estimate of a step, made before the stage was measured
    words: str = ""  # what a rung changes, or what a reference is, short enough for a figure; empty: its title says it
    regime: Regime | None = None  # how its kernels start; null without a recipe
    hides_copies: bool = False  # whether it copies images on a second stream
    recipe: list[PartRecord] = []  # every part of its step; empty without a recipe
    takes_gpus: bool = False  # whether it divides each batch among the problem's GPUs

    @property
    def profile(self) -> Profile | None:
        """The profile to show, CUPTI's before nsys's: tools differ in cost, so every stage shows the same one."""
        return preferred(self.profiles)

    @property
    def energy(self) -> Energy | None:
        """What an epoch drew; None unless it was measured."""
        return next((process.energy for process in self.processes if process.energy is not None), None)

    @property
    def not_made(self) -> int:
        """The checks of a stage that passed for which the oracle was too slow."""
        return sum(check.is_not_made for check in self.checks) if self.status == "passed" else 0


def preferred(profiles: Iterable[Profile]) -> Profile | None:
    """The profile to show of one stage; None without any."""
    return min(profiles, key=lambda profile: PREFERRED.index(profile.tool), default=None)


class ProblemRecord(msgspec.Struct, frozen=True):
    """The network, the training and the data."""

    dataset: str  # `MNIST`, `synthetic digits`, or the name of the user's folder
    is_mnist: bool
    dataset_source: str
    dataset_sha256: dict[str, str]  # of the decompressed files
    train_images: Count
    test_images: Count
    inputs: Count
    hidden: Annotated[list[Count], msgspec.Meta(max_length=MOST_LAYERS)]
    classes: Count
    batch_size: Count
    learning_rate: Rate
    epochs: Count
    seed: Whole
    metrics_every: Count
    max_steps: Count | None = None  # an epoch was cut to this many steps; null: all images
    validate_every: Whole = 0  # epochs between validations on the test images, inside the timer; 0: never
    networks: Count = 1  # that train on the same batches; a step is one of all of them
    gpus: Count = 1  # that stages which take several divide a batch among
    learning_rates: Annotated[
        list[Rate], msgspec.Meta(max_length=MOST_NETWORKS)
    ] = []  # of each network; empty: all have the one above

    @property
    def network(self) -> str:
        """The layer sizes: `784-256-10`."""
        return "-".join(str(size) for size in (self.inputs, *self.hidden, self.classes))

    @property
    def weights(self) -> list[int]:
        """The weights of each layer."""
        return [inputs * outputs for inputs, outputs in pairwise((self.inputs, *self.hidden, self.classes))]

    @property
    def product_operations(self) -> int:
        """Multiplications and additions of a step's products, of all networks; no gradient flows into the images."""
        return self.networks * 2 * self.batch_size * (3 * sum(self.weights) - self.weights[0])


class Settings(msgspec.Struct, frozen=True):
    """How a run measures its stages."""

    rounds: Whole
    repeats: Whole
    warmups: Whole
    budget_s: float
    timeout_s: float
    profile: list[Tool] = []  # profilers to use after the timed runs
    remeasure: int = 0  # how many times a disturbed process is measured again, at most
    precision: float | None = None  # add rounds until every stage's interval is within this share of its median
    time_cap_s: float = 600.0  # ... or until this time has passed
    salt: int = 0  # with the seed, it determines the judged runs' initial parameters; 0 until everything is measured
    curve_steps: int = 0  # steps between points of the curves; 0: none are recorded
    energy: bool = False  # measure the energy of an epoch, in the first round
    target_accuracy: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None  # on test images, to tell the time to it
    at_once: int = 1  # stages' processes side by side; with more than one, nothing gets a time
    lock_clocks_mhz: Count | None = None  # locked SM clock of the GPU; null: not locked
    nsys_stages: list[str] | None = None  # stages to profile with nsys; null: all
    budget_total_s: float | None = None  # seconds to measure all stages for; null: no limit but each stage's own
    tune_references: bool = False  # they tried many kernels; older records, without this field, did
    prepare_at_once: int | None = 1  # stages that prepare side by side; null: as many as there was room for


class OracleRecord(msgspec.Struct, frozen=True):
    """The float64 reference training of the last round."""

    test_accuracy: float | None
    loss_curve: list[LossPoint]
    curve: Curve | None = None  # of the first round, if curves were requested
    device: Literal["cpu", "gpu"] | None = None  # that trained it; null in results older than this field
    not_on_gpu: str = ""  # why no GPU did, or not all
    earlier_curves: list[Curve] = []  # before the run was resumed, beside which some stages have theirs


class Results(msgspec.Struct, frozen=True):
    """One run of the ladder."""

    created: str  # ISO 8601, UTC
    command: str
    environment: dict[str, Any]
    problem: ProblemRecord
    settings: Settings
    stages: list[StageResult]  # in ladder order, never speed order
    oracle: OracleRecord | None = None
    limits: LimitsRecord | None = None  # of the GPU, measured before the stages; null without a GPU
    seconds: float = 0.0  # the run's duration, resumptions included
    took_s: dict[str, float] = {}  # the parts of `seconds` by activity
    schema_version: int = SCHEMA_VERSION

    def stage(self, name: str | None) -> StageResult | None:
        """The stage of this name; None if the run has none."""
        return next((stage for stage in self.stages if stage.name == name), None)


def save(results: Results, path: Path) -> None:
    """Replace a results file atomically."""
    write_whole(results, path)


def write_whole(data: msgspec.Struct, path: Path) -> None:
    """Replace a file of recorded data in one step, on the disk by the time this returns."""
    atomic_write(path, msgspec.json.encode(data) + b"\n", sync=True)


def results_in(folder: Path) -> Path:
    """The results file of a run's folder, there or not: `results.json.gz`, as in recorded studies, if only that is."""
    plain, packed = folder / "results.json", folder / "results.json.gz"
    return packed if packed.exists() and not plain.exists() else plain


def all_results(folder: Path, runs: str = "*") -> list[Path]:
    """The results files of the runs whose folders match a pattern below this one, in the order of their paths."""
    return sorted({results_in(file.parent) for end in ("", ".gz") for file in folder.glob(f"{runs}/results.json{end}")})


def load(path: Path) -> Results:
    """Read a results file, or the one in a run's folder; raises ResultsError if it is unusable."""
    try:
        return _load(path)
    except ResultsError as error:
        way_out = "name a results.json of this program, or the folder that holds one"
        if (path / "study.json").exists():
            way_out = f"{path} is a study: use `study`, or name one of its points"
        raise ResultsError(f"{error}; {way_out}") from error


def load_once(file: Path) -> Results:
    """As `load`, but once while the file is the same: several parts of a page look at all recorded runs."""
    return _loaded(file, (stat := file.stat()).st_mtime_ns, stat.st_ino)


@lru_cache(maxsize=256)  # every recorded run, in some 60 MB
def _loaded(file: Path, *seen: int) -> Results:  # noqa: ARG001
    return load(file)


def _load(path: Path) -> Results:
    if path.is_dir():
        path = results_in(path)
    try:
        raw = read_json(path)
        if (version := msgspec.json.decode(raw, type=_Versioned).schema_version) != SCHEMA_VERSION:
            raise ResultsError(f"{path}: schema version {version}, this program reads {SCHEMA_VERSION}")
        results = msgspec.json.decode(raw, type=Results)
        impossible = _impossible_number(raw) or _contradiction(results)
    except NOT_OURS as error:
        raise ResultsError(f"{path}: not a results file of this program ({error})") from error
    if impossible:
        raise ResultsError(f"{path}: not a results file of this program ({impossible})")
    return with_earlier_words(results)


def with_earlier_words(results: Results) -> Results:
    """A run recorded before stages had words of their own, with the words that reports had for them by name.

    A summary that was found to be wrong is corrected, too.

    Before they said so themselves, stages that take several GPUs had a group of their own. Rungs on a CPU had a floor.
    """
    return msgspec.structs.replace(results, stages=[_with_earlier_words(stage) for stage in results.stages])


def _with_earlier_words(stage: StageResult) -> StageResult:
    known = EARLIER_WORDS.get(stage.name, {})
    words, hides = stage.words or known.get("words", ""), stage.hides_copies or "hides_copies" in known
    regime = stage.regime or msgspec.convert(known.get("regime"), Regime | None)
    doc = stage.doc
    if doc is not None and doc.summary in ("", known.get("corrects")):
        doc = msgspec.structs.replace(doc, summary=known.get("summary", ""))
    gpus = stage.takes_gpus or stage.group == "devices"
    now: dict[str, Any] = {"words": words, "regime": regime, "hides_copies": hides, "doc": doc, "takes_gpus": gpus}
    return msgspec.structs.replace(stage, **now, bounds=None if stage.device == "cpu" else stage.bounds)


def _impossible_number(raw: bytes) -> str:
    """A measurement in a JSON text whose square or inverse no float can hold; empty if there is none."""
    if not EXPONENT.search(zeros := raw.translate(AS_ZEROS)) and HUNDRED not in zeros:
        return ""
    waiting = [msgspec.json.decode(raw)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict | list):
            inner = [number for key, number in value.items() if key not in JUDGED] if isinstance(value, dict) else value
            waiting += inner
        elif isinstance(value, int | float) and value and not LEAST <= abs(value) <= MOST:
            return f"{str(value)[:12]} is no measurement"
    return ""


def _contradiction(results: Results) -> str:
    """The first contradiction among a run's stages; empty if there is none."""
    if not results.stages:
        return "it has no stages"
    for part in ("gpu", "cpu", "libraries", "code"):
        if not isinstance(results.environment.get(part), dict | None):
            return f"environment: {part} is no object"
    names = [stage.name for stage in results.stages]
    for name in {*names, *(stage.below for stage in results.stages if stage.below)}:
        if not STAGE_NAME.fullmatch(name) or names.count(name) > 1:
            return f"stage name {name[:80]!r}: twice, or not of small letters, digits and hyphens"
    for stage in results.stages:
        if (timing := stage.timing) is None:
            continue
        if any(min(process.runs_s, default=0.0) <= 0 for process in stage.processes):
            return f"{stage.name}: a process has no time"
        if not timing.epoch_s.min <= timing.epoch_s.median <= timing.epoch_s.max:
            return f"{stage.name}: its median lies outside its range"
    return ""


class _Versioned(msgspec.Struct):
    """The field that every version of the schema has."""

    schema_version: int
