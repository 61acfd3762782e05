"""The options of a run, from the command line and from a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import UsageError
from ladder.options.commands import OPTIMIZERS, Advise, ListStages, Run, Torch
from ladder.options.continuation import continuation
from ladder.options.parsers import parse
from ladder.options.run_options import RunOptions
from ladder.options.toml_file import SETTINGS, TomlFile, options_of


@pytest.mark.parametrize(("asked", "every", "validated"), [(None, 0, 0), (0.9, 0, 1), (0.9, 5, 5)])
def test_the_way_to_an_accuracy_takes_validation(asked: float | None, every: int, validated: int) -> None:
    options = RunOptions(target_accuracy=asked, validate_every=every)
    assert (options.problem().validate_every, options.settings(None).target_accuracy) == (validated, asked)


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


@pytest.mark.parametrize(("typed", "us"), [("2.5", 2.5), ("2.5us", 2.5), ("0.25ms", 250.0)])
def test_a_launch_s_time_may_have_a_unit(typed: str, us: float) -> None:
    assert parse(["advise", "--launch", typed]) == Advise(options=RunOptions(), launch=us)


@pytest.mark.parametrize("typed", ["300, 100", "[300,100]", " 300 ,100"])
def test_a_list_may_have_brackets_and_blanks_beside_its_commas(typed: str) -> None:
    assert parse(["list", "--hidden", typed]) == ListStages(hidden=(300, 100))


def test_a_stopped_ladder_over_a_model_goes_on_with_its_folder() -> None:
    words = continuation(Torch(model=Path("a.py"), write=Path("b.py"), rounds=4), Path("out"))
    assert words == ["torch", "a.py", "--resume", "out", "--write", "b.py"]
    assert parse(words) == Torch(model=Path("a.py"), resume=Path("out"), write=Path("b.py"))


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
    ("text", "said"),
    [
        (
            "epochs = 3\nbatchsize = 32",
            "batchsize: there is no such key; did you mean batch_size? allowed are stages",
        ),
        ("\n\nbatch_size = '32'", 'batch_size = "32": must be a whole number from 1 to 1,000,000,000,000,000'),
        ("batch_size = 1.5", "batch_size = 1.5: must be a whole number from 1 to 1,000,000,000,000,000"),
        ("seed = -1", "seed = -1: must be a whole number from 0 to 1,000,000,000,000,000"),
        ("epochs = true", "epochs = true: must be a whole number"),
        ("hidden = '64'", 'hidden = "64": must be a layer\'s size such as 256, or a list'),
        ("hidden = [64, 0]", "hidden = [64, 0]: must be"),
        ("# epochs\nlearning_rate = 0", "learning_rate = 0: must be a positive number, such as 0.1"),
        ("learning_rate = nan", "learning_rate = nan: must be a positive number"),
        ("budget = inf", "budget = inf: must be a positive number of seconds"),
        ("stages = [1]", "stages = [1]: must be text such as"),
        ("profile = 'ncu'", 'profile = "ncu": must be nsys, cupti, stamps, auto or none'),
        ("data_dir = ''", 'data_dir = "": must be the name of a file or folder'),
        ("'epochs' = '3'", 'epochs = "3": must be'),
        ("epochs = 1\n[hidden]\nsize = 3", "hidden = {'size': 3}: must be"),
        ("hidden = [64, 64]\ndepth = 2", "depth = 2: hidden is already a list of layers"),
        ("depth = 2", "depth = 2: needs the width of these layers"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as refused:
        options_of(path)
    assert str(refused.value).startswith(f"{path}: {said}")
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
    assert str(TomlFile(path).refuse("epochs", ": no")) == f"{path}: epochs: no"
    other = write(tmp_path, "precision = '1%'\ntime_cap = 60\nat_once = 1")
    assert options_of(other) == {"precision": 0.01, "time_cap": 60.0, "at_once": 1}
    assert SETTINGS.keys() - {"depth"} == set(RunOptions.__struct_fields__)


@pytest.mark.torch
def test_advise_knows_every_optimizer_of_pytorch() -> None:
    import torch

    classes = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    known = {kind.__name__ for kind in classes if issubclass(kind, torch.optim.Optimizer)}
    assert known <= {*OPTIMIZERS, "Optimizer"}
