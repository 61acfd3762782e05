"""The A/A study: what it counts, and that the document says what it prints; data of random pixels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from common.data.dataset import load_dataset
from ladder.records.run import load
from reports.facts.two_runs import Side
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.reports.recorded import run, stage, times
from tools import aa_study
from tools.random_pixels import main


def test_every_way_to_part_an_even_number_is_taken_once_and_of_an_odd_one_all_but_one() -> None:
    found = [{frozenset(one), frozenset(other)} for one, other in aa_study.halves(6)]
    assert len(found) == 10
    assert len({frozenset(pair) for pair in found}) == 10
    assert all(len(one) == len(other) == 3 and not one & other for one, other in found)
    assert all(len(one) == len(other) == 3 and 6 not in (*one, *other) for one, other in aa_study.halves(7))


def test_of_too_many_ways_some_are_drawn_and_always_the_same() -> None:
    found = list(aa_study.halves(24))
    assert len(found) == aa_study.SPLITS
    assert found == list(aa_study.halves(24))
    assert len({tuple(sorted(one)) for one, _ in found}) > aa_study.SPLITS * 0.99
    assert all(sorted([*one, *other]) == list(range(24)) for one, other in found)


def test_false_verdicts_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were intervals drawn from runs instead of processes, drift would make half of these false."""
    jumped = [50.0] * 8 + [52.0] * 8  # a machine that changed once, in the middle
    before, after = list(range(8)), list(range(8, 16))
    mixed = [*before[:4], *after[:4]], [*before[4:], *after[4:]]
    monkeypatch.setattr(aa_study, "halves", lambda count: [(before, after), (after, before), mixed])
    assert aa_study.self_comparisons(Side(jumped, [])) == {"SLOWER": 1, "FASTER": 1, "SAME": 1}
    # Not where the host's own pace has changed with it, by more than what is ever chance.
    slower = [seconds * 1.3 for seconds in jumped[:8]]
    paces = [1.0] * 8 + [1.3] * 8
    assert aa_study.self_comparisons(Side(jumped[:8] + slower, paces)) == {"AMBIGUOUS": 3}
    assert aa_study.self_comparisons(Side(jumped[:8] + slower, [])) == {"SLOWER": 1, "FASTER": 1, "AMBIGUOUS": 1}


def test_those_in_a_row_are_held_against_the_next_ones() -> None:
    jumped = [50.0] * 8 + [60.0] * 8
    assert aa_study.in_order(Side(jumped, []), 8) == "1 of 1"
    assert aa_study.in_order(Side(jumped, [1.0] * 8 + [1.2] * 8), 8) == "0 of 1"
    assert aa_study.in_order(Side(times(50.0, processes=20), []), 8) == "0 of 5"
    assert aa_study.in_order(Side(jumped[:15], []), 8) == "-"


def test_they_are_in_the_order_in_which_they_were_first_measured() -> None:
    kept = stage("numpy", [50.0, 51.0, 52.0])
    again = [replace(stage("numpy", [us]).processes[0], round=1) for us in (61.0, 62.0)]
    found = aa_study.first_attempts(replace(kept, set_aside=again))
    assert found.times == pytest.approx([50.0, 61.0, 52.0])


def test_power_grows_with_the_difference_and_with_the_processes() -> None:
    scattered = Side(np.random.default_rng(0).normal(50, 0.5, 12).tolist(), [])
    false, few = aa_study.power(scattered, 8)
    _, many = aa_study.power(scattered, 24)
    assert false < 0.02
    assert few == sorted(few)
    assert all(one <= other for one, other in zip(few, many, strict=True))
    assert many[2] == 1
    assert aa_study.power(scattered, 2)[1] == [0, 0, 0]


