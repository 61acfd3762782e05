"""Build the static site: `python -m tools.site [FOLDER]`, which `make site` does after installing MkDocs.

All links are relative, nothing is requested from elsewhere, and the folder can be opened from a disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from ladder.records.sources import sources_of
from reports.explorer.page import render
from reports.explorer.study_page import render_study_page
from reports.figures.canvas import page_rules
from reports.writers.html import asset
from tools.site.documents import ROOT, Records, navigation, read, write_documents

THEME = Path(__file__).resolve().parent / "theme"
CONFIG = """\
site_name: The optimisation ladder
site_description: One small training step, written again and again for an NVIDIA GPU, timed and checked rung by rung.
docs_dir: pages
site_dir: {site}
use_directory_urls: false
theme: {{name: null, custom_dir: {theme}}}
plugins: []
markdown_extensions: [tables, toc, md_in_html, pymdownx.superfences]
validation: {{links: {{not_found: info, unrecognized_links: info}}, omitted_files: ignore}}
nav:
{nav}"""


def build(site: Path, root: Path = ROOT) -> int:
    """Write the site into an empty or missing folder, and return its size in bytes.

    Raises subprocess.CalledProcessError if MkDocs refuses, ResultsError for a record that cannot be read.
    """
    records = read(root)
    with tempfile.TemporaryDirectory() as scratch:
        pages = Path(scratch) / "pages"
        write_documents(records, pages)
        nav = "".join(f"  - {title}: {page}\n" for title, page in navigation())
        config = Path(scratch) / "mkdocs.yml"
        config.write_text(CONFIG.format(site=site.resolve(), theme=THEME, nav=nav), encoding="utf-8")
        command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--clean", "--config-file", str(config)]
        subprocess.run(command, check=True)
    styles = asset("explorer.css"), (THEME / "site.css").read_text(encoding="utf-8")
    (site / "site.css").write_text("\n".join((page_rules(), *styles)), encoding="utf-8")
    (site / "theme.js").write_text(asset("theme.js"), encoding="utf-8")
    _write_explorers(records, site)
    return sum(path.stat().st_size for path in site.rglob("*") if path.is_file())


def _write_explorers(records: Records, site: Path) -> None:
    for name in ("runs", "studies"):
        (site / name).mkdir(exist_ok=True)
    for address, results in records.runs.items():
        sources = sources_of(results, records.folders[address])
        page = render(results, sources, home="../")
        (site / address).write_text(page, encoding="utf-8")
    for address, study in records.studies.items():
        (site / address).write_text(render_study_page(study, home="../"), encoding="utf-8")


MOST_BYTES = 10_600_000  # the kernels of large batches stand on pages since their names are followed


def main(argv: list[str] | None = None) -> int:
    """Build the site; returns 0, 1 if it is too large, or 2 without MkDocs."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "site", help="where to write it (site/)")
    folder = parser.parse_args(argv).folder
    try:
        size = build(folder)
    except subprocess.CalledProcessError:
        print("tools.site: MkDocs could not build the documents; is it installed? run `make site`", file=sys.stderr)
        return 2
    print(f"{folder}: {size / 1e6:.1f} MB, open {(folder / 'index.html').resolve().as_uri()}")
    if size > MOST_BYTES:
        print(f"tools.site: larger than {MOST_BYTES / 1e6:.1f} MB; leave out files that no page needs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
