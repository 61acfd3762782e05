"""The code of a rung: the part that it replaces, its own file, and its kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from markupsafe import Markup
from msgspec.structs import replace

from ladder.records.run import Results, load
from ladder.records.sources import Sources, sources_of
from reports.explorer.code import RungCode, lines, shown_code
from tests.reports import sample

RECORDED = sorted(Path("results/reference/h200").glob("*/results.json.gz"))
FILES = {
    "stages/naive.py": "from x import Recipe\nSTAGE = rung('naive', 'Naive', Recipe(metrics=EveryStep, gemm=Plain))\n",
    "stages/plain.py": "class Plain:\n    fast = False\n\n\nclass EveryStep:\n    wait = True\n    every = 1\n",
    "stages/async.py": '"""Async.\n"""\n\nfrom x import y\n\n\nclass AsyncMetrics:\n    wait = False\n    every = 1\n',
    "stages/sparse.py": "class Sparse(AsyncMetrics):\n    every = 10\n",
    "stages/kernels/own.cu": '#include "one.cuh"\n__global__ void sgd_update() {}\n',
    "stages/kernels/one.cuh": '#include "below/two.cuh"\n',
    "stages/kernels/two.cuh": "",
    "stages/kernels/other.cu": "__global__ void unused() {}\n",
}
SOURCES = Sources(
    FILES,
    {
        "naive": ["stages/naive.py", "stages/plain.py"],
        "async": [
            "stages/async.py", "stages/kernels/own.cu", "stages/kernels/one.cuh", "stages/kernels/two.cuh",
            "stages/kernels/other.cu",
        ],
        "sparse-metrics": ["stages/sparse.py"],
    },
    {"async": "EveryStep", "sparse-metrics": "AsyncMetrics"},
)  # fmt: skip


def shown(name: str, run: Results | None = None, sources: Sources = SOURCES) -> RungCode:
    run = run or sample.results()
    found = shown_code(next(stage for stage in run.stages if stage.name == name), run, sources)
    assert found is not None
    return found


def diff(code: RungCode) -> list[str]:
    return [f"{line.sign}{Markup(line.code).striptags()}" for line in code.diff]


def test_a_rung_is_compared_with_the_part_of_the_first_rung_s_recipe() -> None:
    code = shown("async")
    assert code.replaced == "EveryStep of stages/plain.py"
    assert diff(code) == [
        "-class EveryStep:", "-wait = True", "+class AsyncMetrics:", "+wait = False", " every = 1",
    ]  # fmt: skip


def test_a_rung_is_compared_with_the_last_choice_of_the_same_part() -> None:
    assert shown("sparse-metrics").replaced == "AsyncMetrics of stages/async.py"


def test_without_a_known_part_the_own_file_stands_alone() -> None:
    alone = shown("async", sources=Sources(FILES, SOURCES.stages))
    assert alone.replaced == shown("naive").replaced == ""
    assert {line.sign for line in alone.diff} == {" "}


def test_kernels_are_those_that_the_profile_saw_with_their_headers() -> None:
    code = shown("async")
    assert [path for path, _ in code.kernels] == ["stages/kernels/own.cu"]
    assert code.headers == ["stages/kernels/one.cuh", "stages/kernels/two.cuh"]


def test_without_a_profile_the_files_that_the_rung_below_lacks_are_shown() -> None:
    run = sample.replace_stage(sample.results(), "async", profiles=[])
    assert [path for path, _ in shown("async", run).kernels] == ["stages/kernels/own.cu", "stages/kernels/other.cu"]
    sources = Sources(FILES, SOURCES.stages | {"naive": ["stages/naive.py", "stages/kernels/own.cu"]})
    assert [path for path, _ in shown("async", run, sources).kernels] == ["stages/kernels/other.cu"]


def test_a_stage_on_the_cpu_shows_its_kernels_in_python_and_none_in_cuda() -> None:
    files = FILES | {"stages/cpu/kernels/product.py": "def product(): ...\n"}
    sources = Sources(files, {"async": ["stages/async.py", "stages/cpu/kernels/product.py", "stages/kernels/own.cu"]})
    run = sample.replace_stage(sample.results(), "async", profiles=[], device="cpu")
    assert [path for path, _ in shown("async", run, sources).kernels] == ["stages/cpu/kernels/product.py"]


@pytest.mark.parametrize("comment", ["// all_in_one: as sgd_update", "/* as\nsgd_update */"])
def test_a_kernel_that_only_one_of_both_launches_is_named_and_new_whatever_comments_say(comment: str) -> None:
    run = kernels(sample.results(), "async", "all_in_one")
    own = f"{comment}\n__global__ void all_in_one() {{}}\n"
    code = shown("async", run, Sources(FILES | {"stages/kernels/own.cu": own}, SOURCES.stages))
    assert code.new == "all_in_one"
    assert "sgd_update" in code.gone
    assert "sgd_update" not in shown("async").gone
    assert code.kernels == [("stages/kernels/own.cu", True)]


def kernels(run: Results, name: str, kernel: str) -> Results:
    """The run with one kernel alone in the profile of a stage."""
    profile = next(stage for stage in run.stages if stage.name == name).profiles[0]
    one = replace(profile.kernels[0], name=kernel)
    return sample.replace_stage(run, name, profiles=[replace(profile, kernels=[one])])


def kernel_diff(before: str, after: str) -> list[str]:
    """The diff of `new`, of a file with this text, to `old` of another, by one line each."""
    run = kernels(kernels(sample.results(), "naive", "old"), "async", "new")
    files = FILES | {"stages/kernels/a.cu": before, "stages/kernels/b.cu": after}
    stages = {"naive": ["stages/naive.py", "stages/kernels/a.cu"], "async": ["stages/async.py", "stages/kernels/b.cu"]}
    return [
        f"{line.sign}{Markup(line.code).striptags()}"
        for line in shown("async", run, Sources(files, stages)).kernel_diff
    ]


def test_a_kernel_is_shown_against_the_one_that_it_replaces() -> None:
    other = "__global__ void other(int i) {\n    i = 3;\n}\n"
    before = f'{other}// A kernel.\nextern "C" __global__ void old(int i) {{\n    if (i) {{ i = 1; }} // }}\n}}\n'
    after = f'// A kernel.\nextern "C" __global__ void new(int i) {{\n    if (i) {{ i = 1; }} // }}\n}}\n{other}'
    assert kernel_diff(before, after) == [
        " // A kernel.",
        '-extern "C" __global__ void old(int i) {',
        '+extern "C" __global__ void new(int i) {',
        " if (i) { i = 1; } // }",
        " }",
    ]


def test_kernels_that_have_hardly_a_line_in_common_have_no_diff() -> None:
    body = "".join(f"    i = {number};\n" for number in range(20))
    assert kernel_diff("__global__ void old(int i) { i = 0; }\n", f"__global__ void new(int i) {{\n{body}}}\n") == []


def test_a_stage_without_sources_has_no_code() -> None:
    run = sample.results()
    assert shown_code(next(stage for stage in run.stages if stage.name == "cublas"), run, SOURCES) is None


def test_code_is_escaped_and_each_line_closes_its_colours() -> None:
    found = lines("a.py", 'x = """<b>\n<i>"""\n\nif x < 1: pass\n')
    assert [str(line).count("<i ") - str(line).count("</i>") for line in found] == [0] * 4
    assert "&lt;b&gt;" in found[0]
    assert found[1] == '<i class="s">&lt;i&gt;&#34;&#34;&#34;</i>'
    assert found[2] == ""


@pytest.mark.parametrize("text", ["class Broken(:", f"STAGE = {'-' * 100_000}1"])
def test_a_file_that_this_python_cannot_parse_is_shown_all_the_same(text: str) -> None:
    assert diff(shown("async", sources=Sources({"a.py": text}, {"async": ["a.py"]}))) == [f" {text}"]


@pytest.mark.parametrize(("text", "headers"), [("", []), ('#include "a.cuh"', ["k/a.cuh", "k/b.cuh"])])
def test_headers_that_include_each_other_are_those_of_kernels_that_reach_them(text: str, headers: list[str]) -> None:
    files = {"a.py": "", "k/a.cuh": '#include "b.cuh"', "k/b.cuh": '#include "a.cuh"', "k/c.cu": text}
    run = sample.replace_stage(sample.results(), "async", profiles=[])
    assert shown("async", run, Sources(files, {"async": [*files]})).headers == headers


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_every_recorded_rung_has_its_code_and_the_part_that_it_replaces(path: Path) -> None:
    run = load(path)
    sources = sources_of(run, path.parent)
    assert sources is not None
    found: dict[str, RungCode] = {}
    for stage in run.stages:
        code = shown_code(stage, run, sources)
        assert code is not None, stage.name
        assert bool(code.replaced) == (stage.below is not None), stage.name
        if stage.below:
            assert {"+", "-"} <= {line.sign for line in code.diff}, stage.name
        found[stage.name] = code
    if path.parent.name != "hidden-128-128-128":
        return
    for name, file in zip(("tf32", "bf16", "fp16", "exact-u8"), ("tf32", "bf16", "f16", "u8"), strict=True):
        assert f"tile_{file}.cu" in [path.rpartition("/")[2] for path, is_new in found[name].kernels if is_new]
    for name, own, old in (  # of a shared file, and across files
        ("fused-update", "bias_update", "bias_gradient"),
        ("tf32", "tile_product_tf32", "tile_product_f32"),
    ):
        lines_of = {sign: "".join(one.code for one in found[name].kernel_diff if one.sign == sign) for sign in "+-"}
        assert own in lines_of["+"]
        assert old in lines_of["-"]
