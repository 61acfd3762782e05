"""A user's own stage: what a file may hold, and the line for each way in which it is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import UsageError
from ladder.run.entries import all_entries, own_entries
from stages.registry import load_all, load_entry

GOOD = """
from stages.references.numpy_cpu import NumpyTrainer
from stages.engine.stage import Stage
STAGE = Stage({name}, {title}, {group}, {precision}, {needs}, {build})
"""


def written(folder: Path, text: str = GOOD, file: str = "my_stage.py", first: str = "", **changes: str) -> Path:
    words = {"name": '"mine"', "title": '"Mine"', "group": '"reference"', "precision": '"float32"'}
    words |= {"needs": "()", "build": "NumpyTrainer"} | changes
    path = folder / file
    path.write_text(first + (text.format(**words) if text is GOOD else text))
    return path


def refusal(*paths: Path) -> str:
    with pytest.raises(UsageError) as caught:
        all_entries(paths)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_stage_is_found_by_its_file_and_again_by_its_source(tmp_path: Path) -> None:
    ((name, entry),) = own_entries([written(tmp_path)], load_all()).items()
    assert name == entry.stage.name == "mine"
    assert entry.source == f"{tmp_path}/my_stage.py:STAGE"
    assert load_entry(entry.source).stage.title == "Mine"
    assert (entry.doc.why, entry.doc.found) == ("", "")


def test_the_paragraphs_that_its_docstring_has_are_kept(tmp_path: Path) -> None:
    entry = own_entries([written(tmp_path, first='"""Mine.\n\nWhy: to see."""')], load_all())["mine"]
    assert (entry.doc.why, entry.doc.change) == ("to see.", "")


def test_one_file_twice_is_one_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(own_entries([written(tmp_path), Path("my_stage.py")], {})) == ["mine"]


def test_a_stage_may_import_what_lies_beside_it_but_hides_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("NAME = 'beside'")
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "__init__.py").write_text("raise RuntimeError('hidden')")
    path = written(tmp_path, first="from beside_it import NAME\nfrom common.problem import Problem", name="NAME")
    assert list(own_entries([path], {})) == ["beside"]


def test_two_files_may_have_helpers_of_one_name_and_import_them_relatively(tmp_path: Path) -> None:
    paths = []
    for name, how in (("a", "from helper import"), ("b", "from .helper import")):
        (folder := tmp_path / name).mkdir()
        (folder / "helper.py").write_text(f"OF_{name} = {name!r}")
        paths.append(written(folder, first=f"{how} OF_{name}", name=f"OF_{name}"))
    assert list(own_entries(paths, {})) == ["a", "b"]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("import réseau".encode("latin-1"), "save it as UTF-8, or name its encoding in the first line: # -*- coding: "),
        ("STAGE = 1".encode("utf-16"), "save it as UTF-8"),
        (b"from common import grad", "common/__init__.py here; rename common.py, such as to my_common.py"),
        (b"import common\ncommon.grad", "line 2: AttributeError: module 'common' has no attribute 'grad'; common is "),
        (b"import tests.grad", "tests/__init__.py here; rename tests, such as to my_tests"),
        (b"import no_such_package.of", "; install the package that has it, by `"),
        (b"raise ModuleNotFoundError(name='torch')", "name it in `needs`, ('torch',), and import it inside a function"),
    ],
)
def test_what_many_files_run_into_has_a_way_out(tmp_path: Path, raw: bytes, said: str) -> None:
    (tmp_path / "common.py").touch()
    (tmp_path / "tests").mkdir()
    (path := tmp_path / "my_stage.py").write_bytes(raw)
    assert said in refusal(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no STAGE; end it in STAGE = "),
        ("STAGE = 3", "has a STAGE that is int; end it in STAGE = "),
        ("\n\nundefined()", "cannot be imported: line 3: NameError: name 'undefined' is not defined; correct it"),
        ("raise RuntimeError('two\\nlines')", "cannot be imported: line 1: RuntimeError: two lines; correct it"),
        ("import sys\nsys.exit()", "cannot be imported: line 2: SystemExit; correct it"),
        ("def f():\n    raise ValueError('deep')\nf()", "line 2: ValueError: deep; correct it"),
    ],
)
def test_a_file_that_is_no_stage_is_refused(tmp_path: Path, text: str, said: str) -> None:
    line = refusal(written(tmp_path, text))
    assert line.startswith(f"--stage-file {tmp_path}/my_stage.py: ")
    assert said in line


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": '"naive"'}, "its stage is called naive, as one of the ladder; choose another name"),
        ({"name": '"My Stage"'}, "stage name 'My Stage': use small letters, digits and hyphens"),
        ({"name": "3"}, "stage name 3: use small letters"),
        ({"name": '"torch-mine"'}, "stage name 'torch-mine': has another meaning"),
        ({"name": '"beyond"'}, "stage name 'beyond': has another meaning"),
        ({"title": '""'}, "needs a title"),
        ({"build": "None"}, "needs a title and a class or function that builds its trainer"),
        ({"group": '"mine"'}, "group 'mine'; choose from reference, cpu, ladder, "),
        ({"precision": '"fp32"'}, "precision 'fp32'; choose from float32, tf32, "),
        ({"needs": '"torch"'}, "needs 'torch'; write a tuple such as ('torch',)"),
        ({"needs": '("pytorch",)'}, "need 'pytorch': unknown; choose from cuda, "),
    ],
)
def test_a_stage_that_fits_no_table_is_refused(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    assert said in refusal(written(tmp_path, **changes))


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    first, second = written(tmp_path), written(tmp_path, file="other.py")
    assert refusal(first, second) == (
        f"--stage-file {second}: its stage is called mine, as one of {first}; choose another name"
    )


def test_a_path_that_is_no_python_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone.py") == f"--stage-file {tmp_path}/gone.py: no such file; name a .py file"
    assert refusal(tmp_path) == f"--stage-file {tmp_path}: not a file; name a .py file"
    assert "not a .py file" in refusal(written(tmp_path, file="stage.txt"))
