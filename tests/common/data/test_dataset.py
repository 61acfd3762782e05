"""Which data a run gets, in which order of search, and that worker processes see the same."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from common.data import dataset as datasets
from common.data import download as downloads
from common.data.dataset import Dataset, load_dataset
from common.data.idx_folder import RANKS, TEST_IMAGES, TEST_LABELS, TRAIN_IMAGES, TRAIN_LABELS
from common.data.synthetic import synthetic_digits
from common.errors import UsageError
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.common.data.mirrors import Mirrors, dead_mirror, pretend_mnist, serve

ARRAYS = quartet_arrays(train=200, test=30, shape=(4, 3), classes=5)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no folder in the environment, no network, and few synthetic digits."""
    monkeypatch.delenv("LADDER_DATA_DIR", raising=False)
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(downloads, "MIRRORS", (dead_mirror(),))
    small = functools.partial(synthetic_digits, train_images=100, test_images=20)
    monkeypatch.setattr(datasets, "synthetic_digits", small)
    return tmp_path / "cache" / "mnist"


@pytest.fixture
def mirrors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirrors]:
    pretend_mnist(monkeypatch, ARRAYS)
    with serve(ARRAYS) as server:
        monkeypatch.setattr(downloads, "MIRRORS", (server.at("good"),))
        yield server


def test_any_quartet_is_named_by_its_folder(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "fashion", ARRAYS)
    data = load_dataset(data_dir=folder, seed=0)
    assert (data.name, data.is_mnist, data.source) == ("fashion", False, "--data-dir")
    assert (data.image_shape, data.classes) == ((4, 3), 5)
    assert data.train.images.shape == (200, 12)
    assert data.test.images.shape == (30, 12)
    assert set(data.sha256) == set(RANKS)
    hidden = write_files(tmp_path / "fashion\x1b[2J\u202e", ARRAYS)
    assert load_dataset(data_dir=hidden, seed=0).name == r"fashion\x1b[2J\u202e"
    np.testing.assert_array_equal(data.test.images, ARRAYS[TEST_IMAGES].reshape(30, 12))
    np.testing.assert_array_equal(data.test.labels, ARRAYS[TEST_LABELS])


def test_training_images_are_permuted_by_the_seed_with_their_labels(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "own", ARRAYS)
    first, again, other = (load_dataset(data_dir=folder, seed=seed).train for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.images, again.images)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert not np.array_equal(first.images, other.images)
    original = ARRAYS[TRAIN_IMAGES].reshape(200, 12)
    label_of = {row.tobytes(): label for row, label in zip(original, ARRAYS[TRAIN_LABELS], strict=True)}
    assert len(label_of) == 200
    for split in (first, other):
        assert {row.tobytes() for row in split.images} == set(label_of)
        assert [label_of[row.tobytes()] for row in split.images] == split.labels.tolist()
        assert not np.array_equal(split.images, original)


def test_pixels_are_exact_in_half_precision_too(tmp_path: Path) -> None:
    split = load_dataset(data_dir=write_files(tmp_path / "own", ARRAYS), seed=0).train
    pixels = split.pixels()
    assert pixels.dtype == np.float32
    np.testing.assert_array_equal(pixels * 256, split.images)
    few = split.first(7)
    assert (few.images.shape, few.labels.shape) == ((7, 12), (7,))
    assert np.shares_memory(few.images, split.images)
    assert np.shares_memory(few.labels, split.labels)
    np.testing.assert_array_equal(pixels.astype(np.float16).astype(np.float32), pixels)
    # bfloat16 is the upper half of a float32: exact means that the lower half is zero.
    assert not (pixels.view(np.uint32) & 0xFFFF).any()


def test_the_search_order(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors) -> None:
    asked = write_files(tmp_path / "asked", quartet_arrays())
    environment = write_files(tmp_path / "environment", quartet_arrays())
    monkeypatch.setenv("LADDER_DATA_DIR", str(environment))

    def found(data_dir: Path | None) -> tuple[str, bool, str]:
        data = load_dataset(data_dir=data_dir, seed=0)
        return data.name, data.is_mnist, data.source

    assert found(asked) == ("asked", False, "--data-dir")
    assert found(None) == ("environment", False, "$LADDER_DATA_DIR")
    assert mirrors.requests == []
    monkeypatch.setenv("LADDER_DATA_DIR", "")
    assert found(None) == ("MNIST", True, "download")
    requests = len(mirrors.requests)
    assert found(None) == ("MNIST", True, "cache")
    assert len(mirrors.requests) == requests
    assert found(cache) == ("MNIST", True, "--data-dir")


