"""The code of a rung beside that of the rung that it climbs from: what one choice changed, coloured by Pygments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from markupsafe import Markup, escape
from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from ladder.records.run import Results, StageResult
from ladder.records.sources import Sources
from reports.facts import numbers

# Classes of the style sheet, by kinds of tokens; the first that holds a token names it.
LOOKS: tuple[tuple[_TokenType, str], ...] = (
    (Comment.Preproc, "k"),
    (Comment.PreprocFile, "s"),
    (Comment, "c"),
    (String, "s"),
    (Number, "m"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Function, "n"),
    (Name.Class, "n"),
    (Name.Decorator, "n"),
)
LEAST_ALIKE = 0.2  # share of the lines; kernels with less in common are another program, and no diff tells how
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class CodeLine:
    """A line of a diff: `-` of the replaced part, `+` of the rung's own file, or a blank for both."""

    sign: str
    code: str


@dataclass(frozen=True)
class RungCode:
    """A rung's code: its own file against the part that it replaces, and the CUDA files that it launches."""

    path: str
    replaced: str  # `OneByOne of stages/engine/parts.py`; empty if the sources do not have the part
    diff: list[CodeLine]
    kernels: list[tuple[str, bool]]  # each file with a kernel that it launches, and whether the parent launches none
    headers: list[str]
    gone: str  # in words, the kernels that the parent launches and this rung does not; empty without any
    new: str
    kernel_diff: list[CodeLine]  # the CUDA kernels that only this rung launches against those that only the parent does

    @property
    def files(self) -> list[str]:
        """The files that the page can show whole."""
        return [*(path for path, _ in self.kernels), *self.headers]


def shown_code(stage: StageResult, results: Results, sources: Sources) -> RungCode | None:
    """The code of a stage; None if the sources do not have it."""
    files = sources.stages.get(stage.name)
    if not files:
        return None
    own, parent = files[0], results.stage(stage.below)
    before = _class_named(sources.replaced.get(stage.name, ""), sources)
    launched, below = _launched(stage), _launched(parent)
    compiled = [path for path in files if "/kernels/" in path or not path.endswith(".py")]
    compiled = [path for path in compiled if not path.endswith((".cuh", ".h"))]
    below_files = sources.stages.get(stage.below or "", [])
    # Nothing profiles a stage on the CPU, whose kernels are Python; without a profile on the GPU, new files are shown.
    on_cpu = stage.device == "cpu"
    shown = [
        path
        for path in compiled
        if path.endswith(".py") == on_cpu
        and (on_cpu or (_defines(sources.files[path], launched) if launched else path not in below_files))
    ]
    known = bool(launched and below)
    return RungCode(
        path=own,
        replaced=f"{before[0]} of {before[1]}" if before else "",
        diff=_diff(before, own, sources.files),
        kernels=sorted(
            ((path, known and not _defines(sources.files[path], below)) for path in shown),
            key=lambda kernel: not kernel[1],  # new ones first
        ),
        headers=[path for path in files if path.endswith((".cuh", ".h")) and _is_included(path, shown, sources.files)],
        gone=numbers.listing(sorted(below - launched) or [""]) if known else "",
        new=numbers.listing(sorted(launched - below) or [""]) if known else "",
        kernel_diff=_kernel_diff(
            _kernels_of(below - launched, below_files, sources.files),
            _kernels_of(launched - below, files, sources.files),
        )
        if known
        else [],
    )


def _launched(stage: StageResult | None) -> set[str]:
    """The names of the kernels that a stage's profiles saw."""
    return {kernel.name for profile in stage.profiles for kernel in profile.kernels} if stage is not None else set()


def _defines(text: str, kernels: set[str]) -> bool:
    """Whether a CUDA file's code names one of these kernels; a comment may name those of other files."""
    code = COMMENT.sub(" ", text)
    return any(re.search(rf"\b{re.escape(name)}\b", code) for name in kernels)


def _kernels_of(names: set[str], paths: list[str], files: Mapping[str, str]) -> tuple[list[str], list[Markup]]:
    """The definitions of these kernels in CUDA files, each with the comment above it: lines as text and as HTML."""
    text, html = list[str](), list[Markup]()
    for path in paths:
        if path.endswith(".cu"):
            for first, last in _definitions(files[path], names):
                text += files[path].splitlines()[first:last]
                html += lines(path, files[path])[first:last]
    return text, html


def _definitions(text: str, names: set[str]) -> Iterator[tuple[int, int]]:
    """The first line and the end of each of these kernels' definitions."""
    code = COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), text)  # with every letter at its place
    above = text.splitlines()
    for kernel in re.finditer(r"^[^\n;{}]*__global__[^;{]*?\b(?!__)(\w+)\s*\((?=[^;{]*\{)", code, re.MULTILINE):
        if kernel[1] not in names:
            continue
        end, depth = code.index("{", kernel.end()), 1
        while depth and end + 1 < len(code):
            end += 1
            depth += {"{": 1, "}": -1}.get(code[end], 0)
        first = text.count("\n", 0, kernel.start())
        while first and above[first - 1].startswith("//"):
            first -= 1
        yield first, text.count("\n", 0, end) + 1


