import torch
from torch import nn

BATCH_SIZE = 16
EPOCHS = 15


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Linear(width, width),
        )

    def forward(self, x):
        return x + self.net(x)


def model():
    return nn.Sequential(
        nn.Linear(20, 16), Block(16), Block(16), Block(16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)
    )


criterion = nn.MSELoss()


def loss(output, target):
    return criterion(output, target)


def optimizer(params):
    return torch.optim.SGD(params, lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)


def scheduler(optimizer):
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, epochs=EPOCHS, steps_per_epoch=40)


def data():
    torch.manual_seed(1)
    x = torch.randn(640, 20)
    y = (x[:, :5] ** 2).sum(1, keepdim=True) + 0.1 * torch.randn(640, 1)
    return x, y
