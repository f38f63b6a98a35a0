"""The two models that kernel counts and overhead are judged by, and a training step of each."""

import wgburn as wb
import wgburn.nn.functional as F
from wgburn import nn, optim


class Cnn(nn.Module):
    """Two convolutions with batch norm, three dense layers: 14 parameters, 28x28 pictures."""

    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(1, 64, 3), nn.BatchNorm2d(64)
        self.c2, self.b2 = nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64)
        self.l1, self.l2, self.l3 = nn.Linear(1600, 128), nn.Linear(128, 128), nn.Linear(128, 10)
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.b1(self.c1(x))), 2)
        x = F.max_pool2d(F.relu(self.b2(self.c2(x))), 2)
        x = x.flatten(1)
        x = self.drop(F.gelu(self.l1(x)))
        x = self.drop(F.gelu(self.l2(x)))
        return self.l3(x)


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, width=128, inner=512, heads=4):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.f1, self.f2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        b, t, d = x.shape
        parts = self.qkv(self.n1(x)).reshape(b, t, 3, self.heads, d // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = x + self.out(mixed)
        return x + self.f2(F.gelu(self.f1(self.n2(x))))


class Transformer(nn.Module):
    """A classifier of token sequences: embedding, two layers, mean over the sequence."""

    def __init__(self, words=1000, width=128, length=64, classes=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.place = nn.Parameter(wb.randn(length, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.blocks(self.embed(tokens) + self.place)
        return self.head(self.norm(x).mean(1))


def training_step(model, optimizer, x, y):
    """A function that does one step and returns the loss, unread."""

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def cnn_step(device, batch):
    """A CNN, its AdamW and a step on random pictures."""
    with wb.use_device(device):
        device.seed(0)
        model = Cnn()
        optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=5e-5)
        x, y = wb.randn(batch, 1, 28, 28), wb.randint(0, 10, (batch,))
    return training_step(model, optimizer, x, y), model, optimizer


def transformer_step(device, batch=8):
    """A transformer, its Adam and a step on random tokens."""
    with wb.use_device(device):
        device.seed(0)
        model = Transformer()
        optimizer = optim.Adam(model.parameters(), lr=1e-4)
        x, y = wb.randint(0, 1000, (batch, 64)), wb.randint(0, 4, (batch,))
    return training_step(model, optimizer, x, y), model, optimizer
