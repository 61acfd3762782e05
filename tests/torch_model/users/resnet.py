import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH_SIZE = 4
EPOCHS = 30


class BasicBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.short = nn.Sequential()
        if stride != 1 or i != o:
            self.short = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.layers = nn.Sequential(BasicBlock(4, 4, 1), BasicBlock(4, 8, 2))
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        return self.fc(self.layers(self.stem(x)).mean((2, 3)))


def model():
    return ResNet()


def augment(batch):
    images, labels = batch
    flip = torch.rand(len(images), device=images.device) < 0.5
    return torch.where(flip[:, None, None, None], images.flip(3), images), labels


def loss(output, target):
    return F.cross_entropy(output, target, label_smoothing=0.1)


def optimizer(params):
    params = list(params)
    decay = [p for p in params if p.ndim >= 2]
    rest = [p for p in params if p.ndim < 2]
    return torch.optim.SGD(
        [{"params": decay, "weight_decay": 5e-4}, {"params": rest, "weight_decay": 0.0}], lr=0.1, momentum=0.9
    )


def scheduler(optimizer):
    return torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[100, 200], gamma=0.1)


def metrics(output, target):
    return {"accuracy": (output.argmax(1) == target).float().mean()}


def data():
    g = torch.Generator().manual_seed(0)
    prototypes = torch.randn(10, 3, 8, 8, generator=g)
    labels = torch.randint(10, (200,), generator=g)
    return prototypes[labels] + torch.randn(200, 3, 8, 8, generator=g), labels
