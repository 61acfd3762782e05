import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import TensorDataset

BATCH_SIZE = 16
EPOCHS = 25


def model():
    encoder = nn.Sequential(nn.Linear(36, 16), nn.ELU(), nn.Linear(16, 8))
    decoder = nn.Sequential(nn.Linear(8, 16), nn.ELU(), nn.Linear(16, 36), nn.Sigmoid())
    return nn.Sequential(encoder, decoder)


def loss(output, target):
    return F.mse_loss(output, target)


def optimizer(params):
    return torch.optim.RMSprop(params, lr=1e-3)


def data():
    # an autoencoder has no labels
    g = torch.Generator().manual_seed(0)
    base = torch.rand(8, 36, generator=g)
    x = (torch.rand(400, 8, generator=g) @ base / 8).clamp(0, 1)
    return TensorDataset(x, x)
