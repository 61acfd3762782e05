from __future__ import annotations

import tempfile
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
    browser.open_page(tmp_path / "report.html")
    assert window.asked == []
    monkeypatch.setenv("BROWSER", "w3m")
    browser.open_page(tmp_path / "report.html")
    assert window.asked == [(tmp_path / "report.html").as_uri()]


def test_a_page_is_made_anew_since_a_stranger_s_may_hold_anything(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    window = Window()
    monkeypatch.setattr(webbrowser, "get", lambda: window)
    monkeypatch.setattr(webbrowser, "open", window.open)
    page = run / "report.html"
    page.write_text("<script>anything</script>")
    show_page(run / "results.json", run, run)
    ours = page.read_text()
    assert ours.startswith("<!DOCTYPE html>")
    page.unlink()
    page.mkdir()  # nothing can be written there
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("other")))
    show_page(run, run, run)
    assert window.asked[0] == page.as_uri()
    assert Path(window.asked[1].removeprefix("file://")).read_text() == ours
