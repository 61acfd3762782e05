"""A transformer of two layers that continues text character by character: AdamW, cosine schedule, clipping, dropout.

`python chars.py` trains it on the CPU. `python run_ladder.py torch chars.py` says how fast it could train, and with
which loop. Start from this file for sequences: let `data` return windows of your tokens, and the same windows moved by
one.

The text is the source of some modules of Python, which every reader of this file has.
"""

import argparse
import inspect
import typing

import torch
from torch import Tensor, nn
from torch.nn import functional

BATCH_SIZE = 64
EPOCHS = 20  # of a real training, for which the ladder chooses a loop
SYMBOLS, WINDOW, WIDTH, HEADS = 128, 64, 128, 4  # ASCII's characters; what a window holds; features; heads
BATCHES = 80  # of an epoch: the text's first 328,000 characters


class Layer(nn.Module):
    """Attention to the characters before, then a perceptron for each character."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values, self.mixed = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, window, width = x.shape
        parts = self.queries_keys_values(self.norm1(x)).view(batch, window, 3, HEADS, width // HEADS)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.dropout(self.mixed(seen.transpose(1, 2).reshape(batch, window, width)))
        return x + self.dropout(self.perceptron(self.norm2(x)))


class Characters(nn.Module):
    """From windows of characters (B, WINDOW) to scores of each next one (B, WINDOW, SYMBOLS)."""

    def __init__(self) -> None:
        super().__init__()
        self.symbols, self.places = nn.Embedding(SYMBOLS, WIDTH), nn.Parameter(0.02 * torch.randn(WINDOW, WIDTH))
        self.layers = nn.Sequential(Layer(), Layer())
        self.scores = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, SYMBOLS))

    def forward(self, characters: Tensor) -> Tensor:
        return self.scores(self.layers(self.symbols(characters) + self.places))


def model() -> nn.Module:
    """The network, newly initialised; whoever calls this has set the seed, and moves it to the GPU."""
    return Characters()


def loss(output: Tensor, target: Tensor) -> Tensor:
    """The mean loss of a batch, a scalar."""
    return functional.cross_entropy(output.flatten(0, 1), target.flatten())


def optimizer(params: object) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)


def scheduler(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """Stepped once a step, not once an epoch."""
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * BATCHES)


def after_backward(model: nn.Module) -> None:
    """Runs between `loss.backward()` and the optimizer's step."""
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def data() -> tuple[Tensor, Tensor]:
    """Windows of characters, and the same windows one character later."""
    source = "".join(inspect.getsource(module) for module in (argparse, inspect, typing))
    text = torch.tensor(list(source.encode())).clamp(max=SYMBOLS - 1)
    windows = text[: BATCHES * BATCH_SIZE * WINDOW + 1].unfold(0, WINDOW + 1, WINDOW)
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


if __name__ == "__main__":  # a plain loop: the file also runs alone
    torch.manual_seed(0)
    (inputs, targets), network = data(), model()
    learn = optimizer(network.parameters())
    schedule = scheduler(learn)
    for step, rows in enumerate(torch.randperm(len(inputs)).split(BATCH_SIZE)):
        learn.zero_grad()
        error = loss(network(inputs[rows]), targets[rows])
        error.backward()
        after_backward(network)
        learn.step()
        schedule.step()
        if step % 20 == 0:
            print(f"step {step}: loss {error.item():.4f}")
