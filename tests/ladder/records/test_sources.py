"""The source code that is recorded with a run, and packed files that a stranger sent."""

from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ladder.records import foreign, sources
from ladder.records.run import ResultsError, all_results, load, results_in, save
from ladder.records.source_walk import Project
from ladder.records.sources import NAME, Sources, collected, keep, sources_of
from ladder.records.used_code import files_of
from tests.reports import sample

TEXTS = {
    "stages/registry.py": 'SOURCES = ("stages.naive:STAGE", "stages.wide.r2_fast:STAGE", "stages.gone:STAGE")\n',
    "stages/naive.py": '"""Naive."""\nfrom stages.plain import Gemm, Other\nfrom stages.recipe import Recipe\n'
    'STAGE = Stage.from_recipe("naive", "Title", Recipe(gemm=Gemm))\n',
    "stages/recipe.py": "class Recipe: ...\n",
    "stages/plain.py": 'class Gemm:\n    def __init__(self): self.load("plain/gemm.cu")\n\n\nclass Other: ...\n',
    "stages/wide/__init__.py": "",
    "stages/wide/r2_fast.py": 'import stages.naive\nCUDA = ".cu"\n\n\nclass Fast:\n    __slots__ = CUDA\n\n\n'
    'STAGE = stages.naive.STAGE.climb("fast", "Fast", head=Fast)\n',
    "stages/wide/r2_fast.cu": '#include "near.cuh"\n',
    "stages/wide/near.cuh": '#include "device/far.cuh"\n',
    "stages/device/far.cuh": "",
    "stages/kernels/plain/gemm.cu": "__global__ void gemm() {}\n",
    "stages/unused.py": "",
}
PROJECT = Project(TEXTS)


def test_stages_are_found_by_their_names_without_importing_them() -> None:
    assert PROJECT.stages == {"naive": "stages/naive.py:STAGE", "fast": "stages/wide/r2_fast.py:STAGE"}
    assert Project({}).stages == {}


def test_a_stage_has_its_own_file_the_parts_it_names_and_its_kernels_with_their_headers() -> None:
    assert files_of("stages/naive.py:STAGE", PROJECT) == [
        "stages/naive.py", "stages/plain.py", "stages/kernels/plain/gemm.cu",
    ]  # fmt: skip
    assert files_of("stages/wide/r2_fast.py:STAGE", PROJECT) == [
        "stages/wide/r2_fast.py", "stages/kernels/plain/gemm.cu", "stages/wide/r2_fast.cu", "stages/wide/near.cuh",
        "stages/device/far.cuh",
    ]  # fmt: skip


def test_a_rung_knows_the_part_that_its_own_replaces() -> None:
    own = TEXTS | {
        f"{choice}.py": f'from stages import rung\nSTAGE = rung("fast").climb("mine", "Mine", {choice}=Mine)\n'
        for choice in ("gemm", "head", "launch")
    }
    assert [Project(own).replaced(f"{choice}.py:STAGE") for choice in ("gemm", "head", "launch")] == [
        "Gemm",
        "Fast",
        "",
    ]
    assert PROJECT.replaced(PROJECT.stages["naive"]) == ""


def test_each_file_is_kept_once() -> None:
    found = collected(PROJECT, PROJECT.stages)
    assert "stages/unused.py" not in found.files
    assert list(found.stages) == ["naive", "fast"]
    assert {path for files in found.stages.values() for path in files} == set(found.files)


def test_users_files_of_one_name_are_told_apart_by_a_folder() -> None:
    texts = {f"/home/{path}": path for path in ("a/mine.py", "b/mine.py", "b/naive.py", "b/other.py")}
    found = collected(Project(TEXTS | texts), PROJECT.stages | {path: f"{path}:STAGE" for path in texts})
    assert [found.files[file] for path in texts for file in found.stages[path]] == list(texts.values())
    assert {"a/mine.py", "b/mine.py", "b/naive.py", "other.py", "stages/naive.py"} <= set(found.files)


def test_kept_sources_are_read_again_and_are_the_same_bytes_twice(tmp_path: Path) -> None:
    found = collected(PROJECT, PROJECT.stages)
    keep(found, tmp_path)
    first = (tmp_path / NAME).read_bytes()
    keep(found, tmp_path)
    assert (tmp_path / NAME).read_bytes() == first
    assert sources_of(sample.results(), tmp_path) == found


