"""Prints the lines of Python and the words of prose by package: `python -m tools.budget`.

Exits with 1 over a limit of `[tool.ladder.budget]` in pyproject.toml. A file counts for the longest path that it lies
below; one below none has no room. Recorded results are free.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNITS: dict[str, tuple[str, Callable[[str], int]]] = {
    "lines": (".py", lambda text: text.count("\n")),
    "words": (".md", lambda text: words(text)),
}


def main(root: Path = ROOT) -> int:
    """Print a row for each limit; returns the exit code."""
    tracked = subprocess.check_output(["git", "ls-files"], cwd=root, text=True).splitlines()
    budget = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ladder"]["budget"]
    is_over = False
    for unit, (suffix, size) in UNITS.items():
        files = [name for name in tracked if name.endswith(suffix) and not name.startswith("results/")]
        sizes = {name: size((root / name).read_text(encoding="utf-8")) for name in files if (root / name).exists()}
        spent = spent_below(budget[unit], sizes)
        for path, most in {**budget[unit], "elsewhere": 0, "in all": sum(budget[unit].values())}.items():
            used = spent.total() if path == "in all" else spent[path]
            if used or most:
                print(f"{unit}  {path:20} {used:7,} of {most:7,}{'  over' * (used > most)}")
            is_over |= used > most
    if is_over:
        print("over budget: shorten, or raise the limit in pyproject.toml in a commit of its own", file=sys.stderr)
    return int(is_over)


def spent_below(paths: Iterable[str], sizes: Mapping[str, int]) -> Counter[str]:
    """The sizes of files, added up by the longest of these paths that each lies below, or under `elsewhere`."""
    spent: Counter[str] = Counter()
    for name, size in sizes.items():
        above = [path for path in paths if name == path or name.startswith(f"{path}/")]
        spent[max(above, key=len, default="elsewhere")] += size
    return spent


def words(text: str) -> int:
    """The words that a reader of Markdown sees: no markup, no addresses."""
    text = re.sub(r"<!--.*?-->|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


if __name__ == "__main__":
    sys.exit(main())
