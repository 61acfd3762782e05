"""A hash of source code that ignores file names, folders, comments, docstrings and layout.

A move, a new comment or a new docstring keeps the hash, so recorded results and tuned choices stay valid. Imports and
kernel paths are ignored too: the caller passes the files that they lead to.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path

COMPILED = (".cu", ".cuh", ".cpp", ".cc", ".c", ".h")
_MODULE = "<module>"  # replaces a module's name, which a move may change

# Group 1 keeps string and character literals; comments and includes of the project's own headers match without it.
_CUDA = re.compile(
    r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?\*/|^[ \t]*#[ \t]*include[ \t]+"[^\n]*', re.S | re.M
)


def source_hash(files: Iterable[Path]) -> str:
    """64 hexadecimal digits, independent of the machine and of the files' order; OSError for a missing file."""
    digests = sorted({_digest(file.read_text(encoding="utf-8"), file.suffix) for file in files})
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def cuda_form(text: str) -> str:
    """CUDA C++ or C++ without comments and quoted includes, with single spaces."""
    kept = _CUDA.sub(lambda match: match[1] or " ", text)
    return "\n".join(" ".join(line.split()) for line in kept.splitlines() if line.strip())


def python_form(text: str) -> str:
    """A Python file's syntax tree without docstrings and imports; SyntaxError for invalid Python."""
    tree = ast.parse(text)
    modules = {
        (name.asname or name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        if (name.asname or name.name).islower()
    }
    return form(tree, modules)


def form(node: object, modules: Collection[str]) -> str:
    """A node as text, without docstrings, imports and the names of modules.

    Empty fields are dropped: they differ between Python versions.
    """
    if isinstance(node, list):
        return "[" + ",".join(form(each, modules) for each in node if not _is_left_out(each)) + "]"
    if isinstance(node, ast.Name) and node.id in modules:
        return _MODULE
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(COMPILED):
        return repr(node.value.rpartition("/")[2])
    if isinstance(node, ast.AST):
        values = ((name, getattr(node, name, None)) for name in node._fields if name != "ctx")
        fields = ((name, value) for name, value in values if value not in (None, []))
        return f"{type(node).__name__}({','.join(f'{name}={form(value, modules)}' for name, value in fields)})"
    return repr(node)


def _is_left_out(node: object) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return is_text or isinstance(node, ast.Import | ast.ImportFrom)


@cache
def _digest(text: str, suffix: str) -> str:
    normalised = python_form if suffix == ".py" else cuda_form
    return hashlib.sha256(normalised(text).encode()).hexdigest()
