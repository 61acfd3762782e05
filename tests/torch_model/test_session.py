"""A short session on the CPU: its record, what a resumed one times, and rows of rungs that fail."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Listener
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from common.errors import UsageError  # noqa: E402
from ladder.machine.gpu_monitor import NO_ENERGY  # noqa: E402
from ladder.options.commands import Torch  # noqa: E402
from ladder.processes import worker_process  # noqa: E402
from ladder.processes.paused import paused  # noqa: E402
from ladder.records import torch_run  # noqa: E402
from ladder.records.torch_run import TorchResults, TorchRung  # noqa: E402
from ladder.torch_model import climb, messages, plan, session  # noqa: E402
from ladder.torch_model.judge import Judge, Reference  # noqa: E402
from ladder.torch_model.worker import REFERENCE, Worker, beside  # noqa: E402
from run_ladder import main  # noqa: E402
from stages.torch.registry import RUNGS, left_out  # noqa: E402
from tests.torch_model import models, traps  # noqa: E402
from tests.torch_model.forked import ForkedWorker  # noqa: E402
from tests.torch_model.test_contract import COUNTS  # noqa: E402

CALM = ("eager", "no-item", "resident")
IN_BFLOAT16 = """
class Net(nn.Sequential):
    def forward(self, inputs):
        if torch.is_autocast_enabled("cpu"):
            {act}
        return super().forward(inputs)

