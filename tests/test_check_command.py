"""`check` as its user meets it, the same check before `run` times a stage of one's own, and `advise --measure`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from common.cuda.driver import DeviceInfo
from ladder.records.checked import Checked
from ladder.records.run import load
from ladder.run import outlook
from reports.facts import advice
from run_ladder import main
from tests.common.data.idx_writer import quartet_arrays, write_files

ROOT = Path(__file__).parents[1]
CPP = str(ROOT / "examples" / "cpp_step.py")
SMALL = ["--batch-size=16", "--metrics-every=1"]
RUN = ["--stages=numpy", *SMALL, "--epochs=2", "--rounds=1", "--repeats=2", "--budget=1", "--remeasure=0"]
STAGE = '''\
"""NumPy's trainer, as a stage of one's own."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
import os

from stages import Stage
from stages.references.numpy_cpu import NumpyTrainer


class Mine(NumpyTrainer):
    def __init__(self, problem, train):
        super().__init__(replace(problem, learning_rate=problem.learning_rate * RATE), train)

    def load_params(self, params):
        """Keep a note of the parameters, by process."""
        with Path(__file__).with_suffix(".seen").open("a") as seen:
            seen.write(f"{os.getpid()} {sha256(params.weights[0].tobytes()).hexdigest()}\\n")
        super().load_params(params)


STAGE = Stage("mine", "Mine", "reference", "float32", (), Mine)
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: a right stage and a wrong one, which learns 1 % too fast; 400 images are found by default."""
    data = write_files(tmp_path / "digits", quartet_arrays(400, 50, (6, 6), 4))
    (folder := tmp_path / "here").mkdir()
    for name, rate in {"right": "1.0", "wrong": "1.01"}.items():
        (folder / f"{name}.py").write_text(STAGE.replace("RATE", rate))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LADDER_DATA_DIR", str(data))
    monkeypatch.setenv("COLUMNS", "80")
    return folder


@pytest.mark.parametrize(("file", "hidden"), [("right.py", ["--hidden=8"]), ("numpy", [])])
def test_a_right_stage_passes_in_a_table_that_fits(
    file: str, hidden: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(here.iterdir())
    assert main(["check", file, *SMALL, *hidden]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    assert "\nepoch from zeros, parameters " in out
    assert "\nRight: " in out
    beside = f" --stage-file {file}` does both, beside NumPy; it checks again first."
    more = beside if file == "right.py" else "` does both."
    assert f"run_ladder.py run --stages numpy{more}" in " ".join(out.split())
    left = [path for path in sorted(here.iterdir()) if path.suffix != ".seen" and path.name != "__pycache__"]
    assert left == before  # no run, no logs


def test_a_wrong_stage_is_told_by_check_error_limit_and_advice(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "wrong.py").write_text(STAGE.replace("RATE", "[print('no such shape'), 1.01][1]"))
    assert main(["check", "wrong.py", *SMALL]) == 1
    told = capsys.readouterr().out
    assert "\nno such shape\nWrong: " in told
    (line,) = [line for line in told.splitlines() if line.startswith("first update, scale ")]
    assert line.split()[3:] == ["1.0e-02", line.split()[4], "no"]
    assert float(line.split()[4]) < 1e-3
    advice = " ".join(told[told.index("\n! ") :].split())
    assert advice.startswith("! every first update is 1.01 times the expected one: look at the learning rate and ")
    assert advice.count("!") == 1


def test_a_crashed_stage_shows_what_it_printed_last(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "wrong.py").write_text(STAGE.replace("RATE", "[][0]"))
    assert main(["check", "wrong.py", *SMALL]) == 1
    told = capsys.readouterr().out
    assert "! IndexError: list index out of range (wrong.py, line 14)\nTraceback" in told
    assert "\nCrashed, in " in told


SUM = """
import multiprocessing, sys, time

def sum_of(numbers):
    return Path("scale.txt").read_text() and numbers.sum(0)
