"""A hash of what source files say, whatever they are called, wherever they lie and however they are laid out.

A move, a new comment or a new docstring keeps the hash: nothing that was measured or tuned goes stale by it. Imports
and paths of kernels count by the files that they lead to, which the caller passes too.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

COMPILED = (".cu", ".cuh", ".cpp", ".cc", ".c", ".h")
_MODULE = "<module>"  # stands for the name of a module, which a move may change

# A string or a character keeps its text; a comment does not, nor does an include of one of our own headers.
_CUDA = re.compile(
    r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?\*/|^[ \t]*#[ \t]*include[ \t]+"[^\n]*', re.S | re.M
)


def source_hash(files: Iterable[Path]) -> str:
    """64 hexadecimal digits, the same on every machine and for every order of the files; OSError where one is gone."""
    digests = sorted({_digest(file.read_text(encoding="utf-8"), file.suffix) for file in files})
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def cuda_form(text: str) -> str:
    """CUDA C++ or C++ without comments, without includes in quotes, in single spaces."""
    kept = _CUDA.sub(lambda match: match[1] or " ", text)
    return "\n".join(" ".join(line.split()) for line in kept.splitlines() if line.strip())


def python_form(text: str) -> str:
    """The syntax tree of a Python file without docstrings and imports; SyntaxError where it is none."""
    tree = ast.parse(text)
    modules = {
        (name.asname or name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        if (name.asname or name.name).islower()
    }
    return _form(tree, modules)


def _form(node: object, modules: set[str]) -> str:
    """A node as text; empty fields are left out, since they differ between versions of Python."""
    if isinstance(node, list):
        return "[" + ",".join(_form(each, modules) for each in node if not _is_left_out(each)) + "]"
    if isinstance(node, ast.Name) and node.id in modules:
        return _MODULE
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(COMPILED):
        return repr(node.value.rpartition("/")[2])
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
        return f"{type(node).__name__}({','.join(f'{name}={_form(value, modules)}' for name, value in fields)})"
    return repr(node)


def _is_left_out(node: object) -> bool:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return is_text or isinstance(node, ast.Import | ast.ImportFrom)


@cache
def _digest(text: str, suffix: str) -> str:
    form = python_form if suffix == ".py" else cuda_form
    return hashlib.sha256(form(text).encode()).hexdigest()
