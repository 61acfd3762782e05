"""IDX files that are read, and every kind of damage that is refused in one line."""

from __future__ import annotations

import gzip
import hashlib
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from common.data.idx import IMAGES_RANK, LABELS_RANK, parse_idx, read_idx
from common.errors import UsageError
from tests.common.data.idx_writer import idx_bytes

IMAGES = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
LABELS = np.array([3, 1, 4, 1, 5], np.uint8)


def reason(raw: bytes, rank: int = IMAGES_RANK) -> str:
    with pytest.raises(UsageError) as caught:
        parse_idx(raw, "file", rank)
    return str(caught.value)


@pytest.mark.parametrize(("name", "gz"), [("data", True), ("data.gz", False), ("data.gz", True), ("data", False)])
@pytest.mark.parametrize(("array", "rank"), [(IMAGES, IMAGES_RANK), (LABELS, LABELS_RANK)])
def test_reads_gzip_and_plain_whatever_the_name(
    tmp_path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], rank: int, gz: bool, name: str
) -> None:
    raw = idx_bytes(array)
    path = tmp_path / name
    path.write_bytes(gzip.compress(raw) if gz else raw)
    idx = read_idx(path, rank)
    assert idx.array.dtype == np.uint8
    np.testing.assert_array_equal(idx.array, array)
    assert idx.sha256 == hashlib.sha256(raw).hexdigest()


def test_a_written_file_is_the_published_format() -> None:
    assert idx_bytes(LABELS) == bytes([0, 0, 8, 1, 0, 0, 0, 5, 3, 1, 4, 1, 5])


@pytest.mark.parametrize("gz", [True, False])
def test_a_file_cut_anywhere_is_refused_and_nothing_else_is_raised(gz: bool) -> None:
    images = np.random.default_rng(0).integers(256, size=(20, 7, 5), dtype=np.uint8)
    raw = idx_bytes(images)
    whole = gzip.compress(raw) if gz else raw
    cuts = {*range(20), *range(20, len(whole), len(whole) // 30), *range(len(whole) - 9, len(whole))}
    assert len(cuts) > 50
    for cut in sorted(cuts):
        line = reason(whole[:cut])
        assert line.startswith("file: ")
        assert "\n" not in line


def test_a_gzip_file_with_any_byte_changed_is_refused_or_reads_the_same() -> None:
    whole = gzip.compress(idx_bytes(IMAGES))
    refused = 0
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        try:
            np.testing.assert_array_equal(parse_idx(bytes(damaged), "file", IMAGES_RANK).array, IMAGES)
        except UsageError:
            refused += 1
    assert refused > len(whole) - 10  # all but the header's time stamp, flags and system byte


def test_damaged_gzip() -> None:
    whole = bytearray(gzip.compress(idx_bytes(IMAGES)))
    whole[-8] ^= 1  # the checksum
    assert reason(bytes(whole)).startswith("file: damaged gzip file (CRC check failed")
    assert reason(bytes(whole[:-20])) == (
        "file: damaged gzip file (Compressed file ended before the end-of-stream marker was reached)"
    )


def test_a_header_that_claims_gigabytes_allocates_none() -> None:
    raw = struct.pack(">4I", 0x803, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF) + bytes(100)
    tracemalloc.start()
    try:
        line = reason(raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert line.startswith("file: truncated: 116 bytes, the header (4294967295 x 4294967295 x 4294967295) requires ")
    assert peak < 1_000_000


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent: cannot be read \(No such file or directory\)$"):
        read_idx(tmp_path / "absent", LABELS_RANK)
    with pytest.raises(UsageError, match=r"cannot be read \(Is a directory\)$"):
        read_idx(tmp_path, LABELS_RANK)


def test_a_packed_file_is_unpacked_as_far_as_its_header_tells() -> None:
    bomb = gzip.compress(idx_bytes(IMAGES) + bytes(64 << 20), 1)
    tracemalloc.start()
    try:
        assert reason(bomb) == "file: trailing bytes, the header (5 x 4 x 3) requires 76"
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_packed_file_whose_header_tells_of_too_much_is_not_unpacked() -> None:
    raw = bytes.fromhex("00000803 00989680 0000001c 0000001c") + bytes(1 << 20)
    told = "file: its header tells of 7840000000 bytes, 4294967296 at most; use fewer images"
    assert reason(gzip.compress(raw)) == told


WANTED = "; IDX images are uint8 with 3 axes, write them so"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (idx_bytes(IMAGES)[:-1], "truncated: 75 bytes, the header (5 x 4 x 3) requires 76"),
        (b"\x00\x00\x08\x03\x00", "truncated: 5 bytes, the header alone needs 16"),
        (b"", "truncated: 0 bytes, the header alone needs 16"),
        (idx_bytes(IMAGES) + b"x", "trailing bytes, the header (5 x 4 x 3) requires 76"),
        (struct.pack(">4I", 0x803, 0, 28, 28), "empty (0 x 28 x 28); it must hold 1 image or more"),
        (
            struct.pack(">4I", 0x803, 2922297295, 4250808064, 0),
            "empty (2922297295 x 4250808064 x 0); it must hold 1 image or more",
        ),
        (idx_bytes(np.zeros(20, np.uint8)), f"uint8 with 1 axis{WANTED}"),
        (struct.pack(">I", 0xC02) + bytes(100), f"int32 with 2 axes{WANTED}"),
        (struct.pack(">I", 0xD03) + bytes(100), f"float32 with 3 axes{WANTED}"),
        (struct.pack(">I", 0x3080000) + bytes(100), f"magic number 0x03080000{WANTED}"),
        (b"\n<!DOCTYPE html><html>", "not IDX but an HTML page: its address has moved or wants a login"),
        (b"<HTML>", "not IDX but an HTML page: its address has moved or wants a login"),
        (b"<?xml version='1.0'?><Error>", "not IDX but an XML page: its address has moved or wants a login"),
        (b"version https://git-lfs.github.com/", "not IDX but a Git LFS pointer; `git lfs pull` fetches the file"),
        (b"PK\x03\x04" + bytes(100), "not IDX but a ZIP archive; unpack it"),
        (b"\x93NUMPY\x01\x00" + bytes(100), "not IDX but a NumPy file; write it as IDX"),
        (gzip.compress(gzip.compress(b"x", mtime=0), mtime=0), "not IDX but gzipped twice; unpack it once"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_is_no_image_file_is_told_in_words(raw: bytes, said: str) -> None:
    assert reason(raw) == f"file: {said}"
    labels = "file: uint8 with 3 axes; IDX labels are uint8 with 1 axis, write them so"
    assert reason(idx_bytes(IMAGES), LABELS_RANK) == labels
