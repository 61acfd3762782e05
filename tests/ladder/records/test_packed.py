"""Results that gzip has packed, as the points of recorded studies are."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from ladder.records import foreign
from ladder.records.run import ResultsError, all_results, load, results_in, save
from tests.reports import sample

RAW = gzip.compress(msgspec.json.encode(sample.results()))


def packed(folder: Path, raw: bytes = RAW) -> Path:
    folder.mkdir(parents=True)
    (folder / "results.json.gz").write_bytes(raw)
    return folder / "results.json.gz"


def test_they_are_read_like_plain_ones_which_count_first(tmp_path: Path) -> None:
    file, plain = packed(tmp_path / "run"), tmp_path / "run" / "results.json"
    assert results_in(tmp_path) == tmp_path / "results.json"
    save(sample.results(), tmp_path / "results.json")
    assert load(file) == load(file.parent) == load(tmp_path)
    save(sample.unprofiled_results(), plain)
    assert load(file.parent) == load(plain) != load(file)


def test_every_run_below_a_folder_is_found_once(tmp_path: Path) -> None:
    a, c, b = packed(tmp_path / "a"), packed(tmp_path / "b" / "c"), tmp_path / "b" / "results.json"
    for name in ("results.json", "results.json.gz", "results.json.0a1b2c3d.part"):
        b.with_name(name).touch()
    assert all_results(tmp_path) == [a, b]
    assert all_results(tmp_path, "**") == [a, c, b]


@pytest.mark.parametrize("raw", [b"", RAW[4:], RAW[:900]], ids=["empty", "headless", "cut"])
def test_damaged_ones_are_refused_in_one_line(tmp_path: Path, raw: bytes) -> None:
    file = packed(tmp_path / "run", raw)
    with pytest.raises(ResultsError, match=rf"^{file}: not a results file of this program \(.*\); name a [^\n]*$"):
        load(file.parent)


def test_what_unpacks_to_more_than_memory_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "MOST_BYTES", 1 << 20)
    with pytest.raises(ResultsError, match=r"results\.json\.gz: more than 1 MiB"):
        load(packed(tmp_path / "run", gzip.compress(bytes(4 << 20))))
