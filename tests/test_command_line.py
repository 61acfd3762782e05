"""The command line as a new user meets it: its refusals, its help and its files."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from itertools import chain
from pathlib import Path

import pytest
from msgspec.structs import replace

import run_ladder
from common.cuda import driver
from common.data.download import DownloadError
from common.data.idx_folder import TRAIN_IMAGES
from common.problem import Problem
from ladder.options.command_line import COMMANDS
from ladder.options.parsers import parse
from ladder.options.run_options import RunOptions, option_types
from ladder.records.run import StageCode, load, save
from reports.facts.stage_facts import StageFacts
from reports.screens.details import details
from reports.screens.rung import measured_facts
from run_ladder import main
from stages.registry import load_all
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.ladder.in_process import judge_in_processes

SCRIPT = Path(run_ladder.__file__)
OF_A_RUN = "stage_file", "config", "resume", "out", "dry_run"  # options that are none of its settings
NUMPY = "stages.references.numpy_cpu:STAGE"
SMALL = [
    "--batch-size=20", "--epochs=2", "--metrics-every=1", "--rounds=1", "--repeats=3", "--budget=1", "--remeasure=0",
]  # fmt: skip
Refused = Callable[..., str]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 400 images of 6x6 pixels in 4 classes."""
    return write_files(tmp_path_factory.mktemp("data") / "digits", quartet_arrays(400, 50, (6, 6), 4))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert main(["--stages", "numpy", *SMALL, "--data-dir", str(digits), "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def here(tmp_path: Path, digits: Path, finished: Path, monkeypatch: pytest.MonkeyPatch, in_process: None) -> Path:
    """The current folder, with an earlier run in it; its data is found by default."""
    folder = tmp_path / "here"
    shutil.copytree(finished, folder / "earlier")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LADDER_DATA_DIR", str(digits))
    return folder


@pytest.fixture
def refused(here: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must be refused with one line on stderr and no other trace; returns the line."""

    def run(*argv: str) -> str:
        before = snapshot(here)
        assert main(list(argv)) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("run_ladder.py: ")
        assert err.count("\n") == 1
        assert snapshot(here) == before
        return err

    return run


def snapshot(folder: Path) -> dict[Path, bytes | None]:
    """Every file below a folder with its bytes, and every folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("argv", "said", "way_out"),
    [
        ("report ~/none", f"{Path.home()}/none: cannot be read", "name a results.json"),
        ("--stages naive..cublas", "naive and 2 more: cannot be measured here", "`run_ladder.py list` shows which"),
        ("profile --stages cublas", "cublas: cannot be measured here", "`run_ladder.py list` shows which"),
        ("explain reference:h300", "reference:h300: no such recorded run", "there are "),
        ("advise --measure", "--measure: needs an NVIDIA GPU", "leave it out"),
        ("--stages ddp-peer", "ddp-peer: cannot be measured here: needs two GPUs", "`run_ladder.py list` shows which"),
        ("--resume earlier --profile cupti", "--profile cupti", "can add nsys alone"),
        ("--stages numpy --hidden 100000000 --dry-run", "the float64 oracle of 4,100,000,004", "choose smaller layers"),
        ("explain fleet-grid", "no run here has timed it", "--profile cupti --networks 8"),
        ("explain torch-ddp-amp", "no run here has timed it", "--stages torch-ddp-amp --profile cupti --gpus 2"),
    ],
)
def test_bad_options_are_refused(refused: Refused, argv: str, said: str, way_out: str) -> None:
    line = refused(*argv.split())
    assert said in line
    assert way_out in line


def test_bad_data_folders_are_refused(refused: Refused, tmp_path: Path, digits: Path) -> None:
    empty, half, half_gz = (tmp_path / name for name in ("empty", "half", "half_gz"))
    empty.mkdir()
    write_files(half, quartet_arrays(), gz=False)
    shutil.copytree(digits, half_gz)
    for broken in (half / TRAIN_IMAGES, half_gz / f"{TRAIN_IMAGES}.gz"):
        broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])

    for folder, said in (
        (tmp_path / "nowhere", "No such file or directory; name a folder"),
        (half / TRAIN_IMAGES, "Not a directory; name a folder"),
        (empty, f"no {TRAIN_IMAGES}"),
        (half, "truncated"),
        (half_gz, "damaged gzip file"),
    ):
        line = refused("--data-dir", str(folder))
        assert f"run_ladder.py: {folder}" in line
        assert said in line


