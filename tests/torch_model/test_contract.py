"""Each file that does not fit is refused in one line that names the thing, its value and a way out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from common.errors import MisfitError  # noqa: E402
from ladder.torch_model import contract  # noqa: E402
from ladder.torch_model.contract import RefusedError, schedule_in_words  # noqa: E402
from ladder.torch_model.judge import Judge, new_trainer  # noqa: E402
from stages.torch.registry import RUNGS, left_out  # noqa: E402
from tests.torch_model import emulated_graph, models  # noqa: E402
from tests.torch_model.honest_pairs import judged_pair  # noqa: E402

DATASET = """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return {length}

    def __getitem__(self, row):
        return {item}

def data():
    return Rows()
"""
ITEM = "torch.full((6,), float(row % 5)), row % 3"


def dataset(item: str = ITEM, length: int = 104) -> str:
    return DATASET.format(item=item, length=length)


def returns(name: str, arguments: str, value: str) -> str:
    return f"def {name}({arguments}):\n    return {value}\n"


ARGUMENTS = {"optimizer": "params", "loss": "output, target", "scheduler": "optimizer", "metrics": "output, target"}
ARGUMENTS["augment"] = "batch"


def parts_of(file: str | dict[str, str]) -> dict[str, str]:
    """The parts of a file, of which one may be told by what a function returns."""
    if isinstance(file, dict):
        return file
    name, _, value = file.partition(": ")
    text = returns(name, ARGUMENTS.get(name, ""), value)
    return {name if name in ("data", "model", "optimizer", "loss") else "extra": text}


# Of each: the file's parts, what its line names, its value, and its way out
REFUSED: list[tuple[str | dict[str, str], str, str, str]] = [
    ({"data": dataset("torch.randn(6), row % 3")}, "item 0 of data()", "differs between two reads", "augment(batch)"),
    ("data: torch.randn(104, 6), torch.zeros(100).long()", "data()", "100, 104 rows", "the same number"),
    ("data: torch.randn(104, 6), 3", "the targets of data()", "int", "torch.as_tensor"),
    ({"data": dataset(f"{ITEM}, row")}, "item 0 of data()", "has 3 parts", "let each be (input, target)"),
    ("data: (torch.randn(104, 6),) * 3", "data()", "3 parts", "return (inputs, targets)"),
    ("data: torch.randn(104, 6)", "data()", "one tensor", "(x, x)"),
    ("data: [[1.0]], [2]", "the inputs of data()", "float", "torch.as_tensor"),
    ({"data": "def data():\n    yield 1\n"}, "data()", "generator", "Dataset"),
    ({"data": dataset(length=0)}, "data()", "empty Dataset", "check where"),
    ("data: torch.randn(5, 6), torch.zeros(5).long()", "data()", "5 rows and BATCH_SIZE is 8", "choose a batch"),
    ({"data": dataset("torch.zeros(6 + row % 2), row % 3")}, "items of data()", "do not stack", "pad them"),
    ("data: torch.randn(104, 6) * 1j, torch.zeros(104).long()", "data()", "complex", "split them"),
    ("data: torch.eye(104).to_sparse(), torch.zeros(104).long()", "data()", "sparse", ".to_dense()"),
    ("model: nn.Sequential(nn.Embedding(9, 3, sparse=True), nn.Flatten())", "Embedding 0", "sparse=True",
     "leave sparse out"),
    ("model: nn.Linear(6, 3, dtype=torch.complex64)", "weight", "is complex", "two real tensors"),
    ("model: 3", "model()", "int", "torch.nn.Module"),
    ("model: nn.Tanh()", "model()", "no parameters", "requires_grad"),
    ("model: nn.LazyLinear(3)", "model()", "lazy", "run it once"),
    ("model: nn.DataParallel(nn.Linear(6, 3))", "model()", "spread over devices", "the plain module"),
    ("model: nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3, device='meta'))", "model()", "lies on cpu, meta",
     "on one device"),
    ("optimizer: torch.optim.LBFGS(params)", "LBFGS", "several times per step", "AdamW or SGD"),
    ("optimizer: None", "optimizer(params)", "NoneType", "torch.optim.Optimizer"),
    ("optimizer: torch.optim.SGD(params[:2], lr=0.1)", "the optimizer", "2 of 4 parameters", "freeze the others"),
    ("scheduler: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)", "scheduler()", "ReduceLROnPlateau",
     "CosineAnnealingLR"),
    ("scheduler: 0.1", "scheduler(optimizer)", "float", "return a torch scheduler"),
    ("loss: F.cross_entropy(output, target, reduction='none')", "loss(output, target)", "shape (8,)", "a mean"),
    ("loss: output.mean().item()", "loss(output, target)", "float", "scalar"),
    ("loss: output.detach().mean()", "the loss", "no parameter", ".detach()"),
    ("loss: output.mean() * float('nan')", "the loss", "nan", "learning rate"),
    ("optimizer: torch.optim.SGD(params, lr=0.0)", "two steps", "no parameter", "learning rate"),
    ("metrics: {'mean': output.mean().item()}", "metrics(output, target)", "mean is a float", "leave .item() out"),
    ("metrics: {'all': output}", "metrics(output, target)", "all has shape (8, 3)", ".mean()"),
    ("metrics: output.mean()", "metrics(output, target)", "returns Tensor", "a dict"),
    ("augment: batch[0]", "augment(batch)", "Tensor", "return (inputs, targets)"),
    ({"extra": "SEEN = torch.zeros(())\ndef augment(batch):\n    SEEN.add_(1)\n    return batch\n"},
     "SEEN", "a step changes", "register a buffer"),
    ({"extra": "COUNT = 0\ndef augment(batch):\n    global COUNT\n    COUNT += 1\n    return batch\n"},
     "COUNT", "a step changes", "register a buffer"),
    ({"extra": "COUNTS = [0]\ndef augment(batch):\n    COUNTS[0] += 1\n    return batch\n"},
     "COUNTS[0]", "a step changes", "register a buffer"),
    (
        {"model": """
