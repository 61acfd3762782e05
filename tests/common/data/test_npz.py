"""`.npz` files: what they may hold, what becomes of floats, and what is refused in a line."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.data.dataset import Dataset, load_dataset
from common.errors import UsageError
from tests.seeds import SEED

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
