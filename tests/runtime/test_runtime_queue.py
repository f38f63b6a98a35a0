"""The queue: results through a real driver under a browser's rules, caches, and steady state."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable

import numpy as np
import pytest

from wgburn_runtime.driver import Driver, ProgramSource
from wgburn_runtime.errors import DriverError, LimitError, OutOfMemoryError, ProgramError
from wgburn_runtime.fake import FakeDriver, MirrorDriver
from wgburn_runtime.memory import Request
from wgburn_runtime.pages import Allocation
from wgburn_runtime.queue import (
    FIRST_RING_BYTES,
    UPLOAD_PIECE,
    Launch,
    LaunchList,
    Prepared,
    Queue,
    Window,
)
from wgburn_runtime.scratch import Spot

N = 1000
KIB, MIB = 1 << 10, 1 << 20


def blocks(*scales: float) -> bytes:
    return b"".join(struct.pack("<IfII", N, scale, 0, 0).ljust(256, b"\0") for scale in scales)


def chain(program: ProgramSource, count: int, slots: int = 1) -> LaunchList:
    launches = tuple(Launch(0, (i % slots,), (16, 1, 1), i * 256) for i in range(count))
    return LaunchList((program,), launches, count * 256, f"chain of {count}")


def prepared(queue: Queue, list_: LaunchList) -> Prepared:
    return queue.driver.run_sync(queue.prepare(list_))


def floats(queue: Queue, alloc: Allocation) -> np.ndarray:
    return np.frombuffer(queue.driver.run_sync(queue.download(alloc, N * 4)), "f4")


def zeros(queue: Queue) -> Allocation:
    alloc = queue.alloc(N * 4)
    queue.upload(alloc, bytes(N * 4))
    return alloc


def test_vector_add_with_a_mixed_list(
    mirror: MirrorDriver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(mirror)
    a, b, c = (queue.alloc(N * 4) for _ in range(3))
    queue.upload(a, np.arange(N, dtype="f4").data)
    queue.upload(b, np.ones(N, "f4").data)
    list_ = LaunchList(
        (programs["add"], programs["step"]),
        (Launch(0, (0, 1, 2), (16, 1, 1), 0), Launch(1, (2,), (16, 1, 1), 256)),
        512,
        "mixed",
    )
    queue.execute(prepared(queue, list_), [a, b, c], blocks(2.0, 3.0))
    np.testing.assert_array_equal(floats(queue, c), (np.arange(N, dtype="f4") + 2) * 3 + 1)
    queue.close()


def test_programs_without_parameters(
    mirror: MirrorDriver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(mirror)
    counts, x = queue.alloc(256), zeros(queue)
    queue.upload(counts, bytes(256))
    increment, step = programs["increment"], programs["step"]
    plain = LaunchList((increment,), (Launch(0, (0,), (1, 1, 1), 0),) * 3, 0, "plain")
    queue.execute(prepared(queue, plain), [counts])
    # Together with one that has parameters, twice, so that the ring moves on.
    both = LaunchList(
        (increment, step),
        (Launch(0, (0,), (1, 1, 1), 0), Launch(1, (1,), (16, 1, 1), 0)),
        256,
        "both",
    )
    ready = prepared(queue, both)
    for _ in range(2):
        queue.execute(ready, [counts, x], blocks(10.0))
    data = mirror.run_sync(queue.download(counts, 256))
    np.testing.assert_array_equal(np.frombuffer(data, "u4"), np.full(64, 5))
    np.testing.assert_array_equal(floats(queue, x), np.full(N, 11, "f4"))


def test_executions_with_changing_parameters_go_round_the_ring(
    mirror: MirrorDriver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(mirror)
    x = zeros(queue)
    ready = prepared(queue, chain(programs["step"], 100))
    expected = np.float32(0)
    rounds = 3 * FIRST_RING_BYTES // (100 * 256)
    for i in range(rounds):
        scales = [((i + j) % 5) / 4 for j in range(100)]
        queue.execute(ready, [x], blocks(*scales))
        for scale in scales:
            expected = expected * np.float32(scale) + np.float32(1)
    np.testing.assert_allclose(floats(queue, x), np.full(N, expected), rtol=1e-6)
    counters = queue.counters
    assert counters.launches == rounds * 100
    assert (counters.hits, counters.misses) == (rounds - 1, 1)
    assert (counters.pipelines_created, counters.bind_groups_created) == (1, 1)


def test_a_list_larger_than_the_ring(
    mirror: MirrorDriver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(mirror)
    x = zeros(queue)
    small, large = (
        prepared(queue, chain(programs["step"], 1)),
        prepared(queue, chain(programs["step"], FIRST_RING_BYTES // 256 + 1)),
    )
    count = len(large.list.launches)
    queue.execute(small, [x], blocks(1.0))
    queue.execute(large, [x], blocks(*[1.0] * count))
    queue.execute(small, [x], blocks(1.0))
    np.testing.assert_array_equal(floats(queue, x), np.full(N, count + 2, "f4"))


def test_upload_and_download_of_odd_sizes(driver: Driver) -> None:
    queue = Queue(driver)
    for size in (0, 1, 3, 4, 5, 1023):
        alloc = queue.alloc(size)
        queue.upload(alloc, b"\xff" * alloc.capacity)
        data = random.Random(size).randbytes(size)
        queue.upload(alloc, data)
        assert driver.run_sync(queue.download(alloc, size)) == data
    other = queue.alloc(1023)
    queue.copy(alloc, other, 1023)
    assert driver.run_sync(queue.download(other, 1023)) == data
    with pytest.raises(DriverError, match="upload of 1025 bytes"):
        queue.upload(alloc, bytes(1025))
    with pytest.raises(DriverError, match="not C-contiguous"):
        queue.upload(alloc, np.zeros((8, 8), "f4").T.data)
    with pytest.raises(DriverError, match="download of 2000 bytes"):
        driver.run_sync(queue.download(alloc, 2000))


def test_uploads_are_cut_into_pieces(fake: FakeDriver) -> None:
    queue = Queue(fake)
    size = UPLOAD_PIECE + 5
    alloc = queue.alloc(size)
    data = np.arange(size, dtype="u1")
    queue.upload(alloc, data.data)
    assert fake.stats.writes == 3
    assert fake.run_sync(queue.download(alloc, size)) == data.tobytes()


def test_new_buffers_build_new_tables_and_old_ones_still_hit(
    driver: Driver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(driver)
    ready = prepared(queue, chain(programs["step"], 10, slots=2))
    sets = [[zeros(queue), zeros(queue)] for _ in range(3)]
    for _ in range(4):
        for held in sets:
            queue.execute(ready, held, blocks(*[1.0] * 10))
    assert (queue.counters.misses, queue.counters.hits) == (3, 9)
    assert queue.counters.bind_groups_created == 6
    if not isinstance(driver, FakeDriver):
        for held in sets:
            np.testing.assert_array_equal(floats(queue, held[1]), np.full(N, 20, "f4"))


def test_tables_share_bind_groups_and_are_bounded(
    fake: FakeDriver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(fake, max_bind_groups=10)
    first = prepared(queue, chain(programs["step"], 4, slots=4))
    second = prepared(queue, chain(programs["step"], 8, slots=4))
    sets = [[queue.alloc(256) for _ in range(4)] for _ in range(5)]
    queue.execute(first, sets[0], blocks(*[1.0] * 4))
    queue.execute(second, sets[0], blocks(*[1.0] * 8))
    assert fake.stats.bind_groups_alive == 4  # both lists use the same four
    for held in sets:
        queue.execute(first, held, blocks(*[1.0] * 4))
        assert fake.stats.bind_groups_alive <= 10
    # The least recently executed went: set 0 must be built again, set 4 not.
    misses = queue.counters.misses
    queue.execute(first, sets[4], blocks(*[1.0] * 4))
    assert queue.counters.misses == misses
    queue.execute(first, sets[0], blocks(*[1.0] * 4))
    assert queue.counters.misses == misses + 1


def test_destroyed_buffers_take_their_bind_groups_along(
    driver: Driver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(driver)
    ready = prepared(queue, chain(programs["step"], 2, slots=2))
    kept = zeros(queue)
    queue.execute(ready, [kept, queue.alloc(2 * MIB)], blocks(1.0, 1.0))
    assert driver.stats.bind_groups_alive == 2
    assert queue.memory.release_unused() == 2 * MIB
    assert driver.stats.bind_groups_alive == 0
    queue.execute(ready, [kept, queue.alloc(2 * MIB)], blocks(1.0, 1.0))
    driver.run_sync(queue.synchronize())
    assert queue.counters.misses == 2
    if not isinstance(driver, FakeDriver):
        np.testing.assert_array_equal(floats(queue, kept), np.full(N, 2, "f4"))


def test_a_dropped_list_gives_its_bind_groups_back(
    driver: Driver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(driver)
    x = zeros(queue)
    for count in range(1, 6):
        ready = prepared(queue, chain(programs["step"], count))
        queue.execute(ready, [x], blocks(*[1.0] * count))
    del ready
    prepared(queue, chain(programs["step"], 1))
    assert driver.stats.bind_groups_alive == 0
    assert driver.stats.pipelines == 1
    queue.close()
    queue.close()
    assert driver.stats.pipelines == 0
    assert driver.stats.buffers_alive == 1  # x is still held
    with pytest.raises(DriverError, match="closed"):
        queue.alloc(4)


def test_out_of_memory_in_the_middle_of_a_loop_recovers(
    programs: dict[str, ProgramSource],
) -> None:
    fake = FakeDriver(memory=FIRST_RING_BYTES + 10 * MIB)
    queue = Queue(fake)
    ready = prepared(queue, chain(programs["step"], 1))
    for size in (4, 5, 6, 7):  # would need 22 MiB if all were kept
        queue.execute(ready, [queue.alloc(size * MIB)], blocks(1.0))
    held = queue.alloc(8 * MIB)
    with pytest.raises(OutOfMemoryError, match=f"{8 * MIB} bytes are in use by 1 values"):
        queue.alloc(4 * MIB)
    queue.execute(ready, [held], blocks(1.0))


def test_lists_are_checked_when_prepared(
    driver: Driver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(driver)
    step = programs["step"]
    good = Launch(0, (0,), (16, 1, 1), 0)
    for launch, error, complaint in [
        (good._replace(grid=(1, 65536, 1)), LimitError, "'step', grid .1, 65536, 1."),
        (good._replace(slots=(0, 1)), DriverError, "2 slots for access 'w'"),
        (good._replace(slots=(-1,)), DriverError, "names no region"),
        (good._replace(params_offset=16), DriverError, "multiples of 256"),
        (good._replace(params_offset=256), DriverError, "16 bytes at 256 of 256"),
    ]:
        with pytest.raises(error, match=complaint):
            prepared(queue, LaunchList((step,), (launch,), 256, "list"))
    bad = step._replace(name="bad", wgsl=step.wgsl.replace("fn main", "fn"))
    with pytest.raises(ProgramError, match="'bad'"):
        prepared(queue, LaunchList((step, bad), (good,), 256, "list"))
    assert queue.counters.pipelines_created == 0
    ready = prepared(queue, LaunchList((step,), (good,), 256, "list"))
    with pytest.raises(DriverError, match="0 allocations for 1 slots"):
        queue.execute(ready, [], blocks(1.0))
    with pytest.raises(DriverError, match="512 parameter bytes, not 256"):
        queue.execute(ready, [queue.alloc(4)], blocks(1.0, 1.0))


def test_a_refused_bind_group_leaves_nothing_behind(
    driver: Driver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(driver)
    x, dead = zeros(queue), queue.alloc(MIB)
    ready = prepared(queue, chain(programs["step"], 2, slots=2))
    driver.destroy_buffer(dead.buffer)
    with pytest.raises(DriverError, match="no buffer"):
        queue.execute(ready, [x, dead], blocks(1.0, 1.0))
    assert driver.stats.bind_groups_alive == 0
    queue.execute(ready, [x, zeros(queue)], blocks(1.0, 1.0))


def test_what_chrome_refuses_fails_at_home(
    mirror: MirrorDriver, programs: dict[str, ProgramSource]
) -> None:
    """One storage bound for reading and writing: wgpu-native alone would only warn the user."""
    queue = Queue(mirror)
    x = zeros(queue)
    list_ = LaunchList((programs["add"],), (Launch(0, (0, 0, 0), (16, 1, 1), 0),), 256, "x = x + x")
    with pytest.raises(DriverError, match="'add': writable storage buffer binding aliasing"):
        queue.execute(prepared(queue, list_), [x], blocks(1.0))
    reading = programs["step"]._replace(
        name="reading",
        wgsl=programs["add"].wgsl.replace("read_write> a", "read> a"),
        access="rww",
    )
    list_ = LaunchList((reading,), (Launch(0, (0, 1, 2), (16, 1, 1), 0),), 256, "two modes")
    y, z = zeros(queue), zeros(queue)
    assert x.buffer == y.buffer == z.buffer  # of one page, so one mode
    with pytest.raises(DriverError, match=r"'reading': buffer .* read-only at binding 0"):
        queue.execute(prepared(queue, list_), [x, y, z], blocks(1.0))
    assert mirror.stats.dispatches == 0


def test_steady_state_does_nothing_per_launch(
    fake: FakeDriver, programs: dict[str, ProgramSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reaches the driver is the same array every time, with only its offsets moved."""
    queue = Queue(fake)
    ready = prepared(queue, chain(programs["step"], 50))
    x = queue.alloc(N * 4)
    seen: list[tuple[int, np.ndarray]] = []
    monkeypatch.setattr(fake, "submit", lambda c, p=None: seen.append((id(c), c.copy())))
    params = blocks(*[1.0] * 50)
    for _ in range(8):
        queue.execute(ready, [x], params)
    assert len({identity for identity, _ in seen}) == 1
    starts = [int(commands[0, 2]) for _, commands in seen]
    assert len(set(starts)) == 8
    for start, (_, commands) in zip(starts, seen, strict=True):
        np.testing.assert_array_equal(commands[:, 2], start + 256 * np.arange(50))
        np.testing.assert_array_equal(commands[:, [0, 1, 3, 4, 5]], seen[0][1][:, [0, 1, 3, 4, 5]])


