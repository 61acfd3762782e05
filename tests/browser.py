"""A headless Chromium, and pages opened in it from files; without Chromium or Playwright these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
READY = "html.ready"


@dataclass
class Opened:
    """A page in the browser, and what it said and asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)  # errors and warnings on its console, and exceptions
    requests: list[str] = field(default_factory=list)
    files: tuple[str, ...] = (".html",)  # the endings of files that it may ask for

    def complain(self, text: str) -> None:
        """Keep what the page said, and close it: a test that waits for the rest of the page fails at once with it."""
        self.complaints.append(text)
        self.page.close(reason=text)

    def go(self, place: str) -> None:
        """Follow the address to a view or a rung, such as `#cuda-graph`."""
        self.page.evaluate("place => { location.hash = place; }", place)
        self.page.wait_for_selector(f"html[data-place='{place}']")

    def text(self, selector: str = "#view") -> str:
        """The text of an element as it is shown."""
        return self.page.inner_text(selector)

    def ask(self, script: str) -> Any:
        """The value of a script's expression."""
        return self.page.evaluate(script)


Open = Callable[..., Opened]


def violations(opened: Opened, *, only_colours: bool = False) -> list[str]:
    """The rules of accessibility that the page breaks, each with the first place; themes differ in colours alone."""
    axe = pytest.importorskip("axe_playwright_python.base").AXE_SCRIPT
    # It would fetch style sheets, which a page from a file may not, and tell of every element that breaks no rule.
    options: dict[str, Any] = {"preload": False, "resultTypes": ["violations"]}
    if only_colours:
        options["runOnly"] = ["color-contrast"]
    if not opened.ask("'axe' in window"):
        opened.ask(axe)
    told = "one => one.id + ': ' + one.nodes[0].html.slice(0, 120)"
    script = f"options => axe.run(options).then(found => found.violations.map({told}))"
    broken: list[str] = opened.page.evaluate(script, options)
    return broken


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """The browser, with a new and empty profile."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH; install it: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed; make test installs it")
    with playwright.sync_playwright() as running:
        profile = tmp_path_factory.mktemp("chromium")
        with running.chromium.launch_persistent_context(
            profile, executable_path=CHROMIUM, headless=True, args=ARGUMENTS
        ) as context:
            yield context


@pytest.fixture
def open_page(context: BrowserContext) -> Iterator[Open]:
    """Opens an HTML file and waits until its script is ready; at the end, no page may have complained or asked."""
    pages: list[Opened] = []

    def opened(
        path: Path,
        place: str = "",
        *,
        width: int = 1280,
        theme: Literal["light", "dark"] = "light",
        before: str = "",
        ready: str = READY,
        files: tuple[str, ...] = (),
    ) -> Opened:
        """Open at a place; a script may run `before` those of the page, which may ask for `files` with such endings."""
        one = Opened(context.new_page(), files=(".html", *files))
        pages.append(one)
        one.page.add_init_script(before)
        one.page.on("console", lambda said: one.complain(said.text) if said.type != "log" else None)
        one.page.on("pageerror", lambda error: one.complain(error.stack or str(error)))
        one.page.on("request", lambda request: one.requests.append(request.url))
        one.page.set_viewport_size({"width": width, "height": 900})
        one.page.emulate_media(color_scheme=theme)
        one.page.goto(path.as_uri() + place)
        one.page.wait_for_selector(ready)
        return one

    yield opened
    for one in pages:
        one.page.close()
        assert one.complaints == [], one.complaints  # pytest shows no values outside of test files
        assert [url for url in one.requests if not url.startswith("file://") or not url.endswith(one.files)] == []
