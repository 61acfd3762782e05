"""Finds the files of a stage among texts by path, without importing them: also those of an older commit.

A path is relative to the project, or absolute for a user's file.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

REGISTRY = "stages/registry.py"
LIST = "SOURCES"  # its list of `module:attribute`, one a stage
OURS = ("stages", "common")
PUBLIC = "stages"  # the module for users' stages; its names come from other modules
COMPILED = (".cu", ".cpp", ".cc", ".c")
TABLE = ".json"
KERNELS = "stages/kernels"
KERNEL_FOLDER = "/kernels/"  # kernels for the CPU are Python modules in such a folder
INCLUDE = re.compile(r'^\s*#\s*include\s+"(.+?)"', re.MULTILINE)


class Code(NamedTuple):
    """The files that a stage's module leads to, each once."""

    modules: list[str]  # it and those that it imports, directly or not; for `rung("cublas")`, that rung's
    compiled: list[str]  # that a module names in a string, with their headers
    tables: list[str]  # `.json` files of choices beside a module that names them


def registered(texts: Mapping[str, str]) -> dict[str, str]:
    """The `path:attribute` of every registered stage by its name; empty without a registry."""
    places = {}
    for place in _strings(_assigned(_parsed(texts.get(REGISTRY, "")), LIST)):
        module, _, attribute = place.partition(":")
        path = _file_of(module, texts)
        if path is not None and (name := next(_strings(_assigned(_parsed(texts[path]), attribute)), "")):
            places[name] = f"{path}:{attribute}"
    return places


def climb_of(place: str, texts: Mapping[str, str], places: Mapping[str, str]) -> tuple[str, str]:
    """The rung that a stage climbs from, and its choice, such as `launch: GraphEpoch`; empty for any other stage."""
    own, _, attribute = place.rpartition(":")
    tree = _parsed(texts[own])
    modules = {
        alias.asname or alias.name.rpartition(".")[2]: file
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (file := _file_of(".".join(filter(None, (getattr(node, "module", ""), alias.name))), texts, own)) is not None
    }
    for call in ast.walk(_assigned(tree, attribute)):
        match call:
            case ast.Call(ast.Attribute(below, "climb"), keywords=[*_, ast.keyword(str(choice), ast.Name(chosen))]):
                return _rung_named(below, modules, places), f"{choice}: {chosen}"
    return "", ""


def _rung_named(below: ast.expr, modules: Mapping[str, str], places: Mapping[str, str]) -> str:
    """The rung of `module.STAGE` or `rung("name")`; empty for anything else."""
    match below:
        case ast.Attribute(ast.Name(module) | ast.Attribute(attr=module), attribute):
            place = f"{modules.get(module)}:{attribute}"
            return next((name for name, known in places.items() if known == place), "")
        case ast.Call(args=[ast.Constant(str(name))]):
            return name
    return ""


def files_of(place: str, texts: Mapping[str, str]) -> list[str]:
    """A stage's own file, those that define the parts it names, then its kernels' files with their headers."""
    own, _, attribute = place.rpartition(":")
    code = code_of(own, texts)
    in_python = sorted(path for path in code.modules if KERNEL_FOLDER in path and not path.endswith("__init__.py"))
    return list(dict.fromkeys([own, *_named_parts(own, attribute, texts), *in_python, *code.compiled]))


