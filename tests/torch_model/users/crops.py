import random
import torch
from torch import nn
from torch.utils.data import Dataset

BATCH_SIZE = 32
EPOCHS = 10


class Crops(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.images = torch.randn(640, 3, 20, 20, generator=g)
        self.labels = torch.randint(5, (640,), generator=g)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        top, left = random.randint(0, 4), random.randint(0, 4)
        return self.images[i, :, top : top + 16, left : left + 16], self.labels[i]


def model():
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 5))


def loss(output, target):
    return nn.functional.cross_entropy(output, target)


def optimizer(params):
    return torch.optim.SGD(params, lr=0.1)


def data():
    return Crops()
