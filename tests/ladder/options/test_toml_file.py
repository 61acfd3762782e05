"""Files with options: what is wrong is named with its line, and what is right says the same as the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import UsageError
from ladder.options.parsers import ladder_parser
from ladder.options.toml_file import NOT_IN_FILES, OPTIONS, _as_option, options_of

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


def test_a_file_says_the_same_as_the_command_line(tmp_path: Path) -> None:
    said = (
        "--stages numpy,naive --hidden 128,128,128 --batch-size 32 --learning-rate 1 --epochs 3 --seed 7 "
        "--metrics-every 2 --validate-every 3 --max-steps 10 --data-dir digits --rounds 1 --repeats 4 --warmups 0 "
        "--budget 2.5 --timeout 60 --curve-steps 5 --lock-clocks 1500 --profile cupti,nsys --nsys-stages naive"
    )
    written = ladder_parser().parse_args(said.split())
    options = options_of(write(tmp_path, ALL))
    assert {name: vars(written)[name] for name in options} == options
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
        ("\n\nbatch_size = '32'", 3, 'batch_size = "32": must be a whole number of 1 or more'),
        ("batch_size = 1.5", 1, "batch_size = 1.5: must be a whole number of 1 or more"),
        ("batch_size = 0", 1, "batch_size = 0: must be a whole number of 1 or more"),
        ("seed = -1", 1, "seed = -1: must be a whole number of 0 or more"),
        ("epochs = true", 1, "epochs = true: must be a whole number"),
        ("hidden = '64'", 1, 'hidden = "64": must be a layer\'s size such as 256, or a list'),
        ("hidden = [64, 0]", 1, "hidden = [64, 0]: must be"),
        ("hidden = [true]", 1, "hidden = [true]: must be"),
        ("# epochs\nlearning_rate = 0", 2, "learning_rate = 0: must be a positive number, such as 0.1"),
        ("learning_rate = nan", 1, "learning_rate = nan: must be a positive number"),
        ("budget = inf", 1, "budget = inf: must be a positive number of seconds"),
        ("stages = []", 1, "stages = []: must be text such as"),
        ("stages = [1]", 1, "stages = [1]: must be text such as"),
        ("profile = 'ncu'", 1, 'profile = "ncu": must be nsys, cupti, auto or none'),
        ("data_dir = ''", 1, 'data_dir = "": must be the text of a path'),
        ("'epochs' = '3'", 1, 'epochs = "3": must be'),
        ("epochs = 1\n[hidden]\nsize = 3", 2, "hidden = {'size': 3}: must be"),
        ("hidden = [64, 64]\ndepth = 2", 2, "depth = 2: hidden is a list of layers"),
        ("depth = 2", 1, "depth = 2: how wide are they?"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        options_of(path)
    assert str(refused.value).startswith(f"{path}, line {line}: {said}")
    assert "\n" not in str(refused.value)


def test_what_is_no_toml_is_refused_with_its_place(tmp_path: Path) -> None:
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


def test_every_option_of_a_run_is_a_key_and_may_be_what_it_takes() -> None:
    options = vars(ladder_parser().parse_args([])).keys()
    assert OPTIONS.keys() - {"depth"} == options - set(NOT_IN_FILES)
    assert set(NOT_IN_FILES) < options


def test_a_key_that_has_no_rule_of_its_own_is_what_its_option_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text, value in (
        ("list", "list = true", True),
        ("epochs", "epochs = 3", 3),
        ("stages", "stages = ['numpy', 'naive']", "numpy,naive"),
    ):
        monkeypatch.setitem(OPTIONS, name, _as_option(name))
        assert options_of(write(tmp_path, text)).get(name) == value
    with pytest.raises(UsageError, match=r'line 1: epochs = "x": must be what --epochs takes; see --help'):
        options_of(write(tmp_path, "epochs = 'x'"))