class Net(nn.Sequential):
    calls = 0

    def forward(self, inputs):
        self.calls += 1
        return super().forward(inputs)

def model():
    return Net(nn.Linear(6, 3))
"""}, "calls", "a step changes", "register a buffer",
    ),
    ("data: torch.zeros(104, 6, device='meta'), torch.zeros(104).long()", "data()", "tensors on meta",
     "return them on the CPU"),
    ({"data": ""}, "lacks", "data", "--example tabular"),
    ({"optimizer": "", "extra": "def schedule(optimizer): ...\n"},
     "lacks", "optimizer", "rename schedule to scheduler, and see a whole file by"),
    ({"extra": "BATCH_SIZE = 0\n"}, "BATCH_SIZE", "0", "a whole number"),
    ({"extra": "BATCH_SIZE = 7.5\n"}, "BATCH_SIZE", "7.5", "a whole number"),
    ({"extra": "EPOCHS = -1\n"}, "EPOCHS", "-1", "a whole number"),
    ({"extra": "metrics = 3\n"}, "metrics", "int", "write it as a function"),
    ({"extra": "import sys\nsys.exit(3)\n"}, "import", "sys.exit (my_model.py:", 'below `if __name__ == "__main__":`'),
    ({"extra": "import no_such_module\n"}, "import", "no_such_module", "install it"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "thing", "value", "way_out"), REFUSED)
def test_a_file_that_does_not_fit_is_refused_in_one_line(
    file: str | dict[str, str], thing: str, value: str, way_out: str, tmp_path: Path
) -> None:
    with pytest.raises(RefusedError) as refused:
        models.opened_text(tmp_path, models.source(**parts_of(file)))
    line = str(refused.value)
    assert line.startswith("my_model.py: ")
    assert "\n" not in line
    before, _, after = line.removeprefix("my_model.py: ").partition("; ")
    assert thing in before
    assert value in line
    assert way_out in after


def test_a_training_that_leaves_the_numbers_is_refused(tmp_path: Path) -> None:
    diverges = {
        "loss": returns("loss", "output, target", "F.mse_loss(output, output.detach() * 0 - 1)"),
        "optimizer": returns("optimizer", "params", "torch.optim.SGD(params, lr=1e4)"),
        "model": returns("model", "", "nn.Linear(6, 3)"),
    }
    opened = models.opened_text(tmp_path, models.source(**diverges))
    with pytest.raises(RefusedError, match=r"^my_model\.py: the loss is not finite within \d+ steps; check learning"):
        Judge(opened)


def test_the_file_that_the_refused_ones_change_is_accepted(tmp_path: Path) -> None:
    assert models.opened_text(tmp_path, models.source()).optimizer == "AdamW"
    assert models.opened_text(tmp_path, models.source(data=dataset())).data_words.startswith("Rows, read once")


def test_data_that_cannot_be_resident_leaves_the_rungs_with_a_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = models.opened_text(tmp_path, models.source(data=dataset(length=300)))
    assert opened.misfit(RUNGS["resident"]) == ""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8_000, 0))
    *_, large = contract._data(opened.user.data(), torch.device("cuda"))
    monkeypatch.setattr(contract, "READING_S", 0.0)
    *_, slow = contract._data(opened.user.data(), torch.device("cpu"))
    assert large.startswith("the data takes 0.0 GB and the device has 0.0 GB free: ")
    assert slow.startswith("reading the data whole would take 0 s: ")
    unfit = replace(opened, not_resident=large)
    assert [unfit.misfit(RUNGS[name]) for name in ("workers", "resident", "step-graph")] == ["", large, large]


def test_an_error_of_the_users_code_shows_the_line_of_their_file(tmp_path: Path) -> None:
    broken = """
