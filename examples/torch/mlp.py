"""A perceptron with one hidden layer, 784-256-10, that reads handwritten digits: plain SGD, no schedule.

`python mlp.py` trains it on the CPU. `python run_ladder.py torch mlp.py` says how fast it could train, and with which
loop. Start from this file if your model takes tensors that fit into memory: change `model`, `data` and `optimizer`.

Images: the IDX files of MNIST in the folder that LADDER_DATA_DIR names; without it, digits made of noise.
"""

import gzip
import os
from pathlib import Path

import torch
from torch import Tensor, nn

BATCH_SIZE = 128
EPOCHS = 20  # of a real training, for which the ladder chooses a loop


def model() -> nn.Module:
    """The network, newly initialised; whoever calls this has set the seed, and moves it to the GPU."""
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def loss(output: Tensor, target: Tensor) -> Tensor:
    """The mean loss of a batch, a scalar."""
    return nn.functional.cross_entropy(output, target)


def optimizer(params: object) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1)


def metrics(output: Tensor, target: Tensor) -> dict[str, Tensor]:
    """More numbers of a batch. They stay on the GPU: `.item()` here would make the host wait in every step."""
    return {"accuracy": (output.argmax(1) == target).float().mean()}


def data() -> tuple[Tensor, Tensor]:
    """All inputs and all targets, with a row for each image."""
    return digits("train", 10_000)


def validation() -> tuple[Tensor, Tensor]:
    """The same for images that it does not learn from."""
    return digits("t10k", 2_000)


def digits(split: str, made: int) -> tuple[Tensor, Tensor]:
    if folder := os.environ.get("LADDER_DATA_DIR"):
        images, labels = idx(folder, f"{split}-images-idx3-ubyte", 16), idx(folder, f"{split}-labels-idx1-ubyte", 8)
    else:
        shapes = torch.rand(10, 784, generator=torch.Generator().manual_seed(0))  # a pattern for each digit
        noise = torch.Generator().manual_seed(made)
        labels = torch.randint(10, (made,), generator=noise)
        images = 127 * (shapes[labels] + torch.rand(made, 784, generator=noise))
    return images.view(-1, 784).float() / 255, labels.long()


def idx(folder: str, name: str, header: int) -> Tensor:
    """The bytes of an IDX file, gzipped or not."""
    file = Path(folder, name)
    raw = file.read_bytes() if file.exists() else gzip.decompress(Path(folder, f"{name}.gz").read_bytes())
    return torch.frombuffer(bytearray(raw[header:]), dtype=torch.uint8)


if __name__ == "__main__":  # a plain loop: the file also runs alone
    torch.manual_seed(0)
    made = "digits made of noise; LADDER_DATA_DIR names MNIST's folder"
    print("training on", os.environ.get("LADDER_DATA_DIR", made))
    (inputs, targets), network = data(), model()
    learn = optimizer(network.parameters())
    for epoch in range(2):
        for rows in torch.randperm(len(inputs)).split(BATCH_SIZE):
            learn.zero_grad()
            output = network(inputs[rows])
            error = loss(output, targets[rows])
            error.backward()
            learn.step()
        print(f"epoch {epoch}: last loss {error.item():.4f}, {metrics(output, targets[rows])}")
