"""`study` from the command line: points, skipped and failed ones, and resuming after an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

import run_ladder
from common.data.download import DownloadError
from common.data.synthetic import synthetic_digits
from ladder.processes import worker_pool
from ladder.records.run import load
from ladder.records.study import load_study, save_study
from run_ladder import main
from stages.registry import load_all
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.ladder.in_process import judge_in_processes
from tests.streams import read_until

ROOT = Path(run_ladder.__file__).parent
NUMPY = "stages.references.numpy_cpu:STAGE"
SMALL = """
title = "Small"
question = "Does it work?"
epochs = 2
metrics_every = 1
batch_size = 20
max_steps = 8
rounds = 1
repeats = 3
budget = 1.0
remeasure = 0
profile = "none"
"""
TWO = f"{SMALL}\n[vary]\nhidden = [3, 5]\n"
# The second stage sleeps for a second or more at every point, which leaves time to send a signal.
PROGRAM = """
import sys
import run_ladder
from ladder.run import entries
from stages.registry import load_all

entries.load_all = lambda: load_all(["stages.references.numpy_cpu:STAGE", "tests.planted:SLOW"])
if __name__ == "__main__":
    sys.exit(run_ladder.main(sys.argv[1:]))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: None) -> Path:
    """The current folder, with data found by default, and NumPy as the only stage."""
    data = write_files(tmp_path / "digits", quartet_arrays(400, 50, (6, 6), 4))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("LADDER_DATA_DIR", str(data))
    with_stages(monkeypatch, NUMPY)
    return folder


def with_stages(monkeypatch: pytest.MonkeyPatch, *sources: str) -> None:
    entries = load_all(sources)
    monkeypatch.setattr("ladder.run.entries.load_all", lambda: entries)


def write(folder: Path, text: str, name: str = "small.toml") -> str:
    (folder / name).write_text(text)
    return name


def statuses(folder: Path) -> list[tuple[str, str]]:
    return [(point.name, point.status) for point in load_study(folder).points]


