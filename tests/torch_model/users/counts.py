import torch
from torch import nn

BATCH_SIZE = 50
EPOCHS = 10


class Warm(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
        self.steps = 0

    def forward(self, x):
        if self.training:
            self.steps += 1
        temperature = max(1.0, 5.0 - self.steps / 20)
        return self.net(x) / temperature


def model():
    return Warm()


def loss(output, target):
    return nn.functional.cross_entropy(output, target)


def optimizer(params):
    return torch.optim.Adam(params)


def data():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 10, generator=g)
    return x, x[:, :3].argmax(1)
