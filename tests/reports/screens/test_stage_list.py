from __future__ import annotations

import pytest

from ladder.machine import environment
from ladder.records.expectation import Listed
from ladder.run.entries import all_entries, listed
from reports.facts import numbers
from reports.screens.stage_list import stage_list_screen
from reports.writers.terminal import write_terminal
from stages.registry import select
from tests.reports.terminal.screens import screen, too_wide

WAY = "This machine has no NVIDIA GPU; on one with a GPU and driver 525 or newer: `make ladder`"
NO_GPU = "no CUDA device: no NVIDIA driver (libcuda.so.1 not found)"


def text_of(stages: list[Listed], width: int, way: str | None = WAY) -> str:
    return screen(lambda console: write_terminal(stage_list_screen(stages, way), console), width)


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[Listed]:
    """The ladder's own stages on a machine without a GPU."""
    monkeypatch.setattr(environment, "_no_device", lambda: NO_GPU)
    return [one._replace(missing=NO_GPU if "cuda" in one.needs else "") for one in listed(())]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_every_stage_is_one_line_and_none_is_too_wide(stages: list[Listed], width: int) -> None:
    text = text_of(stages, width)
    assert too_wide(text, width) == []
    assert too_wide(text_of(listed((), (512, 512), 256), width, None), width) == []
    first_words = [line.split()[0] for line in text.splitlines() if line]
    assert all(first_words.count(stage.name) == 1 for stage in stages)
    assert width < 200 or "loss read once per epoch" in text
    assert not any(word in text for word in ("MetricsEveryEpoch", "AMP"))


def test_the_list_is_short_and_says_once_what_is_missing(stages: list[Listed]) -> None:
    text = text_of(stages, 80)
    assert len(text.splitlines()) < len(stages) + 36
    words = " ".join(text.split())
    assert words.count("no CUDA device") == 1
    assert words.count("`make ladder`") == 1
    in_all = len(select(["all"], all_entries(())[0], networks=2, gpus=2))
    among = f"{len(stages)} stages, counting {len(stages) - in_all} ablations,"
    assert f"{sum(bool(one.missing) for one in stages)} of {among} cannot run here: {NO_GPU}." in words


def test_a_stage_that_a_run_leaves_out_without_an_option_names_the_option(stages: list[Listed]) -> None:
    text = text_of([one._replace(missing=one.missing or NO_GPU * ("gpu" in one.needs)) for one in stages], 200)
    rows = {words[0]: words[-1] for line in text.splitlines() if (words := line.split())}
    assert (rows["cpu-loops"], rows["cpu-fleet"], rows["fleet-graph"]) == ("yes", "--networks", "no")
    assert "Marked --networks: runs only with that option." in text
    everywhere = text_of([stage._replace(missing="") for stage in stages], 200)
    assert "Marked --networks and --gpus: runs only with that option." in everywhere
    entries = all_entries(())[0]
    alone, several, two = (select(["all"], entries, networks=n, gpus=gpus) for n, gpus in ((1, 1), (2, 1), (1, 2)))
    for option, found in (("networks", several), ("gpus", two)):
        added = {one.stage.name for one in found} - {one.stage.name for one in alone}
        assert {stage.name for stage in stages if stage.only_with == option and stage.group != "devices"} == added, (
            option
        )
    assert "Marked" not in text_of([stage for stage in stages if not stage.only_with], 200)


def test_few_stages_are_named_with_their_reason() -> None:
    two = [Listed("naive", "", "ladder", "Naive", "cuda", ""), Listed("mine", "naive", "beyond", "Mine", "x", "no x")]
    text = text_of(two, 80, None)
    assert "mine cannot run here: no x." in text
    assert "More stages" in text  # a user's own
    assert "make ladder" not in text
    assert "All 1 run here." in text_of(two[:1], 80, None)


def test_the_ladder_on_the_cpu_has_a_heading_of_its_own(stages: list[Listed]) -> None:
    lines = text_of(stages, 80).splitlines()
    assert lines[lines.index("The same ladder on the CPU") + 1].startswith("cpu-loops ")
    assert "More stages" not in lines


def test_a_network_has_estimates_that_are_marked_as_such() -> None:
    named = {stage.name: stage for stage in listed((), (512, 512), 256)}
    losing = named["persistent-grid"].expected
    assert losing is not None
    assert losing.loses_to == "exact-u8"
    text = text_of(list(named.values()), 120, None)
    assert "Expected on an NVIDIA H200, by a model of recorded runs; nothing was measured." in text
    assert f"persistent-grid: {losing.remark}." in text
    row = next(line.split() for line in text.splitlines() if line.startswith("persistent-grid "))
    assert row[1:4] == [f"{losing.us:.1f}", f"{losing.error:.0%}", numbers.ratio(losing.times_from)]
    assert "xpected" not in text_of(listed(()), 120, None)


def test_stages_that_do_not_take_the_network_are_left_out_with_the_reason() -> None:
    every = listed((), (512, 512), 256)
    named = {stage.name: stage._replace(missing="") for stage in every}  # on a machine that has all
    assert not any(stage.misfit for stage in listed(()))
    text = text_of(list(named.values()), 120, None)
    rows = {words[0]: words[-1] for line in text.splitlines() if (words := line.split())}
    assert (rows["persistent-grid"], rows["cluster-ahead"], rows["cpu-fleet"]) == ("yes", "no", "--networks")
    said = " ".join(text.split())
    reason = "Needs one hidden layer; the network has 2. Closest rung here: persistent-grid."
    assert f"Left out: cluster-ahead and cluster-ahead-fp16. {reason}" in said
    assert "jax-vmap. Trains several networks at once; add --networks or --learning-rates." in said
    assert "run here" not in said
