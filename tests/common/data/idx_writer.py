"""Writes IDX files, and small data sets of four of them, for tests to read."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.data.idx_folder import TEST_IMAGES, TEST_LABELS, TRAIN_IMAGES, TRAIN_LABELS


def quartet_arrays(
    train: int = 40, test: int = 10, shape: tuple[int, int] = (4, 3), classes: int = 5
) -> dict[str, NDArray[np.uint8]]:
    """Random images by usual file name, with labels that go round all the classes."""
    random = np.random.default_rng(7)
    arrays = {}
    for images, labels, count in ((TRAIN_IMAGES, TRAIN_LABELS, train), (TEST_IMAGES, TEST_LABELS, test)):
        arrays[images] = random.integers(256, size=(count, *shape), dtype=np.uint8)
        arrays[labels] = (np.arange(count) % classes).astype(np.uint8)
    return arrays


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    """An array as an IDX file has it."""
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


def write_files(folder: Path, arrays: dict[str, NDArray[np.uint8]], *, gz: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        raw = idx_bytes(array)
        (folder / (f"{name}.gz" if gz else name)).write_bytes(gzip.compress(raw) if gz else raw)
    return folder
