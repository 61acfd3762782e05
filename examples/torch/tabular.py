"""A network for a table of numbers: two hidden layers with LayerNorm, GELU and dropout, AdamW, a yes-or-no target.

`python tabular.py` trains it on the CPU. `python run_ladder.py torch tabular.py` says how fast it could train, and with
which loop. Start from this file if your data is a table: let `data` return your columns, normalised, and your target.

The rows are made up: a hidden rule with some noise decides each target.
"""

import torch
from torch import Tensor, nn

BATCH_SIZE = 256
EPOCHS = 30  # of a real training, for which the ladder chooses a loop
COLUMNS = 64


def model() -> nn.Module:
    """The network, newly initialised; whoever calls this has set the seed, and moves it to the GPU."""
    return nn.Sequential(*layer(COLUMNS, 256), *layer(256, 256), nn.Linear(256, 1), nn.Flatten(0))


def layer(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.GELU(), nn.Dropout(0.1)]


def loss(output: Tensor, target: Tensor) -> Tensor:
    """The mean loss of a batch, a scalar."""
    return nn.functional.binary_cross_entropy_with_logits(output, target)


def optimizer(params: object) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-3, weight_decay=1e-2)


def metrics(output: Tensor, target: Tensor) -> dict[str, Tensor]:
    """More numbers of a batch. They stay on the GPU: `.item()` here would make the host wait in every step."""
    return {"accuracy": ((output > 0) == (target > 0.5)).float().mean()}


def data() -> tuple[Tensor, Tensor]:
    """All inputs, float32 (rows, columns), and all targets, 0 or 1."""
    return made(50_000, seed=1)


def validation() -> tuple[Tensor, Tensor]:
    """The same for rows that it does not learn from; the loop trains on none of them."""
    return made(5_000, seed=2)


def made(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    rule = torch.randn(COLUMNS, 8, generator=torch.Generator().manual_seed(0))
    noise = torch.Generator().manual_seed(seed)
    table = torch.randn(rows, COLUMNS, generator=noise)
    score = (table @ rule).tanh().sum(1) + 0.5 * torch.randn(rows, generator=noise)
    return table, (score > 0).float()


if __name__ == "__main__":  # a plain loop: the file also runs alone
    torch.manual_seed(0)
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
