"""The pictures of examples/mnist.py: scales, and that wrong digits are marked."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
pictures = pytest.importorskip("pictures")

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("low, high", [(0, 1), (0, 5), (0.78, 1.0), (0, 2.41), (0, 40), (-3, 7)])
def test_ticks_are_round_and_inside(low, high):
    ticks = pictures.nice_ticks(low, high)
    assert 3 <= len(ticks) <= 12
    assert all(low - 1e-9 <= t <= high + 1e-9 for t in ticks)
    steps = np.diff(ticks)
    np.testing.assert_allclose(steps, steps[0])
    assert all(len(f"{t:g}") <= 5 for t in ticks)


def test_smoothing_is_a_running_mean():
    assert pictures.smooth([1, 2, 3, 4], 2) == [1, 1.5, 2.5, 3.5]
    assert pictures.smooth([5], 3) == [5]


def red_pixels(path):
    rgb = np.asarray(Image.open(path)).astype(int)
    return int(((rgb[..., 0] > 180) & (rgb[..., 1] < 90) & (rgb[..., 2] < 90)).sum())


def test_wrong_digits_are_red(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (150, 28, 28)).astype(np.uint8)
    labels = np.arange(150) % 10
    guesses = labels.copy()
    pictures.draw_digits(tmp_path / "right.png", images, labels, guesses)
    assert red_pixels(tmp_path / "right.png") == 0
    guesses[3] = 9
    pictures.draw_digits(tmp_path / "one.png", images, labels, guesses)
    guesses[[7, 140]] = 0
    pictures.draw_digits(tmp_path / "three.png", images, labels, guesses)
    one, three = red_pixels(tmp_path / "one.png"), red_pixels(tmp_path / "three.png")
    assert 400 < one < three


def test_curves_follow_the_numbers(tmp_path):
    path = tmp_path / "c.png"
    pictures.draw_curves(path, [2.0, 1.0, float("nan"), 0.5], [0.5, 0.9], [0.6, 0.95])
    rgb = np.asarray(Image.open(path)).astype(int)
    blue = (rgb[..., 2] - rgb[..., 0] > 80) & (rgb[..., 0] < 80)
    ys, xs = np.nonzero(blue[:, 540:930])
    # The test curve rises: its right end is above its left end.
    assert ys[xs == xs.min()].mean() > ys[xs == xs.max()].mean() + 50
