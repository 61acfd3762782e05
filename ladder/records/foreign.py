"""Reading files that a stranger may have sent: of a size that fits in memory, and with all their text visible."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from common.files import is_endless
from common.streams import visible

Kind = TypeVar("Kind")
MOST_BYTES = 256 << 20  # of a recorded file, unpacked; the largest of ours takes a megabyte
MOST_VALUES = 2_000_000  # in it, of which each takes some hundred bytes in memory; the largest of ours has 61,039
NOT_OURS = (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError, zlib.error)  # of what is no record
PLAIN = bytes((*range(32, 127), *b"\t\r\n"))  # JSON of these alone, without \u, has no text that `visible` changes


class ResultsError(Exception):
    """A recorded file that cannot be read: one line with the file, the reason and the way out."""


def read(path: Path) -> bytes:
    """The bytes of a regular file, else ResultsError; unpacked from one named `.gz`, else zlib.error."""
    try:
        if is_endless(path):
            raise ResultsError(f"{path}: not a regular file")
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror})") from error
    if path.suffix == ".gz":
        raw = zlib.decompressobj(zlib.MAX_WBITS + 16).decompress(raw, MOST_BYTES + 1)  # 16: with a header by gzip
    if len(raw) > MOST_BYTES:
        raise ResultsError(f"{path}: more than {MOST_BYTES >> 20} MiB, which no file of this program has")
    return raw


def read_json(path: Path) -> bytes:
    """The JSON text in a file, each string and key made visible.

    Raises ResultsError like `read`, and one of NOT_OURS for a text that is no JSON.
    """
    raw = read(path)
    if sum(map(raw.count, b"[{,")) > MOST_VALUES:
        raise ResultsError(f"{path}: more than {MOST_VALUES:,} values, which no file of this program has")
    hides = raw.translate(None, PLAIN) or b"\\u" in raw
    return msgspec.json.encode(visible_in(msgspec.json.decode(raw))) if hides else raw


def decoded(path: Path, kind: type[Kind], what: str, way_out: str = "") -> Kind:
    """The record in a file; ResultsError says that it is not `what`, and the way out."""
    try:
        return msgspec.json.decode(read_json(path), type=kind)
    except NOT_OURS as error:
        raise ResultsError(f"{path}: not {what} ({error}){way_out}") from error


def visible_in(data: Any) -> Any:
    """Plain data with each text in it made visible."""
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, dict):
        return {visible_in(key): visible_in(value) for key, value in data.items()}
    return [visible_in(item) for item in data] if isinstance(data, list) else data
