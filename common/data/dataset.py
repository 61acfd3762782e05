"""The training and test images: the user's IDX files or `.npz`, else MNIST, else synthetic digits.

Training images are shuffled once, by the seed, when loaded. A batch is then a contiguous slice: every stage sees the
same images in the same order, and none pays for gathering them.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from common.arrays import LOADING, fitted, write_arrays
from common.cache import at_home, cache_folder
from common.data.idx_folder import (
    RANKS,
    TEST_IMAGES,
    TEST_LABELS,
    TRAIN_IMAGES,
    TRAIN_LABELS,
    IdxFolder,
    join,
    read_idx_folder,
)
from common.data.npz import SUFFIX, read_npz
from common.data.synthetic import synthetic_digits
from common.files import atomic_write
from common.streams import visible

if TYPE_CHECKING:
    from common.data.download import Progress

SYNTHETIC = "synthetic digits"


@dataclass(frozen=True)
class Split:
    """Images and their labels."""

    images: NDArray[np.uint8]  # (N, I), one row an image
    labels: NDArray[np.uint8]  # (N,)

    def pixels(self) -> NDArray[np.float32]:
        """The images as float32 from 0 to 255/256, (N, I).

        Division by 256, not 255, makes each pixel exact in float32, float16 and bfloat16: all precisions start from
        the same inputs.
        """
        return self.images * np.float32(1 / 256)

    def padded(self, inputs: int) -> Split:
        """The images (N, I) with zeros behind, up to so many pixels."""
        return Split(fitted(self.images, (len(self.images), inputs)), self.labels)

    def first(self, count: int) -> Split:
        """The first `count` images, as a view."""
        return Split(self.images[:count], self.labels[:count])


@dataclass(frozen=True)
class Dataset:
    """A run's images and their origin."""

    name: str  # `MNIST`, `synthetic digits`, or the name of the user's folder
    is_mnist: bool  # decided by the bytes, not by names
    source: str  # recorded origin: `--data-dir`, `cache`, `drawn by seed 0`, ...
    sha256: dict[str, str]  # by file name: of the decompressed file, or of the drawn array
    image_shape: tuple[int, int]  # height and width in pixels
    classes: int  # labels are 0 to classes - 1
    train: Split  # shuffled
    test: Split

    def first(self, train: int, test: int) -> Dataset:
        """The first `train` and `test` images of each split at most, as views."""
        return replace(self, train=self.train.first(train), test=self.test.first(test))

    def save(self, folder: Path) -> None:
        """Write the data set to a folder, read-only, from which other processes map it with `load_saved`.

        Raises OSError, which names the file.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self._arrays().items():
            file = folder / f"{name}.npy"
            file.unlink(missing_ok=True)
            write_arrays(file, array)
            file.chmod(0o444)  # it is shared: a process that writes to it would change the data of all
        atomic_write(folder / "dataset.json", self._about())

    def is_saved(self, folder: Path) -> bool:
        """Whether the folder holds exactly these data."""
        try:
            same = (np.array_equal(np.load(folder / f"{name}.npy", "r"), held) for name, held in self._arrays().items())
            return all(same) and (folder / "dataset.json").read_text(encoding="utf-8") == self._about()
        except (OSError, ValueError):
            return False

    @property
    def nbytes(self) -> int:
        """Bytes of all images and labels."""
        return sum(array.nbytes for array in self._arrays().values())

    def _arrays(self) -> dict[str, NDArray[np.uint8]]:
        train, test = self.train, self.test
        return {
            "train_images": train.images,
            "train_labels": train.labels,
            "test_images": test.images,
            "test_labels": test.labels,
        }

    def _about(self) -> str:
        return json.dumps(
            {key: getattr(self, key) for key in ("name", "is_mnist", "source", "sha256", "image_shape", "classes")}
        )

    @classmethod
    def load_saved(cls, folder: Path, *, with_test: bool = True) -> Dataset:
        """Map a folder written by `save`, read-only. Images are read on first use, so processes start fast.

        A stage's process that validates nothing does not get the test images: then there are none.
        """
        about = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
        about["image_shape"] = tuple(about["image_shape"])

        def split(name: str) -> Split:
            with LOADING:
                images, labels = (np.load(folder / f"{name}_{of}.npy", mmap_mode="r") for of in ("images", "labels"))
            return Split(images, labels)

        train = split("train")
        none = Split(np.empty((0, train.images.shape[1]), np.uint8), np.empty(0, np.uint8))
        return cls(**about, train=train, test=split("test") if with_test else none)


def load_dataset(*, data_dir: Path | None, seed: int, progress: Progress | None = None) -> Dataset:
    """Load the user's files if given, else MNIST from the cache or a download, else draw synthetic digits.

    A folder from `data_dir` or `$LADDER_DATA_DIR` is never replaced: it loads, or a UsageError says why not.
    """
    from common.data.download import DownloadError  # imported here: stages' processes read a dataset and never download

    from_environment = os.environ.get("LADDER_DATA_DIR")
    if data_dir is not None:
        return _user_files(data_dir, "--data-dir", seed)
    if from_environment:
        return _user_files(at_home(from_environment, "$LADDER_DATA_DIR"), "$LADDER_DATA_DIR", seed)
    try:
        folder_data, source = _mnist(progress)
    except DownloadError as error:
        return _dataset(_draw(seed), SYNTHETIC, f"drawn by seed {seed}; no MNIST: {error}", seed)
    return _dataset(folder_data, "MNIST", source, seed)


def _user_files(folder: Path, source: str, seed: int) -> Dataset:
    if folder.suffix == SUFFIX:
        folder_data, changed = read_npz(folder)
        source += f"; {changed}" * bool(changed)
    else:
        folder_data = read_idx_folder(folder)
    if first := folder_data.first_label:
        classes = int(folder_data.train_labels.max())
        source += f"; labels {first} to {first + classes} are classes 0 to {classes}"
    return _dataset(folder_data, "MNIST" if folder_data.is_mnist else visible(folder.resolve().name), source, seed)


def _mnist(progress: Progress | None) -> tuple[IdxFolder, str]:
    """MNIST, and `cache` or `download`."""
    from common.data.download import download, read_cache

    folder = cache_folder("mnist")
    files = read_cache(folder)
    missing = [name for name in RANKS if name not in files]
    return join(files | download(missing, folder, progress)), "download" if missing else "cache"


def _draw(seed: int) -> IdxFolder:
    (train_images, train_labels), (test_images, test_labels) = synthetic_digits(seed)
    drawn = {TRAIN_IMAGES: train_images, TRAIN_LABELS: train_labels, TEST_IMAGES: test_images, TEST_LABELS: test_labels}
    sha256 = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in drawn.items()}
    return IdxFolder(train_images, train_labels, test_images, test_labels, sha256)


def _dataset(folder_data: IdxFolder, name: str, source: str, seed: int) -> Dataset:
    count, height, width = folder_data.train_images.shape
    # A separate random stream: the seed alone gives the stream of run 0's parameters.
    order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,))).permutation(count)
    return Dataset(
        name=name,
        is_mnist=folder_data.is_mnist,
        source=source,
        sha256=folder_data.sha256,
        image_shape=(height, width),
        classes=int(folder_data.train_labels.max()) + 1,
        train=Split(folder_data.train_images.reshape(count, -1)[order], folder_data.train_labels[order]),
        test=Split(folder_data.test_images.reshape(len(folder_data.test_images), -1), folder_data.test_labels),
    )
