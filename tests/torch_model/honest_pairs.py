"""Judge honest rungs over drawn models: `python -m tests.torch_model.honest_pairs --pairs 300 --seed 0`.

A pair is a model, drawn with its loss, optimizer, schedule and data, and a rung of the ladder. Graphs are emulated on
the CPU. It prints each pair that is not as exact as eager with its check, and in the end their numbers. A rung that
refuses a model with a reason is counted apart.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from common.errors import MisfitError
from ladder.records.torch_run import TorchCheck
from ladder.torch_model.contract import Opened, RefusedError
from ladder.torch_model.judge import FIRST, Judge, needs_own_trainer
from ladder.torch_model.messages import Judged
from ladder.torch_model.session import verdict
from stages.torch.registry import RUNGS, left_out
from stages.torch.training_step import Rung
from tests.torch_model import emulated_graph, models

ACTIVATIONS = (
    "nn.ReLU()", "nn.Tanh()", "nn.GELU()", "nn.SiLU()", "nn.LeakyReLU()", "nn.ELU()", "nn.Sigmoid()", "nn.Hardtanh()",
)  # fmt: skip
POOLS = ("nn.MaxPool2d(2)", "nn.MaxPool2d(3, 2, 1)", "nn.AvgPool2d(2)")  # each halves the sides
REDUCTIONS = ("mean(1)", "amax(1)", "max(1).values", "abs().mean(1)")  # gradients of all but the first jump
LOSSES = ("cross_entropy", "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits", "l1_loss")
OPTIMIZERS = (
    "SGD(groups, lr=0.05)", "SGD(groups, lr=0.02, momentum=0.9)", "SGD(groups, lr=0.01, momentum=0.9, nesterov=True)",
    "SGD(groups, lr=0.02, momentum=0.8, dampening=0.1)", "SGD(groups, lr=0.05, weight_decay=1e-3)",
    "Adam(groups, lr=1e-3)", "Adam(groups, lr=3e-3, betas=(0.8, 0.95))", "Adam(groups, lr=1e-3, amsgrad=True)",
    "Adam(groups, lr=1e-3, weight_decay=1e-2)", "AdamW(groups, lr=2e-3)", "AdamW(groups, lr=1e-3, eps=1e-6)",
    "AdamW(groups, lr=1e-3, betas=(0.9, 0.99), amsgrad=True)", "NAdam(groups, lr=1e-3)",
    "NAdam(groups, lr=1e-3, weight_decay=1e-2, decoupled_weight_decay=True)", "RAdam(groups, lr=1e-3)",
    "Adamax(groups, lr=2e-3)", "Adadelta(groups, lr=0.5)", "Adagrad(groups, lr=1e-2)", "RMSprop(groups, lr=1e-3)",
    "RMSprop(groups, lr=1e-3, momentum=0.9, centered=True)", "Rprop(groups, lr=1e-3)", "ASGD(groups, lr=1e-2)",
    "Adafactor(groups, lr=1e-2)",
)  # fmt: skip
SCHEDULERS = (
    "", "", "StepLR(optimizer, 20, 0.5)", "ExponentialLR(optimizer, 0.99)", "CosineAnnealingLR(optimizer, 192)",
    "OneCycleLR(optimizer, 0.01, total_steps=192)",
    "OneCycleLR(optimizer, 0.01, total_steps=197, cycle_momentum=False)",
    "LinearLR(optimizer, 0.1, total_iters=20)", "LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 10))",
    "CyclicLR(optimizer, 1e-4, 1e-2, step_size_up=15, cycle_momentum=False)", "PolynomialLR(optimizer, 192)",
    "MultiStepLR(optimizer, [30, 150], 0.3)", "CosineAnnealingWarmRestarts(optimizer, 24)",
)  # fmt: skip
CLIPPINGS = ("", "", "clip_grad_norm_(model.parameters(), 0.5)", "clip_grad_value_(model.parameters(), 0.1)")
STEPS = 192  # of the whole training
RUNG_NAMES = (
    "no-item", "workers", "resident", "foreach-optimizer", "fused-optimizer", "one-thread", "amp-bf16", "step-graph",
    "steps-graph",
)  # fmt: skip
UNFUSED = tuple(left_out(RUNGS[name], RUNGS["fused-optimizer"]) for name in ("step-graph", "steps-graph"))
RUNGS_OF_PAIRS = (*(RUNGS[name] for name in RUNG_NAMES), *UNFUSED)
RUNGS_PER_MODEL = 4
OUTPUTS = 3


def drawn(random: Random) -> str:
    """The text of a user's file."""
    batch = random.choice((1, 2, 4, 8, 16, 32))
    network, inputs = random.choice((_layers, _layers, _images, _sequence, _words, _attention))(random, batch)
    loss = random.choice(LOSSES)
    target = {
        "cross_entropy": f"torch.randint({OUTPUTS}, (rows,))",
        "binary_cross_entropy_with_logits": f"torch.randint(2, (rows, {OUTPUTS})).float()",
    }.get(loss, f"torch.randn(rows, {OUTPUTS})")
    rows = batch * random.choice((6, 12, 24)) + random.randrange(batch)
    groups = "params"
    if random.random() < 0.25:
        groups = "[{'params': params[:1], 'weight_decay': 0.05}, {'params': params[1:], 'weight_decay': 0.0}]"
    extra, optimizer, scheduler = "", random.choice(OPTIMIZERS), random.choice(SCHEDULERS)
    if scheduler:
        if "OneCycleLR" in scheduler and not re.match("N?AdamW?|SGD.*momentum|RMSprop.*momentum", optimizer):
            scheduler = "OneCycleLR(optimizer, 0.01, total_steps=197, cycle_momentum=False)"
        extra += f"def scheduler(optimizer):\n    return torch.optim.lr_scheduler.{scheduler}\n\n"
    if clipping := random.choice(CLIPPINGS):
        extra += f"def after_backward(model):\n    torch.nn.utils.{clipping}\n\n"
    if random.random() < 0.2 and "randint" not in inputs:
        extra += "def augment(batch):\n    return batch[0] + 0.05 * torch.randn_like(batch[0]), batch[1]\n\n"
    if random.random() < 0.3:
        extra += "def metrics(output, target):\n    return {'mean': output.mean(), 'largest': output.max()}\n\n"
    extra += f"BATCH_SIZE = {batch}\nEPOCHS = {STEPS * batch // (rows // batch * batch)}\n"
    return models.source(
        extra,
        model=network,
        loss=f"def loss(output, target):\n    return F.{loss}(output, target)\n",
        optimizer=f"def optimizer(params):\n    groups = {groups}\n    return torch.optim.{optimizer}\n",
        data=f"def data():\n    rows = {rows}\n    return {inputs}, {target}\n",
    )


