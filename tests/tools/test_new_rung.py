"""A rung that is laid out is there at once: it loads, stands below its parent, and changes one part."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import new_rung

ROOT = Path(__file__).parents[2]
SHOW = """
from stages.registry import load_all
import stages
import sys
names, mine = [*load_all()], load_all()[sys.argv[1]].stage
print(stages.__file__, mine.title, mine.below, mine.changed, mine.group, names[names.index(mine.name) - 1])
"""


@pytest.mark.parametrize(
    ("name", "below", "part", "shown"),
    [
        ("my-rung", "persistent-grid", "launch", "persistent-grid launch: MyRungLaunch beyond divided-hidden-fp16"),
        ("my-gemm", "cublas", "gemm", "cublas gemm: MyGemm beyond cuda-graph"),
        ("cpu-my-rung", "cpu-cores", "launch", "cpu-cores launch: CpuMyRungLaunch cpu cpu-wide-tiles"),
    ],
)
def test_a_rung_is_laid_out_below_its_parent(
    name: str,
    below: str,
    part: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(ROOT / "stages", tmp_path / "stages", ignore=shutil.ignore_patterns("__pycache__", "kernels"))
    (tmp_path / "common").symlink_to(ROOT / "common")
    monkeypatch.setattr(new_rung, "ROOT", tmp_path)
    assert new_rung.main([name, "--from", below, "--part", part]) == 0
    file = tmp_path / capsys.readouterr().out.partition(":")[0]
    title = name.removeprefix("cpu-").replace("-", " ").capitalize()
    assert file.stem == title.lower().replace(" ", "_")
    told = subprocess.run([sys.executable, "-c", SHOW, name], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout == f"{tmp_path / 'stages/__init__.py'} {title} {shown}\n"
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F,I,E", "--line-length=120", file]
    )
    assert checked.returncode == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["naive", "--from", "cublas"], "naive: a rung needs an id of its own"),
        (["My Rung", "--from", "cublas"], "My Rung: a rung needs an id of its own"),
        (["my-rung", "--from", "jax-scan"], "--from jax-scan: is no rung"),
        (["my-rung", "--from", "cubals"], "stage 'cubals': unknown; did you mean cublas?"),
    ],
)
def test_what_cannot_be_laid_out_is_told_in_one_line(
    words: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(new_rung, "ROOT", tmp_path)
    assert new_rung.main([*words, "--part", "gemm"]) == 2
    assert why in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
