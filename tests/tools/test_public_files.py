"""What a public repository has beside code, and its size: steps, versions, and what counts where."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from ladder.options.parsers import parse
from tools.setup import NEWER_PYTHONS
from tools.size import code_lines, main, spent_below, words

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
DEVCONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
TOLD = [
    ROOT / "SECURITY.md",
    GITHUB / "pull_request_template.md",
    ROOT / "README.md",
    *FORMS,
    *GITHUB.glob("workflows/*"),
]
STEPS = [
    *re.findall(r"(make .*)", DOCKERFILE.partition("\nFROM base AS")[2].replace('", "', " ").replace('"]', "")),
    DEVCONTAINER["postCreateCommand"],
    *re.findall(r"(?<=[`&:\n]) ?(make [a-z-]+(?: [A-Z]+=\w+)*)", "\n".join(path.read_text() for path in TOLD)),
]


@pytest.mark.parametrize("step", sorted(set(STEPS)))
def test_a_step_is_a_goal_of_make_with_its_variables(step: str) -> None:
    _, goal, *variables = shlex.split(step.partition(" &&")[0])
    assert re.search(rf"^{goal}:", MAKEFILE, re.MULTILINE)
    for variable in variables:
        assert re.search(rf"^{variable.partition('=')[0]} \??= ?", MAKEFILE, re.MULTILINE), variable


@pytest.mark.parametrize("path", TOLD, ids=lambda path: path.name)
def test_a_command_is_one_of_the_ladder_s(path: Path) -> None:
    for told in re.findall(r"run_ladder\.py ([^`#\n|&>]*)", path.read_text()):
        parse([word.replace("FOLDER", ".") for word in shlex.split(told)])  # else UsageError


def test_the_container_has_a_cuda_and_a_python_that_the_project_knows() -> None:
    chosen = dict(re.findall(r"^ARG (\w+)=(\S+)", DOCKERFILE, re.MULTILINE))
    assert f"cuda{chosen['CUDA']}" in PROJECT["optional-dependencies"]
    assert f"python{chosen['PYTHON']}" in NEWER_PYTHONS
    assert chosen["PYTHON"] in SpecifierSet(PROJECT["requires-python"])
    assert f'"{chosen["PYTHON"]}"' in (GITHUB / "workflows" / "ci.yml").read_text()
    assert {"cuda12", "cuda13"} <= PROJECT["optional-dependencies"].keys()


def test_the_container_copies_what_set_up_needs() -> None:
    first, *rest = re.findall(r"^COPY --chown=ladder (.*) \S+$", DOCKERFILE, re.MULTILINE)
    assert rest == ["tools/setup.py", "."]
    assert all((ROOT / name).is_file() for name in (*first.split(), rest[0]))
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".venv", "runs"} <= set(ignored)
    assert ".git" not in ignored  # records name the commit


def test_the_devcontainer_is_a_stage_of_the_dockerfile() -> None:
    built = DEVCONTAINER["build"]
    assert (ROOT / ".devcontainer" / built["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert re.search(rf"^FROM \S+ AS {built['target']}$", DOCKERFILE, re.MULTILINE)
    assert re.search(rf"^USER {DEVCONTAINER['remoteUser']}$", DOCKERFILE, re.MULTILINE)


def test_the_citation_names_this_version_and_licence() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "type"} <= cited.keys()
    assert (cited["version"], cited["license"]) == (PROJECT["version"], PROJECT["license"])
    assert cited["authors"][0]["name"] in (ROOT / "LICENSE").read_text()


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_by_fields_that_github_knows(form: Path) -> None:
    asked = yaml.safe_load(form.read_text())
    assert asked.keys() == {"name", "description", "title", "labels", "body"}
    fields = [field for field in asked["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_there_is_a_form_for_a_record_a_reference_and_a_bug() -> None:
    assert [path.stem[2:] for path in FORMS] == ["gpu-record", "slow-reference", "bug"]


def test_the_lock_holds_what_pyproject_asks_for() -> None:
    (ours,) = [package for package in LOCK["package"] if package["name"] == PROJECT["name"]]
    assert (ours["version"], LOCK["requires-python"]) == (PROJECT["version"], PROJECT["requires-python"])
    asked = {(key(line), "") for line in PROJECT["dependencies"]}
    asked |= {(key(line), extra) for extra, lines in PROJECT["optional-dependencies"].items() for line in lines}
    locked = {
        (key(_line(one)), (re.search(r"extra == '([\w-]+)'", one.get("marker", "")) or ["", ""])[1])
        for one in ours["metadata"]["requires-dist"]
    }
    assert locked == asked, "make the lock anew: uv lock"


def test_the_lock_takes_packages_from_pypi_alone() -> None:
    sources = [package["source"] for package in LOCK["package"]]
    assert {source["registry"] for source in sources if "registry" in source} == {"https://pypi.org/simple"}
    assert [source for source in sources if "registry" not in source] == [{"virtual": "."}]


def key(line: str) -> tuple[str, frozenset[str], SpecifierSet]:
    """A requirement, however it is written."""
    one = Requirement(line)
    return re.sub(r"[-_.]+", "-", one.name).lower(), frozenset(one.extras), one.specifier


def _line(locked: dict[str, Any]) -> str:
    extras = ",".join(locked.get("extras", []))
    return f"{locked['name']}[{extras}]{locked.get('specifier', '')}"


# The size of the project: what counts where, and what ends with 1.


SIZE = (
    "[tool.ladder.size]\ncode = {{ one = 60, 'one/part' = {part} }}\nwords = {{ 'README.md' = 4 }}\n"
    "released = {{ code = {{ one = 50 }}, words = {{ }} }}\n"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "one/a.py": "a = 1\n" * 63,
        "one/part/b.py": "b = 1\n" * 21,
        "README.md": "# Four [words](that/are/long.md) in all\n",
        "results/report.md": "as many words as it likes\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    return tmp_path


def test_a_file_counts_for_the_longest_path_above_it() -> None:
    sizes = {"one/a.py": 1, "one/part/b.py": 2, "one/party.py": 4, "two.py": 8}
    assert spent_below(["one", "one/part"], sizes) == {"one": 5, "one/part": 2, "elsewhere": 8}


def test_words_are_those_that_a_reader_sees() -> None:
    assert words("A [link](to/a%20place) <!-- and\nno comment --> | 3 | --- |") == 3


def test_lines_of_code_are_no_docstrings_comments_or_blanks() -> None:
    text = '"""A module.\n\nOf two."""\n\n# why\nTEXT = """kept\nas it is"""\n'
    text += '\n\ndef f():\n    """Do."""\n    return 1  # so\n'
    assert code_lines(text) == 4


def test_what_fits_within_the_headroom_passes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text(SIZE.format(part=20))
    assert main(project) == 0
    printed = capsys.readouterr().out
    assert "code   one                       63      +13\n" in printed
    assert "code   in all                    84      +34\n" in printed


def test_a_room_beyond_it_ends_with_1(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text(SIZE.format(part=19))
    assert main(project) == 1
    printed = capsys.readouterr()
    assert [line.split()[1] for line in printed.out.splitlines() if line.endswith("over")] == ["one/part"]
    assert "say why" in printed.err


def test_a_file_below_no_path_has_no_room(project: Path) -> None:
    (project / "pyproject.toml").write_text(SIZE.format(part=20))
    (project / "two.py").write_text("a = 1\n")
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    assert main(project) == 1
