import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH_SIZE = 3
EPOCHS = 40


class Conv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.seq = nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.seq(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = Conv(1, 4)
        self.down2 = Conv(4, 8)
        self.middle = Conv(8, 16)
        self.up2 = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.conv2 = Conv(16, 8)
        self.up1 = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.conv1 = Conv(12, 4)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.conv2(torch.cat([self.up2(c), b], 1))
        a = self.conv1(torch.cat([self.up1(b), a], 1))
        return self.head(a)


def model():
    return UNet()


def dice(output, target):
    p = output.softmax(1)[:, 1]
    t = target.float()
    return 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)


def loss(output, target):
    return F.cross_entropy(output, target) + dice(output, target)


def optimizer(params):
    return torch.optim.AdamW(params, lr=1e-3)


def metrics(output, target):
    return {"pixels": (output.argmax(1) == target).float().mean()}


def data():
    g = torch.Generator().manual_seed(0)
    image = F.avg_pool2d(torch.randn(320, 1, 12, 12, generator=g), 5, 1)
    return image, (image[:, 0] > 0.1).long()
