"""The options of a run, made once: from the command line, a TOML file, a study's point or a recorded run.

A field is an option: `--batch-size` on the command line, `batch_size` in TOML. Its type says which values are allowed,
to msgspec by its constraints and to people by its description.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import msgspec
from msgspec import Meta

from common.errors import UsageError
from ladder.records.profile import Tool
from ladder.records.run import Results, Settings

if TYPE_CHECKING:
    from common.problem import Problem

FINITE = sys.float_info.max
LARGEST = 10**15  # every JSON reader keeps such a number exactly
MOST_EPOCHS = 1_000_000
MOST_NETWORKS = 1024
MOST_GPUS = 8  # of one host, each a neighbour of all others
LEARNING_RATE = 0.1  # unless another is asked for
MOST_SECONDS = 10_000_000  # four months; the system's timers hold little more
RECORDED = {  # options whose name in a results file has the unit
    "budget": "budget_s", "budget_total": "budget_total_s", "timeout": "timeout_s", "time_cap": "time_cap_s",
    "lock_clocks": "lock_clocks_mhz",
}  # fmt: skip
MAX_RUNS = 450  # timed, and as warm-ups, in one process: run numbers leave room for 900


def read_by(read: Callable[[Any], Any], description: str, **limits: Any) -> Meta:
    """The form and the limits of an option that `read` makes a value of."""
    return Meta(description=description, extra={"read": read}, **limits)


def read_names(value: Any) -> Any:
    """`naive,cublas` as a list of names; any other value as it is."""
    return [name for word in value.split(",") if (name := word.strip())] if isinstance(value, str) else value


def read_numbers(value: Any) -> Any:
    """`0.1,0.3` as a list of texts, a number as a list of it; a list as it is."""
    if isinstance(value, str):
        return value.split(",")
    return value if isinstance(value, list | tuple) else [value]


def _read_share(value: Any) -> Any:
    """`1%` and `0.01` are the same share."""
    if not isinstance(value, str):
        return value
    return float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)


def _read_layers(value: Any) -> Any:
    """Widths, also as `[300, 100]`, or the hint that `784-300-100-10` has hidden ones inside."""
    if not isinstance(value, str):
        return read_numbers(value)
    widths = [width.strip() for width in value.strip("[]").split("-")]
    if len(widths) > 1 and all(width.isdecimal() for width in widths):
        hidden = ",".join(widths[1:-1] or widths)
        raise UsageError(f"--hidden {value}: lists hidden layers alone, with commas: --hidden {hidden}")
    listed = [width.strip() for width in value.strip("[]").split(",")]
    apart = " ".join(listed).split()
    if len(apart) > len(listed) and all(width.isdecimal() for width in apart):
        raise UsageError(f"--hidden {value}: takes commas: --hidden {','.join(apart)}")
    return listed


def with_ends(hidden: Sequence[int], inputs: int, classes: int) -> str:
    """How to write hidden layers between these inputs and classes, if they are listed with both; else empty."""
    if len(hidden) < 2 or (hidden[0], hidden[-1]) != (inputs, classes):
        return ""
    listed, inner = (",".join(map(str, layers)) for layers in (hidden, hidden[1:-1]))
    instead = f"write --hidden {inner}" if inner else "leave --hidden out"
    return f"--hidden {listed}: lists hidden layers alone; for {listed.replace(',', '-')} {instead}"


def _read_tools(value: Any) -> Any:
    names = read_names(value)
    if names == ["none"]:
        return []
    if names == ["auto"]:
        from ladder.profile import nsys  # late, since it is slow to import

        names = ["nsys" if nsys.find() else "cupti", "stamps"]
    is_list = isinstance(names, list | tuple) and (names or not isinstance(value, str))
    if not is_list or not all(name in get_args(Tool) for name in names):
        raise ValueError(value)
    return [tool for tool in get_args(Tool) if tool in names]


Text = Annotated[str, Meta(min_length=1)]
Flag = Annotated[bool, Meta(description="true or false")]
FilePath = Annotated[Path, Meta(description="the name of a file or folder")]
Whole = Annotated[int, Meta(ge=0, le=LARGEST, description=f"a whole number from 0 to {LARGEST:,}")]
Size = Annotated[int, Meta(ge=1, le=LARGEST, description=f"a whole number from 1 to {LARGEST:,}")]
Epochs = Annotated[int, Meta(ge=1, le=MOST_EPOCHS, description=f"a whole number from 1 to {MOST_EPOCHS:,}")]
Runs = Annotated[int, Meta(ge=1, le=MAX_RUNS, description=f"a whole number from 1 to {MAX_RUNS}")]
RunsOrNone = Annotated[int, Meta(ge=0, le=MAX_RUNS, description=f"a whole number from 0 to {MAX_RUNS}")]
Rate = Annotated[float, Meta(gt=0, le=FINITE, description="a positive number, such as 0.1")]
Seconds = Annotated[
    float, Meta(gt=0, le=MOST_SECONDS, description=f"a positive number of seconds, {MOST_SECONDS:,} at most")
]
Megahertz = Annotated[int, Meta(ge=1, description="a whole number of MHz, such as 1500")]
Interval = Annotated[float, read_by(_read_share, "a share above 0% and below 100%, such as 1%", gt=0, lt=1)]
Accuracy = Annotated[float, read_by(_read_share, "a share above 0% and below 100%, such as 92%", gt=0, lt=1)]
Threshold = Annotated[float, read_by(_read_share, "a share from 0% to below 100%, such as 2%", ge=0, lt=1)]
Layers = Annotated[
    tuple[Annotated[int, Meta(ge=1)], ...],
    read_by(_read_layers, "a layer's size such as 256, or a list of sizes such as 128,128,128"),
]
Networks = Annotated[int, Meta(ge=1, le=MOST_NETWORKS, description=f"a whole number from 1 to {MOST_NETWORKS:,}")]
Gpus = Annotated[int, Meta(ge=1, le=MOST_GPUS, description=f"a whole number from 1 to {MOST_GPUS}")]
LearningRates = Annotated[
    tuple[Annotated[float, Meta(gt=0, le=FINITE)], ...],
    read_by(read_numbers, "positive numbers, one for each network, such as 0.03,0.1,0.3", max_length=MOST_NETWORKS),
]
Names = Annotated[
    tuple[Text, ...], read_by(read_names, 'text such as "all" or "naive..cublas", or a list of names', min_length=1)
]
Tools = Annotated[
    tuple[Tool, ...], read_by(_read_tools, f"{', '.join(get_args(Tool))}, auto or none, or a list of tools")
]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The stages, the training problem and how to measure; the output folder is not part of it.

    Raises UsageError for options that contradict each other.
    """

    stages: Names = ("all",)
    hidden: Layers = ()
    batch_size: Size = 128
    learning_rate: Rate = LEARNING_RATE
    epochs: Epochs = 20
    seed: Whole = 0
    metrics_every: Size = 10
    validate_every: Whole = 0
    networks: Networks = 1
    gpus: Gpus = 1
    learning_rates: LearningRates = ()
    max_steps: Size | None = None
    data_dir: FilePath | None = None
    rounds: Runs = 2
    repeats: Runs = 2
    warmups: RunsOrNone = 1
    budget: Seconds | None = None
    budget_total: Seconds | None = None
    timeout: Seconds = 300.0
    remeasure: RunsOrNone = 2
    at_once: Runs = 1
    prepare_at_once: Runs | None = None
    tune_references: Flag = False
    precision: Interval | None = None
    time_cap: Seconds | None = None
    lock_clocks: Megahertz | None = None
    profile: Tools | None = None
    nsys_stages: Names | None = None
    curve_steps: Whole = 0
    energy: Flag = False
    target_accuracy: Accuracy | None = None

    def __post_init__(self) -> None:
        if self.time_cap is not None and self.precision is None:
            raise UsageError(f"--time-cap {self.time_cap:g}: limits the rounds that --precision adds; add --precision")
        if self.learning_rates and (rate := self.learning_rate) != LEARNING_RATE:
            raise UsageError(f"--learning-rate {rate:g}: --learning-rates names all; leave one of them out")
        of_one = {
            "--validate-every": self.validate_every, "--curve-steps": self.curve_steps,
            "--target-accuracy": self.target_accuracy,
        }  # fmt: skip
        for option, value in of_one.items():
            if value and self.trained_networks > 1:
                raise UsageError(f"{option} {value}: follows one network; leave it out with several")
        if self.energy and self.gpus > 1:
            raise UsageError(f"--gpus {self.gpus}: --energy reads the counter of one GPU; leave one of them out")
        of_times = {
            "--precision": self.precision, "--profile": self.profile, "--lock-clocks": self.lock_clocks,
            "--energy": self.energy, "--target-accuracy": self.target_accuracy,
        }  # fmt: skip
        asked = next((option for option, value in of_times.items() if value), None)
        if asked and self.at_once > 1:
            raise UsageError(f"--at-once {self.at_once}: measures no times, which {asked} needs; leave one of them out")

    @property
    def trained_networks(self) -> int:
        """How many networks train: as many as there are learning rates, if those are given."""
        return self.networks if self.networks > 1 else max(1, len(self.learning_rates))

    @property
    def profilers(self) -> tuple[Tool, ...]:
        """The chosen profilers; by default CUPTI on a GPU and time stamps on the CPU, if the run is timed."""
        if self.profile is not None:
            return self.profile
        return ("cupti", "stamps") if self.at_once == 1 else ()

    @property
    def seconds_a_stage(self) -> float:
        """The chosen budget; without a GPU 2 by default, since on a CPU processes differ by more than their runs."""
        return self.budget if self.budget is not None else 5.0 if _has_gpu() else 2.0

    @property
    def seconds_in_all(self) -> float | None:
        """The chosen budget for all stages together; by default 60, or 20 without a GPU, unless each has its own."""
        if self.budget_total is not None or self.budget is not None:
            return self.budget_total
        return 60.0 if _has_gpu() else 20.0

    def problem(self, inputs: int = 1, classes: int = 1) -> Problem:
        """The training problem for these numbers of pixels and classes; UsageError for an impossible one."""
        from common.problem import Problem  # late, since NumPy is slow to import and most commands need none

        own = {name: value for name, value in self._values().items() if name in Problem.__dataclass_fields__}
        own["networks"] = self.trained_networks
        if self.target_accuracy is not None:
            own["validate_every"] = self.validate_every or 1
        return Problem(inputs=inputs, classes=classes, **own)

    def settings(self, nsys_stages: list[str] | None) -> Settings:
        """How to measure, as a results file keeps it."""
        resolved = {
            "budget": self.seconds_a_stage,
            "budget_total": self.seconds_in_all,
            "profile": list(self.profilers),
            "nsys_stages": nsys_stages,
        }
        values = {RECORDED.get(name, name): value for name, value in {**self._values(), **resolved}.items()}
        if self.time_cap is None:
            del values["time_cap_s"]  # which has a default
        return Settings(**{name: value for name, value in values.items() if name in Settings.__struct_fields__})

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__struct_fields__}


