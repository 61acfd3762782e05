"""The twins of docs/languages.md side by side, each line above its machine code: `python -m tools.language_code`.

`--record FILE` compiles the kernels for an H100 and takes them apart; it needs `nvdisasm` on the PATH, and no GPU.
The page below results/languages/ is made from that file alone, so that it stays true when the kernels change.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from common.files import atomic_write
from reports.explorer.code import lines as highlighted
from reports.figures.canvas import page_rules
from tools.language_table import (
    CONFIGURED,
    CUTE,
    KERNELS,
    OPERATIONS,
    PYTHON,
    RECORDS,
    ROOT,
    Twin,
    cute_code,
    triton_code,
)

ARCH = 90
RECORD, PAGE = "code.json", "code.html"
PLACE = re.compile(r'//## File "(?P<path>[^"]*)", line (?P<line>\d+)')
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
STYLE = """\
body{margin:1.5em;font:14px/1.45 Verdana,sans-serif;background:var(--paper);color:var(--ink)}a{color:inherit}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(34em,1fr));gap:1.5em}
.pair>*{min-width:0;overflow-x:auto}
pre,summary,.l{margin:0;font:12px/1.5 Menlo,Consolas,monospace;white-space:pre}
.l,summary{display:block;padding-left:3.2em;text-indent:-3.2em}
summary{cursor:pointer}summary:hover{background:var(--grid)}pre{padding-left:3.2em;color:var(--faint)}
b{display:inline-block;width:3.2em;text-indent:0;color:var(--faint);font-weight:normal}
i{font-style:normal}.c{color:var(--faint)}.k{color:var(--gemm)}.s,.m{color:var(--update)}.n{color:var(--one-kernel)}"""


def main(argv: list[str] | None = None) -> int:
    """Record the code, or write the pages; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.language_code", description=__doc__.partition("\n")[0])
    parser.add_argument("--record", type=Path, metavar="FILE", help="compile, take apart, and write it here")
    options = parser.parse_args(argv)
    if options.record:
        options.record.write_text(json.dumps(recorded(), indent=0) + "\n")
        return 0
    for record in RECORDS.glob(f"*/{RECORD}"):
        atomic_write(record.with_name(PAGE), code_page(json.loads(record.read_text(encoding="utf-8"))).encode())
    return 0


def recorded() -> dict[str, Any]:
    """By a kernel's name: its files, each with its path, first line, text and the instructions of a line."""
    by_kernel = {}
    for kernel in {kernel.name: kernel for pair in OPERATIONS.values() for kernel in pair if kernel.name}.values():
        with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
            cubin.write(_machine_code(kernel))
            cubin.flush()
            text = subprocess.check_output(["nvdisasm", "-g", "-c", cubin.name], text=True, stderr=subprocess.DEVNULL)
        parts = list(_parts(kernel))
        own = {(path.name, line) for path, first, last in parts for line in range(first, last + 1)}
        by_line = instructions(text, kernel.name, own)
        by_kernel[kernel.name] = [
            {
                "path": str(path.relative_to(ROOT)),
                "first": first,
                "text": path.read_text(encoding="utf-8").splitlines()[first - 1 : last],
                "code": {
                    line: code for (name, line), code in by_line.items() if name == path.name and first <= line <= last
                },
            }
            for path, first, last in parts
        ]
    return by_kernel


def _machine_code(kernel: Twin) -> bytes:
    if kernel.name in CONFIGURED:
        return triton_code(kernel.name)
    if kernel.name == CUTE:
        return cute_code()
    from common.cuda.compile import compile_cubin

    return compile_cubin(KERNELS / kernel.files[0], f"sm_{ARCH}a", lineinfo=True).code


def _parts(kernel: Twin) -> Iterator[tuple[Path, int, int]]:
    """The files of a kernel, with the first and last line of its code."""
    if kernel.language not in PYTHON:
        for file in kernel.files:
            yield KERNELS / file, 1, len((KERNELS / file).read_text(encoding="utf-8").splitlines())
        return
    source = PYTHON[kernel.language]
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name in (kernel.name, *kernel.files):
            yield source, node.lineno, node.end_lineno or node.lineno


def instructions(text: str, kernel: str, own: Container[tuple[str, int]]) -> dict[tuple[str, int], list[str]]:
    """From nvdisasm's text: a kernel's instructions, by its own file and line that they come from.

    One of another line, such as a library's, counts for the own line before it; a subroutine counts for none.
    """
    by_name: dict[tuple[str, int], list[str]] = {}
    section = re.search(rf"^\.text\.\w*{kernel}\w*:(.*?)(?=^\.text\.|\Z)", text, re.MULTILINE | re.DOTALL)
    place = None
    for line in section[1].splitlines() if section else []:
        if at := PLACE.search(line):
            seen = Path(at["path"]).name, int(at["line"])
            place = seen if seen in own else place
        elif line.startswith("$"):
            place = None
        elif place and (instruction := INSTRUCTION.search(line)) and instruction[1] != "NOP":  # which fill the end
            by_name.setdefault(place, []).append(" ".join(instruction[1].split()))
    return by_name


def code_page(record: dict[str, Any]) -> str:
    """The page of a record: for each operation its twins beside each other, a kernel of two operations once."""
    body = [
        "<h1>The price of a language, line by line</h1>",
        "<p>CUDA C++ beside Python, for the same operation of the same step. The number before a line counts the ",
        "instructions of an H100 that it became; click on it to read them. A library's stand with the ",
        "line before it. Python's kernels are compiled for one case with constant sizes; ours hold every case. ",
        "docs/languages.md says what they cost, and why.</p>",
    ]
    shown: set[str] = set()
    for operation, kernels in OPERATIONS.items():
        columns = [
            _column(kernel, record[kernel.name], kernel.name in shown) for kernel in kernels if kernel.name in record
        ]
        if columns:
            body += [f"<h2>{escape(operation)}</h2>", '<div class="pair">', *columns, "</div>"]
        shown |= {kernel.name for kernel in kernels}
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>The price of a language</title>'
    return "\n".join([head, f"<style>{page_rules()}\n{STYLE}</style>", *body]) + "\n"


def _column(kernel: Twin, files: Sequence[dict[str, Any]], is_above: bool) -> str:
    count = sum(len(code) for file in files for code in file["code"].values())
    head = f"<div><h3>{escape(kernel.language)}: <code>{escape(kernel.name)}</code>, {count:,} instructions</h3>"
    return "\n".join([head, *(["<p>The kernel above.</p>"] if is_above else map(_file, files)), "</div>"])


def _file(file: dict[str, Any]) -> str:
    shown = []
    for number, html in enumerate(highlighted(file["path"], "\n".join(file["text"])), file["first"]):
        code = file["code"].get(str(number), [])
        line = Markup("<b>{}</b>{}").format(len(code) or "", html)
        listing = Markup("<details><summary>{}</summary><pre>{}</pre></details>").format(line, "\n".join(code))
        shown.append(listing if code else Markup('<span class="l">{}</span>').format(line))
    return "\n".join([f"<p><code>{escape(file['path'])}</code></p>", *shown])


if __name__ == "__main__":
    sys.exit(main())
