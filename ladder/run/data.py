"""The images of a run, and what the user should hear about where they come from."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Timer

from common.data import dataset
from common.data.dataset import Dataset
from ladder.run.observer import DownloadObserver

PATIENCE_S = 1.5  # without an answer from the mirrors, until the user hears of it
WAY_OUT = "name a folder with its four files: --data-dir FOLDER"


def load_dataset(*, data_dir: Path | None, seed: int, observer: DownloadObserver) -> Dataset:
    """The user's files, else MNIST, else synthetic digits; a note says why MNIST could not be had.

    Raises UsageError for files that cannot be used.
    """
    waiting = Timer(PATIENCE_S, lambda: observer.note(f"waiting for MNIST's mirrors; {WAY_OUT}"))
    waiting.daemon = True

    def progress(done: int, total: int | None, name: str) -> None:
        waiting.cancel()
        observer.download(done, total, name)

    if not (data_dir or os.environ.get("LADDER_DATA_DIR")):
        waiting.start()
    try:
        found = dataset.load_dataset(data_dir=data_dir, seed=seed, progress=progress)
    finally:
        waiting.cancel()
    _, drawn, reason = found.source.partition("; no MNIST: ")
    if drawn:
        observer.note(f"no MNIST ({reason}): synthetic digits stand in; {WAY_OUT}")
    return found
