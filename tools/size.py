"""Prints the lines of code and the words of prose by room, beside the last release's: `python -m tools.size`.

A line of code holds more than a docstring, a comment or a blank. Exits with 1 where a room is larger than
`[tool.ladder.size]` in pyproject.toml allows, with `HEADROOM` above what stands there; the commit that adds so much
says why, and puts the new size there. A file counts for the longest path above it; recorded results are free.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADROOM = 0.05
SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
UNITS: dict[str, tuple[str, Callable[[str], int]]] = {
    "code": (".py", lambda text: code_lines(text)),
    "words": (".md", lambda text: words(text)),
}


def main(root: Path = ROOT) -> int:
    """Print a row for each room; returns the exit code."""
    tracked = subprocess.check_output(["git", "ls-files"], cwd=root, text=True).splitlines()
    sizes = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ladder"]["size"]
    is_over = False
    for unit, (suffix, size) in UNITS.items():
        files = [name for name in tracked if name.endswith(suffix) and not name.startswith("results/")]
        measured = {name: size((root / name).read_text(encoding="utf-8")) for name in files if (root / name).exists()}
        now, allowed, released = spent_below(sizes[unit], measured), sizes[unit], sizes["released"][unit]
        for path in [*allowed, *sorted(set(now) - set(allowed))]:
            over = now[path] > allowed.get(path, 0) * (1 + HEADROOM)
            print(f"{unit:5}  {path:20} {now[path]:7,}  {now[path] - released.get(path, 0):+7,}{'  over' * over}")
            is_over |= over
        print(f"{unit:5}  {'in all':20} {now.total():7,}  {now.total() - sum(released.values()):+7,}")
    if is_over:
        print("over: shorten, or let the commit that adds say why and set the size in pyproject.toml", file=sys.stderr)
    return int(is_over)


def spent_below(paths: Iterable[str], sizes: Mapping[str, int]) -> Counter[str]:
    """The sizes of files, added up by the longest of these paths that each lies below, or under `elsewhere`."""
    spent: Counter[str] = Counter()
    for name, size in sizes.items():
        above = [path for path in paths if name == path or name.startswith(f"{path}/")]
        spent[max(above, key=len, default="elsewhere")] += size
    return spent


def code_lines(text: str) -> int:
    """The lines of a Python file that hold code."""
    documentation: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            documentation.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held - documentation)


def words(text: str) -> int:
    """The words that a reader of Markdown sees: no markup, no addresses."""
    text = re.sub(r"<!--.*?-->|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


if __name__ == "__main__":
    sys.exit(main())
