"""Bad input: each error says in one line what was wrong and what to do, and the process lives."""

import dataclasses

import numpy as np
import pytest

import wgburn as wb
from wgburn.ops import elementwise as ew
from wgburn.tensor import bridge
from wgburn_runtime.queue import Launch, LaunchList

pytestmark = pytest.mark.quick


def fails(error, call, *words):
    """The call raises `error`; the message has one line and all the words."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message, message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"
    return message


@pytest.fixture
def x(device):
    return wb.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=device)


def still_works(x):
    assert (x * 2).sum().item() == 30


def test_shapes(x):
    fails(wb.ShapeError, lambda: x + x.T, "add", "(2, 3)", "(3, 2)", "equal or 1")
    fails(wb.ShapeError, lambda: x @ x, "matmul", "(2, 3)", "mT")
    fails(wb.ShapeError, lambda: x.reshape(4), "reshape", "(2, 3)", "6 elements", "(4,)")
    fails(wb.ShapeError, lambda: x.reshape(-1, -1), "more than one -1")
    fails(wb.ShapeError, lambda: x.reshape(-1, 4), "(-1, 4)")
    fails(wb.ShapeError, lambda: x.expand(3, 3), "expand", "only 1 can become 3")
    fails(wb.ShapeError, lambda: x.permute(0, 0), "permute", "once")
    fails(wb.ShapeError, lambda: x.sum(2), "sum", "dim 2", "-2 to 1")
    fails(IndexError, lambda: x.sum(-3), "dim -3")
    fails(wb.ShapeError, lambda: x.sum((0, 0)), "twice")
    fails(wb.ShapeError, lambda: wb.cat([x, x.T]), "cat", "(2, 3)", "(3, 2)")
    fails(wb.ShapeError, lambda: wb.stack([x, x[0]]), "stack", "(3,)")
    fails(wb.ShapeError, lambda: x.split([1, 1], 1), "add up to 2")
    fails(wb.ShapeError, lambda: wb.where(x > 0, x, x.T), "where")
    fails(wb.ShapeError, lambda: wb.tensor([[1], [1, 2]]), "unequal length")
    fails(wb.ShapeError, lambda: wb.zeros(2, -1), "negative")
    fails(wb.ShapeError, lambda: wb.zeros(2.5), "ints")
    fails(wb.ShapeError, lambda: x[0].mT, "two dimensions")
    still_works(x)


def test_dtypes(x):
    fails(wb.DTypeError, lambda: wb.zeros(1, dtype="float8"), "float8", "float32")
    fails(wb.DTypeError, lambda: wb.tensor(["a"]), "tensor")
    fails(wb.DTypeError, lambda: wb.tensor([1j]), "complex128")
    fails(wb.DTypeError, lambda: wb.tensor([None]), "no number")
    fails(wb.DTypeError, lambda: wb.where(x, x, x), "bool_", "x != 0")
    fails(wb.DTypeError, lambda: x.int().mean(), "mean", "int32", "float()")
    fails(wb.DTypeError, lambda: x & 1, "bitwise_and", "float32")
    fails(wb.DTypeError, lambda: x.gather(0, x), "integer", "float32")
    fails(wb.DTypeError, lambda: x[x], "integer", "float32")
    fails(wb.DTypeError, lambda: (x > 0) @ (x > 0).T, "matmul", "bool_")
    fails(wb.DTypeError, lambda: x.maximum("a"), "maximum", "str")
    fails(wb.DTypeError, lambda: x.copy_("a"), "copy_", "str")
    fails(wb.ValueRangeError, lambda: wb.tensor([2**31], device=x.device), "2147483648", "int32")
    fails(wb.ValueRangeError, lambda: wb.tensor([300], dtype="uint8"), "300", "0 to 255")
    fails(wb.ValueRangeError, lambda: wb.tensor([np.nan], dtype="int32"), "NaN")
    still_works(x)


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_64_bits_asked_of_a_gpu(wgpu, dtype):
    for call in (
        lambda: wb.zeros(2, dtype=dtype, device=wgpu),
        lambda: wb.tensor([1], dtype=dtype, device=wgpu),
        lambda: wb.ones(2, device=wgpu).to(dtype),
        lambda: wb.arange(3, dtype=dtype, device=wgpu),
        lambda: wb.linspace(0, 1, 3, dtype=dtype, device=wgpu),
    ):
        fails(wb.DTypeError, call, dtype, str(wgpu), "float32")


def test_devices_mix_only_when_told(cpu, wgpu):
    a, b = wb.ones(3, device=cpu), wb.ones(3, device=wgpu)
    for call in (
        lambda: a + b,
        lambda: b @ a,
        lambda: wb.cat([a, b]),
        lambda: wb.where(a > 0, b, a),
        lambda: a.maximum(b),
        lambda: a.gather(0, b.int()),
        lambda: a[b.int()],
        lambda: a.clamp(b, b),
        lambda: wb.stack([b, a]),
    ):
        fails(wb.DeviceError, call, "cpu", str(wgpu), ".to(")

    def assign():
        a[0] = b[0]

    fails(wb.DeviceError, assign, "cpu", str(wgpu), ".to(")
    assert (a + b.to(cpu)).tolist() == [2, 2, 2]


def test_grads(device, x):
    fails(wb.GradError, lambda: (x * 2).sum().backward(), "plain device", "autodiff()", "wb.grad")
    p = wb.ones(2, device=device.autodiff()).requires_grad_()
    fails(wb.GradError, lambda: (p * 2).backward(), "(2,)", "mean()")
    fails(wb.ShapeError, lambda: (p * 2).backward(wb.ones(3, device=device)), "(3,)", "(2,)")
    fails(wb.GradError, lambda: p.mul_(2), "no_grad")


def test_values(x):
    fails(wb.ValueRangeError, lambda: wb.arange(0, 5, 0), "step")
    fails(wb.ValueRangeError, lambda: wb.randint(5, 5), "empty")
    fails(wb.ValueRangeError, lambda: wb.linspace(0, 1, -2), "-2")
    fails(wb.ValueRangeError, lambda: bool(x), "any()")
    fails(wb.ShapeError, x.item, "6 elements")
    fails(wb.ShapeError, lambda: x[:0].amax(0), "no elements")


# -- indices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [3, -4, 100])
def test_indices_that_the_host_knows(x, device, bad):
    """Raised when the op is recorded, on every device."""
    i = wb.tensor([0, bad], device=device)
    fails(wb.IndexRangeError, lambda: x[:, bad], str(bad), "(2, 3)")
    fails(wb.IndexRangeError, lambda: x[:, [0, bad]], str(bad), "size 3")
    fails(wb.IndexRangeError, lambda: x[:, i], str(bad), "size 3", "-3 to 2")
    fails(wb.IndexRangeError, lambda: x.index_select(1, i), "index_select", str(bad))
    fails(wb.IndexRangeError, lambda: x.gather(1, i.reshape(2, 1)), "gather", str(bad))
    fails(wb.IndexRangeError, lambda: x.scatter_add(1, i.reshape(2, 1), x[:, :1]), str(bad))
    fails(wb.IndexRangeError, lambda: x.index_add(1, i, x[:, :2]), "index_add", str(bad))
    fails(IndexError, lambda: x[0, i], str(bad))
    still_works(x)


def test_one_hot_of_a_class_that_is_not_there(device):
    fails(wb.IndexRangeError, lambda: wb.one_hot(wb.tensor([3], device=device), 3), "one_hot", "3")


def test_int64_indices_are_checked_too(cpu):
    x = wb.ones(3, device=cpu)
    i = wb.tensor([5], dtype="int64", device=cpu)
    fails(wb.IndexRangeError, lambda: x[i], "index 5")


COMPUTED = {
    "index": lambda x, i: x[:, i],
    "index_select": lambda x, i: x.index_select(1, i),
    "gather": lambda x, i: x.gather(1, i.reshape(2, 1)),
    "two indices": lambda x, i: x[i * 0, i],
    "index_add": lambda x, i: x.index_add(1, i, x[:, :2]),
    "scatter_add": lambda x, i: x.scatter_add(1, i.reshape(2, 1), x[:, :1]),
}


@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("bad", [3, -4])
def test_computed_indices_on_the_cpu(cpu, name, bad):
    """Raised when they are computed, never before, and never wrapped a second time."""
    x = wb.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=cpu)
    out = COMPUTED[name](x, wb.tensor([0, bad - 1], device=cpu) + 1)
    fails(wb.IndexRangeError, out.numpy, f"index {bad} is out of range", "size 3")
    still_works(x)


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_indices_on_a_gpu_are_clamped(wgpu, name):
    x = wb.tensor(np.arange(6, dtype=np.float32).reshape(2, 3), device=wgpu)
    for bad, kept in ((3, 2), (1 << 30, 2), (-4, 0), (-(1 << 30), 0)):
        out = COMPUTED[name](
            x, wb.tensor([1, bad - 1], device=wgpu) - wb.tensor([0, -1], device=wgpu)
        )
        want = COMPUTED[name](x, wb.tensor([1, kept], device=wgpu))
        np.testing.assert_array_equal(out.numpy(), want.numpy())


def test_other_index_errors(x):
    fails(wb.IndexRangeError, lambda: x[0, 0, 0], "too many", "(2, 3)")
    fails(wb.IndexRangeError, lambda: x[..., ...], "one Ellipsis")
    fails(wb.IndexRangeError, lambda: x["a"], "str", "slices")
    fails(wb.IndexRangeError, lambda: x[1.5], "float")
    fails(wb.ShapeError, lambda: x[wb.ones(3, dtype="bool", device=x.device)], "(3,)", "(2,)")
    fails(wb.ShapeError, lambda: x[[0, 1], [0, 1, 2]], "(2,)", "(3,)")
    fails(wb.ShapeError, lambda: x.gather(1, wb.tensor([[[0]]], device=x.device)), "rank")


# -- programs and limits --------------------------------------------------------------------------


def test_a_wgsl_error_names_the_kernel(wgpu):
    broken = dataclasses.replace(ew.neg, name="crumble", wgsl="({0} + no_such_name)")
    x = wb.tensor([1.0, 2.0], device=wgpu)
    y = bridge.apply(broken, (x,))
    with pytest.raises(wb.DeviceError) as caught:
        y.numpy()
    # The cause in the first line; the compiler's own words may follow.
    first = str(caught.value).splitlines()[0]
    assert "'crumble' does not compile at line" in first
    assert "no_such_name" in first
    with pytest.raises(wb.DeviceError, match="no_such_name"):
        (y * 3).numpy()
    assert (x * 3).tolist() == [3, 6]


def test_an_op_without_a_rule_for_the_device(cpu):
    from wgburn.ops.record import unsupported

    missing = dataclasses.replace(
        ew.neg, name="seance", kind="kernel", numpy=unsupported("nobody wrote it")
    )
    y = bridge.apply(missing, (wb.ones(2, device=cpu),))
    fails((wb.WgburnError, NotImplementedError), y.numpy, "seance", "nobody wrote it")


def test_a_launch_over_a_limit(wgpu):
    """Refused on the host: handed on, it would abort the process."""
    backend = wgpu.backend
    x = wb.tensor(np.arange(4, dtype=np.float32), device=wgpu)
    y = x + 1
    queue, prepare = backend.queue, backend.queue.prepare

    async def too_wide(list_):
        wide = tuple(
            Launch(n.program, n.slots, (70000, 1, 1), n.params_offset) for n in list_.launches
        )
        return await prepare(LaunchList(list_.programs, wide, list_.params_bytes, list_.label))

    queue.prepare = too_wide
    try:
        fails(
            wb.DeviceError,
            (y * 17.25).exp2().numpy,
            "70000",
            "65535",
            "maxComputeWorkgroupsPerDimension",
        )
    finally:
        del queue.prepare
    assert (x + 1).tolist() == [1, 2, 3, 4]


def test_more_elements_than_workgroups_of_one_dimension(wgpu):
    n = 65535 * 256 + 77
    x = wb.arange(n, dtype="uint32", device=wgpu)
    y = x + 1
    assert y[-1].item() == n
    assert y[65535 * 64].item() == 65535 * 64 + 1
    assert y[12345].item() == 12346
    assert (y == wb.arange(1, n + 1, dtype="uint32", device=wgpu)).all().item() is True


def test_a_tensor_over_the_binding_limit_names_it(wgpu):
    n = (128 << 20) // 4 + 1000
    limit = ("maxStorageBufferBindingSize", "134217728", "limits=", "split")
    held = wb.full((n,), 2.0, device=wgpu) * 3
    fails(wb.DeviceError, held.numpy, *limit)
    fails(wb.DeviceError, lambda: wb.tensor(np.ones(n, np.float32), device=wgpu), *limit)
    del held
    # What is never stored has no limit.
    assert 0.499 < wb.rand(n, device=wgpu).sum().item() / n < 0.501
    assert wb.ones(2, device=wgpu).tolist() == [1, 1]


def test_a_tensor_larger_than_any_buffer(wgpu):
    huge = wb.full((1 << 30,), 1.0, device=wgpu) + 1
    fails(wb.DeviceError, huge.numpy, "4294967296 bytes", "max")
    del huge
    assert wb.ones(2, device=wgpu).tolist() == [1, 1]
