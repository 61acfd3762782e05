"""Reads the database that `nsys export --type=sqlite` writes.

nsys creates a table only if it has rows, and some columns are new, so this module looks both up. The "User
Guide" of Nsight Systems describes the schema; `exporter/export_schema_version_notes.txt` beside the program lists its
changes.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import Any

from ladder.profile.api_names import call_name, is_action, short_name
from ladder.profile.cupti import DIRECTIONS
from ladder.profile.trace import Call, Copy, Kernel, ProfileError, Trace, Window

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS = "CUPTI_ACTIVITY_KIND_MEMSET"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"  # contains driver calls as well
RANGES = "NVTX_EVENTS"
EXPORTER = "META_DATA_EXPORT"

PUSH_POP = 59  # NvtxPushPopRange
EPOCH = re.compile(r"epoch (\d+)")
THREAD = 0xFFFFFF  # mask: the thread's part of a global thread id

HINT = (
    "an nsys older than the driver or a GPU held by another profiler (DCGM, a debugger) loses them; update the one or "
    "stop the other, or use --profile cupti"
)


def read(sqlite: Path) -> Trace:
    """The trace of all epochs: everything that began within a range `epoch N`, where N counts from 0 in a run.

    Raises ProfileError if the file is not such a database or lacks needed data.
    """
    try:
        with closing(sqlite3.connect(f"{sqlite.absolute().as_uri()}?mode=ro", uri=True)) as database:
            if database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise ProfileError(f"{sqlite} is truncated or damaged; export the report again with nsys")
            return _trace(_Export(sqlite, database))
    except sqlite3.Error as error:
        raise ProfileError(f"{sqlite} cannot be read as a database: {error}") from error


class _Export:
    """The database, with its existing tables and columns."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path = path
        self._database = database
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        self._columns = {
            table: {column for _, column, *_ in database.execute(f'PRAGMA table_info("{table}")')} for table in tables
        }
        self.strings: dict[int, str] = dict(self.rows("StringIds", ("id", "value")))

    def has(self, table: str, column: str) -> bool:
        """Whether the table has the column."""
        return column in self._columns.get(table, ())

    def rows(
        self, table: str, needed: Sequence[str], optional: Mapping[str, int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of the needed columns, then the optional ones or their defaults; no rows if the table is missing."""
        if table not in self._columns:
            return
        for column in needed:
            if not self.has(table, column):
                raise self.error(f"table {table} has no column {column}")
        values = [f'"{column}"' for column in needed]
        for column, default in (optional or {}).items():
            values.append(f'"{column}"' if self.has(table, column) else str(default))
        yield from self._database.execute(f'SELECT {", ".join(values)} FROM "{table}"')

    def error(self, what: str) -> ProfileError:
        """An error that names the version of nsys that wrote the database."""
        said = dict(self.rows(EXPORTER, ("name", "value"))) if self.has(EXPORTER, "name") else {}
        product = said.get("EXPORT_PRODUCT_VERSION", "of unknown version")
        schema = said.get("EXPORT_SCHEMA_VERSION", "unknown")
        return ProfileError(f"{self._path}: {what} (written by nsys {product}, schema {schema})")


def _trace(export: _Export) -> Trace:
    windows = list(_windows(export))
    if not windows:
        raise export.error(f"table {RANGES} has no range `epoch N`")

    def inside(event: Kernel | Copy | Call) -> bool:
        return any(window.start <= event.start < window.end for window in windows)

    start = attrgetter("start")
    trace = Trace(
        windows=sorted(windows, key=start),
        kernels=sorted(filter(inside, _kernels(export)), key=start),
        copies=sorted(filter(inside, _copies(export)), key=start),
        calls=sorted(filter(inside, _calls(export)), key=start),
    )
    trace.check("nsys", HINT)
    return trace


def _windows(export: _Export) -> Iterator[Window]:
    """The push/pop ranges of epochs, without those still open when the recording stopped."""
    columns = export.rows(RANGES, ("start", "end", "eventType", "text", "textId"))
    for start, end, kind, text, text_id in columns:
        epoch = EPOCH.fullmatch(text or export.strings.get(text_id, ""))
        if epoch and kind == PUSH_POP and end is not None:
            yield Window(int(epoch[1]), start, end)


def _kernels(export: _Export) -> Iterator[Kernel]:
    sizes = [f"{what}{axis}" for what in ("grid", "block") for axis in "XYZ"]
    # The short name is `Kernel2` for every CUTLASS kernel.
    needed = ("start", "end", "demangledName", "correlationId", "registersPerThread", *sizes)
    # Cluster columns came after schema 3.20, and may be 0 for a kernel without clusters.
    clusters = {f"cluster{axis}": 1 for axis in "XYZ"}
    shared = ("staticSharedMemory", "dynamicSharedMemory")
    for start, end, named, correlation, registers, gx, gy, gz, bx, by, bz, static, dynamic, *cluster in export.rows(
        KERNELS, (*needed, *shared), clusters
    ):
        x, y, z = (max(1, blocks or 1) for blocks in cluster)
        name = short_name(export.strings.get(named, "unknown"))
        shape = registers, static + dynamic, gx * gy * gz, bx * by * bz, x * y * z
        yield Kernel(name, start, end, correlation, *shape)


def _copies(export: _Export) -> Iterator[Copy]:
    columns = ("start", "end", "correlationId", "bytes")
    for start, end, correlation, size, kind in export.rows(COPIES, (*columns, "copyKind")):
        yield Copy(DIRECTIONS.get(kind, "other"), start, end, correlation, size)
    for start, end, correlation, size in export.rows(FILLS, columns):
        yield Copy("fill", start, end, correlation, size)


def _calls(export: _Export) -> Iterator[Call]:
    columns = ("start", "end", "nameId", "correlationId", "globalTid")
    for start, end, named, correlation, thread in export.rows(CALLS, columns):
        name = call_name(export.strings.get(named, "unknown"))
        if is_action(name):
            yield Call(name, start, end, correlation, thread & THREAD)
