"""Random graphs for the property test: each a list of steps with its values in numpy.

A step is kept only if float32 decides it surely: magnitudes stay small, whatever jumps (max, relu,
conversions) is far from where it jumps. So a wrong result is a wrong kernel, never rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np

import wgburn as wb
import wgburn.nn.functional as F

#: Elements a value may have; large enough for several workgroups.
MOST = 3000
#: Distance from a tie or a jump that rounding never bridges.
MARGIN = 1e-2


@dataclass
class Step:
    """One op: how wgburn and numpy compute it from earlier values."""

    name: str
    args: tuple[int, ...]
    ours: object
    numpy: object


@dataclass
class RandomGraph:
    """Leaves, steps and outputs; `values` are numpy's (float64 for floats)."""

    leaves: list[np.ndarray]
    steps: list[Step] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def run(self, device, gradients=False):
        """Outputs (and gradients of the float leaves) on a device, as arrays."""
        tensors = []
        for a in self.leaves:
            t = wb.tensor(a.astype(np.float32) if a.dtype == np.float64 else a, device=device)
            tensors.append(t.requires_grad_() if gradients and a.dtype == np.float64 else t)
        leaves = list(tensors)
        for s in self.steps:
            tensors.append(s.ours(*[tensors[i] for i in s.args]))
        outputs = [tensors[i] for i in self.outputs]
        del tensors
        found = []
        floats = [o for o in outputs if o.requires_grad]
        if gradients and floats:
            loss = sum((o * (k + 1)).mean() for k, o in enumerate(floats))
            loss.backward()
            found = [t.grad for t in leaves if t.grad is not None]
        wb.eval(*outputs, *found)
        return [t.numpy() for t in outputs], [g.numpy() for g in found]

    def __str__(self):
        lines = [f"{i}: leaf {a.dtype}{list(a.shape)}" for i, a in enumerate(self.leaves)]
        for k, s in enumerate(self.steps, len(self.leaves)):
            v = self.values[k]
            lines.append(f"{k}: {s.name}{list(s.args)} -> {v.dtype}{list(v.shape)}")
        return "\n".join([*lines, f"outputs {self.outputs}"])