def helper(output):
    return output @ output

def loss(output, target):
    return helper(output).mean()
"""
    with pytest.raises(RefusedError) as refused:
        models.opened_text(tmp_path, models.source(loss=broken))
    line = str(refused.value)
    assert line.startswith("my_model.py: loss(output, target) raises RuntimeError: mat1 and mat2 shapes")
    assert line.endswith(": return output @ output)")
    assert line.count("my_model.py") == 2
    with pytest.raises(RefusedError, match=r"^my_model\.py: data\(\) raises ZeroDivisionError: .*return row / 0"):
        models.opened_text(tmp_path, models.source(data=dataset("row / 0")))


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    from ladder.torch_model.contract import read

    with pytest.raises(RefusedError, match=r"no such file; name a \.py file"):
        read(tmp_path / "none.py")
    (tmp_path / "random.py").write_text(models.source())
    with pytest.raises(RefusedError, match=r"random\.py: has the name of a module .*; rename it to my_model\.py"):
        read(tmp_path / "random.py")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(RefusedError, match=r"not a \.py file; name the Python file"):
        read(tmp_path / "notes.txt")


@pytest.fixture
def on_cpu() -> Iterator[None]:
    with emulated_graph.capturable_on_cpu():
        yield


ONE_CYCLE = returns("scheduler", "optimizer", "torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=160)")
STEPS = returns("scheduler", "optimizer", "torch.optim.lr_scheduler.StepLR(optimizer, 20)")
UNFUSED = left_out(RUNGS["step-graph"], RUNGS["fused-optimizer"])
COUNTS = """
class Counts(torch.optim.SGD):
    def step(self):
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                state["count"] = state.get("count", 0) + 1

def optimizer(params):
    return Counts(params, lr=0.1)