def test_the_points_of_a_study_share_one_file(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    keep(Sources({"a.py": "1"}, {"a": ["a.py"]}), tmp_path / "one")
    keep(Sources({"b.py": "2"}, {"b": ["b.py"]}), tmp_path / "two")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()].count(NAME) == 1
    assert sources_of(sample.results(), tmp_path / "one") == Sources(
        {"a.py": "1", "b.py": "2"}, {"a": ["a.py"], "b": ["b.py"]}
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "truncated"),
        (b"no gzip", "incorrect header"),
        (gzip.compress(b"no json"), "malformed"),
        (gzip.compress(b"{}"), "missing required field"),
        (gzip.compress(b'{"files": {"a.py": ""}, "stages": {"a": ["b.py"]}}'), "names 'b.py', which it does not hold"),
    ],
    ids=["empty", "no gzip", "no JSON", "no fields", "an absent file"],
)
def test_an_unusable_file_is_refused_in_one_line_and_kept_anew(tmp_path: Path, data: bytes, why: str) -> None:
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(ResultsError, match=why) as refused:
        sources_of(sample.results(), tmp_path)
    assert re.fullmatch(rf"{tmp_path / NAME}: .*; remove it: a page can do without", str(refused.value))
    found = collected(PROJECT, PROJECT.stages)
    keep(found, tmp_path)
    assert sources_of(sample.results(), tmp_path) == found


def test_what_hides_in_code_is_shown(tmp_path: Path) -> None:
    keep(Sources({"a.py": "a\r\n\tb\u202e\x1b"}, {"a": ["a.py"]}), tmp_path)
    found = sources_of(sample.results(), tmp_path)
    assert found is not None
    assert found.files == {"a.py": "a\n\tb\\u202e\\x1b"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A project with one commit, whose files are gone from the working tree since; returns the commit."""
    for path, text in TEXTS.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    sources.filled_in.cache_clear()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "stages"], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    for path in TEXTS:
        (tmp_path / path).unlink()
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


def of_commit(commit: object) -> Sources | None:
    run = replace(sample.results(), environment={"code": {"git_commit": commit}})
    return sources_of(run, Path("/nonexistent"))


def test_a_run_without_sources_gets_them_from_its_commit_and_says_so(project: str) -> None:
    found = of_commit(project)
    assert found is not None
    assert found.commit == project
    assert found.files == collected(PROJECT, PROJECT.stages).files


@pytest.mark.parametrize("commit", [None, "", 7, "0" * 40, "--output=/tmp/x", "HEAD"])
def test_a_commit_that_is_not_here_or_is_none_fills_nothing_in(project: str, commit: object) -> None:
    assert of_commit(commit) is None


RAW = gzip.compress(msgspec.json.encode(sample.results()))


def packed(folder: Path, raw: bytes = RAW) -> Path:
    folder.mkdir(parents=True)
    (folder / "results.json.gz").write_bytes(raw)
    return folder / "results.json.gz"


def test_they_are_read_like_plain_ones_which_count_first(tmp_path: Path) -> None:
    file, plain = packed(tmp_path / "run"), tmp_path / "run" / "results.json"
    assert results_in(tmp_path) == tmp_path / "results.json"
    save(sample.results(), tmp_path / "results.json")
    assert load(file) == load(file.parent) == load(tmp_path)
    save(sample.unprofiled_results(), plain)
    assert load(file.parent) == load(plain) != load(file)


def test_every_run_below_a_folder_is_found_once(tmp_path: Path) -> None:
    a, c, b = packed(tmp_path / "a"), packed(tmp_path / "b" / "c"), tmp_path / "b" / "results.json"
    for name in ("results.json", "results.json.gz", "results.json.0a1b2c3d.part"):
        b.with_name(name).touch()
    assert all_results(tmp_path) == [a, b]
    assert all_results(tmp_path, "**") == [a, c, b]


@pytest.mark.parametrize("raw", [b"", RAW[4:], RAW[:900]], ids=["empty", "headless", "cut"])
def test_damaged_ones_are_refused_in_one_line(tmp_path: Path, raw: bytes) -> None:
    file = packed(tmp_path / "run", raw)
    with pytest.raises(ResultsError, match=rf"^{file}: not a results file of this program \(.*\); name a [^\n]*$"):
        load(file.parent)


def test_what_unpacks_to_more_than_memory_holds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "MOST_BYTES", 1 << 20)
    with pytest.raises(ResultsError, match=r"results\.json\.gz: more than 1 MiB"):
        load(packed(tmp_path / "run", gzip.compress(bytes(4 << 20))))
