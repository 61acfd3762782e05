"""Downloads from mirrors on this machine: good, dead, lying, silent; and the cache they fill."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.cache import cache_folder
from common.data import download as downloads
from common.data.download import DownloadError, download, read_cache
from common.data.idx_folder import RANKS, TEST_LABELS, TRAIN_IMAGES
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.common.data.mirrors import Mirrors, dead_mirror, pretend_mnist, serve

ARRAYS = quartet_arrays(train=300, test=60, shape=(28, 28))  # images that take more than one chunk
NAMES = list(RANKS)


@pytest.fixture
def mirrors(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirrors]:
    pretend_mnist(monkeypatch, ARRAYS)
    monkeypatch.setenv("no_proxy", "*")
    with serve(ARRAYS) as server:
        yield server


def use(monkeypatch: pytest.MonkeyPatch, *addresses: str, patience_s: float = 5.0) -> None:
    monkeypatch.setattr(downloads, "MIRRORS", addresses)
    monkeypatch.setattr(downloads, "CHUNK_TIMEOUT_S", patience_s)
    monkeypatch.setattr(downloads, "ANSWER_TIMEOUT_S", patience_s)


def test_silent_mirrors_cost_their_patience_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors
) -> None:
    assert downloads.ANSWER_TIMEOUT_S <= 2.0
    use(monkeypatch, mirrors.at("hang"), mirrors.at("hang"), patience_s=0.5)
    began = time.monotonic()
    with pytest.raises(DownloadError, match=r"^127\.0\.0\.1: no answer for 0\.5 s; 127\.0\.0\.1: no answer"):
        download(NAMES, tmp_path)
    assert time.monotonic() - began < 5.0
    asked = len(mirrors.requests)
    with pytest.raises(DownloadError, match=r"^no mirror answered within the last day; to ask again, delete .*no-ans"):
        download(NAMES, tmp_path)
    assert len(mirrors.requests) == asked
    assert download([], tmp_path) == {}  # all files are in the cache
    use(monkeypatch, mirrors.at("good"))
    day_ago = time.time() - downloads.DAY_S - 60.0
    os.utime(tmp_path / downloads.NO_ANSWER, (day_ago, day_ago))
    assert list(download(NAMES, tmp_path)) == NAMES


def test_a_mirror_that_refuses_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, dead_mirror())
    for _ in range(2):
        with pytest.raises(DownloadError, match="Connection refused"):
            download(NAMES, tmp_path)


def test_a_good_mirror_fills_the_cache_and_reports_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors
) -> None:
    use(monkeypatch, mirrors.at("good"), dead_mirror())
    calls: list[tuple[int, int | None, str]] = []
    folder = tmp_path / "new" / "cache"
    files = download(NAMES, folder, lambda done, total, name: calls.append((done, total, name)))
    for name in NAMES:
        np.testing.assert_array_equal(files[name].array, ARRAYS[name])
        size = len(mirrors.files[f"{name}.gz"])
        done = [call[0] for call in calls if call[2] == f"{name}.gz"]
        assert done == sorted(done)
        assert done[-1] == size
        assert {call[1] for call in calls if call[2] == f"{name}.gz"} == {size}
    assert len([call for call in calls if call[2] == f"{TRAIN_IMAGES}.gz"]) > 1
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{name}.gz" for name in NAMES)
    assert list(read_cache(folder)) == NAMES


def test_only_what_is_asked_for_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors) -> None:
    use(monkeypatch, mirrors.at("good"))
    assert list(download([TEST_LABELS], tmp_path)) == [TEST_LABELS]
    assert mirrors.requests == [f"good/{TEST_LABELS}.gz"]


@pytest.mark.parametrize("first", ["wrong", "cut"])
def test_a_bad_mirror_gives_way_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors, first: str
) -> None:
    use(monkeypatch, dead_mirror(), mirrors.at(first), mirrors.at("good"), patience_s=1.0)
    files = download(NAMES, tmp_path)
    np.testing.assert_array_equal(files[TRAIN_IMAGES].array, ARRAYS[TRAIN_IMAGES])
    assert sorted(mirrors.requests) == sorted([f"{first}/{NAMES[0]}.gz", *(f"good/{name}.gz" for name in NAMES)])
    assert list(read_cache(tmp_path)) == NAMES


def test_a_slow_download_that_goes_on_is_not_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = quartet_arrays(train=700, test=60, shape=(28, 28))  # nine chunks, 0.3 s each
    pretend_mnist(monkeypatch, arrays)
    monkeypatch.setenv("no_proxy", "*")
    with serve(arrays) as mirrors:
        use(monkeypatch, mirrors.at("slow"), patience_s=2.0)
        started = time.monotonic()
        assert list(download([TRAIN_IMAGES], tmp_path)) == [TRAIN_IMAGES]
        assert time.monotonic() - started > 2.0


def test_a_mirror_that_tells_no_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors) -> None:
    use(monkeypatch, mirrors.at("unsized"))
    totals = set()
    download(NAMES, tmp_path, lambda done, total, name: totals.add(total))
    assert totals == {None}


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("missing", "HTTP Error 404: Not Found"),
        ("portal", "train-images-idx3-ubyte: not IDX but an HTML page: its address has moved or wants a login"),
        ("hang", "no answer for 0.5 s"),
        ("stall", "stalled after 65536 bytes for 0.5 s"),
        ("drip", "stalled after 0 bytes for 0.5 s"),
    ],
)
def test_the_reason_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors, behaviour: str, reason: str
) -> None:
    use(monkeypatch, mirrors.at(behaviour), dead_mirror(), patience_s=0.5)
    with pytest.raises(DownloadError) as caught:
        download(NAMES, tmp_path)
    assert str(caught.value) == f"127.0.0.1: {reason}; 127.0.0.1: Connection refused"
    assert read_cache(tmp_path) == {}


def test_bytes_other_than_mnist_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors) -> None:
    use(monkeypatch, mirrors.at("wrong"))
    with pytest.raises(DownloadError, match=r"^127.0.0.1: train-images-idx3-ubyte: SHA-256 .{12}\.\.\., not "):
        download(NAMES, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors) -> None:
    use(monkeypatch, mirrors.at("good"))
    monkeypatch.setattr(downloads, "_MAX_FILE_BYTES", 100_000)
    with pytest.raises(DownloadError, match=r"train-images-idx3-ubyte\.gz does not end after 100000 bytes"):
        download(NAMES, tmp_path)


def test_name_resolution_that_hangs_is_given_up_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def hang(*args: Any, **kwargs: Any) -> Any:
        over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "over")

    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(socket, "getaddrinfo", hang)
    use(monkeypatch, "http://one.invalid/", "http://two.invalid/", patience_s=0.3)
    started = time.monotonic()
    with pytest.raises(DownloadError, match=r"^one\.invalid: no answer .*; two\.invalid: no answer "):
        download(NAMES, tmp_path)
    took = time.monotonic() - started
    over.set()
    assert 0.3 <= took < 3


@pytest.mark.parametrize("what", ["a file in its place", "a rename that fails"])
def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mirrors: Mirrors, what: str
) -> None:
    use(monkeypatch, mirrors.at("good"))
    folder = tmp_path / "cache"
    if what == "a file in its place":
        folder.touch()
    else:
        folder.mkdir()
        for name in NAMES:
            (folder / f"{name}.gz").mkdir()
    assert list(download(NAMES, folder)) == NAMES
    assert not list(tmp_path.rglob("*.part"))


def test_the_cache_gives_only_what_is_unharmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_mnist(monkeypatch, ARRAYS)
    assert read_cache(tmp_path / "absent") == {}
    write_files(tmp_path, ARRAYS)
    cached = tmp_path / f"{TRAIN_IMAGES}.gz"
    cached.write_bytes(cached.read_bytes()[:1000])
    other = quartet_arrays(train=300, test=60, shape=(28, 28), classes=3)
    write_files(tmp_path, {TEST_LABELS: other[TEST_LABELS]})
    assert list(read_cache(tmp_path)) == [name for name in NAMES if name not in (TRAIN_IMAGES, TEST_LABELS)]
    write_files(tmp_path, {TRAIN_IMAGES: ARRAYS[TRAIN_IMAGES]}, gz=False)
    assert TRAIN_IMAGES in read_cache(tmp_path)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"LADDER_CACHE_DIR": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own/mnist"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/optimisation-ladder/mnist"),
        ({"HOME": "/home/ada"}, "/home/ada/.cache/optimisation-ladder/mnist"),
    ],
)
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], folder: str) -> None:
    for name in ("LADDER_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_folder("mnist") == Path(folder)