def test_a_study_tells_all_of_it() -> None:
    stages = stage("naive", times(50.0, processes=16)), stage("async", times(50.0, processes=1))
    told = aa_study.study("here", run(*stages))
    assert told.startswith("## here\n\nNVIDIA H200, driver 580.65")
    assert re.search(r"\| `naive` \| 16 \| 0.\d\d% \| 0 \| 1000 \| 1000 \| 0 \| 0 \| 0 \| 1.00\d\d \|", told)
    assert "False verdicts: 0 of 1000 self-comparisons, 0.00%." in told
    assert "async" not in told  # of one process there is nothing to compare


@pytest.fixture(scope="module")
def document() -> str:
    return aa_study.DOCUMENT.read_text(encoding="utf-8")


def test_the_document_says_what_the_recordings_give(document: str) -> None:
    """Two of the recordings, of a GPU and of a CPU: all of them take a quarter of a minute."""
    names = [path.name.removesuffix(".json.gz") for path in sorted(aa_study.RECORDINGS.glob("*.json.gz"))]
    assert [name for name in re.findall(r"^## (.*)$", document, re.MULTILINE) if name in names] == names
    for name in ("h100-80gb-hbm3", "cpu"):
        told = aa_study.study(name, load(aa_study.RECORDINGS / f"{name}.json.gz"))
        assert f"{told}\n" in document, "run `python -m tools.aa_study`, and read the diff"


@pytest.mark.parametrize("name", ["h200", "h100-80gb-hbm3"])
def test_what_is_claimed_of_gpus_is_in_the_recordings(name: str, document: str) -> None:
    recording = load(aa_study.RECORDINGS / f"{name}.json.gz")
    assert all(len(one.processes) >= 12 for one in recording.stages)
    section = document.partition(f"## {name}\n")[2].partition("\n## ")[0]
    ((false, of),) = re.findall(r"False verdicts: (\d+) of (\d+) self-comparisons", section)
    assert int(of) >= 200
    assert int(false) / int(of) <= 0.01
    scatter = dict(re.findall(r"\| `([a-z-]+)` \| \d+ \| ([\d.]+)% \| \d+ \|", section))
    seen = dict(re.findall(r"\| `([a-z-]+)` \| 8 \| [\d.]+% \| [^|]+ \| [^|]+ \| \d+% \| (\d+)% \|", section))
    assert set(scatter) == set(seen) == {one.name for one in recording.stages}
    assert all(int(seen[stage]) >= 90 for stage in seen if float(scatter[stage]) < 1)
    assert all(float(scatter[stage]) < 1 for stage in seen if stage != "naive")  # which waits for its host


def test_what_is_claimed_of_the_cpu_is_in_its_recording(document: str) -> None:
    section = document.partition("## cpu\n")[2].partition("\n## ")[0]
    assert re.search(r"False verdicts: [0-9] of 1000 self-comparisons", section)
    rows = re.findall(r"\| `numpy` \| (\d+) \| [\d.]+% \| ([^|]+) \| ([^|]+) \| \d+% \| (\d+)% \|", section)
    assert int({side: seen for side, _, _, seen in rows}["96"]) >= 90
    by_times, with_pace = ([row[i].split(" of ") for row in rows if row[i] != "-"] for i in (1, 2))
    assert sum(int(of) for _, of in by_times) == sum(int(of) for _, of in with_pace) == 223
    assert (sum(int(false) for false, _ in by_times), sum(int(false) for false, _ in with_pace)) == (33, 0)


def test_only_the_pixels_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "own", quartet_arrays(train=400, test=100))
    monkeypatch.setenv("LADDER_DATA_DIR", str(tmp_path / "own"))
    assert main([str(tmp_path / "random")]) == 0
    own, drawn = (load_dataset(data_dir=tmp_path / name, seed=0) for name in ("own", "random"))
    assert (drawn.image_shape, len(drawn.test.images)) == (own.image_shape, len(own.test.images))
    assert np.array_equal(np.sort(drawn.train.labels), np.sort(own.train.labels))
    assert not np.array_equal(drawn.train.images, own.train.images)
    assert 100 < drawn.train.images.mean() < 155


def test_a_folder_that_exists_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "does not exist yet" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
