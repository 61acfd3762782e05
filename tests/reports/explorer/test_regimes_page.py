"""The regimes in a browser: the nearest measured point answers, and says so where it is not the reader's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ladder.records.run import Results
from reports.explorer.regimes_page import render_regimes
from reports.facts.study_points import StudyResults
from reports.writers.html import asset
from tests.browser import Open, Opened
from tests.reports.explorer.test_page import HOSTILE
from tests.reports.study_sample import run_at, study_results

SCRIPT = '<script src="regimes.js"></script>'


def page_of(tmp_path: Path, runs: dict[str, Results], studies: dict[str, StudyResults]) -> Path:
    """A file with the regimes alone, whose script stands in it."""
    text = render_regimes(runs, studies)
    assert SCRIPT in text
    page = tmp_path / "regimes.html"
    script = f"<script>{asset('regimes.js')}</script>"
    page.write_text(f"<!DOCTYPE html>{text.replace(SCRIPT, script)}", encoding="utf-8")
    return page


@pytest.fixture
def regimes(tmp_path: Path, open_page: Open) -> Opened:
    """Three hidden layers: of 64 and 128 with a batch of 32, from a study, and of 512 with one of 256, from a run."""
    page = page_of(tmp_path, {"runs/a.html": run_at(512, 256)}, {"studies/a.html": study_results([64, 128, 256])})
    return open_page(page, "#layers=3&width=64&batch=32", ready=".nearby:not([hidden])")


def put(opened: Opened, name: str, value: int) -> None:
    opened.page.fill(f"#{name}", str(value))


def test_a_measured_network_is_answered_with_its_winner_and_lead(regimes: Opened) -> None:
    assert regimes.text(".told").startswith("Measured.")
    assert regimes.page.locator(".answer:visible").count() == 1
    answer = regimes.text(".answer:visible")
    assert "bf16-gemm wins, within noise of cublas, at 784-64-64-64-10, batch 32, on NVIDIA H200" in answer
    assert regimes.page.get_attribute(".answer:visible p a", "href") == "studies/a.html#hidden-64:bf16-gemm&all"
    assert "Its lead over jax-scan" in answer
    assert regimes.page.get_attribute(".answer:visible .note a", "href") == "studies/a.html#hidden-64:/"


def test_a_network_that_was_not_measured_gets_the_nearest_one_and_is_told_so(regimes: Opened) -> None:
    put(regimes, "width", 120)
    put(regimes, "batch", 33)
    told = regimes.text(".told")
    assert told.startswith("Not measured: 784-120-120-120-10, batch 33.")
    assert "128 units, not 120; batch 32, not 33" in told
    assert "far from yours" not in told
    assert "python run_ladder.py --hidden 120,120,120 --batch-size 33" in told
    assert "at 784-128-128-128-10, batch 32" in regimes.text(".answer:visible h2")
    put(regimes, "layers", 0)
    assert "far from yours" in regimes.text(".told")
    assert "--hidden none" in regimes.text(".told")
    assert regimes.page.is_disabled("#width")


def test_the_sliders_stop_at_measured_values_alone(regimes: Opened) -> None:
    slider = regimes.page.locator("#width + *, input[aria-label^='Units']").first
    slider.focus()
    widths = []
    for _ in range(3):
        widths.append(regimes.ask("document.querySelector('#width').value"))
        slider.press("ArrowRight")
    assert widths == ["64", "128", "512"]
    assert regimes.page.url.endswith("#layers=3&width=512&batch=32")
    assert "Not measured" in regimes.text(".told")  # width and batch were measured, but not together


def test_one_changed_setting_shows_the_next_winner_or_that_there_is_none(regimes: Opened) -> None:
    rows = dict(line.split("\t", 1) for line in regimes.text(".nearby tbody").splitlines())
    assert rows["Wider"].startswith("128\tbf16-gemm")
    assert rows["Larger batch"].startswith("not measured")
    regimes.page.click(".nearby a")
    assert regimes.page.url.endswith("#layers=3&width=128&batch=32")
    regimes.page.wait_for_selector(".answer:visible h2:has-text('784-128-128-128-10')")


def test_an_address_without_sense_shows_some_measured_point(regimes: Opened) -> None:
    for place in ("#layers=x&width=&batch=-3", "#nonsense", "#layers=1e99&width=0.2&batch=NaN"):
        regimes.ask(f"location.hash = {place!r}")
        regimes.page.wait_for_function("place => location.hash === place", arg=place)
        assert regimes.page.locator(".answer:visible").count() == 1


def test_a_hostile_name_is_text(tmp_path: Path, open_page: Open) -> None:
    results = study_results([64, 128])
    study = replace(results.study, title=HOSTILE)
    opened = open_page(
        page_of(tmp_path, {}, {'"><img src=x>': StudyResults(study, results.runs)}), ready=".nearby:not([hidden])"
    )
    assert HOSTILE in opened.text(".note")
    assert opened.page.locator("img").count() == 0


def test_the_picture_has_a_cell_for_every_point_and_marks_the_one_that_answers(regimes: Opened) -> None:
    cells = regimes.page.locator(".wide a.place")
    assert cells.count() == 3
    chosen = ".wide a.place.chosen"
    assert regimes.page.get_attribute(chosen, "data-width") == "64"
    regimes.page.click(".wide a.place[data-width='512']")
    assert regimes.page.url.endswith("#layers=3&width=512&batch=256")
    regimes.page.wait_for_selector(f"{chosen}[data-width='512']")  # the event follows the address
    assert "at 784-512-512-512-10, batch 256" in regimes.text(".answer:visible h2")
    assert "3 hidden layers of 64, batch 32: bf16-gemm" in (
        regimes.page.get_attribute(".wide a.place[data-width='64']", "aria-label") or ""
    )


def test_another_gpu_has_its_own_answers_and_picture(tmp_path: Path, open_page: Open) -> None:
    other = run_at(64, 32)
    gpu = {**other.environment["gpu"], "name": "NVIDIA B200"}
    other = replace(other, environment={**other.environment, "gpu": gpu})
    page = page_of(tmp_path, {"runs/a.html": run_at(512, 256), "runs/b.html": other}, {})
    opened = open_page(page, "#layers=3&width=512&batch=256", ready=".nearby:not([hidden])")
    gpus = opened.ask("[...document.querySelectorAll('#gpu option')].map(one => one.value)")
    assert gpus == ["NVIDIA B200", "NVIDIA H200"]
    assert "784-64-64-64-10, batch 32" in opened.text(".answer:visible h2")
    opened.page.select_option("#gpu", "NVIDIA H200")
    assert "784-512-512-512-10, batch 256" in opened.text(".answer:visible h2")
    assert opened.page.locator("section[data-gpu]:visible .wide a.place").count() == 1
