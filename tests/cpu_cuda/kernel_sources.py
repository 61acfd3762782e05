"""Parses `.cu` files: kernels, their parameters, and the comment blocks above them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from common.cuda.compile import local_sources

KERNELS_FOLDER = Path(__file__).parents[2] / "stages" / "kernels"
STAND_INS = Path(__file__).parent  # the shim's own headers, in place of those with the same name

_KERNEL = re.compile(r'extern "C" __global__ void (__launch_bounds__\(.*?\) )?(\w+)\(([^)]*)\)\s*\{')

# Instructions that the shim cannot execute: all inline PTX, unless it is empty, and what no kernel uses.
_GPU_ONLY = re.compile(r"\basm\b(?! *\(\"\")|\bwmma::|\bcooperative_groups\b|\bcg::|__cluster|__pipeline|\bcuda::")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: `const float*` and `a`."""

    type: str
    name: str

    @property
    def is_tensor(self) -> bool:
        """Whether it points to device memory."""
        return "*" in self.type

    @property
    def is_written(self) -> bool:
        """Whether the kernel may write to it."""
        return self.is_tensor and not self.type.startswith("const ")


@dataclass(frozen=True)
class Kernel:
    """One `extern "C" __global__` function; `comment` is the block above it without its slashes."""

    name: str
    source: Path
    parameters: tuple[Parameter, ...]
    comment: tuple[str, ...]
    is_bounded: bool = False  # by __launch_bounds__, which limits its registers

    def section(self, title: str) -> str:
        """The comment's section `Launch:`, `Needs:` or `Order:` on one line; empty if there is none."""
        match = re.search(rf"^{title}:(.*?)(?=^\w+:|\Z)", "\n".join(self.comment), re.MULTILINE | re.DOTALL)
        return " ".join(match[1].split()) if match else ""

    @property
    def early(self) -> frozenset[str]:
        """Tensors that it may read before it waits for the kernel before it, by its `Early: images, labels.`"""
        return frozenset(re.findall(r"\w+", self.section("Early")))

    @property
    def minimum_arch(self) -> int:
        """The oldest architecture that runs it: 90 for `Needs: sm_90`, 0 for any."""
        match = re.match(r"sm_(\d+)", self.section("Needs"))
        return int(match[1]) if match else 0

    @property
    def claims_repeatable(self) -> bool:
        """Whether it promises the same bits in any order of its threads."""
        return re.search(r"(?<!not )\brepeats? bit for bit", self.section("Order")) is not None

    @cached_property
    def is_plain(self) -> bool:
        """Whether a CPU can execute it: neither it nor a device function it calls uses a `_GPU_ONLY` instruction."""
        text = "\n".join(_as_on_cpu(file.read_text()) for file in executed_sources(self.source))
        functions = _functions(text)
        reached, queue = set(), [self.name]
        while queue:
            name = queue.pop()
            if name not in reached:
                reached.add(name)
                queue += [other for other in functions if re.search(rf"\b{other}\b", functions[name])]
        return not any(_GPU_ONLY.search(functions[name]) for name in reached)


def cuda_files(folder: Path) -> list[Path]:
    """Every `.cu` file in the folder and below, sorted."""
    return sorted(folder.rglob("*.cu"))


def executed_sources(source: Path) -> list[Path]:
    """The file and its headers, without those that have stand-ins."""
    return [file for file in local_sources(source) if not (STAND_INS / file.parent.name / file.name).exists()]


def copy_changed(source: Path, folder: Path, change: Callable[[str], str]) -> Path:
    """A copy of the file and its headers with their texts changed; returns the copy of the file."""
    for file in executed_sources(source):
        copy = folder / file.parent.name / file.name
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(change(file.read_text()))
    return folder / source.parent.name / source.name


def kernels_in(folder: Path) -> list[Kernel]:
    """Every kernel of the folder's `.cu` files, file by file, from top to bottom."""
    return [kernel for source in cuda_files(folder) for kernel in parse(source)]


def parse(source: Path) -> list[Kernel]:
    """The kernels of one file."""
    text = source.read_text()
    kernels = []
    for match in _KERNEL.finditer(text):
        parameters = tuple(_parameter(declaration) for declaration in match[3].split(",") if declaration)
        above = text[: match.start()].splitlines()
        comment: list[str] = []
        while above and above[-1].startswith("//"):
            comment.insert(0, above.pop().removeprefix("//").removeprefix(" "))
        kernels.append(Kernel(match[2], source, parameters, tuple(comment), bool(match[1])))
    return kernels


def _parameter(declaration: str) -> Parameter:
    declaration = " ".join(declaration.replace("__restrict__", "").split())
    match = re.fullmatch(r"(.*[\s*])(\w+)", declaration)
    if match is None:
        raise ValueError(f"{declaration!r}: not a parameter of the form `const float* a`")
    return Parameter(match[1].strip().replace(" *", "*"), match[2])


def _as_on_cpu(text: str) -> str:
    """The text without comments, and without code for an architecture: the CPU has no `__CUDA_ARCH__`."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"^#if __CUDA_ARCH__ >= \d+\n.*?^#(?:else|endif)$", "", text, flags=re.DOTALL | re.MULTILINE)


def _functions(text: str) -> dict[str, str]:
    """The body of every kernel and device function by name; overloads are joined."""
    head = r"__(?:global|device)__[^;{}()]*?(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\([^;{}]*\)\s*\{"
    bodies: dict[str, str] = {}
    for match in re.finditer(head, text):
        depth, end = 1, match.end()
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        bodies[match[1]] = bodies.get(match[1], "") + text[match.end() : end]
    return bodies
