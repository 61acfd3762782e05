"""Scripts that `torch --write` writes: they train as the usual loop does, and hold what their rung needs alone."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from common.errors import UsageError
from ladder.options.commands import Torch
from ladder.records.torch_run import ModelRecord, TorchResults, TorchRung, TorchSettings
from ladder.torch_model import export
from ladder.torch_model.export import plain_file, training_file
from ladder.torch_model.facts import ModelFacts
from ladder.torch_model.plan import planned, tried
from stages.torch.registry import RUNGS, rung_named
from tests.examples.test_torch_examples import NAMES, few_rows
from tests.ladder.torch_model import scripts
from tests.torch_model.forked import ForkedWorker

ON_CPU = [name for name, rung in RUNGS.items() if rung.place != "gpu"]
UNCOMPILED = [name for name in ON_CPU if RUNGS[name].step.compiler.arguments is None and not RUNGS[name].step.around]
GRAPHS = [
    "step-graph",
    "step-graph-without-resident",
    "step-graph-without-no-item",
    "step-graph-without-fused-optimizer",
]
WRITTEN = [name for name, rung in RUNGS.items() if not rung.step.around and not rung.step.compiler.whole]
WITH_DROPOUT = ("tabular", "chars", "everything")
DEAR = ("eager", "resident", "amp-bf16", "step-graph")  # of chars and cnn, whose steps take longest
LEFT_OUT = [
    f"{rung}-without-{change}"
    for rung in ("compiled-graph", "graph-channels-last")
    for change in ("resident", "no-item", "fused-optimizer")
]
EVERYTHING = """\
import torch

BATCH_SIZE = 8

def model():
    return Net()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.drop = torch.nn.Linear(3, 4), torch.nn.Dropout(0.5)

    def forward(self, inputs):
        assert isinstance(inputs["x"], tuple)
        return torch.nn.functional.dropout(self.drop(self.one(inputs["x"][0])), 0.5, self.training)

def loss(output, target):
    return (output - target).square().mean()

def optimizer(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)

def augment(batch):
    inputs, targets = batch
    return {"x": (inputs["x"][0] + 0.1 * torch.rand_like(inputs["x"][0]),)}, targets

def data():
    return {"x": (torch.rand(50, 3, generator=torch.Generator().manual_seed(0)),)}, torch.ones(50, 4)

validation = data
"""
VERIFY = ("--verify", "--epochs", "2")  # which has fewer than the 64 steps of more epochs
PATIENCE_S = 600.0
pytestmark = pytest.mark.torch


@cache
def found(file: Path) -> ModelFacts:
    """What a file is like, as the exporter finds out in a process of its own."""
    plan = tried(file, [], None)
    assert not isinstance(plan, str), plan
    assert plan.facts is not None
    return replace(plan.facts, on_gpu=False)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples, each with little data, and with a model that has all that they lack."""
    folder = tmp_path_factory.mktemp("models")
    for name in NAMES:
        (folder / f"{name}.py").write_text(few_rows(name))
    (folder / "everything.py").write_text(EVERYTHING)
    return folder


def text_of(folder: Path, name: str, rung: str) -> str:
    facts = replace(found(folder / f"{name}.py"), on_gpu=rung_named(rung).place == "gpu")
    return training_file(folder / f"{name}.py", rung_named(rung).step, facts, rung, folder)


def run(folder: Path, texts: dict[str, str], *options: str, recorded: bool = False) -> dict[str, tuple[int, str]]:
    """Run scripts, by their names, in one other process; each one's exit status and output."""
    return dict(
        zip(texts, run_each(folder, [(text, options) for text in texts.values()], recorded=recorded), strict=True)
    )


def run_each(
    folder: Path, asked: Sequence[tuple[str, Sequence[str]]], *, recorded: bool = False
) -> list[tuple[int, str]]:
    """Run scripts with their options, one after another in one other process."""
    commands = []
    for number, (text, options) in enumerate(asked):
        (folder / f"run_{number}.py").write_text(text)
        commands.append(shlex.join([str(folder / f"run_{number}.py"), *options]))
    flag, log = ["--recorded"] if recorded else [], folder / "logs" / "scripts.log"
    ran = ForkedWorker(["", "-m", scripts.__name__, *flag, str(folder), *commands], log, log)
    assert ran.wait(PATIENCE_S) == 0, log.read_text()
    told = [line for line in log.read_text().splitlines() if line.startswith(("[0, ", "[1, "))]  # others warn
    return [(status, printed) for status, printed in map(json.loads, told)]