def _layers(random: Random, batch: int) -> tuple[str, str]:
    """A stack of linear layers."""
    width, parts = random.choice((3, 6, 10)), list[str]()
    size = width
    for _ in range(random.randint(1, 3)):
        units = random.choice((5, 8, 16))
        norms = ("", f"nn.LayerNorm({units})", *([f"nn.BatchNorm1d({units})"] if batch > 1 else ()))
        parts += [f"nn.Linear({size}, {units})", random.choice(norms), random.choice(ACTIVATIONS)]
        parts += [random.choice(("", "", "nn.Dropout(0.2)", "nn.AlphaDropout(0.1)"))]
        size = units
    return _sequential([*parts, f"nn.Linear({size}, {OUTPUTS})"]), f"torch.randn(rows, {width})"


def _images(random: Random, batch: int) -> tuple[str, str]:
    """Convolutions over small images."""
    parts, channels, side = list[str](), 1, 8
    for _ in range(random.choice((1, 2))):
        maps = random.choice((2, 4, 8))
        norms = ("", "", f"nn.BatchNorm2d({maps})", f"nn.GroupNorm(2, {maps})", "nn.Dropout2d(0.2)")
        parts += [f"nn.Conv2d({channels}, {maps}, 3, padding=1)", random.choice(norms), random.choice(ACTIVATIONS)]
        parts.append(random.choice(POOLS))
        channels, side = maps, side // 2
    head = f"nn.Linear({channels * side**2}, {OUTPUTS})"
    return _sequential([*parts, "nn.Flatten()", head]), "torch.randn(rows, 1, 8, 8)"


def _sequence(random: Random, batch: int) -> tuple[str, str]:
    """A recurrent network over short sequences."""
    kind, layers = random.choice(("GRU", "LSTM", "RNN")), random.choice((1, 2))
    dropout = f", dropout={random.choice((0.0, 0.2))}" if layers > 1 else ""
    network = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.{kind}(3, 6, num_layers={layers}, batch_first=True{dropout})
        self.head = nn.Linear(6, {OUTPUTS})

    def forward(self, inputs):
        return self.head(self.cells(inputs)[0][:, -1])

