"""Opens a page in the reader's browser."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path


def open_page(page: Path) -> None:
    """Print the page's link, and open it in a browser that can draw it, if there is one."""
    link = page.resolve().as_uri()
    print(link)
    if _has_browser() and webbrowser.open(link):
        return
    print("No browser opened here. Open the link, or copy report.html: it is one file.")


def _has_browser() -> bool:
    """Whether there is a browser with windows, or one that the user chose; text browsers run no script."""
    if os.environ.get("BROWSER"):
        return True
    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False
