"""Write data like MNIST's but for the pixels, which are random bytes: `python -m tools.random_pixels FOLDER`.

Most of MNIST's pixels are zero. A run with `--data-dir FOLDER --learning-rate 0.0001`, compared with one of MNIST,
tells whether a stage's time depends on them. Labels and sizes are MNIST's.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.data.dataset import Split, load_dataset
from common.data.idx_folder import TEST_IMAGES, TEST_LABELS, TRAIN_IMAGES, TRAIN_LABELS

SEED = 0


def main(argv: Sequence[str]) -> int:
    """Write the four files into a new folder; returns the exit status."""
    if len(argv) != 1 or argv[0].startswith("-") or Path(argv[0]).exists():
        print("random_pixels: name one folder that does not exist yet", file=sys.stderr)
        return 2
    folder, random = Path(argv[0]), np.random.default_rng(SEED)
    data = load_dataset(data_dir=None, seed=SEED)
    folder.mkdir(parents=True)
    splits: list[tuple[Split, str, str]] = [
        (data.train, TRAIN_IMAGES, TRAIN_LABELS),
        (data.test, TEST_IMAGES, TEST_LABELS),
    ]
    for split, images, labels in splits:
        pixels = random.integers(256, size=(len(split.images), *data.image_shape), dtype=np.uint8)
        for name, array in ((images, pixels), (labels, np.asarray(split.labels))):
            (folder / name).write_bytes(idx_bytes(array))
    return 0


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    """An array as an IDX file has it."""
    return struct.pack(f">{1 + array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.tobytes()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
