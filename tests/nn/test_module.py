"""The Module tree: registration, walking, moving, states, printing, copies."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import wgburn as wb
from wgburn import nn

pytestmark = pytest.mark.quick


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Any) -> Any:
        return self.norm(self.lin(x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList()
        for _ in range(2):
            self.blocks.append(Block())
        self.scale = nn.Parameter(wb.ones(3))
        self.register_buffer("mask", wb.ones(3))
        self.register_buffer("scratch", wb.zeros(3), persistent=False)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x * self.scale * self.mask


def torch_model() -> torch.nn.Module:
    class TorchBlock(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = torch.nn.Linear(3, 3)
            self.norm = torch.nn.BatchNorm1d(3)

    class TorchModel(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList(TorchBlock() for _ in range(2))
            self.scale = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("mask", torch.ones(3))
            self.register_buffer("scratch", torch.zeros(3), persistent=False)

    return TorchModel()


def test_names_and_order_are_torchs() -> None:
    ours, theirs = Model(), torch_model()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    # The counter is no tensor inside.
    buffers = [n for n, _ in theirs.named_buffers() if not n.endswith("num_batches_tracked")]
    assert [n for n, _ in ours.named_buffers()] == buffers
    assert [type(c).__name__ for c in ours.children()] == ["ModuleList"]


def test_parameters_know_their_path() -> None:
    model = Model()
    assert [p.name for p in model.parameters()] == [n for n, _ in model.named_parameters()]
    assert model.blocks[1].lin.weight.name == "blocks.1.lin.weight"


def test_state_round_trip_with_torch() -> None:
    ours, theirs = Model(), torch_model()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(torch.randn(p.shape))
    theirs.blocks[0].norm.num_batches_tracked += 7
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])
    for name, value in theirs.state_dict().items():
        np.testing.assert_array_equal(ours.state_dict()[name].numpy(), value.numpy(), err_msg=name)
    assert ours.blocks[0].norm.num_batches_tracked == 7
    back = {k: torch.from_numpy(v.numpy()) for k, v in ours.state_dict().items()}
    torch_model().load_state_dict(back)


def test_state_is_a_snapshot() -> None:
    model = nn.Linear(2, 2)
    before = model.state_dict()["weight"].numpy()
    state = model.state_dict()
    with wb.no_grad():
        model.weight.add_(1.0)
    np.testing.assert_array_equal(state["weight"].numpy(), before)


def test_a_bad_state_is_reported_whole_and_changes_nothing() -> None:
    model = Model()
    before = {k: v.numpy() for k, v in model.state_dict().items()}
    state: dict[str, Any] = {k: v + 1 for k, v in before.items()}
    del state["scale"], state["blocks.0.lin.bias"]
    state["extra"] = np.zeros(2)
    state["mask"] = np.zeros(4)
    with pytest.raises(wb.StateDictError) as error:
        model.load_state_dict(state)
    for part in ("missing: scale, blocks.0.lin.bias", "unexpected: extra", "mask is (4,)", "(3,)"):
        assert part in str(error.value), error.value
    with pytest.raises(wb.StateDictError, match=r"mask is \(4,\)"):
        model.load_state_dict(state, strict=False)
    for k, v in model.state_dict().items():
        np.testing.assert_array_equal(v.numpy(), before[k])
    del state["mask"]
    result = model.load_state_dict(state, strict=False)
    assert result.unexpected_keys == ["extra"]
    assert set(result.missing_keys) == {"scale", "blocks.0.lin.bias", "mask"}
    np.testing.assert_array_equal(
        model.state_dict()["blocks.1.lin.weight"].numpy(), before["blocks.1.lin.weight"] + 1
    )
    with pytest.raises(wb.StateDictError, match="mapping"):
        model.load_state_dict([1, 2])


def test_a_value_that_cannot_be_read_loads_nothing() -> None:
    model = nn.Linear(2, 2)
    before = model.weight.numpy()
    with pytest.raises(wb.WgburnError):
        model.load_state_dict({"weight": before + 1, "bias": np.array(["a", "b"])})
    np.testing.assert_array_equal(model.weight.numpy(), before)


def test_files_keep_the_counter_as_int64(tmp_path: Any) -> None:
    from safetensors.numpy import load_file

    model = nn.BatchNorm1d(3)
    model(wb.ones(4, 3))
    path = tmp_path / "state.safetensors"
    wb.save(model.state_dict(), path)
    assert load_file(path)["num_batches_tracked"].dtype == np.int64
    other = nn.BatchNorm1d(3)
    other.load_state_dict(wb.load(path))
    assert other.num_batches_tracked == 1


def test_moving_keeps_parameters_and_makes_leaves(device: wb.Device) -> None:
    model = Model()
    held = list(model.parameters())
    assert all(p._fn is None for p in held)
    assert all(p.requires_grad for p in held)
    values = model.scale.numpy()
    model.to(device.autodiff())
    assert [id(p) for p in model.parameters()] == [id(p) for p in held]
    assert all(p.is_leaf and p._fn is not None for p in held)
    assert model.mask.device == device
    np.testing.assert_array_equal(model.scale.numpy(), values)
    x = wb.ones(4, 3, device=device)
    model(x).sum().backward()
    assert all(p.grad is not None for p in held)
    model.to(device.inner())
    assert all(p._fn is None for p in held)
    with pytest.raises(wb.GradError, match="plain device"):
        model(x).sum().backward()


def test_frozen_parameters_have_no_gradient() -> None:
    model = nn.Linear(2, 2).requires_grad_(False).to(wb.Device.cpu().autodiff())
    model.bias.requires_grad_()
    model(wb.ones(1, 2)).sum().backward()
    assert model.weight.grad is None and model.bias.grad is not None


def test_dtype_moves_floats_only() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("index", wb.arange(3))
    model.to(wb.float16)
    assert model.weight.dtype is wb.float16 and model.index.dtype is wb.int32
    with pytest.raises(wb.DTypeError):
        model.to(wb.int32)


def test_a_move_that_fails_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to(wb.float64)
    cpu = wb.Device.cpu().backend
    monkeypatch.setattr(cpu, "dtypes", cpu.dtypes - {wb.float16})
    with pytest.raises(wb.DTypeError):
        model.to(wb.float16)
    assert {p.dtype for p in model.parameters()} == {wb.float64}


def test_train_eval_apply_zero_grad() -> None:
    model = Model().to(wb.Device.cpu().autodiff())
    assert model.eval() is model and not any(m.training for m in model.modules())
    assert model.train() is model and all(m.training for m in model.modules())
    model(wb.randn(4, 3)).sum().backward()
    model.zero_grad(set_to_none=False)
    assert all((p.grad.numpy() == 0).all() for p in model.parameters())
    model.zero_grad()
    assert all(p.grad is None for p in model.parameters())
    seen: list[str] = []
    model.apply(lambda m: seen.append(type(m).__name__))
    assert seen[-1] == "Model" and seen.count("Linear") == 2


def test_printing_is_torchs() -> None:
    def build(lib: Any) -> Any:
        return lib.Sequential(
            lib.Linear(2, 3),
            lib.Sequential(lib.Conv2d(1, 2, 3, padding=1, bias=False), lib.ReLU()),
            lib.MaxPool2d(2),
            lib.Embedding(3, 4, padding_idx=1),
            lib.ModuleList([lib.LSTM(2, 3, bidirectional=True)]),
        )

    # torch folds equal entries of a list.
    assert repr(build(nn)) == repr(build(torch.nn))


def test_attributes_have_one_meaning() -> None:
    module = nn.Module()
    module.thing = nn.Parameter(wb.ones(2))
    module.thing = nn.Linear(2, 2)
    assert list(module._parameters) == [] and list(module._modules) == ["thing"]
    del module.thing
    with pytest.raises(AttributeError, match="thing"):
        _ = module.thing
    module.weight = nn.Parameter(wb.ones(2))
    with pytest.raises(TypeError, match="parameter"):
        module.weight = wb.zeros(2)
    module.weight = None
    assert list(module.parameters()) == []
    with pytest.raises(KeyError):
        module.register_buffer("a.b", wb.ones(1))

    class Early(nn.Module):
        def __init__(self) -> None:
            self.lin = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match="super"):
        Early()


def test_shared_parameters_count_once() -> None:
    model = nn.Module()
    model.a, model.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    model.b.weight = model.a.weight
    assert len(list(model.parameters())) == 1
    assert list(model.state_dict()) == ["a.weight", "b.weight"]


def test_copies_are_apart(device: wb.Device) -> None:
    model = Model().to(device.autodiff())
    model(wb.ones(4, 3, device=device))
    twin = copy.deepcopy(model)
    with wb.no_grad():
        twin.scale.add_(1.0)
    np.testing.assert_array_equal(model.scale.numpy() + 1, twin.scale.numpy())
    assert twin.scale.is_leaf and twin.scale._fn is not model.scale._fn
    assert isinstance(twin.scale, nn.Parameter)


def test_pickle_keeps_values() -> None:
    layer = nn.BatchNorm1d(2)
    layer(wb.randn(4, 2))
    back = pickle.loads(pickle.dumps(layer))
    assert isinstance(back.weight, nn.Parameter)
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(back.state_dict()[name].numpy(), value.numpy())


def test_containers() -> None:
    seq = nn.Sequential({"a": nn.ReLU(), "b": nn.Tanh()})
    assert list(seq.state_dict()) == [] and len(seq) == 2
    assert isinstance(seq[-1], nn.Tanh) and isinstance(seq[:1], nn.Sequential) and len(seq[:1]) == 1
    table = nn.ModuleDict({"x": nn.Linear(1, 1)})
    table["y"] = nn.ReLU()
    assert list(table.keys()) == ["x", "y"] and "x" in table and len(table) == 2
    items = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    items.insert(0, nn.GELU())
    assert [type(m).__name__ for m in items] == ["GELU", "ReLU", "Tanh"]
    del items[1]
    assert [type(m).__name__ for m in items] == ["GELU", "Tanh"]
    with pytest.raises(IndexError):
        _ = items[2]
    params = nn.ParameterList([wb.ones(2), wb.zeros(3)])
    assert [n for n, _ in params.named_parameters()] == ["0", "1"]


def test_hooks() -> None:
    layer = nn.ReLU()
    before = layer.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    after = layer.register_forward_hook(lambda m, args, out: out * 10)
    assert layer(wb.tensor([0.0])).item() == 10
    before.remove()
    after.remove()
    assert layer(wb.tensor([0.0])).item() == 0


def test_initial_values_are_equal_on_every_device(device: wb.Device) -> None:
    def made(dev: wb.Device) -> dict[str, np.ndarray]:
        dev.seed(5)
        with wb.use_device(dev):
            model = nn.Sequential(nn.Linear(4, 3), nn.Conv2d(2, 3, 3), nn.LSTM(2, 3))
        return {k: v.numpy() for k, v in model.state_dict().items()}

    for (name, a), b in zip(made(wb.Device.cpu()).items(), made(device).values(), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize(
    "name", ["Linear", "Conv2d", "ConvTranspose2d", "MultiheadAttention", "GRU", "Embedding"]
)
def test_initial_values_have_torchs_distribution(name: str) -> None:
    args = {
        "Linear": (60, 50),
        "Conv2d": (20, 30, 3),
        "ConvTranspose2d": (20, 30, 3),
        "MultiheadAttention": (64, 4),
        "GRU": (40, 50),
        "Embedding": (60, 50),
    }[name]
    wb.Device.cpu().seed(0)
    torch.manual_seed(0)
    ours, theirs = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
    for key, value in theirs.state_dict().items():
        a, b = ours.state_dict()[key].numpy(), value.numpy()
        scale = max(b.std(), 1e-9)
        assert abs(a.std() - b.std()) < 0.25 * scale + 1e-9, key
        assert abs(a.mean() - b.mean()) < 0.5 * scale + 1e-9, key
        if name != "Embedding":
            # Uniform: the largest values say where the bounds are.
            assert np.abs(a).max() <= np.abs(b).max() * 1.15 + 1e-9, key


def test_initialisers() -> None:
    dev = wb.Device.cpu()
    dev.seed(0)
    t = nn.Parameter(wb.empty(64, 32, device=dev.autodiff()))
    assert nn.init.orthogonal_(t) is t
    np.testing.assert_allclose(t.numpy().T @ t.numpy(), np.eye(32), atol=1e-5)
    nn.init.trunc_normal_(t, 0.5, 2.0, -1.0, 1.0)
    assert t.numpy().min() >= -1 and t.numpy().max() <= 1 and abs(t.numpy().mean()) < 0.1
    nn.init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu")
    assert abs(t.numpy().std() - np.sqrt(2 / 64)) < 0.01
    nn.init.xavier_normal_(t, gain=2.0)
    assert abs(t.numpy().std() - 2 * np.sqrt(2 / 96)) < 0.02
    nn.init.sparse_(t, 0.25)
    assert ((t.numpy() == 0).sum(0) == 16).all()
    conv = wb.empty(4, 2, 3, 3)
    want = torch.nn.init.dirac_(torch.empty(4, 2, 3, 3), 2).numpy()
    np.testing.assert_array_equal(nn.init.dirac_(conv, 2).numpy(), want)
    np.testing.assert_array_equal(nn.init.eye_(wb.empty(2, 3)).numpy(), np.eye(2, 3))
    assert t.is_leaf and t._version > 0
    with pytest.raises(wb.ShapeError, match="fan"):
        nn.init.kaiming_uniform_(wb.empty(3))
    for gain in ("relu", "tanh", "selu", "leaky_relu", "linear"):
        assert nn.init.calculate_gain(gain) == pytest.approx(torch.nn.init.calculate_gain(gain))