def telling(texts: dict[str, str]) -> dict[str, str]:
    """The scripts that hold two lines in a row that none before them holds, whatever their model is called."""
    seen, found = set[tuple[str, str]](), {}
    for name, text in texts.items():
        lines = re.sub(rf"\b{name.partition(',')[0]}\b", "model", text).splitlines()
        held = set(pairwise(line for line in lines if not line.startswith('"""')))  # which names the rung
        if not held <= seen:
            found[name] = text
        seen |= held
    return found


def emulated(text: str) -> str:
    """A script with a graph for the CPU, whose optimizers have no `capturable`."""
    text = text.replace('torch.device("cuda")', 'torch.device("cpu")')
    return text.replace(", capturable=True", "").replace("capturable=True", "")


@pytest.mark.parametrize("recorded", [False, True])
def test_each_rung_s_script_trains_as_the_usual_loop_does(recorded: bool, models: Path) -> None:
    texts = {
        f"{name}, {rung}": text_of(models, name, rung)
        for name in (*NAMES, "everything")
        for rung in (GRAPHS if recorded else UNCOMPILED)
        if name not in ("chars", "cnn") or rung in DEAR
    }
    texts = telling(texts)
    if recorded:
        texts = {name: emulated(text) for name, text in texts.items()}
    else:
        texts["mlp, compile"] = text_of(models, "mlp", "compile")
    ran = run(models, texts, *VERIFY, recorded=recorded)
    assert {name: told for name, (status, told) in ran.items() if status} == {}
    usual = {name: told for name, (_, told) in ran.items() if name.endswith(", eager")}
    assert all("parameters by 0.0e+00 " in told for told in usual.values()), usual
    assert len(usual) == (0 if recorded else len(NAMES) + 1)


REPLAY = "        graphs[0].replay() if graphs else step()\n"
PLANTED = {
    "a schedule that stands still": ("    torch.index_select(table, 0, done, out=now)\n", ""),
    "a schedule one step late": ("now = table[:1]", "table = torch.cat([table[:1], table])\nnow = table[:1]"),
    "one batch for ever": ("order.index_select(0, done)", "order.index_select(0, 0 * done)"),
    "a warm-up that is left out": (REPLAY, f"        if graphs or number:\n    {REPLAY}"),
    "an update made twice": (REPLAY, f"{REPLAY}        if number == 2:\n            optimizer.step()\n"),
    "a sum that forgets a step": ("    sums.zero_()\n", "    sums.fill_(-1)\n"),
}


def test_planted_errors_differ(models: Path) -> None:
    right = emulated(text_of(models, "ppo", "step-graph"))
    wrong = {planted: right.replace(*change) for planted, change in PLANTED.items()}
    assert right not in wrong.values()
    ran = run(models, wrong, *VERIFY, recorded=True)
    assert all(status == 1 and told.endswith(": more than rounding\n") for status, told in ran.values()), ran


@pytest.mark.parametrize("rung", ["fused-optimizer", "step-graph"])
def test_a_resumed_training_ends_as_one_in_a_piece(rung: str, models: Path, tmp_path: Path) -> None:
    text, recorded = emulated(text_of(models, "ppo", rung)), rung == "step-graph"
    kept = ("--checkpoint", str(tmp_path / "kept.pt"))
    begun = text.replace("range(begin, asked.epochs)", "range(begin, 2)")
    asked = [(text, ()), (begun, kept), (text, kept), (text, kept), (text, ("--epochs", "4", *kept))]
    ran = run_each(models, [(text, ("--epochs", "3", *options)) for text, options in asked], recorded=recorded)
    assert [status for status, _ in ran] == [0] * 5
    done, told = zip(*(printed.partition("\n")[::2] for _, printed in ran), strict=True)
    assert done == (*(f"{begin} of 3 epochs done" for begin in (0, 0, 2, 3)), "3 of 4 epochs done")
    assert told[0] == told[1] + told[2]
    assert re.findall("epoch .", told[0]) == ["epoch 1", "epoch 2", "epoch 3"]
    assert (told[3], told[4].partition(":")[0]) == ("", "epoch 4")  # the schedule ends after three


NORMALIZED = """\
import torch

BATCH_SIZE, EPOCHS = 16, 2

def model():
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(),
        torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 4),
    )

loss = torch.nn.functional.cross_entropy

def optimizer(params):
    return torch.optim.AdamW(params, lr=3e-2)

def scheduler(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-2, total_steps=EPOCHS * 32)

def data():
    inputs = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))
    return inputs, inputs[:, :4].argmax(1)
"""


