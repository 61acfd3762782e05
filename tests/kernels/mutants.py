"""Mutants of a kernel, made by a program: a wait left out, a bound moved, a term dropped in the code that it runs.

`python -m tests.kernels.mutants gemm_naive` tries them all, and prints those that no case of the kernel catches: each
has no effect, or shows which case `cases.py` lacks.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.cpu_cuda.kernel_sources import KERNELS_FOLDER, Kernel, copy_changed, executed_sources, kernels_in
from tests.cpu_cuda.shim import Shim, Toolchain
from tests.kernels.on_cpu import cases_of, fault

LIMIT_S = 2  # of processor time of a launch: a mutant may wait for ever

# What a rule finds, and what stands in its place. Spaces around an operator tell it from a template's brackets.
RULES = (
    (r"\b(?!griddep)\w*(?:sync|wait|barrier)[\w.]*(?:<[^>;]*>)?\([^;{}]*\);", ""),
    (r" < ", " <= "),
    (r" (?:<=|>=|>|==|&&) ", " < "),
    (r" \+ (?=[\w(])", " - "),
    (r" - (?=[\w(])", " + "),
    (r" \* (?=[\w(])", " + "),
    (r" (?:\+=|-=) (?=[^;]*;\n)", " = "),
    (r" % ", " / "),
    (r"\bif \((?!constexpr)", "if (!"),
    (r" \? [^:?;{}]+ : ", " ? 0 : "),
)
HEAD = re.compile(
    r"__(?:global|device)__[^;{}()]*?(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\([^;{}]*\)\s*(?:const\s*)?\{"
)
UNSEEN = re.compile(r"//[^\n]*|^#if __CUDA_ARCH__ >= \d+\n.*?^#(?:else|endif)$|^#[^\n]*", re.DOTALL | re.MULTILINE)


class Mutant(NamedTuple):
    """One change of one file."""

    file: Path
    begin: int
    end: int
    after: str

    def __str__(self) -> str:
        text = self.file.read_text()
        line = text.count("\n", 0, self.begin)
        change = f"`{text[self.begin : self.end]}` -> `{self.after}`"
        return f"{self.file.name}:{line + 1}: {change}: {text.splitlines()[line].strip()}"


def mutants(kernel: Kernel) -> list[Mutant]:
    """Every change by a rule in a function that the kernel reaches."""
    texts = {
        file: UNSEEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), file.read_text())
        for file in executed_sources(kernel.source)
    }
    functions = [(name, file, begin, end) for file, text in texts.items() for name, begin, end in _functions(text)]
    reached, queue = set[str](), {kernel.name}
    while queue:
        reached |= queue
        bodies = " ".join(texts[file][begin:end] for name, file, begin, end in functions if name in queue)
        queue = ({name for name, *_ in functions} & set(re.findall(r"\w+(?=[(<])", bodies))) - reached
    return [
        Mutant(file, *found.span(), after)
        for name, file, begin, end in functions
        if name in reached
        for rule, after in RULES
        for found in re.compile(rule).finditer(texts[file], begin, end)
    ]


def _functions(text: str) -> Iterator[tuple[str, int, int]]:
    """Every kernel and device function: its name, and where its body begins and ends."""
    for match in HEAD.finditer(text):
        depth, end = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        yield match[1], match.end(), end


def is_caught(mutant: Mutant, kernel: Kernel, cases: Sequence[int], folder: Path, toolchain: Toolchain) -> bool | None:
    """Whether one of these cases of the kernel tells it; None if it does not compile."""
    original = mutant.file.read_text()
    changed = original[: mutant.begin] + mutant.after + original[mutant.end :]
    source = copy_changed(kernel.source, folder, lambda text: changed if text == original else text)
    shim, own = Shim([source], toolchain), cases_of(kernel.name)
    try:
        return any(fault(shim, own[at], limit_s=LIMIT_S) for at in cases)
    except RuntimeError:
        return None


def main(names: list[str]) -> None:
    """Try all mutants of these kernels."""
    with tempfile.TemporaryDirectory() as folder:
        toolchain = Toolchain(Path(folder) / "built")
        for kernel in kernels_in(KERNELS_FOLDER):
            for mutant in mutants(kernel) if kernel.name in names else ():
                if is_caught(mutant, kernel, range(len(cases_of(kernel.name))), Path(folder), toolchain) is False:
                    print(f"{kernel.name}: survives: {mutant}", flush=True)  # noqa: T201
        toolchain.close()


if __name__ == "__main__":
    main(sys.argv[1:])
