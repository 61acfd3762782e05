"""Planted errors: ways in which a rung trains something else than eager does, each with the check that is to catch it.

A trap changes one part of an honest rung: its trainer, its batches, its metrics, its optimizer, its launch, or how its
steps are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from stages.torch import r1_eager, r2_no_item, r3_resident, r4_fused_optimizer, r5_step_graph, r6_steps_graph
from stages.torch.r7_graph_bf16 import BF16
from stages.torch.trainer import Checkpoint, Recorder, Trainer
from stages.torch.training_step import TrainingStep
from stages.torch.user_model import Batch
from tests.torch_model import emulated_graph, models

# Models

DROPOUT = "def model():\n    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.3), nn.Linear(16, 3))\n"
FUNCTIONAL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, inputs):
        return self.last(F.dropout(self.first(inputs).tanh(), 0.3, self.training))

def model():
    return Net()
"""
NOISY = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, inputs):
        hidden = self.first(inputs).tanh()
        return self.last(hidden + 0.1 * torch.randn_like(hidden))

def model():
    return Net()
"""
NORMED = "def model():\n    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))\n"
WARM_UP = """
def scheduler(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20) * (1 - step / 400))
"""
ONE_CYCLE = """
def scheduler(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=160)
"""
TO_ITS_END = """
def scheduler(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.01, total_steps=156, pct_start=0.97, final_div_factor=0.2, cycle_momentum=False
    )
"""
MILESTONES = """
EPOCHS = 30

def scheduler(optimizer):
    return torch.optim.lr_scheduler.MultiStepLR(optimizer, [60, 240], gamma=0.2)
"""
MOVING_DECAY = """
class Moving:
    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    def step(self):
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["weight_decay"] = 0.1 + 0.01 * self.steps

def scheduler(optimizer):
    return Moving(optimizer)
"""
CLIPPED = """
def after_backward(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
"""
NOISE = """
def augment(batch):
    return batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1]
"""
DROPPED_INPUTS = """
def augment(batch):
    return F.dropout(batch[0], 0.2), batch[1]
"""
METRICS = """
def metrics(output, target):
    return {"accuracy": (output.argmax(1) == target).float().mean()}
