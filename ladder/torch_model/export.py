"""Writes the best training loop of a run as a script in PyTorch alone, and the usual one to compare it with."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from common.errors import UsageError
from common.files import atomic_write
from ladder.options.commands import Torch
from ladder.records.torch_run import TorchResults
from ladder.torch_model.contract import OPTIONAL
from ladder.torch_model.facts import ModelFacts
from ladder.torch_model.plan import planned
from stages.torch.r1_eager import ReadMetrics, as_written
from stages.torch.r3_resident import ResidentBatches
from stages.torch.r3_workers import WorkerBatches
from stages.torch.r4_foreach_optimizer import foreach
from stages.torch.r4_fused_optimizer import fused
from stages.torch.registry import RUNGS, rung_named
from stages.torch.training_step import TrainingStep

if TYPE_CHECKING:
    from collections.abc import Mapping

MARKER = "# Written by `run_ladder.py torch --write`, which replaces it: rename it to keep your changes."
PLAIN, FAST = "train_plain.py", "train_fast.py"
"""In a run's folder: the usual loop, and the recipe's."""
LONGEST, MOST_LINES = 100, 100  # columns of a script, and its lines, blank ones and comments included
LIMITS = {"float32": (1e-3, 1e-2), "tf32": (3e-2, 0.3), "bfloat16": (3e-2, 0.3)}
"""How far losses and parameters of the two loops may differ after 64 steps, by precision."""


@dataclass(frozen=True)
class Written:
    """A script that has been written."""

    path: Path
    text: str
    rung: str

    @property
    def lines(self) -> int:
        """Its length."""
        return self.text.count("\n")


def training_file(model_file: Path, step: TrainingStep, facts: ModelFacts, rung: str, folder: Path) -> str:
    """A script, to lie in this folder, that trains the model of a file by these choices.

    Raises UsageError for a step that is more than a loop: what wraps the model has no script.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    if step.around or step.compiler.whole:
        raise UsageError(f"--write: {rung} is not written as a script; leave it out of --stages")
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined,
        keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    return environment.get_template("train.py.j2").render(_values(model_file, step, facts, rung, folder))


def plain_file(model_file: Path, facts: ModelFacts, folder: Path) -> str:
    """The same script with the usual loop, for a comparison."""
    return training_file(model_file, RUNGS["eager"].step, facts, "eager", folder)


def _values(model_file: Path, step: TrainingStep, facts: ModelFacts, rung: str, folder: Path) -> Mapping[str, Any]:
    """What the template asks for."""
    is_captured, is_loader = step.launch.steps > 0, step.batches is not ResidentBatches
    moving = facts.moving if is_captured else frozenset()
    moves_beta = bool(moving & {"betas", "beta1"})
    options, why = _options(step, is_captured=is_captured, moves_beta=moves_beta)
    new = {name: value for name, value in options.items() if facts.options.get(name, value) != value}
    arguments = step.compiler.arguments
    away = os.path.relpath(model_file.resolve().parent, folder.resolve())  # so that both can be moved together
    loss_limit, parameter_limit = LIMITS[step.arithmetic.name]
    return {
        **msgspec.structs.asdict(facts),
        "marker": MARKER,
        "file": model_file.name,
        "rung": rung,
        "module": model_file.stem,
        "is_identifier": model_file.stem.isidentifier(),
        "folder": "" if away == "." else json.dumps(away),
        "epochs": "user.EPOCHS" if "EPOCHS" in facts.defined else "10",
        "device": "cuda" if facts.on_gpu else "cpu",
        "has": {name: name in facts.defined for name in OPTIONAL},
        "is_loader": is_loader,
        "has_workers": step.batches is WorkerBatches,
        "reads": step.metrics is ReadMetrics,
        "flags": ", ".join(f"{name}={value}" for name, value in new.items()),
        "flags_why": why if new else "",
        "counts_wide": is_captured and "capturable" in facts.options and not {**facts.options, **options}.get("fused"),
        "is_tf32": step.arithmetic.matmul == "high",
        "is_autocast": step.arithmetic.autocast,
        "compile": None if arguments is None else ", ".join(f'{name}="{value}"' for name, value in arguments),
        "is_channels_last": step.layout == "channels_last",
        "is_captured": is_captured,
        "moving": bool(moving),
        "moves_beta": moves_beta,
        "threads": step.threads,
        "loss_limit": loss_limit,
        "parameter_limit": parameter_limit,
    }


def _options(step: TrainingStep, *, is_captured: bool, moves_beta: bool) -> tuple[dict[str, bool | None], str]:
    """What the optimizer's groups are told, and why; those that a class does not have are left to the caller."""
    told: dict[str, bool | None] = {}
    why = ""
    if moves_beta:
        told, why = {"fused": None, "foreach": False}, "  # the others read beta1 on the host"
    elif step.optimizer is fused:
        told, why = {"fused": True, "foreach": None}, "  # one kernel updates many parameters"
    elif step.optimizer is foreach:
        told = {"foreach": True}
    else:
        assert step.optimizer is as_written
    if is_captured:
        told["capturable"] = True
    return told, why


def write(command: Torch, results: TorchResults, folder: Path, facts: ModelFacts | None = None) -> Written | None:
    """Write both scripts into a run's folder, and the recipe's to the command's `write`; None without a recipe.

    `facts` are what a process of the run has found out; without them, one of its own does.
    Raises UsageError where a recipe is asked for and there is none, or the file is not ours to replace.
    """
    check_target(command.write)
    recipe = results.recipe(command.epochs)
    if recipe is None:
        if command.write:
            raise UsageError(f"--write {command.write}: no rung has a time, so none is best; see {folder}")
        return None
    model_file = command.model or Path(results.model.file)
    facts = facts or planned(model_file, []).facts
    if facts is None:
        if command.write:
            raise UsageError(
                f"--write {command.write}: a function of {model_file.name} raises on a batch; see {folder}"
            )
        return None
    rung = rung_named(recipe.rung)
    atomic_write(folder / PLAIN, plain_file(model_file, facts, folder))
    atomic_write(folder / FAST, training_file(model_file, rung.step, facts, rung.name, folder))
    target = command.write or folder / FAST
    text = training_file(model_file, rung.step, facts, rung.name, target.resolve().parent)
    if command.write:
        atomic_write(target, text)
    return Written(target, text, rung.name)


def check_target(path: Path | None) -> None:
    """Raise UsageError if a script cannot be written there, or if the file there is none of ours."""
    if path is None:
        return
    if not path.resolve().parent.is_dir():
        raise UsageError(f"--write {path}: there is no folder {path.parent}; make it, or choose another")
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(MARKER):
        raise UsageError(f"--write {path}: was not written by this program; choose another name, or move it")


def told(written: Written | None) -> str:
    """A line for the user of `--write`."""
    if written is None:
        return "no script was written"
    what = "your usual loop, since no rung is surely faster" if written.rung == "eager" else f"the rung {written.rung}"
    return (
        f"wrote {written.path}: {written.lines} lines, {what}; "
        f"`python {written.path} --verify` compares it with the usual loop"
    )
