"""Two models of a few layers, and a training step of each, for tests of memory."""

from compile.seed_models import Block, training_step

import wgburn as wb
import wgburn.nn.functional as F
from wgburn import nn, optim


class Pictures(nn.Module):
    """A convolution, its statistics, a layer that says which of ten it is."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 12, 3), nn.BatchNorm2d(12)
        self.last = nn.Linear(12 * 5 * 5, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.last(x.flatten(1))


def pictures_step(device, batch):
    with wb.use_device(device):
        model = Pictures()
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
        x, y = wb.randn(batch, 1, 12, 12), wb.randint(0, 10, (batch,))
    return training_step(model, optimizer, x, y), model, optimizer


class Sequences(nn.Module):
    """One transformer layer and a layer that says which of four it is."""

    def __init__(self):
        super().__init__()
        self.block, self.head = Block(width=64, inner=256), nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.block(x).mean(1))


def sequences_step(device, batch):
    with wb.use_device(device):
        model = Sequences()
        optimizer = optim.Adam(model.parameters(), lr=1e-3)
        x, y = wb.randn(batch, 20, 64), wb.randint(0, 4, (batch,))
    return training_step(model, optimizer, x, y), model, optimizer


STEPS = {"pictures": pictures_step, "sequences": sequences_step}
