"""Numbers as text: the only module that rounds.

A timing is shown with three significant digits. A missing or non-finite number is a dash, so no rendering has to check.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path

from ladder.records.program import visible
from ladder.records.run import Precision, Spread

MISSING = "-"
# Code, which stays; else what Markdown would read: a tag, a lone backtick, a fence, an address, a link but to files.
MARKUP = re.compile(r"((?<!\\)`[^`]+`)|[<`]|^~|^\[(?=[^]]*\]:)|\](?=\((?!(?:https?://[^\s&<()]*|[\w./#%-]*)\)))")


def known(text: Callable[[float], str]) -> Callable[[float | None], str]:
    """The same for a number that may be missing or not finite: then a dash."""
    return wraps(text)(lambda value: MISSING if value is None or not math.isfinite(value) else text(value))


@known
def milliseconds(seconds: float) -> str:
    """Seconds in milliseconds, without the unit: `17.2`."""
    return _digits(seconds * 1e3)


@known
def microseconds(value: float) -> str:
    """Microseconds without the unit: `36.8`."""
    return _digits(value)


def spread_microseconds(spread: Spread | None) -> str:
    """A median of microseconds with its ends, in the median's decimals: `36.8 (35.9-40.2)`."""
    if spread is None:
        return MISSING
    ends = [aligned(end, spread.median) for end in (spread.min, spread.max)]
    return f"{microseconds(spread.median)} ({MISSING if MISSING in ends else '-'.join(ends)})"


def spread_milliseconds(spread: Spread | None) -> str:
    """A spread of seconds in milliseconds: `17.2 (17.1-17.9)`."""
    known = spread and Spread(*(seconds * 1e3 for seconds in (spread.median, spread.min, spread.max)))
    return spread_microseconds(known)


@known
def rough(value: float) -> str:
    """An estimated number with two significant digits: `0`, `0.42`, `25`, `1,200`."""
    return "0" if value == 0 else _digits(float(f"{value:.2g}"), 2)


@known
def cycles(value: float) -> str:
    """Clock cycles to three significant digits, as the clock is known to about 1 MHz: `71,300`."""
    return _digits(float(f"{value:.3g}"))


def aligned(value: float, beside: float) -> str:
    """A number with the decimals of another, so that a column adds up: `0.6` beside 17.4."""
    if not (math.isfinite(value) and math.isfinite(beside)):
        return MISSING
    text = f"{value:,.{_decimals(beside)}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0 else text


def rounded(value: float, beside: float) -> float:
    """A number as `aligned` writes it."""
    return round(value, _decimals(beside))


def change(value: float, beside: float) -> str:
    """A difference with the decimals of another number: `+0.6`, `-17.3`, `0.0`."""
    text = aligned(value, beside)
    return f"+{text}" if value > 0 and text.strip("0.") else text


@known
def share(value: float) -> str:
    """A share with at most one decimal: `71%`, `1.6%`."""
    return f"{value * 100:.1f}".removesuffix(".0") + "%"


@known
def rough_share(value: float) -> str:
    """A share in whole per cent, which may be below 0 or far above 1: `96%`, `-738%`."""
    return f"{value * 100:,.0f}%"


def bandwidth(octets: float | None, us: float) -> str:
    """The rate of moving so many bytes in so many microseconds: `812 GB/s`."""
    return f"{_digits(octets / us / 1e3)} GB/s" if octets is not None and us > 0 else MISSING


@known
def ratio(value: float) -> str:
    """A factor with three significant digits, or two below one: `2.14x`, `0.066x`."""
    return f"{_digits(value, 3 if value >= 0.995 else 2)}x"


def rough_ratio(value: float, low: float, high: float) -> str:
    """An estimated factor with its range, each with two significant digits: `26x (12-54)`; a measured one has none."""
    ends = "" if low == high else f" ({_digits(low, 2)}-{_digits(high, 2)})"
    return f"{_digits(value, 2)}x{ends}"


def ratio_spread(value: float, low: float, high: float) -> str:
    """A factor with the ends of its interval or range, in its own decimals: `2.96x (2.91-3.02)`."""
    if not all(map(math.isfinite, (value, low, high))):
        return ratio(value)
    return f"{ratio(value)} ({ratio_ends(low, high, value)})"


def ratio_ends(low: float, high: float, beside: float) -> str:
    """The ends of a factor's interval, in the factor's decimals: `2.91-3.02`; near 1 with three: `1.003-1.08`."""
    decimals = _decimals(beside, 3 if beside >= 0.995 else 2)
    return "-".join(f"{end:,.{3 if round(end, decimals) == 1 else decimals}f}" for end in (low, high))