def test_an_out_that_cannot_be_written_to_is_refused(refused: Refused, here: Path) -> None:
    below_a_file = here / "earlier" / "report.md" / "run"
    unwritable = Path("/proc/self")  # not even root
    for folder in (below_a_file, below_a_file.parent, unwritable):
        line = refused("--out", str(folder))
        assert f"--out {folder}: cannot be written to (" in line
        assert "choose another folder" in line


def test_variables_that_make_a_stage_another_are_left_out(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert main(["list"]) == 0
    assert ("TORCHDYNAMO_DISABLE" in os.environ, os.environ["OPENBLAS_CORETYPE"]) == (False, "Haswell")
    assert capsys.readouterr().err == "run_ladder.py: goes on without TORCHDYNAMO_DISABLE, which stages do not expect\n"


def test_a_run_on_other_data_or_of_another_version_is_not_resumed(
    refused: Refused, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.delenv("LADDER_DATA_DIR")
        patched.setattr("ladder.run.session.dataset_of", None)  # which must not be called
        assert "earlier: was measured on digits; give its --data-dir" in refused("--resume", "earlier")
    other = write_files(tmp_path / "other", quartet_arrays(401, 50, (6, 6), 4))
    line = refused("--resume", "earlier", "--data-dir", str(other))
    assert "earlier: was measured on digits, found here is other; give its --data-dir" in line

    file = here / "earlier" / "results.json"
    file.write_text(file.read_text().replace('"name":"numpy"', '"name":"gone"'))
    line = refused("--resume", "earlier")
    assert "earlier: measured gone, which this version does not have; start anew, or give its --stage-file" in line


def test_a_run_writes_its_results_report_and_figures(finished: Path) -> None:
    results = load(finished)
    (stage,) = results.stages
    assert (stage.name, stage.status) == ("numpy", "passed")
    assert (results.problem.dataset, results.problem.network, results.problem.epochs) == ("digits", "36-4", 2)
    assert "`numpy`" in (finished / "report.md").read_text()
    assert {file.name for file in (finished / "figures").iterdir()} == {"ladder.svg"}


def test_results_go_below_runs_unless_told_otherwise(here: Path) -> None:
    assert main(["--stages", "numpy", *SMALL]) == 0
    (folder,) = (here / "runs").iterdir()
    assert load(folder).stages[0].status == "passed"


def test_report_renders_a_copied_run_byte_for_byte(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = here / "earlier"
    before = snapshot(folder)
    for path in (folder, folder / "results.json"):
        (folder / "report.md").unlink()
        shutil.rmtree(folder / "figures")
        assert main(["report", str(path)]) == 0
        assert snapshot(folder) == before
    assert "\nnumpy  " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "variable", "what"),
    [
        (["--stage-file=~no-such-user/mine.py"], "UNUSED", "--stage-file ~no-such-user/mine.py"),
        (["--stages=numpy"], "LADDER_DATA_DIR", "$LADDER_DATA_DIR ~no-such-user"),
        (["doctor"], "LADDER_CACHE_DIR", "$LADDER_CACHE_DIR ~no-such-user"),
    ],
)
def test_the_home_of_an_unknown_user_is_refused_in_a_line(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, argv: list[str], variable: str, what: str
) -> None:
    monkeypatch.setenv(variable, "~no-such-user")
    if variable == "LADDER_CACHE_DIR":
        monkeypatch.delenv("LADDER_DATA_DIR")
    assert refused(*argv) == f"run_ladder.py: {what}: unknown home directory; write the whole path\n"


@pytest.mark.parametrize("named", ["earlier", "earlier/results.json"])
def test_resuming_a_finished_run_tells_what_it_has_and_changes_nothing(
    here: Path, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(here)
    assert main(["--resume", named, "--stages", "all"]) == 0  # `make ladder` adds the latter
    told = capsys.readouterr().out
    assert told.startswith("continuing: 1 of 1 processes were measured before\n")
    assert "0 jobs" not in told
    assert snapshot(here) == before


def edit(path: Path, where: str, value: object) -> None:
    """Replace one value in a JSON file."""
    whole = inner = json.loads(path.read_text())
    *outer, last = (int(word) if word.isdigit() else word for word in where.split("."))
    for word in outer:
        inner = inner[word]
    inner[last] = value
    path.write_text(json.dumps(whole))


def test_a_run_whose_stage_has_changed_since_is_not_resumed(here: Path, refused: Refused) -> None:
    earlier = load(here / "earlier")
    (stage,) = earlier.stages
    other = replace(stage, code=StageCode("0" * 64, None))
    save(replace(earlier, stages=[other]), here / "earlier" / "results.json")
    line = refused("--resume", "earlier")
    assert line.endswith("earlier: the code of numpy has changed since it was measured; start anew\n")


def test_stages_side_by_side_are_neither_timed_nor_profiled(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stages", "numpy", *SMALL, "--at-once", "2", "--out", "beside"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "1 stage passed all checks; no stage was timed side by side (--at-once)." in told
    results = load(here / "beside")
    assert (results.settings.profile, results.stages[0].timing) == ([], None)
    assert main(["compare", "earlier", "beside"]) == 2
    assert "no stage was timed in both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("stages.0.processes.0.pace_s", 0.0),
        ("stages.0.processes.0.pace_s", 1e-320),
        ("stages.0.processes.0.round", -7),
        ("stages.0.processes.0.runs_s", []),
        ("stages.0.processes.0.runs_s", [1e308, 1e308]),
        ("stages.0.processes.0.runs_s", [1e-300]),
        ("stages.0.checks.0.limit", -1.0),
        ("environment.cpu", 1),
        ("stages.0.timing.steps_per_epoch", 0),
        ("stages.0.timing.epoch_s.median", -1.0),
        ("stages.0.timing.epoch_s.min", 1e6),
    ],
)
def test_impossible_results_are_refused(where: str, value: object, here: Path, refused: Refused) -> None:
    edit(here / "earlier" / "results.json", where, value)
    assert "earlier/results.json: not a results file of this program (" in refused("report", "earlier")


@pytest.mark.parametrize(("setting", "value"), [("curve_steps", -5), ("timeout_s", -1.0), ("rounds", 1_000_000_000)])
def test_impossible_settings_are_not_resumed(setting: str, value: object, here: Path, refused: Refused) -> None:
    edit(here / "earlier" / "results.json", f"settings.{setting}", value)
    assert f"earlier: {setting.removesuffix('_s')} = {value}: must be " in refused("--resume", "earlier")


def test_validation_is_noted_beside_times_and_kept_on_resuming(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stages", "numpy", *SMALL, "--validate-every", "1", "--out", "validated"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "seed 0, validation after every epoch in the times" in shown
    assert "validation after every epoch" in (here / "validated" / "report.md").read_text()
    results = load(here / "validated")
    assert "on the test images after every epoch, in the times" in str(details(results))
    assert "its own validation after epoch 2" in str(list(measured_facts(StageFacts(results.stages[0], results))))

    bare = replace(results.stages[0], processes=[], metrics=None)
    save(replace(results, stages=[bare]), here / "validated" / "results.json")
    assert main(["--resume", "validated"]) == 0
    (stage,) = load(here / "validated").stages
    assert stage.metrics is not None
    assert [seen.epoch for seen in stage.metrics.validation] == [1, 2]


def test_exit_status_is_1_when_a_stage_fails_or_crashes_and_not_when_it_is_skipped(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = ("cheats.defects:GRADIENT", "failed"), ("planted:NEEDY", "skipped"), ("planted:RAISES", "crashed")
    for planted, status in planned:
        if status == "crashed":
            judge_in_processes(monkeypatch)  # which may
        entries = load_all([NUMPY, f"tests.{planted}"])
        monkeypatch.setattr("ladder.run.entries.load_all", lambda entries=entries: entries)
        assert main([*SMALL, "--out", planted]) == (status != "skipped")
        results = load(here / planted)
        assert [stage.status for stage in results.stages] == ["passed", status]
        assert str(results.stages[1].reason) in " ".join(capsys.readouterr().out.split())


def help_of(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def test_help_lists_every_command_and_that_of_run_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(COMMANDS) == re.findall(r"^  ([a-z]+) +[a-z]", help_of(capsys).partition("options:")[0], re.MULTILINE)
    assert COMMANDS.keys() - {"profile"} == run_ladder.COMMANDS.keys()
    shown = set(re.findall(r"^  --([a-z-]+)", help_of(capsys, "run"), re.MULTILINE))
    options = {name.replace("_", "-") for name in (*option_types(RunOptions), *OF_A_RUN)}
    assert shown == options | {"no-fail-fast"}


@pytest.mark.parametrize(
    ("command", "without"),
    [
        ("run", set()),
        ("profile", set()),
        ("check", {"epochs", "validate_every"}),
        ("study", {"networks", "learning_rates"}),  # its --gpus are a job's
        ("advise", {"networks", "learning_rates"}),
    ],
)
def test_each_command_that_trains_takes_every_setting_of_the_training(command: str, without: set[str]) -> None:
    options = {f.name for f in fields(Problem)} & {*option_types(RunOptions)}
    front = COMMANDS[command]
    listed = [*chain(*front.groups.values(), front.hidden)]
    taken = {name.strip("-").replace("-", "_") for name, _, _ in listed}
    assert options - taken == without
    assert len({name for name, _, _ in listed}) == len(listed)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_one_screen_with_two_examples_that_parse(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = help_of(capsys, *command.split()).splitlines()
    assert len(told) <= (50 if command == "run" else 40)
    assert max(map(len, told)) <= 80
    examples = [shlex.split(line)[2:] for line in told if line.startswith("  python run_ladder.py ")]
    assert len(examples) == 2
    for words in examples:
        if "--help" not in words:
            parse(words)
    for usage in ("what to run", "how to measure", "output"):
        assert command not in ("run", "profile", "study") or usage in "\n".join(told)


def test_the_help_has_a_run_s_defaults(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = help_of(capsys, "run")
    numbers = dict(re.findall(r"^  --([a-z-]+) .*\((\d[\d.]*)\)$", told, re.MULTILINE))
    assert len(numbers) == 16
    assert float(numbers.pop("time-cap")) == RunOptions().settings(None).time_cap_s
    options = RunOptions()
    assert {name: f"{getattr(options, name.replace('-', '_')):g}" for name in numbers} == numbers
    budgets = []
    for seen in ([object()], []):
        monkeypatch.setattr(driver, "devices", lambda seen=seen: seen)
        budgets.append((options.seconds_a_stage, options.seconds_in_all))
    for on_gpu, on_cpu in zip(*budgets, strict=True):
        assert f"({on_gpu:g}; on a CPU {on_cpu:g})" in told


def test_the_version_is_the_project_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    text = (SCRIPT.parent / "pyproject.toml").read_text()
    assert f'version = "{capsys.readouterr().out.split()[1]}"' in text


@pytest.mark.parametrize(
    ("earlier", "now"),
    [
        ([], ["run"]),
        (["--stages", "all"], ["run", "--stages=all"]),
        (["profile"], ["run", "--rounds=1", "--repeats=1", "--profile=auto"]),
        (["profile", "--profile", "none"], ["profile", "--tool", "none"]),
    ],
)
def test_earlier_spellings_mean_the_same(earlier: list[str], now: list[str]) -> None:
    assert parse(earlier) == parse(now)


def test_as_a_program_it_says_one_line_and_exits_with_2(here: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--epochs", "0"], capture_output=True, text=True, cwd=here)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "run_ladder.py: --epochs 0: must be a whole number from 1 to 1,000,000\n"


def test_a_stage_is_explained_from_the_first_run_that_has_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "runs" / "foreign").mkdir(parents=True)
    (here / "runs" / "foreign" / "results.json").write_text("{}")
    assert main(["explain", "cuda-graph"]) == 0
    told = capsys.readouterr().out
    assert "\nRecorded on another machine: NVIDIA H100 80GB HBM3.\n" in told
    assert "results/reference/h100-80gb-hbm3/logistic: 784-10 (softmax regression) on MNIST" in told.replace("\n", " ")
    assert "Next: " in told


def test_a_stage_from_a_file_is_explained_without_the_file_where_its_run_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = here / "earlier" / "results.json"
    file.write_text(file.read_text().replace('"name":"numpy"', '"name":"my-torch"'))
    assert main(["explain", "my-torch", "earlier"]) == 0
    assert "my-torch (" in capsys.readouterr().out
    shutil.copytree(here / "earlier", here / "runs" / "own")
    assert main(["explain", "my-torch"]) == 0  # the newest run that has it knows it, too
    assert "runs/own: " in capsys.readouterr().out
    assert main(["explain", "my-torch", "earlier", "--stage-file", "none.py"]) == 2
    assert main(["explain", "my-toch", "earlier"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"run_ladder.py: --stage-file {here}/none.py: no such file; name a .py file",
        "run_ladder.py: my-toch: no such stage in this run; try my-torch",
    ]


def test_a_stage_on_the_cpu_is_explained_without_a_profile(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "numpy"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Recorded on another machine: NVIDIA H200." in told
    assert "results/reference/h200/logistic: 784-10 (softmax regression) on MNIST" in told
    assert re.search(r"GFLOP/s on \d+ threads", told)


ASCII_ALONE = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("command", ["study", "doctor"])
def test_a_command_that_measures_shows_everything_in_ascii(command: str, digits: Path, tmp_path: Path) -> None:
    settings = "".join(f"{one.removeprefix('--').replace('-', '_')}\n" for one in SMALL)
    (tmp_path / "growth.toml").write_text(
        f'title = "Größe · 5 µs"\nquestion = "Wächst es?"\nstages = "numpy"\n{settings}[vary]\nhidden = [3]\n',
        encoding="utf-8",
    )
    places = ["--data-dir", str(digits), "--out", str(tmp_path / "löss")]
    arguments = ["growth.toml", *places] if command == "study" else []
    done = subprocess.run(
        [sys.executable, str(SCRIPT), command, *arguments],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, **ASCII_ALONE},
    )
    told = (done.stdout + done.stderr).decode("ascii")
    assert "Traceback" not in told
    assert done.returncode == 0 or command == "doctor", told
    assert told.strip()


def test_a_terminal_that_knows_ascii_alone_shows_everything(here: Path) -> None:
    ascii_alone = {**os.environ, **ASCII_ALONE}
    for command in (["explain", "cuda-graph"], ["report", "earlier"], ["list"], ["compare", "reference:h200", "a–b"]):
        done = subprocess.run([sys.executable, str(SCRIPT), *command], capture_output=True, cwd=here, env=ascii_alone)
        assert done.returncode == (2 if command[0] == "compare" else 0), done.stderr
        (done.stdout + done.stderr).decode("ascii")
        assert b"Traceback" not in done.stderr
        assert command[0] != "explain" or b"####" in done.stdout


def test_a_reader_that_goes_away_gets_no_traceback(here: Path) -> None:
    command = [sys.executable, str(SCRIPT), "report", "earlier"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=here, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_output_without_room_is_told_with_the_way_on(here: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, str(SCRIPT), "report", "earlier"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=here, text=True)
    told = "standard output: No space left on device; send it elsewhere, then repeat the command"
    assert (done.returncode, done.stderr) == (2, f"run_ladder.py: {told}\n")


def test_results_without_stages_are_refused(here: Path, refused: Refused) -> None:
    edit(here / "earlier" / "results.json", "stages", [])
    for command in (["explain", "numpy", "earlier"], ["report", "earlier"], ["--resume", "earlier"]):
        assert "earlier/results.json: not a results file of this program (it has no stages)" in refused(*command)


def test_limits_need_a_gpu(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladder.machine.limits.missing", lambda needs: "no CUDA device")
    assert refused("limits", "--json").endswith("they can only be measured on a machine with an NVIDIA GPU\n")


def test_a_missing_profile_of_a_reference_on_the_cpu_is_noted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--stages", "numpy", *SMALL, "--out", "profiled"]) == 0
    told = capsys.readouterr().out.splitlines()[0]
    assert told.startswith("--profile cupti,stamps: none of these stages needs a GPU or is a rung on the CPU; ")
    assert told.endswith("; only times are measured")


def test_without_mnist_the_reason_and_the_way_out_are_printed(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_mnist(*_: object) -> None:
        time.sleep(0.2)
        raise DownloadError("mirror: Name or service not known")

    monkeypatch.delenv("LADDER_DATA_DIR")
    monkeypatch.setattr("common.data.dataset._mnist", no_mnist)
    monkeypatch.setattr("ladder.run.preflight.PATIENCE_S", 0.05)
    assert main(["--stages", "numpy", *SMALL, "--max-steps=8", "--out", "drawn"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "waiting for MNIST's mirrors; name a folder with its four files: --data-dir FOLDER",
        "no MNIST (mirror: Name or service not known): synthetic digits stand in; "
        "name a folder with its four files: --data-dir FOLDER",
    ]


def test_a_stage_that_cannot_run_is_refused_before_data(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(*_: object, **__: object) -> None:
        raise AssertionError("fetched")

    monkeypatch.setattr("ladder.run.preflight.dataset_of", fetched)
    assert "cublas: cannot be measured here" in refused("--stages", "cublas")
    with pytest.raises(AssertionError, match="fetched"):
        main(["--stages", "numpy", *SMALL])


def test_a_dry_run_tells_stages_and_time_and_leaves_nothing(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(here)
    assert main(["--stages", "numpy", *SMALL, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("36-4, batch 20: ")
    assert main(["--hidden", "36,8,4", "--dry-run"]) == 0
    meant = "lists hidden layers alone; for 36-8-4 write --hidden 8; this trains 36-36-8-4-4"
    assert f"--hidden 36,8,4: {meant}" in " ".join(capsys.readouterr().out.split())
    assert main(["--stages", "numpy", "--batch-size", "401", "--dry-run"]) == 2
    assert "digits has 400 training images" in capsys.readouterr().err
    monkeypatch.delenv("LADDER_DATA_DIR")
    monkeypatch.setattr("ladder.run.preflight.dataset_of", None)  # which must not be called
    asked = ["--stages", "numpy,cublas,cpu-resident", "--hidden", "8", "--dry-run"]
    assert main([*asked, "--rounds", "3", "--budget", "4"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("784-8-10, batch 128: 1 of 3 stages, each in at most 3 rounds. Nothing was measured.")
    assert "Would run: numpy. Not: " in told
    assert "Not: cublas: no CUDA device" in told
    assert "Not: cpu-resident: Needs a network without hidden layers." in told
    assert "Time: 4 s of timed runs at most, 4 s a stage;" in told
    assert main([*asked, "--budget-total", "1", "--hidden", "784,10"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Time: 1 s of timed runs at most" in told
    assert "for 784-10 leave --hidden out; this trains 784-784-10-10" in told
    assert snapshot(here) == before
    assert main(["profile", "cublas", "--dry-run"]) == 2
    assert "cublas: cannot be measured here" in capsys.readouterr().err


def test_a_dry_run_tells_how_long_the_newest_such_run_took(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = SCRIPT.parent / "results" / "reference" / "amd-epyc-2-cores" / "logistic" / "results.json.gz"
    (here / "runs" / "old").mkdir(parents=True)
    save(replace(load(record), seconds=170.0), here / "runs" / "old" / "results.json")
    assert main(["--stages", "numpy", "--dry-run"]) == 0
    assert "runs/old, the newest such run, took 2 min 50 s for 14 that passed." in capsys.readouterr().out
    assert main(["--stages", "numpy", "--dry-run", "--hidden", "8"]) == 0
    assert "newest such run" not in capsys.readouterr().out


def test_report_of_a_folder_that_cannot_be_written_prints_its_table(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "earlier/report.md")

    monkeypatch.setattr("reports.render.render_all", refuse)
    assert main(["report", "earlier"]) == 2
    printed, said = capsys.readouterr()
    assert "\nnumpy " in printed
    assert said == "run_ladder.py: earlier/report.md: Read-only file system\n"


LIBRARIES = {"torch", "jax", "cupy", "scipy", "numba", "asyncio"}
HEAVY = LIBRARIES | {"jinja2", "pygments", "importlib.metadata", "tomllib", "secrets"}


@pytest.mark.parametrize(
    ("command", "left_out"), [(["list"], HEAVY), (["doctor"], LIBRARIES), (["explain", "cuda-graph"], LIBRARIES)]
)
def test_commands_that_only_tell_import_no_heavy_library(command: list[str], left_out: set[str], here: Path) -> None:
    program = f"import sys, runpy; sys.argv[1:] = {command}; runpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    assert imported_by(f"try:\n {program}\nfinally:\n {TELL}", here) & left_out == set()


def test_reports_are_imported_without_what_only_drawing_needs(here: Path) -> None:
    assert imported_by(f"import sys, reports.render; {TELL}", here) & {*LIBRARIES, "jinja2"} == set()


TELL = "print(*sys.modules, file=sys.stderr)"


def imported_by(program: str, folder: Path) -> set[str]:
    """The modules that a program has imported when it tells so."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SCRIPT.parent)},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("command", "members"),
    [
        ("list", {"name", "needs", "missing"}),
        ("list --hidden 64 --batch-size 32", {"name", "expected"}),
        ("doctor", {"what", "found", "advice"}),
        ("advise --hidden 64", {"gpu", "stages", "verdict", "nearest"}),
        ("report earlier", {"problem", "stages", "notices"}),
        ("explain numpy earlier", {"stage", "step_us", "bound", "next"}),
        ("explain cuda-graph", {"stage", "split", "kernels", "doc"}),
        ("compare earlier earlier", {"same_run", "stages"}),
    ],
)
def test_tables_come_as_json(command: str, members: set[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert members <= (found[0] if isinstance(found, list) else found).keys()


def test_advise_draws_what_it_expects(tmp_path: Path) -> None:
    assert main(["advise", "--hidden", "64", "--gpu", "H100", "--svg", str(tmp_path / "advice.svg")]) == 0
    drawn = (tmp_path / "advice.svg").read_text()
    assert "predicted for H100. A guess, as on an H100 " in drawn
    assert "within it (step-graph's is judged, not tested); " in drawn


def test_a_list_names_the_network_that_its_times_are_of(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--hidden", "64,32", "--batch-size", "256"]) == 0
    assert capsys.readouterr().out.startswith("784-64-32-10 on MNIST, batch 256\n")
    assert main(["list", "--hidden", "64"]) == 0
    assert capsys.readouterr().out.startswith("784-64-10 on MNIST, batch 128\n")
    assert main(["list"]) == 0
    assert "on MNIST" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    ["--optimizer adam --gpu 4090", "--gpu 4090 --measured-eager 2ms", "--gpu H100 --epochs 500", "--hidden 2048,2048"],
)
def test_what_advise_says_fits_on_a_screen(
    options: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["advise", "--hidden", "300,100", *options.split()]) == 0
    assert capsys.readouterr().out.count("\n") <= 40


@pytest.mark.parametrize(
    ("command", "column", "first"),
    [
        ("list", "name", "numpy"),
        ("list --hidden 64", "expected_us", ""),
        ("report earlier", "name", "numpy"),
        ("explain cuda-graph", "name", None),
        ("doctor", "what", "ladder"),
        ("advise --gpu H200", "us", None),
    ],
)
def test_tables_can_be_had_as_csv(
    command: str, column: str, first: str | None, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert first in (None, rows[0][column])
    assert any(row[column] for row in rows)
    if "carried_us" in rows[0]:  # numbers of a list share a cell
        assert {len(list(map(float, row["carried_us"].split()))) for row in rows} == {2}
    assert main([*command.split(), "--csv", "--json"]) == 2
    assert capsys.readouterr().err == "run_ladder.py: --json --csv: print one table; leave one of them out\n"


def test_a_stage_without_a_profile_has_no_kernels_for_csv(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "numpy", "earlier", "--csv"]) == 2
    told = capsys.readouterr()
    why = "no kernel of it was profiled in this run, and CSV has a row for each; use --json"
    assert (told.out, told.err) == ("", f"run_ladder.py: numpy: {why}\n")
    assert main(["explain", "numpy", "earlier", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"] == []


def test_json_and_csv_have_the_numbers_of_the_results(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "earlier", "--json"]) == 0
    (stage,), (row,) = load(here / "earlier").stages, json.loads(capsys.readouterr().out)["stages"]
    assert stage.timing is not None
    assert (row["name"], row["status"], row["step_us"]) == ("numpy", "passed", stage.timing.step_us)
    assert main(["report", "earlier", "--csv"]) == 0
    (plain,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert float(plain["epoch_s_median"]) == stage.timing.epoch_s.median


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("-S", "is not installed; run `make setup`, then `source .venv/bin/activate`"),
        ("-P", "this program's own modules are hidden by PYTHONSAFEPATH, -P or -I; leave it out"),
        ("-OO", "PYTHONOPTIMIZE=2 or -OO drops the stages' descriptions; leave it out"),
    ],
)
def test_a_python_that_cannot_run_it_says_so_in_one_line(option: str, said: str) -> None:
    command = [sys.executable, option, "run_ladder.py", "list"]
    done = subprocess.run(command, cwd=run_ladder.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"{said}\n")
    assert done.stderr.count("\n") == 1


def test_a_width_of_zero_is_no_width(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert main(["list"]) == 0
    assert "cuda-graph" in capsys.readouterr().out
