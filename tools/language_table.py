"""The price of a language, from records: `python -m tools.language_table` writes the table of docs/languages.md.

It also draws their figure. `--compile FILE` measures, for an H100, what the kernels cost to compile; no GPU is needed.
Times are of the runs below results/languages/, on the machine that was measured last.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from common.files import atomic_write
from common.source_hash import cuda_form
from ladder.records.profile import Kind
from ladder.records.run import Results, all_results, load
from reports.facts.provenance import gpu_name
from reports.markdown.all_documents import between
from tools.language_figure import LanguageBar, figure

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "languages.md"
RECORDS = ROOT / "results" / "languages"
KERNELS = ROOT / "stages" / "kernels"
PYTHON = {  # the file of the kernels in these languages
    "Triton": ROOT / "stages" / "languages" / "triton_kernels.py",
    "CuTe DSL": ROOT / "stages" / "languages" / "cute_kernels.py",
}
ENDS = "<!-- languages:begin (python -m tools.language_table) -->", "<!-- languages:end -->"


class Twin(NamedTuple):
    """One part of a rung in one language."""

    rung: str
    language: str
    name: str
    files: tuple[str, ...]  # of its code; a file of several kernels is searched for the name


TILES = ("tiles/tile_f32.cu", "tiles/output_tiles.cuh")
OPERATIONS: dict[str, tuple[Twin, ...]] = {
    "softmax, loss and gradient": (
        Twin("fused-head", "CUDA C++", "softmax_xent", ("plain/softmax_xent.cu",)),
        Twin("triton-head", "Triton", "triton_softmax_xent", ()),
        Twin("cute-head", "CuTe DSL", "cute_softmax_xent", ()),
    ),
    "products, with bias and ReLU": (
        Twin("skinny-gemm", "CUDA C++", "tile_product_f32", TILES),
        Twin("triton-skinny", "Triton", "triton_product", ("finish",)),
    ),
    "weight gradient and update": (
        Twin("fused-bias", "CUDA C++", "tile_product_f32", TILES),
        Twin("triton-update", "Triton", "triton_update", ()),
    ),
    "a whole step": (
        Twin("fused-bias", "CUDA C++, our engine", "", ()),
        Twin("torch-op", "CUDA C++, in PyTorch", "", ()),
    ),
    "the same, of another run": (Twin("torch-graph", "PyTorch, compiled", "", ()),),
}
KINDS: dict[str, set[Kind]] = {"softmax, loss and gradient": {"softmax"}}  # of an operation's kernels
PRODUCTS: set[Kind] = {"gemm", "update"}  # of the others
CUTE = "cute_softmax_xent"
# One configuration of each kernel in Triton, for a batch of 128 and 784 inputs: kinds of arguments, constants, warps.
F32, P32 = ("fp32", False), ("*fp32", True)
HEAD = {"ROWS": 128, "CLASSES": 10, "WITH_TOTALS": 0, "BLOCK_ROWS": 16, "BLOCK_CLASSES": 16}
UPDATE = {"BATCH": 128, "INPUTS": 784, "OUTPUTS": 10, "BLOCK_INPUTS": 8, "BLOCK_OUTPUTS": 16, "BLOCK_BATCH": 32}
PRODUCT = {"M": 128, "N": 10, "K": 784, "TRANS_A": 0, "TRANS_B": 0, "ADDS": 0, "FUSION": 1, "MASK_BYTES": 16,
           "BLOCK_M": 8, "BLOCK_N": 16, "BLOCK_K": 64, "SPLIT_K": 8}  # fmt: skip
CONFIGURED = {
    "triton_softmax_xent": ((P32, ("*i32", True), P32, ("*fp64", True)), HEAD),
    "triton_update": ((P32, P32, P32, P32, F32), UPDATE),
    "triton_product": ((P32, P32, P32, P32, ("*u8", True), P32, ("*i32", True), F32, F32), PRODUCT),
}


def main(argv: list[str] | None = None) -> int:
    """Measure compilation, or write the table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.language_table", description=__doc__.partition("\n")[0])
    parser.add_argument("--compile", type=Path, metavar="FILE", help="measure compilation, and write it here")
    parser.add_argument("--one", metavar="KERNEL", help=argparse.SUPPRESS)  # in a process of its own: print its seconds
    options = parser.parse_args(argv)
    if options.one:
        print(json.dumps(_seconds(options.one)))
    elif options.compile:
        options.compile.write_text(json.dumps(compile_times(), indent=1) + "\n")
    else:
        for path, text in written().items():
            atomic_write(path, text.encode())
    return 0


