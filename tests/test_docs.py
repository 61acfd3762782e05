"""Documents: every relative link and anchor leads somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ladder.records.foreign import read
from ladder.records.run import all_results
from reports.screens.torch import HOW_TO_READ
from run_ladder import main
from stages.engine.stage import Stage
from tests.cheats import defects, frauds, on_gpu

ROOT = Path(__file__).parents[1]
HASH = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,10}\b")
# These tell of other checkouts, whose commits this history need not have.
OF_OTHERS = {"status.md", "large-batch.md"}
ELSEWHERE = {".venv", "runs", "golden", "node_modules"}  # golden files render runs that have no folder
PAGES = sorted(page for page in ROOT.rglob("*.md") if not ELSEWHERE & set(page.relative_to(ROOT).parts))
CODE = [path for suffix in ("py", "cu", "cuh", "sh", "toml") for path in ROOT.rglob(f"*.{suffix}")]
OF_A_RUN = re.compile(r"\| (?:option of|after) `python run_ladder\.py` \|")  # the head of a table
DOCS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("**/*.md")}
NAMED = re.compile(r"\b(?:docs|stages|tools)/[\w/.-]+\.md\b")  # a page as comments and docstrings name it


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tokens(page: Path) -> list[Token]:
    parsed = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))
    return [inner for token in parsed for inner in (token, *(token.children or ()))]


def links(page: Path) -> Iterator[str]:
    """The addresses of a page's links and images that are no web address."""
    for token in tokens(page):
        address = str(token.attrs.get("href") or token.attrs.get("src") or "")
        if address and not re.match(r"[a-z]+:", address):
            yield unquote(address)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that a code host gives to a page's headings."""
    found: set[str] = set()
    for opening, inline in zip(tokens(page), tokens(page)[1:], strict=False):
        if opening.type == "heading_open":
            text = "".join(child.content for child in inline.children or ()).lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            found.add(next(name for name in (slug, *(f"{slug}-{n}" for n in range(1, 99))) if name not in found))
    return found


def dead(page: Path, address: str) -> bool:
    path, _, anchor = address.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_to_a_file_and_to_a_heading(page: Path) -> None:
    assert [address for address in links(page) if dead(page, address)] == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Of `a-b`, twice\n\n# Of `a-b`, twice\n\n[a](#of-a-b-twice-1) ![b](b.svg) [c](page.md#d)\n")
    assert anchors(page) == {"of-a-b-twice", "of-a-b-twice-1"}
    assert [address for address in links(page) if dead(page, address)] == ["b.svg", "page.md#d"]


def test_every_page_that_code_names_exists() -> None:
    here = [path for path in CODE if not ELSEWHERE & set(path.relative_to(ROOT).parts) and path != Path(__file__)]
    named = {(name_of(path), page) for path in here for page in NAMED.findall(path.read_text(encoding="utf-8"))}
    assert named
    assert {(file, page) for file, page in named if not (ROOT / page).is_file()} == set()


def test_every_page_of_the_notebook_is_in_its_index() -> None:
    folder = ROOT / "docs" / "notebook"
    assert {page.name for page in folder.glob("*.md")} - {"README.md"} == set(links(folder / "README.md")) & {
        page.name for page in folder.glob("*.md")
    }


def test_readme_and_the_method_count_the_cheats() -> None:
    planted = [one for module in (defects, frauds, on_gpu) for one in vars(module).values() if isinstance(one, Stage)]
    assert len(planted) > 100
    for page in ("README.md", "docs/method.md"):
        assert re.search(r"`tests/cheats` \w+ more than a hundred ", (ROOT / page).read_text(encoding="utf-8")), page
    caught = (ROOT / "tests" / "cheats" / "caught.txt").read_text(encoding="utf-8")
    assert caught.count(" | yes | ") == 6
    assert "all caught but for six " in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_method_says_of_first_steps_what_reports_say() -> None:
    method = " ".join((ROOT / "docs" / "method.md").read_text(encoding="utf-8").split())
    said = HOW_TO_READ.partition(" The first step is ")[2]
    assert "the slowest process's" in said
    assert f"In `torch`, the first step is {said}" in method


def test_the_commands_have_every_option_of_a_run_and_files_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text, elsewhere = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8"), " ".join(DOCS.values())
    tables = [table for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE) if OF_A_RUN.match(table)]
    rows = [row.split(" | ")[0] for table in tables for row in table.splitlines()]
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    options = set(re.findall(r"(?m)^  (--[a-z-]+)", capsys.readouterr().out))
    assert "--out" in options
    lacking = {option for option in options if not any(re.search(rf"{option}(?![\w-])", row) for row in rows)}
    assert lacking == {"--curve-steps", "--nsys-stages", "--prepare-at-once"}  # for experiments: other pages name them
    assert [option for option in lacking if option not in elsewhere] == []
    named = set(re.findall(r"(?<=[ `])examples/[\w./-]+", text))
    assert any(path.endswith(".toml") for path in named)
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    assert not re.search(r"--rubric [A-Z]", text)


def test_readme_shows_what_advise_says_of_a_desktop_s_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ((command, excerpt),) = re.findall(r"excerpt of `(advise [^`]*)`.*?```text\n(.*?)```", readme, re.DOTALL)
    assert f"run_ladder.py {command} " in readme
    assert main(shlex.split(command)) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in excerpt.splitlines() if not any(told.startswith(line) for told in printed)] == []
    (verdict,) = re.findall(r"Its verdict on\s20 epochs: \*(.*?)\*", readme, re.DOTALL)
    assert " ".join(verdict.split()) in " ".join(printed)


def resolved(hashes: set[str]) -> set[str]:
    """Those that name an ancestor of HEAD; the test is skipped where the history is not whole.

    A commit that a rebase left behind may be in the object store of one clone and in no other.
    """
    git = ["git", "-C", str(ROOT)]
    try:
        shallow = subprocess.run([*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if shallow.stdout.strip() != "false":
        pytest.skip("the history is not whole")
    told = subprocess.run([*git, "rev-list", "HEAD"], capture_output=True, text=True, check=True)
    history = told.stdout.split()
    return {name for name in hashes if any(whole.startswith(name) for whole in history)}


def test_every_commit_that_pages_name_is_in_the_history_or_was_recorded() -> None:
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page.name not in OF_OTHERS)]
    named = {page: set(HASH.findall(page.read_text(encoding="utf-8"))) for page in pages}
    recorded = " ".join(
        re.search(r'"git_commit":\s*"([0-9a-f]*)"', read(file).decode())[1]  # type: ignore[index]
        for file in all_results(ROOT / "results" / "reference", "**")
    ).split()
    hashes = set().union(*named.values())
    known = resolved(hashes) | {one for one in hashes if any(whole.startswith(one) for whole in recorded)}
    assert {name_of(page): unknown for page, found in named.items() if (unknown := found - known)} == {}


def test_every_page_of_docs_can_be_reached_from_readme() -> None:
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        targets = {(page.parent / address.partition("#")[0]).resolve() for address in links(page)}
        waiting += [target for target in targets if target.suffix == ".md" and target.is_file() and target not in seen]
    assert set((ROOT / "docs").rglob("*.md")) <= seen
