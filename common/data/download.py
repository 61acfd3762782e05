"""MNIST from the cache, with missing files from two public mirrors.

A network without an answer costs less than ten seconds. A socket timeout cannot guarantee that, since name resolution
may hang in the C library: each request runs in a daemon thread, and the caller watches a clock.
"""

from __future__ import annotations

import contextlib
import http.client
import queue
import threading
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
CHUNK_TIMEOUT_S = 4.5  # wait for each chunk, also the first; two mirrors stay below ten seconds

_CHUNK_BYTES = 1 << 16  # one per CHUNK_TIMEOUT_S, 15 kB/s, is the slowest download accepted
_MAX_FILE_BYTES = 1 << 24  # above every MNIST file; stops an endless page


class DownloadError(Exception):
    """No mirror delivered the files: one line with each mirror and its reason."""


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
    """Download the named MNIST files and save them in the folder if possible; DownloadError if no mirror works."""
    files: dict[str, Idx] = {}
    reasons = []
    for mirror in MIRRORS:
        try:
            for name in names:
                if name not in files:
                    raw = _fetch(f"{mirror}{name}.gz", progress)
                    files[name] = _verified(raw, name)
                    _keep(raw, folder / f"{name}.gz")
            return files
        except DownloadError as error:
            reasons.append(f"{urlsplit(mirror).hostname}: {error}")
    raise DownloadError("; ".join(reasons))


def _fetch(url: str, progress: Progress | None) -> bytes:
    """Download one address; DownloadError on refusal or after CHUNK_TIMEOUT_S without a chunk."""
    parts: queue.SimpleQueue[tuple[bytes, int | None] | Exception] = queue.SimpleQueue()
    given_up = threading.Event()
    threading.Thread(target=_read, args=(url, parts, given_up), daemon=True).start()
    name = url.rpartition("/")[2]
    received = bytearray()
    try:
        while True:
            part = parts.get(timeout=CHUNK_TIMEOUT_S)
            if isinstance(part, Exception):
                raise DownloadError(_reason(part)) from part
            chunk, total = part
            if not chunk:
                return bytes(received)
            received += chunk
            if len(received) > _MAX_FILE_BYTES:
                raise DownloadError(f"{name} does not end after {_MAX_FILE_BYTES} bytes")
            if progress:
                progress(len(received), total, name)
    except queue.Empty:
        fault = f"stalled after {len(received)} bytes" if received else "no answer, or a very slow one,"
        raise DownloadError(f"{fault} for {CHUNK_TIMEOUT_S:g} s") from None
    finally:
        given_up.set()


def _read(url: str, parts: queue.SimpleQueue[tuple[bytes, int | None] | Exception], given_up: threading.Event) -> None:
    """Put (chunk, total bytes) for each chunk on the queue, then an empty chunk or the error."""
    try:
        # The caller gives up first; this timeout ends the abandoned thread.
        with urllib.request.urlopen(url, timeout=2 * CHUNK_TIMEOUT_S) as response:
            total = response.length
            while not given_up.is_set():
                chunk = response.read(_CHUNK_BYTES)
                parts.put((chunk, total))
                if not chunk:
                    break
    except (OSError, http.client.HTTPException, ValueError) as error:
        parts.put(error)


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
