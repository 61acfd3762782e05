"""PyTorch, eager mode, with a data loader.

Why: it is what most people write, and what most speed-ups are quoted against. A good part of it is no training at all.

Change: none; it is a reference, not a rung. A `DataLoader` over tensors in the host's memory, with its default of no
worker processes and with pinned memory on a GPU; each batch travels to the device with `non_blocking=True`; loss and
accuracy are added up on the device and read once after every epoch. It does not shuffle, since the images were shuffled
once by the seed for everyone. Not timed apart: its row includes its data loader.

Expect: 800 to 1,500 us a step at a batch of 128, mostly the loader indexing and stacking images one by one; so the
time follows the batch and hardly the model.
"""

from __future__ import annotations

from dataclasses import replace

from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer
from stages.engine.stage import Stage
from stages.references.torch_common import Evaluate, RunEpoch, TorchSetup, TorchTrainer


def prepare(setup: TorchSetup) -> RunEpoch:
    """The training loop of the tutorials."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model, totals, device = setup.model, setup.totals, setup.device
    dataset = TensorDataset(*setup.host_tensors())
    loader = DataLoader(dataset, setup.problem.batch_size, shuffle=False, drop_last=True, pin_memory=setup.on_gpu)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=setup.problem.learning_rate)

    def run_epoch(due: bool) -> None:
        for host_images, host_labels in loader:
            images, labels = host_images.to(device, non_blocking=True), host_labels.to(device, non_blocking=True)
            optimizer.zero_grad()
            logits = model(images)
            loss = criterion(logits, labels)
            loss.backward()
            optimizer.step()
            if due:
                totals.add(loss.detach(), logits.detach(), labels)

    return run_epoch


def prepare_evaluation(setup: TorchSetup, test: Split) -> Evaluate:
    """The validation loop of the tutorials, with a data loader of its own."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model, totals, device = setup.model, setup.totals, setup.device
    dataset = TensorDataset(*setup.host_tensors(test))
    loader = DataLoader(dataset, setup.problem.batch_size, shuffle=False, pin_memory=setup.on_gpu)
    criterion = torch.nn.CrossEntropyLoss(reduction="sum")

    def evaluate() -> None:
        with torch.no_grad():
            for host_images, host_labels in loader:
                images, labels = host_images.to(device, non_blocking=True), host_labels.to(device, non_blocking=True)
                logits = model(images)
                totals.add(criterion(logits, labels), logits, labels)

    return evaluate


def build(problem: Problem, train: Split) -> Trainer:
    """A trainer that looks at loss and accuracy after every epoch, as most do."""
    return TorchTrainer(replace(problem, metrics_every=1), train, prepare, prepare_evaluation)


STAGE = Stage("torch-dataloader", "PyTorch eager, includes its data loader", "reference", "float32", ("torch",), build)