def compile_times() -> dict[str, dict[str, float]]:
    """Seconds to have each kernel's machine code: cold, and from the cache on disk; each in a new process."""
    seconds: dict[str, dict[str, float]] = {}
    for kernel in {kernel.name: kernel for pair in OPERATIONS.values() for kernel in pair if kernel.name}.values():
        with tempfile.TemporaryDirectory() as cache:
            command = [sys.executable, "-m", "tools.language_table", "--one", kernel.name]
            cold, warm = (
                json.loads(subprocess.check_output(command, cwd=ROOT, env={**os.environ, "LADDER_CACHE_DIR": cache}))
                for _ in range(2)
            )
        seconds[kernel.name] = {"cold_s": cold, "warm_s": warm}
    return seconds


def _seconds(name: str) -> float:
    """Seconds from source to machine code here; only CuTe DSL's import is counted, which its cache avoids."""
    if name in CONFIGURED:
        from stages.languages import triton_kernels  # noqa: F401  # not counted

        begin = time.perf_counter()
        triton_code(name)
        return time.perf_counter() - begin
    if name == CUTE:
        begin = time.perf_counter()
        cute_code()
        return time.perf_counter() - begin
    from common.cuda.compile import cached_cubin, nvrtc_version

    nvrtc_version()  # loads the library
    files = next(kernel.files for pair in OPERATIONS.values() for kernel in pair if kernel.name == name)
    begin = time.perf_counter()
    cached_cubin(KERNELS / files[0], "sm_90a")
    return time.perf_counter() - begin


def triton_code(name: str) -> bytes:
    """The machine code of a kernel of CONFIGURED for an H100."""
    from common.cuda.triton_code import compile_triton
    from stages.languages import triton_kernels

    code: bytes = compile_triton(getattr(triton_kernels, name), *CONFIGURED[name], 4, 3, 90).asm["cubin"]
    return code


def cute_code() -> bytes:
    """The machine code of `cute-head` for an H100."""
    from stages.fusion.head_kernel import THREADS
    from stages.languages.r1_cute_head import head_code

    return head_code(HEAD["ROWS"], HEAD["CLASSES"], THREADS, False, 90).cubin


def code_lines(kernel: Twin) -> int:
    """Lines of code, without comments, docstrings and blank lines."""
    if kernel.language in PYTHON:
        text = PYTHON[kernel.language].read_text(encoding="utf-8")
        functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
        return sum(_python_lines(text, node) for node in functions if node.name in (kernel.name, *kernel.files))
    texts = [(KERNELS / file).read_text(encoding="utf-8") for file in kernel.files]
    if len(texts) == 1:  # a file of several kernels
        texts = [texts[0].partition(f" {kernel.name}(")[2].partition("\n}\n")[0] + "\n}"]
    return sum(len(cuda_form(text).splitlines()) for text in texts)


def _python_lines(text: str, function: ast.FunctionDef) -> int:
    docstring = function.body[0] if ast.get_docstring(function) else None
    left_out = range(docstring.lineno, (docstring.end_lineno or 0) + 1) if docstring else range(0)
    own = enumerate(text.splitlines()[: function.end_lineno], 1)
    code = [line.strip() for number, line in own if number >= function.lineno and number not in left_out]
    return sum(bool(line) and not line.startswith("#") for line in code)


class Measured(NamedTuple):
    """A rung in a run."""

    gpu: str
    step_us: float
    kernels_us: float  # of a step, by the kernels of the operation's kinds
    registers: list[int]  # of a thread, of each kernel of the given name


