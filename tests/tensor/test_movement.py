"""Shapes and places beside torch's; views of views; what realising a view costs."""

import numpy as np
import pytest
import torch

import wgburn as wb

pytestmark = pytest.mark.quick

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

SAME_AS_TORCH = {
    "reshape": lambda t: t.reshape(4, -1),
    "view": lambda t: t.view(2, 12),
    "reshape_tuple": lambda t: t.reshape((3, 8)),
    "flatten": lambda t: t.flatten(1),
    "flatten_all": lambda t: t.flatten(),
    "flatten_middle": lambda t: t.flatten(0, 1),
    "unflatten": lambda t: t.unflatten(-1, (2, -1)),
    "permute": lambda t: t.permute(2, 0, 1),
    "permute_negative": lambda t: t.permute((-1, 0, -2)),
    "transpose": lambda t: t.transpose(0, -1),
    "swapaxes": lambda t: t.swapaxes(0, 1),
    "movedim": lambda t: t.movedim(0, -1),
    "movedim_several": lambda t: t.movedim((0, 1), (2, 0)),
    "mT": lambda t: t.mT,
    "t": lambda t: t[0].t(),
    "expand": lambda t: t[:, :1].expand(2, 5, 4),
    "expand_lead": lambda t: t.expand(3, -1, -1, 4),
    "broadcast_to": lambda t: t[0].broadcast_to((2, 3, 4)),
    "squeeze": lambda t: t[:1, :, :1].squeeze(),
    "squeeze_dim": lambda t: t[:1, :, :1].squeeze(-1),
    "squeeze_kept": lambda t: t.squeeze(0),
    "unsqueeze": lambda t: t.unsqueeze(-1),
    "flip": lambda t: t.flip(0, -1),
    "narrow": lambda t: t.narrow(2, 1, 2),
    "narrow_negative": lambda t: t.narrow(-1, -2, 2),
    "split": lambda t: t.split(3, -1),
    "split_sizes": lambda t: t.split([1, 2], 1),
    "chunk": lambda t: t.chunk(3, 2),
    "unbind": lambda t: t.unbind(1),
    "repeat": lambda t: t.repeat(2, 1, 3),
    "repeat_lead": lambda t: t[0].repeat(2, 1, 1),
    "repeat_interleave": lambda t: t.repeat_interleave(2, 1),
    "roll": lambda t: t.roll(-1, 2),
    "roll_far": lambda t: t.roll(7, 0),
    "clone": lambda t: t.clone(),
    "contiguous": lambda t: t.permute(2, 1, 0).contiguous(),
    "view_of_views": lambda t: t.permute(2, 0, 1)[1:, :, 0].reshape(6).flip(0)[:4],
    "reshape_of_transposed": lambda t: t.transpose(1, 2).reshape(8, 3)[:, 1:],
    "flip_then_slice": lambda t: t.flip(2)[:, :, 1:3].permute(1, 2, 0).reshape(-1),
    "expand_then_reshape": lambda t: t[:, :, None, :2].expand(2, 3, 5, 2).reshape(30, 2),
    "sum_of_view": lambda t: (t.permute(1, 0, 2) * t.permute(1, 0, 2)[:, :1]).sum(0),
}


@pytest.mark.parametrize("name", SAME_AS_TORCH)
def test_as_torch(device, name):
    f = SAME_AS_TORCH[name]
    got, want = f(wb.tensor(A, device=device)), f(torch.tensor(A))
    if isinstance(got, tuple):
        assert len(got) == len(want)
    else:
        got, want = (got,), (want,)
    for g, w in zip(got, want, strict=True):
        assert g.shape == tuple(w.shape)
        np.testing.assert_array_equal(g.numpy(), w.numpy())


def test_cat_and_stack(device):
    parts = [A[:, :1], A[:, 1:], A]
    ours = [wb.tensor(p, device=device) for p in parts]
    np.testing.assert_array_equal(wb.cat(ours, 1).numpy(), np.concatenate(parts, 1))
    np.testing.assert_array_equal(wb.concat(ours, dim=-2).numpy(), np.concatenate(parts, -2))
    np.testing.assert_array_equal(wb.stack(ours[2:] * 3, -1).numpy(), np.stack([A] * 3, -1))
    # More inputs than a kernel may bind, empty ones, mixed dtypes.
    many = [wb.full((k % 3, 2), k, device=device) for k in range(40)]
    want = np.concatenate([np.full((k % 3, 2), k) for k in range(40)])
    np.testing.assert_array_equal(wb.cat(many).numpy(), want)
    mixed = wb.cat([wb.tensor([1], device=device), wb.tensor([0.5], device=device)])
    assert mixed.dtype is wb.float32
    assert mixed.tolist() == [1, 0.5]


def test_pads(device):
    t = wb.tensor(A, device=device)
    widths = ((1, 0), (0, 2), (1, 1))
    np.testing.assert_array_equal(
        t.pad_constant(widths, 9.5).numpy(), np.pad(A, widths, constant_values=9.5)
    )
    np.testing.assert_array_equal(
        t.pad_constant(((0, 0), (-1, 1), (0, -2)), 1).numpy(),
        np.pad(A[:, 1:, :2], ((0, 0), (0, 1), (0, 0)), constant_values=1),
    )


def test_shapes_without_elements_and_dimensions(device):
    e = wb.zeros(2, 0, 3, device=device)
    assert e.permute(2, 0, 1).shape == (3, 2, 0)
    assert e.reshape(0, 7).shape == (0, 7)
    assert wb.cat([e, e], 1).shape == (2, 0, 3)
    assert e.flip(0).tolist() == [[], []]
    s = wb.tensor(3.0, device=device)
    assert s.reshape(1, 1).tolist() == [[3]]
    assert s.expand(2).tolist() == [3, 3]
    assert s.flatten().shape == (1,)
    assert s.permute().shape == s.squeeze().shape == s.T.shape == ()
    assert s.unsqueeze(0).tolist() == [3]


def test_a_view_does_not_see_later_updates_of_its_base(device):
    base = wb.tensor(A, device=device)
    view = base.permute(2, 1, 0)[0]
    base.add_(100)
    np.testing.assert_array_equal(view.numpy(), A.transpose(2, 1, 0)[0])
    base2 = wb.tensor(A, device=device)
    view2 = base2[:, 0]
    view2.numpy()
    base2.mul_(0)
    np.testing.assert_array_equal(view2.numpy(), A[:, 0])
