"""Data of random pixels, in MNIST's sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from common.data.dataset import load_dataset
from tests.common.data.idx_writer import quartet_arrays, write_files
from tools.random_pixels import main


def test_only_the_pixels_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "own", quartet_arrays(train=400, test=100))
    monkeypatch.setenv("LADDER_DATA_DIR", str(tmp_path / "own"))
    assert main([str(tmp_path / "random")]) == 0
    own, drawn = (load_dataset(data_dir=tmp_path / name, seed=0) for name in ("own", "random"))
    assert (drawn.image_shape, len(drawn.test.images)) == (own.image_shape, len(own.test.images))
    assert np.array_equal(np.sort(drawn.train.labels), np.sort(own.train.labels))
    assert not np.array_equal(drawn.train.images, own.train.images)
    assert 100 < drawn.train.images.mean() < 155


def test_a_folder_that_exists_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "does not exist yet" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
