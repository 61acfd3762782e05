"""Reader of `.npz`: rows and their classes, as NumPy's `savez` writes them, into the bytes that all stages train on.

Keys are `x_train`, `y_train`, `x_test` and `y_test`, as in Keras's archives, or `x` and `y`, of which every tenth row
is for testing. Bytes stay as they are. Other numbers become bytes, each feature from its smallest training value, 0, to
its largest, 255: so all stages and float64 train on the same rows, and every precision has them exactly.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.data.idx import MOST_BYTES, Idx
from common.data.idx_folder import TEST_IMAGES, TEST_LABELS, TRAIN_IMAGES, TRAIN_LABELS, IdxFolder, join
from common.errors import UsageError
from common.files import is_endless

SUFFIX = ".npz"
SPLIT = ("x_train", "y_train", "x_test", "y_test")
WHOLE = ("x", "y")
TESTED = 10  # every tenth row of a whole
MOST_CLASSES = 256
# A header may claim more numbers than the file has, or than there is memory; a file with a password is a RuntimeError,
# as is a compression that Python does not know.
UNREADABLE = (
    OSError, EOFError, ValueError, SyntaxError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
Array = NDArray[np.generic]


def read_npz(path: Path) -> tuple[IdxFolder, str]:
    """The rows as images (N, H, W), and how their features became bytes, empty if they were.

    Raises UsageError with the reason for a file that cannot be used.
    """
    arrays = _arrays(path)
    if WHOLE[0] in arrays:
        tested = np.arange(len(arrays["x"])) % TESTED == TESTED - 1
        if len(arrays["x"]) != len(arrays["y"]):
            raise UsageError(f"{path}: {len(arrays['y'])} labels in y for the {len(arrays['x'])} rows of x")
        parts = [arrays[name][rows] for rows in (~tested, tested) for name in WHOLE]
    else:
        parts = [arrays[name] for name in SPLIT]
    train, labels, test, test_labels = parts
    for name, rows in (("training", train), ("test", test)):
        if not len(rows) or rows[0].size == 0:
            raise UsageError(f"{path}: holds no {name} rows; give ten or more")
    if train.shape[1:] != test.shape[1:]:
        raise UsageError(
            f"{path}: test rows are {test.shape[1:]}, training rows {train.shape[1:]}; give both one shape"
        )
    (train, test), told = _as_bytes(path, train, test)
    files = {
        TRAIN_IMAGES: _images(train), TRAIN_LABELS: _classes(path, labels),
        TEST_IMAGES: _images(test), TEST_LABELS: _classes(path, test_labels),
    }  # fmt: skip
    named = {
        name: Idx(f"{path}: {key}", array, _sha256(array))
        for (name, array), key in zip(files.items(), SPLIT, strict=True)
    }
    return join(named), told


def _arrays(path: Path) -> dict[str, Array]:
    """The arrays of one set of keys; nothing is unpickled, and none is larger than the memory that images may take."""
    try:
        if is_endless(path):
            raise UsageError(f"{path}: not a regular file; name the .npz itself")
        with zipfile.ZipFile(path) as archive:
            sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
        names = next((names for names in (SPLIT, WHOLE) if set(names) <= sizes.keys()), None)
        if names is None:
            raise UsageError(
                f"{path}: holds {', '.join(sorted(sizes)) or 'nothing'}; it needs {', '.join(SPLIT)}, or x, y"
            )
        if sum(sizes[name] for name in names) > MOST_BYTES:
            raise UsageError(f"{path}: more than {MOST_BYTES >> 30} GiB; use fewer rows")
        with np.load(path, allow_pickle=False) as archive:
            found = {name: np.asarray(archive[name]) for name in names}
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        raise UsageError(f"{path}: cannot be read ({reason}); write it by numpy.savez") from error
    for name, array in found.items():
        if array.ndim < 1 or array.dtype.kind not in "buif" or array.dtype.hasobject:
            raise UsageError(f"{path}: {name} is {array.dtype} with {array.ndim} axes; it must hold rows of numbers")
    return found


def _as_bytes(path: Path, train: Array, test: Array) -> tuple[tuple[NDArray[np.uint8], NDArray[np.uint8]], str]:
    """Both parts as bytes, and a sentence if that took a change."""
    if train.dtype == test.dtype == np.uint8:
        return (train.astype(np.uint8, copy=False), test.astype(np.uint8, copy=False)), ""
    numbers = [part.reshape(len(part), -1).astype(np.float64) for part in (train, test)]
    if not all(np.isfinite(part).all() for part in numbers):
        raise UsageError(f"{path}: features are not all finite; fill or leave out what is missing")
    lowest = numbers[0].min(0)
    ranges = numbers[0].max(0) - lowest
    scale = 255 / np.where(ranges > 0, ranges, 1.0)
    first, second = (np.rint(np.clip((part - lowest) * scale, 0, 255)).astype(np.uint8) for part in numbers)
    told = f"{train.dtype} features became bytes, each from its smallest to its largest training value"
    return (first.reshape(train.shape), second.reshape(test.shape)), told


def _images(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of any shape as images (N, H, W): flat features are one line, colours stand side by side."""
    if rows.ndim == 3:
        return rows
    return rows.reshape(len(rows), 1 if rows.ndim < 4 else rows.shape[1], -1)


def _classes(path: Path, labels: Array) -> NDArray[np.uint8]:
    """Whole numbers from 0 to 255, (N,)."""
    flat = labels.reshape(-1)
    if labels.size != len(labels):
        raise UsageError(f"{path}: labels have shape {labels.shape}; give one class a row, not one of each kind")
    whole = flat.astype(np.int64) if flat.dtype.kind in "bui" or np.isfinite(flat.astype(float)).all() else None
    if whole is None or (whole != flat).any() or whole.min(initial=0) < 0 or whole.max(initial=0) >= MOST_CLASSES:
        raise UsageError(f"{path}: labels must be whole numbers from 0 to {MOST_CLASSES - 1}")
    return whole.astype(np.uint8)


def _sha256(array: NDArray[np.uint8]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