def code_of(own: str, texts: Mapping[str, str]) -> Code:
    """All that the module of this path leads to."""
    rungs: dict[str, str] = {}
    modules: list[str] = []
    compiled: dict[str, None] = {}
    tables: dict[str, None] = {}
    waiting = [own]
    while waiting:
        path = waiting.pop()
        if path in modules:
            continue
        modules.append(path)
        named = _named(texts[path])
        folder = posixpath.dirname(path)
        for module, name in named.imports:
            origin = _public_names(texts.get(f"{PUBLIC}/__init__.py", "")).get(name, "") if module == PUBLIC else module
            origins = filter(None, (f"{module}.{name}".strip("."), origin))
            waiting += [file for origin in origins if (file := _file_of(origin, texts, path)) is not None]
        if named.rungs:
            rungs = rungs or registered(texts)
            waiting += [rungs[name].rpartition(":")[0] for name in named.rungs if name in rungs]
        for name in named.compiled:
            beside = path.removesuffix(".py") + name if name in COMPILED else posixpath.join(folder, name)
            for source in (beside, posixpath.join(KERNELS, name)):
                compiled |= dict.fromkeys(_with_headers(source, texts))
        tables |= dict.fromkeys(file for name in named.tables if (file := posixpath.join(folder, name)) in texts)
    return Code(modules, list(compiled), list(tables))


def _named_parts(own: str, attribute: str, texts: Mapping[str, str]) -> Iterator[str]:
    """The modules from which the stage's own expression takes a class."""
    tree = _parsed(texts[own])
    calls = [node for node in ast.walk(_assigned(tree, attribute)) if isinstance(node, ast.Call)]
    given = [value for call in calls for value in (*call.args, *(word.value for word in call.keywords))]
    used = {node.id for node in given if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and used & {n.asname or n.name for n in node.names}:
            path = _file_of(node.module, texts, own)
            if path is not None and not path.endswith("__init__.py"):
                yield path


class _Named(NamedTuple):
    """What a module's text names."""

    imports: list[tuple[str, str]]  # module and name; an `import` has no module
    rungs: list[str]
    compiled: list[str]
    tables: list[str]


@lru_cache(maxsize=1024)
def _named(text: str) -> _Named:
    named = _Named([], [], [], [])
    for node in ast.walk(_parsed(text)):
        match node:
            case ast.Import(names):
                named.imports.extend(("", alias.name) for alias in names)
            case ast.ImportFrom(str(module), names):
                named.imports.extend((module, alias.name) for alias in names)
            case ast.Call(ast.Name("rung") | ast.Attribute(attr="rung"), [ast.Constant(str(name))]):
                named.rungs.append(name)
            case ast.Constant(str(text)) if text.endswith(COMPILED):
                named.compiled.append(text)
            case ast.Constant(str(text)) if text.endswith(TABLE):
                named.tables.append(text)
    return named


@lru_cache(maxsize=16)
def _public_names(public: str) -> dict[str, str]:
    """The module behind each name that the public module imports; for `rung`, its id is followed instead."""
    return {
        alias.name: node.module
        for node in ast.iter_child_nodes(_parsed(public))
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "stages.registry"
        for alias in node.names
    }


def _file_of(module: str, texts: Mapping[str, str], importer: str = "") -> str | None:
    """The file of a module: of the project, or beside the file that imports it; None for any other module."""
    path = module.replace(".", "/")
    if module.partition(".")[0] not in OURS:
        path = posixpath.join(posixpath.dirname(importer), path)
    return next((file for file in (f"{path}.py", f"{path}/__init__.py") if file in texts), None)


def _with_headers(source: str, texts: Mapping[str, str]) -> list[str]:
    """A compiled file and, depth first, its quoted headers, looked for in its folder and the one above."""
    folder = posixpath.dirname(source)
    sources: list[str] = []

    def visit(path: str) -> None:
        if path in sources or path not in texts:
            return
        sources.append(path)
        for name in INCLUDE.findall(texts[path]):
            near, above = (posixpath.normpath(f"{place}/{name}") for place in (folder, posixpath.dirname(folder)))
            visit(near if near in texts else above)

    visit(source)
    return sources


def _assigned(tree: ast.AST, name: str) -> ast.AST:
    """The value that a module gives a name; an empty tree if it gives none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return node.value
    return ast.Module([], [])


def _strings(tree: ast.AST) -> Iterator[str]:
    """The strings in a tree, breadth first."""
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.AST:
    """A syntax tree; empty for a text that this Python cannot parse."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module([], [])
