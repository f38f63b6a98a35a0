"""Networks that examples, tests and benchmarks share."""

from __future__ import annotations

import wgburn as wb
from wgburn import nn


class DigitCnn(nn.Module):
    """The digit classifier of the Burn 0.22 announcement: two convolution blocks, three layers.

    Takes images [n, 1, 28, 28], gives logits [n, 10].
    """

    def __init__(self, channels: int = 64, hidden: int = 128, classes: int = 10) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, channels, 3),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(25 * channels, hidden),
            nn.GELU(),
            nn.Dropout(0.25),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.Dropout(0.25),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: wb.Tensor) -> wb.Tensor:
        return self.classifier(self.features(images))
