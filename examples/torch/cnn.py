"""A small convolutional network with BatchNorm that reads handwritten digits: a Dataset, Adam, the one-cycle schedule.

`python cnn.py` trains it on the CPU. `python run_ladder.py torch cnn.py` says how fast it could train, and with which
loop. Start from this file if your data is a Dataset, as torchvision's are. A random transform in a Dataset runs on the
host; write it as `augment(batch)` instead, which gets a batch on the GPU, and let the Dataset return the same item
each time.

Images: the IDX files of MNIST in the folder that LADDER_DATA_DIR names; without it, digits made of noise.
"""

import gzip
import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 128
EPOCHS = 20  # of a real training, for which the ladder chooses a loop


class Digits(Dataset):
    """Images (1, 28, 28), normalised, and their labels, one by one."""

    def __init__(self) -> None:
        self.images, self.labels = digits()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return (self.images[row].float().div(255) - 0.1307) / 0.3081, self.labels[row]


def model() -> nn.Module:
    """The network, newly initialised; whoever calls this has set the seed, and moves it to the GPU."""
    return nn.Sequential(*block(1, 16), *block(16, 32), *block(32, 32), nn.Flatten(), nn.Linear(32 * 9, 10))


def block(inputs: int, outputs: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]


def loss(output: Tensor, target: Tensor) -> Tensor:
    """The mean loss of a batch, a scalar."""
    return nn.functional.cross_entropy(output, target)


def optimizer(params: object) -> torch.optim.Optimizer:
    return torch.optim.Adam(params, lr=1e-3)


def scheduler(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """Stepped once a step, not once an epoch. This one also moves Adam's beta1, as is PyTorch's default."""
    steps = EPOCHS * (len(digits()[0]) // BATCH_SIZE)  # the last part batch of an epoch is left out
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=steps)


def metrics(output: Tensor, target: Tensor) -> dict[str, Tensor]:
    """More numbers of a batch. They stay on the GPU: `.item()` here would make the host wait in every step."""
    return {"accuracy": (output.argmax(1) == target).float().mean()}


def data() -> Dataset:
    return Digits()


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Images as bytes (rows, 1, 28, 28), and labels."""
    if folder := os.environ.get("LADDER_DATA_DIR"):
        images, labels = idx(folder, "train-images-idx3-ubyte", 16), idx(folder, "train-labels-idx1-ubyte", 8)
    else:
        seed = torch.Generator().manual_seed(0)
        shapes, labels = torch.rand(10, 784, generator=seed), torch.randint(10, (10_000,), generator=seed)
        images = 127 * (shapes[labels] + torch.rand(10_000, 784, generator=seed))  # a pattern for each digit, and noise
    return images.view(-1, 1, 28, 28).byte(), labels.long()


def idx(folder: str, name: str, header: int) -> Tensor:
    """The bytes of an IDX file, gzipped or not."""
    file = Path(folder, name)
    raw = file.read_bytes() if file.exists() else gzip.decompress(Path(folder, f"{name}.gz").read_bytes())
    return torch.frombuffer(bytearray(raw[header:]), dtype=torch.uint8)


if __name__ == "__main__":  # a plain loop: the file also runs alone
    torch.manual_seed(0)
    made = "digits made of noise; LADDER_DATA_DIR names MNIST's folder"
    print("training on", os.environ.get("LADDER_DATA_DIR", made))
    network = model()
    learn = optimizer(network.parameters())
    schedule = scheduler(learn)
    for inputs, targets in DataLoader(data(), BATCH_SIZE, shuffle=True, drop_last=True):
        learn.zero_grad()
        output = network(inputs)
        error = loss(output, targets)
        error.backward()
        learn.step()
        schedule.step()
    print(f"one epoch: last loss {error.item():.4f}, {metrics(output, targets)}")