def model():
    return Net()
"""
    return network, "torch.randn(rows, 4, 3)"


def _words(random: Random, batch: int) -> tuple[str, str]:
    """Embedded words, and their mean or largest."""
    network = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(12, 6)
        self.head = nn.Sequential(nn.Linear(6, 8), {random.choice(ACTIVATIONS)}, nn.Linear(8, {OUTPUTS}))

    def forward(self, words):
        return self.head({random.choice(("", "F.dropout"))}(self.table(words).{random.choice(REDUCTIONS)}))

def model():
    return Net()
"""
    return network, "torch.randint(12, (rows, 5))"


def _attention(random: Random, batch: int) -> tuple[str, str]:
    """A layer of a transformer."""
    norm_first, dropout = random.choice((True, False)), random.choice((0.0, 0.1))
    network = f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            8, 2, dim_feedforward=12, dropout={dropout}, batch_first=True, norm_first={norm_first}
        )
        self.head = nn.Linear(8, {OUTPUTS})

    def forward(self, inputs):
        return self.head(self.layer(inputs).mean(1))

def model():
    return Net()
"""
    return network, "torch.randn(rows, 5, 8)"


def _sequential(parts: list[str]) -> str:
    return f"def model():\n    return nn.Sequential({', '.join(part for part in parts if part)})\n"


@dataclass(frozen=True)
class Pair:
    """A rung's verdict on a drawn model."""

    text: str
    rung: str
    status: str
    reason: str
    worst: TorchCheck | None = None


def judged_pairs(random: Random, count: int, folder: Path) -> Iterator[Pair]:
    """Pairs of drawn models and rungs; graphs must be emulated."""
    done = 0
    while done < count:
        text = drawn(random)
        rungs = random.sample(RUNGS_OF_PAIRS, RUNGS_PER_MODEL)
        folder.mkdir(exist_ok=True)
        try:
            opened = models.opened_text(folder, text)
            judge = Judge(opened, recorder=emulated_graph.recorded)
        except RefusedError as error:
            yield Pair(text, "", "model refused", str(error))
            continue
        for rung in rungs[: count - done]:
            done += 1
            yield judged_pair(judge, opened, text, rung)


def judged_pair(judge: Judge, opened: Opened, text: str, rung: Rung) -> Pair:
    """A rung's verdict, as a worker process finds it."""
    checks: list[TorchCheck] = []
    try:
        if why := opened.misfit(rung):
            raise MisfitError(why)
        timed = judge.trainer(rung.step, exact=False)
        timed.run(FIRST[0])
        compared = judge.trainer(rung.step) if needs_own_trainer(opened, rung.step) else timed
        checks, ratio, same_bits = judge.judged(compared)
        compared.close()
        if opened.is_random and timed.is_captured:
            checks += judge.masks(timed)
        timed.close()
        found = Judged(rung.name, checks=checks, error_ratio=ratio, same_bits=same_bits)
    except MisfitError as error:
        found = Judged(rung.name, misfit=str(error))
    except Exception as error:
        traceback.print_exc()
        found = Judged(rung.name, error=repr(error))
    status, reason = verdict(found)
    worst = max((check for check in checks if not check.passed), key=lambda one: one.error or 1e300, default=None)
    return Pair(text, rung.name, status, reason, worst)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Judge so many pairs; 1 if one is wrong or crashed."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    found, reasons, began = Counter[str](), Counter[str](), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, emulated_graph.capturable_on_cpu():
        for pair in judged_pairs(Random(options.seed), options.pairs, Path(folder)):
            found[pair.status] += 1
            if pair.status in ("refused", "model refused"):
                reasons[pair.reason[:100]] += 1
            if found.total() % 50 == 0:
                _tell(f"after {time.monotonic() - began:.0f} s: {dict(found)}")
            if pair.status in ("less exact", "wrong", "crashed"):
                _tell(f"{pair.status.upper()} {pair.rung}: {pair.reason}; worst: {pair.worst}")
                _tell(pair.text.split("EPOCHS = 12")[1].replace("\n\n", "\n").replace("\n", "\n    "))
    _tell(f"{options.pairs} pairs in {time.monotonic() - began:.0f} s: {dict(found)}")
    for reason, count in reasons.most_common():
        _tell(f"refused {count}: {reason}")
    return 1 if found["wrong"] or found["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
