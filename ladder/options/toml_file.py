"""TOML files with options: every key is checked before anything starts.

The keys are the fields of `RunOptions`, and `depth`: that many hidden layers of `hidden` units each.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from common.errors import UsageError
from ladder.options.run_options import NotAllowedError, RunOptions, converted, option_types
from ladder.records.foreign import visible_in

Table = Mapping[str, Any]

MAX_BYTES = 1_000_000
MAX_DEPTH = 1000
Depth = Annotated[int, Meta(ge=0, le=MAX_DEPTH, description=f"a whole number from 0 to {MAX_DEPTH}")]
SETTINGS: Table = {**option_types(RunOptions), "depth": Depth}
"""The type of each key."""


class TomlFile:
    """A TOML file. UsageError where it cannot be read."""

    def __init__(self, path: Path, table: Table | None = None) -> None:
        """`table` is what the command line gives in a file's place; `path` then names its option."""
        self.path = path
        if table is not None:
            self.table = table
            return
        try:
            with path.open("rb") as file:  # a device may have no end
                raw = file.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:
                raise UsageError(f"{path}: longer than {MAX_BYTES:,} bytes; name a TOML file of options")
            # Editors on Windows begin a file with a byte order mark.
            self.table = visible_in(tomllib.loads(raw.decode("utf-8-sig")))
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror}); name a TOML file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"{path}: not TOML ({error})") from error

    def refuse(self, key: str, what: str) -> UsageError:
        """The error at a key."""
        return UsageError(f"{self.path}: {key if key.isprintable() else shown(key)}{what}")

    def checked(self, given: Table, kinds: Table, table: str = "") -> dict[str, Any]:
        """The values of a table as the file has them; UsageError for an unknown key or a wrong value."""
        for key, value in given.items():
            if key not in kinds:
                near = difflib.get_close_matches(key, kinds, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                where = f" in [{table}]" if table else ""
                raise self.refuse(key, f": there is no such key{where}; {hint}allowed are {', '.join(kinds)}")
            self.check(key, value, kinds[key])
        return dict(given)

    def check(self, key: str, value: object, kind: Any) -> None:
        """Raise UsageError for a value that its type does not allow."""
        if wrong := misfit(value, kind):
            raise self.refuse(key, wrong)


def misfit(value: Any, kind: Any) -> str:
    """Why a value is not allowed, to follow its key; empty for an allowed one."""
    try:
        converted(value, kind)
    except NotAllowedError as error:
        return f" = {shown(value)}: {error}"
    return ""


def shown(value: object) -> str:
    """A value as TOML writes it, shortened where it is long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    text = f"[{', '.join(map(shown, value))}]" if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def options_of(path: Path) -> dict[str, Any]:
    """The options that a file gives, as `RunOptions` has them."""
    file = TomlFile(path)
    return run_settings(file.checked(file.table, SETTINGS), file.refuse)


def run_settings(values: Table, refuse: Callable[[str, str], UsageError]) -> dict[str, Any]:
    """Checked values of a file as `RunOptions` has them: `depth` and `hidden` become the layers."""
    hidden, depth = values.get("hidden"), values.get("depth")
    if depth is not None and isinstance(hidden, list):
        raise refuse("depth", f" = {depth}: hidden is already a list of layers; give it one size, or leave depth out")
    if depth and hidden is None:
        raise refuse("depth", f" = {depth}: needs the width of these layers; add one, such as hidden = 256")
    options = {key: converted(value, SETTINGS[key]) for key, value in values.items() if key != "depth"}
    return options if depth is None else {**options, "hidden": (hidden,) * depth}
