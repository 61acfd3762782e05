"""Study files: the points that they make, and the mistakes that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import UsageError
from ladder.records.study import Published, Study
from ladder.study.study_file import point_options, read_study, varied_study, with_settings
from ladder.study.study_session import options_at
from stages.registry import load_all

EXPERIMENTS = sorted((Path(__file__).parents[3] / "experiments").glob("*.toml"))
CROSSED = """
title = "T"
stages = "numpy"
depth = 2
max_steps = 100

[vary]
hidden = [8, 16]
seed = [0, 1]

[[where]]
hidden = 16
max_steps = 10

[[where]]
hidden = [16]
seed = [1]
stages = ["naive"]

[[published]]
who = "them"
what = "an epoch"
value = "750 ms"
gpu = "H100"
"""


def read(tmp_path: Path, text: str) -> Study:
    path = tmp_path / "try.toml"
    path.write_text(text)
    return read_study(path, "command", "2026-01-01")


def test_two_settings_are_crossed_and_where_changes_some_points(tmp_path: Path) -> None:
    study = read(tmp_path, CROSSED)
    assert (study.name, study.title, study.varied) == ("try", "T", ["hidden", "seed"])
    assert [point.name for point in study.points] == [
        "hidden-8.seed-0", "hidden-8.seed-1", "hidden-16.seed-0", "hidden-16.seed-1",
    ]  # fmt: skip
    assert [point.values for point in study.points][1] == {"hidden": 8, "seed": 1}
    assert [point.settings["max_steps"] for point in study.points] == [100, 100, 10, 10]
    assert [point.settings["stages"] for point in study.points] == ["numpy", "numpy", "numpy", ["naive"]]
    assert point_options(study.points[3])["hidden"] == (16, 16)
    assert {point.status for point in study.points} == {"waiting"}
    assert study.published == [Published("them", "an epoch", "750 ms", "H100")]


def test_a_study_may_vary_nothing_or_lists_of_layers(tmp_path: Path) -> None:
    (point,) = read(tmp_path, "epochs = 3").points
    assert (point.name, point.values, point.settings) == ("run", {}, {"epochs": 3, "stages": "all"})
    text = "[vary]\nhidden = [[], [8], [8, 4]]\n[[where]]\nhidden = [[8, 4], [8]]\nepochs = 3"
    study = read(tmp_path, text)
    assert [point.name for point in study.points] == ["hidden-none", "hidden-8", "hidden-8-4"]
    assert [point_options(point).get("epochs") for point in study.points] == [None, 3, 3]
    assert [point_options(point)["hidden"] for point in study.points] == [(), (8,), (8, 4)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("repeats = 1000", "repeats = 1000: must be a whole number from 1 to 450"),
        ("titel = 'T'", "titel: there is no such key; did you mean title?"),
        ("title = 3", "title = 3: must be text"),
        ("epochs = 3\n[vary]\nhiden = [8]", "hiden: cannot be varied; allowed are hidden, depth, batch_size"),
        ("[vary]\nhidden = 8", "hidden: must be a list of values"),
        ("[vary]\nhidden = []", "hidden: must be a list of values"),
        ("[vary]\nbatch_size = [8, '9']", 'batch_size = "9": must be a whole number'),
        ("[vary]\nbatch_size = [8, 8]", "batch_size: has a value twice"),
        ("[vary]\nprecision = ['1%']", "precision: cannot be varied; allowed are hidden, depth, batch_size"),
        ("[vary]\nseed = [1]\nhidden = [1]\nepochs = [1]", "vary: varies seed, hidden, epochs; a study varies at"),
        ("epochs = 3\n[vary]\nepochs = [1]", "epochs: is varied by [vary]; leave it out here"),
        ("vary = 3", "vary = 3: must be a table"),
        ("[where]\nhidden = 3", "where = {'hidden': 3}: must be tables, each begun by [[where]]"),
        ("[vary]\nseed = [1]\n[[where]]\nepochs = 3", "where: chooses no point"),
        ("[vary]\nseed = [1]\n[[where]]\nseed = 1", "where: changes no setting"),
        ("[vary]\nseed = [1]\n[[where]]\nseed = 1\nepochs = 3\n[[where]]\nseed = 2\nepochs = 4",
         "seed = 2: is not among the values in [vary]"),
        ("[vary]\nseed = [1]\n[[where]]\nseed = 1\nepochs = 0", "epochs = 0: must be a whole number"),
        ("[vary]\nseed = [1]\n[[where]]\nseed = 1\nepoch = 1", "epoch: there is no such key in [where]; did you"),
        ("[vary]\nhidden = [[8, 8]]\n[[where]]\nhidden = [[8, 8]]\ndepth = 2", "depth = 2: hidden is already a"),
        ("depth = 2\n[vary]\nhidden = [[8, 8]]", "depth = 2: hidden is already a list of layers"),
        ("[vary]\ndepth = [0, 1]", "depth = 1: needs the width"),
        ("[[published]]\nwho = 'them'", "published: Object missing required field `what`"),
        ("[[published]]\nwho = 'them'\nspeed = 'fast'", "speed: there is no such key in [published]"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'try.toml'}: {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stages = 'nunpy'", "run: stage 'nunpy': unknown; did you mean numpy?"),
        ("at_once = 2\nprofile = 'cupti'", "run: --at-once 2: measures no times, which --profile needs"),
        ("epochs = 2\nvalidate_every = 3", "run: validate every 3: must be"),
    ],
)
def test_an_impossible_point_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    last = read(tmp_path, text).points[-1]
    with pytest.raises(UsageError) as refused:
        options_at(last, load_all())
    assert str(refused.value).startswith(said)


def test_settings_of_the_command_line_win_at_every_point(tmp_path: Path) -> None:
    study = with_settings(read(tmp_path, CROSSED), {"stages": "cublas", "rounds": 1})
    found = [options_at(point, load_all()) for point in study.points]
    assert {(options.stages, options.rounds) for options in found} == {(("cublas",), 1)}


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_has_valid_points(path: Path) -> None:
    study = read_study(path, "", "")
    assert study.question
    for point in study.points:
        assert options_at(point, load_all()).stages


def test_a_study_of_the_number_of_networks_adds_the_stages_of_several() -> None:
    study = varied_study({"networks": [1, 3]}, "command", "now")
    found = [options_at(point, load_all()) for point in study.points]
    assert [one.trained_networks for one in found] == [1, 3]
    assert ["numpy-stacked" in one.stages for one in found] == [False, True]
