"""The commands of the front door, each with its options; `parsers` makes them from the command line."""

from __future__ import annotations

import difflib
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from common.errors import UsageError
from ladder.options.run_options import (
    FINITE,
    Epochs,
    FilePath,
    Flag,
    Layers,
    Names,
    Rate,
    RunOptions,
    Runs,
    RunsOrNone,
    Seconds,
    Size,
    Text,
    Threshold,
    Tools,
    Whole,
    read_by,
    with_ends,
)
from ladder.records.jobs import Engine

UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def _read_us(value: Any) -> Any:
    """`450us`, `20ms` or `0.5s` in microseconds; ValueError without a unit."""
    if not isinstance(value, str):
        return value
    unit = next((unit for unit in UNITS_US if value.endswith(unit)), None)
    if unit is None:
        raise ValueError(value)
    return float(value.removesuffix(unit)) * UNITS_US[unit]


def _read_launch(value: Any) -> Any:
    """A time of a launch: a number is microseconds."""
    return _read_us(value) if isinstance(value, str) and value.endswith("s") else value


StageFiles = Annotated[tuple[FilePath, ...], Meta(description="the name of a Python file")]
RunName = Annotated[str, Meta(min_length=1, description="the name of a file or folder")]
RunNames = Annotated[tuple[RunName, ...], Meta(description="the name of a file or folder")]
Format = Annotated[Literal["text", "markdown", "json", "csv"], Meta(description="text, markdown, json or csv")]
GpuName = Annotated[Text, Meta(description="the name of a GPU, such as H200")]
STEP_TIME = "a step's time from 20us to 10s, with its unit, such as 450us or 20ms"
StepTime = Annotated[float, read_by(_read_us, STEP_TIME, ge=20, le=1e7)]
LaunchTime = Annotated[
    float, read_by(_read_launch, "microseconds such as 2.5, or a time with its unit such as 2.5us", gt=0, le=FINITE)
]
Share = Annotated[float, Meta(ge=0, lt=1, description="a number from 0 to below 1, such as 0.1")]
OPTIMIZERS = (
    "SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adafactor", "Adagrad", "Adadelta", "ASGD", "LBFGS", "Muon",
    "RMSprop", "Rprop", "SparseAdam",
)  # fmt: skip


def _read_optimizer(name: Any) -> Any:
    """`adamw` as `AdamW`, a class of `torch.optim`."""
    named = {known.lower(): known for known in OPTIMIZERS}
    if isinstance(name, str) and (lower := name.lower()) not in named:
        near = difflib.get_close_matches(lower, named, n=1)
        hint = f"did you mean {near[0]}?" if near else f"torch.optim has {', '.join(named)}"
        raise UsageError(f"--optimizer {name}: not known; {hint}")
    return named[name.lower()] if isinstance(name, str) else name


Optimizer = Annotated[str, read_by(_read_optimizer, "the name of an optimizer, such as adam")]
StageName = Annotated[Text, Meta(description="the name of a stage")]
Example = Annotated[
    Literal["tabular", "mlp", "cnn", "ppo", "chars"], Meta(description="tabular, mlp, cnn, ppo or chars")
]

SLURM = (
    "account", "partition", "qos", "time", "constraint", "nodelist", "exclude", "reservation", "cpus-per-task", "mem",
    "mem-per-cpu", "mem-per-gpu", "gres", "exclusive", "licenses", "dependency", "begin", "nice", "comment",
    "mail-type", "mail-user",
)  # fmt: skip


def _read_slurm(values: list[str]) -> dict[str, str]:
    """`partition=gpu` and more as options of sbatch, by their names; `exclusive` alone is a switch."""
    options = {}
    for text in values:
        key, _, value = text.partition("=")
        name = key.strip().removeprefix("--").replace("_", "-")
        if name not in SLURM:
            near = difflib.get_close_matches(name, SLURM, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(SLURM)}"
            raise UsageError(f"--slurm {text}: there is no such option; {hint}")
        if not value.strip() and name != "exclusive":
            raise UsageError(f"--slurm {text}: needs a value, such as {name}=VALUE")
        options[name] = value.strip()
    return options


