"""Limits are measured once a day, and anew for another GPU, driver or way to measure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ladder.machine import limits as module
from ladder.machine.limits import keep_limits, kept_limits
from ladder.records.limits import SHARED, Chip, Limit, LimitsRecord

MACHINE: dict[str, Any] = {"gpu": {"name": "H200", "driver": "580.65"}, "cpu": {"model": "EPYC"}, "libraries": {}}
LIMITS = LimitsRecord(Chip(132, 60 << 20, 0), [Limit("launch", "launch", "us", 3.0, 2.9, 3.1)], {}, 7.0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_CACHE_DIR", str(tmp_path))


def test_they_are_found_again_and_say_when_they_were_measured() -> None:
    assert kept_limits(MACHINE) is None
    keep_limits(MACHINE, LIMITS)
    found = kept_limits(MACHINE)
    assert found is not None
    assert found.measured
    assert replace(found, measured="") == LIMITS


def test_another_driver_or_source_has_limits_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep_limits(MACHINE, LIMITS)
    assert kept_limits({**MACHINE, "gpu": {"name": "H200", "driver": "590.10"}}) is None
    changed = tmp_path / "primitives.py"
    changed.write_text("samples = 3\n")
    monkeypatch.setattr(module, "MEASURED_BY", (changed,))
    assert kept_limits(MACHINE) is None


def test_the_next_day_measures_anew_and_forgets_the_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep_limits(MACHINE, LIMITS)
    (kept,) = (tmp_path / "limits").iterdir()
    kept.rename(kept.with_name(f"2020-01-01.{kept.name.partition('.')[2]}"))
    assert kept_limits(MACHINE) is None
    keep_limits(MACHINE, LIMITS)
    assert [file.name for file in (tmp_path / "limits").iterdir()] == [kept.name]


def test_disturbed_limits_and_damaged_files_are_not_used(tmp_path: Path) -> None:
    keep_limits(MACHINE, replace(LIMITS, skipped={"launch": SHARED}))
    assert kept_limits(MACHINE) is None
    keep_limits(MACHINE, LIMITS)
    (kept,) = (tmp_path / "limits").iterdir()
    kept.write_text("{}")
    assert kept_limits(MACHINE) is None
