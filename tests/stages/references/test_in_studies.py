"""Every study has the strongest references at each of its points."""

from __future__ import annotations

from pathlib import Path

import pytest

from ladder.study.points import options_at
from ladder.study.study_file import read_study
from stages.registry import load_all

STRONGEST = {"torch-graph", "torch-graph-amp", "jax-scan", "jax-scan-bf16"}
OF_SEVERAL = {"jax-vmap"}  # the faster one on a GPU, where several networks train
STUDIES = sorted((Path(__file__).parents[3] / "experiments").glob("*.toml"))


@pytest.mark.parametrize("path", [path for path in STUDIES if path.stem != "loss-curves"], ids=lambda path: path.stem)
def test_no_point_of_a_study_is_without_its_strongest_references(path: Path) -> None:
    entries = load_all()
    for point in read_study(path, "", "").points:
        strongest = OF_SEVERAL if "networks" in point.values else STRONGEST
        assert set(options_at(point, entries).stages) >= strongest, point.name