def _kernel_diff(before: tuple[list[str], list[Markup]], after: tuple[list[str], list[Markup]]) -> list[CodeLine]:
    """The kernels of both rungs line by line; empty if a side has none, or if they are hardly alike."""
    if not before[0] or not after[0]:
        return []
    alike = SequenceMatcher(lambda line: not line.strip(), before[0], after[0], autojunk=False).ratio()
    return list(matched(before[0], tuple(before[1]), after[0], tuple(after[1]))) if alike >= LEAST_ALIKE else []


def _is_included(header: str, by: list[str], files: Mapping[str, str]) -> bool:
    """Whether one of these files includes the header, directly or through another header."""
    waiting, seen = [header], {header}
    while waiting:
        name = waiting.pop().rpartition("/")[2]
        including = {path for path, text in files.items() if name in _includes(text)} - seen
        if not including.isdisjoint(by):
            return True
        seen |= including  # headers may include each other
        waiting += [path for path in including if path.endswith((".cuh", ".h"))]
    return False


@lru_cache(maxsize=512)
def _includes(text: str) -> set[str]:
    """The names of the headers that a file includes, without their folders."""
    return set(re.findall(r'#\s*include\s+"(?:.*/)?([^"/]*)"', text))


def _class_named(name: str, sources: Sources) -> tuple[str, str, int, int] | None:
    """A class, its file, and its first and last line; None if it cannot be found."""
    for path, text in sources.files.items():
        if name and path.endswith(".py") and f"class {name}" in text:
            for node in ast.walk(_parsed(text)):
                if isinstance(node, ast.ClassDef) and node.name == name:
                    return name, path, node.lineno, node.end_lineno or node.lineno
    return None


def _diff(before: tuple[str, str, int, int] | None, own: str, files: Mapping[str, str]) -> list[CodeLine]:
    """The own file, without its docstring and first imports, against the replaced part; alone if there is none."""
    text = files[own]
    start = _after_imports(text)
    after = text.splitlines()[start:]
    after_html = lines(own, text)[start:]
    while after and not after[0].strip():
        after, after_html = after[1:], after_html[1:]
    if before is None:
        return [CodeLine(" ", html) for html in after_html]
    _, path, first, last = before
    replaced, replaced_html = files[path].splitlines()[first - 1 : last], lines(path, files[path])[first - 1 : last]
    return list(matched(replaced, replaced_html, after, after_html))


def matched(
    before: Sequence[str], before_shown: Sequence[str], after: Sequence[str], after_shown: Sequence[str]
) -> Iterator[CodeLine]:
    """The lines of both texts as they are shown: what both have once, and otherwise the replaced ones first."""
    matcher = SequenceMatcher(lambda line: not line.strip(), before, after, autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        same = before[a:b] == after[c:d]
        if not same:
            yield from (CodeLine("-", line) for line in before_shown[a:b])
        yield from (CodeLine(" " if same else "+", line) for line in after_shown[c:d])


def _after_imports(text: str) -> int:
    """The number of lines up to the end of the module's docstring and the imports that follow it."""
    end = 0
    for node in getattr(_parsed(text), "body", []):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and not end
        if not is_text and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        end = node.end_lineno or end
    return end


@lru_cache(maxsize=512)
def _parsed(text: str) -> ast.AST:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
        return ast.Module([], [])


@lru_cache(maxsize=512)
def _look(kind: _TokenType) -> str:
    """The class of a kind of token; empty for plain text."""
    return next((look for token, look in LOOKS if kind in token), "")


@lru_cache(maxsize=512)
def lines(path: str, text: str) -> tuple[Markup, ...]:
    """Each line of a Python, CUDA or C++ file as HTML, without its end."""
    lexer = PythonLexer(stripnl=False) if path.endswith(".py") else CppLexer(stripnl=False)
    code_lines: list[list[tuple[str, str]]] = [[]]
    for kind, value in lexer.get_tokens(text):
        look = _look(kind)
        for number, part in enumerate(value.split("\n")):
            if number:
                code_lines.append([])
            if part:
                code_lines[-1].append((look if part.strip() else "", part))
    while code_lines and not code_lines[-1]:
        code_lines.pop()
    return tuple(map(_html, code_lines))


def _html(parts: Sequence[tuple[str, str]]) -> Markup:
    """A line of (look, text); neighbours that look the same share an element."""
    alike = ((look, escape("".join(text for _, text in same))) for look, same in groupby(parts, key=itemgetter(0)))
    return Markup("".join(f'<i class="{look}">{text}</i>' if look else text for look, text in alike))
