"""What becomes of models as people write them: each works, or is refused by a line that says what to do."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread_with_graphs")]

from common.errors import MisfitError  # noqa: E402
from ladder.torch_model import judge as judge_module  # noqa: E402
from ladder.torch_model.contract import RefusedError, device_here, opened  # noqa: E402
from ladder.torch_model.judge import Judge  # noqa: E402
from ladder.torch_model.messages import Judged  # noqa: E402
from ladder.torch_model.session import verdict  # noqa: E402
from stages.torch import draws  # noqa: E402
from stages.torch.registry import rung_named  # noqa: E402
from stages.torch.trainer import Trainer  # noqa: E402
from tests.torch_model import emulated_graph, models, traps  # noqa: E402

USERS = Path(__file__).parent / "users"
WORK = ("autoencoder", "gru", "recommender", "resmlp", "resnet", "siamese", "unet", "vae")
FROZEN = (
    "a graph would freeze all but the model's parameters and buffers and the optimizer's state: "
    "register a buffer in model(), or leave the change out"
)
REFUSED = {
    "counts": f"counts.py: a step changes model.steps; {FROZEN}",
    "crops": "crops.py: item 0 of data() differs between two reads; "
    "move the random transform to augment(batch), which runs on the device",
    "ema": f"ema.py: a step changes EMA.0.bias, EMA.0.weight, EMA.2.bias, EMA.2.weight; {FROZEN}",
}
RUNGS = ("eager", "fused-optimizer", "step-graph")
MISFITS = {
    ("autoencoder", "fused-optimizer"): "RMSprop has no fused=; torch.optim's SGD, Adam and AdamW have it",
    ("resmlp", "step-graph"): "the scheduler moves momentum, which SGD reads on the host and a graph would freeze; "
    "move the learning rate alone, such as by cycle_momentum=False",
}


def test_every_model_has_an_outcome() -> None:
    assert sorted(file.stem for file in USERS.glob("[a-z]*.py")) == sorted([*WORK, *REFUSED])


@pytest.mark.parametrize("name", WORK)
def test_a_model_works(name: str) -> None:
    model = opened(USERS / f"{name}.py", None, device_here())
    judge = Judge(model, recorder=emulated_graph.recorded)
    assert judge.reference.kind == "float64"
    assert judge.reference.is_repeatable
    found = {}
    for rung in RUNGS:
        try:
            if why := model.misfit(rung_named(rung)):
                raise MisfitError(why)
            checks, _, _ = judge.judged(judge.trainer(rung_named(rung).step))
        except MisfitError as error:
            found[rung] = str(error)
        else:
            found[rung] = ": ".join(verdict(Judged(rung, checks=checks)))
    assert found == {rung: MISFITS.get((name, rung), "passed: ") for rung in RUNGS}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_is_refused(name: str) -> None:
    with pytest.raises(RefusedError) as refused:
        opened(USERS / f"{name}.py", None, device_here())
    # A random crop may by chance be the same in two reads of the first items.
    assert re.sub(r"item \d+", "item 0", str(refused.value)) == REFUSED[name]


NOISE = "def augment(batch):\n    return batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1]\n"


@pytest.mark.parametrize(
    ("text", "is_looked_at"),
    [(models.source(), False), (traps.MODELS["dropout"], False), (models.source(NOISE), True)],
)
def test_operations_in_float64_are_looked_at_where_they_draw_beside_dropout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, is_looked_at: bool
) -> None:
    opened_at, in_float32 = list[int](), draws.in_float32

    def looking() -> Any:
        opened_at.append(len(opened_at))
        return in_float32()

    monkeypatch.setattr(draws, "in_float32", looking)
    assert Judge(models.opened_text(tmp_path, text)).reference.kind == "float64"
    assert bool(opened_at) == is_looked_at


def test_runs_are_compared_by_one_thread_whatever_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def compared(*given: Any) -> Any:
        seen.add(torch.get_num_threads())
        return distances(*given)

    distances = judge_module.distances
    monkeypatch.setattr(judge_module, "distances", compared)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        judge = Judge(models.opened_text(tmp_path, models.source()))
        judge.judged(judge.trainer(rung_named("no-item").step))
        assert (seen, torch.get_num_threads()) == ({1}, 3)
    finally:
        torch.set_num_threads(before)


PAIRS = "def data():\n    return (torch.randn(64, 6), torch.randn(64, 2)), torch.zeros(64).long()"
MISTAKES = {
    "a misspelt name": (
        {"optimizer": "def optimiser(params):\n    return torch.optim.Adam(params)"},
        "lacks optimizer; rename optimiser to optimizer",
    ),
    "an instance": ({"model": "model = nn.Linear(6, 3)"}, "model is a module; write it as a function that returns a"),
    "float64": (
        {"data": "def data():\n    return torch.randn(64, 6).double(), torch.zeros(64).long()"},
        "the model, on float64 inputs, raises RuntimeError",
    ),
    "two arguments": (
        {"data": PAIRS, "model": """