def twin_times(runs: Iterable[Results], operation: str, kernel: Twin) -> Measured:
    """A kernel's rung in the last run that timed all rungs of the operation, so that they are compared in one run.

    Raises ValueError if there is none.
    """
    rungs = [kernel.rung for kernel in OPERATIONS[operation]]
    for run in sorted(runs, key=lambda run: run.created, reverse=True):
        timed = {stage.name: stage for stage in run.stages if stage.timing is not None}
        if not timed.keys() >= set(rungs):
            continue
        stage = timed[kernel.rung]
        assert stage.timing is not None
        uses = [use for profile in stage.profiles for use in profile.kernels]
        return Measured(
            gpu_name(run),
            stage.timing.step_us,
            sum(use.us_per_step for use in uses if use.kind in KINDS.get(operation, PRODUCTS)),
            sorted({use.registers for use in uses if use.name == kernel.name}),
        )
    raise ValueError(f"no run has times of {', '.join(rungs)}")


Found = dict[str, dict[tuple[str, Twin], Measured]]


def found_in(folder: Path) -> Found:
    """What one machine's records hold, by network: of its own runs, and of the reference's with the same problem."""
    runs = [load(file) for file in sorted(folder.rglob("results.json"))]
    reference = [load(file) for file in all_results(RECORDS.parent / "reference" / folder.name)]
    times: Found = {}
    for name in sorted({run.problem.network for run in runs}):
        own = [run for run in runs if run.problem.network == name]
        own += [run for run in reference if run.problem == own[0].problem]
        times[name] = {(of, kind): twin_times(own, of, kind) for of, kinds in OPERATIONS.items() for kind in kinds}
    return times


def newest() -> Path:
    """The folder of the machine that was measured last."""
    return max(RECORDS.glob("*/"), key=lambda folder: max(load(file).created for file in folder.rglob("results.json")))


def table(measured_times: Found, compiled: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """The table of one machine's records and its times of compilation, line by line."""
    yield f"| operation | language | {' | '.join(f'{name}, us a step' for name in measured_times)} | "
    yield "registers | lines | compile cold, warm |\n"
    yield "| --- " * (5 + len(measured_times)) + "|\n"
    for operation, kernels in OPERATIONS.items():
        for kernel in kernels:
            each = [network[operation, kernel] for network in measured_times.values()]
            times = [
                f"`{kernel.rung}` {time.step_us:.2f}{f' ({time.kernels_us:.2f})' if kernel.name else ''}"
                for time in each
            ]
            used = sorted({count for time in each for count in time.registers})
            of_thread = f"{used[0]} to {used[-1]}" if len(used) > 1 else "".join(map(str, used))
            cells = [operation if kernel is kernels[0] else "", kernel.language, *times, of_thread]
            if seconds := compiled.get(kernel.name):
                cells += [str(code_lines(kernel)), f"{seconds['cold_s']:.2f} s, {1e3 * seconds['warm_s']:.1f} ms"]
            else:
                cells += [str(code_lines(kernel)) if kernel.name else "", ""]
            yield f"| {' | '.join(cells)} |\n"


def written() -> dict[Path, str]:
    """The page with today's table between its markers, and the figure; ReportError without markers."""
    folder = newest()
    times = found_in(folder)
    drawn, compiled = folder / "languages.svg", json.loads((RECORDS / "compile.json").read_text(encoding="utf-8"))
    bars = {
        name: [LanguageBar(of, kernel.language, kernel.rung, time.step_us) for (of, kernel), time in network.items()]
        for name, network in times.items()
    }
    shown = f"![Microseconds a step by operation and language](../{drawn.relative_to(ROOT)})\n\n"
    gpu = next(time.gpu for network in times.values() for time in network.values())
    block = "".join((shown, *table(times, compiled))).rstrip()
    return {PAGE: between(PAGE.read_text(encoding="utf-8"), PAGE, ENDS, block), drawn: figure(bars, gpu)}


if __name__ == "__main__":
    sys.exit(main())
