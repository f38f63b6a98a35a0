"""The numpy twin of `math/random.wgsl`: the same random bits on the host as on every device.

Owns: Philox4x32-10 over whole arrays, and the maps from bits to uniform and normal numbers.
Must not know: tensors, generators' states, or who asks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_ROUNDS = 10
# Blocks worked on at a time: six uint64 rows of this length stay in a core's second-level cache.
_CHUNK = 8192
_WORD = 0xFFFFFFFF


def philox(counter: ArrayLike, key: ArrayLike) -> NDArray[np.uint32]:
    """Philox4x32-10 of counters [..., 4] under keys [..., 2] (broadcast): words [..., 4]."""
    counters = np.asarray(counter, dtype=np.uint32).astype(np.uint64)
    keys = np.asarray(key, dtype=np.uint32).astype(np.uint64)
    shape = np.broadcast_shapes(counters.shape[:-1], keys.shape[:-1])
    words = [np.broadcast_to(counters[..., i], shape).copy() for i in range(4)]
    key_0, key_1 = keys[..., 0], keys[..., 1]
    for _ in range(_ROUNDS):
        product_0 = words[0] * _MULTIPLIER_0
        product_1 = words[2] * _MULTIPLIER_1
        words = [
            (product_1 >> _SHIFT) ^ words[1] ^ key_0,
            product_1 & _LOW,
            (product_0 >> _SHIFT) ^ words[3] ^ key_1,
            product_0 & _LOW,
        ]
        key_0 = (key_0 + np.uint64(_WEYL_0)) & _LOW
        key_1 = (key_1 + np.uint64(_WEYL_1)) & _LOW
    return np.stack(words, axis=-1).astype(np.uint32)


def _fill_blocks(out: NDArray[np.uint32], first: int, offset: int, seed: int) -> None:
    """Write blocks first, first + 1, ... of a stream into out [blocks, 4].

    The same rounds as `philox`, in place: rows are reused, so a chunk never leaves the cache.
    """
    count = out.shape[0]
    c0 = np.arange(first, first + count, dtype=np.uint64)
    c1 = np.zeros(count, np.uint64)
    c2 = np.full(count, offset & _WORD, np.uint64)
    c3 = np.full(count, offset >> 32, np.uint64)
    high = np.empty(count, np.uint64)
    for turn in range(_ROUNDS):
        key_0 = np.uint64(((seed & _WORD) + turn * _WEYL_0) & _WORD)
        key_1 = np.uint64(((seed >> 32) + turn * _WEYL_1) & _WORD)
        np.multiply(c0, _MULTIPLIER_0, out=c0)
        np.multiply(c2, _MULTIPLIER_1, out=c2)
        np.right_shift(c2, _SHIFT, out=high)
        np.bitwise_xor(c1, high, out=c1)
        np.bitwise_xor(c1, key_0, out=c1)
        np.right_shift(c0, _SHIFT, out=high)
        np.bitwise_xor(c3, high, out=c3)
        np.bitwise_xor(c3, key_1, out=c3)
        np.bitwise_and(c2, _LOW, out=c2)
        np.bitwise_and(c0, _LOW, out=c0)
        c0, c1, c2, c3 = c1, c2, c3, c0
    for column, words in enumerate((c0, c1, c2, c3)):
        out[:, column] = words


def random_bits(n: int, offset: int, seed: int) -> NDArray[np.uint32]:
    """Words 0..n-1 of the stream: what `wb_random_bits(i, offset, seed)` gives on a device."""
    if not 0 <= n <= 1 << 32:
        raise ValueError(f"random_bits makes at most 2**32 words of one offset, {n} were asked for")
    offset &= (1 << 64) - 1
    seed &= (1 << 64) - 1
    blocks = -(-n // 4)
    words = np.empty((blocks, 4), np.uint32)
    for start in range(0, blocks, _CHUNK):
        _fill_blocks(words[start : start + _CHUNK], start, offset, seed)
    return words.reshape(-1)[:n]


def uniform(bits: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Numbers in [0, 1), multiples of 2**-24."""
    return (bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def normal(bits_a: NDArray[np.uint32], bits_b: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Standard normal numbers (Box-Muller, one for each pair of words).

    Worked out in float64, so that this is the value which a device comes close to.
    """
    radius = ((bits_a >> np.uint32(8)).astype(np.float64) + 1.0) * 2.0**-24
    turn = (bits_b >> np.uint32(8)).astype(np.float64) * (2.0 * np.pi * 2.0**-24)
    # Adding 0.0 turns the -0.0 of log(1) into 0.0.
    result = np.sqrt(-2.0 * np.log(radius) + 0.0) * np.cos(turn)
    return result.astype(np.float32)
