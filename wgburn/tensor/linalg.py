"""Products of tensors: einsum and its relatives. All end in matmul and broadcast multiplication."""

from __future__ import annotations

import string
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ..core.errors import ShapeError
from ..core.shape import axis, broadcast
from . import bridge

if TYPE_CHECKING:
    from .tensor import Tensor


class Linalg:
    """Vector and matrix products beside `matmul`."""

    __slots__ = ()

    def outer(self: Any, vec2: Any) -> Tensor:
        """The products of all pairs of two vectors."""
        if self.ndim != 1 or vec2.ndim != 1:
            raise ShapeError(f"outer takes two vectors, got {self.shape} and {vec2.shape}")
        return self.unsqueeze(1) * vec2.unsqueeze(0)

    ger = outer

    def inner(self: Any, other: Any) -> Tensor:
        """Sums of products over the last dimension of both; plain product with a scalar."""
        if not self.ndim or not other.ndim:
            return self * other
        return tensordot(self, other, ([self.ndim - 1], [other.ndim - 1]))

    def vdot(self: Any, other: Any) -> Tensor:
        return self.dot(other)

    def mv(self: Any, vec: Any) -> Tensor:
        """Matrix times vector."""
        if self.ndim != 2 or vec.ndim != 1:
            raise ShapeError(f"mv takes a matrix and a vector, got {self.shape} and {vec.shape}")
        return self @ vec

    def addmm(self: Any, mat1: Any, mat2: Any, beta: float = 1, alpha: float = 1) -> Tensor:
        """beta * self + alpha * (mat1 @ mat2). With beta 0, self is ignored."""
        return _added(self, mat1 @ mat2, beta, alpha)

    baddbmm = addmm

    def addmv(self: Any, mat: Any, vec: Any, beta: float = 1, alpha: float = 1) -> Tensor:
        return _added(self, mat.mv(vec), beta, alpha)

    def addr(self: Any, vec1: Any, vec2: Any, beta: float = 1, alpha: float = 1) -> Tensor:
        return _added(self, vec1.outer(vec2), beta, alpha)

    def addbmm(self: Any, batch1: Any, batch2: Any, beta: float = 1, alpha: float = 1) -> Tensor:
        """As addmm, with the products of a batch summed."""
        return _added(self, (batch1 @ batch2).sum(0), beta, alpha)

    def matrix_power(self: Any, n: int) -> Tensor:
        """A square matrix times itself n times; n >= 0."""
        if self.ndim < 2 or self.shape[-1] != self.shape[-2] or n < 0:
            raise ShapeError(
                f"matrix_power takes square matrices and n >= 0, got {self.shape}, n={n}"
            )
        if n == 0:
            size = self.shape[-1]
            return self.ones_of((size,)).diag().expand(self.shape)
        out: Any = None
        square = self
        while n:
            if n & 1:
                out = square if out is None else out @ square
            n >>= 1
            square = square @ square if n else square
        return out

    def cross(self: Any, other: Any, dim: int = -1) -> Tensor:
        """The vector product along a dimension of 3."""
        both = broadcast("cross", self.shape, other.shape)
        d = axis("cross", dim, len(both))
        if not both or both[d] != 3:
            raise ShapeError(f"cross: dim {dim} of {self.shape} and {other.shape} must be 3")
        a, b = self.expand(both), other.expand(both)
        return a.roll(-1, d) * b.roll(-2, d) - a.roll(-2, d) * b.roll(-1, d)

    def kron(self: Any, other: Any) -> Tensor:
        """Blocks of other times each element of self."""
        rank = max(self.ndim, other.ndim)
        a = self.reshape((1,) * (rank - self.ndim) + self.shape)
        b = other.reshape((1,) * (rank - other.ndim) + other.shape)
        wide = a.reshape(tuple(x for n in a.shape for x in (n, 1)))
        wide = wide * b.reshape(tuple(x for n in b.shape for x in (1, n)))
        return wide.reshape(tuple(n * m for n, m in zip(a.shape, b.shape, strict=True)))


def _added(base: Any, product: Any, beta: float, alpha: float) -> Any:
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product.expand(broadcast("addmm", base.shape, product.shape))
    return (base if beta == 1 else base * beta) + product


def tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    """Sums of products over `dims`: how many (last of a with first of b), or a list for each."""
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise ShapeError(f"tensordot: dims={dims} for {a.shape} and {b.shape}")
        left, right = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        first, second = dims
        left = [
            axis("tensordot", d, a.ndim) for d in ([first] if isinstance(first, int) else first)
        ]
        right = [
            axis("tensordot", d, b.ndim) for d in ([second] if isinstance(second, int) else second)
        ]
    sizes = [a.shape[d] for d in left]
    if len(left) != len(right) or sizes != [b.shape[d] for d in right]:
        raise ShapeError(
            f"tensordot: dims {left} of {a.shape} and {right} of {b.shape} must have equal sizes"
        )
    keep_a = [i for i in range(a.ndim) if i not in left]
    keep_b = [i for i in range(b.ndim) if i not in right]
    shape_a, shape_b = [a.shape[i] for i in keep_a], [b.shape[i] for i in keep_b]
    rows = a.permute((*keep_a, *left)).reshape((prod(shape_a), prod(sizes)))
    cols = b.permute((*right, *keep_b)).reshape((prod(sizes), prod(shape_b)))
    return (rows @ cols).reshape((*shape_a, *shape_b))


def multi_dot(tensors: Sequence[Any]) -> Any:
    """The product of several matrices, in the order that costs least."""
    items = list(tensors)
    if not items:
        raise ShapeError("multi_dot of no matrices")
    row, column = items[0].ndim == 1, items[-1].ndim == 1
    if row:
        items[0] = items[0].unsqueeze(0)
    if column:
        items[-1] = items[-1].unsqueeze(1)
    n = len(items)
    size = [items[0].shape[0], *(t.shape[-1] for t in items)]
    cost = [[0] * n for _ in range(n)]
    cut = [[0] * n for _ in range(n)]
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            cost[i][j], cut[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1], k)
                for k in range(i, j)
            )

    def multiply(i: int, j: int) -> Any:
        if i == j:
            return items[i]
        return multiply(i, cut[i][j]) @ multiply(cut[i][j] + 1, j)

    out = multiply(0, n - 1)
    out = out.squeeze(0) if row else out
    return out.squeeze(-1) if column else out


def chain_matmul(*matrices: Any) -> Any:
    return multi_dot(matrices)


# -- einsum ---------------------------------------------------------------------------------------

#: Labels as ints: letters from 0, dimensions of the ellipsis from the right as -1, -2, ...
Labels = list[int]
_LETTERS = string.ascii_letters


def einsum(equation: Any, *operands: Any) -> Any:
    """Sums of products by Einstein's convention: wb.einsum("bij,bjk->bik", a, b).

    Repeated indices of an operand take its diagonal, "..." broadcasts, without "->" the output has
    the indices that occur once, in alphabetical order. Also einsum(a, [0, 1], b, [1, 2], [0, 2]).
    Raises ShapeError naming the index whose sizes differ.
    """
    equation, tensors = _sublists(equation, operands)
    terms, result = _parsed(equation, tensors)
    sizes: dict[int, int] = {}
    for labels, t in zip(terms, tensors, strict=True):
        for label, n in zip(labels, t.shape, strict=True):
            if sizes.setdefault(label, n) != n and n != 1:
                if sizes[label] != 1:
                    raise ShapeError(
                        f"einsum {equation!r}: index {_name(label)} is {sizes[label]} in one "
                        f"operand and {n} in another"
                    )
                sizes[label] = n
    items = [_plain(t, labels, sizes) for t, labels in zip(tensors, terms, strict=True)]
    out, have = items[0]
    for i, (t, labels) in enumerate(items[1:], 2):
        later = set(result).union(*(which for _, which in items[i:]))
        out, have = _contracted(out, have, t, labels, later)
    drop = tuple(i for i, label in enumerate(have) if label not in result)
    if drop:
        out = out.sum(drop)
        have = [label for label in have if label in result]
    # What every operand had as 1 was left out; it comes back where the result names it.
    missing = [label for label in result if label not in have]
    out = out.reshape((*out.shape, *([1] * len(missing))))
    have = have + missing
    return out.permute(tuple(have.index(label) for label in result)) if result else out


