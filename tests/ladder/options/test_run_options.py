"""The options of a run: what they are to the problem, how a shell completes them, and how `--resume` gets them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ladder.options.commands import Torch
from ladder.options.continuation import continuation
from ladder.options.parsers import parse
from ladder.options.run_options import RunOptions


@pytest.mark.parametrize(("asked", "every", "validated"), [(None, 0, 0), (0.9, 0, 1), (0.9, 5, 5)])
def test_the_way_to_an_accuracy_takes_validation(asked: float | None, every: int, validated: int) -> None:
    options = RunOptions(target_accuracy=asked, validate_every=every)
    assert (options.problem().validate_every, options.settings(None).target_accuracy) == (validated, asked)


ROOT = Path(__file__).parents[3]


def completed(line: str, folder: Path) -> list[str]:
    """The words for the end of a command line; argcomplete writes them to descriptor 8, here a file."""
    answer = folder / "answer"
    environment = {
        **os.environ, "_ARGCOMPLETE": "2", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9",
        "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": str(answer), "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
    }  # fmt: skip
    done = subprocess.run([sys.executable, str(ROOT / "run_ladder.py")], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    return answer.read_text().split("\n")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("explain cuda-g", {"cuda-graph"}),
        ("--stages naive..cudn", {"naive..cudnn-softmax"}),
        ("run --stages numpy,cudn", {"numpy,cudnn-softmax"}),
        ("--learn", {"--learning-rate", "--learning-rates"}),
        ("compare --format m", {"markdown"}),
        ("profile --tool nsys,cu", {"nsys,cupti"}),
        (
            "torch --stages resident..comp",
            {"resident..compile", "resident..compiled-graph", "resident..compile-optimizer"},
        ),
        ("torch --example c", {"cnn", "chars"}),
    ],
)
def test_words_are_completed(typed: str, words: set[str], tmp_path: Path) -> None:
    found = {word.strip() for word in completed(f"python run_ladder.py {typed}", tmp_path)}
    assert found == words
    assert b"PYTHON_ARGCOMPLETE_OK" in (ROOT / "run_ladder.py").read_bytes()[:1024]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--stages numpy", "--resume out"),
        ("--data-dir d", "--resume out --data-dir d"),
        ("--stage-file a.py --stage-file b.py", "--resume out --stage-file a.py --stage-file b.py"),
        ("--resume out --data-dir d", "--resume out --data-dir d"),
        ("study plan.toml --points a --data-dir d", "study --resume out --data-dir d"),
        ("study --resume out --data-dir d", "study --resume out --data-dir d"),
        ("study --resume out", "study --resume out"),
    ],
)
def test_it_names_the_files_of_the_interrupted_command(typed: str, words: str) -> None:
    found = continuation(parse(typed.split()), Path("out"))  # type: ignore[arg-type]
    assert found == words.split()
    parse(found)


def test_a_config_file_s_data_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('data_dir = "far away"')
    asked = parse(["--config", str(tmp_path / "mine.toml")])
    assert continuation(asked, Path("out")) == ["--resume", "out", "--data-dir", "far away"]  # type: ignore[arg-type]


def test_options_of_torch_become_a_command() -> None:
    options = (
        "--epochs 30 --stages eager..compile,tf32 --rounds 4 --repeats 5 --timeout 9 --energy --write b.py --out d"
    )
    assert parse(["torch", "a.py", *options.split()]) == Torch(
        model=Path("a.py"), epochs=30, stages=("eager..compile", "tf32"), rounds=4, repeats=5, timeout=9.0,
        energy=True, write=Path("b.py"), out=Path("d"),
    )  # fmt: skip
    assert parse(["torch", "--resume", "d", "--timeout", "9"]) == Torch(resume=Path("d"), timeout=9.0)


def test_a_stopped_ladder_over_a_model_goes_on_with_its_folder() -> None:
    words = continuation(Torch(model=Path("a.py"), write=Path("b.py"), rounds=4), Path("out"))
    assert words == ["torch", "a.py", "--resume", "out", "--write", "b.py"]
    assert parse(words) == Torch(model=Path("a.py"), resume=Path("out"), write=Path("b.py"))
