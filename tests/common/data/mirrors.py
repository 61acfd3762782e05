"""Mirrors of a small data set on this machine, good ones and every bad one, and the pretence that the set is MNIST."""

from __future__ import annotations

import gzip
import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from numpy.typing import NDArray

from common.data.idx_folder import MNIST_SHA256, RANKS
from tests.common.data.idx_writer import idx_bytes


def pretend_mnist(monkeypatch: pytest.MonkeyPatch, arrays: dict[str, NDArray[np.uint8]]) -> None:
    for name in RANKS:
        monkeypatch.setitem(MNIST_SHA256, name, hashlib.sha256(idx_bytes(arrays[name])).hexdigest())


class Mirrors(ThreadingHTTPServer):
    """One server; the first folder of an address says how it behaves, as in `mirrors.at("stall")`."""

    daemon_threads = True

    def __init__(self, arrays: dict[str, NDArray[np.uint8]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = {f"{name}.gz": gzip.compress(idx_bytes(array)) for name, array in arrays.items()}
        self.requests: list[str] = []
        self.closing = threading.Event()

    def at(self, behaviour: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{behaviour}/"


class _Handler(BaseHTTPRequestHandler):
    server: Mirrors

    def do_GET(self) -> None:
        _, behaviour, name = self.path.split("/")
        self.server.requests.append(f"{behaviour}/{name}")
        body = self.server.files[name]
        if behaviour == "missing":
            self.send_error(404)
            return
        if behaviour == "hang":
            self.server.closing.wait()
            return
        if behaviour == "wrong":
            body = gzip.compress(gzip.decompress(body)[:-1] + b"\x01")
        if behaviour == "portal":
            body = b"<html>Please log in</html>"
        self.send_response(200)
        if behaviour != "unsized":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if behaviour == "cut":
            body = body[:-100]
        if behaviour == "stall":
            self.wfile.write(body[: len(body) // 2])
            self.server.closing.wait()
        elif behaviour == "drip":
            for byte in body:
                if self.server.closing.wait(0.05):
                    return
                self.wfile.write(bytes([byte]))
        elif behaviour == "slow":
            for start in range(0, len(body), 1 << 16):
                self.server.closing.wait(0.3)
                self.wfile.write(body[start : start + (1 << 16)])
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


@contextmanager
def serve(arrays: dict[str, NDArray[np.uint8]]) -> Iterator[Mirrors]:
    with Mirrors(arrays) as mirrors:
        thread = threading.Thread(target=mirrors.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield mirrors
        finally:
            mirrors.closing.set()
            mirrors.shutdown()
            thread.join()


def dead_mirror() -> str:
    """An address without a listener."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}/"
