"""A stage's identity is what it uses: a neighbour and layout change nothing, and every token that it uses does."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest

from ladder.records.cuda_symbols import TOKEN, declarations_of, tokens, used_of
from ladder.records.run import all_results, load
from ladder.records.source_walk import Project
from ladder.records.used_code import UsedCode
from ladder.run.code_watch import Disk
from tests.seeds import SEED

TREE = {
    "stages/registry.py": 'SOURCES = ("stages.base:STAGE", "stages.rung:STAGE", "stages.other:STAGE")\n',
    "stages/base.py": """
from stages.parts import Plain, Twice
STAGE = Stage.from_recipe("base", "Base", Recipe(gemm=Plain, head=Twice, launch=Twice), words="one")
""",
    "stages/rung.py": '''
"""Its text."""
import numpy as np
from stages import base, parts
from stages.helpers import helper
from stages.kernel import jit

SIZE, LIMIT = 32, 5
NEIGHBOUR = 1


class Gemm(parts.Plain):
    """Fast."""
    file = "k/gemm.cu"
    names = {"kernels": ("gemm_fast", f"gemm_{SIZE}_x")}
    field: int = 7
    unused: int = 8

    def __init__(self, load, macros: tuple = ()):
        """Load it."""
        self.run = load(self.file, self.names, ("TILE", "4"))

    def __call__(self, x: float) -> float:
        local: int = helper(x)  # once
        return self.run(local, self.field, np.float32(SIZE), own(x))

    def never(self):
        return 1


@jit
def own(x: "constant"):
    return x


STAGE = base.STAGE.climb("rung", "Rung", words="two", gemm=Gemm)
''',
    "stages/other.py": """
from stages.parts import Open
def build(problem, train):
    return Open()
STAGE = Stage("other", "Other", "reference", "float32", ("numpy",), build, words="three")
""",
    "stages/parts.py": """
from foreign import Base
class Plain:
    def step(self): return 3
    def flush(self): type(self).step(self)
    def __len__(self): return len(self.flush())
class Twice:
    def __call__(self): return 2
class Open(Base):
    def called_by_the_library(self): return 4
""",
    "stages/helpers.py": """
def helper(x, *, power=2):
    if x < 0:
        raise ValueError(f"{x}: must not be negative")
    return x ** power * deeper(x)
def deeper(x): return x + CONSTANT
def neighbour(x): return x
CONSTANT = 5
""",
    "stages/kernel.py": "def jit(function): return function\n",
    "stages/kernels/k/gemm.cu": """
#include <cuda_fp16.h>
#include "k/tile.cuh"
#define SIDE 8
#define UNUSED 9
constexpr int ROWS = 2, COLS = SIDE;
struct Shape { int rows, cols; };
template <int N> __device__ float twice(float x) { return N * x; }
__device__ float neighbour(float x) { return x; }
// The fast one.
extern "C" __global__ void __launch_bounds__(ROWS * 32) gemm_fast(float* x, Shape shape) {
    x[threadIdx.x] = twice<COLS>(x[0]) + tile(1.5f);  // here
}
extern "C" __global__ void gemm_32_x(float* x) { x[0] = 1; }
extern "C" __global__ void gemm_slow(float* x) { x[0] = neighbour(2); }
""",
    "stages/kernels/k/tile.cuh": """
