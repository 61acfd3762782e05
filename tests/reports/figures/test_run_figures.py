from __future__ import annotations

from reports.figures.run_figures import figures
from tests.reports import sample
from tests.reports.figures.svg import SVG, parse


def test_the_same_run_gives_the_same_bytes() -> None:
    first = figures(sample.results())
    assert first == figures(sample.results())
    timelines = {f"timeline-{stage.name}.svg" for stage in sample.results().stages if stage.profiles}
    assert set(first) == {"ladder.svg", "loss_distance.svg", "waterfall.svg", "timelines.svg", *timelines}
    assert set(figures(sample.unprofiled_results())) == {"ladder.svg", "loss_distance.svg"}


def test_text_stays_text_with_a_title_and_colours_for_dark_pages() -> None:
    for name, text in figures(sample.results()).items():
        root = parse(text)
        assert root.findtext(f"{SVG}title"), name
        assert root.findtext(f"{SVG}desc"), name
        assert "@media (prefers-color-scheme: dark)" in text
        assert [one for one in root.iter(f"{SVG}text") if one.text], name


def test_nothing_passed_nothing_drawn() -> None:
    assert figures(sample.nothing_passed()) == {}