def _read_vary(values: list[str]) -> dict[str, list[Any]]:
    """`hidden=64,256,1024` and more as a setting's values each, as a study's file has them; `128-64` are two layers."""
    varied: dict[str, list[Any]] = {}
    for text in values:
        key, equals, listed = text.partition("=")
        name = key.strip().replace("-", "_")
        if not equals or name in varied:
            wrong = "is given twice" if equals else "needs values, such as hidden=64,256,1024"
            raise UsageError(f"--vary {text}: {wrong}")
        varied[name] = [_value(name, part.strip()) for part in listed.split(",")]
    return varied


def _value(name: str, text: str) -> Any:
    """A value as TOML has it: a number, layers, or else text."""
    if name == "hidden":
        layers = [int(part) if part.isdecimal() else part for part in text.split("-") if text != "none"]
        return layers[0] if len(layers) == 1 else layers
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


Vary = Annotated[dict[str, list[Any]], read_by(_read_vary, "KEY=VALUE,..., such as hidden=64,256,1024")]
On = Annotated[Engine, Meta(description="local or slurm")]
SlurmOptions = Annotated[dict[str, str], read_by(_read_slurm, "KEY=VALUE, such as partition=gpu")]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; `name` is the command's on the command line."""

    name: ClassVar[str]


class Tabled(Command, frozen=True, kw_only=True):
    """A command that prints a table, or the same for other programs."""

    json: Flag = False
    csv: Flag = False

    def __post_init__(self) -> None:
        if self.json and self.csv:
            raise UsageError("--json --csv: print one table; leave one of them out")

    @property
    def form(self) -> Literal["table", "json", "csv"]:
        """The chosen form."""
        return "json" if self.json else "csv" if self.csv else "table"


class Run(Command, frozen=True, kw_only=True):
    """`run`: measure stages in a new folder."""

    name: ClassVar[str] = "run"
    options: RunOptions
    stage_file: StageFiles = ()
    no_fail_fast: Flag = False
    out: FilePath | None = None
    dry_run: Flag = False


class Resume(Command, frozen=True, kw_only=True):
    """`run --resume`: continue a stopped run, or add a profile by nsys."""

    name: ClassVar[str] = "run"
    resume: FilePath
    stage_file: StageFiles = ()
    no_fail_fast: Flag = False
    data_dir: FilePath | None = None
    profile: Tools | None = None
    nsys_stages: Names | None = None
    budget: Seconds | None = None
    timeout: Seconds | None = None
    remeasure: RunsOrNone | None = None


class CheckStage(Tabled, frozen=True, kw_only=True):
    """`check`: whether a stage is right, untimed; `file` may name one of the ladder's instead."""

    name: ClassVar[str] = "check"
    file: StageName
    options: RunOptions
    rubric: FilePath | None = None


class Grade(Tabled, frozen=True, kw_only=True):
    """`grade`: the points of each submission in a folder, by a rubric; `settings` go to the check of each."""

    name: ClassVar[str] = "grade"
    folder: FilePath
    rubric: FilePath
    options: RunOptions
    timeout: Seconds = 120.0
    settings: tuple[str, ...] = ()


class JobOptions(Command, frozen=True, kw_only=True):
    """The options of `study` about the jobs that measure its points."""

    on: On | None = None
    parallel: Size | None = None
    gpus: Whole | None = None
    slurm: SlurmOptions = {}

    @property
    def asks_jobs(self) -> bool:
        """Whether any option of jobs is given."""
        return bool(self.on or self.parallel or self.gpus is not None or self.slurm)


class MeasureStudy(JobOptions, frozen=True, kw_only=True):
    """`study`: measure the points of a TOML file, or of `vary`; `changes` are settings at every point."""

    name: ClassVar[str] = "study"
    file: FilePath | None = None
    vary: Vary = {}
    out: FilePath | None = None
    points: Names | None = None
    data_dir: FilePath | None = None
    changes: dict[str, Any] = {}


class ResumeStudy(JobOptions, frozen=True, kw_only=True):
    """`study --resume`: continue a stopped study."""

    name: ClassVar[str] = "study"
    resume: FilePath
    points: Names | None = None
    data_dir: FilePath | None = None
    in_job: Size | None = None  # the process of the job, which the point's must not outlive


