"""Finds stages, and what names stand for, among texts by path, without importing them: also those of an older commit.

A path is relative to the project, or absolute for a user's file.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from common.source_hash import form
from ladder.records.python_symbols import Class, Piece, Symbols, chain_of, rung_in, symbols_of

REGISTRY = "stages/registry.py"
LIST = "SOURCES"  # its list of `module:attribute`, one a stage
OURS = ("stages", "common")
MAKERS = ("Stage", "from_recipe", "climb")
# Bases that call no method of a subclass by its name.
QUIET = {"ABC", "Exception", "Generic", "NamedTuple", "Protocol", "RuntimeError", "TypedDict", "ValueError", "object"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"(.+?)"', re.MULTILINE)


class Origin(NamedTuple):
    """What a name in a file stands for."""

    file: str  # of ours; empty for a foreign name
    name: str  # in it; empty for the module


class Project:
    """Texts by path, and what the names in them stand for."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self._origins: dict[tuple[str, str], list[Origin]] = {}
        self._used: dict[Piece, set[Origin]] = {}
        self._forms: dict[Piece, str] = {}
        self.walked: dict[str, Any] = {}  # what stages use, by their places; see `used_code`

    @cached_property
    def stages(self) -> dict[str, str]:
        """The `path:attribute` of every registered stage by its id; empty without a registry."""
        places = {}
        listed = self.symbols(REGISTRY).value(LIST) if REGISTRY in self.texts else None
        for module, attribute in (place.split(":") for place in _strings(listed)):
            path = self._file_of(module)
            if path is not None and (name := next(_strings(self.symbols(path).value(attribute)), "")):
                places[name] = f"{path}:{attribute}"
        return places

    def symbols(self, path: str) -> Symbols:
        """The symbols of a file."""
        return symbols_of(self.texts[path])

    def origins(self, path: str, chain: str) -> list[Origin]:
        """What `a.b.c` may stand for in a file; none for a local or built-in name."""
        if (path, chain) not in self._origins:
            self._origins[path, chain] = list(self._find(path, *chain.split(".")))
        return self._origins[path, chain]

    def used(self, path: str, piece: Piece) -> set[Origin]:
        """What the names in a piece of a file stand for."""
        if piece not in self._used:
            self._used[piece] = {origin for chain in piece.names for origin in self.origins(path, chain)}
        return self._used[piece]

    def form(self, path: str, piece: Piece) -> str:
        """A piece of a file as text, equal for statements that do the same, wherever they and what they use are."""
        if piece not in self._forms:
            roots = {chain.partition(".")[0] for chain in piece.names}
            modules = {name for name in roots for file, own in self.origins(path, name) if file and not own}
            self._forms[piece] = form(piece.nodes, modules)
        return self._forms[piece]

    def is_open(self, path: str, piece: Class) -> bool:
        """Whether a class inherits from a foreign one, which may call its methods by name."""
        for base in piece.bases:
            found = [(file, name) for file, name in self.origins(path, base) if file and name in self.symbols(file)]
            below = [(file, self.symbols(file)[name]) for file, name in found]
            ours = [isinstance(own, Class) and not self.is_open(file, own) for file, own in below]
            if base.rpartition(".")[2] not in QUIET and not (ours and all(ours)):
                return True
        return False

    def with_headers(self, source: str) -> dict[str, str]:
        """The texts of a compiled file and, depth first, its quoted headers, from its folder and the one above."""
        folder = posixpath.dirname(source)
        found: dict[str, str] = {}

        def visit(path: str) -> None:
            if path in found or path not in self.texts:
                return
            found[path] = self.texts[path]
            for name in INCLUDE.findall(found[path]):
                near, above = (posixpath.normpath(f"{place}/{name}") for place in (folder, posixpath.dirname(folder)))
                visit(near if near in self.texts else above)

        visit(source)
        return found

    def stage_at(self, path: str, name: str) -> ast.Call | None:
        """The call that makes the stage of this name; None for anything else."""
        match made := self.symbols(path).value(name):
            case ast.Call(ast.Name(maker) | ast.Attribute(attr=maker)) if maker in MAKERS:
                return made
        return None

    def arguments(self, path: str, made: ast.Call) -> dict[str, tuple[str, ast.expr]]:
        """What a stage, or the rung below it, is made with, each with the file that names it; words do not count."""
        found: dict[str, tuple[str, ast.expr]] = {}
        keywords = made.keywords
        match made:
            case ast.Call(ast.Attribute(below, "climb")):
                found = self._arguments_of(path, below)
            case ast.Call(args=[*_, ast.Call(ast.Name("Recipe"), [], recipe)]):
                keywords = [*recipe, *keywords]
            case ast.Call(args=args):
                keywords = [*(ast.keyword(str(at), value) for at, value in enumerate(args)), *keywords]
        return found | {str(each.arg): (path, each.value) for each in keywords if not _is_words(each.value)}

    def replaced(self, place: str) -> str:
        """The class that a stage's own choice replaces in the rung below it; empty if it is not to be found."""
        path, _, name = place.rpartition(":")
        match made := self.stage_at(path, name):
            case ast.Call(ast.Attribute(below, "climb"), keywords=[*_, ast.keyword(str(choice))]):
                return chain_of(self._arguments_of(path, below).get(choice, ("", made))[1]).rpartition(".")[2]
        return ""

    def _arguments_of(self, path: str, below: ast.expr) -> dict[str, tuple[str, ast.expr]]:
        """The arguments of the stage that an expression names."""
        if rung := rung_in(below):
            file, _, name = self.stages.get(rung, ":").rpartition(":")
            found = [Origin(file, name)]
        else:
            found = self.origins(path, chain_of(below))
        for file, name in found:
            if file and (made := self.stage_at(file, name)):
                return self.arguments(file, made)
        return {"below": (path, below)}

    def _find(self, path: str, name: str, *rest: str) -> Iterator[Origin]:
        symbols = self.symbols(path)
        if name in symbols:
            yield Origin(path, name)
        for origin in symbols.imports.get(name, ()):
            words = [*origin.split("."), *rest]
            for end in range(len(words), 0, -1):
                if (file := self._file_of(".".join(words[:end]), path)) is not None:
                    yield Origin(file, "".join(words[end : end + 1]))
                    break
            else:
                yield Origin("", f"{name}={origin}")

    def _file_of(self, module: str, importer: str = "") -> str | None:
        """The file of a module: of the project, or beside the file that imports it; None for any other module."""
        path = module.replace(".", "/")
        if module.partition(".")[0] not in OURS:
            path = posixpath.join(posixpath.dirname(importer), path)
        return next((file for file in (f"{path}.py", f"{path}/__init__.py") if file in self.texts), None)


def _is_words(value: ast.expr) -> bool:
    """Whether an argument is a text or several."""
    texts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(isinstance(text, ast.Constant) and isinstance(text.value, str) for text in texts)


def _strings(tree: ast.AST | None) -> Iterator[str]:
    """The strings in a tree, breadth first."""
    nodes = ast.walk(tree) if tree is not None else ()
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
