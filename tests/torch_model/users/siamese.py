import torch
from torch import nn

BATCH_SIZE = 64
EPOCHS = 10


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, pair):
        left, right = pair
        return self.embed(left), self.embed(right)


def model():
    return Siamese()


def loss(output, same):
    left, right = output
    distance = torch.norm(left - right, dim=1)
    return (same * distance**2 + (1 - same) * torch.clamp(1.0 - distance, min=0) ** 2).mean()


def optimizer(params):
    return torch.optim.SGD(params, lr=0.05)


def data():
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(10, 32, generator=g)
    a, b = torch.randint(10, (4000,), generator=g), torch.randint(10, (4000,), generator=g)
    b = torch.where(torch.rand(4000, generator=g) < 0.5, a, b)
    noise = lambda: 0.3 * torch.randn(4000, 32, generator=g)
    return (centres[a] + noise(), centres[b] + noise()), (a == b).float()
