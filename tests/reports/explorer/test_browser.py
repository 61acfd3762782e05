from __future__ import annotations

import os
import webbrowser
from pathlib import Path

import pytest

from ladder.records.run import save
from reports.explorer import browser
from reports.render import show_page
from tests.reports import sample


class Window:
    """A browser with windows, which remembers what it was asked for."""

    asked: list[str]

    def __init__(self) -> None:
        self.asked = []

    def open(self, link: str) -> bool:
        self.asked.append(link)
        return True


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save(sample.results(), tmp_path / "results.json")
    return tmp_path


def test_without_a_browser_the_link_is_printed(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> None:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.delenv("BROWSER", raising=False)
    monkeypatch.setattr(webbrowser, "get", none)
    show_page(run, run, run)
    link, told = capsys.readouterr().out.splitlines()
    assert link == (run / "report.html").as_uri()
    assert told.startswith("No browser opened here.")


def test_a_text_browser_is_not_opened_unless_the_user_chose_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    window = Window()
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("w3m"))
    monkeypatch.setattr(webbrowser, "open", window.open)
    monkeypatch.delenv("BROWSER", raising=False)
    browser.show(tmp_path / "report.html")
    assert window.asked == []
    monkeypatch.setenv("BROWSER", "w3m")
    browser.show(tmp_path / "report.html")
    assert window.asked == [(tmp_path / "report.html").as_uri()]


def test_a_page_is_rendered_again_only_if_the_results_are_newer(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window()
    monkeypatch.setattr(webbrowser, "get", lambda: window)
    monkeypatch.setattr(webbrowser, "open", window.open)
    show_page(run / "results.json", run, run)
    page = run / "report.html"
    page.write_text("mine")
    show_page(run, run, run)
    assert page.read_text() == "mine"
    later = page.stat().st_mtime + 10
    os.utime(run / "results.json", (later, later))
    show_page(run, run, run)
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert window.asked == [page.as_uri()] * 3
