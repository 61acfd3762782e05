"""The examples of `torch --example`: each runs alone, and has what a model of the ladder must have."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from ladder.options.commands import Example
from run_ladder import main
from tests.ladder.torch_model import scripts

FOLDER = Path(__file__).parents[2] / "examples" / "torch"
NAMES = get_args(get_args(Example)[0])
OPTIONAL = {"scheduler", "after_backward", "augment", "metrics", "validation"}
OURS = {"common", "stages", "ladder", "reports", "tools", "tests", "run_ladder", "examples"}
STEPS = 3
FEWER = {
    "mlp": {"10_000": "1_100"}, "tabular": {"50_000": "2_200"},
    "cnn": {
        "10_000": "550", "*block(1, 16), *block(16, 32), *block(32, 32)": "*block(1, 4), *block(4, 4), *block(4, 4)",
        "32 * 9": "4 * 9",
    },
    "ppo": {"16_384": "2_048"}, "chars": {"128, 64, 128, 4": "128, 16, 32, 4", "BATCHES = 80": "BATCHES = 9"},
}  # fmt: skip


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def few_rows(name: str) -> str:
    """An example with so little data, or so small a model, that an epoch is soon over."""
    source = (FOLDER / f"{name}.py").read_text()
    for many, few in FEWER[name].items():
        assert many in source
        source = source.replace(many, few)
    return source


def test_every_example_has_a_name_of_the_command() -> None:
    assert {file.stem for file in FOLDER.glob("*.py")} == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_printed_whole_and_imports_nothing_of_ours(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torch", "--example", name]) == 0
    printed = capsys.readouterr().out
    assert printed == (FOLDER / f"{name}.py").read_text()
    imports = [node for node in ast.walk(ast.parse(printed)) if isinstance(node, ast.Import | ast.ImportFrom)]
    found = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module or "." for node in imports if isinstance(node, ast.ImportFrom)}
    assert not {module.partition(".")[0] for module in found} & OURS


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_an_example_keeps_the_contract(name: str) -> None:
    import torch

    user = loaded(name)
    torch.manual_seed(0)
    network = user.model().train()
    optimizer = user.optimizer(network.parameters())
    scheduler = user.scheduler(optimizer) if hasattr(user, "scheduler") else None
    inputs, targets = batch_of(user.data(), user.BATCH_SIZE)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        output = network(inputs)
        loss = user.loss(output, targets)
        loss.backward()
        if hasattr(user, "after_backward"):
            user.after_backward(network)
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(not torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))
    if hasattr(user, "metrics"):
        values = user.metrics(output, targets)
        assert all(value.dim() == 0 for value in values.values())
    if hasattr(user, "validation"):
        assert isinstance(user.validation(), tuple)
    assert isinstance(user.EPOCHS, int)


def batch_of(data: Any, rows: int) -> Any:
    """The first rows of an example's data, which is tensors, nests of them, or a Dataset."""
    from torch.utils.data import default_collate

    if not isinstance(data, tuple):
        return default_collate([data[row] for row in range(rows)])
    inputs, targets = data
    return inputs[:rows], {key: part[:rows] for key, part in targets.items()} if isinstance(targets, dict) else targets[
        :rows
    ]


def test_the_examples_show_every_part_of_the_contract() -> None:
    shown = {
        node.name
        for name in NAMES
        for node in ast.parse((FOLDER / f"{name}.py").read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert OPTIONAL - shown == {"augment"}  # which would be the same transform of MNIST in each epoch


@pytest.mark.torch
def test_the_examples_run_alone(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(few_rows(name))
    environment = {name: value for name, value in os.environ.items() if name != "LADDER_DATA_DIR"}
    command = [sys.executable, scripts.__file__, ".", *(f"{name}.py" for name in NAMES)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name, (status, printed) in zip(NAMES, map(json.loads, done.stdout.splitlines()), strict=True):
        assert status == 0, printed
        assert "loss" in printed
        assert ("digits made of noise" in printed) == (name in ("mlp", "cnn"))


@pytest.mark.torch
@pytest.mark.parametrize("gz", [True, False])
def test_the_examples_of_digits_read_idx_files(gz: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.common.data.idx_writer import quartet_arrays, write_files

    arrays = quartet_arrays(40, 20, (28, 28), 10)
    monkeypatch.setenv("LADDER_DATA_DIR", str(write_files(tmp_path, arrays, gz=gz)))
    images, labels = loaded("mlp").data()
    assert images.shape == (40, 784)
    assert labels.shape == (40,)
    assert loaded("mlp").validation()[0].shape == (20, 784)
    pixels, label = loaded("cnn").data()[7]
    assert pixels.shape == (1, 28, 28)
    assert label == labels[7]
    assert ((pixels * 0.3081 + 0.1307).flatten() - images[7]).abs().max() < 1e-6