def test_a_damaged_cache_is_mended(cache: Path, mirrors: Mirrors) -> None:
    load_dataset(data_dir=None, seed=0)
    (cache / f"{TRAIN_IMAGES}.gz").write_bytes(b"\x1f\x8bhalf a file")
    mirrors.requests.clear()
    data = load_dataset(data_dir=None, seed=0)
    assert (data.is_mnist, data.source) == (True, "download")
    assert mirrors.requests == [f"good/{TRAIN_IMAGES}.gz"]
    assert load_dataset(data_dir=None, seed=0).source == "cache"


def test_a_damaged_cache_without_a_network_means_synthetic_digits(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_mnist(monkeypatch, ARRAYS)
    write_files(cache, ARRAYS)
    (cache / f"{TEST_LABELS}.gz").write_bytes(b"")
    assert load_dataset(data_dir=None, seed=0).name == "synthetic digits"


def test_synthetic_digits_where_nothing_can_be_had() -> None:
    data, again, other = (load_dataset(data_dir=None, seed=seed) for seed in (0, 0, 1))
    assert (data.name, data.is_mnist) == ("synthetic digits", False)
    assert data.source == "drawn by seed 0; no MNIST: 127.0.0.1: Connection refused"
    assert (data.image_shape, data.classes) == ((28, 28), 10)
    assert data.sha256 == again.sha256
    assert set(data.sha256) == set(RANKS)
    assert all(data.sha256[name] != other.sha256[name] for name in RANKS)


@pytest.mark.parametrize(
    ("asked_by", "fault"),
    [("--data-dir", "absent"), ("$LADDER_DATA_DIR", "empty"), ("$LADDER_DATA_DIR", "half a file")],
)
def test_a_folder_that_was_asked_for_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors, asked_by: str, fault: str
) -> None:
    folder = tmp_path / "mnist"
    if fault != "absent":
        folder.mkdir()
    if fault == "half a file":
        write_files(folder, ARRAYS)
        path = folder / f"{TRAIN_IMAGES}.gz"
        path.write_bytes(path.read_bytes()[:500])
    if asked_by == "$LADDER_DATA_DIR":
        monkeypatch.setenv("LADDER_DATA_DIR", str(folder))
    with pytest.raises(UsageError) as caught:
        load_dataset(data_dir=folder if asked_by == "--data-dir" else None, seed=0)
    assert str(caught.value).startswith(str(folder))
    assert "\n" not in str(caught.value)
    assert mirrors.requests == []


def test_save_and_load(tmp_path: Path) -> None:
    data = load_dataset(data_dir=write_files(tmp_path / "own", ARRAYS), seed=0)
    data.save(tmp_path / "run" / "data")
    same = Dataset.load_saved(tmp_path / "run" / "data")
    for key in ("name", "is_mnist", "source", "sha256", "image_shape", "classes"):
        assert getattr(same, key) == getattr(data, key)
    for split, saved in ((data.train, same.train), (data.test, same.test)):
        np.testing.assert_array_equal(saved.images, split.images)
        np.testing.assert_array_equal(saved.labels, split.labels)
        assert saved.images.dtype == saved.labels.dtype == np.uint8
        assert not saved.images.flags.writeable
        np.testing.assert_array_equal(saved.pixels(), split.pixels())


def test_test_images_are_withheld_from_who_does_not_validate(tmp_path: Path) -> None:
    data = load_dataset(data_dir=write_files(tmp_path / "own", ARRAYS), seed=0)
    data.save(tmp_path)
    seen = Dataset.load_saved(tmp_path, with_test=False)
    np.testing.assert_array_equal(seen.train.images, data.train.images)
    assert (seen.test.images.shape, seen.test.labels.shape) == ((0, data.test.images.shape[1]), (0,))


def test_a_saved_data_set_of_full_size_is_mapped_not_read(tmp_path: Path) -> None:
    images = np.zeros((60_000, 784), np.uint8)
    split = datasets.Split(images, np.zeros(60_000, np.uint8))
    Dataset("zeros", False, "a test", {}, (28, 28), 10, split, split).save(tmp_path)
    data = Dataset.load_saved(tmp_path)
    assert isinstance(data.train.images, np.memmap)
    assert isinstance(data.test.labels, np.memmap)
