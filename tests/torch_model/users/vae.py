import torch
from torch import nn
import torch.nn.functional as F

BATCH_SIZE = 10
EPOCHS = 30


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc21 = nn.Linear(32, 10)
        self.fc22 = nn.Linear(32, 10)
        self.fc3 = nn.Linear(10, 32)
        self.fc4 = nn.Linear(32, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def model():
    return VAE()


def loss(output, x):
    recon, mu, logvar = output
    BCE = F.binary_cross_entropy(recon, x.view(-1, 64), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def optimizer(params):
    return torch.optim.Adam(params, lr=1e-3)


def data():
    g = torch.Generator().manual_seed(0)
    x = (torch.rand(600, 1, 8, 8, generator=g) * torch.rand(1, 1, 8, 8, generator=g)).round()
    return x, x
