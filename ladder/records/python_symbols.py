"""The symbols of a Python file: what each is, normalised, and the names in it.

Comments, docstrings, layout, imports and messages of errors do not count; nor do annotations, unless a decorator may
read them, as `triton.jit` does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import NamedTuple

MAIN = "__main__"  # the name of what a module does as a program
# They read no annotation; any other decorator may.
PLAIN = {
    "abstractmethod", "cache", "cached_property", "classmethod", "contextmanager", "lru_cache", "part", "property",
    "setter", "staticmethod", "wraps",
}  # fmt: skip
COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try)
PATTERN = re.compile(r"[\w*./]*(?:\w{3}[\w*./]*|\.\w+)")  # an f-string that may be a name


class Piece:
    """Statements that are one symbol, or a class without its members, and the names in them."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self.nodes = list(nodes)
        self.names: set[str] = set()  # with their attributes, such as `naive.STAGE`, to be looked up in the module
        self.mentions: set[str] = set()  # words that may name a member, and patterns of those that an f-string makes
        self.rungs: set[str] = set()  # the ids in `rung("id")`
        waiting: list[object] = [*self.nodes]
        while waiting:
            waiting += self._seen(waiting.pop())

    def _seen(self, node: object) -> list[object]:
        """Keep what a node names; returns the nodes in it."""
        match node:
            case ast.Name(name):
                self.names.add(name)
            case ast.Attribute(value, attribute):
                self.mentions.add(attribute)
                if not (chain := chain_of(node)):
                    return [value]
                self.names.add(chain)
                self.mentions.update(chain.split(".")[1:])
            case ast.Constant(str(word)) | str(word):
                self.mentions.add(word)
            case list():
                return node
            case ast.AST():
                if isinstance(node, ast.JoinedStr) and PATTERN.fullmatch(pattern := pattern_of(node)):
                    self.mentions.add(pattern)
                if isinstance(node, ast.keyword) and node.arg:
                    self.mentions.add(node.arg)
                self.rungs |= {rung_in(node)} - {""}
                values = [getattr(node, field, None) for field in node._fields]
                return [value for value in values if isinstance(value, ast.AST | list)]
        return []


class Class(NamedTuple):
    """A class: its head, the members by name, and its bases as they are written."""

    head: Piece
    members: Mapping[str, Piece]
    bases: list[str]  # empty for anything but a name