def test_a_study_leaves_an_index_runs_and_a_report_which_resuming_does_not_change(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", write(here, TWO), "--out", "out"]) == 0
    assert statuses(here / "out") == [("hidden-3", "measured"), ("hidden-5", "measured")]
    for width in (3, 5):
        results = load(here / "out" / f"hidden-{width}")
        assert (results.problem.network, results.problem.max_steps) == (f"36-{width}-4", 8)
        assert (results.problem.train_images, results.problem.test_images) == (160, 50)
        assert results.stages[0].status == "passed"
        assert results.stages[0].timing is not None
        assert results.stages[0].timing.steps_per_epoch == 8
    report = (here / "out" / "report.md").read_text()
    assert "# Small" in report
    assert "| hidden 3 | hidden 5 |" in report
    assert "of at most 8 steps" in report
    assert {file.name for file in (here / "out" / "figures").iterdir()} == {"step_time.svg"}
    told = capsys.readouterr().out
    assert "hidden-3\n" in told
    assert "hidden-5: about " in told
    assert "left of the study" in told
    before = {path: path.read_bytes() for path in (here / "out").rglob("*") if path.is_file()}
    assert main(["study", "--resume", "out"]) == 0
    (here / "out" / "report.md").unlink()
    assert main(["report", "out/study.json"]) == 0
    assert {path: path.read_bytes() for path in (here / "out").rglob("*") if path.is_file()} == before


def test_the_command_line_varies_settings_without_a_file(here: Path) -> None:
    settings = [
        "--epochs=1", "--metrics-every=1", "--max-steps=4", "--rounds=1", "--repeats=1", "--budget=1", "--remeasure=0",
    ]  # fmt: skip
    crossed = ["--vary", "hidden=none,5,4-3", "--vary", "batch-size=10,20"]
    assert main(["study", *crossed, *settings, "--stages", "numpy", "--out", "out"]) == 0
    shapes = {"none": [], "5": [5], "4-3": [4, 3]}
    names = [f"hidden-{hidden}.batch-size-{size}" for hidden in shapes for size in (10, 20)]
    assert statuses(here / "out") == [(name, "measured") for name in names]
    assert load_study(here / "out").name == "hidden-batch-size"
    for hidden, layers in shapes.items():
        problem = load(here / "out" / f"hidden-{hidden}.batch-size-20").problem
        assert (problem.hidden, problem.batch_size, problem.max_steps) == (layers, 20, 4)


def test_all_points_compile_before_the_first_is_measured(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_in_processes(monkeypatch)
    with_stages(monkeypatch, NUMPY, "tests.planted:COMPILES", "tests.planted:COMPILES_TOO")
    monkeypatch.setattr(worker_pool, "cores_usable", lambda: 8)
    monkeypatch.setenv("COMPILED", str(here))
    monkeypatch.setenv("LADDER_CACHE_DIR", str(here / "cache"))  # which says what was compiled before
    some = TWO.replace("[3, 5]", "[3, 7, 5]") + "[[where]]\nhidden = 5\nstages = ['compiles']\n"
    assert main(["study", write(here, f"{some}[[where]]\nhidden = 7\nbatch_size = 4000\n"), "--out", "out"]) == 0
    assert [status for _, status in statuses(here / "out")] == ["measured", "skipped", "measured"]
    logs = {path.name for path in (here / "out").rglob("*.compiling.log")}
    assert logs == {
        "hidden-3.compiles.compiling.log", "hidden-3.compiles-too.compiling.log", "hidden-5.compiles.compiling.log"
    }  # fmt: skip
    for point, names in (("hidden-3", ["numpy", "compiles", "compiles-too"]), ("hidden-5", ["compiles"])):
        stages = load(here / "out" / point).stages
        assert [(stage.name, stage.status) for stage in stages] == [(name, "passed") for name in names]
        assert [bool(stage.compiled_s) for stage in stages] == [name.startswith("compiles") for name in names]
    before = {path: path.stat().st_mtime_ns for path in (here / "out").rglob("*.compiling.log")}
    index = load_study(here / "out")
    points = [*index.points[:2], replace(index.points[2], status="begun")]
    save_study(replace(index, points=points), here / "out")
    assert main(["study", "--resume", "out"]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (here / "out").rglob("*.compiling.log")}


def test_a_study_that_varies_nothing_is_one_run(here: Path) -> None:
    assert main(["study", write(here, SMALL)]) == 0
    (folder,) = (here / "runs").iterdir()
    assert folder.name.startswith("small-")
    assert statuses(folder) == [("run", "measured")]
    assert (folder / "figures" / "ladder.svg").exists()


def test_failed_stages_and_skipped_points_keep_their_reasons(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_stages(monkeypatch, NUMPY, "tests.cheats.defects:GRADIENT", "tests.planted:NEEDY")
    text = f"{SMALL.replace('batch_size = 20', '')}\n[vary]\nbatch_size = [20, 4000]\n"
    assert main(["study", write(here, text), "--out", "out"]) == 1
    first, second = load_study(here / "out").points
    assert (first.status, second.status) == ("measured", "skipped")
    assert second.reason == "batch size 4000: digits has 400 training images; choose 400 or fewer"
    report = (here / "out" / "report.md").read_text()
    assert "**failed**" in report
    assert "- gradient failed: first update" in report
    assert "- needy skipped: " in report
    assert "- batch size 4000 skipped: batch size 4000: digits has 400" in report


def test_a_network_beyond_the_memory_is_skipped_before_it_is_tried(here: Path) -> None:
    text = f"{SMALL}\ndepth = 2\n[vary]\nhidden = [4, 10000000]\n"
    assert main(["study", write(here, text), "--out", "out"]) == 0
    first, second = load_study(here / "out").points
    assert (first.status, second.status) == ("measured", "skipped")
    assert "the float64 oracle of " in str(second.reason)


def test_training_that_diverges_is_a_skipped_point(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge_in_processes(monkeypatch)
    # With eight units, about one run in a hundred loses all of them in the first step, and then nothing diverges.
    text = f"{SMALL}\nhidden = 64\n[vary]\nlearning_rate = [1e30, 0.1]\n"
    assert main(["study", write(here, text), "--out", "out"]) == 0
    first, second = load_study(here / "out").points
    assert (first.status, second.status) == ("skipped", "measured")
    assert "training diverges" in str(first.reason)


def test_a_study_interrupted_while_it_compiles_can_be_resumed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ladder.study.study_session.StudySession._compile", interrupted)
        assert main(["study", write(here, TWO), "--out", "out"]) == 130
    assert statuses(here / "out") == [("hidden-3", "waiting"), ("hidden-5", "waiting")]
    assert main(["study", "--resume", "out"]) == 0
    assert statuses(here / "out") == [("hidden-3", "measured"), ("hidden-5", "measured")]


def test_a_file_that_sets_nothing_and_a_run_s_folder_are_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "bare.toml").write_text('title = "Nothing"\n')
    for name, kept in (("run", "results.json"), ("out", "study.json")):
        (here / name).mkdir()
        (here / name / kept).write_text("{}")
    for argv, said in (
        (["study", "bare.toml"], "bare.toml: sets nothing; name its stages, and what to vary under [vary]"),
        (["study", "--resume", "run"], "run: is a run, no study; leave out the word `study`"),
        (["--resume", "out"], "out is a study: use `study`, or name one of its points"),
    ):
        assert main(argv) == 2
        assert said in capsys.readouterr().err


def test_chosen_points_are_measured_first_and_the_rest_on_resuming(here: Path) -> None:
    shortened = ["--points", "hidden-5", "--repeats", "2", "--rounds", "2", "--remeasure", "1"]
    assert main(["study", write(here, TWO), "--out", "out", *shortened]) == 0
    assert statuses(here / "out") == [("hidden-3", "waiting"), ("hidden-5", "measured")]
    settings = load(here / "out" / "hidden-5").settings
    assert (settings.rounds, settings.repeats, settings.remeasure) == (2, 2, 1)
    assert main(["study", "--resume", "out"]) == 0
    assert statuses(here / "out") == [("hidden-3", "measured"), ("hidden-5", "measured")]


def test_packed_points_are_kept_on_resuming_and_shown_like_plain_ones(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*command: str) -> str:
        assert main([*command]) == 0
        return capsys.readouterr().out

    assert main(["study", write(here, TWO), "--out", "out", "--points", "hidden-5"]) == 0
    point = here / "out" / "hidden-5"
    pages = [here / "out" / "report.md", here / "out" / "report.html", point / "report.md", point / "report.html"]
    texts = []
    for command in (
        ["gzip", "-nf", "results.json"],
        ["gzip", "-df", "results.json.gz"],
        ["gzip", "-nf", "results.json"],
    ):
        subprocess.run(command, cwd=point, check=True)
        capsys.readouterr()
        commands = (["report", "out"], ["report", "out/hidden-5"], ["explain", "numpy", "out/hidden-5"])
        texts.append([*(shown(*words) for words in commands), *(page.read_text() for page in pages)])
    assert texts[0] == texts[1] == texts[2]
    kept = (point / "results.json.gz").read_bytes()
    assert main(["study", "--resume", "out"]) == 0
    assert statuses(here / "out") == [("hidden-3", "measured"), ("hidden-5", "measured")]
    assert (point / "results.json.gz").read_bytes() == kept
    assert [path.parent.name for path in here.glob("out/*/results.json")] == ["hidden-3"]
    assert main(["--out", "out/hidden-5"]) == 2
    assert "out/hidden-5: holds a results.json" in capsys.readouterr().err


def test_a_study_of_another_machine_is_not_resumed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", write(here, TWO), "--out", "out"]) == 0
    for path in (here / "out").glob("*/results.json"):
        path.write_text(path.read_text().replace('"model":"', '"model":"another '))
    assert main(["study", "--resume", "out"]) == 2
    assert "out: was measured with different cpu" in capsys.readouterr().err


def test_a_config_file_gives_the_options_and_the_command_line_wins(here: Path) -> None:
    name = write(here, f"{SMALL[SMALL.index('epochs') :]}\nhidden = 4\n")
    assert main(["--config", name, "--epochs", "1", "--out", "run"]) == 0
    results = load(here / "run")
    assert (results.problem.hidden, results.problem.epochs, results.problem.batch_size) == ([4], 1, 20)
    assert results.settings.rounds == 1


@pytest.fixture
def program(here: Path) -> list[str]:
    """The command of a ladder with a slow stage."""
    (here / "program.py").write_text(PROGRAM)
    return [sys.executable, str(here / "program.py")]


def test_an_interrupted_study_resumes_and_loses_nothing(here: Path, program: list[str]) -> None:
    write(here, TWO)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    begun = subprocess.Popen(
        [*program, "study", "small.toml", "--out", "out"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert begun.stdout is not None
    read_until(begun.stdout, "[2/2] hidden-5, slow")
    os.killpg(begun.pid, signal.SIGINT)
    out, err = begun.communicate(timeout=60)
    assert (begun.returncode, err) == (130, "")
    assert out.splitlines()[-1].endswith("run_ladder.py study --resume out")
    assert statuses(here / "out") == [("hidden-3", "measured"), ("hidden-5", "begun")]
    whole, half = (load(here / "out" / f"hidden-{width}").stages for width in (3, 5))
    assert [stage.status for stage in whole + half] == ["passed", "passed", "passed", "skipped"]

    done = subprocess.run([*program, "study", "--resume", "out"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert statuses(here / "out") == [("hidden-3", "measured"), ("hidden-5", "measured")]
    assert "numpy  passed" not in done.stdout  # measured points are not measured again
    assert load(here / "out" / "hidden-3").stages == whole
    assert load(here / "out" / "hidden-5").stages[0] == half[0]
    assert load(here / "out" / "hidden-5").stages[1].status == "passed"


def test_an_impossible_study_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", write(here, TWO), "--out", "out", "--points", "hidden-5"]) == 0
    index = json.loads((here / "out" / "study.json").read_text())
    first, second = index["points"]
    capsys.readouterr()
    for change, said in (
        ({"varied": []}, "it has several points and varies nothing"),
        ({"varied": ["nope"]}, "point 'hidden-3' has no value of 'nope'"),
        ({"points": []}, "it has no points, or two of the same name"),
        ({"points": [first, first]}, "it has no points, or two of the same name"),
        ({"points": [{**first, "name": "../out"}, second]}, "point '../out' is not a folder's name"),
        ({"points": [{**first, "name": ".."}, second]}, "point '..' is not a folder's name"),
        ({"points": [{**first, "name": "a\0b"}, second]}, "point 'a\\\\x00b' is not a folder's name"),
    ):
        (here / "out" / "study.json").write_text(json.dumps({**index, **change}))
        for command in (["report", "out"], ["study", "--resume", "out"]):
            assert main(command) == 2
            assert capsys.readouterr().err == f"run_ladder.py: out/study.json: not a study of this program ({said})\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("remeasure = -1", "remeasure = -1: must be a whole number from 0 to 450"),
        (
            "curve_steps = 5000000000\ntime_cap = 5.0",
            "--time-cap 5: limits the rounds that --precision adds; add --precision",
        ),
        ('data_dir = "gone"', "gone: "),
    ],
)
def test_impossible_settings_are_refused_before_there_is_a_folder(
    more: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", write(here, f"{more}\n{TWO.replace('remeasure = 0', '')}"), "--out", "out"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (here / "out").exists()


def test_a_study_without_a_measured_point_exits_with_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", write(here, TWO.replace("batch_size = ", "batch_size = 9")), "--out", "out"]) == 2
    said = "no point could be measured; study.json has the reasons\n"
    assert capsys.readouterr().err == f"run_ladder.py: out: {said}"
    one_too_many = TWO.replace("batch_size = ", "batch_size = 9")
    assert main(["study", write(here, one_too_many), "--out", "one", "--points", "hidden-5"]) == 2
    assert capsys.readouterr().err == f"run_ladder.py: one: {said}"


def test_a_study_is_not_continued_on_other_data(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_files(tmp_path / "other", quartet_arrays(401, 50, (6, 6), 4))
    given = ["study", write(here, TWO), "--out", "out", "--points", "hidden-5", "--data-dir", str(other)]
    assert main(given) == 0
    capsys.readouterr()
    assert main(["study", "--resume", "out"]) == 2
    said = "out: was measured on other, found here is digits; give its --data-dir"
    assert capsys.readouterr().err == f"run_ladder.py: {said}\n"
    assert statuses(here / "out") == [("hidden-3", "waiting"), ("hidden-5", "measured")]
    assert main(["study", "--resume", "out", "--data-dir", str(other)]) == 0
    assert statuses(here / "out") == [("hidden-3", "measured"), ("hidden-5", "measured")]


def test_synthetic_digits_of_another_seed_are_the_same_data(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LADDER_DATA_DIR")
    monkeypatch.setattr("common.data.dataset._mnist", no_mnist)
    monkeypatch.setattr(
        "common.data.dataset.synthetic_digits", partial(synthetic_digits, train_images=400, test_images=50)
    )
    seeds = TWO.replace("hidden = [3, 5]", "seed = [3, 5]")
    assert main(["study", write(here, seeds), "--out", "out", "--points", "seed-5"]) == 0
    assert main(["study", "--resume", "out"]) == 0
    assert statuses(here / "out") == [("seed-3", "measured"), ("seed-5", "measured")]


def no_mnist(*_: object) -> None:
    raise DownloadError("no network")