def _sublists(equation: Any, operands: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """Both calling forms as an equation in letters and tensors."""
    if isinstance(equation, str):
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = tuple(operands[0])
        return equation.replace(" ", ""), list(operands)
    parts = (equation, *operands)
    tensors = list(parts[: len(parts) // 2 * 2 : 2])

    def text(labels: Any) -> str:
        return "".join("..." if i is Ellipsis else _LETTERS[i] for i in labels)

    out = ",".join(text(labels) for labels in parts[1 : 2 * len(tensors) : 2])
    if len(parts) % 2:
        out += "->" + text(parts[-1])
    return out, tensors


def _parsed(equation: str, tensors: list[Any]) -> tuple[list[Labels], Labels]:
    """Labels of each operand's dimensions and of the result's."""
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(tensors):
        raise ShapeError(
            f"einsum {equation!r} names {len(texts)} operands, {len(tensors)} were given"
        )
    terms: list[Labels] = []
    widest = 0
    for text, t in zip(texts, tensors, strict=True):
        letters = text.replace("...", "", 1)
        hidden = t.ndim - len(letters)
        if any(c not in _LETTERS for c in letters) or ("..." not in text and hidden) or hidden < 0:
            raise ShapeError(f"einsum {equation!r}: {text!r} does not describe shape {t.shape}")
        widest = max(widest, hidden)
        before = text.find("...") if "..." in text else len(letters)
        dots = list(range(-hidden, 0))
        names = [_LETTERS.index(c) for c in letters]
        terms.append([*names[:before], *dots, *names[before:]])
    ellipsis = list(range(-widest, 0))
    if not arrow:
        count: dict[int, int] = {}
        for labels in terms:
            for label in labels:
                count[label] = count.get(label, 0) + 1
        # torch sorts capitals first, as their codes are.
        once = [i for i, n in count.items() if n == 1 and i >= 0]
        return terms, [*ellipsis, *sorted(once, key=lambda i: _LETTERS[i])]
    letters = right.replace("...", "", 1)
    known = {label for labels in terms for label in labels}
    if any(c not in _LETTERS or _LETTERS.index(c) not in known for c in letters):
        raise ShapeError(f"einsum {equation!r}: the output names an index that no operand has")
    if len(set(letters)) != len(letters):
        raise ShapeError(f"einsum {equation!r}: the output names an index twice")
    names = [_LETTERS.index(c) for c in letters]
    if "..." in right:
        before = right.find("...")
        return terms, [*names[:before], *ellipsis, *names[before:]]
    return terms, names


def _name(label: int) -> str:
    return repr(_LETTERS[label]) if label >= 0 else f"{label} of '...'"


def _plain(t: Any, labels: Labels, sizes: dict[int, int]) -> tuple[Any, Labels]:
    """An operand with each label once, and none that only broadcasts here."""
    labels = list(labels)
    i = 0
    while i < len(labels):
        again = [j for j in range(i + 1, len(labels)) if labels[j] == labels[i]]
        if again:
            label = labels[i]
            t = t.diagonal(0, i, again[0])
            labels = [x for k, x in enumerate(labels) if k not in (i, again[0])] + [label]
        else:
            i += 1
    ones = tuple(i for i, x in enumerate(labels) if t.shape[i] == 1 and sizes[x] != 1)
    if ones:
        t = t.squeeze(ones)
        labels = [x for i, x in enumerate(labels) if i not in ones]
    return t, labels


def _contracted(a: Any, la: Labels, b: Any, lb: Labels, later: set[int]) -> tuple[Any, Labels]:
    """The product of two operands, with the labels summed that nothing needs later."""
    found = bridge.pair("einsum", a, b)
    assert found is not None
    a, b = found
    # A label of one operand alone is summed before the product.
    for which in (0, 1):
        t, mine, other = ((a, la, lb), (b, lb, la))[which]
        alone = tuple(i for i, x in enumerate(mine) if x not in other and x not in later)
        if alone:
            t, mine = t.sum(alone), [x for i, x in enumerate(mine) if i not in alone]
            a, la, b, lb = (t, mine, b, lb) if which == 0 else (a, la, t, mine)
    batch = [x for x in la if x in lb and x in later]
    inner = [x for x in la if x in lb and x not in later]
    rows = [x for x in la if x not in lb]
    cols = [x for x in lb if x not in la]
    size = dict(zip(la, a.shape, strict=True)) | dict(zip(lb, b.shape, strict=True))
    a = a.permute(tuple(la.index(x) for x in (*batch, *rows, *inner)))
    b = b.permute(tuple(lb.index(x) for x in (*batch, *inner, *cols)))
    lead = [size[x] for x in batch]
    shape = [size[x] for x in (*batch, *rows, *cols)]
    if not inner:
        a = a.reshape((*a.shape, *([1] * len(cols))))
        b = b.reshape((*lead, *([1] * len(rows)), *(size[x] for x in cols)))
        return a * b, [*batch, *rows, *cols]
    m, k, n = (prod(size[x] for x in group) for group in (rows, inner, cols))
    out = a.reshape((*lead, m, k)) @ b.reshape((*lead, k, n))
    return out.reshape(tuple(shape)), [*batch, *rows, *cols]


__all__ = ["Linalg", "chain_matmul", "einsum", "multi_dot", "tensordot"]