"""
SGD = "def optimizer(params):\n    return torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=0.01)\n"
EPSILON = "def optimizer(params):\n    return torch.optim.AdamW(params, lr=3e-3, eps=1e-3)\n"
GROUPS = """
def optimizer(params):
    groups = [{"params": params[::2], "weight_decay": 0.1, "lr": 1e-3}, {"params": params[1::2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=4e-3)
"""
MODELS = {
    "plain": models.source(),
    "sgd": models.source(optimizer=SGD),
    "dropout": models.source(model=DROPOUT),
    "functional dropout": models.source(model=FUNCTIONAL),
    "dropped inputs": models.source(DROPPED_INPUTS),
    "noisy": models.source(model=NOISY),
    "normed": models.source(model=NORMED),
    "warm-up": models.source(WARM_UP),
    "one cycle": models.source(ONE_CYCLE),
    "one cycle, sgd": models.source(ONE_CYCLE, optimizer=SGD),
    "one cycle to its end": models.source(TO_ITS_END),
    "milestones": models.source(MILESTONES),
    "moving decay": models.source(MOVING_DECAY),
    "clipped": models.source(CLIPPED),
    "noise": models.source(NOISE),
    "metrics": models.source(METRICS),
    "epsilon": models.source(optimizer=EPSILON),
    "groups": models.source(optimizer=GROUPS),
}

# Rungs

EAGER, KEPT, RESIDENT = r1_eager.RUNG.step, r2_no_item.RUNG.step, r3_resident.RUNG.step
FUSED, GRAPH, GRAPHS = r4_fused_optimizer.RUNG.step, r5_step_graph.RUNG.step, r6_steps_graph.RUNG.step
LOADED_GRAPH = replace(GRAPH, batches=r1_eager.LoaderBatches)
READ_GRAPH = replace(GRAPH, metrics=r1_eager.ReadMetrics)
PLAIN_GRAPH = replace(GRAPH, optimizer=r1_eager.as_written)
BF16_GRAPH = replace(GRAPH, arithmetic=BF16)

# Numbers that a graph bakes in


class BakedRow(Trainer):
    """The graph keeps the schedule's first row."""

    def step_in_graph(self) -> None:
        self.step(self.batches.in_graph())
        self.counters.add_(1)


class BakedBetas(Trainer):
    """The learning rate moves, and the betas are numbers in the graph."""

    def _follow_schedule(self) -> None:
        betas = [group["betas"] for group in self.optimizer.param_groups]
        super()._follow_schedule()
        for group, written in zip(self.optimizer.param_groups, betas, strict=True):
            group["betas"] = written


class Baked(Trainer):
    """Only learning rates move; what else the scheduler sets is a number in the graph."""

    def rebuilt(self, written: Any, *, is_captured: bool, **options: bool) -> Any:
        whole = self.schedule
        kept = [index for index, (_, name) in enumerate(whole.columns) if name == "lr"]
        rows = [[row[index] for index in kept] for row in whole.rows]
        self.schedule = replace(whole, columns=tuple(whole.columns[index] for index in kept), rows=rows)
        return super().rebuilt(written, is_captured=is_captured, **options)


class Shifted(Trainer):
    """The schedule's row is another one than the step's."""

    shift = 0

    def step_in_graph(self) -> None:
        row = (self.counters[1:] + self.shift).clamp(0, self.schedule.steps - 1)
        torch.index_select(self._table, 0, row, out=self._numbers)
        self.step(self.batches.in_graph())
        self.counters.add_(1)


class OneStepLate(Shifted):
    shift = -1


class OneStepEarly(Shifted):
    shift = 1


class RestartsEarly(Trainer):
    """The schedule begins again one step before it ends."""

    def step_in_graph(self) -> None:
        torch.index_select(self._table, 0, self.counters[1:] % (self.schedule.steps - 1), out=self._numbers)
        self.step(self.batches.in_graph())
        self.counters.add_(1)


class ShortTable(Trainer):
    """The schedule's table lacks the row of its last change, or its last row if it changes until it ends."""

    instead: Callable[[Any], Any]  # of the rows before the missing one

    def _follow_schedule(self) -> None:
        super()._follow_schedule()
        missing = min(self.schedule.last_change, len(self.schedule.rows) - 1 - self.schedule.ends)
        self._table[missing] = type(self).instead(self._table[:missing])


class RepeatsRow(ShortTable):
    instead = staticmethod(lambda rows: rows[-1])


class WrapsAround(ShortTable):
    instead = staticmethod(lambda rows: rows[0])


class ZeroAtEnd(ShortTable):
    instead = staticmethod(lambda rows: 0 * rows[-1])


class OncePerEpoch(Trainer):
    """The scheduler steps once an epoch."""

    def advance(self, steps: int = 1) -> None:
        scheduler, self.scheduler = self.scheduler, None
        super().advance(steps)
        self.scheduler = scheduler
        if self.position % 13 == 0 and scheduler is not None:
            scheduler.step()


class BetaNotCycled(Trainer):
    """The scheduler's beta1 is put back after each step."""

    def advance(self, steps: int = 1) -> None:
        super().advance(steps)
        for group in self.optimizer.param_groups:
            group["betas"] = (0.9, group["betas"][1])


class FrozenCount(Trainer):
    """Each replay finds the optimizer's count of steps as it was recorded."""

    def recorded(self, steps: int) -> Callable[[], None]:
        replay = super().recorded(steps)
        counts = [state["step"] for state in self.optimizer.state.values()]
        kept = [count.clone() for count in counts]

        def replayed() -> None:
            replay()
            for count, old in zip(counts, kept, strict=True):
                count.copy_(old)

        return replayed


# Warm-up that remains


class WarmedUp(Trainer):
    """Steps before the first one, of which something remains."""

    puts_back: tuple[str, ...] = ()

    def run(self, steps: int) -> None:
        if not vars(self).get("is_warm"):
            self.is_warm = True
            generator = torch.get_rng_state()
            whole = {name: value.clone() for name, value in self.model.state_dict().items()}
            metrics, self.metrics = self.metrics, r2_no_item.KeptMetrics(self)
            for _ in range(3):
                super().step(self.batches.next())
            self.batches.start(0)
            self.metrics = metrics
            names = {name for name, _ in self.model.named_parameters()}
            kept = {
                name: value for name, value in whole.items()
                if ("parameters" if name in names else "buffers") in self.puts_back
            }  # fmt: skip
            self.model.load_state_dict(kept, strict=False)
            if "state" in self.puts_back:
                for state in self.optimizer.state.values():
                    for value in state.values():
                        value.zero_()
            if "generator" in self.puts_back:
                torch.set_rng_state(generator)
        super().run(steps)


class KeptParameters(WarmedUp):
    puts_back = ("buffers", "state", "generator")


class KeptBuffers(WarmedUp):
    puts_back = ("parameters", "state", "generator")


class KeptState(WarmedUp):
    puts_back = ("parameters", "buffers", "generator")


class KeptGenerator(WarmedUp):
    puts_back = ("parameters", "buffers", "state")


# Batches


class StaleBatches(r1_eager.LoaderBatches):
    """Nothing is copied into the graph's buffers after the first batch."""

    def before_replay(self) -> None:
        if self._buffers is None:
            super().before_replay()


class StaleTargets(r1_eager.LoaderBatches):
    """Inputs are copied, targets remain the first batch's."""

    def before_replay(self) -> None:
        kept = self._buffers[1].clone() if self._buffers is not None else None
        super().before_replay()
        assert self._buffers is not None
        if kept is not None:
            self._buffers[1].copy_(kept)


class PartBatches(r3_resident.ResidentBatches):
    """The last batch of each pass is a part of one."""

    def next(self) -> Batch:
        is_last = self._row % 13 == 12
        inputs, targets = super().next()
        return (inputs[:5], targets[:5]) if is_last else (inputs, targets)


class SamePass(r3_resident.ResidentBatches):
    """Every pass over the data has the first one's order."""

    def next(self) -> Batch:
        self._row %= 13
        return super().next()


class OutOfOrder(r1_eager.LoaderBatches):
    """Workers hand in batches in the order in which they finish."""

    def start(self, row: int) -> None:
        self._batches = self._swapped(self._trainer.data.loader(row))

    @staticmethod
    def _swapped(batches: Iterator[Batch]) -> Iterator[Batch]:
        for first in batches:
            yield next(batches)
            yield first


# Random numbers


def frozen_at_recording(body: Callable[[], None]) -> Callable[[], None]:
    """A graph whose replays all draw what the recording drew."""
    replay, generator = emulated_graph.recorded(body), torch.get_rng_state()

    def replayed() -> None:
        torch.set_rng_state(generator)
        replay()

    return replayed


class FrozenAtSeed(Trainer):
    """Every replay draws again from where the last seed had put the generator."""

    def load(self, start: Checkpoint, *, seed: int = 7) -> None:
        super().load(start, seed=seed)
        self._drawn = torch.get_rng_state()

    def recorded(self, steps: int) -> Callable[[], None]:
        replay = super().recorded(steps)
        self._drawn = torch.get_rng_state()

        def replayed() -> None:
            torch.set_rng_state(self._drawn)
            replay()

        return replayed


class FrozenInside(Trainer):
    """The steps of one graph draw the same numbers; the next graph draws others."""

    def recorded(self, steps: int) -> Callable[[], None]:
        replays = [super(FrozenInside, self).recorded(1) for _ in range(steps)]

        def replayed() -> None:
            begin = torch.get_rng_state()
            for replay in replays:
                torch.set_rng_state(begin)
                replay()

        return replayed


class Compiles(Trainer):
    """A trainer whose compiler returns the function as it is, to judge as compiled code is judged."""

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function


class CompiledFrozenInside(Compiles, FrozenInside):
    """The same, in compiled code."""


class OtherDropout(Trainer):
    """Dropout drops twice as much."""

    def _enter(self) -> None:
        super()._enter()
        for module in self.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.6


class NoDropout(Trainer):
    """The model is in evaluation mode, so that dropout drops nothing."""

    def _enter(self) -> None:
        super()._enter()
        self.model.eval()


class FrozenNoise(Trainer):
    """`augment` draws once, and adds the same to each batch."""

    def step(self, batch: Batch) -> None:
        if not hasattr(self, "_noise"):
            self._noise = 0.1 * torch.randn_like(batch[0])
            self.user = replace(self.user, augment=lambda given: (given[0] + self._noise, given[1]))
        super().step(batch)


class EvaluatesNorm(NoDropout):
    """BatchNorm is in evaluation mode."""


# The step


class NotZeroed(Trainer):
    """Gradients add up over steps."""

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad = lambda: None
        super().step(batch)


class ZeroedTwice(Trainer):
    """Gradients are set to zero once more before the update."""

    def _compiled_update(self) -> Callable[[], Any]:
        def update() -> None:
            self.optimizer.zero_grad()
            self.optimizer.step()

        return update


class ZeroedToZero(Trainer):
    """Gradients are filled with zeros before the update, so that weights decay alone."""

    def _compiled_update(self) -> Callable[[], Any]:
        def update() -> None:
            self.optimizer.zero_grad(set_to_none=False)
            self.optimizer.step()

        return update


class Unclipped(Trainer):
    """`after_backward` is not called."""

    def step(self, batch: Batch) -> None:
        self.user = replace(self.user, after_backward=None)
        super().step(batch)


class ClippedAfterwards(Trainer):
    """`after_backward` is called when the update is done."""

    def step(self, batch: Batch) -> None:
        clip, self.user = self.user.after_backward, replace(self.user, after_backward=None)
        super().step(batch)
        assert clip is not None
        clip(self.model)
        self.user = replace(self.user, after_backward=clip)


class SumOfLosses(Trainer):
    """The gradient is of the batch's sum, not of its mean."""

    def _passes(self) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
        passes = super()._passes()

        def summed(inputs: Any, targets: Any) -> tuple[Any, dict[str, Any]]:
            loss, values = passes(inputs, targets)
            return loss * len(targets), values

        return summed


class StaleCasts(Trainer):
    """Autocast's cache holds weights that were rounded before the recording."""

    def recorded(self, steps: int) -> Callable[[], None]:
        with torch.autocast(self.device.type, torch.bfloat16):
            inputs, _ = self.batches.in_graph()
            self.model(inputs)
            return super().recorded(steps)


class LostMomentum(Trainer):
    """A resumed training begins with momentum zero."""

    def load(self, start: Checkpoint, *, seed: int = 7) -> None:
        super().load(start, seed=seed)
        for state in self.optimizer.state.values():
            state["momentum_buffer"].zero_()


class RoundsProducts(Trainer):
    """Computes in bfloat16, and says that it is float32."""

    def _passes(self) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
        told, self.choices = self.choices, replace(self.choices, arithmetic=BF16)
        passes = super()._passes()
        self.choices = told
        return passes


# Optimizers


def merged(trainer: Trainer, written: Any, *, is_captured: bool) -> Any:
    """All parameters in the first group."""
    first = written.param_groups[0]
    whole = [parameter for group in written.param_groups for parameter in group["params"]]
    return type(written)(whole, lr=first["lr"], weight_decay=first["weight_decay"])


def decays_all(trainer: Trainer, written: Any, *, is_captured: bool) -> Any:
    """Weights decay in the group that has none, too."""
    for group in written.param_groups:
        group["weight_decay"] = 0.1
    return written


def usual_epsilon(trainer: Trainer, written: Any, *, is_captured: bool) -> Any:
    """The class's own epsilon."""
    return type(written)(written.param_groups[0]["params"], lr=written.param_groups[0]["lr"], fused=True)


def coupled_decay(trainer: Trainer, written: Any, *, is_captured: bool) -> Any:
    """Adam, whose weight decay is part of the gradient, in place of AdamW."""
    group = written.param_groups[0]
    return torch.optim.Adam(group["params"], lr=group["lr"], weight_decay=group["weight_decay"])


def no_nesterov(trainer: Trainer, written: Any, *, is_captured: bool) -> Any:
    """SGD with Nesterov's momentum in place of the usual one."""
    group = written.param_groups[0]
    return torch.optim.SGD(group["params"], lr=group["lr"], momentum=0.9, weight_decay=0.01, nesterov=True)


# Metrics


class StepBefore(r2_no_item.KeptMetrics):
    """Each step adds the loss of the one before."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        self._before = trainer.scalars()

    def take(self, values: dict[str, Any]) -> None:
        super().take(self._before)
        for name, value in values.items():
            self._before[name].copy_(value)


class ReadEarly(r5_step_graph.StepGraph):
    """The host reads the metrics before the replay."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer)
        read, reads = trainer.metrics.after_replay, trainer.batches.before_replay

        def before() -> None:
            reads()
            read()

        trainer.batches.before_replay = before  # type: ignore[method-assign]
        trainer.metrics.after_replay = lambda: None  # type: ignore[method-assign]


class Unkept(r1_eager.ReadMetrics):
    """Holds the loss where the step left it, in memory that a later operation of the graph takes."""

    def take(self, values: dict[str, Any]) -> None:
        self._kept = values


class TakesMemory(Trainer):
    """The first gradient takes the loss's memory."""

    def step(self, batch: Batch) -> None:
        super().step(batch)
        gradient = next(self.model.parameters()).grad
        assert isinstance(self.metrics, Unkept)
        if gradient is not None:
            self.metrics._kept["loss"].copy_(gradient.flatten()[0])


class CountsRight(r2_no_item.KeptMetrics):
    """The user's metric is the last step's, times the steps."""

    def take(self, values: dict[str, Any]) -> None:
        self._totals["loss"].add_(values["loss"])
        self._totals["accuracy"].copy_(values["accuracy"])


@dataclass(frozen=True)
class Trap:
    """A planted error, the honest rung that it is in, and the check that catches it."""

    model: str
    step: TrainingStep
    caught_by: str
    trainer: type[Trainer] = Trainer
    recorder: Recorder = emulated_graph.recorded
    change: tuple[tuple[str, Any], ...] = ()  # of choices of the step

    @property
    def planted(self) -> TrainingStep:
        """The step with the planted choice."""
        return replace(self.step, **dict(self.change))


def _in(choice: str, part: Any) -> tuple[tuple[str, Any], ...]:
    return ((choice, part),)


EARLY, SOON, PASS = "parameters after 4 steps", "parameters after 8 steps", "parameters after 32 steps"
LATE, CHANGE = "late in training", "parameters after 4 steps across the schedule's last change"
STEPS_DIFFER, SEEDS_DIFFER = "random numbers differ between steps", "random numbers differ between seeds"
ONE_BATCH = "losses of one batch, in standard errors"
COMPILED_GRAPHS = replace(GRAPHS, compiler=replace(GRAPHS.compiler, arguments=()))

TRAPS = {
    "learning rate baked in": Trap("warm-up", GRAPH, EARLY, BakedRow),
    "betas baked in": Trap("one cycle", PLAIN_GRAPH, EARLY, BakedBetas),
    "momentum baked in": Trap("one cycle, sgd", GRAPH, SOON, Baked),
    "weight decay baked in": Trap("moving decay", GRAPH, EARLY, Baked),
    "schedule one step late": Trap("warm-up", GRAPH, EARLY, OneStepLate),
    "schedule one step early": Trap("warm-up", GRAPH, EARLY, OneStepEarly),
    "schedule restarts early": Trap("warm-up", GRAPH, f"parameters after 32 steps {LATE}", RestartsEarly),
    "last row before it again": Trap("one cycle to its end", GRAPH, f"parameters after 32 steps {LATE}", RepeatsRow),
    "last row the first again": Trap("one cycle to its end", GRAPH, f"parameters after 32 steps {LATE}", WrapsAround),
    "last row zero": Trap("one cycle to its end", GRAPH, f"parameters after 32 steps {LATE}", ZeroAtEnd),
    "last change one step late": Trap("milestones", GRAPH, CHANGE, RepeatsRow),
    "last change to the first row": Trap("milestones", GRAPH, CHANGE, WrapsAround),
    "last change to zero": Trap("milestones", GRAPH, CHANGE, ZeroAtEnd),
    "scheduler once an epoch": Trap("warm-up", FUSED, EARLY, OncePerEpoch),
    "beta1 not cycled": Trap("one cycle", RESIDENT, EARLY, BetaNotCycled),
    "step count frozen": Trap("plain", GRAPH, "step counts after 4 steps", FrozenCount),
    "warm-up in parameters": Trap("plain", GRAPH, EARLY, KeptParameters),
    "warm-up in buffers": Trap("normed", GRAPH, "buffers after 4 steps", KeptBuffers),
    "warm-up in optimizer state": Trap("plain", GRAPH, "optimizer state after 4 steps", KeptState),
    "warm-up in generator": Trap("noise", GRAPH, EARLY, KeptGenerator),
    "stale batch": Trap("plain", LOADED_GRAPH, EARLY, change=_in("batches", StaleBatches)),
    "stale targets": Trap("plain", LOADED_GRAPH, EARLY, change=_in("batches", StaleTargets)),
    "part batch kept": Trap("plain", FUSED, PASS, change=_in("batches", PartBatches)),
    "first pass repeated": Trap("plain", FUSED, PASS, change=_in("batches", SamePass)),
    "order changed by workers": Trap("plain", KEPT, EARLY, change=_in("batches", OutOfOrder)),
    "masks frozen at recording": Trap("dropout", GRAPH, SEEDS_DIFFER, recorder=frozen_at_recording),
    "masks frozen at a seed": Trap("dropout", GRAPH, STEPS_DIFFER, FrozenAtSeed),
    "masks frozen inside a graph": Trap("dropout", GRAPHS, STEPS_DIFFER, FrozenInside),
    "masks frozen inside, functional": Trap("functional dropout", GRAPHS, STEPS_DIFFER, FrozenInside),
    "masks frozen inside, of augment": Trap("dropped inputs", GRAPHS, STEPS_DIFFER, FrozenInside),
    "masks frozen inside, compiled": Trap("dropout", COMPILED_GRAPHS, STEPS_DIFFER, CompiledFrozenInside),
    "noise frozen inside, compiled": Trap("noisy", COMPILED_GRAPHS, STEPS_DIFFER, CompiledFrozenInside),
    "noise frozen at recording": Trap("noisy", GRAPH, SEEDS_DIFFER, recorder=frozen_at_recording),
    "augment frozen at a seed": Trap("noise", GRAPH, STEPS_DIFFER, FrozenAtSeed),
    "dropout twice as strong": Trap("dropout", GRAPH, ONE_BATCH, OtherDropout),
    "dropout left out": Trap("dropout", GRAPH, SEEDS_DIFFER, NoDropout),
    "augment constant": Trap("noise", GRAPH, EARLY, FrozenNoise),
    "augment frozen at recording": Trap("noise", GRAPH, SOON, recorder=frozen_at_recording),
    "augment frozen inside a graph": Trap("noise", GRAPHS, PASS, FrozenInside),
    "batch norm evaluates": Trap("normed", GRAPH, "buffers after 4 steps", EvaluatesNorm),
    "gradient not zeroed": Trap("plain", GRAPH, EARLY, NotZeroed),
    "gradient zeroed twice": Trap("plain", GRAPH, EARLY, ZeroedTwice),
    "gradient filled with zeros": Trap("sgd", GRAPH, EARLY, ZeroedToZero),
    "clipping left out": Trap("clipped", GRAPH, EARLY, Unclipped),
    "clipping after the update": Trap("clipped", GRAPH, EARLY, ClippedAfterwards),
    "sum in place of mean": Trap("sgd", GRAPH, EARLY, SumOfLosses),
    "loss of the step before": Trap("plain", GRAPH, "losses after 4 steps", change=_in("metrics", StepBefore)),
    "metrics read too early": Trap("metrics", READ_GRAPH, "losses after 4 steps", change=_in("launch", ReadEarly)),
    "metric of the last step": Trap("metrics", GRAPH, "losses after 4 steps", change=_in("metrics", CountsRight)),
    "loss in freed memory": Trap(
        "plain", READ_GRAPH, "losses after 4 steps", TakesMemory, change=_in("metrics", Unkept)
    ),
    "parameter groups merged": Trap("groups", FUSED, EARLY, change=_in("optimizer", merged)),
    "decay in a group without": Trap("groups", FUSED, EARLY, change=_in("optimizer", decays_all)),
    "another epsilon": Trap("epsilon", FUSED, EARLY, change=_in("optimizer", usual_epsilon)),
    "decay in the gradient": Trap("plain", FUSED, EARLY, change=_in("optimizer", coupled_decay)),
    "nesterov's momentum": Trap("sgd", FUSED, EARLY, change=_in("optimizer", no_nesterov)),
    "stale casts of autocast": Trap("plain", BF16_GRAPH, PASS, StaleCasts),
    "momentum lost at resume": Trap("sgd", FUSED, f"parameters after 1 steps {LATE}", LostMomentum),
    "bfloat16 told as float32": Trap("plain", FUSED, "losses after 4 steps", RoundsProducts),
}

REFUSED = {"momentum baked in": "moves momentum", "weight decay baked in": "moves weight_decay"}
"""Traps in rungs that refuse the model, and why: a graph would freeze what the trap freezes."""
