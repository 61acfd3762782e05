import torch
from torch import nn

BATCH_SIZE = 8
EPOCHS = 20
VOCABULARY, LENGTH = 50, 5


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.gru = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens):
        _, last = self.gru(self.embed(tokens))
        return self.head(last[-1])


def model():
    return Classifier()


def loss(output, target):
    return nn.functional.cross_entropy(output, target)


def optimizer(params):
    return torch.optim.Adam(params, lr=2e-3)


def after_backward(model):
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def data():
    g = torch.Generator().manual_seed(3)
    tokens = torch.randint(VOCABULARY, (500, LENGTH), generator=g)
    return tokens, tokens[:, :4].sum(1) % 4