@known
def per_step(value: float) -> str:
    """A count a step: `9`, `9.5`, and `0.002` for one an epoch."""
    return f"{value:,.1f}".removesuffix(".0") if value >= 0.1 else f"{value:.{_decimals(value, 1)}f}"


@known
def mean_count(value: float) -> str:
    """A mean with up to three decimals, to be compared exactly: `8`, `5.385`."""
    return f"{value:,.3f}".rstrip("0").removesuffix(".")


def precision(name: Precision) -> str:
    """The short name of a number format: `bf16` for bfloat16."""
    return {"bfloat16": "bf16", "float16": "fp16"}.get(name, name)


@known
def memory(mib: float) -> str:
    """Mebibytes: `710 MiB`, `1.0 GiB`."""
    return f"{mib:.0f} MiB" if mib < 999.5 else f"{_digits(mib / 1024, 2)} GiB"


@known
def percent(share: float) -> str:
    """A share of 0 to 1: `92.22%`."""
    return f"{share * 100:.2f}%"


def error(value: float | None) -> str:
    """A relative error or its limit: `3.4e-07`; results store a non-finite number as null."""
    return "not finite" if value is None or not math.isfinite(value) else f"{value:.1e}"


@known
def loss(value: float) -> str:
    """A mean cross-entropy: `0.2746`."""
    return f"{value:.4f}"


@known
def seconds(value: float) -> str:
    """A time in seconds, however long: `0.31 s`, `42 s`, `185 s`."""
    if value < 9.95:
        return f"{value:.2g} s" if value >= 0.0995 else f"{value:.2f} s"
    return f"{value:,.0f} s"


@known
def duration(value: float) -> str:
    """A time in the units that people use: `0.31 s`, `42 s`, `3 min 05 s`, `2 h 10 min`."""
    if value < 59.5:
        return seconds(value)
    minutes, whole = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {whole:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def duration_range(low: float, high: float) -> str:
    """The ends of an estimated time in one unit, with two significant digits: `5.8-33 s`, `0.75-4.7 min`."""
    unit, each = ("h", 3600) if high >= 7200 else ("min", 60) if high >= 120 else ("s", 1)
    return f"{'-'.join(dict.fromkeys((rough(low / each), rough(high / each))))} {unit}"


def rough_duration(value: float) -> str:
    """An estimated time, in tens of seconds or whole minutes: `10 s`, `50 s`, `3 min`, `1 h 10 min`."""
    if value < 55:
        return f"{max(10, round(value, -1)):.0f} s"
    return f"{round(value / 60) or 1} min" if value < 3570 else duration(round(value / 600) * 600)


def size(octets: float) -> str:
    """A number of bytes: `9.9 MB`, `40 B`."""
    if octets < 1e3:
        return f"{octets:.0f} B"
    return f"{octets / 1e6:.1f} MB" if octets >= 1e5 else f"{octets / 1e3:.1f} kB"


def count(number: int, noun: str) -> str:
    """A number with its noun: `1 run`, `3 runs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listing(words: Iterable[str]) -> str:
    """Words in a sentence: `a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def brief(names: Sequence[str], most: int = 4) -> str:
    """Names in a sentence, of which many are counted: `a, b and c`, `a, b, c and 29 more`."""
    if len(names) <= most:
        return listing(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1:,} more"


def _digits(value: float, digits: int = 3) -> str:
    """A number with so many significant digits and its whole part complete: `0.123`, `1.23`, `12.3`, `1,234`."""
    return f"{value:,.{_decimals(value, digits)}f}" if math.isfinite(value) else MISSING


def _decimals(value: float, digits: int = 3) -> int:
    """The decimals that give a rounded value so many significant digits, at most six."""
    if value == 0 or not math.isfinite(value):
        return digits - 1
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return min(max(digits - 1 - exponent, 0), 6)


def line(text: str) -> str:
    """Foreign text on one line, in which Markdown reads code and links to files and the web, and nothing else.

    HTML, a lone backtick, a fence, and links such as `javascript:` are shown as they are.
    """
    return MARKUP.sub(_shown, " ".join(text.split()))


def _shown(match: re.Match[str]) -> str:
    return match[1] or ("&lt;" if match[0] == "<" else f"&#{ord(match[0])};")


def shortest(path: Path) -> str:
    """The path as it is, or from the working folder, if that is shorter."""
    return visible(min(str(path), os.path.relpath(path), key=len))
