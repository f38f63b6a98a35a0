"""Rolls, windows, diagonals, splits, stacks and grids, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wgburn as wb

from .conftest import ints, rand

X = rand(3, 4, 5)

CASES: dict[str, Any] = {
    "roll": lambda m, x: (m.roll(x, 1, 0), m.roll(x, (1, -2), (1, 2)), m.roll(x, 7)),
    "tile": lambda m, x: (m.tile(x, (2,)), m.tile(x, (2, 1, 1, 2))),
    "repeat": lambda m, x: x.repeat(2, 1, 1, 2),
    "repeat_interleave": lambda m, x: (
        m.repeat_interleave(x, 2, 1),
        m.repeat_interleave(x, 3),
        m.repeat_interleave(x, m.tensor([1, 0, 2]), 0)
        if m is not wb
        else m.repeat_interleave(x, [1, 0, 2], 0),
    ),
    "unfold": lambda m, x: (x.unfold(1, 2, 1), x.unfold(-1, 3, 2), x.unfold(0, 3, 1)),
    "diagonal": lambda m, x: (
        m.diagonal(x),
        m.diagonal(x, 1, 1, 2),
        m.diagonal(x, -2, 2, 0),
        m.diagonal(x, offset=9),
    ),
    "diag_embed": lambda m, x: (
        m.diag_embed(x),
        m.diag_embed(x, 1, 0, 2),
        m.diag_embed(x, -2, 1, -1),
        m.diag_embed(x, 0, -1, -2),
    ),
    "diag": lambda m, x: (m.diag(x[0, 0]), m.diag(x[0], 1), m.diag(x[0], -1), m.diag(x[0, 0], -2)),
    "diagflat": lambda m, x: m.diagflat(x[0, :2, :2], 1),
    "trace": lambda m, x: m.trace(x[0]),
    "flips": lambda m, x: (m.fliplr(x), m.flipud(x)),
    "rot90": lambda m, x: [m.rot90(x, k, (0, 2)) for k in range(-2, 4)],
    "select": lambda m, x: (m.select(x, 1, 2), m.select(x, -1, -1)),
    "ravel": lambda m, x: m.ravel(x),
    "tensor_split": lambda m, x: (
        *m.tensor_split(x, 3, 2),
        *m.tensor_split(x, (1, 3), 1),
        *m.tensor_split(x, (-2,), 2),
    ),
    "splits": lambda m, x: (*m.hsplit(x, 2), *m.vsplit(x, 3), *m.dsplit(x, [1, 4])),
    "hstack": lambda m, x: (m.hstack([x[0], x[1]]), m.hstack([x[0, 0], x[0, 1]])),
    "vstack": lambda m, x: (m.vstack([x[0], x[1]]), m.vstack([x[0, 0], x[0, 1]])),
    "dstack": lambda m, x: (m.dstack([x[0], x[1]]), m.dstack([x[0, 0], x[0, 1]]), m.dstack([x, x])),
    "column_stack": lambda m, x: m.column_stack([x[0, :, 0], x[1]]),
    "row_stack": lambda m, x: m.row_stack([x[0, 0], x[1]]),
    "atleast": lambda m, x: (
        m.atleast_1d(x[0, 0, 0]),
        m.atleast_2d(x[0, 0]),
        m.atleast_3d(x[0]),
        *m.atleast_3d(x[0, 0], x[0, 0, 0]),
    ),
    "broadcast_tensors": lambda m, x: m.broadcast_tensors(x, x[:1, :, :1], x[0, 0]),
    "broadcast_to": lambda m, x: m.broadcast_to(x[0], (2, 4, 5)),
    "meshgrid": lambda m, x: (
        *m.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
        *m.meshgrid(x[0, 0], x[0, :, 0], x[:, 0, 0], indexing="xy"),
    ),
    "block_diag": lambda m, x: m.block_diag(x[0], x[0, 0], x[0, 0, 0], x[1, :2]),
    "swapdims": lambda m, x: (m.swapdims(x, 0, 2), m.movedim(x, (0, 1), (2, 0))),
    "unflatten": lambda m, x: m.unflatten(x, 1, (2, -1)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(same: Any, name: str) -> None:
    same(CASES[name], X)


def test_other_dtypes(same: Any) -> None:
    def case(m: Any, x: Any) -> Any:
        return (
            m.roll(x, 1, 1),
            m.diag_embed(x),
            m.diagonal(x),
            x.unfold(1, 2, 2),
            m.block_diag(x, x),
            m.rot90(x),
        )

    same(case, ints(3, 4))
    same(case, ints(3, 4, low=0, high=200, dtype=np.uint8))
    same(
        lambda m, x: (m.diag_embed(x), m.diagonal(x), m.roll(x, 1)),
        ints(3, 4, low=0, high=2).astype(bool),
    )


def test_small_shapes(same: Any) -> None:
    same(lambda m, x: (m.ravel(x), m.roll(x, 1), m.atleast_3d(x), m.tile(x, (2,))), rand())
    same(
        lambda m, x: (m.roll(x, 1, 1), m.diagonal(x), m.diag_embed(x), m.tile(x, (2, 1))),
        rand(2, 0),
        grad=False,
    )


def test_shapes_broadcast() -> None:
    assert wb.broadcast_shapes((2, 1), (3,), 3) == (2, 3)
    with pytest.raises(wb.ShapeError, match="broadcast_shapes"):
        wb.broadcast_shapes((2,), (3,))


def test_errors_say_what_is_wrong(device: wb.Device) -> None:
    x = wb.zeros(2, 3, device=device)
    for call, words in (
        (lambda: x.roll((1, 2), 0), "2 shifts for 1 dims"),
        (lambda: x.roll((1, 2)), "need dims"),
        (lambda: x.unfold(1, 4, 1), "size 4"),
        (lambda: x.diagonal(0, 1, 1), "two different"),
        (lambda: x[0].trace(), "matrix"),
        (lambda: wb.zeros(1, 2, 3, device=device).diag(), "vector or a matrix"),
        (lambda: x.repeat_interleave([1, 2, 3], 0), "3 numbers"),
        (lambda: wb.meshgrid(x), "vectors"),
        (lambda: wb.meshgrid(x[0], indexing="ji"), "'ij' or 'xy'"),
    ):
        with pytest.raises(wb.ShapeError, match=words):
            call()
    with pytest.raises(wb.DTypeError, match="tensors"):
        wb.broadcast_tensors(x, 1.0)
