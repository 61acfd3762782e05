"""What a run would do with a user's file, found out in a process of its own, like all that imports such a file.

That process is `python -m ladder.torch_model.plan RESULT MODEL EPOCHS [RUNG ...]`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from common.errors import MisfitError
from common.process_group import die_with_parent
from ladder.machine.environment import cpu_name
from ladder.processes.worker_process import first_printed, run_to_end
from ladder.records.torch_run import ModelRecord
from ladder.torch_model.contract import Opened, RefusedError, device_here, opened, their_error
from ladder.torch_model.facts import ModelFacts
from ladder.torch_model.judge import new_trainer
from ladder.torch_model.worker import described, facts_of, waits_of
from stages.torch.registry import RUNGS, rung_named
from stages.torch.training_step import Rung


class Plan(msgspec.Struct, frozen=True):
    """A user's file that fits the contract."""

    model: ModelRecord
    epochs: int
    facts: ModelFacts | None  # None where they cannot be found out
    rungs: dict[str, str]  # with what each changes
    misfits: dict[str, str]  # why the model cannot have some of these, as far as this device tells
    device: str  # in words
    elsewhere: list[str] = []  # those that need another device
    unasked: list[str] = []  # rungs that are climbed if they are named

    @property
    def shown(self) -> dict[str, Any]:
        """All but the facts, which are for the exporter."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name != "facts"}


def planned(model: Path, names: Sequence[str], epochs: int | None = None, timeout_s: float = 300.0) -> Plan:
    """Try the file and these rungs. Raises UsageError for a file that does not fit, or that ends its process."""
    with tempfile.TemporaryDirectory() as scratch:
        result, log = Path(scratch) / "plan.json", Path(scratch) / "log" / "plan.log"
        command = [sys.executable, "-m", __name__, str(result), str(model.resolve()), str(epochs or 0), *names]
        try:
            run_to_end(command, result.with_suffix(".ending"), log, timeout_s)
            why = "its process ended"
        except subprocess.TimeoutExpired:
            why = f"no answer within {timeout_s:g} s (--timeout)"
        if not result.exists():
            said = first_printed(log)
            raise RefusedError(f"{model.name}: cannot be climbed: {why}{f'; it printed: {said}' if said else ''}")
        found = msgspec.json.decode(result.read_bytes(), type=Plan | str)
    if isinstance(found, str):
        raise RefusedError(found)
    return found


def tried(model: Path, names: Sequence[str], epochs: int | None) -> Plan | str:
    """The plan, or why the file does not fit."""
    try:
        user = opened(model, epochs, device_here())
        known = msgspec.structs.replace(described(user), waits=waits_of(user))
        reasons = {name: _misfit(rung_named(name), user) for name in names}
    except RefusedError as error:
        return str(error)
    except Exception as error:
        return their_error(error, model, "training")
    words, misfits = {name: RUNGS[name].words for name in names}, {name: why for name, why in reasons.items() if why}
    return Plan(known, user.user.epochs, facts_of(user), words, misfits, device_name())


def device_name() -> str:
    """The device that trains here."""
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else f"the CPU, {cpu_name()}"


def _misfit(rung: Rung, model: Opened) -> str:
    """Why the model cannot have a rung; batches, optimizer and launch tell, so that nothing has to be compiled."""
    if why := model.misfit(rung):
        return why
    chosen = {name: getattr(rung.step, name) for name in ("batches", "optimizer", "launch")}
    try:
        trainer = new_trainer(model, replace(RUNGS["eager"].step, **chosen))
        if trainer.is_captured:
            # Capturable but not fused, as where a schedule moves its betas, Adam refuses to step on a CPU.
            with suppress(*((AssertionError,) if trainer.device.type == "cpu" else ())):
                trainer.run(1)
                trainer.check_recordable()
        trainer.close()
    except MisfitError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    die_with_parent()
    to, file, asked, *of = sys.argv[1:]
    Path(to).write_bytes(msgspec.json.encode(tried(Path(file), of, int(asked) or None)))
