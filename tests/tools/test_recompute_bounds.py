"""Recorded bounds are those that today's cost model computes, and a bound above a measured time is told."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from ladder.records.run import StageResult, load
from ladder.verify.gates import SPEED_CHECK
from tools import recompute_bounds

RUN = recompute_bounds.FOLDER / "h200" / "hidden-256" / "results.json"
pytestmark = pytest.mark.skipif(not RUN.exists(), reason="no run is recorded under results/reference")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of a recorded run."""
    return Path(shutil.copy(RUN, tmp_path / "results.json"))


def test_recorded_bounds_are_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted(recompute_bounds.FOLDER.rglob("results.json"))
    for number, file in enumerate(files):
        (tmp_path / str(number)).mkdir()
        shutil.copy(file, tmp_path / str(number))
    assert recompute_bounds.main(tmp_path) == 0, capsys.readouterr().out
    for number, file in enumerate(files):
        again = load(tmp_path / str(number))
        for old, new in zip(load(file).stages, again.stages, strict=True):
            assert numbers_of(new) == pytest.approx(numbers_of(old), rel=1e-9), (file, old.name)


def numbers_of(stage: StageResult) -> list[float]:
    """The cheat limit and the floor of a stage, as far as it has them."""
    bounds = stage.bounds
    return [bound for bound in (bounds.cheat_limit_us, bounds.design_floor_us) if bound is not None] if bounds else []


def test_outdated_bounds_are_replaced_and_nothing_else(copy: Path) -> None:
    raw = msgspec.json.decode(copy.read_bytes())
    (naive,) = (stage for stage in raw["stages"] if stage["name"] == "naive")
    naive["floor"] = {"physical_us": 7.0, "design": None}
    (check,) = (check for check in naive["checks"] if check["what"] == SPEED_CHECK)
    check.update(what=recompute_bounds.EARLIER_CHECK, error=0.5)
    copy.write_bytes(msgspec.json.encode(raw))
    assert recompute_bounds.main(copy.parent) == 0
    assert msgspec.json.decode(copy.read_bytes()) == msgspec.json.decode(RUN.read_bytes())


@pytest.mark.parametrize(("faster", "what"), [(1.5, "floor"), (1000.0, "cheat limit")])
def test_a_time_below_its_bound_is_told(
    copy: Path, faster: float, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = msgspec.json.decode(copy.read_bytes())
    (stage,) = (stage for stage in raw["stages"] if stage["name"] == "cudnn-softmax")
    stage["timing"]["step_us"] /= faster * 2
    copy.write_bytes(msgspec.json.encode(raw))
    assert recompute_bounds.main(copy.parent) == 1
    assert f"cudnn-softmax: {what} " in capsys.readouterr().out
