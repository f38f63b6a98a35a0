"""The numpy backend: runs a plan's ops by their numpy rules.

Owns: how a graph becomes a list of numpy calls and when a value is let go. Must not know: WGSL, drivers.
"""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compile.graph import Graph
from ..core import dtype as dt
from ..core import hostmem
from ..core.dtype import DType
from ..core.node import Store
from ..ops.record import Call, Unsupported
from .backend import Backend, DeviceInfo, MemoryReport


class CpuPlan:
    """Steps (element-wise?, rule, attrs, shape, numpy dtype, sources, result, number slots, dead values)."""

    __slots__ = ("leaves", "outputs", "size", "steps")

    def __init__(self, graph: Graph) -> None:
        self.size = len(graph.nodes)
        self.outputs = [(o, graph.nodes[o].shape, graph.nodes[o].dtype) for o in graph.outputs]
        self.leaves = [(i, n.leaf) for i, n in enumerate(graph.nodes) if n.op is None]
        keep = set(graph.outputs)
        last: dict[int, int] = {}
        for i, n in enumerate(graph.nodes):
            for s in n.srcs:
                last[s] = i
        dead: dict[int, list[int]] = {}
        for value, reader in last.items():
            if value not in keep:
                dead.setdefault(reader, []).append(value)
        self.steps = []
        for i, n in enumerate(graph.nodes):
            if n.op is None:
                continue
            if isinstance(n.op.numpy, Unsupported):
                raise NotImplementedError(f"{n.op.name} on cpu: {n.op.numpy.why}")
            self.steps.append(
                (
                    n.op.kind == "elementwise",
                    n.op.numpy,
                    n.attrs,
                    n.shape,
                    n.dtype.np,
                    n.srcs,
                    i,
                    n.dyn,
                    n.dyn + n.ndyn,
                    tuple(dead.get(i, ())),
                )
            )

    def run(self, leaves: list[Store], numbers: list[Any]) -> list[NDArray[Any]]:
        values: list[Any] = [None] * self.size
        for i, slot in self.leaves:
            values[i] = leaves[slot].buf
        with np.errstate(all="ignore"):
            for into, rule, attrs, shape, dtype, srcs, i, lo, hi, dead in self.steps:
                call = Call(attrs, tuple(numbers[lo:hi]) if hi > lo else (), shape, dtype)
                if into:
                    out = hostmem.empty(shape, dtype)
                    rule(call, out, *[values[s] for s in srcs])
                else:
                    out = rule(call, *[values[s] for s in srcs])
                    if out.dtype != dtype:
                        out = out.astype(dtype)
                values[i] = out
                for d in dead:
                    values[d] = None
        return [values[o] for o, _, _ in self.outputs]


class CpuBackend(Backend):
    """numpy on the host."""

    kind = "cpu"
    dtypes = frozenset(dt.ALL)

    def __init__(self) -> None:
        name = platform.processor() or platform.machine() or "cpu"
        info = DeviceInfo(
            "cpu",
            0,
            name,
            f"numpy {np.__version__}",
            "CPU",
            frozenset({"float64", "int64", "float16"}),
            {"threads": os.cpu_count() or 1},
            f"cpu/numpy-{np.__version__}/{name}",
        )
        super().__init__("cpu", info)

    async def compile(self, graph: Graph) -> CpuPlan:
        return CpuPlan(graph)

    def execute(self, plan: CpuPlan, leaves: list[Store], numbers: list[Any]) -> list[Store]:
        arrays = plan.run(leaves, numbers)
        return [
            Store(a, shape, dtype)
            for a, (_, shape, dtype) in zip(arrays, plan.outputs, strict=True)
        ]

    def from_host(self, array: NDArray[Any], dtype: DType) -> Store:
        own = hostmem.empty(array.shape, dtype.np)
        np.copyto(own, array)
        return Store(own, array.shape, dtype)

    async def to_host(self, store: Store, shape: tuple[int, ...], dtype: DType) -> NDArray[Any]:
        return np.array(store.buf, dtype=dtype.np, order="C")

    def memory(self) -> MemoryReport:
        u = hostmem.usage()
        return MemoryReport(
            u.in_use,
            u.reserved,
            u.padding,
            u.peak_in_use,
            u.peak_reserved,
            [{"kind": "host", **u._asdict()}],
        )

    def memory_cleanup(self) -> None:
        hostmem.release()
