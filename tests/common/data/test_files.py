"""Files of data, whole and damaged: IDX and npz, and folders of them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from common.data.dataset import Dataset, load_dataset
from common.data.idx import IMAGES_RANK, LABELS_RANK, parse_idx, read_idx
from common.data.idx_folder import (
    MNIST_SHA256,
    RANKS,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    read_idx_folder,
)
from common.errors import UsageError
from tests.common.data.idx_writer import idx_bytes, quartet_arrays, write_files
from tests.seeds import SEED

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
    told = "file: its header declares 7840000000 bytes, 4294967296 at most; use fewer images"
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


def unread(folder: Path) -> str:
    """The one line that refuses the folder, without the folder's own path."""
    with pytest.raises(UsageError) as caught:
        read_idx_folder(folder)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(("gz", "dotted"), [(True, False), (False, True)])
def test_the_usual_names_are_understood(tmp_path: Path, gz: bool, dotted: bool) -> None:
    arrays = quartet_arrays()
    names = {name: name.replace("-idx", ".idx") if dotted else name for name in arrays}
    folder_data = read_idx_folder(write_files(tmp_path, {names[name]: array for name, array in arrays.items()}, gz=gz))
    found = (getattr(folder_data, f"{of}_{what}") for of in ("train", "test") for what in ("images", "labels"))
    for one, name in zip(found, (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS), strict=True):
        np.testing.assert_array_equal(one, arrays[name])
    assert list(folder_data.sha256) == list(RANKS)
    assert not folder_data.is_mnist


def test_mnist_is_known_by_its_bytes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_files(tmp_path / "mnist", quartet_arrays())
    folder_data = read_idx_folder(folder)
    assert not folder_data.is_mnist
    monkeypatch.setattr("common.data.idx_folder.MNIST_SHA256", folder_data.sha256)
    assert read_idx_folder(folder).is_mnist
    monkeypatch.setattr(
        "common.data.idx_folder.MNIST_SHA256", folder_data.sha256 | {TEST_LABELS: MNIST_SHA256[TEST_LABELS]}
    )
    assert not read_idx_folder(folder).is_mnist


def test_a_folder_that_is_not_there_or_is_a_file(tmp_path: Path) -> None:
    absent, file = tmp_path / "absent", tmp_path / "file"
    file.touch()
    way_out = "name a folder that holds the four IDX files"
    assert unread(absent) == f"{absent}: No such file or directory; {way_out}"
    assert unread(file) == f"{file}: Not a directory; {way_out}"


def test_an_empty_folder_and_missing_files(tmp_path: Path) -> None:
    assert unread(tmp_path) == (
        f"{tmp_path}: no train-images-idx3-ubyte, no train-labels-idx1-ubyte, no t10k-images-idx3-ubyte, "
        "no t10k-labels-idx1-ubyte; put the four IDX files there, plain or .gz"
    )
    folder = write_files(tmp_path, {name: array for name, array in ARRAYS.items() if name != TRAIN_LABELS})
    assert unread(folder) == f"{folder}: no train-labels-idx1-ubyte; put the four IDX files there, plain or .gz"


ARRAYS = quartet_arrays(classes=5)


def with_label(name: str, place: int, label: int) -> NDArray[np.uint8]:
    """The labels, one of them changed."""
    labels = ARRAYS[name].copy()
    labels[place] = label
    return labels


@pytest.mark.parametrize(
    ("name", "array", "said"),
    [
        (TEST_LABELS, ARRAYS[TEST_LABELS][:9], "9 labels for the 10 images of t10k-images-idx3-ubyte.gz"),
        (
            TEST_IMAGES,
            quartet_arrays(shape=(3, 4))[TEST_IMAGES],
            "images of 3 x 4 pixels; train-images-idx3-ubyte.gz has 4 x 3",
        ),
        (TEST_IMAGES, np.zeros((0, 4, 3), np.uint8), "empty (0 x 4 x 3); it must hold 1 image or more"),
        (TEST_IMAGES, np.zeros((10, 0, 3), np.uint8), "empty (10 x 0 x 3); it must hold 1 image or more"),
        (TEST_LABELS, with_label(TEST_LABELS, 4, 12), "label 12 out of range: absent from train-labels-idx1-ubyte.gz"),
        (TRAIN_LABELS, np.full(40, 3, np.uint8), "every label is 3; there must be 2 classes or more"),
        (
            TRAIN_LABELS,
            with_label(TRAIN_LABELS, 12, 255),
            "label 255 (first at image 12), but none from 5 to 254; number the classes without gaps",
        ),
    ],
    ids=str,
)
def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, name: str, array: NDArray[np.uint8], said: str) -> None:
    assert unread(write_files(tmp_path, ARRAYS | {name: array})) == f"{name}.gz: {said}"


