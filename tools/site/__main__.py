"""Build the static site: `python -m tools.site [FOLDER]`, which `make site` does after installing MkDocs.

All links are relative, nothing is requested from elsewhere, and the folder can be opened from a disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tools.site.build import build
from tools.site.records import ROOT

MOST_BYTES = 10_500_000  # the kernels of large batches stand on pages since their names are followed


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
