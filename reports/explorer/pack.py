"""Data inside a page: JSON, gzipped, as base64, which the page's script unpacks through DecompressionStream."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any


def packed(data: Any) -> str:
    """JSON data as base64 text, which cannot end a script element; equal data give equal text."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def unpacked(text: str) -> Any:
    """The data in `packed` text."""
    return json.loads(gzip.decompress(base64.b64decode(text)))
