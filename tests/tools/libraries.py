"""Shared libraries with GPU code, as small as their format allows."""

from __future__ import annotations

import struct
from typing import NamedTuple

PTX, MACHINE_CODE = 1, 2


class Code(NamedTuple):
    """An entry of a fatbin."""

    kind: int
    arch: int
    payload: bytes


def container(*entries: Code, lengthened: int = 0) -> bytes:
    """A fatbin of these entries; `lengthened` by bytes that no entry fills."""
    body = b"".join(
        struct.pack("<HHIQIIHHIIIQQQ", e.kind, 0x101, 64, len(e.payload), 0, 0, 0, 0, e.arch, 0, 0, 0, 0, 0) + e.payload
        for e in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body) + lengthened) + body


def library(content: bytes, section: bytes = b".nv_fatbin") -> bytes:
    """An ELF library with one section of that name, after which the section's names and headers follow."""
    names = b"\0.shstrtab\0" + section + b"\0"
    begin = 64
    table = begin + len(content) + len(names)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 1
    )
    rows = [
        (0, 0, 0, 0, 0, 0),
        (1, 3, 0, 0, begin + len(content), len(names)),
        (11, 1, 2, 0, begin, len(content)),
    ]
    return header + content + names + b"".join(struct.pack("<IIQQQQIIQQ", *row, 0, 0, 1, 0) for row in rows)
