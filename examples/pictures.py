"""PNG pictures of a training run: curves, a sheet of digits or of texts. Needs Pillow only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

INK = "#222222"
FAINT = "#d8d8d8"
BLUE = "#1f5fa8"
PALE_BLUE = "#b9d0ea"
ORANGE = "#d9730d"
RED = "#d01010"
#: Everything is drawn this much larger and scaled down, which smooths lines.
SCALE = 2

Curve = tuple[str, str, Sequence[tuple[float, float]]]  # name in the legend, colour, points


def font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size * SCALE)


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`, roughly `about` of them."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


class Axes:
    """A frame with ticks, a grid and a legend, drawn into part of a picture."""

    def __init__(
        self,
        draw: ImageDraw.ImageDraw,
        box: tuple[float, float, float, float],
        x_range: tuple[float, float],
        y_range: tuple[float, float],
    ) -> None:
        self.draw = draw
        self.left, self.top, self.right, self.bottom = (v * SCALE for v in box)
        self.x_range = x_range
        self.y_range = y_range

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The pixel of a point, held inside the frame."""
        u = (x - self.x_range[0]) / (self.x_range[1] - self.x_range[0])
        v = (y - self.y_range[0]) / (self.y_range[1] - self.y_range[0])
        u, v = min(max(u, 0.0), 1.0), min(max(v, 0.0), 1.0)
        return (
            self.left + u * (self.right - self.left),
            self.bottom - v * (self.bottom - self.top),
        )

    def frame(self, title: str, x_label: str) -> None:
        small = font(12)
        for value in nice_ticks(*self.x_range):
            x, _ = self.at(value, self.y_range[0])
            self.draw.line((x, self.top, x, self.bottom), FAINT, SCALE)
            self.draw.text((x, self.bottom + 6 * SCALE), f"{value:g}", INK, small, anchor="mt")
        for value in nice_ticks(*self.y_range):
            _, y = self.at(self.x_range[0], value)
            self.draw.line((self.left, y, self.right, y), FAINT, SCALE)
            self.draw.text((self.left - 6 * SCALE, y), f"{value:g}", INK, small, anchor="rm")
        self.draw.rectangle(
            (self.left, self.top, self.right, self.bottom), outline=INK, width=SCALE
        )
        middle = (self.left + self.right) / 2
        self.draw.text((middle, self.top - 10 * SCALE), title, INK, font(15), anchor="mb")
        self.draw.text((middle, self.bottom + 24 * SCALE), x_label, INK, small, anchor="mt")

    def curve(self, points: Sequence[tuple[float, float]], colour: str, dots: bool) -> None:
        places = [self.at(x, y) for x, y in points if math.isfinite(y)]
        if len(places) > 1:
            self.draw.line(places, colour, 2 * SCALE, joint="curve")
        if dots or len(places) == 1:
            r = 3.5 * SCALE
            for x, y in places:
                self.draw.ellipse((x - r, y - r, x + r, y + r), colour)

    def legend(self, curves: Sequence[Curve], at_top: bool) -> None:
        small = font(12)
        width = max(small.getlength(name) for name, _, _ in curves) + 44 * SCALE
        height = (18 * len(curves) + 8) * SCALE
        right = self.right - 8 * SCALE
        top = self.top + 8 * SCALE if at_top else self.bottom - 8 * SCALE - height
        self.draw.rectangle((right - width, top, right, top + height), "white", FAINT, SCALE)
        for i, (name, colour, _) in enumerate(curves):
            y = top + (13 + 18 * i) * SCALE
            x = right - width + 8 * SCALE
            self.draw.line((x, y, x + 22 * SCALE, y), colour, 3 * SCALE)
            self.draw.text((x + 28 * SCALE, y), name, INK, small, anchor="lm")