def test_a_bias_whose_gradient_is_rounding_alone_verifies_and_a_schedule_fits_the_epochs(tmp_path: Path) -> None:
    (tmp_path / "normalized.py").write_text(NORMALIZED)
    facts = found(tmp_path / "normalized.py")
    rungs = ("resident", "fused-optimizer", "one-thread")
    texts = {
        rung: training_file(tmp_path / "normalized.py", rung_named(rung).step, facts, rung, tmp_path) for rung in rungs
    }
    longer = ("--epochs", "3")  # the file's own schedule ends after two
    ran = run_each(tmp_path, [(text, options) for options in (("--verify",), longer) for text in texts.values()])
    assert [status for status, _ in ran] == [0] * 6, ran
    assert [len(lines.splitlines()) for _, lines in ran[3:]] == [4] * 3, ran


SCHEDULE_ENDS = {
    "right": "",
    "repeats": "table[-1] = table[-2]\n",
    "wraps around": "table[-1] = table[0]\n",
    "zero": "table[-1] = 0\n",
}


def test_a_recorded_step_follows_the_schedule_to_its_last_step(tmp_path: Path) -> None:
    falling = "max_lr=0.1, total_steps=EPOCHS * 32, pct_start=0.97, final_div_factor=0.2, cycle_momentum=False"
    text = NORMALIZED.replace("max_lr=3e-2, total_steps=EPOCHS * 32", falling).replace("AdamW", "SGD")
    (tmp_path / "normalized.py").write_text(text)
    facts = replace(found(tmp_path / "normalized.py"), on_gpu=True)
    told = "print(*(float(part.detach().double().norm()) for part in model.parameters()))\n"

    def script(rung: str) -> str:
        return training_file(tmp_path / "normalized.py", rung_named(rung).step, facts, rung, tmp_path) + told

    place = "now = table[:1]"
    texts = {name: script("step-graph").replace(place, end + place) for name, end in SCHEDULE_ENDS.items()}
    ran = run(
        tmp_path, {name: emulated(one) for name, one in {"usual": script("resident"), **texts}.items()}, recorded=True
    )
    norms = {name: [float(norm) for norm in lines.splitlines()[-1].split()] for name, (_, lines) in ran.items()}
    off = {name: max(abs(a / b - 1) for a, b in zip(own, norms["usual"], strict=True)) for name, own in norms.items()}
    assert off["right"] < 1e-6 < 1e-4 < min(off[name] for name in SCHEDULE_ENDS if name != "right"), off


def test_a_finished_training_goes_on_at_the_rate_of_the_longer_one(tmp_path: Path) -> None:
    """A cosine ends at a rate of zero, and follows from the rate before: the checkpoint's would stay zero for ever."""
    cosine = NORMALIZED.replace(
        "OneCycleLR(optimizer, max_lr=3e-2, total_steps=", "CosineAnnealingLR(optimizer, T_max="
    )
    (tmp_path / "normalized.py").write_text(cosine)
    facts, rung = found(tmp_path / "normalized.py"), "fused-optimizer"
    text = training_file(tmp_path / "normalized.py", rung_named(rung).step, facts, rung, tmp_path)
    training = "try:\n    for epoch in range(begin"
    text = text.replace(training, f'print(optimizer.param_groups[0]["lr"])\n{training}')
    kept = ("--checkpoint", str(tmp_path / "kept.pt"))
    ran = run_each(tmp_path, [(text, ("--epochs", epochs, *kept)) for epochs in "12"])
    assert [float(lines.splitlines()[1]) for _, lines in ran] == pytest.approx([3e-2, 1.5e-2])


