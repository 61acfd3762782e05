"""Compare the machine code of our kernels with another commit's: `python -m tools.machine_code --against REV`.

Every kernel is compiled for several architectures, from the tree as it is and from the commit. A refactoring of the
sources that only moves or renames things leaves the same instructions and constants. Ends with 1 where some kernel's
differ.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from elftools.elf.elffile import ELFFile

from common.cuda.compile import compile_cubin, nvrtc_version
from common.cuda.dependent_launch import MACROS, waits
from tests.cpu_cuda.sources import parse

ROOT = Path(__file__).resolve().parent.parent
KERNELS = Path("stages/kernels")
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100", "sm_120")
CODE = (".text.", ".nv.constant", ".nv.shared.", ".nv.info.")  # what decides how a kernel is run

Digests = dict[tuple[str, str], str]
"""SHA-256 by kernel and architecture; ` dependent` follows the kernel's name where it is compiled for such launches."""


def main(argv: list[str]) -> int:
    """Print a line for each kernel that differs, and a summary; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.machine_code", description=__doc__)
    parser.add_argument("--against", metavar="REV", required=True, help="the commit to compare with")
    rev = parser.parse_args(argv).against
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", rev, str(KERNELS)], cwd=ROOT, check=True, stdout=subprocess.PIPE
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        then, now = digests(Path(folder) / KERNELS), digests(ROOT / KERNELS)
    for name, arch in sorted(then.keys() | now.keys()):
        one, other = then.get((name, arch)), now.get((name, arch))
        if one != other:
            print(f"{name} {arch}: {'differs' if one and other else f'only in {rev}' if one else 'new'}")
    same = sum(then.get(key) == digest for key, digest in now.items())
    every, version = len(then.keys() | now.keys()), ".".join(map(str, nvrtc_version()))
    print(f"{same} of {every} kernels and architectures have the machine code of {rev} (NVRTC {version})")
    return 0 if then == now else 1


def digests(folder: Path) -> Digests:
    """Of every kernel below the folder, for each architecture that its file can be compiled for."""
    jobs = [
        (source, arch, macros)
        for source in sorted(folder.rglob("*.cu"))
        for arch in ARCHITECTURES
        if int(arch.strip("sm_a")) >= max(kernel.minimum_arch for kernel in parse(source))
        for macros in ((), MACROS)
        if not macros or waits(source)
    ]
    with ProcessPoolExecutor() as pool:
        found = pool.map(_digests_of, *zip(*jobs, strict=True))
        return {key: digest for each in found for key, digest in each.items()}


def _digests_of(source: Path, arch: str, macros: tuple[tuple[str, str], ...]) -> Digests:
    """The kernels of one file for one architecture."""
    elf = ELFFile(io.BytesIO(compile_cubin(source, arch, macros).code))
    found = {kernel.name: hashlib.sha256() for kernel in parse(source)}
    for section in sorted(elf.iter_sections(), key=lambda section: section.name):
        for name, digest in found.items():
            if section.name.startswith(CODE) and section.name.endswith(f".{name}"):
                digest.update(section.name.encode() + section.data())
    return {(f"{name}{' dependent' if macros else ''}", arch): digest.hexdigest() for name, digest in found.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