"""
NOT_IN_A_GRAPH = {
    "cycling momentum": (
        {"optimizer": returns("optimizer", "params", "torch.optim.SGD(params, 0.1, momentum=0.9)"), "extra": ONE_CYCLE},
        "momentum, which SGD reads on the host", "cycle_momentum=False",
    ),
    "a rate of the host": (
        {"optimizer": returns("optimizer", "params", "torch.optim.Adagrad(params, lr=0.1)"), "extra": STEPS},
        "Adagrad reads the learning rate on the host", "no scheduler",
    ),
    "a count of Python": ({"optimizer": COUNTS}, "Counts keeps count on the host", "capturable="),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_IN_A_GRAPH)
def test_an_optimizer_that_no_graph_holds_is_a_misfit(name: str, tmp_path: Path, on_cpu: None) -> None:
    parts, thing, way_out = NOT_IN_A_GRAPH[name]
    opened = models.opened_text(tmp_path, models.source(**parts))
    with pytest.raises(MisfitError) as misfit:
        new_trainer(opened, UNFUSED.step, recorder=emulated_graph.recorded).run(4)
    before, _, after = str(misfit.value).partition("; ")
    assert thing in before
    assert way_out in after


@pytest.mark.parametrize("kind", ["Adagrad", "Adafactor"])
def test_an_optimizer_whose_count_lies_on_the_host_is_a_misfit_on_a_gpu(
    kind: str, tmp_path: Path, on_cpu: None
) -> None:
    opened = models.opened_text(tmp_path, models.source(**parts_of(f"optimizer: torch.optim.{kind}(params, lr=0.1)")))
    trainer = new_trainer(opened, UNFUSED.step, recorder=emulated_graph.recorded)
    trainer.run(3)
    trainer.device = torch.device("cuda")
    with pytest.raises(MisfitError, match=f"{kind} keeps step on the host.*; use an optimizer with capturable="):
        trainer.run(1)


@pytest.mark.parametrize("kind", ["RMSprop", "NAdam", "Adamax"])
def test_a_graph_holds_an_optimizer_that_cannot_be_fused_as_it_is(kind: str, tmp_path: Path, on_cpu: None) -> None:
    text = models.source(**parts_of(f"optimizer: torch.optim.{kind}(params, lr=0.01)"))
    opened = models.opened_text(tmp_path, text)
    judge = Judge(opened, recorder=emulated_graph.recorded)
    fused, graph = (judged_pair(judge, opened, text, RUNGS[name]) for name in ("fused-optimizer", "step-graph"))
    assert (fused.status, fused.reason) == (
        "refused", f"{kind} has no fused=; torch.optim's SGD, Adam and AdamW have it",
    )  # fmt: skip
    assert (graph.status, graph.reason) == ("passed", "")


# A schedule of torch's, its values in 12 epochs of 13 steps, and what a note says of it.
SCHEDULES = [
    ("CosineAnnealingLR(optimizer, EPOCHS)", "lr 0.003 -> 0 -> 0.003 -> 0 -> ... -> 5.11e-05", "lr turns 12 times"),
    ("CosineAnnealingWarmRestarts(optimizer, 6)", "", "lr turns 50 times in 156 steps"),
    ("CosineAnnealingWarmRestarts(optimizer, 13)", "", ""),
    ("CosineAnnealingLR(optimizer, EPOCHS * 13)", "lr 0.003 -> 3.04e-07", ""),
    ("OneCycleLR(optimizer, 0.01, 156)", "lr 0.0004 -> 0.01 -> 4e-08, betas 0.95 -> 0.85 -> 0.95", ""),
    ("StepLR(optimizer, 3)", "", "lr is below 0.001 of its highest value after 12 of 156 steps"),
    ("StepLR(optimizer, 52)", "lr 0.003 -> 3e-05", ""),
    ("ExponentialLR(optimizer, 0.9)", "", "lr is below 0.001 of its highest value after 66 of 156 steps"),
    ("ExponentialLR(optimizer, 0.97)", "", ""),
    ("MultiStepLR(optimizer, [6, 9])", "", "lr has its last value after 9 of 156 steps"),
    ("LinearLR(optimizer)", "lr 0.001 -> 0.003", ""),
]


@pytest.mark.parametrize(("schedule", "values", "oddity"), SCHEDULES)
def test_a_schedule_that_counts_epochs_is_told(tmp_path: Path, schedule: str, values: str, oddity: str) -> None:
    text = returns("scheduler", "optimizer", f"torch.optim.lr_scheduler.{schedule}")
    opened = models.opened_text(tmp_path, models.source(text))
    assert not values or schedule_in_words(opened.schedule, 156) == f"{values} after 156 steps"
    assert [oddity in note and note.endswith("an epoch has 13.") for note in opened.notes] == [True] * bool(oddity)