class Pair(nn.Linear):
    def forward(self, left, right):
        return super().forward(left)

def model():
    return Pair(6, 3)
"""},
        r"forward\(\) does not take the inputs \(missing a required argument: 'right'\); it gets them as one argument, "
        "here a tuple of 2 parts",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_told(what: str, tmp_path: Path) -> None:
    parts, line = MISTAKES[what]
    with pytest.raises(RefusedError, match=line) as refused:
        models.opened_text(tmp_path, models.source(**parts))
    assert "\n" not in str(refused.value)


COUNTERS = {
    "CALLS['all']": "CALLS = {'all': 0}\n\ndef count():\n    CALLS['all'] += 1",
    "count.calls": "def count():\n    count.calls += 1\n\ncount.calls = 0",
    "Counter.calls": "class Counter:\n    calls = 0\n\ndef count():\n    Counter.calls += 1",
}


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_outside_of_the_model_is_refused(name: str, tmp_path: Path) -> None:
    counts = f"{COUNTERS[name]}\n\ndef after_backward(model):\n    count()"
    with pytest.raises(RefusedError, match=f"a step changes {re.escape(name)}"):
        models.opened_text(tmp_path, models.source(counts))


def test_a_misspelt_optional_function_is_a_note(tmp_path: Path) -> None:
    opened = models.opened_text(
        tmp_path, models.source("def schedular(optimizer):\n    return None\n\nclass Agent:\n    pass")
    )
    (note,) = opened.notes  # a class like `augment` is none
    assert "`schedular` is not part of the contract, so the ladder does not call it; rename it" in note


def test_a_schedule_that_reads_epochs_gets_those_that_are_asked_for(tmp_path: Path) -> None:
    one_cycle = """
def scheduler(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=EPOCHS * 13)
"""
    models.opened_text(tmp_path, models.source(one_cycle))
    longer = opened(tmp_path / "my_model.py", 30, device_here())
    assert (longer.user.epochs, longer.schedule.steps, longer.notes) == (30, 30 * 13, ())


def test_what_a_step_computes_anew_is_no_state(tmp_path: Path) -> None:
    model = "def model():\n    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 12)), nn.Linear(12, 3))"
    models.opened_text(tmp_path, models.source(model=model))


def test_a_model_gets_a_tuple_from_every_rung(tmp_path: Path) -> None:
    text = models.source(
        model="""
class First(nn.Linear):
    def forward(self, inputs):
        assert isinstance(inputs, tuple)
        return super().forward(inputs[0])

def model():
    return First(6, 3)
""",
        data=PAIRS,
    )
    model = models.opened_text(tmp_path, text)
    for rung in ("eager", "resident"):
        Trainer(model.user, model.initial, model.data, model.schedule, rung_named(rung).step).run(1)


def test_a_checkpoint_takes_back_parameters_buffers_state_and_batches(tmp_path: Path) -> None:
    """The judge alone would not see buffers left alone: in training no number depends on BatchNorm's averages."""
    model = models.opened_text(tmp_path, traps.MODELS["normed"])
    trainer = Trainer(model.user, model.initial, model.data, model.schedule, rung_named("fused-optimizer").step)
    trainer.run(2)
    start = trainer.checkpoint()
    trainer.run(3)
    end = trainer.checkpoint()
    assert start.buffers.keys() >= {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    for wanted, steps in ((start, 0), (end, 3)):
        trainer.load(start)
        trainer.run(steps)
        torch.testing.assert_close(asdict(trainer.checkpoint()), asdict(wanted), rtol=0, atol=0)


@pytest.mark.parametrize("total", [44, 5])  # eight steps of a graph would cross 44
def test_a_schedule_shorter_than_the_comparison(total: int, tmp_path: Path) -> None:
    schedule = f"""
def scheduler(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps={total}, cycle_momentum=False)
"""
    if total == 5:
        with pytest.raises(RefusedError, match="the scheduler ends after 5 steps; give it those of the training, 156"):
            models.opened_text(tmp_path, models.source(schedule))
        return
    model = models.opened_text(tmp_path, models.source(schedule))
    judge = Judge(model, recorder=emulated_graph.recorded)
    for rung in ("eager", "step-graph", "steps-graph"):
        checks, _, _ = judge.judged(judge.trainer(rung_named(rung).step))
        assert verdict(Judged(rung, checks=checks)) == ("passed", "")