def test_async_face_with_two_tasks_compiling_the_same(
    driver: Driver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(driver)

    async def one(scale: float) -> bytearray:
        x = queue.alloc(N * 4)
        queue.upload(x, bytes(N * 4))
        ready = await queue.prepare(chain(programs["step"], 3))
        queue.execute(ready, [x], blocks(scale, scale, scale))
        await queue.synchronize()
        return await queue.download(x, 4)

    async def both() -> list[bytearray]:
        return await asyncio.gather(one(1.0), one(2.0))

    results = asyncio.run(both())
    assert driver.stats.pipelines == 1
    if not isinstance(driver, FakeDriver):
        assert [struct.unpack("<f", result)[0] for result in results] == [3.0, 7.0]


def test_mirror_maps_handles_of_a_driver_that_counts_differently(
    reopen: Callable[..., Driver], programs: dict[str, ProgramSource]
) -> None:
    real = reopen()
    for _ in range(7):
        real.create_buffer(256, 0x8C)
    mirror = MirrorDriver(real)
    queue = Queue(mirror)
    x = zeros(queue)
    queue.execute(prepared(queue, chain(programs["step"], 3)), [x], blocks(1.0, 1.0, 1.0))
    np.testing.assert_array_equal(floats(queue, x), np.full(N, 3, "f4"))
    assert mirror.info.limits["maxStorageBuffersPerShaderStage"] == 8
    mirror.close()
    assert real.lost


# -- regions --------------------------------------------------------------------------------------
def sums(program: ProgramSource, count: int, at: int = 0) -> LaunchList:
    """Slot 2 becomes a + 2 b + 2 b ... (`count` launches), over scratch memory that alternates."""
    regions = (Spot(0, at, N * 4), Spot(1, 0, N * 4))
    launches = []
    source = 0
    for k in range(count):
        target = 2 if k == count - 1 else -1 - k % 2
        launches.append(Launch(0, (source, 1, target), (16, 1, 1), 256 * k))
        source = target
    pages = (at + N * 4, N * 4)
    return LaunchList((program,), tuple(launches), 256 * count, "sums", regions, pages)


def test_values_that_live_only_in_a_list_lie_in_scratch_pages(
    mirror: MirrorDriver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(mirror)
    a, b, c = zeros(queue), zeros(queue), zeros(queue)
    queue.upload(a, np.arange(N, dtype="f4").data)
    queue.upload(b, np.ones(N, "f4").data)
    ready = prepared(queue, sums(programs["add"], 5, 512))
    queue.execute(ready, [a, b, c], blocks(*[2.0] * 5))
    np.testing.assert_array_equal(floats(queue, c), np.arange(N) + 10)
    usage = queue.memory.usage
    assert usage.in_use == 3 * N * 4
    assert usage.peak_in_use == 5 * N * 4 + 512
    assert usage.pools[3].kind == "scratch" and usage.pools[3].pages == 2
    more = queue.alloc(1000)
    queue.execute(ready, [a, b, c], blocks(*[2.0] * 5))  # the table is there; the need is counted
    assert queue.counters.hits == 1
    assert queue.memory.usage.peak_in_use == usage.peak_in_use + more.size


def test_scratch_pages_grow_and_tables_are_built_again(
    driver: Driver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(driver)
    a, b, c, d = zeros(queue), zeros(queue), zeros(queue), zeros(queue)
    queue.upload(b, np.ones(N, "f4").data)
    small = prepared(queue, sums(programs["add"], 3))
    queue.execute(small, [a, b, c], blocks(*[1.0] * 3))
    first = list(queue.memory.scratch.buffers)
    large = prepared(queue, sums(programs["add"], 4, 64 * KIB))
    queue.execute(large, [a, b, d], blocks(*[1.0] * 4))
    second = list(queue.memory.scratch.buffers)
    assert second[0] != first[0] and second[1] == first[1]  # page 1 was large enough
    assert queue.counters.misses == 2
    queue.execute(small, [a, b, c], blocks(*[2.0] * 3))  # its table named the page that went
    assert queue.counters.misses == 3
    made, misses = queue.counters.bind_groups_created, queue.counters.misses
    for _ in range(5):
        queue.execute(large, [a, b, d], blocks(*[1.0] * 4))
        queue.execute(small, [a, b, c], blocks(*[2.0] * 3))
    assert queue.memory.scratch.buffers == second
    assert queue.counters.bind_groups_created == made
    assert queue.counters.misses == misses
    if not isinstance(driver, FakeDriver):
        np.testing.assert_array_equal(floats(queue, c), np.full(N, 6, "f4"))
        np.testing.assert_array_equal(floats(queue, d), np.full(N, 4, "f4"))


def test_scratch_pages_that_were_given_back_are_made_again(
    driver: Driver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(driver)
    a, b, c = zeros(queue), zeros(queue), zeros(queue)
    queue.upload(b, np.ones(N, "f4").data)
    ready = prepared(queue, sums(programs["add"], 4))
    for k in range(3):
        queue.execute(ready, [a, b, c], blocks(*[1.0 + k] * 4))
        assert queue.memory.release_unused() == 2 * N * 4
        assert driver.stats.bind_groups_alive == 0
    assert queue.counters.misses == 3
    if not isinstance(driver, FakeDriver):
        np.testing.assert_array_equal(floats(queue, c), np.full(N, 12, "f4"))


#: z = page[at ...] - 2 page[to ...]: two values of one page, found by parameters.
FROM_PAGE = ProgramSource(
    name="from_page",
    wgsl="""
struct Params { n: u32, at: u32, to: u32, pad: u32 };
@group(0) @binding(0) var<storage, read> page: array<f32>;
@group(0) @binding(1) var<storage, read_write> z: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < p.n) { z[id.x] = page[p.at + id.x] - 2.0 * page[p.to + id.x]; }
}
""",
    access="rw",
    params_bytes=16,
    workgroup=(64, 1, 1),
)


def places_of(*allocations: Allocation) -> bytes:
    return struct.pack("<4I", N, *(a.offset // 4 for a in allocations), 0).ljust(256, b"\0")


def test_a_window_is_the_whole_page_of_a_slot(mirror: MirrorDriver) -> None:
    queue = Queue(mirror)
    weights = queue.alloc_all([Request(N * 4, True) for _ in range(300)])  # more than a page grows
    for k, weight in enumerate(weights):
        queue.upload(weight, np.full(N, k + 1, "f4").data)
    page = weights[-1].page
    pair = [w for w in weights if w.page is page][-2:]
    numbers = [weights.index(w) + 1 for w in pair]
    result = queue.alloc(N * 4)
    list_ = LaunchList(
        (FROM_PAGE,), (Launch(0, (-1, 2), (16, 1, 1), 0),), 256, "window", (Window(1),)
    )
    ready = prepared(queue, list_)
    queue.execute(ready, [*pair, result], places_of(*pair))
    expected = np.full(N, numbers[0] - 2 * numbers[1], "f4")
    np.testing.assert_array_equal(floats(queue, result), expected)
    # The same after all of it has moved to another page.
    del weights, weight
    assert queue.memory.cleanup() > 0
    assert pair[0].page is pair[1].page is not page
    queue.upload(result, bytes(N * 4))
    queue.execute(ready, [*pair, result], places_of(*pair))
    np.testing.assert_array_equal(floats(queue, result), expected)
    assert queue.counters.misses == 2


def test_a_window_of_a_slot_that_is_missing_is_refused(fake: FakeDriver) -> None:
    queue = Queue(fake)
    list_ = LaunchList(
        (FROM_PAGE,), (Launch(0, (-1, 0), (16, 1, 1), 0),), 256, "window", (Window(1),)
    )
    with pytest.raises(DriverError, match="1 allocations for 2 slots"):
        queue.execute(prepared(queue, list_), [queue.alloc(N * 4)], bytes(256))


# -- memory that moves ----------------------------------------------------------------------------
def in_fragments(queue: Queue) -> list[Allocation]:
    """Half of the values of eight pages, each with its number (from 1) as its first N floats."""
    held = [queue.alloc(512 * KIB) for _ in range(16)]
    for k, alloc in enumerate(held):
        queue.upload(alloc, np.full(N, k + 1, "f4").data)
    return held[::2]


def test_lists_find_values_that_a_cleanup_moved(
    driver: Driver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(driver)
    held = in_fragments(queue)
    ready = prepared(queue, chain(programs["step"], 8, slots=8))
    queue.execute(ready, held, blocks(*[1.0] * 8))
    before = [a.place for a in held]
    assert driver.stats.bind_groups_alive == 8
    assert queue.memory.cleanup() == 4 * MIB
    assert sum(a.place != place for a, place in zip(held, before, strict=True)) >= 4
    queue.execute(ready, held, blocks(*[1.0] * 8))
    assert queue.counters.misses == 2
    assert driver.stats.bind_groups_alive == 8  # those of the old places are gone
    made = queue.counters.bind_groups_created
    queue.execute(ready, held, blocks(*[1.0] * 8))
    assert queue.counters.bind_groups_created == made
    if not isinstance(driver, FakeDriver):
        for k, alloc in enumerate(held):
            np.testing.assert_array_equal(floats(queue, alloc), np.full(N, 2 * k + 4, "f4"))


def test_values_that_move_to_make_room_for_scratch_are_bound_where_they_are(
    mirror: MirrorDriver, programs: dict[str, ProgramSource]
) -> None:
    queue = Queue(mirror, budget=8 * MIB + FIRST_RING_BYTES + 64 * KIB)
    result = queue.alloc(N * 4)
    held = in_fragments(queue)
    list_ = sums(programs["add"], 3, 2 * MIB)
    before = [a.place for a in held]
    ready = prepared(queue, list_)
    queue.execute(ready, [held[0], held[1], result], blocks(*[1.0] * 3))
    assert [a.place for a in held] != before
    queue.execute(ready, [held[0], held[1], result], blocks(*[1.0] * 3))
    assert (queue.counters.misses, queue.counters.hits) == (1, 1)  # kept under the new places
    np.testing.assert_array_equal(floats(queue, result), np.full(N, 1 + 3 * 3, "f4"))
    for k, alloc in enumerate(held):
        np.testing.assert_array_equal(floats(queue, alloc), np.full(N, 2 * k + 1, "f4"))
    assert queue.memory.usage.peak_reserved <= 8 * MIB + FIRST_RING_BYTES + 64 * KIB


def test_a_ring_of_parameters_gets_room_too(programs: dict[str, ProgramSource]) -> None:
    fake = FakeDriver(memory=2 * FIRST_RING_BYTES + 300 * KIB)
    queue = Queue(fake)
    unused = queue.alloc(700 * KIB)
    del unused
    x = queue.alloc(N * 4)
    count = FIRST_RING_BYTES // 256 + 1
    queue.execute(prepared(queue, chain(programs["step"], count)), [x], blocks(*[1.0] * count))
    assert queue.counters.launches == count
    with pytest.raises(OutOfMemoryError, match=f"no memory for {4 * FIRST_RING_BYTES} bytes"):
        more = 2 * FIRST_RING_BYTES // 256 + 1
        queue.execute(prepared(queue, chain(programs["step"], more)), [x], blocks(*[1.0] * more))
    queue.execute(prepared(queue, chain(programs["step"], 1)), [x], blocks(1.0))


def test_copies_inside_a_page(driver: Driver) -> None:
    queue = Queue(driver)
    made = [queue.alloc(1000) for _ in range(4)]
    data = [random.Random(k).randbytes(1000) for k in range(4)]
    for alloc, content in zip(made, data, strict=True):
        queue.upload(alloc, content)
    assert len({a.buffer for a in made}) == 1
    buffers = driver.stats.buffers_alive
    queue.copy(made[0], made[2], 1000)
    queue.copy(made[3], made[1], 6)
    queue.copy(made[3], made[3], 1000)
    assert driver.stats.buffers_alive == buffers  # what they went through is gone
    expected = [data[0], data[3][:8] + data[1][8:], data[0], data[3]]
    for alloc, content in zip(made, expected, strict=True):
        assert driver.run_sync(queue.download(alloc, 1000)) == content


def test_a_copy_inside_a_page_that_must_move_for_it() -> None:
    """The buffer that it goes through needs room, and making room moves both ends."""
    fake = FakeDriver(memory=2 * MIB)
    queue = Queue(fake)
    held = [queue.alloc(256 * KIB) for _ in range(8)]
    del held[2:6]
    source, target = held[0], held[1]
    data = random.Random(0).randbytes(256 * KIB)
    queue.upload(source, data)
    before = source.place, target.place
    assert source.buffer == target.buffer and fake.stats.bytes_alive == 2 * MIB
    queue.copy(source, target, 256 * KIB)
    assert (source.place, target.place) != before
    assert fake.run_sync(queue.download(source, 256 * KIB)) == data
    assert fake.run_sync(queue.download(target, 256 * KIB)) == data