def test_a_script_validates_after_each_epoch_and_refuses_to_train_for_none(models: Path) -> None:
    text = text_of(models, "tabular", "fused-optimizer")
    (_, ran), (status, _) = run_each(models, [(text, ("--epochs", epochs)) for epochs in "20"])
    assert status == 1
    _, first, second = ran.splitlines()
    for line in (first, second):
        assert [word.rpartition(" ")[0] for word in line.partition(": ")[2].split(", ")] == [
            "loss", "accuracy", "validation loss", "validation accuracy",
        ]  # fmt: skip
    assert first.partition(":")[2] != second.partition(":")[2]


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_short_and_holds_what_its_rung_needs_alone(name: str, models: Path) -> None:
    for rung in [*WRITTEN, *GRAPHS[1:], *LEFT_OUT]:
        step = rung_named(rung).step
        if step.layout == "channels_last" and name != "cnn":  # which has images
            continue
        text = text_of(models, name, rung)
        compile(text, rung, "exec")
        assert len(text.splitlines()) <= export.MOST_LINES, rung
        assert max(map(len, text.splitlines())) <= export.LONGEST, rung
        assert text.startswith(export.MARKER)
        assert ("CUDAGraph" in text) == (step.launch.steps > 0), rung
        assert ("torch.compile" in text) == (step.compiler.arguments is not None), rung
        assert ("DataLoader" in text) == (name == "cnn" or not step.batches.needs_resident), rung
        assert ("autocast" in text) == step.arithmetic.autocast, rung
        assert ("no dropout" in text or "without dropout" in text) == (name in WITH_DROPOUT), rung
        imports = {
            alias.name if isinstance(node, ast.Import) else node.module
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        others = {module for module in imports if module and module.partition(".")[0] not in sys.stdlib_module_names}
        assert others <= {"torch", "torch.utils.data", "torch.utils._pytree", name}, rung


def test_the_two_scripts_differ_by_their_choices_alone(models: Path) -> None:
    plain = plain_file(models / "tabular.py", found(models / "tabular.py"), models).splitlines()
    fast = text_of(models, "tabular", "fused-optimizer").splitlines()
    assert len({*plain} ^ {*fast}) < 28
    assert len({*plain} & {*fast}) > 55


def test_a_script_finds_its_model_from_another_folder_and_by_any_name(models: Path, tmp_path: Path) -> None:
    (models / "my-model.py").write_text((models / "mlp.py").read_text())
    facts = found(models / "my-model.py")
    text = training_file(models / "my-model.py", RUNGS["resident"].step, facts, "resident", tmp_path)
    assert run(tmp_path, {"elsewhere": text}, *VERIFY)["elsewhere"][0] == 0


def test_a_broken_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    with pytest.raises(UsageError, match=r"broken.py: import needs no_such_module, .*; install it") as refused:
        planned(tmp_path / "broken.py", [])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["graphed-callables", "compile-optimizer"])
def test_what_wraps_a_model_has_no_script(name: str, models: Path) -> None:
    with pytest.raises(UsageError, match=f"{name} is not written as a script; leave it out of --stages"):
        text_of(models, "mlp", name)


def test_only_scripts_of_ours_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("print(1)\n")
    (tmp_path / "ours.py").write_text(f"{export.MARKER}\n")
    for path in (None, tmp_path / "ours.py", tmp_path / "new.py"):
        export.check_target(path)
    with pytest.raises(UsageError, match="was not written by this program; choose another name"):
        export.check_target(tmp_path / "theirs.py")
    with pytest.raises(UsageError, match="there is no folder"):
        export.check_target(tmp_path / "nowhere" / "new.py")


def a_run(model_file: Path, *rungs: TorchRung) -> TorchResults:
    record = ModelRecord(
        file=str(model_file), sha256="", parameters=1, batch_size=128, rows=1100, steps_per_epoch=8, optimizer="SGD",
        moving=[], has_dropout=False, has_convolution=False, reference="float64", data="tensors, 1 MB",
    )  # fmt: skip
    settings = TorchSettings(epochs=20, rounds=1, repeats=1, stages=["all"])
    environment = {"gpu": {"none": "there is no driver"}}
    return TorchResults("2026-01-01T00:00:00Z", "", environment, record, settings, [*rungs])


def test_the_recipe_s_script_is_written(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = a_run(models / "mlp.py")
    assert export.write(Torch(model=models / "mlp.py"), results, tmp_path) is None
    target = tmp_path / "train.py"
    with pytest.raises(UsageError, match="no rung has a time"):
        export.write(Torch(model=models / "mlp.py", write=target), results, tmp_path)
    asked: list[int | None] = []

    class Recipe:
        rung = "fused-optimizer-without-no-item"

    def recipe(self: TorchResults, epochs: int | None = None) -> Recipe:
        asked.append(epochs)
        return Recipe()

    monkeypatch.setattr(TorchResults, "recipe", recipe)
    written = export.write(Torch(resume=tmp_path, epochs=7, write=target), results, tmp_path)
    assert asked == [7]
    assert written is not None
    assert written.text == target.read_text()
    assert written.lines == len(target.read_text().splitlines())
    assert "loss.item(), *" in written.text
    assert "fused=True" in written.text
    assert 'torch.device("cpu")' in written.text
    assert (tmp_path / export.FAST).read_text() == written.text
    assert "alone: the usual loop, `eager`" in (tmp_path / export.PLAIN).read_text()
    assert str(target) in export.told(written)
