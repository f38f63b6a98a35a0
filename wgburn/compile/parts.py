"""Parts: how a heavy op on the host falls into pieces that run on all cores at the same time.

Owns: which axes are cut, and from which size on that pays. Must not know: threads, numpy rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

Shape = tuple[int, ...]


class Threads(NamedTuple):
    """The threads of a device. `products`: a matrix product runs on the thread that calls it, so
    that several can run at once; elsewhere the library shares them by itself."""

    number: int = 1
    products: bool = True

    def divide(self, name: str) -> bool:
        """Whether calls of an op on several threads run at the same time."""
        return self.number > 1 and (self.products or name != "matmul")


ONE = Threads()


class Cut(NamedTuple):
    """Independent pieces of an op: the axis of each input that is cut (None: every piece reads it
    whole), and the axis of the result; joins=False: the pieces' results add up."""

    inputs: tuple[int | None, ...]
    axis: int = 0
    joins: bool = True
    #: What each piece takes of the axis.
    pieces: tuple[slice, ...] = ()


#: Samples of a batch are independent in convolutions and pools.
SAMPLES = {
    "conv": Cut((0, None)),
    "conv_input_grad": Cut((0, None)),
    "conv_weight_grad": Cut((0, 0), joins=False),
    "max_pool": Cut((0,)),
    "max_pool_index": Cut((0,)),
    "max_pool_grad": Cut((0, 0)),
    "avg_pool": Cut((0,)),
    "avg_pool_grad": Cut((0,)),
}
#: Elements read and written below which a second thread does not pay; multiplications for products.
ELEMENTS = 1 << 17
PRODUCTS = 1 << 24
#: Multiplications that a core does until a helper has woken and told that it is done.
LATE = 6e6


def multiplications(shape: Shape, first: Shape) -> int:
    """Those of a matrix product with this result and first operand."""
    return prod(shape) * first[-1]


def _product_cut(shape: Shape, shapes: Sequence[Shape]) -> Cut:
    """Rows are independent in a matrix product, and so are the products of a batch."""
    rank = len(shape)
    axis = max(range(rank - 1), key=shape.__getitem__) - rank
    a, b = (axis if len(s) >= -axis and s[axis] != 1 else None for s in shapes)
    return Cut((a, b if axis < -2 else None), axis)


def cut_of(name: str, shape: Shape, shapes: Sequence[Shape], threads: Threads) -> Cut | None:
    """The pieces of an op with this result and these inputs; None where cutting would not pay."""
    if not threads.divide(name):
        return None
    late = 0.0
    if name == "matmul":
        work = multiplications(shape, shapes[0])
        if work < PRODUCTS:
            return None
        cut = _product_cut(shape, shapes)
        late = LATE / work
    else:
        found = SAMPLES.get(name)
        if found is None or sum(map(prod, shapes)) + prod(shape) < ELEMENTS:
            return None
        cut = found
    extent = (shape if cut.joins else shapes[0])[cut.axis]
    if extent < 2 * threads.number:
        return None
    # The thread that asks begins at once, the helpers a little later: its piece is larger.
    first = min(round(extent * (1 + late * (threads.number - 1)) / threads.number), extent - 1)
    step = -(-(extent - first) // (threads.number - 1))
    rest = (slice(lo, min(lo + step, extent)) for lo in range(first, extent, step))
    return cut._replace(pieces=(slice(0, first), *rest))
