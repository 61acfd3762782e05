"""Code with syntax colours: each line as HTML, by Pygments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from markupsafe import Markup, escape
from pygments.lexers.c_cpp import CppLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

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


@lru_cache(maxsize=512)
def lines(path: str, text: str) -> tuple[Markup, ...]:
    """Each line of a Python, CUDA or C++ file as HTML, without its end."""
    lexer = PythonLexer(stripnl=False) if path.endswith(".py") else CppLexer(stripnl=False)
    found: list[list[tuple[str, str]]] = [[]]
    for kind, value in lexer.get_tokens(text):
        look = next((look for one, look in LOOKS if kind in one), "")
        for number, part in enumerate(value.split("\n")):
            if number:
                found.append([])
            if part:
                found[-1].append((look if part.strip() else "", part))
    while found and not found[-1]:
        found.pop()
    return tuple(map(_html, found))


def _html(parts: Sequence[tuple[str, str]]) -> Markup:
    """A line of (look, text); neighbours that look the same share an element."""
    line = Markup()
    for look, same in groupby(parts, key=itemgetter(0)):
        text = "".join(text for _, text in same)
        line += Markup('<i class="{}">{}</i>').format(look, text) if look else escape(text)
    return line
