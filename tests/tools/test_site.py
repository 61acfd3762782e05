"""The static site: built of everything recorded, small, with links that lead somewhere, and fit to be read."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from msgspec.structs import replace

from ladder.records.run import load
from reports.facts.provenance import machine_name
from reports.markdown.climb import FOLDER, STUDIES
from tests.browser import Open, violations
from tests.reports import sample
from tools.site.__main__ import MOST_BYTES, build
from tools.site.advised import FIRST, said
from tools.site.documents import REFERENCE, ROOT, Records, index

ADDRESS = re.compile(r"""<(?:a|link|img|script|source)\b[^>]*?\s(?:href|src|srcset)="([^"]*)\"""")
RECORDED = ROOT / REFERENCE
PARTS = (".css", ".js", ".svg")  # files that a page of the site may ask for, all its own
CHAPTER = "docs/climb/01-reading-a-timeline.html"
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}
READ = ("index.html", CHAPTER)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if missing := [name for name in ("mkdocs", "pymdownx") if importlib.util.find_spec(name) is None]:
        pytest.skip(f"{missing[0]} is not installed; `make test` installs it")
    folder = tmp_path_factory.mktemp("site")
    assert build(folder) <= MOST_BYTES
    return folder


def test_the_packages_of_the_site_are_installed_for_tests() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(extras["site"]) <= set(extras["dev"])


def test_every_recorded_run_and_study_has_a_page(site: Path) -> None:
    runs = len(list(RECORDED.glob("*/*/results.json.gz")))
    studies = {path.parent.name for path in RECORDED.glob("*/studies/*/study.json")}
    pages, told = {page.stem for page in (site / "studies").iterdir()}, {f"{of}-{name}" for name, of in STUDIES.items()}
    assert len(list((site / "runs").iterdir())) == runs
    assert told <= pages
    assert len(studies) <= len(pages) <= len(studies | told)
    assert all(any(page.endswith(f"-{study}") for page in pages) for study in studies)
    index = (site / "runs.html").read_text(encoding="utf-8")
    assert all(f"runs/{page.name}" in index for page in (site / "runs").iterdir())
    assert {machine_name(load(path)) for path in RECORDED.glob("*/*/results.json.gz")} <= set(
        re.findall("<td>(.*?)</td>", index)
    )


def test_the_climb_shows_the_recorded_numbers(site: Path) -> None:
    naive = next(one for one in load(RECORDED / FOLDER / "logistic").stages if one.name == "naive").timing
    assert naive is not None
    chapter = (site / CHAPTER).read_text(encoding="utf-8")
    assert f"{naive.step_us:.1f} us" in chapter


def test_a_chapter_s_link_to_a_rung_leads_to_the_rung_on_the_run_s_page(site: Path, open_page: Open) -> None:
    opened = open_page(site / "docs" / "climb" / "02-stop-waiting.html", ready="main", files=PARTS)
    opened.page.click("main a[href$='runs/h100-80gb-hbm3-logistic.html#async']")
    opened.page.wait_for_selector("article[data-rung=async]")


def test_the_front_page_shows_what_advise_says_of_the_chosen_network(site: Path, open_page: Open) -> None:
    opened = open_page(site / "index.html", ready="form.advised", files=PARTS)
    for place in (FIRST, ("none", "32", "RTX 4090")):
        for name, value in zip(("hidden", "batch", "gpu"), place, strict=True):
            opened.page.select_option(f"#{name}", value)
        title, times = re.findall(r"^# (.*)|^\| torch-graph \|(.*)", unescape(said(*place)), re.MULTILINE)
        shown = " ".join(opened.text("article.advised:visible").split())
        assert shown.startswith(title[0])
        assert " ".join(times[1].replace("|", " ").split()) in shown


def test_code_and_tables_inside_of_lists_and_details_are_rendered(site: Path) -> None:
    for path in site.glob("docs/climb/*.html"):
        shown = re.sub(r"<(pre|code)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert "```" not in shown
        assert "| ---" not in shown


def test_every_item_of_a_list_is_one(site: Path) -> None:
    merged = re.compile(r"<p>(?:(?!</p>).)*\n\d\. ", re.DOTALL)
    assert [page.name for page in site.glob("docs/**/*.html") if merged.search(page.read_text(encoding="utf-8"))] == []


def test_links_are_relative_and_lead_somewhere(site: Path) -> None:
    assert [found for page in sorted(site.rglob("*.html")) if page.name != "404.html" for found in _dead(page)] == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<a href="gone.html#a">a</a><img class="b" src="/b.svg"><a href="page.html">c</a><a href="#d">d</a>'
    )
    assert list(_dead(page)) == ["page.html: gone.html#a", "page.html: /b.svg"]


def test_nothing_is_requested_from_elsewhere(site: Path) -> None:
    outside = re.compile(r"""<(?:link|img|script|source)\b[^>]*?\s(?:href|src|srcset)="(?:https?:)?//[^"]*""")
    assert [found for page in site.rglob("*.html") for found in outside.findall(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("page", READ)
def test_a_page_breaks_no_rule_of_accessibility_and_fits_a_phone(site: Path, page: str, open_page: Open) -> None:
    for theme in ("light", "dark"):
        opened = open_page(site / page, width=360, theme=theme, ready="main", files=PARTS)
        assert violations(opened, only_colours=theme == "dark") == []
        assert opened.ask("document.documentElement.scrollWidth") <= 360
        opened.page.wait_for_selector(".frame.cut")
        cut = "[...document.querySelectorAll('.frame')].filter(one => one.scrollWidth > one.clientWidth + 1)"
        assert opened.ask(f"{cut}.every(one => one.matches('.cut'))")
        assert opened.ask("getComputedStyle(document.body).backgroundColor") == PAPER[theme]


def test_a_rung_of_the_front_page_leads_to_its_own_place_and_that_page_back(site: Path, open_page: Open) -> None:
    opened = open_page(site / "index.html", ready="main", files=PARTS)
    opened.page.click(".wide a[data-rung=cuda-graph]")
    opened.page.wait_for_selector("article[data-rung=cuda-graph]")
    opened.page.click(".brand .back")
    opened.page.wait_for_selector("h1:has-text('Recorded runs')")
    opened.page.click("main >> text=How the lead changes with the hidden size")
    opened.page.wait_for_selector("html.ready")
    opened.page.click(".brand a >> nth=0")
    opened.page.wait_for_selector("h1:has-text('The optimisation ladder')")


def test_the_chosen_theme_holds_from_page_to_page(site: Path, open_page: Open) -> None:
    opened = open_page(site / "index.html", ready="main", files=PARTS)
    opened.page.click("#theme")
    opened.page.click("header nav >> text=Method")
    opened.page.wait_for_selector("h1:has-text('Method')")
    assert opened.ask("document.documentElement.dataset.theme") == "dark"
    assert opened.ask("getComputedStyle(document.body).backgroundColor") == PAPER["dark"]
    opened.ask("localStorage.clear()")


def test_the_contents_are_open_where_there_is_room(site: Path, open_page: Open) -> None:
    for width, is_open in ((360, False), (1280, True)):
        opened = open_page(site / "docs/statistics.html", width=width, ready="main", files=PARTS)
        assert opened.page.is_visible(".contents >> text=Intervals") is is_open


def _dead(page: Path) -> Iterator[str]:
    for address in ADDRESS.findall(page.read_text(encoding="utf-8")):
        path = unquote(address.partition("#")[0])
        if path and not re.match(r"[a-z]+:", path) and (path.startswith("/") or not (page.parent / path).exists()):
            yield f"{page.name}: {address}"


def test_the_index_shows_names_of_a_record_as_text() -> None:
    run = sample.results()
    named = replace(run, environment={**run.environment, "gpu": {"name": "<b>H200 | x"}})
    lines = index(Records(ROOT, {"runs/sent.html": named}, {}, {}))
    assert [line for line in lines if "<b>" in line] == []