def smooth(values: Sequence[float], width: int) -> list[float]:
    """The mean over the last `width` values, at each value."""
    sums = np.cumsum([0.0, *values])
    starts = np.maximum(np.arange(len(values)) - width + 1, 0)
    ends = np.arange(len(values)) + 1
    return [float(v) for v in (sums[ends] - sums[starts]) / (ends - starts)]


def _canvas(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (width * SCALE, height * SCALE), "white")
    return image, ImageDraw.Draw(image)


def _save(image: Image.Image, path: Path) -> None:
    size = (image.width // SCALE, image.height // SCALE)
    image.resize(size, Image.Resampling.LANCZOS).save(path)


def draw_curves(
    path: Path,
    losses: Sequence[float],
    train_accuracy: Sequence[float],
    test_accuracy: Sequence[float],
    what: str = "digits",
) -> None:
    """Loss of each step, and accuracy after each epoch, side by side."""
    image, draw = _canvas(960, 400)
    epochs = len(test_accuracy)
    per_epoch = len(losses) / epochs
    at = [(i + 1) / per_epoch for i in range(len(losses))]
    width = max(1, len(losses) // 25)
    curves: list[Curve] = [
        ("each step", PALE_BLUE, list(zip(at, losses, strict=True))),
        (f"mean of {width}", BLUE, list(zip(at, smooth(losses, width), strict=True))),
    ]
    highest = max((v for v in losses if math.isfinite(v)), default=1.0)
    axes = Axes(draw, (60, 44, 450, 340), (0, epochs), (0, highest * 1.05 or 1.0))
    axes.frame("training loss", "epoch")
    for _, colour, points in curves:
        axes.curve(points, colour, dots=False)
    axes.legend(curves, at_top=True)

    at = [float(i + 1) for i in range(epochs)]
    curves = [
        (f"training {what}, while training", ORANGE, list(zip(at, train_accuracy, strict=True))),
        (f"test {what}", BLUE, list(zip(at, test_accuracy, strict=True))),
    ]
    lowest = min([*train_accuracy, *test_accuracy])
    axes = Axes(draw, (540, 44, 930, 340), (0, epochs), (max(0.0, lowest - 0.02), 1.0))
    axes.frame("accuracy", "epoch")
    for _, colour, points in curves:
        axes.curve(points, colour, dots=True)
    axes.legend(curves, at_top=False)
    _save(image, path)


CELL = 56
COLUMNS = 12


def draw_digits(
    path: Path,
    images: NDArray[np.uint8],
    labels: NDArray[np.integer],
    predictions: NDArray[np.integer],
    shown: int = 120,
    wrong_shown: int = 60,
) -> None:
    """The first digits with what was predicted, wrong ones framed red, and then every wrong one."""
    first = np.arange(min(shown, len(images)))
    wrong = np.flatnonzero(labels != predictions)
    listed = wrong[:wrong_shown]
    rows = [-(-len(part) // COLUMNS) for part in (first, listed)]
    row_height = CELL + 22
    height = 50 + rows[0] * row_height + 50 + rows[1] * row_height + 10
    image, draw = _canvas(COLUMNS * CELL + 20, height)
    titles = [
        f"the first {len(first)} test digits and their predictions, wrong ones framed",
        f"{len(wrong)} of {len(images)} are wrong: digit, as what"
        + (f" (first {len(listed)})" if len(listed) < len(wrong) else ""),
    ]
    y = 0
    for title, part, count in zip(titles, (first, listed), rows, strict=True):
        draw.text((10 * SCALE, (y + 28) * SCALE), title, INK, font(15), anchor="lm")
        y += 50
        for place, index in enumerate(part):
            _digit(
                image,
                (10 + place % COLUMNS * CELL, y + place // COLUMNS * row_height),
                images[index],
                int(labels[index]),
                int(predictions[index]),
            )
        y += count * row_height
    _save(image, path)


def _digit(
    image: Image.Image, corner: tuple[int, int], pixels: NDArray[np.uint8], label: int, guess: int
) -> None:
    side = (CELL - 8) * SCALE
    x, y = (c * SCALE for c in corner)
    picture = Image.fromarray(255 - pixels).resize((side, side), Image.Resampling.BICUBIC)
    image.paste(picture, (x + 4 * SCALE, y))
    draw = ImageDraw.Draw(image)
    right = label == guess
    outline, width = (FAINT, SCALE) if right else (RED, 3 * SCALE)
    draw.rectangle((x + 4 * SCALE, y, x + 4 * SCALE + side, y + side), outline=outline, width=width)
    text = str(guess) if right else f"{label} as {guess}"
    middle = x + CELL * SCALE / 2
    draw.text((middle, y + side + 10 * SCALE), text, INK if right else RED, font(13), anchor="mm")


LINE = 15
#: Characters of a text that fit beside the names.
SHOWN = 140


def draw_texts(
    path: Path,
    texts: Sequence[str],
    names: Sequence[str],
    labels: NDArray[np.integer],
    predictions: NDArray[np.integer],
    shown: int = 16,
    wrong_shown: int = 24,
) -> None:
    """How often each class was taken for which, then the first texts, then wrong ones."""
    wrong = np.flatnonzero(labels != predictions)
    listed = wrong[:wrong_shown]
    top = 70 + 34 * len(names)
    height = top + 2 * 44 + LINE * (min(shown, len(texts)) + len(listed)) + 16
    image, draw = _canvas(960, height)
    _confusion(draw, names, labels, predictions)
    y = top
    for title, part in (
        (
            f"the first {min(shown, len(texts))} test texts: what they are",
            range(len(texts))[:shown],
        ),
        (f"{len(wrong)} of {len(texts)} are wrong: what they are, as what", listed),
    ):
        draw.text((20 * SCALE, (y + 24) * SCALE), title, INK, font(15), anchor="lm")
        y += 40
        for index in part:
            _text(draw, y, texts[index], names, int(labels[index]), int(predictions[index]))
            y += LINE
        y += 4
    _save(image, path)


def _confusion(
    draw: ImageDraw.ImageDraw,
    names: Sequence[str],
    labels: NDArray[np.integer],
    predictions: NDArray[np.integer],
) -> None:
    """A table: a row for each class, a column for each answer."""
    at, wide = 160, 150
    draw.text((at * SCALE, 20 * SCALE), "answers", INK, font(13), anchor="lm")
    for i, name in enumerate(names):
        x = (at + wide * i + wide / 2) * SCALE
        draw.text((x, 42 * SCALE), name, INK, font(13), anchor="mm")
        y = 54 + 34 * i
        draw.text(((at - 10) * SCALE, (y + 17) * SCALE), name, INK, font(13), anchor="rm")
        total = max(1, int(np.sum(labels == i)))
        for j in range(len(names)):
            count = int(np.sum((labels == i) & (predictions == j)))
            box = (at + wide * j, y, at + wide * (j + 1) - 2, y + 32)
            # The more of a row, the darker; mistakes in orange.
            pure = (31, 95, 168) if i == j else (217, 115, 13)
            part = count / total
            colour = tuple(round(255 + (c - 255) * part) for c in pure)
            draw.rectangle([v * SCALE for v in box], colour, FAINT, SCALE)
            middle = ((box[0] + box[2]) / 2 * SCALE, (y + 16) * SCALE)
            ink = "white" if part > 0.5 else INK
            draw.text(middle, f"{count}  {part:.0%}", ink, font(13), anchor="mm")


def _text(
    draw: ImageDraw.ImageDraw, y: float, text: str, names: Sequence[str], label: int, guess: int
) -> None:
    right = label == guess
    name = names[label] if right else f"{names[label]} as {names[guess]}"
    plain = " ".join(text.split())
    draw.text((20 * SCALE, y * SCALE), name, INK if right else RED, font(10))
    draw.text((190 * SCALE, y * SCALE), plain[:SHOWN], INK, font(10))
