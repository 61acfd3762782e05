"""Compare the machine code of our kernels with another commit's: `python -m tools.machine_code --against REV`.

Compiles every kernel for several architectures, from the working tree and from the commit. Kernels that are compiled
for a network are also compiled for the recorded networks, for the GPU of the recordings. A refactoring that only moves
or renames leaves the same instructions and constants. Exits with 1 if any kernel differs.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile

from common.cuda.compile import Macros, compile_cubin, nvrtc_version
from common.cuda.dependent_launch import MACROS, waits
from common.problem import Problem
from stages.engine.workspace import ParameterMemory
from stages.persistent import cluster_plan, grid_plan
from tests.cpu_cuda.sources import parse

ROOT = Path(__file__).resolve().parent.parent
KERNELS = Path("stages/kernels")
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100", "sm_120")
CODE = (".text.", ".nv.constant", ".nv.shared.", ".nv.info.")  # the sections that decide how a kernel runs
PARAM_CBANK = 0x0A  # of .nv.info: where the parameters lie, by the index of a symbol

NETWORKS = (((), 128), ((256,), 128), ((1024,), 128), ((128,) * 3, 32), ((784,) * 4, 64), ((4096,) * 3, 32))
"""Hidden layers and batch size of the recorded networks; 784 inputs and 10 classes."""
RECORDED_ON = ("sm_90a", 132, 227 << 10)  # an H200: architecture, multiprocessors, shared bytes of a block

Variant = tuple[str, Macros]  # a label that follows the kernel's name, and the macros
Digests = dict[tuple[str, str], str]
"""SHA-256 by kernel, with the label of its variant, and architecture."""


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
    """The kernels below the folder, for each architecture that their file supports."""
    jobs = [
        (source, arch, variant)
        for source in sorted(folder.rglob("*.cu"))
        for arch in ARCHITECTURES
        if int(arch.strip("sm_a")) >= max(kernel.minimum_arch for kernel in parse(source))
        for variant in _variants(source, arch)
    ]
    with ProcessPoolExecutor() as pool:
        found = pool.map(_digests_of, *zip(*jobs, strict=True))
        return {key: digest for each in found for key, digest in each.items()}


def _variants(source: Path, arch: str) -> Iterator[Variant]:
    """The ways in which the harness compiles a file."""
    yield "", ()
    if waits(source):
        yield " dependent", MACROS
    own_arch, blocks, shared_bytes = RECORDED_ON
    if arch != own_arch:
        return
    for hidden, batch_size in NETWORKS:
        problem = Problem(inputs=784, classes=10, hidden=hidden, batch_size=batch_size)
        begins = ParameterMemory(np.empty, problem)
        places, steps = (begins.weight_begins, begins.bias_begins), 60_000 // batch_size
        name = " " + "-".join(map(str, (784, *hidden, 10)))
        if source.name == "persistent_grid.cu":
            for parts in (grid_plan.ALL_PARTS, 1):
                if plan := grid_plan.make_plan(problem, steps, *places, blocks, shared_bytes, parts):
                    yield f"{name}, {parts} parts", plan.macros
        elif source.name == "cluster_mlp.cu" and hidden:
            for halves in (cluster_plan.EXACT, cluster_plan.ROUNDED):
                if cluster := cluster_plan.plan_for(problem, halves):
                    yield f"{name}, {halves} halves", cluster.macros(*places)


def _digests_of(source: Path, arch: str, variant: Variant) -> Digests:
    """The kernels of one file for one architecture."""
    label, macros = variant
    elf = ELFFile(io.BytesIO(compile_cubin(source, arch, macros).code))
    symbols = [symbol.name for symbol in elf.get_section_by_name(".symtab").iter_symbols()]
    found = {kernel.name: hashlib.sha256() for kernel in parse(source)}
    for section in sorted(elf.iter_sections(), key=lambda section: section.name):
        for name, digest in found.items():
            if section.name.startswith(CODE) and section.name.endswith(f".{name}"):
                data = section.data()
                digest.update(section.name.encode())
                digest.update(_by_name(data, symbols) if section.name.startswith(".nv.info.") else data)
    return {(f"{name}{label}", arch): digest.hexdigest() for name, digest in found.items()}


def _by_name(info: bytes, symbols: list[str]) -> bytes:
    """Attributes of a kernel with a symbol's name in place of its index, which a constant of the file may shift."""
    written, at = b"", 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        payload = info[at + 4 : at + 4 + size] if form == 4 else b""  # the other forms have their value in `size`
        record = info[at : at + 4 + len(payload)]
        if form == 4 and attribute == PARAM_CBANK:
            record = record[:4] + symbols[struct.unpack_from("<I", payload)[0]].encode() + payload[4:]
        written, at = written + record, at + 4 + len(payload)
    return written


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
