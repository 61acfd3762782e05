"""The commands of the front door, each with its options; `parsers` makes them from the command line."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from ladder.options.run_options import FilePath, Layers, Names, RunOptions, Size, Text, Threshold, Tools

StageFiles = Annotated[tuple[FilePath, ...], Meta(description="the name of a Python file")]
RunName = Annotated[str, Meta(min_length=1, description="the name of a file or folder")]
RunNames = Annotated[tuple[RunName, ...], Meta(description="the name of a file or folder")]
Flag = Annotated[bool, Meta(description="true or false")]
Format = Annotated[Literal["text", "markdown", "json"], Meta(description="text, markdown or json")]
StageName = Annotated[Text, Meta(description="the name of a stage")]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for; `name` is the command's on the command line."""

    name: ClassVar[str]


class Run(Command, frozen=True, kw_only=True):
    """`run`: measure stages in a new folder."""

    name: ClassVar[str] = "run"
    options: RunOptions
    stage_file: StageFiles = ()
    out: FilePath | None = None


class Resume(Command, frozen=True, kw_only=True):
    """`run --resume`: continue a stopped run, or add a profile by nsys."""

    name: ClassVar[str] = "run"
    resume: FilePath
    stage_file: StageFiles = ()
    data_dir: FilePath | None = None
    profile: Tools | None = None
    nsys_stages: Names | None = None


class Study(Command, frozen=True, kw_only=True):
    """`study`: measure the points of a TOML file; `changes` are settings for a quick trial, at every point."""

    name: ClassVar[str] = "study"
    file: FilePath
    out: FilePath | None = None
    points: Names | None = None
    data_dir: FilePath | None = None
    changes: dict[str, Any] = {}


class ResumeStudy(Command, frozen=True, kw_only=True):
    """`study --resume`: continue a stopped study."""

    name: ClassVar[str] = "study"
    resume: FilePath
    points: Names | None = None
    data_dir: FilePath | None = None


class Report(Command, frozen=True, kw_only=True):
    """`report`: render a run, a study or a tuning again."""

    name: ClassVar[str] = "report"
    path: FilePath


class Compare(Command, frozen=True, kw_only=True):
    """`compare`: two runs as a gate, or several side by side."""

    name: ClassVar[str] = "compare"
    runs: RunNames
    threshold: Threshold | None = None
    format: Format = "text"
    strict: Flag = False


class Explain(Command, frozen=True, kw_only=True):
    """`explain`: where the time of one stage goes, in one run or the newest that profiled it."""

    name: ClassVar[str] = "explain"
    stage: StageName
    run: FilePath | None = None
    stage_file: StageFiles = ()


class ListStages(Command, frozen=True, kw_only=True):
    """`list`: every stage and whether it runs here."""

    name: ClassVar[str] = "list"
    stage_file: StageFiles = ()


class Doctor(Command, frozen=True, kw_only=True):
    """`doctor`: the installed and missing parts."""

    name: ClassVar[str] = "doctor"


class Limits(Command, frozen=True, kw_only=True):
    """`limits`: the costs of the GPU's primitives."""

    name: ClassVar[str] = "limits"


class Readme(Command, frozen=True, kw_only=True):
    """`readme`: the recorded runs in the documents."""

    name: ClassVar[str] = "readme"


class Tune(Command, frozen=True, kw_only=True):
    """`tune`: launch shapes for a network."""

    name: ClassVar[str] = "tune"
    hidden: Layers = ()
    batch_size: Size = 128
    again: Flag = False
    out: FilePath | None = None
    data_dir: FilePath | None = None
