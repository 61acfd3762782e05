"""PyTorch with a data loader: eager mode, as in the tutorials.

Why: most people write this, and most speed-ups are quoted against it. Much of its time is not training.

Change: none; it is a reference, not a rung. A `DataLoader` over tensors in host memory, with the default of no
workers and with pinned memory on a GPU. Each batch is copied with `non_blocking=True`. Loss and accuracy are added up
on the device and read after every epoch. The loader does not shuffle: the seed shuffled the images once for all
stages. The row includes the loader's time.

Expect: 800 to 1,500 us per step at a batch of 128. The loader indexes and stacks images one by one, so the time depends
on the batch and hardly on the model.

Predict: on H200: 784-10, 784-256-10 and 784-1024-10, batch 128: 800 to 1500 us.

Found: it takes longer than predicted on every recorded host. The GPU idles for about nineteen twentieths of a step,
while the loader indexes and stacks images one by one. So resident images gain more than any faster kernel could.
"""

from __future__ import annotations

from dataclasses import replace

from common.data.dataset import Split
from common.problem import Problem
from common.trainer import Trainer
from stages.engine.stage import Stage
from stages.references.torch_common import Evaluate, RunEpoch, TorchSetup, TorchTrainer
from stages.references.torch_threads import use_fastest_threads


def prepare(setup: TorchSetup) -> RunEpoch:
    """The tutorials' training loop."""
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
    """The tutorials' validation loop, with a separate data loader."""
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
    """A trainer with loss and accuracy after every epoch, as usual."""
    use_fastest_threads(problem, prepare)
    return TorchTrainer(replace(problem, metrics_every=1), train, prepare, prepare_evaluation)


STAGE = Stage(
    "torch-dataloader",
    "PyTorch eager, includes its data loader",
    "reference",
    "float32",
    ("torch",),
    build,
    words="PyTorch eager, with its data loader",
)