@pytest.mark.parametrize("first", [1, 200])
def test_the_lowest_label_is_class_0(tmp_path: Path, first: int) -> None:  # EMNIST's letters begin at 1
    arrays = quartet_arrays(classes=5)
    shifted = arrays | {labels: arrays[labels] + np.uint8(first) for labels in (TRAIN_LABELS, TEST_LABELS)}
    folder = write_files(tmp_path, shifted)
    found = read_idx_folder(folder)
    np.testing.assert_array_equal(found.train_labels, arrays[TRAIN_LABELS])
    np.testing.assert_array_equal(found.test_labels, arrays[TEST_LABELS])
    assert found.first_label == first
    loaded = load_dataset(data_dir=folder, seed=0)
    assert loaded.classes == 5
    assert loaded.source == f"--data-dir; labels {first} to {first + 4} are classes 0 to 4"


NAMED_AS_EMNIST = {name: name.replace("t10k", "test") for name in RANKS}


def write_set(folder: Path, begin: str = "") -> dict[str, NDArray[np.uint8]]:
    """A data set whose files' names begin so."""
    arrays = quartet_arrays(train=20 + len(begin))
    write_files(folder, {f"{begin}{NAMED_AS_EMNIST[name]}": array for name, array in arrays.items()})
    return arrays


@pytest.mark.parametrize(("place", "begin"), [("MNIST/raw", ""), ("raw", "emnist-letters-"), (".", "emnist-letters-")])
def test_one_data_set_is_found_under_other_well_known_names(tmp_path: Path, place: str, begin: str) -> None:
    arrays = write_set(tmp_path / place, begin)
    np.testing.assert_array_equal(read_idx_folder(tmp_path).test_images, arrays[TEST_IMAGES])


def test_of_several_data_sets_the_user_names_one(tmp_path: Path) -> None:
    letters = write_set(tmp_path, "emnist-letters-")
    write_set(tmp_path, "emnist-digits-")
    raw = write_set(tmp_path / "KMNIST/raw", "")
    assert unread(tmp_path) == (f"{tmp_path}: holds emnist-digits, emnist-letters, KMNIST/raw; name one: emnist-digits")
    for name, arrays in (("emnist-letters", letters), ("KMNIST/raw", raw)):
        np.testing.assert_array_equal(read_idx_folder(tmp_path / name).train_images, arrays[TRAIN_IMAGES])
    (tmp_path / f"emnist-letters-{NAMED_AS_EMNIST[TEST_LABELS]}.gz").unlink()
    assert unread(tmp_path / "emnist-letters").endswith(
        "emnist-letters: no t10k-labels-idx1-ubyte; put the four IDX files there, plain or .gz"
    )
    plain = write_set(tmp_path)
    np.testing.assert_array_equal(read_idx_folder(tmp_path).train_images, plain[TRAIN_IMAGES])


@pytest.mark.parametrize("beside", [True, False])
def test_a_folder_with_a_files_name_holds_the_file_or_lies_beside_it(tmp_path: Path, beside: bool) -> None:
    arrays = quartet_arrays()
    for name, array in arrays.items():
        dotted = {name.replace("-idx", ".idx"): array}
        write_files(tmp_path / name, dotted, gz=False)
        if beside:
            write_files(tmp_path, dotted, gz=False)
    np.testing.assert_array_equal(read_idx_folder(tmp_path).train_images, arrays[TRAIN_IMAGES])


@pytest.mark.usefixtures("impatient")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    write_files(tmp_path, quartet_arrays(), gz=False)
    (tmp_path / TEST_LABELS).unlink()
    os.mkfifo(tmp_path / TEST_LABELS)
    assert unread(tmp_path) == (f"{TEST_LABELS}: not a regular file; put the IDX file itself there, plain or .gz")


# `.npz` files: what they may hold, what becomes of floats, and what is refused in a line.


RANDOM = np.random.default_rng(SEED)


def loaded(path: Path, **arrays: Any) -> Dataset:
    np.savez_compressed(path, **arrays)
    return load_dataset(data_dir=path, seed=0)


def split(rows: int = 40, *shape: int, classes: int = 3) -> dict[str, Any]:
    labels = np.arange(rows) % classes
    drawn = RANDOM.integers(0, 256, (2, rows, *shape), np.uint8)
    return {"x_train": drawn[0], "y_train": labels, "x_test": drawn[1], "y_test": labels}


def rows_of(images: Any, labels: Any) -> list[tuple[int, ...]]:
    return sorted((int(label), *map(int, row)) for row, label in zip(images, labels, strict=True))


def test_bytes_stay_as_they_are_in_any_shape(tmp_path: Path) -> None:
    for shape, size in (((6,), (1, 6)), ((3, 4), (3, 4)), ((3, 4, 2), (3, 8))):
        given = split(40, *shape)
        found = loaded(tmp_path / "own.npz", **given)
        assert (found.name, found.image_shape, found.classes, found.source) == ("own.npz", size, 3, "--data-dir")
        assert rows_of(found.train.images, found.train.labels) == rows_of(
            given["x_train"].reshape(40, -1), given["y_train"]
        )
        assert np.array_equal(found.test.images, given["x_test"].reshape(40, -1))