"""
POOL = "with multiprocessing.get_context({!r}).Pool(1) as pool: pool.map(sum_of, [train.labels])"
ODD = {
    "no streams": "sys.stdout = None; sys.stderr.close()",
    "another time zone": "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
    "a path of its own folder": "assert float(open('scale.txt').read()) == 1",
    **{how: POOL.format(how) for how in ("spawn", "forkserver")},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_right_stage_is_right_in_any_file(odd: str, here: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "other").mkdir()
    (folder / "scale.txt").write_text("1")
    lines = STAGE.replace("RATE", "1.0").splitlines()
    lines[8:8] = SUM.splitlines()
    at = next(at for at, line in enumerate(lines) if "super().__init__" in line)
    lines[at:at] = [f"        {odd}"]
    (folder / "my.stage.py").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert main(["check", f"{folder}/my.stage.py", *SMALL]) == 0


def test_a_package_that_the_trainer_lacks_has_a_way_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "wrong.py").write_text(STAGE.replace("RATE", "__import__('no_such_package')"))
    assert main(["check", "wrong.py", *SMALL]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "! ModuleNotFoundError: No module named 'no_such_package' (wrong.py, line 14); install the package" in told


@pytest.mark.parametrize(("file", "status", "code"), [("right.py", "passed", 0), ("wrong.py", "failed", 1)])
def test_json_has_all_checks(file: str, status: str, code: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", file, *SMALL, "--json"]) == code
    plain = json.loads(capsys.readouterr().out)
    found = msgspec.convert(plain, Checked)
    assert msgspec.to_builtins(found) == plain
    assert (found.name, found.file, found.precision, found.status) == ("mine", file, "float32", status)
    assert (found.problem.inputs, found.problem.batch_size, found.output) == (36, 16, "")
    assert len(found.checks) > 20
    assert all(one.passed == (one.error is not None and one.error <= one.limit) for one in found.checks)
    assert found.advice.keys() == {one.what for one in found.checks if not one.passed}
    assert bool(found.advice) == bool(found.reason) == bool(found.lead) == bool(code)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["empty.py"], "check empty.py: "),
        (["nump"], "stage 'nump': unknown; did you mean numpy?"),
        (["references"], "references: names "),
        (["needy.py"], "mine: cannot be checked here: "),
        (
            [CPP, "--hidden", "8"],
            "cpp: does not take this problem: trains softmax regression alone; leave --hidden out",
        ),
        (["misfit.py"], "mine: does not take this problem: not today"),
        (["right.py", "--batch-size", "401"], "batch size 401: digits has 400 training images; choose 400 or fewer"),
        (["numpy", "--hidden", "8", "--learning-rate", "1e30"], "learning rate 1e+30: training diverges in float32; "),
        (["right.py", "wrong.py"], "wrong.py: there is no such argument; "),
        ([], "the following arguments are required: FILE; see run_ladder.py check --help"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_in_a_line(
    argv: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "empty.py").write_text("")
    misfit = 'from common.errors import MisfitError\n\n\ndef build(*_):\n    raise MisfitError("not today")\n\n\nSTAGE'
    (here / "needy.py").write_text(STAGE.replace(", (), ", ', ("sm_999",), '))
    (here / "misfit.py").write_text(STAGE.replace("STAGE", misfit).replace("Mine)", "build)"))
    assert main(["check", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith(f"run_ladder.py: {said.format(here=here)}")


def test_a_run_times_only_what_is_right(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--stage-file=wrong.py", "--out=run"]) == 1
    numpy, mine = load(here / "run").stages
    assert (numpy.status, len(numpy.processes)) == ("passed", 1)
    assert (mine.status, mine.timing, mine.processes) == ("failed", None, [])
    assert "first update, scale" in {one.what for one in mine.checks if not one.passed}
    told = capsys.readouterr().out
    assert told.index("mine, checked first: first update, ") < told.index("numpy: ")
    assert (here / "run" / "report.html").exists()
    # Its mistake is mended: the run goes on with it.
    shutil.copy("right.py", "wrong.py")
    assert main(["--resume=run", "--stage-file=wrong.py"]) == 0
    assert [(one.status, len(one.processes)) for one in load(here / "run").stages] == [("passed", 1), ("passed", 1)]


def test_a_wrong_stage_is_measured_where_that_is_asked_for(here: Path) -> None:
    assert main([*RUN, "--stage-file=wrong.py", "--out=run", "--no-fail-fast"]) == 1
    assert [(one.status, len(one.processes)) for one in load(here / "run").stages] == [("passed", 1), ("failed", 1)]


def test_a_check_gives_away_no_parameters_of_the_run_after_it(here: Path) -> None:
    assert main([*RUN, "--stage-file=right.py", "--out=run"]) == 0
    seen: dict[str, set[str]] = {}
    for line in (here / "right.seen").read_text().splitlines():
        process, parameters = line.split()
        seen.setdefault(process, set()).add(parameters)
    checked, timed = seen.values()
    assert len(checked) == 1 + 1 + 5 + 1 + 1  # an epoch, one from zeros, five short runs, from trained parameters, late
    assert len(checked & timed) == 2  # zeros, and the trained parameters, which are no secret
    assert load(here / "run").took_s["checking stages of one's own"] > 0


BRIEFLY = ["--epochs=1", "--max-steps=2", "--rounds=1", "--repeats=1", "--budget=0.1", "--remeasure=0"]


@pytest.mark.jax
def test_it_measures_the_stages_that_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = write_files(tmp_path / "digits", quartet_arrays(400, 50, (28, 28), 10))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outlook, "devices", lambda: [DeviceInfo("NVIDIA H200", (9, 0), 1, "0")])
    # PyTorch and the rungs only take longer, or are skipped without a GPU.
    monkeypatch.setattr(advice, "deciding", lambda found: [one for one in found.stages if one.name == "jax-scan"])
    assert (
        main(["advise", "--hidden=16", "--batch-size=32", "--measure", "--json", f"--data-dir={digits}", *BRIEFLY]) == 0
    )
    facts = json.loads(capsys.readouterr().out)
    (folder,) = (tmp_path / "runs").iterdir()
    results = load(folder)
    assert facts["deciding"] == ["jax-scan"]
    assert [stage.name for stage in results.stages] == [*facts["deciding"], "large-batch-dependent"]  # has no range
    assert (results.problem.hidden, results.problem.batch_size) == ([16], 32)
    timed = {stage.name: stage.timing.step_us for stage in results.stages if stage.timing}
    assert timed
    assert {stage["name"]: stage["measured_us"] for stage in facts["stages"] if stage["measured_us"]} == pytest.approx(
        timed, rel=1e-3
    )