#pragma once
#ifndef TILE
#define TILE 16
#endif
#if TILE > 8
__device__ float tile(float x) { return TILE * x; }
#else
__device__ float tile(float x) { return x; }
#endif
__device__ float unused_tile(float x) { return x; }
""",
}
RUNG, OTHER = "stages/rung.py:STAGE", "stages/other.py:STAGE"
SAME = [
    ("stages/rung.py", "NEIGHBOUR = 1", "NEIGHBOUR = 2"),
    ("stages/rung.py", '"""Fast."""', '"""Faster."""'),
    ("stages/rung.py", "  # once", "  # twice"),
    ("stages/rung.py", "self.run(local, ", "self.run(\n            local,\n            "),
    ("stages/rung.py", "x: float) -> float", "x) -> int"),
    ("stages/rung.py", "macros: tuple = ()", "macros: list = ()"),
    ("stages/rung.py", "local: int = ", "local = "),
    ("stages/rung.py", "field: int", "field: float"),
    ("stages/rung.py", "unused: int = 8", "unused: int = 9"),
    ("stages/rung.py", "def never(self):\n        return 1", "def ever(self):\n        return 2"),
    ("stages/rung.py", '"Rung", words="two"', '"A rung", words="a better one"'),
    ("stages/rung.py", '"""Its text."""', '"""Another text.\n\nWhy: because.\n"""\n'),
    ("stages/helpers.py", "def neighbour(x): return x", "def neighbour(x): return -x"),
    ("stages/helpers.py", "must not be negative", "is negative"),
    ("stages/parts.py", "return 4", "return 5"),
    ("stages/base.py", 'words="one"', 'words="a base", title="Bases"'),
    ("stages/registry.py", 'other:STAGE")', 'other:STAGE", "stages.new:STAGE")'),
    ("stages/kernels/k/gemm.cu", "// The fast one.", "/* The\n fastest. */"),
    ("stages/kernels/k/gemm.cu", "  // here", ""),
    ("stages/kernels/k/gemm.cu", "x[threadIdx.x] = ", "x [ threadIdx . x ]=\n"),
    ("stages/kernels/k/gemm.cu", "#define UNUSED 9", "#define UNUSED 10"),
    ("stages/kernels/k/gemm.cu", "neighbour(2)", "neighbour(3)"),
    ("stages/kernels/k/gemm.cu", "neighbour(float x) { return x; }", "neighbour(float x) { return -x; }"),
    ("stages/kernels/k/gemm.cu", "extern", 'extern "C" __global__ void gemm_new() {}\nextern'),
    ("stages/kernels/k/gemm.cu", "constexpr", "static_assert(sizeof(int) == 4);\nconstexpr"),
    ("stages/kernels/k/tile.cuh", "unused_tile(float x) { return x; }", "unused_tile(float x) { return 2 * x; }"),
]
DIFFERENT = [
    ("stages/rung.py", "SIZE, LIMIT = 32", "SIZE, LIMIT = 33"),
    ("stages/rung.py", "field: int = 7", "field: int = 8"),
    ("stages/rung.py", '"TILE", "4"', '"TILE", "5"'),
    ("stages/rung.py", "np.float32", "np.float64"),
    ("stages/rung.py", "import numpy", "import cupy"),
    ("stages/rung.py", "@jit", "@jit(1)"),
    ("stages/rung.py", 'x: "constant"', 'x: "other"'),  # a decorator that is not known may read it
    ("stages/rung.py", "gemm=Gemm", "gemm=parts.Plain"),
    ("stages/rung.py", "gemm=Gemm)", "gemm=Gemm, head=Gemm)"),
    ("stages/helpers.py", "power=2", "power=3"),
    ("stages/helpers.py", "CONSTANT = 5", "CONSTANT = 6"),
    ("stages/helpers.py", "x + CONSTANT", "x - CONSTANT"),
    ("stages/helpers.py", "def deeper", "print()\ndef deeper"),  # when it is imported
    ("stages/helpers.py", "def helper", "def renamed"),  # then the whole file counts
    ("stages/helpers.py", "def helper", "1 +\ndef helper"),
    ("stages/kernel.py", "return function", "return function or jit"),
    ("stages/parts.py", "len(self.flush())", "0"),
    ("stages/parts.py", "type(self).step(self)", "type(self).step(1)"),
    ("stages/parts.py", "return 3", "return 2"),
    ("stages/base.py", "head=Twice", "head=Plain"),
    ("stages/kernels/k/gemm.cu", "SIDE 8", "SIDE 16"),
    ("stages/kernels/k/gemm.cu", "ROWS = 2", "ROWS = 4"),
    ("stages/kernels/k/gemm.cu", "ROWS * 32", "ROWS * 64"),
    ("stages/kernels/k/gemm.cu", "N * x", "N + x"),
    ("stages/kernels/k/gemm.cu", "template <int N>", "template <unsigned N>"),
    ("stages/kernels/k/gemm.cu", "twice<COLS>", "twice<ROWS>"),
    ("stages/kernels/k/gemm.cu", "int rows, cols;", "int cols, rows;"),
    ("stages/kernels/k/gemm.cu", "1.5f", "1.5"),
    ("stages/kernels/k/gemm.cu", "{ x[0] = 1; }", "{ x[0] = 2; }"),  # named by an f-string
    ("stages/kernels/k/gemm.cu", "#include <cuda_fp16.h>", "#include <cuda_bf16.h>"),
    ("stages/kernels/k/tile.cuh", "TILE 16", "TILE 32"),
    ("stages/kernels/k/tile.cuh", "TILE > 8", "TILE > 9"),
    ("stages/kernels/k/tile.cuh", "TILE * x", "TILE / x"),
]


def used(place: str, tree: dict[str, str]) -> set[str]:
    code = UsedCode(place, Project(tree))
    return set().union(*code.timer.values(), *code.python.values(), *code.kernels.values())


def replaced(file: str, old: str, new: str) -> dict[str, str]:
    assert TREE[file].count(old) >= 1
    return TREE | {file: TREE[file].replace(old, new, 1)}


@pytest.mark.parametrize(("file", "old", "new"), SAME)
def test_what_a_stage_does_not_use_changes_nothing(file: str, old: str, new: str) -> None:
    assert used(RUNG, replaced(file, old, new)) == used(RUNG, TREE)


@pytest.mark.parametrize(("file", "old", "new"), DIFFERENT)
def test_what_a_stage_uses_changes_its_identity(file: str, old: str, new: str) -> None:
    assert used(RUNG, replaced(file, old, new)) != used(RUNG, TREE)


def test_a_part_that_the_rung_replaced_is_none_of_its_code() -> None:
    base = TREE | {
        "stages/base.py": TREE["stages/base.py"].replace("gemm=Plain", "gemm=Old").replace("Twice\n", "Twice, Old\n")
    }
    for body in ("1", "2"):
        base["stages/parts.py"] = (
            f"{TREE['stages/parts.py']}class Old:\n    size = {body}\n    def __call__(self): return {body}\n"
        )
        assert used(RUNG, base) == used(RUNG, TREE)


@pytest.mark.parametrize(
    ("move", "renamed"),
    [
        ("stages/helpers.py", ("from stages.helpers", "from stages.deep.helpers", "stages/deep/helpers.py")),
        ("stages/parts.py", ("parts", "plain", "stages/plain.py")),  # a class inherits from parts.Plain
        ("stages/base.py", ("base", "naive", "stages/naive.py")),
        ("stages/kernels/k/gemm.cu", ("k/gemm.cu", "deep/gemm.cu", "stages/kernels/deep/gemm.cu")),
        ("stages/kernels/k/tile.cuh", ("k/tile.cuh", "k/tiles.cuh", "stages/kernels/k/tiles.cuh")),
    ],
)
def test_a_move_changes_nothing(move: str, renamed: tuple[str, str, str]) -> None:
    old, new, place = renamed
    tree = {place if path == move else path: text.replace(old, new) for path, text in TREE.items()}
    assert used(RUNG, tree) == used(RUNG, TREE)


def test_a_foreign_library_may_call_what_nothing_names() -> None:
    other = replaced("stages/parts.py", "return 4", "return 5")
    assert used(OTHER, other) != used(OTHER, TREE)


def test_of_a_module_whose_names_are_all_imported_the_whole_counts() -> None:
    star = replaced("stages/rung.py", "from stages.helpers import helper", "from stages.helpers import *")
    other = star | {"stages/helpers.py": star["stages/helpers.py"].replace("def neighbour(x): return x", "")}
    assert used(RUNG, other) != used(RUNG, star)


def test_a_file_without_a_named_kernel_counts_as_a_whole() -> None:
    nameless = replaced("stages/rung.py", '"gemm_fast", f"gemm_{SIZE}_x"', "SIZE")
    changed = nameless | {
        "stages/kernels/k/gemm.cu": TREE["stages/kernels/k/gemm.cu"].replace("neighbour(2)", "neighbour(3)")
    }
    assert used(RUNG, changed) != used(RUNG, nameless)


def test_a_pattern_names_the_files_with_a_named_kernel_or_without_one_all() -> None:
    pattern = replaced("stages/rung.py", '"k/gemm.cu"', 'f"k/{NEIGHBOUR}.cu"')
    pattern |= {"stages/kernels/k/two.cu": "__global__ void two() {}", "stages/kernels/three.cu": ""}
    kernels = UsedCode(RUNG, Project(pattern)).kernels.keys()
    assert kernels == {"stages/kernels/k/gemm.cu", "stages/kernels/k/tile.cuh"}
    pattern["stages/rung.py"] = pattern["stages/rung.py"].replace('"gemm_fast", f"gemm_{SIZE}_x"', "SIZE")
    assert UsedCode(RUNG, Project(pattern)).kernels.keys() == kernels | {"stages/kernels/k/two.cu"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("struct __align__(16) A { int a; int f() { return a; } };", {"A"}),
        ("struct A : B { int a; } one, two;", {"A", "one", "two"}),
        ("enum class E { X, Y = 2 };", {"E", "X", "Y"}),
        ("template <class T, bool B = (sizeof(T) > 4)> __device__ T f(T x) { return x; }", {"f"}),
        ("template <> __device__ int A<3>::f(int x) { return x; }", {"f"}),
        ("using T = A<1, 2>;", {"T"}),
        ("__constant__ float table[] = {1, 2};", {"table"}),
        ("extern __shared__ float memory[];", {"memory"}),
        ("namespace n { constexpr int a = f(1) + b, c{2}; }", {"a", "c"}),
        ('extern "C" { __global__ void k() {} }', {"k"}),
        ("struct A f() { return {}; }", {"f"}),
        ('const char* text = "{ // no comment";', {"text"}),
        ("#define F(x) \\\n    ((x) + 1)", {"F"}),
        ("__device__ bool operator==(A a, A b) { return true; }", set()),  # of everything in the file
        ("int f( {", set()),
    ],
)
def test_a_declaration_gives_these_names(text: str, names: set[str]) -> None:
    following = "\nint next;"
    (found, *rest) = declarations_of(text + following)
    assert found.names == names
    assert not rest or rest[-1].names == {"next"}


def test_a_macro_that_declares_counts_for_the_whole_file() -> None:
    text = "#define MAKE(n) void n() { one(); }\nMAKE(helper)\n__global__ void k() { helper(); }\n"
    assert used_of({"a.cu": text}, "k".__eq__) != used_of(
        {"a.cu": text.replace("MAKE(helper)", "MAKE(help)")}, "k".__eq__
    )


@pytest.fixture(scope="module")
def stages() -> dict[str, UsedCode]:
    project = Project(Disk())
    return {name: UsedCode(place, project) for name, place in project.stages.items()}


def test_every_kernel_that_a_gpu_has_run_is_used(stages: dict[str, UsedCode]) -> None:
    ours = {
        name
        for path in Path("stages/kernels").rglob("*.cu")
        for declared in declarations_of(path.read_text())
        if declared.kind == "kernel"
        for name in declared.names
    }
    runs = (load(file) for file in all_results(Path("results/reference"), "**"))
    rows = [stage for run in runs for stage in run.stages if stage.name in stages and stage.device == "gpu"]
    ran = {(row.name, kernel.name) for row in rows for profile in row.profiles for kernel in profile.kernels}
    ran = {(name, kernel) for name, kernel in ran if kernel in ours}
    assert len(ran) > 100
    used = {name: " ".join(set().union(*code.kernels.values())) for name, code in stages.items()}
    assert [
        (name, kernel) for name, kernel in ran if not re.search(rf"__global__[^{{}};]* {kernel} \(", used[name])
    ] == []


def test_every_stage_uses_what_stands_between_two_readings_of_the_clock(stages: dict[str, UsedCode]) -> None:
    timer = {"ladder/measure/timing.py", "ladder/measure/fetched.py", "common/cuda/clock.py"}
    assert [name for name, code in stages.items() if not timer <= code.timer.keys()] == []


def test_every_token_of_a_declaration_counts(stages: dict[str, UsedCode]) -> None:
    project, drawn = Project(Disk()), random.Random(SEED)
    declared = [
        (texts, file, form)
        for path in sorted({path for code in stages.values() for path in code.kernels if path.endswith(".cu")})
        for texts in [project.with_headers(path)]
        for file, forms in used_of(texts, lambda _: True).items()
        for form in sorted(forms)
    ]
    assert len(declared) > 500
    for texts, file, form in drawn.sample(declared, 150):
        token = drawn.choice(tokens_of(texts[file], form.splitlines()[0]))
        text = f"{texts[file][: token.start()]}{other(token[0])}{texts[file][token.end() :]}"
        after = used_of(texts | {file: text}, lambda _: True)
        assert after != used_of(texts, lambda _: True), (file, form, token)


def tokens_of(text: str, form: str) -> list[re.Match[str]]:
    """The tokens of the first declaration of this form, which begins with the conditions around it."""
    found = [token for token in TOKEN.finditer(text) if token.lastgroup != "space"]
    words = tokens(text)
    ends = [*itertools.accumulate(len(word) + 1 for word in words)]
    whole = f"{' '.join(words)} "
    while f"{form} " not in whole:
        form = form.partition(" ")[2]
    begin = whole.index(f"{form} ")
    return [token for token, end in zip(found, ends, strict=True) if begin < end <= begin + len(form) + 1]


def other(token: str) -> str:
    """Another token; the end of a line of the preprocessor may be a comment."""
    code = re.split(r"//|/\*", token)[0].rstrip() if token.startswith("#") else token
    return f"{code}_x" if re.match(r"[#\w]", token) else "1 "
