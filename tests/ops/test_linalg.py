"""einsum in all its forms, tensordot and the vector products, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import wgburn as wb

from .conftest import ints, rand

EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ij,kj->ki", (3, 4), (5, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
    ("i,j->ij", (3,), (4,)),
    ("i,i->", (3,), (3,)),
    ("i,i", (3,), (3,)),
    ("ij,ij->j", (3, 4), (3, 4)),
    ("ij->ji", (3, 4)),
    ("ba", (3, 4)),
    ("ij->", (3, 4)),
    ("ij->i", (3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("iij->j", (3, 3, 4)),
    ("iji->ij", (3, 2, 3)),
    ("iii->i", (3, 3, 3)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (6, 1, 3, 4), (2, 4, 5)),
    ("i...,i...->...", (3, 4, 2), (3, 4, 2)),
    ("...ii->...i", (2, 3, 3)),
    ("b...d,dk->b...k", (2, 3, 5, 4), (4, 6)),
    ("...j,j", (2, 3, 4), (4,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("bn,anm,bm->ba", (2, 4), (3, 4, 5), (2, 5)),
    ("ab,ab,ab->ab", (2, 3), (2, 3), (2, 3)),
    ("ij,kl->ijkl", (2, 3), (4, 2)),
    ("ij,kl->jl", (2, 3), (4, 2)),
    ("Ab,bC", (2, 3), (3, 4)),
    ("i j , j k -> i k", (2, 3), (3, 4)),
    ("ij,jk->ik", (3, 1), (4, 5)),
    ("ij,ij->ij", (3, 1), (3, 4)),
    (",ij->ij", (), (2, 3)),
    ("ij,jk->ik", (0, 4), (4, 5)),
    ("ij,jk->ik", (3, 0), (0, 5)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda c: f"{c[0]} {c[1:]}")
def test_einsum(same: Any, case: Any) -> None:
    equation, *shapes = case
    arrays = [rand(*s, seed=i) for i, s in enumerate(shapes)]
    same(lambda m, *xs: m.einsum(equation, *xs), *arrays)


def test_einsum_by_lists_and_of_lists(same: Any) -> None:
    def case(m: Any, a: Any, b: Any) -> Any:
        return (
            m.einsum(a, [0, 1], b, [1, 2], [2, 0]),
            m.einsum(a, [0, 1], b, [1, 2]),
            m.einsum(a, [..., 1], b, [1, 2], [..., 2]),
            m.einsum("ij,jk->ik", [a, b]),
        )

    same(case, rand(3, 4), rand(4, 5))


def test_einsum_of_integers(same: Any) -> None:
    same(lambda m, a, b: m.einsum("ij,jk->ki", a, b), ints(3, 4), ints(4, 5), grad=False)


@pytest.mark.parametrize(
    "equation,shapes,words",
    [
        ("ij,jk->ik", [(3, 4), (5, 6)], "'j' is 4 in one"),
        ("ij->ik", [(3, 4)], "no operand"),
        ("ij,jk->ik", [(3, 4)], "names 2 operands, 1"),
        ("ijk->i", [(3, 4)], "does not describe"),
        ("ij->ii", [(3, 3)], "twice"),
        ("i1->i", [(3, 3)], "does not describe"),
    ],
)
def test_einsum_refuses(device: wb.Device, equation: str, shapes: Any, words: str) -> None:
    with pytest.raises(wb.ShapeError, match=words):
        wb.einsum(equation, *[wb.zeros(s, device=device) for s in shapes])


PRODUCTS: dict[str, Any] = {
    "tensordot": (lambda m, a, b: m.tensordot(a, b), (2, 3, 4), (3, 4, 5)),
    "tensordot 0": (lambda m, a, b: m.tensordot(a, b, 0), (2, 3), (4,)),
    "tensordot lists": (
        lambda m, a, b: m.tensordot(a, b, dims=([0, -1], [1, 0])),
        (2, 3, 4),
        (4, 2, 5),
    ),
    "outer": (lambda m, a, b: m.outer(a, b), (3,), (4,)),
    "inner": (lambda m, a, b: m.inner(a, b), (2, 4), (3, 4)),
    "vdot": (lambda m, a, b: m.vdot(a, b), (4,), (4,)),
    "mv": (lambda m, a, b: m.mv(a, b), (3, 4), (4,)),
    "kron": (lambda m, a, b: m.kron(a, b), (2, 3), (3, 2)),
    "kron ranks": (lambda m, a, b: m.kron(a, b), (2, 3, 2), (2,)),
    "cross": (lambda m, a, b: m.cross(a, b, dim=1), (4, 3), (4, 3)),
    "addmm": (
        lambda m, a, b: m.addmm(a[:, :1] * 2, a, b, beta=0.5, alpha=2),
        (3, 4),
        (4, 5),
    ),
    "addmm beta 0": (lambda m, a, b: m.addmm(a[:, :1].detach(), a, b, beta=0), (3, 4), (4, 5)),
    "addmv": (lambda m, a, b: m.addmv(a[:, 0], a, b), (3, 4), (4,)),
    "addr": (lambda m, a, b: m.addr(a[:, :1], a[:, 0], b, alpha=3), (3, 4), (4,)),
    "baddbmm": (lambda m, a, b: m.baddbmm(a[:, :, :1], a, b), (2, 3, 4), (2, 4, 5)),
    "addbmm": (lambda m, a, b: m.addbmm(a[0, :, :1], a, b), (2, 3, 4), (2, 4, 5)),
    "chain_matmul": (
        lambda m, a, b: (
            m.chain_matmul(a, b, b.T, b) if m is wb else m.linalg.multi_dot([a, b, b.T, b])
        ),
        (3, 4),
        (4, 5),
    ),
    "matrix_power": (
        lambda m, a, b: (m.matrix_power(a, 0) * 1, m.matrix_power(a, 3), m.matrix_power(b, 6)),
        (3, 3),
        (2, 2, 2),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(same: Any, name: str) -> None:
    case, *shapes = PRODUCTS[name]
    same(case, *[rand(*s, seed=i) for i, s in enumerate(shapes)], tol=1e-4)


def test_infinite_input_of_addmm_is_ignored_with_beta_0(device: wb.Device) -> None:
    bad = wb.full((2, 2), float("nan"), device=device)
    got = wb.addmm(bad, wb.eye(2, device=device), wb.ones(2, 2, device=device), beta=0)
    np.testing.assert_array_equal(got.numpy(), np.ones((2, 2)))


def test_errors_name_the_shapes(device: wb.Device) -> None:
    x = wb.zeros(2, 3, device=device)
    for call, words in (
        (lambda: wb.tensordot(x, x.T), "equal sizes"),
        (lambda: wb.tensordot(x, x, 3), "dims=3"),
        (lambda: x.outer(x), "two vectors"),
        (lambda: x.cross(x, dim=0), "must be 3"),
        (lambda: x.matrix_power(2), "square"),
        (lambda: x.mv(x), "matrix and a vector"),
    ):
        with pytest.raises(wb.ShapeError, match=words):
            call()
