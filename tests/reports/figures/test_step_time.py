from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from reports.facts.study_points import load_results, point_winners
from reports.figures.lead_panels import Contest, note
from reports.figures.run_figures import study_drawings
from tests.reports.figures.svg import words


def test_a_lead_is_the_quotient_of_the_two_times_that_are_drawn() -> None:
    results = load_results(Path("results/reference/h200/studies/hidden-size"))
    for winner in point_winners(results):
        one = Contest(0.0, winner)
        lead = winner.lead.ratio.times
        assert one.reference_us.median / one.rung_us.median == pytest.approx(lead, rel=5e-3)
        assert one.rung_us.median == pytest.approx(winner.lead.reference_us / lead, rel=5e-3)


def test_a_lead_within_noise_is_grey_and_one_that_lacks_a_reference_says_so() -> None:
    winner = next(point_winners(load_results(Path("results/reference/h200/studies/hidden-size"))))
    ratio = dataclasses.replace(winner.lead.ratio, interval=(0.9, 1.1))
    noisy = dataclasses.replace(winner, lead=dataclasses.replace(winner.lead, ratio=ratio))
    lacking = dataclasses.replace(winner, missing=["torch-graph"])
    assert "Grey: within noise." in note([Contest(0.0, noisy)])
    assert Contest(0.0, lacking).words == f"≤ {Contest(0.0, winner).words}"
    assert "≤" in note([Contest(0.0, lacking)])
    assert {"Grey:", "≤:", "*:"}.isdisjoint(note([Contest(0.0, winner)]).split())


def test_every_winner_is_named() -> None:
    results = load_results(Path("results/reference/h200/studies/hidden-size"))
    ((_, canvas),) = study_drawings(results)
    names = {one.name for winner in point_winners(results) for one in (winner.lead.stage, winner.lead.reference)}
    assert names <= {text.partition("  ")[0] for text in words(canvas.svg())}
