"""Write the table of kernels in stages/kernels/README.md: `python -m tools.kernel_table`.

A row is a kernel: its file, its name, the first sentence of its comment block, and the first stage that launches it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from common.files import atomic_write
from reports.markdown.all_documents import between
from stages.registry import SOURCES, load_all
from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, kernels_in

README = KERNELS_FOLDER / "README.md"
ENDS = "<!-- kernels:begin (python -m tools.kernel_table) -->", "<!-- kernels:end -->"


def main() -> int:
    """Write the table; returns the exit code."""
    atomic_write(README, with_table(README.read_text()))
    return 0


def with_table(text: str) -> str:
    """The README with today's table between its markers; ReportError without markers."""
    return between(text, README, ENDS, "\n".join(_lines()))


def _lines() -> Iterator[str]:
    yield "| file | kernel | what it does | first used by |\n| --- | --- | --- | --- |"
    above = None
    for kernel in kernels_in(KERNELS_FOLDER):
        file = f"`{kernel.source.relative_to(KERNELS_FOLDER).as_posix()}`" if kernel.source != above else ""
        yield f"| {file} | `{kernel.name}` | {summary(kernel)} | `{first_user(kernel.name)}` |"
        above = kernel.source


def summary(kernel: Kernel) -> str:
    """The first sentence of a kernel's comment, without its name and its full stop."""
    text = " ".join(kernel.comment).removeprefix(f"{kernel.name}: ")
    return re.split(r"\.(?:\s|$)", text, maxsplit=1)[0]


def first_user(kernel: str) -> str:
    """The first stage on a GPU, in ladder order, whose module or imports name the kernel; ValueError if none does."""
    for source, (name, entry) in zip(SOURCES, load_all().items(), strict=True):
        if "cuda" not in entry.stage.needs:
            continue
        if any(kernel in _strings(module) for module in _imports(source.partition(":")[0])):
            return name
    raise ValueError(f"{kernel}: no stage names it; launch it or delete it")


@cache
def _imports(module: str) -> frozenset[str]:
    """A module of stages and all modules of stages that it imports, directly or not."""
    modules, queue = set[str](), [module]
    while queue:
        name = queue.pop()
        if name not in modules and name.startswith("stages.") and _path(name):
            modules.add(name)
            for node in ast.walk(_tree(name)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    queue += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return frozenset(modules)


@cache
def _strings(module: str) -> frozenset[str]:
    """Every string constant of a module."""
    constants = (node.value for node in ast.walk(_tree(module)) if isinstance(node, ast.Constant))
    return frozenset(value for value in constants if isinstance(value, str))


@cache
def _tree(module: str) -> ast.Module:
    path = _path(module)
    assert path is not None
    return ast.parse(path.read_text())


@cache
def _path(module: str) -> Path | None:
    """A module's file; None if the name is an attribute of a module, or a package."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


if __name__ == "__main__":
    sys.exit(main())