def test_each_feature_becomes_bytes_over_its_range_in_training(tmp_path: Path) -> None:
    features = np.array([[-1.0, 5.0, 100.0], [0.0, 5.0, 355.0], [1.0, 5.0, 151.0]] * 4, np.float32)
    tested = np.array([[2.0, 9.0, 0.0]] * 3)
    found = loaded(tmp_path / "own.npz", x_train=features, y_train=[0, 1, 2] * 4, x_test=tested, y_test=[0, 1, 2])
    assert set(rows_of(found.train.images, found.train.labels)) == {(0, 0, 0, 0), (1, 128, 0, 255), (2, 255, 0, 51)}
    assert found.test.images.tolist() == [[255, 255, 0]] * 3  # beyond the range: its end
    assert "float32 features became bytes" in found.source


def test_every_tenth_row_of_a_whole_is_for_testing(tmp_path: Path) -> None:
    found = loaded(tmp_path / "own.npz", x=np.arange(100, dtype=np.uint8)[:, None], y=np.arange(100) % 4)
    assert found.test.images.ravel().tolist() == list(range(9, 100, 10))
    assert sorted(found.train.images.ravel()) == [row for row in range(100) if row % 10 != 9]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x_train": None}, "holds x_test, y_test, y_train; it needs x_train, y_train, x_test, y_test, or x, y"),
        ({"x_train": np.array([[np.nan]] * 40), "x_test": np.ones((40, 1))}, "features are not all finite"),
        ({"x_train": np.array([["a"]] * 40)}, "x_train is <U1 with 2 axes; it must hold rows of numbers"),
        ({"x_train": np.array([[{}]] * 40)}, "cannot be read (Object arrays cannot be loaded"),
        ({"y_train": np.eye(3)[np.arange(40) % 3]}, "labels have shape (40, 3); give one class a row"),
        ({"y_train": np.full(40, 0.5)}, "labels must be whole numbers from 0 to 255"),
        ({"y_train": np.arange(40) - 1}, "labels must be whole numbers from 0 to 255"),
        ({"y_train": np.arange(40) + 250}, "labels must be whole numbers from 0 to 255"),
        ({"y_train": np.arange(39) % 3}, "y_train: 39 labels for the 40 images of"),
        ({"y_train": np.arange(40) % 3 * 2}, "y_train: label 2 (first at image 1), but none from 1 to 1"),
        ({"x_test": np.ones((40, 7), np.uint8)}, "test rows are (7,), training rows (6,)"),
        ({"x_train": np.empty((0, 6), np.uint8)}, "holds no training rows"),
        ({"x_train": np.empty((40, 0), np.uint8), "x_test": np.empty((40, 0), np.uint8)}, "holds no training rows"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    given = {name: array for name, array in (split(40, 6) | changes).items() if array is not None}
    with pytest.raises(UsageError, match=re.escape(said)) as refused:
        loaded(tmp_path / "own.npz", **given)
    assert "\n" not in str(refused.value)


def test_labels_of_another_length_than_the_whole_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="39 labels in y for the 40 rows of x"):
        loaded(tmp_path / "own.npz", x=np.ones((40, 2)), y=np.arange(39) % 2)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    loaded(path, **split(40, 6))
    whole = path.read_bytes()
    damaged = [b"", b"PK\x03\x04", whole[:-1], whole[: len(whole) // 2]]
    entry = whole.index(b"PK\x01\x02")  # of the first file, in the list at the end: its flags say "encrypted"
    damaged.append(whole[: entry + 8] + bytes([whole[entry + 8] | 1]) + whole[entry + 9 :])
    for _ in range(200):
        at = int(RANDOM.integers(len(whole)))
        damaged.append(whole[:at] + bytes([int(RANDOM.integers(256))]) + whole[at + 1 :])
    refused = 0
    for raw in damaged:
        path.write_bytes(raw)
        try:
            load_dataset(data_dir=path, seed=0)
        except UsageError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("shape", [(10**12,), (20, 10**12), (10**18, 8), (-1, 3), (40, 10**6)])
def test_a_header_that_claims_more_than_there_is_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    path = tmp_path / "own.npz"
    np.savez(path, y=np.arange(20) % 2)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(100))
    with pytest.raises(UsageError, match="cannot be read"):
        load_dataset(data_dir=path, seed=0)


def test_a_large_array_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.data.npz.MOST_BYTES", 100)
    monkeypatch.setattr("numpy.load", None)
    with pytest.raises(UsageError, match="use fewer rows"):
        loaded(tmp_path / "own.npz", **split(40, 6))