class Torch(Tabled, frozen=True, kw_only=True):
    """`torch`: the ladder over a PyTorch model of one's own; `resume` names the folder of a stopped run."""

    name: ClassVar[str] = "torch"
    model: FilePath | None = None
    example: Example | None = None
    check: Flag = False
    epochs: Epochs | None = None
    write: FilePath | None = None
    stages: Names = ("all",)
    rounds: Runs = 2
    repeats: Runs = 3
    timeout: Seconds = 300.0
    energy: Flag = False
    dry_run: Flag = False
    out: FilePath | None = None
    resume: FilePath | None = None

    def __post_init__(self) -> None:
        Tabled.__post_init__(self)
        if self.model is None and self.example is None and self.resume is None:
            raise UsageError("torch: needs a file, such as my_model.py; --example tabular > my_model.py makes one")
        of_times = {"--epochs": self.epochs, "--write": self.write, "--energy": self.energy}
        for option, value in of_times.items() if self.check else ():
            if value:
                shown = "" if value is True else f" {value}"
                raise UsageError(f"{option}{shown}: needs times, and --check takes none; leave one of them out")
        if self.write is not None and self.write == self.model:
            raise UsageError(f"--write {self.write}: is the model's own file; name another")
        if self.write is not None and self.write.suffix != ".py":
            raise UsageError(f"--write {self.write}: is no Python file; name one, such as train_fast.py")


class Report(Tabled, frozen=True, kw_only=True):
    """`report`: render a run or a study again."""

    name: ClassVar[str] = "report"
    path: FilePath


class Open(Command, frozen=True, kw_only=True):
    """`open`: the page of a run, of the newest one unless named."""

    name: ClassVar[str] = "open"
    run: FilePath | None = None


class Compare(Tabled, frozen=True, kw_only=True):
    """`compare`: two runs as a gate, or several runs or studies side by side."""

    name: ClassVar[str] = "compare"
    runs: RunNames
    threshold: Threshold | None = None
    format: Format = "text"
    strict: Flag = False

    @property
    def shown_as(self) -> Literal["text", "markdown", "json", "csv"]:
        """The format, or the chosen form for other programs."""
        return self.format if self.form == "table" else self.form


class Explain(Tabled, frozen=True, kw_only=True):
    """`explain`: where the time of one stage goes, in one run or the newest that profiled it."""

    name: ClassVar[str] = "explain"
    stage: StageName
    run: FilePath | None = None
    stage_file: StageFiles = ()


class ListStages(Tabled, frozen=True, kw_only=True):
    """`list`: every stage and whether it runs here; for a network, also what is expected of it."""

    name: ClassVar[str] = "list"
    hidden: Layers | None = None
    batch_size: Size | None = None
    stage_file: StageFiles = ()


class Advise(Tabled, frozen=True, kw_only=True):
    """`advise`: what each way to train should take on a network and a GPU, and whether to leave PyTorch."""

    name: ClassVar[str] = "advise"
    options: RunOptions
    gpu: GpuName | None = None
    bandwidth: Rate | None = None
    launch: LaunchTime | None = None
    inputs: Size = 784
    classes: Size = 10
    rows: Size = 60_000
    optimizer: Optimizer = "SGD"
    dropout: Share = 0.0
    measured_eager: StepTime | None = None
    measure: Flag = False
    svg: FilePath | None = None

    def __post_init__(self) -> None:
        Tabled.__post_init__(self)
        if self.svg is not None and self.svg.suffix != ".svg":
            raise UsageError(f"--svg {self.svg}: must end in .svg; name such a file")
        if told := with_ends(self.options.hidden, self.inputs, self.classes):
            raise UsageError(told)
        if self.classes == 1:
            way_out = "give 2 or more, or measure another loss by `torch my_model.py`"
            raise UsageError(f"--classes 1: softmax would always be 1; {way_out}")


class Doctor(Tabled, frozen=True, kw_only=True):
    """`doctor`: the installed and missing parts."""

    name: ClassVar[str] = "doctor"


class MeasureLimits(Tabled, frozen=True, kw_only=True):
    """`limits`: the costs of the primitives of the GPU."""

    name: ClassVar[str] = "limits"


class Readme(Command, frozen=True, kw_only=True):
    """`readme`: the recorded runs in the documents."""

    name: ClassVar[str] = "readme"
