"""Memory of a plan on its way: where values are, buffers of results, updates in place.

Owns: `Memory`, the state that lowering works on. Must not know: how groups are chosen or written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod

from ..core.dtype import DType
from ..core.errors import DeviceError
from . import kernels
from .affine import Coords, Form, Num, split, straddling
from .emit import FIRST_EXTRA, Emitter, Misplaced, NeedsSplit, Source
from .graph import Graph
from .group import Group, Grouping
from .program import Step

#: Elements that a 32-bit index reaches.
MAX_ELEMENTS = 1 << 32


def device_bytes(shape: tuple[int, ...], dtype: DType) -> int:
    """Bytes of a dense value in device memory: booleans are a word each, 8-bit integers share
    words."""
    n = prod(shape)
    size = 4 * n if dtype.bits in (1, 32) else 2 * n if dtype.bits == 16 else n
    return max(-(-size // 4) * 4, 4)


class TooMany(Exception):
    """A kernel needs more than the device or one workgroup has."""


class Memory:
    """Which nodes are in memory and where, the steps so far, and where results go."""

    grouping: Grouping
    _rehearsing = False

    def __init__(
        self,
        graph: Graph,
        limits: Mapping[str, int],
        features: frozenset[str],
        fuse: bool,
        software: bool,
    ) -> None:
        self.graph = graph
        self.software = software
        self.fuse = fuse
        self.limits = limits
        self.features = features
        self.steps: list[Step] = []
        self.sources: dict[int, Source] = {}
        self.sizes: dict[int, int] = {}
        self.dtypes: dict[int, DType] = {}
        self.labels: dict[int, tuple[str, int]] = {}
        self.next_buffer = graph.leaves
        #: Leaf slots that are weights, by the first one in the same page; numbers of buffers that
        #: stand for such a page; leaf slots whose place in it kernels ask for.
        self.pages = {n.alias: n.page for n in graph.nodes if n.op is None and n.page >= 0}
        self.windows: dict[int, int] = {}
        self.bases: dict[int, int] = {}
        self.done: set[int] = set()
        self.donations = {
            i: leaf for i, leaf in graph.donations.items() if self._same_size(i, leaf)
        }
        for i, n in enumerate(graph.nodes):
            if n.op is None:
                offset = Num(0, ((n.offset_slot, 1),)) if n.offset_slot >= 0 else Num()
                self.sources[i] = Source(n.alias, n.dtype, n.strides, offset)
                self.dtypes[n.alias] = n.dtype
                self.labels[n.alias] = (
                    f"{n.dtype.name}{list(n.shape)}",
                    device_bytes(n.shape, n.dtype),
                )

    def _same_size(self, i: int, leaf: int) -> bool:
        old = next(n for n in self.graph.nodes if n.leaf == leaf)
        new = self.graph.nodes[i]
        alone = sum(n.op is None and n.alias == old.alias for n in self.graph.nodes) == 1
        return alone and old.shape == new.shape and old.dtype is new.dtype and new.dtype.bits != 8

    def _dtype(self, buffer: int) -> DType:
        """The dtype of a buffer's elements (a negative number: of a node that a rehearsal
        supposes)."""
        return self.graph.nodes[-1 - buffer].dtype if buffer < 0 else self.dtypes[buffer]

    # -- buffers ----------------------------------------------------------------------------------
    def new_buffer(self, shape: tuple[int, ...], dtype: DType, what: str) -> int:
        nbytes = device_bytes(shape, dtype)
        most = self.limits["maxStorageBufferBindingSize"]
        if nbytes > most:
            raise DeviceError(
                f"{what}: a result of shape {shape} needs {nbytes} bytes, "
                f"maxStorageBufferBindingSize of this device is {most}; "
                "open it with limits='adapter' or split the tensor"
            )
        number = self.next_buffer
        self.next_buffer += 1
        self.sizes[number] = nbytes
        self.dtypes[number] = dtype
        self.labels[number] = (f"{dtype.name}{list(shape)}", nbytes)
        return number

    def window(self, page: int, dtype: DType, held: Collection[int]) -> int:
        """A buffer that stands for the whole page of weights in which the leaf slots `held` lie."""
        number = self.next_buffer
        self.next_buffer += 1
        self.windows[number] = page
        self.dtypes[number] = dtype
        nbytes = sum(self.labels.get(b, ("", 0))[1] for b in held)
        self.labels[number] = (f"{dtype.name} weights, {len(held)} in one page", nbytes)
        return number

    def base(self, leaf: int) -> Num:
        """Where a weight lies in its page, in elements of four bytes: a number of the plan."""
        k = self.bases.setdefault(leaf, len(self.bases))
        return Num(0, ((self.graph.numbers + k, 1),))

    def emitter(self, extent: dict[int, int]) -> Emitter:
        return Emitter(self.graph, self.sources, extent, draft=self._rehearsing)

    def _taken_apart(self, i: int, place: Form, extent: dict[int, int]) -> Coords:
        """Coordinates of node i at a row-major place; raises where the loops do not give them."""
        shape = self.graph.nodes[i].shape
        coords = split(place, shape, extent)
        if coords is None:
            finer = straddling(place, shape, extent)
            if finer is not None and finer[0] < FIRST_EXTRA:
                raise NeedsSplit(*finer)
            raise Misplaced(i)
        return coords

    def _output(
        self, i: int, value: str, dtype: DType | None = None, form: Form | None = None
    ) -> kernels.Output:
        """A value to store; `_placed` gives it its buffer once all that is read is known."""
        return kernels.Output(-1, dtype or self.graph.nodes[i].dtype, value, form)

    def _placed(
        self,
        made: dict[int, kernels.Output],
        e: Emitter,
        index: Form | None,
        others: Collection[int] = (),
    ) -> list[kernels.Output]:
        """Buffers for a kernel's results: that of the value an update replaces, where the kernel is
        the last to read it and reads it only at the place that it writes (`index`) and in no
        other part (`others`); else new ones."""
        for i, o in made.items():
            n = self.graph.nodes[i]
            old = self.donations.get(i, -1)
            own = index is not None and all(f == index for b, f in e.places if b == old)
            own = own and old not in others
            if old >= 0 and own and o.dtype is n.dtype and self._may_replace(i, old):
                buffer = old
            else:
                name = "copy" if n.op is None else n.op.name
                buffer = self.new_buffer(n.shape, o.dtype, name)
            made[i] = o._replace(buffer=buffer)
        return list(made.values())

    def _may_replace(self, i: int, old: int) -> bool:
        """Whether nothing that runs later reads the old value."""
        group = self.grouping.group_of.get(i)
        if group is None:
            return False
        return all(
            self._runs_before(self.grouping.group_of.get(u), group)
            for u in self.grouping.units.leaf_readers.get(old, ())
        )

    def _runs_before(self, other: Group | None, group: Group) -> bool:
        """During a rehearsal: can be made to run before; afterwards: has run."""
        if other is group or other is None:
            return True
        return not other.ancestors & group.mask if self._rehearsing else id(other) in self.done

    def _finish(self, step: Step, made: dict[int, kernels.Output]) -> None:
        """Keep a step, and where its results are."""
        if len(step.buffers) > self.limits["maxStorageBuffersPerShaderStage"]:
            most = self.limits["maxStorageBuffersPerShaderStage"]
            raise TooMany(f"{len(step.buffers)} storage buffers, the device binds {most}")
        labels = [self.labels.get(b, ("", 0)) for b in step.buffers]
        pairs = list(zip(step.program.access, labels, strict=True))
        step = replace(
            step,
            reads=tuple(text for mode, (text, _) in pairs if mode == "r"),
            writes=tuple(text for mode, (text, _) in pairs if mode == "w"),
            bytes=sum(size for _, (_, size) in pairs),
        )
        self.steps.append(step)
        for i, out in made.items():
            self.sources[i] = Source(out.buffer, out.dtype)

    def _names(self, group: Group, computed: list[int]) -> tuple[str, tuple[str, ...]]:
        """A kernel's name and the names of all ops in it."""
        nodes = self.graph.nodes
        units = ["copy" if nodes[m].op is None else nodes[m].op.name for m in group.members]
        inner = [nodes[k].op.name for k in dict.fromkeys(computed) if k not in group.members]
        return "_".join(dict.fromkeys(units))[:60], (*inner, *units)