class Maker:
    """Makes one graph from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = tuple(
            int(n) for n in self.rng.choice([1, 2, 3, 4, 5, 8, 16, 33], self.small())
        )
        leaves = [self.floats(self.shape), self.floats(self.aligned(self.shape))]
        if self.chance(0.6):
            leaves.append(self.rng.integers(-9, 9, self.shape).astype(np.int32))
        if self.chance(0.5):
            leaves.append(self.rng.random(self.aligned(self.shape)) < 0.5)
        if self.chance(0.3):
            leaves.append(self.rng.integers(-9, 9, self.shape).astype(np.int8))
        if self.chance(0.3):
            leaves.append(self.floats((self.shape[-1], int(self.rng.integers(1, 9)))))
        self.graph = RandomGraph(leaves, values=list(leaves))

    def small(self) -> int:
        return int(self.rng.choice([1, 2, 2, 3, 3, 4]))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def floats(self, shape):
        """Distinct values, none near 0."""
        n = prod(shape)
        ranks = self.rng.permutation(n) + 1.0
        signs = self.rng.choice([-1.0, 1.0], n)
        return (
            (signs * (0.2 + 1.3 * ranks / (n + 1))).astype(np.float32).reshape(shape).astype(float)
        )

    def aligned(self, shape):
        """A shape that broadcasts against another."""
        cut = int(self.rng.integers(0, len(shape)))
        return tuple(1 if self.chance(0.25) else n for n in shape[cut if self.chance(0.3) else 0 :])

    def pick(self, kinds="f"):
        """A value of some dtype kind, the latest ones more often."""
        own = [i for i, v in enumerate(self.graph.values) if v.dtype.kind in kinds]
        if not own:
            return None
        weights = np.arange(1, len(own) + 1.0) ** 1.5
        return int(self.rng.choice(own, p=weights / weights.sum()))

    def fits(self, i, kinds="f"):
        """A value that broadcasts against value i."""
        own = []
        for j, v in enumerate(self.graph.values):
            if v.dtype.kind in kinds:
                try:
                    shape = np.broadcast_shapes(v.shape, self.graph.values[i].shape)
                except ValueError:
                    continue
                if prod(shape) <= MOST:
                    own.append(j)
        return int(self.rng.choice(own)) if own else None

    def add(self, name, args, ours, numpy) -> bool:
        """Keep a step if its value is safe."""
        with np.errstate(all="ignore"):
            v = numpy(*[self.graph.values[i] for i in args])
        if v.dtype.kind == "f":
            v = v.astype(np.float64)
            if v.size and not (np.isfinite(v).all() and np.abs(v).max() < 30):
                return False
        elif v.dtype.kind == "i":
            most = 100 if v.dtype == np.int8 else 1 << 24
            if v.size and np.abs(v.astype(np.int64)).max() > most:
                return False
        if v.size > MOST:
            return False
        self.graph.steps.append(Step(name, tuple(args), ours, numpy))
        self.graph.values.append(v)
        return True

    # -- families ---------------------------------------------------------------------------------
    def unary(self):
        i = self.pick()
        v = self.graph.values[i]
        table = {
            "tanh": (lambda x: x.tanh(), np.tanh),
            "sin": (lambda x: x.sin(), np.sin),
            "sigmoid": (lambda x: x.sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
            "neg": (lambda x: -x, np.negative),
            "square": (lambda x: x * x, np.square),
            "scaled": (lambda x: x * 0.37 + 0.25, lambda x: x * 0.37 + 0.25),
            "soft root": (lambda x: (x * x + 1).sqrt(), lambda x: np.sqrt(x * x + 1)),
            "small exp": (lambda x: (x * 0.1).exp(), lambda x: np.exp(x * 0.1)),
            "log": (lambda x: (x * x + 0.5).log(), lambda x: np.log(x * x + 0.5)),
            "inverse": (lambda x: 1 / (x * x + 1), lambda x: 1 / (x * x + 1)),
        }
        if v.size and np.abs(v).min() > MARGIN:
            table["relu"] = (lambda x: x.relu(), lambda x: np.maximum(x, 0))
            table["abs"] = (lambda x: x.abs(), np.abs)
        name = str(self.rng.choice(list(table)))
        return self.add(name, [i], *table[name])

    def binary(self):
        i = self.pick()
        j = self.fits(i)
        if j is None:
            return False
        a, b = self.graph.values[i], self.graph.values[j]
        table = {
            "add": (lambda x, y: x + y, np.add),
            "sub": (lambda x, y: x - y, np.subtract),
            "mul": (lambda x, y: x * y, np.multiply),
            "quotient": (lambda x, y: x / (y * y + 1), lambda x, y: x / (y * y + 1)),
        }
        if i != j and a.size and b.size and np.abs(a - b).min() > MARGIN:
            table["maximum"] = (lambda x, y: x.maximum(y), np.maximum)
            table["less"] = (lambda x, y: x < y, np.less)
        name = str(self.rng.choice(list(table)))
        return self.add(name, [i, j], *table[name])

    def choose(self):
        c = self.pick("b")
        if c is None:
            return False
        i = self.fits(c)
        j = None if i is None else self.fits(i)
        if j is None:
            return False
        try:
            np.broadcast_shapes(*(self.graph.values[k].shape for k in (c, i, j)))
        except ValueError:
            return False
        return self.add("where", [c, i, j], lambda c, x, y: wb.where(c, x, y), np.where)

    def whole(self):
        """Integers and booleans."""
        i = self.pick("ib")
        if i is None:
            return False
        v = self.graph.values[i]
        if v.dtype.kind == "b":
            table = {
                "not": (lambda x: ~x, np.logical_not),
                "as float": (lambda x: x.to(wb.float32), lambda x: x.astype(np.float64)),
                "as int": (lambda x: x.to(wb.int32), lambda x: x.astype(np.int32)),
            }
        else:
            kind = v.dtype.type
            table = {
                "plus": (lambda x: x + 3, lambda x: x + kind(3)),
                "double": (lambda x: x * 2, lambda x: x * kind(2)),
                "positive": (lambda x: x > 0, lambda x: x > 0),
                "as float": (
                    lambda x: x.to(wb.float32) * 0.1,
                    lambda x: x.astype(np.float64) * 0.1,
                ),
                "as int": (lambda x: x.to(wb.int32), lambda x: x.astype(np.int32)),
            }
            if v.size and np.abs(v.astype(int)).max() < 50:
                table["as int8"] = (lambda x: x.to(wb.int8), lambda x: x.astype(np.int8))
        name = str(self.rng.choice(list(table)))
        return self.add(name, [i], *table[name])

    def whole_pair(self):
        i = self.pick("ib")
        if i is None:
            return False
        v = self.graph.values[i]
        j = self.fits(i, v.dtype.kind)
        if j is None or self.graph.values[j].dtype != v.dtype:
            return False
        if v.dtype.kind == "b":
            table = {
                "and": (lambda x, y: x & y, np.logical_and),
                "xor": (lambda x, y: x ^ y, np.logical_xor),
            }
        else:
            table = {
                "add": (lambda x, y: x + y, np.add),
                "equal": (lambda x, y: x == y, np.equal),
                "maximum": (lambda x, y: x.maximum(y), np.maximum),
            }
        name = str(self.rng.choice(list(table)))
        return self.add(name, [i, j], *table[name])

    def view(self):
        i = self.pick("fffffib")
        v = self.graph.values[i]
        names = ["reshape", "permute", "slice", "flip", "flat", "new dim", "expand"]
        name = str(self.rng.choice(names))
        if name == "permute":
            order = tuple(int(d) for d in self.rng.permutation(v.ndim))
            return self.add(name, [i], lambda x: x.permute(*order), lambda x: x.transpose(order))
        if name == "slice":
            key = tuple(self.cut(n) for n in v.shape)
            return self.add(f"{name} {key}", [i], lambda x: x[key], lambda x: x[key])
        if name == "flip":
            axes = tuple(d for d in range(v.ndim) if self.chance(0.5))
            return self.add(name, [i], lambda x: x.flip(axes), lambda x: np.flip(x, axes))
        if name == "flat":
            return self.add(name, [i], lambda x: x.reshape(-1), lambda x: x.reshape(-1))
        if name == "new dim":
            at = int(self.rng.integers(0, v.ndim + 1))
            if v.ndim > 4:
                return False
            return self.add(name, [i], lambda x: x.unsqueeze(at), lambda x: np.expand_dims(x, at))
        if name == "expand":
            if v.ndim > 4:
                return False
            shape = (2, *(3 if n == 1 else n for n in v.shape))
            return self.add(
                name, [i], lambda x: x.expand(*shape), lambda x: np.broadcast_to(x, shape)
            )
        shape = self.factors(v.size)
        return self.add(name, [i], lambda x: x.reshape(*shape), lambda x: x.reshape(shape))

    def cut(self, n):
        start = int(self.rng.integers(0, max(1, n // 2 + 1))) if self.chance(0.4) else 0
        step = int(self.rng.choice([1, 1, 2, 3]))
        return slice(min(start, n - 1) if n else 0, None, step)

    def factors(self, n):
        """A shape of n elements."""
        shape = []
        while n > 1 and len(shape) < 4:
            found = [k for k in range(2, n + 1) if n % k == 0]
            k = int(self.rng.choice(found))
            shape.append(k)
            n //= k
        return (*shape, n) if n != 1 or not shape else tuple(shape)

    def joined(self):
        i = self.pick("fffib")
        v = self.graph.values[i]
        if v.ndim == 0:
            return False
        if self.chance(0.5):
            wide = [(int(self.rng.integers(0, 3)), int(self.rng.integers(0, 2))) for _ in v.shape]
            flat = tuple(n for pair in reversed(wide) for n in pair)
            fill = True if v.dtype.kind == "b" else 1
            return self.add(
                "pad",
                [i],
                lambda x: F.pad(x, flat, value=fill),
                lambda x: np.pad(x, wide, constant_values=fill),
            )
        same = [
            j
            for j, w in enumerate(self.graph.values)
            if w.dtype == v.dtype and w.shape[1:] == v.shape[1:] and w.ndim == v.ndim
        ]
        j = int(self.rng.choice(same))
        return self.add(
            "cat", [i, j], lambda x, y: wb.cat([x, y], 0), lambda x, y: np.concatenate([x, y], 0)
        )

    def reduction(self):
        i = self.pick("ffffib")
        v = self.graph.values[i]
        if v.ndim == 0 or v.size == 0:
            return False
        axes = tuple(d for d in range(v.ndim) if self.chance(0.5)) or (v.ndim - 1,)
        keep = self.chance(0.5)
        n = prod(v.shape[d] for d in axes)
        if v.dtype.kind == "b":
            return self.add(
                "any",
                [i],
                lambda x: x.any(axes, keepdim=keep),
                lambda x: x.any(axes, keepdims=keep),
            )
        table = {
            "sum": (
                lambda x: x.sum(axes, keepdim=keep),
                lambda x: x.sum(axes, keepdims=keep, dtype=v.dtype),
            )
        }
        if v.dtype == np.int8:
            return False
        if v.dtype.kind == "f":
            table["mean"] = (
                lambda x: x.mean(axes, keepdim=keep),
                lambda x: x.mean(axes, keepdims=keep),
            )
            table["softmax"] = (lambda x: x.softmax(-1), softmax)
            table["normal"] = (
                lambda x: (
                    (x - x.mean(-1, keepdim=True)) / (x.var(-1, False, keepdim=True) + 1).sqrt()
                ),
                lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1),
            )
        if v.dtype.kind == "i" or n == 1 or gap(v, axes) > MARGIN:
            table["amax"] = (
                lambda x: x.amax(axes, keepdim=keep),
                lambda x: x.max(axes, keepdims=keep),
            )
            if not (v.dtype.kind == "f" and n == 1):
                last = v.ndim - 1
                if v.dtype.kind == "i" or gap(v, (last,)) > MARGIN:
                    table["argmax"] = (
                        lambda x: x.argmax(last),
                        lambda x: x.argmax(last).astype(np.int32),
                    )
        name = str(self.rng.choice(list(table)))
        return self.add(name, [i], *table[name])

    def product(self):
        i = self.pick()
        v = self.graph.values[i]
        if v.ndim < 2 or v.size == 0:
            return False
        k = v.shape[-1]
        same = [
            j
            for j, w in enumerate(self.graph.values)
            if w.dtype.kind == "f" and w.ndim == 2 and k in w.shape and w.size
        ]
        scale = 1 / np.sqrt(k)
        if same:
            j = int(self.rng.choice(same))
            if self.graph.values[j].shape[0] == k:
                return self.add(
                    "matmul", [i, j], lambda x, y: (x @ y) * scale, lambda x, y: (x @ y) * scale
                )
            return self.add(
                "matmul.T", [i, j], lambda x, y: (x @ y.mT) * scale, lambda x, y: (x @ y.T) * scale
            )
        return self.add(
            "gram",
            [i],
            lambda x: (x @ x.mT) * scale,
            lambda x: (x @ x.swapaxes(-1, -2)) * scale,
        )

    def taken(self):
        """Gather by position."""
        i = self.pick()
        v = self.graph.values[i]
        if v.ndim == 0 or v.size == 0:
            return False
        index = self.rng.integers(0, v.shape[0], int(self.rng.integers(1, 5))).astype(np.int32)
        return self.add(
            "index_select",
            [i],
            lambda x: x.index_select(0, wb.tensor(index, device=x.device)),
            lambda x: x[index],
        )

    def make(self, steps: int) -> RandomGraph:
        families = [
            *[self.unary, self.binary] * 4,
            *[self.view] * 5,
            *[self.reduction] * 3,
            *[self.joined, self.product] * 2,
            *[self.choose, self.whole, self.whole_pair, self.taken],
        ]
        tries = 0
        while len(self.graph.steps) < steps and tries < 20 * steps:
            tries += 1
            families[int(self.rng.integers(0, len(families)))]()
        g = self.graph
        first = len(g.leaves)
        read = {i for s in g.steps for i in s.args}
        loose = [i for i in range(first, len(g.values)) if i not in read]
        extra = [i for i in range(first, len(g.values)) if i in read and self.chance(0.1)]
        g.outputs = sorted([*loose[-3:], *extra[:2]])
        return g


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def gap(v, axes):
    """Smallest distance between the largest and the second largest of each slice."""
    kept = [d for d in range(v.ndim) if d not in axes]
    rows = v.transpose(*kept, *axes).reshape(prod(v.shape[d] for d in kept), -1)
    if rows.shape[1] < 2:
        return np.inf
    ordered = np.sort(rows, 1)
    return (ordered[:, -1] - ordered[:, -2]).min()


def random_graph(seed: int) -> tuple[RandomGraph, bool]:
    """(graph, whether its gradients are to be taken)."""
    return Maker(seed).make(4 + seed % 11), seed % 3 == 0
