"""TOML files with the options of a run: every key checked before anything starts, and named with its line if wrong.

The keys are the long options of the command line with `_` for `-`, and `depth`, which only a file has: so many hidden
layers of `hidden` units each.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UsageError
from ladder.options.parsers import ladder_parser, tools

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Key:
    """What a key may be: in words, and as a test; `convert` makes what the run takes of it."""

    allowed: str
    fits: Callable[[Any], bool]
    convert: Callable[[Any], Any] = lambda value: value


def whole(least: int) -> Key:
    """A whole number from `least` up."""

    def fits(value: Any) -> bool:
        return _is_whole(value) and value >= least

    return Key(f"a whole number of {least} or more", fits)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_words(value: object) -> bool:
    """Whether it is some text, or a list of texts."""
    words = value if isinstance(value, list) else [value]
    return bool(words) and all(isinstance(word, str) and word for word in words)


def _is_layers(value: object) -> bool:
    """Whether it is a layer's size, or a list of such."""
    widths: list[Any] = value if isinstance(value, list) else [value]
    return all(_is_whole(width) and width > 0 for width in widths)


def _positive(what: str) -> Key:
    def fits(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf

    return Key(what, fits, float)


def _joined(value: str | list[str]) -> str:
    return value if isinstance(value, str) else ",".join(value)


MOST_BYTES = 1_000_000  # of a file of options
SIZE = whole(1)
SECONDS = _positive("a positive number of seconds")
NAMES = 'text such as "all" or "naive..cublas", or a list of names'
# Of the command line alone: they say what to do instead of a run, or where, or bring code.
NOT_IN_FILES = ("list", "doctor", "explain", "resume", "config", "out", "stage_file")


def _as_option(name: str) -> Key:
    """A key that may be whatever the option of its name takes."""
    option = f"--{name.replace('_', '-')}"

    def convert(value: Any) -> Any:
        if isinstance(value, bool):
            words = [option] if value else []
        else:
            words = [f"{option}={_joined(value) if _is_words(value) else value}"]
        return getattr(ladder_parser().parse_args(words), name)

    def fits(value: Any) -> bool:
        try:
            convert(value)
        except UsageError:
            return False
        return True

    return Key(f"what {option} takes; see --help", fits, convert)


OPTIONS: dict[str, Key] = {name: _as_option(name) for name in vars(ladder_parser().parse_args([]))}
OPTIONS = {name: key for name, key in OPTIONS.items() if name not in NOT_IN_FILES} | {
    "stages": Key(NAMES, _is_words, _joined),
    "hidden": Key("a layer's size such as 256, or a list of sizes such as [128, 128, 128]", _is_layers),
    "depth": whole(0),
    "batch_size": SIZE,
    "learning_rate": _positive("a positive number, such as 0.1"),
    "epochs": SIZE,
    "seed": whole(0),
    "metrics_every": SIZE,
    "validate_every": whole(0),
    "max_steps": SIZE,
    "data_dir": Key("the text of a path", lambda value: isinstance(value, str) and value != "", Path),
    "rounds": SIZE,
    "at_once": SIZE,
    "repeats": SIZE,
    "warmups": whole(0),
    "budget": SECONDS,
    "timeout": SECONDS,
    "curve_steps": whole(0),
    "lock_clocks": SIZE,
    "nsys_stages": Key(NAMES, _is_words, _joined),
    "profile": Key('text such as "cupti", "nsys", "auto" or "none", or a list of tools', _is_words, _joined),
}


class ConfigFile:
    """A TOML file, and where in it a key stands. UsageError where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:  # a device may have no end
                raw = file.read(MOST_BYTES + 1)
            if len(raw) > MOST_BYTES:
                raise UsageError(f"{path}: longer than {MOST_BYTES:,} bytes; name a TOML file of options")
            self._text = raw.decode("utf-8")
            self.table: Table = tomllib.loads(self._text)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror}); name a TOML file") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: not TOML ({error})") from error

    def refuse(self, key: str, what: str, table: str = "", nth: int = 0) -> UsageError:
        """The error for a key of a table, the nth of an array of tables: where it stands, and what is wrong with it.

        Table `*` is any: the last that has the key.
        """
        line = self._line(key, table, nth)
        name = key if key.isprintable() else shown(key)
        return UsageError(f"{self.path}{f', line {line}' if line else ''}: {name}{what}")

    def _line(self, key: str, table: str, nth: int) -> int | None:
        """The line, counted from 1, on which the key begins, as far as one can tell without parsing TOML again."""
        if table == "*":
            tables = [("", 0), ("vary", 0), *(("where", nth) for nth in range(len(self.table.get("where", []))))]
            return max((found for name, nth in tables if (found := self._line(key, name, nth))), default=None)
        inside, seen = table == "", -1
        for number, line in enumerate(self._text.splitlines(), start=1):
            if header := re.match(r"\s*\[\[?\s*([\w.-]+)\s*\]", line):
                seen += header[1] == table
                inside = header[1] == table and seen == nth
                if header[1] == key and table == "":
                    return number
            elif inside and re.match(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""", line):
                return number
        return None

    def checked(self, found: Table, keys: Mapping[str, Key], table: str = "", nth: int = 0) -> dict[str, Any]:
        """The values of a table as the file has them; UsageError for an unknown key or a value that does not fit."""
        for key, value in found.items():
            if key not in keys:
                near = difflib.get_close_matches(key, keys, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                where = f" in [{table}]" if table else ""
                raise self.refuse(
                    key, f": there is no such key{where}; {hint}allowed are {', '.join(keys)}", table, nth
                )
            self.check(key, value, keys[key], table, nth)
        return dict(found)

    def check(self, key: str, value: object, wanted: Key, table: str = "", nth: int = 0) -> None:
        """Raise UsageError for a value that does not fit."""
        if wrong := misfit(key, value, wanted):
            raise self.refuse(key, wrong, table, nth)


def misfit(key: str, value: Any, wanted: Key) -> str:
    """What is wrong with a value, to stand behind its key; empty where it fits."""
    if not wanted.fits(value):
        return f" = {shown(value)}: must be {wanted.allowed}"
    if key == "profile":
        try:
            tools(_joined(value))
        except ValueError as error:
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
    """The options that a file gives, by the names under which the command line keeps them."""
    file = ConfigFile(path)
    return converted(file.checked(file.table, OPTIONS), lambda key, what: file.refuse(key, what))


def converted(values: Table, refuse: Callable[[str, str], UsageError]) -> dict[str, Any]:
    """Checked values as the run takes them: `hidden` and `depth` become layers, texts and lists what options are."""
    options = {key: OPTIONS[key].convert(value) for key, value in values.items() if key not in ("hidden", "depth")}
    if "profile" in options:
        options["profile"] = tools(options["profile"])
    hidden, depth = values.get("hidden"), values.get("depth")
    if depth is not None and isinstance(hidden, list):
        raise refuse("depth", f" = {depth}: hidden is a list of layers, which says how many; give it one size instead")
    if depth and hidden is None:
        raise refuse("depth", f" = {depth}: how wide are they? give hidden, such as hidden = 256")
    if depth is not None:
        options["hidden"] = (hidden,) * depth
    elif hidden is not None:
        options["hidden"] = tuple(hidden) if isinstance(hidden, list) else (hidden,)
    return options