class Symbols:
    """The symbols of a text by name; of one that is no Python, all is an effect."""

    def __init__(self, text: str) -> None:
        self.imports: dict[str, set[str]] = {}  # a bound name, and what it stands for: `numpy`, `common.cost.Layer`
        self._bound: dict[str, list[ast.stmt]] = {}
        self._pieces: dict[str, Piece | Class] = {}
        try:
            self._statements = [*self._cleaned(ast.parse(text).body)]
        except (SyntaxError, ValueError):
            self._statements = [ast.Expr(ast.Constant(text.encode()))]
        self.effects = Piece(stmt for stmt in self._statements if self._is_effect(stmt))  # as the module is imported

    def __contains__(self, name: str) -> bool:
        return name in self._bound

    def __iter__(self) -> Iterator[str]:
        return iter(self._bound)

    def __getitem__(self, name: str) -> Piece | Class:
        if name not in self._pieces:
            match self._bound[name]:
                case [ast.ClassDef() as one]:
                    self._pieces[name] = _class(one)
                case statements:
                    self._pieces[name] = Piece(statements)
        return self._pieces[name]

    @cached_property
    def whole(self) -> Piece:
        """All statements."""
        return Piece(self._statements)

    def value(self, name: str) -> ast.expr | None:
        """What the name is assigned, if it is assigned once."""
        match self._bound.get(name):
            case [ast.Assign([ast.Name()], value)]:
                return value
        return None

    def _is_effect(self, stmt: ast.stmt) -> bool:
        """Whether a statement does more than to bind names; keeps those that it binds."""
        is_main = isinstance(stmt, ast.If) and "__name__" in Piece([stmt.test]).names
        names = {MAIN} if is_main else set(_bound(stmt))
        for name in names:
            self._bound.setdefault(name, []).append(stmt)
        return not names or (not is_main and isinstance(stmt, COMPOUND))

    def _cleaned(self, body: list[ast.stmt], *, in_class: bool = False) -> Iterator[ast.stmt]:
        """The statements that count, changed in place; keeps the imports."""
        for stmt in body:
            match stmt:
                case ast.Import(names):
                    for alias in names:
                        name = alias.asname or alias.name.partition(".")[0]
                        self.imports.setdefault(name, set()).add(alias.name if alias.asname else name)
                    continue
                case ast.ImportFrom(module, names):
                    for alias in names:
                        origin = f"{module}.{alias.name}" if module else alias.name
                        self.imports.setdefault(alias.asname or alias.name, set()).add(origin)
                    continue
                case ast.Expr(ast.Constant(str())) | ast.If(ast.Name("TYPE_CHECKING")):
                    continue
                case ast.Raise(ast.Call(error)):
                    stmt.exc = error
                case ast.FunctionDef() | ast.AsyncFunctionDef() if _decorators(stmt) <= PLAIN:
                    stmt.returns = None
                    for arg in ast.walk(stmt.args):
                        if isinstance(arg, ast.arg):
                            arg.annotation = None
                case ast.AnnAssign() if in_class:  # stays a field, or the class's
                    stmt.annotation = ast.Constant("ClassVar" in ast.unparse(stmt.annotation))
                case ast.AnnAssign(target, _, value):
                    if value is not None:
                        yield ast.Assign([target], value)
                    continue
            for each in (stmt, *getattr(stmt, "handlers", ()), *getattr(stmt, "cases", ())):
                for field in ("body", "orelse", "finalbody"):
                    if inner := getattr(each, field, None):
                        setattr(each, field, [*self._cleaned(inner, in_class=isinstance(each, ast.ClassDef))])
            yield stmt


@lru_cache(maxsize=4096)
def symbols_of(text: str) -> Symbols:
    """The symbols of a text, which is parsed once."""
    return Symbols(text)


def chain_of(node: ast.AST) -> str:
    """`a.b.c` for such an expression; empty for any other."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, attribute):
            return f"{chain}.{attribute}" if (chain := chain_of(value)) else ""
    return ""


def rung_in(node: ast.AST) -> str:
    """The id in `rung("id")`; empty for any other expression."""
    match node:
        case ast.Call(ast.Name("rung") | ast.Attribute(attr="rung"), [ast.Constant(str(name))]):
            return name
    return ""


def pattern_of(node: ast.JoinedStr) -> str:
    """An f-string with `*` for each part that is filled in."""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)


def _decorators(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The last words of a function's decorators: `jit` for `@triton.jit`."""
    calls = [each.func if isinstance(each, ast.Call) else each for each in function.decorator_list]
    return {chain_of(call).rpartition(".")[2] for call in calls}


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds in its module."""
    match node:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name) | ast.Name(name, ast.Store()):
            yield name
        case ast.comprehension() | ast.Lambda():
            pass
        case _:
            for each in ast.iter_child_nodes(node):
                yield from _bound(each)


def _class(node: ast.ClassDef) -> Class:
    members: dict[str, list[ast.AST]] = {}
    head: list[ast.AST] = [*node.decorator_list, *node.bases, *node.keywords, ast.Constant(node.name)]
    for own in node.body:
        match own:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                pass
            case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
                pass
            case _:
                name = "__"
        into = head if name.startswith("__") else members.setdefault(name, [])
        into.append(own)
    bases = [chain_of(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases]
    return Class(Piece(head), {name: Piece(own) for name, own in members.items()}, bases)
