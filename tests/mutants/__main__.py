"""Mutants of Python, made by a program: a comparison swapped, a constant one larger, a value not returned.

`python -m tests.mutants 80` draws so many from every room, in a clone of the last commit. Each meets the tests that
call its function, the shortest first, or those of them in the paths that follow. It prints those that survive, each of
which has no effect or shows what the tests lack, then a line for each room. `survivors.txt` keeps what was found once,
and why each survives.
"""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

ROOMS = ("ladder/measure", "ladder/run", "ladder/records", "ladder/verify", "stages/engine")
SEED = 1
TESTS_S, LONGEST_S = 10.0, 120.0  # of the tests that a mutant meets; a mutant may wait for ever

NAMES = "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, And Or, Add Sub, Mult Div, FloorDiv Mult, Mod FloorDiv, Pow Mult"
PAIRS = [[getattr(ast, name) for name in pair.split()] for pair in NAMES.split(", ")]
SWAPPED = {two: one for one, two in reversed(PAIRS)} | dict(PAIRS)
UNSEEN = ("annotation", "returns", "decorator_list")


class Mutant(NamedTuple):
    """One change of one file."""

    file: str
    line: int
    change: str
    source: bytes


def mutants(file: str, raw: bytes) -> Iterator[Mutant]:
    """Every change by a rule of what a file runs."""
    starts = [0, *(at + 1 for at, byte in enumerate(raw) if byte == ord("\n"))]
    for node in _nodes(ast.parse(raw)):
        for after in map(ast.unparse, _changes(node)):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            changed = f"({after})" if isinstance(node, ast.expr) else after
            change = f"`{' '.join(raw[begin:end].decode().split())}` -> `{' '.join(after.split())}`"
            yield Mutant(file, node.lineno, change, raw[:begin] + changed.encode() + raw[end:])


def _nodes(node: ast.AST) -> Iterator[Any]:
    """What runs below a node: no annotation, and no text of a message."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in UNSEEN and not isinstance(node, ast.JoinedStr):
            for child in value if isinstance(value, list) else [value]:
                yield from _nodes(child) if isinstance(child, ast.AST) else ()


def _changes(node: Any) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    sides = [node.left, node.right] if isinstance(node, ast.BinOp) else []
    is_of_text = any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides)
    ops = getattr(node, "ops", None) or [getattr(node, "op", None)]
    for at, op in enumerate([] if is_of_text else ops):
        if type(op) in SWAPPED:
            new, changed = SWAPPED[type(op)](), copy(node)
            changed.op, changed.ops = new, [*ops[:at], new, *ops[at + 1 :]]
            yield changed
    match node:
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Return(ast.expr()) if ast.unparse(node) != "return None":
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()


class Tests:
    """The tests in a clone that pass, how long each takes, and which functions it calls, in whichever process."""

    def __init__(self, clone: Path, paths: Sequence[str]) -> None:
        self._clone, calls, report = clone, clone / "calls.tsv", clone / "report.xml"
        rooms = ":".join(f"{clone / room}/" for room in ROOMS)
        noting = {"PYTHONPATH": str(Path(__file__).parent), "MUTANTS_ROOMS": rooms, "MUTANTS_CALLS": str(calls)}
        self._pytest(f"--junitxml={report}", "-m", "not alone", *paths, env=os.environ | noting)
        self._took_s = {
            f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": float(case.get("time", 0))
            for case in ET.parse(report).iter("testcase")
            if not len(case)  # neither failed nor skipped
        }
        self._calling = defaultdict[tuple[str, int], set[str]](set)
        for line in calls.read_text().splitlines():
            test, file, first = line.rsplit("\t", 2)
            self._calling[os.path.relpath(file, clone), int(first)].update({test} & self._took_s.keys())

    def catch(self, mutant: Mutant) -> bool:
        """Whether one of the shortest that call its function fails, or waits for ever; outside of one, of its file."""
        path = self._clone / mutant.file
        original, met, took_s = path.read_bytes(), list[str](), 0.0
        begins = [
            min([node.lineno, *(each.lineno for each in node.decorator_list)])
            for node in ast.walk(ast.parse(original))
            if isinstance(node, ast.FunctionDef) and node.lineno <= mutant.line <= (node.end_lineno or 0)
        ]
        seen = {key for key in self._calling if key[0] == mutant.file and key[1] == max(begins, default=key[1])}
        for test in sorted({test for key in seen for test in self._calling[key]}, key=self._took_s.__getitem__):
            took_s += self._took_s[test]
            if took_s <= TESTS_S or not met:
                met.append(test)
        path.write_bytes(mutant.source)
        try:
            return bool(met) and self._pytest("-x", *met, timeout=LONGEST_S) != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            path.write_bytes(original)

    def _pytest(self, *arguments: str, env: dict[str, str] | None = None, timeout: float | None = None) -> int:
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
        none = subprocess.DEVNULL
        return subprocess.run(command, cwd=self._clone, env=env, timeout=timeout, stdout=none, stderr=none).returncode


def main(each: int, *paths: str) -> None:
    """Draw, try and print."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "-q", "--shared", ".", folder], check=True)
        clone, table = Path(folder), list[str]()
        tests = Tests(clone, paths)
        for room in ROOMS:
            files = sorted((clone / room).rglob("*.py"))
            made = [one for file in files for one in mutants(str(file.relative_to(clone)), file.read_bytes())]
            tried = random.Random(f"{SEED} {room}").sample(made, min(each, len(made)))
            survivors = [mutant for mutant in tried if not tests.catch(mutant)]
            for one in survivors:
                print(f"{one.file}:{one.line}: {one.change}", flush=True)  # noqa: T201
            table.append(f"{room}: {len(made)} mutants, {len(tried)} tried, {len(tried) - len(survivors)} caught")
        print(*table, sep="\n")  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
