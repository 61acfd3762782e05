"""Folders of four IDX files: the names that are understood, and the files that do not fit each other."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from common.data.dataset import load_dataset
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
from tests.common.data.idx_writer import quartet_arrays, write_files


def reason(folder: Path) -> str:
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
    assert reason(absent) == f"{absent}: No such file or directory; {way_out}"
    assert reason(file) == f"{file}: Not a directory; {way_out}"


def test_an_empty_folder_and_missing_files(tmp_path: Path) -> None:
    assert reason(tmp_path) == (
        f"{tmp_path}: no train-images-idx3-ubyte, no train-labels-idx1-ubyte, no t10k-images-idx3-ubyte, "
        "no t10k-labels-idx1-ubyte; put the four IDX files there, plain or .gz"
    )
    folder = write_files(tmp_path, {name: array for name, array in ARRAYS.items() if name != TRAIN_LABELS})
    assert reason(folder) == f"{folder}: no train-labels-idx1-ubyte; put the four IDX files there, plain or .gz"


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
    assert reason(write_files(tmp_path, ARRAYS | {name: array})) == f"{name}.gz: {said}"


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
    assert reason(tmp_path) == (f"{tmp_path}: holds emnist-digits, emnist-letters, KMNIST/raw; name one: emnist-digits")
    for name, arrays in (("emnist-letters", letters), ("KMNIST/raw", raw)):
        np.testing.assert_array_equal(read_idx_folder(tmp_path / name).train_images, arrays[TRAIN_IMAGES])
    (tmp_path / f"emnist-letters-{NAMED_AS_EMNIST[TEST_LABELS]}.gz").unlink()
    assert reason(tmp_path / "emnist-letters").endswith(
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
    assert reason(tmp_path) == (f"{TEST_LABELS}: not a regular file; put the IDX file itself there, plain or .gz")
