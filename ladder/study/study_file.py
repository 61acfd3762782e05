"""The TOML file of a study: options of a run, and what of them is varied. Checked whole before anything starts.

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
from typing import Any

import msgspec

from common.errors import UsageError
from ladder.options.toml_file import OPTIONS, ConfigFile, Key, Table, converted, misfit, shown
from ladder.records.study import Point, Published, Study

MOST_VARIED = 2
MOST_POINTS = 200
PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
SETTINGS: dict[str, Key] = {
    **OPTIONS,
    "precision": Key(f"one of {', '.join(PRECISIONS)}", lambda value: value in PRECISIONS),
}
VARIED = ("hidden", "depth", "batch_size", "learning_rate", "precision", "epochs", "seed")
TEXT = Key("text", lambda value: isinstance(value, str))
TOP: dict[str, Key] = {
    "title": TEXT,
    "question": TEXT,
    **SETTINGS,
    "vary": Key("a table", lambda value: isinstance(value, dict)),
    "where": Key("tables, each begun by [[where]]", lambda value: _is_tables(value)),
    "published": Key("tables, each begun by [[published]]", lambda value: _is_tables(value)),
}


def read_study(path: Path, command: str, created: str) -> Study:
    """A study that waits to be measured; UsageError names the line and the key of what is wrong with the file."""
    file = ConfigFile(path)
    top = file.checked(file.table, TOP)
    varied = _varied(file, top.get("vary", {}))
    base = {key: value for key, value in top.items() if key in SETTINGS}
    for key in varied:
        if key in base:
            raise file.refuse(key, ": is varied by [vary]; leave it out here")
    wheres = [_where(file, table, varied, nth) for nth, table in enumerate(top.get("where", []))]
    return Study(
        name=path.stem,
        title=top.get("title", path.stem),
        question=top.get("question", ""),
        created=created,
        command=command,
        varied=list(varied),
        points=list(_points(file, base, varied, wheres)),
        published=[_published(file, table, nth) for nth, table in enumerate(top.get("published", []))],
    )


def with_settings(study: Study, settings: Table) -> Study:
    """The same study with these settings at every point, which the command line may ask for to try it out."""
    points = [msgspec.structs.replace(point, settings={**point.settings, **settings}) for point in study.points]
    return msgspec.structs.replace(study, points=points)


def point_options(point: Point) -> dict[str, Any]:
    """The options of a point, by the names under which the command line keeps them; without `precision`."""

    def refuse(key: str, what: str) -> UsageError:
        return UsageError(f"{point.name}: {key}{what}")

    for key, value in point.settings.items():  # which a study.json may have from anybody
        if key not in SETTINGS:
            raise refuse(shown(key), ": there is no such setting")
        if wrong := misfit(key, value, SETTINGS[key]):
            raise refuse(key, wrong)
    return converted({key: value for key, value in point.settings.items() if key != "precision"}, refuse)


def _is_tables(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(table, dict) for table in value)


def _varied(file: ConfigFile, table: Table) -> dict[str, list[Any]]:
    """What [vary] crosses, each setting with its values."""
    if len(table) > MOST_VARIED:
        raise file.refuse("vary", f": varies {', '.join(table)}; a study varies {MOST_VARIED} settings at most")
    for key, values in table.items():
        if key not in VARIED:
            raise file.refuse(key, f": cannot be varied; allowed are {', '.join(VARIED)}", "vary")
        if not isinstance(values, list) or not values:
            raise file.refuse(key, ": must be a list of the values to vary it over", "vary")
        for value in values:
            file.check(key, value, SETTINGS[key], "vary")
        if len({repr(value) for value in values}) < len(values):
            raise file.refuse(key, ": has a value twice", "vary")
    return dict(table)


@dataclass(frozen=True)
class _Where:
    """Settings of those points whose values are all among the chosen ones."""

    chosen: dict[str, list[Any]]
    settings: dict[str, Any]

    def holds(self, values: Table) -> bool:
        """Whether a point of these values is chosen."""
        return all(values[key] in wanted for key, wanted in self.chosen.items())


def _where(file: ConfigFile, table: Table, varied: Mapping[str, list[Any]], nth: int) -> _Where:
    """A [[where]]; UsageError where it says nothing of any point."""
    settings = file.checked({k: v for k, v in table.items() if k not in varied}, SETTINGS, "where", nth)
    chosen = {key: _chosen(value, varied[key]) for key, value in table.items() if key in varied}
    if not chosen:
        allowed = ", ".join(varied) or "none, as nothing is varied"
        raise file.refuse("where", f": names no point; give values of what is varied: {allowed}", "", nth)
    if not settings:
        raise file.refuse("where", ": changes nothing; give a setting beside what it chooses", "", nth)
    for key, values in chosen.items():
        for value in values:
            if value not in varied[key]:
                raise file.refuse(key, f" = {shown(value)}: is not among the values in [vary]", "where", nth)
    return _Where(chosen, settings)


def _chosen(value: Any, among: list[Any]) -> list[Any]:
    """One value, which may itself be a list of layers, or a list of values."""
    return value if isinstance(value, list) and value not in among else [value]


def _points(file: ConfigFile, base: Table, varied: Mapping[str, list[Any]], wheres: list[_Where]) -> Iterator[Point]:
    """Every combination of the varied values, the last setting changing fastest."""
    crossed = list(itertools.product(*varied.values()))
    if len(crossed) > MOST_POINTS:
        raise file.refuse("vary", f": makes {len(crossed)} points; {MOST_POINTS} are the most")
    for combination in crossed:
        values = dict(zip(varied, combination, strict=True))
        settings = {**base, **values}
        for where in wheres:
            if where.holds(values):
                settings |= where.settings
        settings.setdefault("stages", "all")
        name = ".".join(f"{key.replace('_', '-')}-{_word(value)}" for key, value in values.items()) or "run"
        point = Point(name, values, settings)
        converted(
            {k: v for k, v in settings.items() if k != "precision"}, lambda key, what: file.refuse(key, what, "*")
        )
        yield point


def _word(value: Any) -> str:
    """A value as part of a folder's name."""
    text = ("-".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
    return re.sub(r"[^\w.+-]", "_", text)


def _published(file: ConfigFile, table: Table, nth: int) -> Published:
    keys = dict.fromkeys(Published.__struct_fields__, TEXT)
    found = file.checked(table, keys, "published", nth)
    try:
        return msgspec.convert(found, Published)
    except msgspec.ValidationError as error:
        raise file.refuse("published", f": {error}", "", nth) from error
