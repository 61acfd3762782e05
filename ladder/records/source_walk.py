"""Finds the files of a stage among texts by path, without importing them: also those of an older commit."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

REGISTRY = "stages/registry.py"
LIST = "SOURCES"  # its list of `module:attribute`, one a stage
COMPILED = (".cu", ".cpp", ".cc", ".c")
KERNELS = "stages/kernels"
KERNEL_FOLDER = "/kernels/"  # kernels for the CPU are Python modules in such a folder
INCLUDE = re.compile(r'^\s*#\s*include\s+"(.+?)"', re.MULTILINE)


def registered(texts: Mapping[str, str]) -> dict[str, str]:
    """The `path:attribute` of every registered stage by its name; empty without a registry."""
    found = {}
    for place in _strings(_assigned(_parsed(texts.get(REGISTRY, "")), LIST)):
        module, _, attribute = place.partition(":")
        path = _file_of(module, texts)
        if path is not None and (name := _stage_name(texts[path], attribute)):
            found[name] = f"{path}:{attribute}"
    return found


def climb_of(place: str, texts: Mapping[str, str], places: Mapping[str, str]) -> tuple[str, str]:
    """The rung that a stage climbs from, and its choice, such as `launch: GraphEpoch`; empty for any other stage."""
    own, _, attribute = place.rpartition(":")
    tree = _parsed(texts[own])
    modules = {
        alias.asname or alias.name.rpartition(".")[2]: file
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (file := _file_of(".".join(filter(None, (getattr(node, "module", ""), alias.name))), texts)) is not None
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
    python = [own, *_named_parts(texts[own], attribute, texts)]
    modules = _reached(own, texts)
    compiled: dict[str, None] = {}
    for module in modules:
        for name in _strings(_parsed(texts[module])):
            if name.endswith(COMPILED):
                compiled |= dict.fromkeys(_with_headers(_compiled_file(name, module, texts), texts))
    in_python = sorted(path for path in modules if KERNEL_FOLDER in path and not path.endswith("__init__.py"))
    return [*dict.fromkeys(python), *in_python, *compiled]


def _named_parts(text: str, attribute: str, texts: Mapping[str, str]) -> Iterator[str]:
    """The modules from which the stage's own expression takes a class."""
    tree = _parsed(text)
    calls = [node for node in ast.walk(_assigned(tree, attribute)) if isinstance(node, ast.Call)]
    given = [*(one for call in calls for one in call.args), *(word.value for call in calls for word in call.keywords)]
    used = {node.id for node in given if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and used & {one.asname or one.name for one in node.names}:
            path = _file_of(node.module, texts)
            if path is not None and not path.endswith("__init__.py"):
                yield path


def _reached(own: str, texts: Mapping[str, str]) -> list[str]:
    """The module and those that it imports, directly or not."""
    found: list[str] = []
    waiting = [own]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.append(path)
        for node in ast.walk(_parsed(texts[path])):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            waiting += [file for name in names if (file := _file_of(name, texts)) is not None]
    return found


def _file_of(module: str, texts: Mapping[str, str]) -> str | None:
    path = module.replace(".", "/")
    return next((file for file in (f"{path}.py", f"{path}/__init__.py") if file in texts), None)


def _compiled_file(name: str, module: str, texts: Mapping[str, str]) -> str | None:
    """The compiled file that a string names: beside its module, or among the kernels; `.cu` alone has its name."""
    folder, file = posixpath.split(module)
    name = file.removesuffix(".py") + name if name in COMPILED else name
    return next((path for path in (posixpath.join(folder, name), posixpath.join(KERNELS, name)) if path in texts), None)


def _with_headers(path: str | None, texts: Mapping[str, str]) -> list[str]:
    """A compiled file and its quoted headers, looked for in its folder and the one above."""
    found: list[str] = []
    waiting = [path] if path else []
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.append(path)
        folder = posixpath.dirname(path)
        for name in INCLUDE.findall(texts[path]):
            places = (posixpath.normpath(posixpath.join(one, name)) for one in (folder, posixpath.dirname(folder)))
            waiting += [place for place in places if place in texts][:1]
    return found


def _stage_name(text: str, attribute: str) -> str:
    """The first text that the stage's expression gives, which is its name."""
    return next(_strings(_assigned(_parsed(text), attribute)), "")


def _assigned(tree: ast.AST, name: str) -> ast.AST:
    """The value that a module gives a name; an empty tree if it gives none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id == name for one in node.targets):
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