def model():
    return Net(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
"""
RAISES = models.source(model=IN_BFLOAT16.format(act='raise ValueError("no bfloat16 here")'))
DIES = models.source(model=IN_BFLOAT16.format(act="import os; os.kill(os.getpid(), 9)"))


@pytest.fixture(autouse=True)
def forks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are forked, but for a test that uses `started`."""
    if "started" not in request.fixturenames:
        for module in (session, worker_process):
            monkeypatch.setattr(module, "StartedWorker", ForkedWorker)


@pytest.fixture
def started() -> None:
    """Processes are started, as users' are."""


class Watcher:
    """Keeps the rows, notes and phases that a session shows."""

    def __init__(self) -> None:
        self.rows: list[TorchRung] = []
        self.notes: list[str] = []
        self.phases: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def doing(self, phase: str, part: str = "", left_s: Sequence[float] = (), until: str = "") -> None:
        self.phases.append(f"{phase}: {part}" if part else phase)

    def row(self, rung: TorchRung, eager: TorchRung | None, processes: int) -> None:
        self.rows.append(rung)


def opened(
    folder: Path, text: str, stages: tuple[str, ...] = CALM, view: Watcher | None = None, **options: Any
) -> AbstractContextManager[session.Session]:
    file = folder / "my_model.py"
    file.write_text(text)
    options = {"rounds": 1, "repeats": 1, "out": None if "resume" in options else folder / "run", **options}
    return session.opened(Torch(model=file, stages=stages, **options), view or Watcher(), "torch my_model.py")


def run(folder: Path, text: str, stages: tuple[str, ...] = CALM, **options: Any) -> tuple[TorchResults, Watcher]:
    view = options.setdefault("view", Watcher())
    with opened(folder, text, stages, **options) as session_:
        return session_.run(), view


@pytest.mark.usefixtures("started")
def test_a_session_records_all_rungs_and_resumes_the_missing_one(tmp_path: Path) -> None:
    results, view = run(tmp_path, RAISES, (*CALM, "amp-bf16"))
    whole = torch_run.load(tmp_path / "run")
    assert [rung.name for rung in whole.rungs] == [*CALM, "amp-bf16"]
    assert msgspec.structs.replace(whole, seconds=0.0, took_s={}) == msgspec.structs.replace(
        results, seconds=0.0, took_s={}
    )
    for name in CALM:
        rung = whole.rung(name)
        assert rung is not None
        assert (rung.status, rung.reason) == ("passed", "")
        assert [len(process.measured.runs_s) for process in rung.processes] == [1]
        assert 0 < (rung.step_us or 0) < 1e6
        assert len(rung.checks) > 10
    assert whole.model.reference == "float64"
    assert whole.model.steps_per_epoch == 13
    failed = whole.rung("amp-bf16")
    assert failed is not None
    assert failed.status == "crashed"
    assert "ValueError: no bfloat16 here" in failed.reason
    assert 'raise ValueError("no bfloat16 here")' in failed.reason
    assert {rung.name for rung in view.rows} == {*CALM, "amp-bf16"}

    kept = [rung for rung in whole.rungs if rung.name != "resident"]
    torch_run.save(msgspec.structs.replace(whole, rungs=kept), tmp_path / "run")
    again, view = run(tmp_path, RAISES, resume=tmp_path / "run", rounds=3)  # it goes on as it began, with one
    assert [rung.name for rung in again.rungs] == [*CALM, "amp-bf16"]
    assert [rung.name for rung in view.rows] == [*(rung.name for rung in kept), "resident"]
    assert [rung for rung in again.rungs if rung.name != "resident"] == kept
    assert len(again.rungs[2].processes) == 1
    assert again.seconds > whole.seconds
    with pytest.raises(UsageError, match=r"is not the file that .* measured; start anew"):
        run(tmp_path, RAISES + "# changed\n", resume=tmp_path / "run")


def test_a_module_whose_file_is_nowhere_is_not_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.ops` says `_ops.py`, which is then sought in the folder where the program was started."""
    (tmp_path / "my_model.py").write_text("")
    (tmp_path / "my_layers.py").write_text("")
    monkeypatch.chdir(tmp_path)
    for name in ("my_layers", "my_ops"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__file__=f"{name}.py"))
    assert list(beside(tmp_path / "my_model.py")) == ["my_layers.py"]


def test_a_run_is_not_continued_with_another_module_beside_the_file(tmp_path: Path) -> None:
    layers = tmp_path / "my_layers.py"
    layers.write_text("WIDTH = 12\n")
    text = models.source("from my_layers import WIDTH")
    results, _ = run(tmp_path, text, ("eager",))
    assert list(results.model.beside) == ["my_layers.py"]
    layers.write_text("WIDTH = 16\n")
    with pytest.raises(UsageError, match=r"my_layers.py: is not the file that .* measured; start anew"):
        run(tmp_path, text, resume=tmp_path / "run")
    layers.unlink()
    with pytest.raises(UsageError, match=r"my_layers.py: is not the file that .* measured; start anew"):
        run(tmp_path, text, resume=tmp_path / "run")


def test_a_module_that_changes_during_a_run_ends_it(tmp_path: Path) -> None:
    (tmp_path / "my_layers.py").write_text("WIDTH = 12\n")
    changes = """
import pathlib
layers = pathlib.Path(__file__).with_name("my_layers.py")
layers.write_text(layers.read_text() + "# read once more\\n")
import my_layers
"""
    with pytest.raises(UsageError, match=r"my_model.py: it or a module beside it changed during the run; start anew"):
        run(tmp_path, models.source(changes), ("eager",), rounds=2)


def test_a_check_takes_no_times_and_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    results, _ = run(tmp_path, DIES, (*CALM, "amp-bf16"), check=True)
    assert torch_run.load(tmp_path / "run").settings.is_check
    assert [(rung.name, rung.status) for rung in results.rungs] == [
        *((name, "passed") for name in CALM), ("amp-bf16", "crashed"),
    ]  # fmt: skip
    assert results.rungs[3].reason.startswith("its process ended")
    assert not any(rung.processes for rung in results.rungs)
    assert results.recipe() is None


DATASET = """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 104

    def __getitem__(self, row):
        return {"x": torch.full((6,), float(row % 5))}, row % 3

def data():
    return Rows()
"""
OF_DICTS = """
class Net(nn.Linear):
    def forward(self, inputs):
        return super().forward(inputs["x"])

def model():
    return Net(6, 3)

def metrics(output, target):
    return {"accuracy": (output.argmax(1) == target).float().mean()}
"""


BYTES = "def data():\n    return torch.randint(255, (104, 6), dtype=torch.uint8), torch.zeros(104).long()\n"
OF_BYTES = """
def augment(batch):
    return batch[0] / 255, batch[1]

def metrics(output, target):
    return {"first": output.view(BATCH_SIZE, 3)[0, 0]}
"""


@pytest.mark.parametrize(
    "text",
    [models.source(), models.source(data=DATASET, model=OF_DICTS), models.source(OF_BYTES, data=BYTES)],
    ids=["tensors", "dicts", "bytes"],
)
def test_the_first_process_finds_what_the_exporter_has_to_know(tmp_path: Path, text: str) -> None:
    file = tmp_path / "my_model.py"
    file.write_text(text)
    asked = Torch(model=file, stages=("eager",), check=True, out=tmp_path / "run")
    found = plan.tried(file, [], None)  # as the exporter's process does
    assert not isinstance(found, str)
    with session.opened(asked, Watcher(), "torch my_model.py") as opened:
        opened.run()
        assert opened.facts
        assert opened.facts == found.facts


@pytest.mark.parametrize(("cores", "processes"), [(1, 1), (2, 1), (8, 6), (16, 12)])
def test_a_quarter_of_the_cores_is_left_to_threads(monkeypatch: pytest.MonkeyPatch, cores: int, processes: int) -> None:
    monkeypatch.setattr(session, "usable_cores", lambda: cores)
    assert session.places() == processes


@pytest.mark.usefixtures("started")
def test_others_begin_after_the_first_row_and_stand_still_while_a_rung_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, ...]] = []

    class Ordered(Watcher):
        def row(self, rung: TorchRung, eager: TorchRung | None, processes: int) -> None:
            told.append(("row", rung.name))

    def order(self: session.Session, family: session.Family, what: messages.Time) -> None:
        told.append(("order", family.rungs[0].name, what.rung, str(what.waiting)))
        ordered(self, family, what)

    def stopped(leaders: list[int]) -> Any:
        told.append(("still", str(len(leaders))))
        return paused(leaders)

    def judge(self: session.Session, message: messages.Judged) -> None:
        judged(self, message)
        if message.rung == "one-thread":
            is_judged.set()

    def end(self: session.Session, family: session.Family) -> None:
        if family.rungs[0].name == "eager":
            assert is_judged.wait(60)
            time.sleep(0.5)
            told.append(("gone", "eager"))
        ended(self, family)

    is_judged = threading.Event()
    ordered, judged, ended = session.Session._order, session.Session._judge, session.Session._end
    monkeypatch.setattr(session.Session, "_judge", judge)
    monkeypatch.setattr(session.Session, "_end", end)
    monkeypatch.setattr(session.Session, "_order", order)
    monkeypatch.setattr(session, "paused", stopped)
    monkeypatch.setattr(session, "places", lambda: 2)
    run(tmp_path, models.source(), ("eager", "one-thread"), view=Ordered())
    assert told[:5] == [
        ("order", "eager", "", "0"), ("still", "1"), ("order", "eager", "eager", "1"), ("row", "eager"),
        ("order", "one-thread", "", "0"),
    ]  # fmt: skip
    assert told[5:] == [
        ("gone", "eager"), ("still", "0"), ("order", "one-thread", "one-thread", "0"), ("row", "one-thread"),
    ]  # fmt: skip


def test_a_first_step_does_not_count_the_time_in_which_its_process_stood_still(tmp_path: Path) -> None:
    with opened(tmp_path, models.source()) as session_:
        session_._pauses = [(0.0, 1.5), (1.8, 3.0), (10.0, 11.0), (12.0, 19.0)]
        session_._judge(messages.Judged("resident", began=2.0, first_step_s=9.0))
        assert session_._judgements["resident"].first_step_s == 9.0 - 1.0 - 1.0


def test_a_rung_is_judged_once_and_in_each_process_that_captures_or_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "StartedWorker", lambda *_: None)
    graph = RUNGS["step-graph"]
    without = left_out(RUNGS["fused-optimizer"], RUNGS["resident"])
    with opened(tmp_path, models.source()) as session_, Listener(family="AF_UNIX") as session_._listener:
        for name in ("resident", "step-graph"):
            session_._judge(messages.Judged(name))
        family = session.Family([], [RUNGS["resident"], without, graph], 2, tmp_path / "2-0")
        session_._start(family)
    job = msgspec.json.decode((tmp_path / "2-0" / "job.json").read_bytes(), type=messages.TorchJob)
    assert job.judged == [without.name, "step-graph"]


def test_an_interrupted_run_keeps_its_rows_and_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a worker's folder is another one, where names are relative to this

    class Interrupted(Watcher):
        def row(self, rung: TorchRung, eager: TorchRung | None, processes: int) -> None:
            super().row(rung, eager, processes)
            if rung.name == "no-item":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Path(), models.source(), view=Interrupted())
    folder = Path("run")
    before = torch_run.load(folder)
    kept = before.rungs
    assert [(rung.name, len(rung.processes)) for rung in kept] == [("eager", 1), ("no-item", 1)]
    results, view = run(Path(), models.source(), resume=folder)
    assert results.rungs[:2] == kept
    assert [rung.name for rung in view.rows] == ["eager", "no-item", "resident"]
    assert results.rungs[2].checks
    assert view.phases[:2] == ["reading my_model.py", "preparing and timing rungs: resident, 0 of 1 done"]
    assert not [phase for phase in view.phases if phase.startswith("judging")]
    assert results.took_s[torch_run.FIRST_ROW] == before.took_s[torch_run.FIRST_ROW]
    assert sorted(path.name for path in folder.iterdir()) == ["logs", "torch.json"]


def test_what_leaves_a_change_out_is_compared_in_the_round_in_which_it_comes(tmp_path: Path) -> None:
    model = models.opened_text(tmp_path, traps.MODELS["dropout"])  # whose timed trainer has masks, and is not compared
    rung = left_out(RUNGS["fused-optimizer"], RUNGS["resident"])
    judged = [rung.name]
    job = messages.TorchJob(str(model.user.path), None, judged, 2, 1, "", str(tmp_path / "reference.pt"), judged=judged)
    worker = Worker(job, None)  # type: ignore[arg-type]
    worker._device, worker._judge = model.data.device, Judge(model)
    found = worker._prepared_and_judged(rung, model)
    assert "parameters after 4 steps" in [check.what for check in found.checks]
    assert found.error_ratio is not None


def test_each_rung_compiles_all_code_of_its_own() -> None:
    compiled = RUNGS["compiled-graph"]
    folders = {session.code_of([rung]) for rung in RUNGS.values()}
    assert len(folders) == len(RUNGS)
    assert session.code_of([left_out(compiled, RUNGS["resident"])]) == session.code_of([compiled])


def test_a_dry_run_reads_the_file_and_says_which_rungs_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my_model.py"
    rmsprop = "def optimizer(params):\n    return torch.optim.RMSprop(params)\n"
    file.write_text(models.source("print('a line of theirs')", optimizer=rmsprop))
    asked = ["torch", str(file), "--stages", "resident,fused-optimizer,foreach-optimizer", "--dry-run"]
    assert main([*asked, "--json", "--epochs", "7"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["model"]["optimizer"], told["epochs"]) == ("RMSprop", 7)
    assert {row["name"]: row["refused"] for row in told["rungs"]} == {
        "eager": "",
        "resident": "",
        "foreach-optimizer": "",
        "fused-optimizer": "RMSprop has no fused=; torch.optim's SGD, Adam and AdamW have it",
    }
    if not session.has_gpu():
        assert told["device"].startswith("the CPU, ")
        assert (told["elsewhere"], told["unasked"]) == ([], [])
        sgd = "def optimizer(params):\n    return torch.optim.SGD(params, 0.01, momentum=0.9)\n"
        cycle = "def scheduler(optimizer):\n    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, 156)\n"
        file.write_text(models.source(cycle, optimizer=sgd))
        assert main(["torch", str(file), "--stages", "all,compile", "--dry-run"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "would climb on the CPU, " in shown
        assert "Refused - step-graph, compiled-graph, graph-tf32 and graph-bf16: the scheduler moves momentum" in shown
        assert "compile-optimizer: these need a GPU, and here is none; my_model.py suits them as far as a CPU" in shown
        assert "steps-graph, max-autotune-no-graphs and max-autotune: these compile for over a minute" in shown
        adam = rmsprop.replace("RMSprop", "Adam")
        file.write_text(models.source(cycle, optimizer=adam))  # which no CPU steps while it is captured
        assert main(["torch", str(file), "--stages", "resident,step-graph", "--dry-run"]) == 0
        assert "- step-graph: this needs a GPU, and here is none; my_model.py suits it" in capsys.readouterr().out
    file.write_text(models.source(data=""))
    assert main(asked) == 2
    assert capsys.readouterr().err.startswith("run_ladder.py: my_model.py: lacks data; ")
    file.write_text(models.source("import os\nprint('bye', flush=True)\nos._exit(0)"))
    assert main(asked) == 2
    line = "run_ladder.py: my_model.py: cannot be climbed: its process ended; it printed: bye\n"
    assert capsys.readouterr().err == line
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"my_model.py"}  # Python's own


def test_a_plan_refuses_what_a_graph_would_freeze(tmp_path: Path, one_thread_with_graphs: None) -> None:
    for text, why in (
        (models.source(), ""),
        (traps.MODELS["one cycle, sgd"], "the scheduler moves momentum"),
        (models.source(optimizer=COUNTS), "Counts keeps count on the host"),
    ):
        models.opened_text(tmp_path, text)
        found = plan.tried(tmp_path / "my_model.py", ["step-graph", "compiled-graph"], None)
        assert isinstance(found, plan.Plan)
        assert {name: reason.partition(",")[0] for name, reason in found.misfits.items()} == (
            dict.fromkeys(("step-graph", "compiled-graph"), why) if why else {}
        )


def test_rungs_of_the_gpu_are_refused_without_one(tmp_path: Path) -> None:
    if session.has_gpu():
        pytest.skip("has a GPU")
    with pytest.raises(UsageError, match="none of these rungs runs without a GPU"):
        run(tmp_path, models.source(), ("step-graph",))


def test_an_interruption_before_the_first_row_offers_nothing_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: session.Session) -> TorchResults:
        raise KeyboardInterrupt

    monkeypatch.setattr(session.Session, "run", interrupted)
    monkeypatch.setattr(session, "has_gpu", lambda: False)
    view = Watcher()
    file = tmp_path / "my_model.py"
    file.write_text(models.source())
    ended = climb.climbed(Torch(model=file, energy=True, out=tmp_path / "run"), view, "torch", lambda *_: None)
    assert (ended.status, ended.results) == (130, None)
    interruption = "interrupted before the first row, so there is nothing to continue; start anew"
    assert view.notes == [NO_ENERGY, interruption]
    assert not (tmp_path / "run").exists()


def test_an_interruption_while_eager_is_judged_keeps_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(begun: session.Session) -> TorchResults:
        begun._model = results.model
        shutil.copy(tmp_path / "part.pt", begun.folder / REFERENCE)
        raise KeyboardInterrupt

    def stopped(run: int, runs: int, begun: Reference | None) -> None:
        if run == 5:
            torch.save(begun, tmp_path / "part.pt")

    view, file = Watcher(), tmp_path / "my_model.py"
    results, _ = run(tmp_path, models.source(), ("eager",))
    whole = Judge(models.opened_text(tmp_path, models.source()), told=stopped).reference
    with monkeypatch.context() as patched:
        patched.setattr(session.Session, "run", interrupted)
        asked = Torch(model=file, stages=("eager",), rounds=1, repeats=1, out=tmp_path / "again")
        assert climb.climbed(asked, view, "torch", lambda *_: None).status == 130
    [note] = view.notes
    assert note.startswith("interrupted; continue with: ")
    assert note.endswith(f" torch {file} --resume {tmp_path / 'again'}")
    again, view = run(tmp_path, models.source(), ("eager",), resume=tmp_path / "again")
    judging = [phase for phase in view.phases if phase.startswith("judging")]
    assert judging == [f"judging eager: run {number} of 8" for number in range(5, 9)]
    assert again.rungs[0].checks == results.rungs[0].checks
    assert again.model.reference == "float64"
    assert len(whole.far) == whole.runs == 7


def test_a_run_says_what_it_does_and_times_what_speedups_are_over(tmp_path: Path) -> None:
    results, view = run(tmp_path, models.source("def metric(output, target): ..."), ("resident",), rounds=2)
    assert view.notes[0].startswith("`metric` is not part of the contract, ")
    assert re.fullmatch(r"eager takes about [\d,]+ us per step \(a first guess\); it is judged first", view.notes[1])
    assert [rung.name for rung in results.rungs] == ["eager", "resident"]
    assert results.settings.stages == ["resident"]
    assert list(dict.fromkeys(view.phases)) == [
        "reading my_model.py",
        "preparing and timing rungs: eager, 0 of 4 done",
        *(f"judging eager: run {run} of 8{', in float64' * (run == 2)}" for run in range(1, 9)),
        "preparing and timing rungs: resident, 1 of 4 done",
        "preparing and timing rungs: 2 of 4 done",
        "preparing and timing rungs: eager, 2 of 4 done",
        "preparing and timing rungs: resident, 3 of 4 done",
        "preparing and timing rungs: 4 of 4 done",
        "writing the report",
    ]
    _, view = run(tmp_path, models.source(), ("resident",), check=True, out=tmp_path / "checked")
    assert view.notes == []
    assert {rung.name for rung in view.rows} == {"resident"}
    assert "judging rungs: 1 of 1 done" in view.phases


@pytest.mark.parametrize("is_there", [False, True])
def test_a_refused_file_leaves_nothing_behind(tmp_path: Path, is_there: bool) -> None:
    out, view = tmp_path / "run", Watcher()
    if is_there:
        out.mkdir()
        (out / "notes.txt").write_text("mine")
    file = tmp_path / "my_model.py"
    file.write_text(models.source(data=""))
    asked = Torch(model=file, stages=CALM, out=out)
    with (
        pytest.raises(UsageError, match=r"^my_model\.py: lacks data; "),
        session.opened(asked, view, "torch my_model.py") as opened,
    ):
        opened.run()
    assert (view.phases, view.rows) == (["reading my_model.py"], [])
    assert [path.name for path in out.iterdir()] == ["notes.txt"] if is_there else not out.exists()


def test_a_file_that_ends_its_process_leaves_the_log_that_the_refusal_names(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"its process ended; it printed: bye; see .*/run/logs/1-0-eager\.log"):
        run(tmp_path, models.source("import os\nprint('bye', flush=True)\nos._exit(0)"))
    assert (tmp_path / "run" / "logs" / "1-0-eager.log").read_text() == "bye\n"


def test_a_finished_run_that_is_resumed_shows_all_again_as_it_began(tmp_path: Path) -> None:
    def climb_it(**options: Any) -> tuple[climb.Climbed, Watcher, list[TorchResults]]:
        view, rendered = Watcher(), list[TorchResults]()
        asked, command = Torch(**options), shlex.join(["python", "run_ladder.py", "torch", str(other), str(file)])
        return climb.climbed(asked, view, command, lambda results, _: rendered.append(results)), view, rendered

    file, other = tmp_path / "my models" / "my_model.py", tmp_path / "my_model.py"
    file.parent.mkdir()
    file.write_text(models.source())
    other.write_text("")
    first, _, _ = climb_it(model=file, stages=("eager",), rounds=2, repeats=1, epochs=7, out=tmp_path / "run")
    again, view, rendered = climb_it(resume=tmp_path / "run")
    assert view.notes == ["nothing is left to measure"]
    assert view.rows == []
    assert first.results is not None
    assert again.results is not None
    assert (again.status, again.results.rungs, again.results.settings) == (
        0, first.results.rungs, first.results.settings,
    )  # fmt: skip
    assert rendered == [again.results]
    longer, _, _ = climb_it(resume=tmp_path / "run", epochs=900)
    assert longer.results is not None
    assert longer.results.settings.epochs == torch_run.load(tmp_path / "run").settings.epochs == 900

    climb_it(resume=tmp_path / "run", write=tmp_path / "fast.py")
    assert (tmp_path / "fast.py").is_file()

    climb_it(model=file, stages=("no-item",), check=True, out=tmp_path / "checked")
    checked, view, _ = climb_it(resume=tmp_path / "checked")
    assert view.notes == ["nothing is left to measure"]
    assert checked.results is not None
    assert checked.results.settings.is_check
    assert not any(rung.processes for rung in checked.results.rungs)
    for named in (file, other):
        named.unlink()
    with pytest.raises(UsageError, match=r"my_model\.py is not where it was; name it: torch my_model\.py --resume "):
        climb_it(resume=tmp_path / "run")
