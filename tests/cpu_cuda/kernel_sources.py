"""Parses `.cu` files: kernels, their parameters, and the comment blocks above them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common.cuda.compile import local_sources

KERNELS_FOLDER = Path(__file__).parents[2] / "stages" / "kernels"
STAND_INS = Path(__file__).parent  # the shim's own headers, in place of those with the same name

_KERNEL = re.compile(r'extern "C" __global__ void (__launch_bounds__\(.*?\) )?(\w+)\(([^)]*)\)\s*\{')


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
