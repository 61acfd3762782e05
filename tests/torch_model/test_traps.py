"""The intended check catches every trap, and the honest rungs that hold them pass."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread_with_graphs")]

from common.errors import MisfitError  # noqa: E402
from ladder.records.torch_run import TorchCheck  # noqa: E402
from ladder.torch_model import judge as judging  # noqa: E402
from ladder.torch_model.judge import Judge  # noqa: E402
from stages.torch.trainer import Recorder, Trainer  # noqa: E402
from stages.torch.training_step import TrainingStep  # noqa: E402
from tests.torch_model import emulated_graph, models, traps  # noqa: E402


class SoundJudge(Judge):
    """A judge whose second comparison, made when a rung first needs it, has no trap in its eager runs either."""

    @functools.cached_property
    def _again(self) -> Judge:
        with pytest.MonkeyPatch.context() as sound:
            sound.setattr(judging, "Trainer", Trainer)
            judge = super()._again
        assert judge.reference.kind == "float64"
        return judge


@functools.cache
def judge_of(model: str, recorder: Recorder) -> Judge:
    """A judge whose eager runs no trap has changed."""
    with tempfile.TemporaryDirectory() as folder:
        return SoundJudge(models.opened_text(Path(folder), traps.MODELS[model]), recorder=recorder)


def checks_of(
    judge: Judge, step: TrainingStep, kind: type[Trainer], recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> list[TorchCheck]:
    """All checks of a rung, as a worker process makes them; every trainer of this step is of this kind."""
    opened, own = judge._opened, {step.launch, step.batches, step.metrics}

    def built(user, initial, data, schedule, choices, **options):  # type: ignore[no-untyped-def]
        is_planted = choices == step or {choices.launch, choices.batches, choices.metrics} - own == {judging.EachLoss}
        options["recorder"] = recorder if is_planted else emulated_graph.recorded
        return (kind if is_planted else Trainer)(user, initial, data, schedule, choices, **options)

    monkeypatch.setattr(judging, "Trainer", built)
    checks, _, _ = judge.judged(judge.trainer(step))
    if opened.is_random and judge.trainer(step).is_captured:
        timed = judge.trainer(step, exact=False)
        timed.run(5)
        checks += judge.masks(timed)
    return checks


def check_caught(trap: traps.Trap, planted: Recorder, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that the intended check calls a trap wrong; `planted` records its steps, and `recorder` all others."""
    judge = judge_of(trap.model, recorder)
    checks = checks_of(judge, trap.planted, trap.trainer, planted, monkeypatch)
    assert trap.caught_by in [check.what for check in checks if check.is_wrong]


def check_honest(name: str, trap: traps.Trap, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that the rung of a trap is right without it, or refuses the model."""
    judge = judge_of(trap.model, recorder)
    if name in traps.REFUSED:
        with pytest.raises(MisfitError, match=traps.REFUSED[name]):
            judge.trainer(trap.step)
        return
    kind = traps.Compiles if trap.step.compiler.arguments is not None else Trainer
    checks = checks_of(judge, trap.step, kind, recorder, monkeypatch)
    assert [check for check in checks if check.is_wrong] == []


@pytest.mark.parametrize("name", traps.TRAPS)
def test_traps_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_caught(traps.TRAPS[name], traps.TRAPS[name].recorder, emulated_graph.recorded, monkeypatch)


@pytest.mark.parametrize(("factor", "plus", "is_exact"), [(4.0, 0.0, True), (1.0, 1e-3, False)])
def test_a_gradient_of_rounding_alone_may_be_another_compiler_s(factor: float, plus: float, *, is_exact: bool) -> None:
    """A bias before BatchNorm has none in truth, and compiled code's is up to 13 times as far from it as eager's."""
    judge = judge_of("normed", emulated_graph.recorded)
    trainer = judge.trainer(traps.RESIDENT)
    trainer.model[0].bias.register_hook(lambda gradient: factor * gradient + plus)
    checks, _, _ = judge.judged(trainer)
    far = [check.what for check in checks if check.error is None or check.error > check.limit]
    assert judge.reference.adrift == {"0.bias"}
    assert (not far) is is_exact, far


@pytest.mark.parametrize("is_chance", [True, False])
def test_a_jump_from_one_start_alone_is_chance(monkeypatch: pytest.MonkeyPatch, *, is_chance: bool) -> None:
    """As the gradient of a pooling window jumps where its two largest numbers are a rounding apart."""
    judge = judge_of("sgd", emulated_graph.recorded)

    class Jumps(Trainer):
        def __init__(self, user, initial, *others, **options):  # type: ignore[no-untyped-def]
            self.jumps = not is_chance or initial is judge._opened.initial
            super().__init__(user, initial, *others, **options)

        def advance(self, steps: int = 1) -> None:
            super().advance(steps)
            if self.jumps and self.position == 60:
                self.model[0].bias.data[0] += 1e-4

    checks = checks_of(judge, traps.FUSED, Jumps, emulated_graph.recorded, monkeypatch)
    assert [check.what for check in judge._judged(judge.trainer(traps.FUSED))[0] if not check.passed]
    assert all(check.passed for check in checks) is is_chance


GOOD = ("plain", "dropout", "normed", "warm-up", "one cycle", "clipped", "noise", "metrics")


@pytest.mark.parametrize("model", GOOD)
def test_good_models_pass_in_graphs(model: str) -> None:
    judge = judge_of(model, emulated_graph.recorded)
    for step in (traps.GRAPH, traps.GRAPHS):
        checks, ratio, _ = judge.judged(judge.trainer(step))
        if judge._opened.is_random:
            checks += judge.masks(judge.trainer(step, exact=False))
        assert [check for check in checks if not check.passed] == []
        assert ratio < 4


HONEST_STEPS = sorted(
    {
        (trap.model, trap.step): name
        for name, trap in traps.TRAPS.items()
        if trap.model not in GOOD or trap.step not in (traps.GRAPH, traps.GRAPHS)
    }.values()
)


@pytest.mark.parametrize("name", HONEST_STEPS)
def test_the_rungs_are_right_without_their_traps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_honest(name, traps.TRAPS[name], emulated_graph.recorded, monkeypatch)
