from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from ladder.profile.nsys_export import read
from ladder.profile.trace import ProfileError, Trace, Window

DATA = Path(__file__).parent / "data"
STAGES = ("naive", "cudnn-softmax", "cuda-graph", "naive-older")
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@pytest.fixture
def naive(tmp_path: Path) -> Path:
    """A copy of the database, which a test may change."""
    return Path(shutil.copy(DATA / "naive.sqlite", tmp_path / "naive.sqlite"))


def ask(path: Path, query: str, *values: object) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(path)) as database, database:
        return database.execute(query, values).fetchall()


def kernels_of(trace: Trace) -> Counter[str]:
    return Counter(kernel.name for kernel in trace.kernels)


def calls_of(trace: Trace) -> Counter[str]:
    return Counter(call.name for call in trace.calls)


def test_the_naive_recording_has_two_epochs_of_four_steps() -> None:
    trace = read(DATA / "naive.sqlite")
    assert trace.windows == [Window(8, 8_880_717, 9_492_414), Window(9, 9_494_550, 9_818_586)]
    assert kernels_of(trace) == dict.fromkeys(
        ("add_bias", "softmax", "softmax_xent_backward", "softmax_xent_totals", "bias_gradient", "sgd_update"), 8
    ) | {"gemm_naive": 16}
    assert calls_of(trace) == {
        "cuLaunchKernelEx": 64,
        "cudaMemcpyAsync": 10,
        "cudaMemsetAsync": 2,
        "cudaStreamSynchronize": 10,
        "cuCtxSynchronize": 2,
    }
    assert Counter((one.direction, one.bytes) for one in trace.copies) == {("device to host", 16): 10, ("fill", 16): 2}
    (thread,) = {call.thread for call in trace.calls}
    query = "SELECT DISTINCT globalTid % 0x1000000 FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    assert ask(DATA / "naive.sqlite", query) == [(thread,)]


def test_kernels_have_their_names_launches_and_shapes() -> None:
    trace = read(DATA / "cudnn-softmax.sqlite")
    launches = {call.correlation: call for call in trace.calls if "Launch" in call.name}
    assert all(launches[kernel.correlation].start < kernel.start for kernel in trace.kernels)
    names = set(kernels_of(trace))
    assert {"softmax_fw_small_kernel", "splitKreduce_kernel", "add_bias"} <= names
    assert not [name for name in names if set(name) & set("<>():* ")]
    first = trace.kernels[0]
    assert first.name == "cutlass_80_simt_sgemm_128x32_8x5_nn_align1"
    assert (first.start, first.end, first.correlation) == (9_333_959, 9_337_767, 7)
    shape = (first.registers, first.shared_bytes, first.blocks, first.threads, first.cluster)
    assert shape == (80, 25_600, 100, 128, 1)


def test_an_older_schema_yields_the_same_trace() -> None:
    older = DATA / "naive-older.sqlite"
    tables = {name for (name,) in ask(older, "SELECT name FROM sqlite_master")}
    assert not {"ENUM_CUDA_MEMCPY_OPER", "META_DATA_EXPORT"} & tables
    assert ask(older, "SELECT count(text), count(textId) FROM NVTX_EVENTS") == [(0, 3)]
    assert read(older) == read(DATA / "naive.sqlite")


def test_a_newer_schema_has_clusters(naive: Path) -> None:
    for axis, blocks in zip("XYZ", (4, 2, 0), strict=True):
        ask(naive, f"ALTER TABLE {KERNELS} ADD COLUMN cluster{axis} INTEGER")
        ask(naive, f"UPDATE {KERNELS} SET cluster{axis} = ? WHERE registersPerThread = 32", blocks)
    clusters = {kernel.registers: kernel.cluster for kernel in read(naive).kernels}
    assert set(clusters.values()) == {1, 8}
    assert clusters[32] == 8


def test_epochs_are_ranges_that_were_pushed_and_popped(naive: Path) -> None:
    windows = read(naive).windows
    ask(naive, "INSERT INTO StringIds VALUES (9999, 'epoch 12')")
    for start, end, kind, text, text_id in (
        (9_900_000, 9_910_000, 59, "epoch 11", None),
        (9_920_000, 9_930_000, 59, None, 9999),
        (9_940_000, None, 59, "epoch 13", None),  # still open when the recording stopped
        (9_950_000, 9_960_000, 60, "epoch 14", None),  # started and ended
        (9_500_000, 9_500_400, 59, "update", None),
    ):
        query = "INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId) VALUES (?, ?, ?, ?, ?)"
        ask(naive, query, start, end, kind, text, text_id)
    assert read(naive).windows == [*windows, Window(11, 9_900_000, 9_910_000), Window(12, 9_920_000, 9_930_000)]


@pytest.mark.parametrize(("stage", "launches"), [("naive", 64), ("cuda-graph", 2)])
def test_launches_without_kernels_are_a_failed_capture(tmp_path: Path, stage: str, launches: int) -> None:
    database = Path(shutil.copy(DATA / f"{stage}.sqlite", tmp_path))
    ask(database, f"DROP TABLE {KERNELS}")
    with pytest.raises(ProfileError, match=f"nsys recorded {launches} launches but no kernel: .*--profile cupti"):
        read(database)


@pytest.mark.parametrize(
    ("table", "column"), [(KERNELS, "start"), ("CUPTI_ACTIVITY_KIND_RUNTIME", "nameId"), ("NVTX_EVENTS", "eventType")]
)
def test_a_missing_needed_column_is_named(naive: Path, table: str, column: str) -> None:
    ask(naive, f"ALTER TABLE {table} RENAME COLUMN {column} TO renamed")
    with pytest.raises(ProfileError, match=f"{table} has no column {column} .*nsys 2025.3.2.0, schema 3.20.3"):
        read(naive)


def test_a_truncated_file_is_an_error(naive: Path) -> None:
    whole = naive.read_bytes()
    for size in range(1, len(whole), 2048):
        naive.write_bytes(whole[:size])
        with pytest.raises(ProfileError, match=r"naive\.sqlite"):
            read(naive)


@pytest.mark.parametrize("stage", STAGES)
def test_recordings_do_not_identify_the_machine(stage: str) -> None:
    path = DATA / f"{stage}.sqlite"
    with closing(sqlite3.connect(path)) as database:
        assert "/" not in "".join(database.iterdump())
    content = path.read_bytes()  # including remains of deleted rows
    assert len(content) < 100_000
    for word in (b"/tmp", b"/usr", b"PATH", b"HOME", b"EXPORT_HOST", b"EXPORT_USER", b"ENVIRONMENT", b"python"):
        assert word not in content, word


def test_a_database_of_something_else_is_an_error(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    ask(other, "CREATE TABLE META_DATA_EXPORT (key TEXT)")
    with pytest.raises(ProfileError, match=r"no range `epoch N` .*unknown version"):
        read(other)
    ask(other, "CREATE TABLE StringIds (id INTEGER)")
    with pytest.raises(ProfileError, match="table StringIds has no column value"):
        read(other)