def _has_gpu() -> bool:
    from common.cuda.driver import devices  # late: it loads the driver, which most commands need not

    return bool(devices())


class NotAllowedError(ValueError):
    """A value that its type does not allow; the message describes the allowed values."""


def option_types(options: type[msgspec.Struct]) -> dict[str, Any]:
    """The type of each field, with its constraints and description."""
    return get_type_hints(options, include_extras=True)


def converted(value: Any, kind: Any, *, from_text: bool = False) -> Any:
    """The value as an option of this type has it; `from_text` accepts numbers written as text.

    Raises MisfitError for a value that the type does not allow.
    """
    kind, meta = _described(kind)
    read: Callable[[Any], Any] = (meta.extra or {}).get("read", lambda value: value)
    try:
        return msgspec.convert(read(value), kind, strict=not from_text, dec_hook=_as_path)
    except ValueError as error:
        raise NotAllowedError(f"must be {meta.description}") from error


def from_record(results: Results, where: Path) -> RunOptions:
    """The options of a recorded run; UsageError names the file and the setting that no run can have."""
    recorded = {
        name: getattr(record, kept)
        for name in RunOptions.__struct_fields__
        for record in (results.problem, results.settings)
        if hasattr(record, kept := RECORDED.get(name, name))
    }
    recorded["stages"] = [stage.name for stage in results.stages]
    if results.settings.precision is None:
        del recorded["time_cap"]  # which limits nothing
    kinds, values = option_types(RunOptions), {}
    for key, value in recorded.items():
        if value is None:
            continue
        try:
            values[key] = converted(value, kinds[key])
        except NotAllowedError as error:
            raise UsageError(f"{where}: {key} = {value}: {error}; start anew") from error
    try:
        return RunOptions(**values)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _described(kind: Any) -> tuple[Any, Meta]:
    """The annotated type, from a union if need be, and its description."""
    for candidate in (kind, *get_args(kind)):
        for meta in getattr(candidate, "__metadata__", ()):
            if isinstance(meta, Meta) and meta.description:
                return candidate, meta
    raise TypeError(f"{kind}: an option's type needs a description")


def _as_path(kind: type, value: Any) -> Any:
    """A path, `~` expanded; an empty text, as from a script's unset variable, would name the current folder."""
    if kind is Path and isinstance(value, str) and value:
        with suppress(RuntimeError):  # whoever needs the file says that there is no such home directory
            return Path(value).expanduser()
        return Path(value)
    raise ValueError(value)
