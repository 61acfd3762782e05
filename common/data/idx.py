"""Reader for IDX, the file format of MNIST: a big-endian header, then the array's bytes.

The header is a magic number, 0x0000 08 rr for unsigned bytes of rank rr, then each axis's size as a 32-bit integer
(Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits"). Sizes are checked against the file's
length before any array exists.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.errors import UsageError

IMAGES_RANK = 3  # (N, H, W), magic 0x00000803
LABELS_RANK = 1  # (N,), magic 0x00000801

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTES = 0x0800
_TYPES = {0x8: "uint8", 0x9: "int8", 0xB: "int16", 0xC: "int32", 0xD: "float32", 0xE: "float64"}
_OTHER_FORMATS = {  # by the first bytes, in lower case
    b"<!doctype html": "an HTML page: its address has moved or wants a login",
    b"<html": "an HTML page: its address has moved or wants a login",
    b"<?xml": "an XML page: its address has moved or wants a login",
    b"version https://git-lfs": "a Git LFS pointer; `git lfs pull` fetches the file",
    b"pk\x03\x04": "a ZIP archive; unpack it",
    b"\x93numpy": "a NumPy file; write it as IDX",
    _GZIP_MAGIC: "gzipped twice; unpack it once",
}


@dataclass(frozen=True)
class Idx:
    """An IDX file's array, uint8 and read-only, and the SHA-256 of the decompressed file."""

    name: str  # in error messages
    array: NDArray[np.uint8]
    sha256: str


def read_idx(path: Path, rank: int) -> Idx:
    """Read an IDX file, gzipped or plain; UsageError with the reason if it is invalid."""
    try:
        if path.exists() and not (
            path.is_file() or path.is_dir()
        ):  # reading a pipe would wait for ever, a device may have no end
            raise UsageError(f"{path}: not a regular file; put the IDX file itself there, plain or .gz")
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_idx(raw, str(path), rank)


def parse_idx(raw: bytes, name: str, rank: int) -> Idx:
    """Parse the bytes of an IDX file, gzipped or plain; UsageError messages call it `name`."""
    plain = _decompress(raw, name) if raw.startswith(_GZIP_MAGIC) else raw
    begin = plain[:64].lstrip().lower()
    if other := next((words for first, words in _OTHER_FORMATS.items() if begin.startswith(first)), None):
        raise UsageError(f"{name}: not IDX but {other}")
    header = 4 * (1 + rank)
    if len(plain) < header:
        raise UsageError(f"{name}: truncated: {len(plain)} bytes, the header alone needs {header}")
    magic, *shape = (int.from_bytes(plain[start : start + 4], "big") for start in range(0, header, 4))
    wanted = _UNSIGNED_BYTES + rank
    if magic != wanted:
        raise UsageError(f"{name}: {_in_words(magic)}; IDX {_kind(rank)} are {_in_words(wanted)}, write them so")
    expected = header + math.prod(shape)
    sizes = " x ".join(map(str, shape))
    if expected == header:  # also guards NumPy against huge sizes beside a zero
        raise UsageError(f"{name}: empty ({sizes}); it must hold 1 {_kind(rank)[:-1]} or more")
    if len(plain) != expected:
        fault = "truncated" if len(plain) < expected else "trailing bytes"
        raise UsageError(f"{name}: {fault}: {len(plain)} bytes, the header ({sizes}) requires {expected}")
    array = np.frombuffer(plain, np.uint8, offset=header).reshape(shape)
    return Idx(name, array, hashlib.sha256(plain).hexdigest())


def _kind(rank: int) -> str:
    return "images" if rank == IMAGES_RANK else "labels"


def _in_words(magic: int) -> str:
    """What a magic number says: `int32 with 2 axes`; the number itself if it is not IDX's."""
    kind, axes = _TYPES.get(magic >> 8), magic & 0xFF
    return f"{kind} with {axes} {'axis' if axes == 1 else 'axes'}" if kind and axes else f"magic number 0x{magic:08x}"


def _decompress(raw: bytes, name: str) -> bytes:
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{name}: damaged gzip file ({error})") from error
