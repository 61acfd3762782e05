"""The four IDX files of a data set in one folder, checked against each other."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.data.idx import IMAGES_RANK, LABELS_RANK, Idx, read_idx
from common.errors import UsageError

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"
TEST_IMAGES = "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"
RANKS = {TRAIN_IMAGES: IMAGES_RANK, TRAIN_LABELS: LABELS_RANK, TEST_IMAGES: IMAGES_RANK, TEST_LABELS: LABELS_RANK}
# Names may begin with a data set's, as EMNIST's and QMNIST's do, and have a dot, as some archives write them.
NAME = re.compile(r"(?:(.+)-)?((?:train|test|t10k)-(?:images|labels))[-.]idx\d-\w+(?:\.gz)?")
USUAL = {name.partition("-idx")[0]: name for name in RANKS}
USUAL |= {name.replace("t10k", "test"): usual for name, usual in USUAL.items()}
RAW = ("raw", "*/raw")  # where torchvision keeps its files: ROOT/MNIST/raw

# Of the decompressed files: mirrors compress differently.
MNIST_SHA256 = {
    TRAIN_IMAGES: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    TRAIN_LABELS: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    TEST_IMAGES: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    TEST_LABELS: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


@dataclass(frozen=True)
class IdxFolder:
    """Matching images (N, H, W) and labels (N,), uint8, for training and testing; the lowest label is 0."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]
    sha256: dict[str, str]  # of the decompressed files, by their usual names
    first_label: int = 0  # in the files, of class 0

    @property
    def is_mnist(self) -> bool:
        """Whether the bytes are MNIST's."""
        return self.sha256 == MNIST_SHA256


def read_idx_folder(folder: Path) -> IdxFolder:
    """Read and check a folder's four files; UsageError names the file and the reason.

    A path `FOLDER/emnist-letters` that is no folder stands for the files in FOLDER whose names begin so.
    """
    paths = _find_files(folder)
    missing = [name for name in RANKS if name not in paths]
    if missing:
        raise UsageError(f"{folder}: no {', no '.join(missing)}; put the four IDX files there, plain or .gz")
    return join({name: read_idx(paths[name], rank) for name, rank in RANKS.items()})


def _find_files(folder: Path) -> dict[str, Path]:
    """The path of each file, by its usual name; UsageError where there are several data sets to choose from."""
    try:
        name = Path() if folder.exists() else Path(folder.name)
        found = _data_sets(folder if name == Path() else folder.parent)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; name a folder that holds the four IDX files") from error
    if name != Path() and name not in found:
        raise UsageError(f"{folder}: No such file or directory; name a folder that holds the four IDX files")
    whole = [one for one, files in found.items() if len(files) == len(RANKS)]
    if name != Path() or name in whole or not whole:
        return found.get(name, {})
    if len(whole) > 1:
        raise UsageError(f"{folder}: holds {', '.join(map(str, whole))}; name one: {folder / whole[0]}")
    return found[whole[0]]


def _data_sets(folder: Path) -> dict[Path, dict[str, Path]]:
    """The files of each data set, by the beginning of their path below `folder`: `.`, `emnist-letters`, `MNIST/raw`.

    Prefers plain files to .gz, and `-idx3-ubyte` to `.idx3-ubyte`. Some archive tools make a folder with the name of
    each file, which is in it or beside it.
    """
    found: dict[Path, dict[str, Path]] = {}
    for place in (folder, *(raw for pattern in RAW for raw in sorted(folder.glob(pattern)) if raw.is_dir())):
        named = [path for path in place.iterdir() if NAME.fullmatch(path.name)]
        files = [path for path in named if not path.is_dir()]
        files += (file for path in named if path.is_dir() for file in path.iterdir() if not file.is_dir())
        for file in sorted(files, key=lambda file: (file.parent != place, file.suffix == ".gz", ".idx" in file.name)):
            if match := NAME.fullmatch(file.name):
                data_set = (place / (match[1] or "")).relative_to(folder)
                found.setdefault(data_set, {}).setdefault(USUAL[match[2]], file)
    return found


def join(files: dict[str, Idx]) -> IdxFolder:
    """Combine the four files, given by their usual names; UsageError names a file that does not match the others."""
    train_images, train_labels = files[TRAIN_IMAGES], files[TRAIN_LABELS]
    test_images, test_labels = files[TEST_IMAGES], files[TEST_LABELS]
    for images, labels in ((train_images, train_labels), (test_images, test_labels)):
        count, wanted = len(labels.array), len(images.array)
        if count != wanted:
            raise UsageError(f"{labels.name}: {count} labels for the {wanted} images of {images.name}")
    train_size, test_size = _sizes(train_images.array.shape[1:]), _sizes(test_images.array.shape[1:])
    if test_size != train_size:
        raise UsageError(f"{test_images.name}: images of {test_size} pixels; {train_images.name} has {train_size}")
    first = _check_labels(train_labels, test_labels)
    return IdxFolder(
        train_images=train_images.array,
        train_labels=train_labels.array - first,
        test_images=test_images.array,
        test_labels=test_labels.array - first,
        sha256={name: files[name].sha256 for name in RANKS},
        first_label=int(first),
    )


def _check_labels(train: Idx, test: Idx) -> np.uint8:
    """The lowest label; UsageError unless all labels from it to the highest are taught."""
    taught = np.unique(train.array)
    if len(taught) < 2:
        raise UsageError(f"{train.name}: every label is {taught[0]}; there must be 2 classes or more")
    gap = int(np.argmax(np.diff(taught.astype(int)) > 1))
    before, after = int(taught[gap]), int(taught[gap + 1])
    if after > before + 1:  # each label below the highest is a class: one damaged byte would make 256 of them
        image = int(np.argmax(train.array == after))
        raise UsageError(
            f"{train.name}: label {after} (first at image {image}), but none from {before + 1} to {after - 1}; "
            "number the classes without gaps"
        )
    unseen = np.setdiff1d(test.array, taught)
    if len(unseen):
        raise UsageError(f"{test.name}: label {unseen[0]} out of range: absent from {train.name}")
    lowest: np.uint8 = taught[0]
    return lowest


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
