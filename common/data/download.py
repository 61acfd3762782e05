"""MNIST from the cache, with missing files from two public mirrors.

A network without an answer costs two seconds, once a day. A socket timeout cannot guarantee that, since name resolution
may hang in the C library: each request runs in a daemon thread, and the caller watches a clock.
"""

from __future__ import annotations

import contextlib
import http.client
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from common.data.idx import Idx, parse_idx, read_idx
from common.data.idx_folder import MNIST_SHA256, RANKS
from common.errors import UsageError
from common.files import atomic_write

Progress = Callable[[int, int | None, str], None]
"""Called with bytes received, total bytes (None if unknown) and the file's name."""

MIRRORS = ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/")
ANSWER_TIMEOUT_S = 2.0  # for all mirrors, which are asked at once
CHUNK_TIMEOUT_S = 4.5  # wait for each chunk of a mirror that has answered
NO_ANSWER, DAY_S = "no-answer", 86_400.0  # the file whose age says when mirrors were asked in vain

_CHUNK_BYTES = 1 << 16  # one per CHUNK_TIMEOUT_S, 15 kB/s, is the slowest download accepted
_MAX_FILE_BYTES = 1 << 24  # above every MNIST file; stops an endless page


class DownloadError(Exception):
    """No mirror delivered the files: one line with each mirror and its reason."""


class NoAnswerError(DownloadError):
    """A mirror that says nothing, not even that it refuses."""


def read_cache(folder: Path) -> dict[str, Idx]:
    """The undamaged MNIST files in the cache, by their usual names."""
    good = {}
    for name, rank in RANKS.items():
        for path in (folder / f"{name}.gz", folder / name):
            with contextlib.suppress(UsageError):
                file = read_idx(path, rank)
                if file.sha256 == MNIST_SHA256[name]:
                    good[name] = file
    return good


def download(names: list[str], folder: Path, progress: Progress | None = None) -> dict[str, Idx]:
    """Download the named MNIST files and save them in the folder if possible; DownloadError if no mirror works.

    Mirrors that were silent within a day are not asked again.
    """
    if not names:
        return {}
    silent = folder / NO_ANSWER
    with contextlib.suppress(OSError):
        if 0 <= time.time() - silent.stat().st_mtime < DAY_S:
            raise DownloadError(f"no mirror answered within the last day; to ask again, delete {silent}")
    files: dict[str, Idx] = {}
    reasons, is_silent = list[str](), False
    until = time.monotonic() + ANSWER_TIMEOUT_S
    asked = [(mirror, _Request(f"{mirror}{names[0]}.gz", until)) for mirror in MIRRORS]
    try:
        for mirror, request in asked:
            try:
                for name in names:
                    if name not in files:
                        raw = (request if name == names[0] else _Request(f"{mirror}{name}.gz")).body(progress)
                        files[name] = _verified(raw, name)
                        _keep(raw, folder / f"{name}.gz")
                return files
            except DownloadError as error:
                reasons.append(f"{urlsplit(mirror).hostname}: {error}")
                is_silent |= isinstance(error, NoAnswerError)
    finally:
        for _, request in asked:
            request.given_up.set()
    if is_silent:
        _keep(b"", silent)
    raise DownloadError("; ".join(reasons))


class _Request:
    """One address, which a thread begins to read at once."""

    def __init__(self, url: str, until: float | None = None) -> None:
        """It must answer `until` then, on the monotonic clock, or else within ANSWER_TIMEOUT_S."""
        self._name = url.rpartition("/")[2]
        self._until = until or time.monotonic() + ANSWER_TIMEOUT_S
        self._parts: queue.SimpleQueue[tuple[bytes, int | None] | Exception | None] = queue.SimpleQueue()
        self.given_up = threading.Event()
        threading.Thread(target=self._read, args=(url,), daemon=True).start()

    def body(self, progress: Progress | None) -> bytes:
        """All of it; DownloadError on refusal, without an answer in time, or after CHUNK_TIMEOUT_S without a chunk."""
        received = bytearray()
        try:
            self._next(max(0.0, self._until - time.monotonic()))
        except queue.Empty:
            raise NoAnswerError(f"no answer for {ANSWER_TIMEOUT_S:g} s") from None
        try:
            while (part := self._next(CHUNK_TIMEOUT_S)) and part[0]:
                chunk, total = part
                received += chunk
                if len(received) > _MAX_FILE_BYTES:
                    raise DownloadError(f"{self._name} does not end after {_MAX_FILE_BYTES} bytes")
                if progress:
                    progress(len(received), total, self._name)
        except queue.Empty:
            raise DownloadError(f"stalled after {len(received)} bytes for {CHUNK_TIMEOUT_S:g} s") from None
        finally:
            self.given_up.set()
        return bytes(received)

    def _next(self, timeout_s: float) -> tuple[bytes, int | None] | None:
        part = self._parts.get(timeout=timeout_s)
        if isinstance(part, Exception):
            raise DownloadError(_reason(part)) from part
        return part

    def _read(self, url: str) -> None:
        """Queue None for the answer, (chunk, total bytes) for each chunk, then an empty chunk or the error."""
        try:
            # The caller gives up first; this timeout ends the abandoned thread.
            with urllib.request.urlopen(url, timeout=2 * CHUNK_TIMEOUT_S) as response:
                self._parts.put(None)
                total = response.length
                while not self.given_up.is_set():
                    chunk = response.read(_CHUNK_BYTES)
                    self._parts.put((chunk, total))
                    if not chunk:
                        break
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not self.given_up.is_set():  # else nobody takes it, and with it the socket
                self._parts.put(error)


def _reason(error: Exception) -> str:
    """The system's message, without urllib's wrappers."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else None
    cause = inner if isinstance(inner, OSError) else error
    return getattr(cause, "strerror", None) or str(cause)


def _verified(raw: bytes, name: str) -> Idx:
    try:
        file = parse_idx(raw, name, RANKS[name])
    except UsageError as error:
        raise DownloadError(str(error)) from error
    if file.sha256 != MNIST_SHA256[name]:
        raise DownloadError(f"{name}: SHA-256 {file.sha256[:12]}..., not {MNIST_SHA256[name][:12]}...")
    return file


def _keep(raw: bytes, path: Path) -> None:
    """Save the file to the cache; on failure this run uses its copy, and the next one downloads again."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, raw)
