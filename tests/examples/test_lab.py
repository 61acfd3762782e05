"""The lab's grader: each solution has all points, each starter none and the message meant, and the page says so."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from common.cuda.clock import fence
from common.problem import Problem
from ladder.measure.profiled import counted
from ladder.processes import worker_pool
from ladder.records.checked import Award, Checked, Counts, Graded, GradedClass
from run_ladder import main
from stages.registry import load_entry, rung
from tests.common.data.idx_writer import quartet_arrays, write_files
from tests.ladder.in_process import worked_here
from tests.stages.engine.test_step import random_split

LAB = Path(__file__).parents[2] / "examples" / "lab"
SMALL = ["--batch-size=16", "--json"]
EXERCISES = [
    "1_find_the_mistake", "2_remove_the_wait", "3_fuse_the_head", "4_spare_the_gradient", "5_find_the_lost_bits",
    "6_write_the_product",
]  # fmt: skip


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the lab, in which one works, its solutions, and small data that is found without asking."""
    shutil.copytree(LAB, tmp_path / "lab")
    shutil.copytree(LAB, tmp_path / "lab" / "solved", ignore=shutil.ignore_patterns("solutions", "*.toml", "*.md"))
    diffs = sorted((LAB / "solutions").glob("*.diff"))
    subprocess.run(["git", "apply", "--directory=solved", *diffs], cwd=tmp_path / "lab", check=True)
    monkeypatch.chdir(tmp_path / "lab")
    monkeypatch.setattr(worker_pool, "launch", worked_here)
    monkeypatch.setenv("LADDER_DATA_DIR", str(write_files(tmp_path / "data", quartet_arrays(400, 50, (6, 6), 4))))
    return tmp_path / "lab"


def graded(file: str, rubric: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Checked]:
    code = main(["check", file, "--rubric", rubric, *SMALL])
    return code, msgspec.json.decode(capsys.readouterr().out, type=Checked)


