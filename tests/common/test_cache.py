"""A cache that Numba would crash over is seen before."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from common.cache import cut_files
from ladder.run.folders import scratch_folder


def test_files_that_were_cut_off_are_found_and_leave_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))
    (folder := tmp_path / "numba" / "stages_1").mkdir(parents=True)
    index = pickle.dumps("0.61") + pickle.dumps(((1.0, 2), {"key": "kernel.1.nbc"}))
    contents = {"whole.nbi": index, "whole.nbc": pickle.dumps(b"code"), "other.txt": b"x"}
    contents |= {f"cut-{size}.nbi": index[:size] for size in range(len(index))}
    contents |= {f"cut-{size}.nbc": contents["whole.nbc"][:size] for size in range(10)}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    assert {file.name for file in cut_files()} == {name for name in contents if name.startswith("cut")}
    with scratch_folder(tmp_path, 0):
        assert {file.name for file in folder.iterdir()} == {"whole.nbi", "whole.nbc", "other.txt"}
