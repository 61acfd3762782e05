"""A file that is replaced is whole at every moment."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from common.files import atomic_write, explained


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(("content", "written"), [("a\nµ\n", "a\nµ\n".encode()), (b"\0\r\n", b"\0\r\n")])
def test_the_content_replaces_the_file(tmp_path: Path, content: str | bytes, written: bytes, sync: bool) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")
    atomic_write(path, content, sync=sync)
    assert path.read_bytes() == written
    assert list(tmp_path.iterdir()) == [path]


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("fault", [full, stopped])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, fault: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", fault)
    with pytest.raises((OSError, KeyboardInterrupt)) as caught:
        atomic_write(path, "new", sync=True)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    if isinstance(caught.value, OSError):
        assert str(caught.value) == f"[Errno 28] No space left on device: '{path}'"


def test_a_folder_that_is_missing_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "file.json"
    with pytest.raises(FileNotFoundError, match=r"gone/file\.json'$"):
        atomic_write(path, "new")


def test_two_writers_do_not_share_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, replace = tmp_path / "file.json", Path.replace

    def interrupted(temporary: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        atomic_write(path, "second")  # while the first is about to replace the file
        return replace(temporary, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    atomic_write(path, "first")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_what_has_no_file_and_no_room_is_the_output() -> None:
    said = explained(OSError(errno.ENOSPC, "No space left on device"), "go on")
    assert said == "standard output: No space left on device; send it elsewhere, then go on"
