"""TOML files with options: equal to the command line, and mistakes named by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import UsageError
from ladder.options.commands import Run
from ladder.options.parsers import parse
from ladder.options.run_options import RunOptions
from ladder.options.toml_file import SETTINGS, TomlFile, options_of

ALL = """
stages = ["numpy", "naive"]
hidden = 128
depth = 3
batch_size = 32
learning_rate = 1
epochs = 3
seed = 7
metrics_every = 2
validate_every = 3
max_steps = 10
data_dir = "digits"
rounds = 1
repeats = 4
warmups = 0
budget = 2.5
timeout = 60
curve_steps = 5
lock_clocks = 1500
profile = ["cupti", "nsys"]
nsys_stages = ["naive"]
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(text)
    return path


def test_a_file_and_the_command_line_give_the_same_options(tmp_path: Path) -> None:
    said = (
        "--stages numpy,naive --hidden 128,128,128 --batch-size 32 --learning-rate 1 --epochs 3 --seed 7 "
        "--metrics-every 2 --validate-every 3 --max-steps 10 --data-dir digits --rounds 1 --repeats 4 --warmups 0 "
        "--budget 2.5 --timeout 60 --curve-steps 5 --lock-clocks 1500 --profile cupti,nsys --nsys-stages naive"
    )
    written = parse(said.split())
    options = options_of(write(tmp_path, ALL))
    assert isinstance(written, Run)
    assert RunOptions(**options) == written.options
    assert len(options) == ALL.count(" = ") - 1  # hidden and depth are one
    assert isinstance(options["learning_rate"], float)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("hidden = 64", (64,)),
        ("hidden = [64, 32]", (64, 32)),
        ("hidden = []", ()),
        ("hidden = 64\ndepth = 2", (64, 64)),
        ("hidden = 64\ndepth = 0", ()),
        ("depth = 0", ()),
    ],
)
def test_hidden_layers(tmp_path: Path, text: str, hidden: tuple[int, ...]) -> None:
    assert options_of(write(tmp_path, text))["hidden"] == hidden


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (
            "epochs = 3\nbatchsize = 32",
            2,
            "batchsize: there is no such key; did you mean batch_size? allowed are stages",
        ),
        ("\n\nbatch_size = '32'", 3, 'batch_size = "32": must be a whole number from 1 to 1,000,000,000,000,000'),
        ("batch_size = 1.5", 1, "batch_size = 1.5: must be a whole number from 1 to 1,000,000,000,000,000"),
        ("seed = -1", 1, "seed = -1: must be a whole number from 0 to 1,000,000,000,000,000"),
        ("epochs = true", 1, "epochs = true: must be a whole number"),
        ("hidden = '64'", 1, 'hidden = "64": must be a layer\'s size such as 256, or a list'),
        ("hidden = [64, 0]", 1, "hidden = [64, 0]: must be"),
        ("# epochs\nlearning_rate = 0", 2, "learning_rate = 0: must be a positive number, such as 0.1"),
        ("learning_rate = nan", 1, "learning_rate = nan: must be a positive number"),
        ("budget = inf", 1, "budget = inf: must be a positive number of seconds"),
        ("stages = [1]", 1, "stages = [1]: must be text such as"),
        ("profile = 'ncu'", 1, 'profile = "ncu": must be nsys, cupti, stamps, auto or none'),
        ("data_dir = ''", 1, 'data_dir = "": must be the name of a file or folder'),
        ("'epochs' = '3'", 1, 'epochs = "3": must be'),
        ("epochs = 1\n[hidden]\nsize = 3", 2, "hidden = {'size': 3}: must be"),
        ("hidden = [64, 64]\ndepth = 2", 2, "depth = 2: hidden is already a list of layers"),
        ("depth = 2", 1, "depth = 2: needs the width of these layers"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        options_of(path)
    assert str(refused.value).startswith(f"{path}, line {line}: {said}")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_toml_is_refused_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"run\.toml: not TOML \(.*at line 2, column 10\)"):
        options_of(write(tmp_path, "epochs = 3\nseed = 1 2"))
    with pytest.raises(UsageError, match=r"run\.toml: not TOML"):
        options_of(write(tmp_path, "epochs = 3\nepochs = 4"))
    with pytest.raises(
        UsageError, match=r"nowhere\.toml: cannot be read \(No such file or directory\); name a TOML file"
    ):
        options_of(tmp_path / "nowhere.toml")
    (tmp_path / "run.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"run\.toml: not TOML"):
        options_of(tmp_path / "run.toml")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xef\xbb\xbfepochs = 3\r\nseed = 7\r\n")
    assert options_of(path) == {"epochs": 3, "seed": 7}
    assert str(TomlFile(path).refuse("epochs", ": no")) == f"{path}, line 1: epochs: no"
    other = write(tmp_path, "precision = '1%'\ntime_cap = 60\nat_once = 1")
    assert options_of(other) == {"precision": 0.01, "time_cap": 60.0, "at_once": 1}
    assert SETTINGS.keys() - {"depth"} == set(RunOptions.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("seed = 1\nepochs = [\n  1,\n  0,\n]\nrounds = 1", 2),
        ('title = """\nepochs = 0\n"""\nepochs = 0', 4),
        ("seed = 1 # epochs = 0\n\n# epochs = 0\n'epochs' = 0", 4),
        ("seed = 1\r\nepochs = 0\r\n", 2),
        ('"epochs" = 0', 1),
    ],
)
def test_the_line_is_where_the_statement_begins(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(text.encode())
    assert str(TomlFile(path).refuse("epochs", ": no")) == f"{path}, line {line}: epochs: no"
