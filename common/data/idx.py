"""Reader for IDX, the file format of MNIST: a big-endian header, then the array's bytes.

The header is a magic number, 0x0000 08 rr for unsigned bytes of rank rr, then each axis's size as a 32-bit integer
(Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits"). Sizes are checked against the file's
length before any array exists.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.errors import UsageError
from common.files import is_endless

IMAGES_RANK = 3  # (N, H, W), magic 0x00000803
LABELS_RANK = 1  # (N,), magic 0x00000801
MOST_BYTES = 4 << 30  # of a file, unpacked: images are held in memory, in several processes

_GZIP_MAGIC = b"\x1f\x8b"
_TELLING = 64  # bytes, by which a file of another format is known
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
        if is_endless(path):
            raise UsageError(f"{path}: not a regular file; put the IDX file itself there, plain or .gz")
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path}: more than {MOST_BYTES >> 30} GiB; use fewer images")
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_idx(raw, str(path), rank)


def parse_idx(raw: bytes, name: str, rank: int) -> Idx:
    """Parse the bytes of an IDX file, gzipped or plain; UsageError messages call it `name`."""
    plain = _decompress(raw, name, rank) if raw.startswith(_GZIP_MAGIC) else raw
    begin = plain[:_TELLING].lstrip().lower()
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
        fault = f"truncated: {len(plain)} bytes" if len(plain) < expected else "trailing bytes"
        raise UsageError(f"{name}: {fault}, the header ({sizes}) requires {expected}")
    array = np.frombuffer(plain, np.uint8, offset=header).reshape(shape)
    return Idx(name, array, hashlib.sha256(plain).hexdigest())


def _kind(rank: int) -> str:
    return "images" if rank == IMAGES_RANK else "labels"


def _in_words(magic: int) -> str:
    """What a magic number says: `int32 with 2 axes`; the number itself if it is not IDX's."""
    kind, axes = _TYPES.get(magic >> 8), magic & 0xFF
    return f"{kind} with {axes} {'axis' if axes == 1 else 'axes'}" if kind and axes else f"magic number 0x{magic:08x}"


def _decompress(raw: bytes, name: str, rank: int) -> bytes:
    """As many bytes as the header declares, and one more if there is one; a small file may have billions of them."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            header = file.read(4 * (1 + rank))
            sizes = [int.from_bytes(header[start : start + 4], "big") for start in range(4, len(header), 4)]
            wanted = math.prod(sizes) if header.startswith((_UNSIGNED_BYTES + rank).to_bytes(4)) else 0
            if wanted > MOST_BYTES:
                raise UsageError(f"{name}: its header declares {wanted} bytes, {MOST_BYTES} at most; use fewer images")
            return header + file.read(max(wanted + 1, _TELLING))
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{name}: damaged gzip file ({error})") from error
