"""stages/README.md is what its generator writes, and has every stage under its parent."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from stages.registry import load_all
from tools import stage_tree
from tools.stage_tree import description, main, page, tree

STAGES = load_all()


def test_the_committed_page_is_up_to_date() -> None:
    assert main(["--check"]) == 0


def test_a_stale_page_is_reported_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = tmp_path / "README.md"
    stale.write_text("# Stages\n", encoding="utf-8")
    monkeypatch.setattr(stage_tree, "PAGE", stale)
    assert main(["--check"]) == 1
    assert capsys.readouterr().err == "README.md: out of date; run python -m tools.stage_tree\n"
    assert main([]) == 0
    assert main(["--check"]) == 0


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_has_one_row_with_its_parent_and_file(name: str) -> None:
    entry = STAGES[name]
    (row,) = [line for line in page(STAGES.values()).splitlines() if re.match(rf"\|[^|]*`{name}`", line)]
    assert f"({entry.source.partition(':')[0].removeprefix('stages.').replace('.', '/')}.py)" in row
    if entry.stage.below:
        assert f"| `{entry.stage.below}` |" in row


def test_the_tree_joins_chains_and_indents_forks() -> None:
    parents = {"a": None, "b": "a", "c": "b", "d": "c", "e": "b", "f": None}
    assert tree(parents) == ["a ─ b", "├─ c ─ d", "└─ e", "f"]


@pytest.mark.parametrize(
    "first_line", ["no colon.", "Name: no full stop", f"Name: {'x' * 90}."], ids=["colon", "full stop", "length"]
)
def test_a_first_line_of_another_form_is_refused(
    first_line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "r1_wrong.py").write_text(f'"""{first_line}"""\n', encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "r1_wrong", raising=False)
    with pytest.raises(ValueError, match="must begin with 'Name: what changes"):
        description("r1_wrong")
