from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.machine.limits import PRIMITIVES
from ladder.records.limits import Chip, Limit, LimitsRecord
from ladder.records.run import save
from reports.markdown.method_limits import EARLIER_US, MARKERS, limits_are_current, limits_table, update_limits
from reports.markdown.readme import ReadmeError
from tests.reports import sample

ROOT = Path(__file__).parents[3]


def record(**medians: float) -> LimitsRecord:
    limits = [Limit(name, f"the {name}", "us", us, us, us) for name, us in medians.items()]
    return LimitsRecord(Chip(132, 60 << 20, 64 << 20), limits, {}, 4.5)


def test_the_document_shows_the_recorded_runs() -> None:
    document, reference = ROOT / "docs" / "method.md", ROOT / "results" / "reference"
    again = "`python run_ladder.py readme` writes it again"
    assert limits_are_current(document, ROOT / "README.md", reference), again


def test_every_earlier_time_is_of_a_primitive_in_us() -> None:
    assert set(EARLIER_US) <= {primitive.name for primitive in PRIMITIVES if primitive.unit == "us"}


def test_deviations_are_shown_and_said() -> None:
    told = limits_table([("a", record(launch=3.6, grid_barrier=0.69)), ("b", record(launch=3.96))])
    assert "| Primitive, us | Earlier | a | b | Furthest from earlier | Runs differ by |" in told
    assert "| the launch | 3.60 | 3.60 | 3.96 | +10% | 10% |" in told
    assert "| the grid_barrier | 0.920 | 0.690 | - | -25% | - |" in told
    assert "More than 15% from the earlier value in at least one run: the grid_barrier (-25%)." in told
    assert "More than 5% apart between runs: the launch (10%)." in told
    told = limits_table([("a", record(launch=3.6)), ("b", record(launch=3.7))])
    assert told.endswith(" in at least one run: none. More than 5% apart between runs: none.")


def test_the_table_stands_between_the_markers_and_is_of_the_h200_alone(tmp_path: Path) -> None:
    document, reference = tmp_path / "method.md", tmp_path / "results" / "reference"
    begin, end = MARKERS
    document.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    for gpu, us in (("h200", 3.5), ("rtx-3060", 9.0)):
        folder = reference / gpu / "logistic"
        folder.mkdir(parents=True)
        save(replace(sample.results(), limits=record(launch=us)), folder / "results.json")
    assert update_limits(document, tmp_path / "README.md", reference)
    text = document.read_text()
    assert text.startswith(f"before\n{begin}\n\n| Primitive, us | Earlier | logistic |")
    assert text.endswith(f"{end}\nafter\n")
    assert "9.00" not in text
    assert not update_limits(document, tmp_path / "README.md", reference)


def test_a_document_without_recorded_runs_names_none(tmp_path: Path) -> None:
    document = tmp_path / "method.md"
    document.write_text("".join(MARKERS))
    assert update_limits(document, tmp_path / "README.md", tmp_path / "none")
    assert "No run is recorded." in document.read_text()
    document.write_text("nothing")
    with pytest.raises(ReadmeError, match=r"method.md: has no <!-- limits:begin -->"):
        update_limits(document, tmp_path / "README.md", tmp_path / "none")
