"""Makes the databases in this folder from nsys exports: `python -m tests.ladder.profile.data.make FOLDER`."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent
RECORDED = ("naive", "cudnn-softmax", "cuda-graph")
EVENTS = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
)
NAMES = ("demangledName", "shortName", "mangledName", "nameId", "textId")
ADDED_SINCE = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("greenContextId", "mangledName"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("greenContextId", "copyCount"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("greenContextId",),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("eventClass", "callchainId"),
    "NVTX_EVENTS": ("binaryData",),
}
TABLES_ADDED_SINCE = ("ENUM_CUDA_MEMCPY_OPER", "META_DATA_EXPORT")


def cut_down(whole: Path, target: Path) -> None:
    """Copy the tables that a profile needs, without data that identifies the machine, its programs or its user."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(target)) as database, database:
        database.execute("ATTACH ? AS whole", (str(whole),))
        there = {name for (name,) in database.execute("SELECT name FROM whole.sqlite_master WHERE type = 'table'")}
        for table in [*(table for table in EVENTS if table in there), "ENUM_CUDA_MEMCPY_OPER"]:
            _copy(database, table)
        _copy(database, "META_DATA_EXPORT", "name LIKE 'EXPORT_PRODUCT_%' OR name LIKE 'EXPORT_SCHEMA_%'")
        _copy(database, "StringIds", f"id IN ({_used_names(database)})")
        for number, (row,) in enumerate(
            database.execute("SELECT rowid FROM NVTX_EVENTS WHERE text = 'epoch' ORDER BY start").fetchall()
        ):
            database.execute("UPDATE NVTX_EVENTS SET text = ? WHERE rowid = ?", (f"epoch {8 + number}", row))
    _vacuum(target)


def convert(recent: Path, target: Path) -> None:
    """Copy a database without tables and columns that an older nsys lacks, and with registered range names."""
    target.write_bytes(recent.read_bytes())
    with closing(sqlite3.connect(target)) as database, database:
        for table in TABLES_ADDED_SINCE:
            database.execute(f"DROP TABLE {table}")
        for table, columns in ADDED_SINCE.items():
            for column in columns:
                database.execute(f'ALTER TABLE {table} DROP COLUMN "{column}"')
        database.execute("INSERT INTO StringIds SELECT 100000 + rowid, text FROM NVTX_EVENTS")
        database.execute("UPDATE NVTX_EVENTS SET textId = 100000 + rowid, text = NULL")
        database.execute(f"DELETE FROM StringIds WHERE id NOT IN ({_used_names(database)})")
    _vacuum(target)


def _copy(database: sqlite3.Connection, table: str, where: str = "TRUE") -> None:
    """Copy some columns and rows of a table."""
    columns = [
        f'"{name}" {kind}{" NOT NULL" if filled else ""}{" PRIMARY KEY" if key else ""}'
        for _, name, kind, filled, _, key in database.execute(f"PRAGMA whole.table_info({table})")
    ]
    database.execute(f"CREATE TABLE main.{table} ({', '.join(columns)})")
    database.execute(f"INSERT INTO main.{table} SELECT * FROM whole.{table} WHERE {where}")


def _used_names(database: sqlite3.Connection) -> str:
    """A query for the ids of all strings that the events refer to."""
    tables = [name for (name,) in database.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]
    return " UNION ".join(
        f'SELECT "{column}" FROM main.{table}'
        for table in EVENTS
        if table in tables
        for _, column, *_ in database.execute(f"PRAGMA main.table_info({table})")
        if column in NAMES
    )


def _vacuum(path: Path) -> None:
    """Remove all remains of deleted rows from the file."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("VACUUM")


if __name__ == "__main__":
    for stage in RECORDED:
        cut_down(Path(sys.argv[1]) / f"{stage}.sqlite", HERE / f"{stage}.sqlite")
    convert(HERE / "naive.sqlite", HERE / "naive-older.sqlite")
