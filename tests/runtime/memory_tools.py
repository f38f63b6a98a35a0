"""What tests of device memory share: bytes in and out of an allocation, the figures of one pool."""

from __future__ import annotations

from runtime.memory_walk import pattern

from wgburn_runtime.driver import Driver
from wgburn_runtime.fake import drive
from wgburn_runtime.memory import DeviceMemory
from wgburn_runtime.pages import Allocation
from wgburn_runtime.pool import PoolUsage


def pool(memory: DeviceMemory, kind: str) -> PoolUsage:
    return next(p for p in memory.usage.pools if p.kind == kind)


def write(driver: Driver, allocation: Allocation, number: int) -> None:
    driver.write_buffer(allocation.buffer, allocation.offset, pattern(number, allocation.size))


def read(driver: Driver, allocation: Allocation) -> bytes:
    size = allocation.size + 3 & ~3
    return bytes(drive(driver.read_buffer(allocation.buffer, allocation.offset, size)))
