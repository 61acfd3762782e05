"""The symbols of a CUDA C++ file: what each is, normalised, and the names in it.

A symbol is a declaration outside of all braces, or a macro, under the conditions of the preprocessor around it.
Overloads and specialisations count as one. Comments and layout do not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<line>\#(?:\\\n|//[^\n]*|/\*.*?\*/|[^\n])*)
    |(?P<text>R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<word>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[\w.']|(?<=[eEpP])[+-])*)|(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
WORD = re.compile(r"[A-Za-z_]\w*")
OPEN, CLOSE = {"(", "[", "{"}, {")", "]", "}"}
TYPES = {"struct", "class", "union", "enum", "void", "int", "float", "double", "bool", "char", "unsigned", "auto"}
ATTRIBUTES = {"__launch_bounds__", "__align__", "alignas", "__attribute__", "decltype", "noexcept"}


class Declaration(NamedTuple):
    """A declaration or a line of the preprocessor."""

    form: str
    names: frozenset[str]  # that it gives; none: it counts for every user of the file
    words: frozenset[str]  # in it
    kind: str  # `kernel`, `macro` or empty


@lru_cache(maxsize=1024)
def declarations_of(text: str) -> list[Declaration]:
    """The declarations of a text; a text whose braces do not match is one declaration without a name."""
    found: list[Declaration] = []
    conditions: list[str] = []
    own: list[str] = []  # of this declaration
    depth, blocks = 0, 0  # within it; of namespaces and `extern "C"`
    for token in tokens(text):
        if token.startswith("#") and not own:
            word, _, rest = token[1:].strip().partition(" ")
            if word == "include" and rest.startswith('"'):
                found += [_declaration([token], set(), conditions)] if conditions else []
            elif word in ("if", "ifdef", "ifndef", "elif", "else"):
                conditions.append(token)
            elif word == "endif":
                while conditions and conditions.pop()[1:].split()[0] in ("elif", "else"):
                    pass
            elif token != "#pragma once":
                names = set(WORD.findall(rest)[:1]) if word in ("define", "undef") else set()
                found.append(_declaration([token], names, conditions))
            continue
        if token == "}" and not own and blocks:
            blocks -= 1
            continue
        own.append(token)
        depth += (token in OPEN) - (token in CLOSE)
        if token == "{" and depth == 1 and (own[0] == "namespace" or own == ["extern", '"C"', "{"]):
            own, depth, blocks = [], 0, blocks + 1
        elif depth == 0 and (token == ";" or (token == "}" and not _goes_on(_outer(own)))):
            if own[0] not in (";", "static_assert"):  # an assertion is no machine code
                found.append(_declaration(own, _names(_outer(own), own), conditions))
            own = []
    if own or depth or blocks or conditions:
        return [_declaration(tokens(text), set(), [])]
    return found


def used_of(texts: Mapping[str, str], is_named: Callable[[str], bool]) -> dict[str, set[str]]:
    """What kernels of these names use of a file and its headers, as forms by file; empty without such a kernel."""
    declared = [(path, each) for path, text in texts.items() for each in declarations_of(text)]
    macros = {name for _, each in declared if each.kind == "macro" for name in each.names}
    waiting = {name for _, each in declared if each.kind == "kernel" for name in each.names if is_named(name)}
    if not waiting:
        return {}
    by_name: dict[str, list[Declaration]] = {}
    for _, each in declared:
        if not each.names or (each.kind != "macro" and each.names & macros):  # a macro there may declare anything
            waiting |= each.words | {each.form}
            by_name[each.form] = [each]
        for name in each.names:
            by_name.setdefault(name, []).append(each)
    used: set[Declaration] = set()
    while waiting:
        for each in by_name.pop(waiting.pop(), ()):
            if each not in used:
                used.add(each)
                waiting |= each.words
    found: dict[str, dict[frozenset[str], str]] = {}
    for path, each in declared:
        if each in used:
            own = found.setdefault(path, {})
            own[each.names] = f"{own.get(each.names, '')}{each.form}\n"  # in their order: a macro may be defined twice
    return {path: {*forms.values()} for path, forms in found.items()}


def tokens(text: str) -> list[str]:
    """Words, numbers, texts and signs; a line of the preprocessor is one token."""
    found = []
    for match in TOKEN.finditer(text):
        if match.lastgroup == "line":
            found.append(" ".join(COMMENT.sub(" ", match[0].replace("\\\n", " ")).split()))
        elif match.lastgroup != "space":
            found.append(match[0])
    return found


def _declaration(tokens: list[str], names: set[str], conditions: list[str]) -> Declaration:
    form = " ".join((*conditions, *tokens))
    kind = "kernel" if "__global__" in tokens else "macro" if tokens[0].startswith("#") else ""
    return Declaration(form, frozenset(names), frozenset(WORD.findall(form)) - names, kind)


def _goes_on(outer: list[str]) -> bool:
    """Whether a declaration whose braces just closed ends with a semicolon that is still to come."""
    return "operator" not in outer and ("=" in outer or "(" not in outer)


def _outer(tokens: list[str]) -> list[str]:
    """The tokens outside of brackets, with these, and without `template <...>` and attributes."""
    outer: list[str] = []
    depth, angle = 0, 0
    before = ""
    for token in tokens:
        depth -= token in CLOSE
        if depth == 0 and (token == "<" and (angle or before == "template")):
            angle += 1
        elif depth == 0 and angle and token == ">":
            angle -= 1
        elif depth == 0 and not angle and token not in ATTRIBUTES and not (before in ATTRIBUTES and token == "("):
            outer.append(token)
        if token in OPEN:
            depth += 1
        before = token if depth == 0 or token in OPEN else before
    return outer


def _names(outer: list[str], tokens: list[str]) -> set[str]:
    """The names that a declaration gives, and perhaps more; none if it is not understood."""
    if "operator" in outer or outer[:2] == ["using", "namespace"]:
        return set()
    if outer[0] == "using" and "=" in outer:
        return {outer[1]}
    begin = outer.index("{") if "{" in outer else len(outer)
    if "=" not in outer[:begin] and "(" in outer[:begin]:  # a function
        return {word for word, sign in pairwise(outer[:begin]) if sign == "(" and WORD.match(word)} - TYPES
    names: set[str] = set()
    if outer[0] in TYPES:
        if outer[0] == "enum" and "{" in tokens:
            names = set(WORD.findall(" ".join(tokens[tokens.index("{") :])))
        names |= {next((word for word in outer[1:] if WORD.match(word) and word not in TYPES), "")}
        outer = outer[len(outer) - outer[::-1].index("}") :] if "}" in outer else outer[2:]
    last, is_value = "", False
    for token in outer:
        if WORD.match(token):
            last = token
        elif token in ("=", ";", ",", "[", "{"):
            names |= set() if is_value else {last}
            is_value = token == "=" or (is_value and token not in (",", ";"))
    return names - TYPES - {""}
