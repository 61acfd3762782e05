"""The TOML file of a study: options of a run, and the one or two that vary. Checked whole before anything starts.

title = "How the gap closes"
stages = ["cuda-graph", "torch-graph"]
depth = 3

[vary]                      # one or two settings, each with its values; two are crossed
hidden = [64, 128, 4096]

[[where]]                   # other settings for some points
hidden = [4096]
max_steps = 64
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from common.errors import UsageError
from ladder.options.toml_file import SETTINGS, Table, TomlFile, misfit, run_settings, shown
from ladder.records.study import Point, Published, Study

MAX_VARIED = 2
MAX_POINTS = 200
Text = Annotated[str, Meta(description="text")]
Tables = Annotated[list[dict[str, Any]], Meta(description="tables, each begun by [[where]] or [[published]]")]
VARIED = (
    "hidden", "depth", "batch_size", "learning_rate", "epochs", "seed", "networks", "gpus", "validate_every",
)  # fmt: skip
KEYS: Table = {
    "title": Text,
    "question": Text,
    **SETTINGS,
    "vary": Annotated[dict[str, Any], Meta(description="a table")],
    "where": Tables,
    "published": Tables,
}


def read_study(path: Path, command: str, created: str) -> Study:
    """A study that waits to be measured; UsageError names the key of a mistake in the file."""
    return _study(TomlFile(path), path.stem, command, created)


def varied_study(vary: Table, command: str, created: str) -> Study:
    """A study of settings that the command line varies, each with its values; UsageError as for a file."""
    return _study(TomlFile(Path("--vary"), {"vary": vary}), "-".join(vary).replace("_", "-"), command, created)


def _study(file: TomlFile, name: str, command: str, created: str) -> Study:
    top = file.checked(file.table, KEYS)
    varied = _varied(file, top.get("vary", {}))
    base = {key: value for key, value in top.items() if key in SETTINGS}
    for key in varied:
        if key in base:
            raise file.refuse(key, ": is varied by [vary]; leave it out here")
    wheres = [_where(file, table, varied) for table in top.get("where", [])]
    published = [_published(file, table) for table in top.get("published", [])]
    if not top.keys() & {*SETTINGS, "vary"}:
        raise UsageError(f"{file.path}: sets nothing; name its stages, and what to vary under [vary]")
    return Study(
        name=name,
        title=top.get("title", name),
        question=top.get("question", ""),
        created=created,
        command=command,
        varied=list(varied),
        points=list(_points(file, base, varied, wheres)),
        published=published,
    )


def with_settings(study: Study, settings: Table) -> Study:
    """The same study with these settings at every point, as the command line gives them for a quick trial."""
    points = [msgspec.structs.replace(point, settings={**point.settings, **settings}) for point in study.points]
    return msgspec.structs.replace(study, points=points)


def point_options(point: Point) -> dict[str, Any]:
    """The options of a point as `RunOptions` has them."""

    def refuse(key: str, what: str) -> UsageError:
        return UsageError(f"{point.name}: {key}{what}")

    for key, value in point.settings.items():  # a study.json may have been edited
        if key not in SETTINGS:
            raise refuse(shown(key), ": there is no such setting")
        if wrong := misfit(value, SETTINGS[key]):
            raise refuse(key, wrong)
    return run_settings(point.settings, refuse)


def _varied(file: TomlFile, table: Table) -> dict[str, list[Any]]:
    """The settings that [vary] crosses, each with its values."""
    if len(table) > MAX_VARIED:
        raise file.refuse("vary", f": varies {', '.join(table)}; a study varies at most {MAX_VARIED} settings")
    for key, values in table.items():
        if key not in VARIED:
            raise file.refuse(key, f": cannot be varied; allowed are {', '.join(VARIED)}")
        if not isinstance(values, list) or not values:
            raise file.refuse(key, ": must be a list of values")
        for value in values:
            file.check(key, value, SETTINGS[key])
        if len({repr(value) for value in values}) < len(values):
            raise file.refuse(key, ": has a value twice")
    return dict(table)


@dataclass(frozen=True)
class _Where:
    """Settings for the points whose values are all among the chosen ones."""

    chosen: dict[str, list[Any]]
    settings: dict[str, Any]

    def holds(self, values: Table) -> bool:
        """Whether a point of these values is chosen."""
        return all(values[key] in wanted for key, wanted in self.chosen.items())


def _where(file: TomlFile, table: Table, varied: Mapping[str, list[Any]]) -> _Where:
    """A [[where]]; UsageError for one that chooses no point or changes no setting."""
    settings = file.checked({k: v for k, v in table.items() if k not in varied}, SETTINGS, "where")
    chosen = {  # a value may itself be a list of layers
        key: value if isinstance(value, list) and value not in varied[key] else [value]
        for key, value in table.items()
        if key in varied
    }
    if not chosen:
        allowed = ", ".join(varied) or "none, since [vary] is empty"
        raise file.refuse("where", f": chooses no point; give values of a varied setting: {allowed}")
    if not settings:
        raise file.refuse("where", ": changes no setting; add one beside the values that choose its points")
    for key, values in chosen.items():
        for value in values:
            if value not in varied[key]:
                raise file.refuse(key, f" = {shown(value)}: is not among the values in [vary]")
    return _Where(chosen, settings)


def _points(file: TomlFile, base: Table, varied: Mapping[str, list[Any]], wheres: list[_Where]) -> Iterator[Point]:
    """Every combination of the varied values, the last setting changing fastest."""
    crossed = list(itertools.product(*varied.values()))
    if len(crossed) > MAX_POINTS:
        raise file.refuse("vary", f": makes {len(crossed)} points; a study has at most {MAX_POINTS}")
    for combination in crossed:
        values = dict(zip(varied, combination, strict=True))
        settings = {**base, **values}
        for where in wheres:
            if where.holds(values):
                settings |= where.settings
        settings.setdefault("stages", "all")
        name = ".".join(f"{key.replace('_', '-')}-{_word(value)}" for key, value in values.items()) or "run"
        run_settings(settings, file.refuse)
        yield Point(name, values, settings)


def _word(value: Any) -> str:
    """A value as part of a folder's name."""
    text = ("-".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
    return re.sub(r"[^\w.+-]", "_", text)


def _published(file: TomlFile, table: Table) -> Published:
    kinds = dict.fromkeys(Published.__struct_fields__, Text)
    publication = file.checked(table, kinds, "published")
    try:
        return msgspec.convert(publication, Published)
    except msgspec.ValidationError as error:
        raise file.refuse("published", f": {error}") from error