@pytest.mark.parametrize("exercise", [name for name in EXERCISES if name[0] != "2"])  # `grade` grades 2
def test_a_solution_has_all_points(exercise: str, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = graded(f"solved/{exercise}.py", f"{exercise}.toml", capsys)
    assert (code, found.status, found.advice) == (0, "passed", {})
    assert found.graded is not None
    assert (found.graded.points, found.graded.most) == (10, 10)
    assert not any(one.failed for one in found.graded.awards)


@pytest.mark.parametrize(
    ("exercise", "said"),
    [
        ("1_find_the_mistake", r"first update, bias\[0\]: error \S+, limit \S+( [(]and \d+ more[)])?$"),
        ("2_remove_the_wait", "host reads an epoch: error 2.5e[+]01, limit 1.0e[+]00; the host waits whenever it"),
        ("3_fuse_the_head", "kernels a step: error 8.0e[+]00, limit 6.0e[+]00; let one kernel do the work of"),
        ("4_spare_the_gradient", r"first update, weight\[0\]: .* is not updated"),
        ("5_find_the_lost_bits", r"first update, \S+: error \S+, limit \S+( [(]and \d+ more[)])?$"),
        ("6_write_the_product", "first update, "),
    ],
)
def test_a_starter_has_no_points_and_is_told_no_more_than_meant(
    exercise: str, said: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = graded(f"{exercise}.py", f"{exercise}.toml", capsys)
    assert (code, found.status) == (1, "failed")
    assert re.match(said, found.reason)
    assert bool(found.advice or found.lead) == (exercise[0] not in "15")
    assert found.graded is not None
    assert (found.graded.points, found.graded.most) == (0, 10)
    assert not any(one.points for one in found.graded.awards)


NUMPY_HEAD = """
import numpy as np

class MyHead(Head):
    def __init__(self, setup):
        self.tensors = setup.tensors

    def __call__(self, labels, with_totals):
        logits, dlogits, totals = self.tensors.logits, self.tensors.dlogits, self.tensors.totals
        rows = np.arange(len(labels))
        shifted = logits - logits.max(1, keepdims=True)
        sums = np.exp(shifted.astype("f8")).sum(1)
        dlogits[...] = np.exp(shifted.astype("f8")) / sums[:, None] / len(rows)
        dlogits[rows, labels] -= 1 / len(rows)
        if with_totals:
            totals[0] += (np.log(sums) - shifted[rows, labels]).sum()
            totals[1] += (logits.argmax(1) == labels).sum()

STAGE = rung(BASE).climb("fuse-the-head", "Fuse the head", head=MyHead)
"""
DOWNLOAD = "self.device.download(self.totals)"
END_STEP = f"    def end_step(self) -> None:\n        self.epoch += {DOWNLOAD}\n        self.device.zero(self.totals)\n"
EVERY_18TH = f"""    def end_step(self) -> None:
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps % 18 == 0:
            self.read()

    def read(self) -> None:
        self.epoch += {DOWNLOAD}
        self.device.zero(self.totals)

    def __getattribute__(self, name):
        if name == "end_epoch":
            self.steps = 0
            self.read()
        return super().__getattribute__(name)
"""


@pytest.mark.parametrize(
    ("exercise", "change", "to", "said"),
    [
        ("3_fuse_the_head", 'STAGE = rung(BASE).climb("fuse-the-head", "Fuse the head", head=MyHead)', NUMPY_HEAD,
         "kernels a step, missing: error 1.0e+00, limit 0.0e+00; fewer than the work takes"),
        ("2_remove_the_wait", DOWNLOAD, "self.totals",
         "host reads an epoch, missing: error 1.0e+00, limit 0.0e+00; a loss is reported, so a part reads the device"),
        ("2_remove_the_wait", DOWNLOAD, "type(self.device).download(self.device, self.totals)",
         "host reads an epoch: error 2.5e+01"),
        ("2_remove_the_wait", END_STEP, EVERY_18TH, "host reads an epoch: error 2.0e+00"),
    ],
)  # fmt: skip
def test_work_behind_the_counters_back_earns_no_points_for_counts(
    exercise: str, change: str, to: str, said: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (lab / f"{exercise}.py").read_text()
    assert change in text
    (lab / "mine.py").write_text(text.replace(change, to))
    code, found = graded("mine.py", f"{exercise}.toml", capsys)
    assert (code, found.status) == (1, "failed")
    assert found.reason.startswith(said)
    assert found.graded is not None
    assert (found.graded.points, found.graded.awards[-1].points) == (0, 0)


@pytest.mark.parametrize(("line", "points"), [("", (2, 3)), ('"every other check" = 4', (2, 6))])
def test_a_wrong_stage_never_has_all_points(
    line: str, points: tuple[int, int], lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "lax.toml").write_text(f'[points]\n"first update, weight" = 2\n{line}')
    code, found = graded("1_find_the_mistake.py", "lax.toml", capsys)
    assert (code, found.status) == (1, "failed")
    assert found.graded is not None
    assert (found.graded.points, found.graded.most) == points
    assert found.graded.awards[-1].checks == "every other check"
    assert "first update, bias[0]" in found.graded.awards[-1].failed


BORROWED = """from stages import Head, rung
from stages.fusion.fused_head import FusedHead as Theirs
class Mine(Theirs): ...
STAGE = rung("cpu-blas").climb("mine", "Mine", head={})
"""
HIGHER = """from stages import rung
STAGE = rung("cpu-fused-head").climb("mine", "Mine", head=type("H", (rung("cpu-blas").recipe.head,), {}))
"""


@pytest.mark.parametrize(
    ("exercise", "text", "said"),
    [
        ("1_find_the_mistake", "x = 1", "check mine.py: has no STAGE; end it in"),
        ("1_find_the_mistake", "3_fuse_the_head", "fuse-the-head: its file does not write build itself, from "),
        ("3_fuse_the_head", "2_remove_the_wait", "remove-the-wait: its file does not write head itself, "),
        ("3_fuse_the_head", "1_find_the_mistake", "find-the-mistake: climbs from no rung; the exercise climbs from "),
        ("3_fuse_the_head", BORROWED.format("Theirs"), "mine: its file does not write head itself, "),
        ("3_fuse_the_head", BORROWED.format("Mine"), "mine: its file does not write head itself, "),
        ("3_fuse_the_head", HIGHER, "mine: climbs from cpu-fused-head; the exercise climbs from cpu-blas or naive"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_answer_the_exercise_has_no_points(
    exercise: str, text: str, said: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    solution = lab / "solved" / f"{text[:20]}.py"
    (lab / "mine.py").write_text(solution.read_text() if solution.exists() else text)
    code, found = graded("mine.py", f"{exercise}.toml", capsys)
    assert (code, found.status, found.checks, found.file) == (1, "failed", [], "mine.py")
    assert found.reason.replace(f"{lab}/", "").startswith(said)
    assert found.graded is not None
    assert (found.graded.points, found.graded.most) == (0, 10)


@pytest.mark.parametrize(
    ("stage", "exercise"), [("numpy", "1_find_the_mistake"), ("cpu-sparse-metrics", "2_remove_the_wait")]
)
def test_our_stages_have_no_points(stage: str, exercise: str, lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = graded(stage, f"{exercise}.toml", capsys)
    assert (code, found.status, found.file) == (1, "failed", "")
    assert found.graded is not None
    assert found.graded.points == 0


def test_a_stage_that_cannot_be_counted_has_crashed(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (lab / "solved" / "2_remove_the_wait.py").read_text()
    read = "        loss, correct = "
    assert read in text
    (lab / "mine.py").write_text(
        text.replace(read, f'        assert type(self.device).download.__name__ != "counting"\n{read}')
    )
    code, found = graded("mine.py", "2_remove_the_wait.toml", capsys)
    assert (code, found.status, found.reason) == (1, "crashed", "cannot be counted: AssertionError")
    assert found.graded is not None
    assert found.graded.points == 0


def test_the_screen_names_the_rung_to_time_beside(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "solved/2_remove_the_wait.py", *SMALL[:-1]]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert (
        "run --stages cpu-blas --stage-file solved/2_remove_the_wait.py` does both, beside cpu-blas; it checks" in told
    )


def test_a_wrong_stage_earns_nothing_for_its_counts(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    solution = lab / "solved" / "3_fuse_the_head.py"
    solution.write_text(solution.read_text().replace(" / rows\n", " / (rows + 1)\n"))
    code, found = graded(str(solution), "3_fuse_the_head.toml", capsys)
    assert (code, found.counts) == (1, Counts(25, 6.0, 26))
    assert found.graded is not None
    assert found.graded.awards[-1] == Award("kernels a step", 0, 7, [])
    assert not [one for one in found.checks if one.what == "kernels a step"]


@pytest.mark.parametrize(
    ("stage", "kernels", "reads"),
    [
        ("cpu-blas", 8.0, 18),  # a read a step, and one at the end
        ("cpu-sparse-metrics", 8.0, 1),
        ("cpu-fused-head", 6.0, 1),
        ("cpu-one-call", 5.0, 1),  # the update is fused, too, and one call replays all steps
    ],
)
def test_counts_follow_the_rung(stage: str, kernels: float, reads: int) -> None:
    problem = Problem(36, 4, (), 16)
    assert counted(rung(stage), problem, random_split(17 * 16, 36, 4), fence) == Counts(17, kernels, reads)


@pytest.mark.parametrize(
    ("stage", "text", "said"),
    [
        ("numpy", '[points]\n"kernels a step" = 1', "'kernels a step': numpy has no such check"),
        ("cpu-blas", '[points]\n"first" = 0', "first = 0: must be a whole number from 1 to "),
        ("cpu-blas", "points = 3", "points = 3: must be a table, such as [points]"),
        ("cpu-blas", 'changes = "heads"', 'changes = "heads": must be one of build, memory, '),
        ("cpu-blas", 'from = ["cpu-blass"]\n[points]\n"first" = 1', "from: stage 'cpu-blass': unknown; did you mean"),
        ("cpu-blas", 'from = "cpu-blas"', 'must be a list of rungs, such as ["cpu-blas"]'),
        ("cpu-blas", "", 'points: has none; give some, such as "first update" = 4'),
        ("cpu-blas", '[at-most]\n"kernels" = 3', "kernels: there is no such key in [at-most]; did you mean "),
    ],
)
def test_a_rubric_that_cannot_be_used_is_refused_in_a_line(
    stage: str, text: str, said: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (lab / "mine.toml").write_text(text)
    assert main(["check", stage, "--rubric", "mine.toml", *SMALL]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("run_ladder.py: mine.toml")
    assert said in err


def test_the_screen_tells_points_and_counts(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "2_remove_the_wait.py", "--rubric", "2_remove_the_wait.toml", *SMALL[:-1]]) == 1
    told = capsys.readouterr().out
    assert "\nCounted in an epoch of 25 steps: 8 kernels per step, 25 reads by the host.\n" in told
    assert "\n0 of 7: host reads an epoch\n2. Remove the host's wait: 0 of 10 points.\n" in told


def test_a_starter_runs_on_a_gpu_by_the_line_that_says_so(lab: Path) -> None:
    for file in ("2_remove_the_wait.py", "solved/2_remove_the_wait.py", "3_fuse_the_head.py"):
        text = (lab / file).read_text()
        (lab / "on_gpu.py").write_text(re.sub(r'BASE = "cpu-blas"  # with a GPU: ("\S+")', r"BASE = \1", text))
        stage = load_entry(f"{lab / 'on_gpu.py'}:STAGE").stage
        assert (stage.below, stage.needs) == ("naive", ("cuda",))


@pytest.mark.parametrize("exercise", EXERCISES)
def test_a_starter_has_a_place_for_each_word(exercise: str, lab: Path) -> None:
    for file in (f"{exercise}.py", f"solved/{exercise}.py"):
        text = (lab / file).read_text()
        assert re.findall(r"^(Why|Change|Expect|Found): ", text, re.MULTILINE) == ["Why", "Change", "Expect", "Found"]


@pytest.mark.parametrize(("rows", "classes"), [(16, 4), (1000, 10)])
def test_starter_3_launches_a_thread_a_row_and_a_logit(rows: int, classes: int) -> None:
    launched: dict[str, int] = {}

    def kernel(_: str, name: str) -> Any:
        return lambda grid, block, *args: launched.__setitem__(name, grid * block)

    memory = SimpleNamespace(empty=lambda *_: None)
    logits = SimpleNamespace(shape=(rows, classes))
    tensors = SimpleNamespace(logits=logits, dlogits=None, totals=None, memory=memory)
    recipe = load_entry(f"{LAB / '3_fuse_the_head.py'}:STAGE").stage.recipe
    assert recipe is not None
    recipe.head(SimpleNamespace(tensors=tensors, kernel=kernel))(None, True)  # type: ignore[arg-type]
    assert rows <= launched["softmax"] < rows + 256
    assert rows * classes <= launched["softmax_xent_backward"] < rows * classes + 256
    assert launched["softmax_xent_totals"] == 256  # its one block


@pytest.fixture
def submissions(lab: Path) -> Path:
    folder = lab.parent / "submissions"
    folder.mkdir()
    shutil.copy(lab / "2_remove_the_wait.py", folder / "ada.py")
    shutil.copy(lab / "solved" / "2_remove_the_wait.py", folder / "bob.py")
    (folder / "cyd").mkdir()
    (folder / "cyd" / "mine.py").write_text("x = (")
    return folder


def printed(words: list[str], status: int = 0) -> str:
    """What the command prints in a process of its own: it ends all that its process has started."""
    program = [sys.executable, str(LAB.parents[1] / "run_ladder.py")]
    run = subprocess.run([*program, *words], capture_output=True, text=True, check=False)
    assert run.returncode == status, run.stderr
    return run.stderr if status else run.stdout


def test_a_folder_is_graded_by_the_page_s_command(submissions: Path, lab: Path) -> None:
    (line,) = re.findall(
        r"^python run_ladder.py (grade .*) > points.csv$", (LAB / "README.md").read_text(), re.MULTILINE
    )
    words = line.replace("submissions", str(submissions)).replace("examples/lab", str(lab)).split()
    rows = [row.split(",") for row in printed([*words, "--batch-size=16"]).splitlines()]
    assert rows[0] == ["file", "points", "most", "status", "reason", "seconds"]
    assert [row[:4] for row in rows[1:]] == [
        ["ada.py", "0", "10", "failed"], ["bob.py", "10", "10", "passed"], ["cyd/mine.py", "0", "10", "failed"],
    ]  # fmt: skip


def test_a_submission_that_hangs_ends_in_time_with_all_that_it_started(submissions: Path, lab: Path) -> None:
    shutil.rmtree(submissions)
    submissions.mkdir()
    asleep = f"sleep {3600 + os.getpid() % 1000}"
    (submissions / "dan.py").write_text(f"""import subprocess
subprocess.Popen({asleep.split()}, start_new_session=True)
while True: ...
""")
    check = "next(one for one in psutil.Process().parents() if 'run_ladder.py' in str(one.cmdline()))"
    (submissions / "eve.py").write_text(f"import psutil\n{check}.kill()\n")
    asked = ["grade", str(submissions), f"--rubric={lab / '2_remove_the_wait.toml'}", "--timeout=6"]
    row, killed = msgspec.json.decode(printed([*asked, "--json"]), type=GradedClass).files
    assert (row.points, row.status, row.reason) == (0, "crashed", "took longer than 6 s")
    assert (killed.points, killed.status, killed.reason) == (0, "crashed", "ended check with -9")
    assert row.seconds < 20
    assert asleep not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_a_submission_reaches_no_network(submissions: Path, lab: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        (submissions / "ada.py").write_text(f"import socket\nsocket.create_connection(({host!r}, {port}), 2)\n")
        for name in ("bob.py", "cyd/mine.py"):
            (submissions / name).unlink()
        asked = ["grade", str(submissions), f"--rubric={lab / '2_remove_the_wait.toml'}", "--json"]
        found = msgspec.json.decode(printed(asked), type=GradedClass)
        if not found.without_network:
            pytest.skip("Linux allows no one to leave the network here")
        assert "unreachable" in found.files[0].reason
        server.settimeout(0.01)
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("grade nowhere --rubric 2_remove_the_wait.toml", "nowhere: No such file or directory; name a folder"),
        ("grade solutions --rubric 2_remove_the_wait.toml", "solutions: holds no Python file"),
        ("grade solved --rubric nowhere.toml", "nowhere.toml: cannot be read"),
        ("grade solved", "grade: needs points to give; add --rubric FILE"),
    ],
)
def test_a_class_that_cannot_be_graded_is_refused_in_a_line(
    words: str, said: str, lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_a_fault_of_the_teacher_s_ends_grading_with_its_reason(submissions: Path, lab: Path) -> None:
    (lab / "odd.toml").write_text('from = ["cpu-bla"]\n[points]\n"first" = 1')
    assert "odd.toml: from: stage 'cpu-bla': unknown" in printed(["grade", str(submissions), "--rubric=odd.toml"], 2)


def test_the_page_tells_the_whole_schema() -> None:
    page = (LAB / "README.md").read_text()
    rows: dict[str, Any] = {key: row for row in page.splitlines() for key in re.findall(r"`(\w+)`", row[:30])}
    for name in Checked.__struct_fields__:
        assert name in rows or name in ("name", "title", "precision", "file", "problem", "output", "seconds")
    for key, kind in {"counts": (Counts,), "graded": (Graded, Award)}.items():
        assert all(f"`{field}`" in rows[key] for struct in kind for field in struct.__struct_fields__)
    for files in ("*.py", "*.toml", "solutions/*.diff"):
        assert sorted(path.stem for path in LAB.glob(files)) == EXERCISES
