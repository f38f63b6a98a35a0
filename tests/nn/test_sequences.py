"""Attention, transformers, recurrent layers and encodings against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from nn.twins import close, compare, integers, normal

import wgburn as wb
import wgburn.nn.functional as F
from wgburn import nn

pytestmark = [
    pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning"),
]

KEYS = np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], bool)
CAUSAL = np.triu(np.ones((5, 5), bool), 1)
BIAS = normal(5, 5, seed=8)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_first": True},
        {"bias": False},
        {"kdim": 6, "vdim": 10},
        {"add_bias_kv": True, "add_zero_attn": True},
    ],
    ids=lambda s: "-".join(s) or "plain",
)
@pytest.mark.parametrize("masks", ["none", "padding", "causal", "float", "both"])
def test_attention_equals_torchs(settings: dict[str, Any], masks: str, device: wb.Device) -> None:
    torch.manual_seed(0)
    ours, theirs = (lib.MultiheadAttention(8, 2, **settings) for lib in (nn, torch.nn))
    order = (1, 0, 2) if not settings.get("batch_first") else (0, 1, 2)
    sizes = (8, settings.get("kdim", 8), settings.get("vdim", 8))
    args = tuple(normal(3, 5, s, seed=i).transpose(order).copy() for i, s in enumerate(sizes))
    kwargs: dict[str, Any] = {}
    if masks in ("padding", "both"):
        kwargs["key_padding_mask"] = KEYS
    if masks in ("causal", "both"):
        kwargs["attn_mask"] = CAUSAL
    if masks == "float":
        kwargs["attn_mask"] = BIAS
    if masks == "both":
        kwargs["average_attn_weights"] = False
    compare(ours, theirs, args, device, **kwargs)


def test_attention_unbatched_without_weights(device: wb.Device) -> None:
    ours, theirs = nn.MultiheadAttention(8, 2), torch.nn.MultiheadAttention(8, 2)
    compare(ours, theirs, tuple(normal(5, 8, seed=i) for i in range(3)), device)
    x = wb.tensor(normal(5, 3, 8), device=device)
    assert ours.to(device)(x, x, x, need_weights=False)[1] is None


def test_attention_refuses_shapes() -> None:
    layer = nn.MultiheadAttention(8, 2)
    x = wb.ones(5, 3, 8)
    with pytest.raises(wb.ShapeError, match="key_padding_mask"):
        layer(x, x, x, key_padding_mask=wb.zeros(5, 3, dtype=wb.bool_))
    with pytest.raises(wb.ShapeError, match="attn_mask"):
        layer(x, x, x, attn_mask=wb.zeros(3, 3))
    with pytest.raises(wb.ShapeError, match=r"\[L, N, E\]"):
        layer(x, x[:, :2], x)
    with pytest.raises(wb.ShapeError, match="3 heads"):
        nn.MultiheadAttention(8, 3)


@pytest.mark.parametrize(
    "case",
    [
        ((2, 4, 5, 6), (2, 4, 7, 6), {}),
        ((5, 6), (7, 6), {"scale": 0.3}),
        ((2, 4, 5, 6), (2, 4, 7, 6), {"is_causal": True}),
        ((2, 4, 5, 6), (2, 2, 7, 6), {"enable_gqa": True}),
        ((1, 4, 1, 6), (1, 4, 1, 6), {"is_causal": True}),
        ((0, 4, 5, 6), (0, 4, 7, 6), {}),
    ],
    ids=str,
)
def test_scaled_dot_product(case: Any, device: wb.Device) -> None:
    q, k, kwargs = case
    compare(
        F.scaled_dot_product_attention,
        torch.nn.functional.scaled_dot_product_attention,
        (normal(*q), normal(*k, seed=1), normal(*k, seed=2)),
        device,
        **kwargs,
    )


def test_scaled_dot_product_masks(device: wb.Device) -> None:
    args = tuple(normal(2, 2, 5, 4, seed=i) for i in range(3))
    for mask in (~CAUSAL, BIAS, np.ones((2, 1, 5, 5), bool)):
        compare(
            F.scaled_dot_product_attention,
            torch.nn.functional.scaled_dot_product_attention,
            args,
            device,
            attn_mask=mask,
        )
    # A row that may see nothing gives zeros, and no NaN comes back.
    blocked = np.ones((5, 5), bool)
    blocked[2] = False
    q = wb.tensor(args[0], device=device.autodiff()).requires_grad_()
    out = F.scaled_dot_product_attention(q, q, q, wb.tensor(blocked, device=device))
    assert (out[:, :, 2].numpy() == 0).all()
    out.sum().backward()
    assert np.isfinite(q.grad.numpy()).all()
    with pytest.raises(wb.ValueRangeError, match="not both"):
        F.scaled_dot_product_attention(q, q, q, wb.tensor(blocked, device=device), is_causal=True)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(norm_first: bool, activation: str, device: wb.Device) -> None:
    settings = {"dropout": 0.0, "norm_first": norm_first, "activation": activation}
    ours, theirs = (
        lib.TransformerEncoderLayer(8, 2, 16, batch_first=True, **settings)
        for lib in (nn, torch.nn)
    )
    compare(ours, theirs, (normal(3, 5, 8), CAUSAL, KEYS), device)


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer(norm_first: bool, device: wb.Device) -> None:
    ours, theirs = (
        lib.TransformerDecoderLayer(8, 2, 16, dropout=0.0, norm_first=norm_first, bias=norm_first)
        for lib in (nn, torch.nn)
    )
    compare(ours, theirs, (normal(5, 3, 8), normal(6, 3, 8, seed=1)), device, tgt_mask=CAUSAL)


def test_stacks_and_whole_transformer(device: wb.Device) -> None:
    def build(lib: Any) -> Any:
        return lib.TransformerEncoder(
            lib.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 2, lib.LayerNorm(8)
        )

    compare(build(nn), build(torch.nn), (normal(5, 3, 8),), device, src_key_padding_mask=KEYS)
    settings: dict[str, Any] = {"dropout": 0.0, "dim_feedforward": 16, "batch_first": True}
    ours, theirs = (lib.Transformer(8, 2, 1, 1, **settings) for lib in (nn, torch.nn))
    mask = nn.Transformer.generate_square_subsequent_mask(5).numpy()
    np.testing.assert_array_equal(
        mask, torch.nn.Transformer.generate_square_subsequent_mask(5).numpy()
    )
    compare(ours, theirs, (normal(3, 4, 8), normal(3, 5, 8, seed=1)), device, tgt_mask=mask)


def test_stack_parameters_are_their_own() -> None:
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
    names = [n for n, _ in stack.named_parameters()]
    assert len(names) == 24 and len({id(p) for p in stack.parameters()}) == 24
    assert [p.name for p in stack.parameters()] == names


RECURRENT: list[tuple[str, dict[str, Any]]] = [
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu", "bidirectional": True, "bias": False}),
    ("GRU", {"num_layers": 2}),
    ("GRU", {"batch_first": True, "bidirectional": True}),
    ("LSTM", {}),
    ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    ("LSTM", {"proj_size": 2, "bidirectional": True}),
]


@pytest.mark.parametrize("case", RECURRENT, ids=lambda c: f"{c[0]}-{'-'.join(c[1])}")
def test_recurrent_equals_torchs(case: tuple[str, dict[str, Any]], device: wb.Device) -> None:
    name, settings = case
    torch.manual_seed(0)
    ours, theirs = (getattr(lib, name)(3, 4, **settings) for lib in (nn, torch.nn))
    x = normal(2, 3, 3) if settings.get("batch_first") else normal(3, 2, 3)
    compare(ours, theirs, (x,), device)
    count = settings.get("num_layers", 1) * (2 if settings.get("bidirectional") else 1)
    sizes = [settings.get("proj_size", 4), 4][: 2 if name == "LSTM" else 1]
    state = [normal(count, 2, s, seed=i) for i, s in enumerate(sizes)]
    for p in (*ours.parameters(), *theirs.parameters()):
        p.grad = None

    def with_state(model: Any) -> Any:
        return lambda *a: model(a[0], tuple(a[1:]) if name == "LSTM" else a[1])

    compare(with_state(ours), with_state(theirs), (x, *state), device)
    if count == 1:
        compare(ours, theirs, (normal(3, 3),), device)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_packed_sequences(name: str, batch_first: bool, device: wb.Device) -> None:
    lengths = [2, 3, 1]
    settings = {"bidirectional": True, "batch_first": batch_first}
    ours, theirs = (getattr(lib, name)(3, 4, **settings) for lib in (nn, torch.nn))

    def run(model: Any, rnn: Any) -> Any:
        def call(x: Any) -> Any:
            packed = rnn.pack_padded_sequence(x, lengths, batch_first, enforce_sorted=False)
            out, state = model(packed)
            return rnn.pad_packed_sequence(out, batch_first)[0], state

        return call

    ours.load_state_dict(theirs.state_dict())
    ours.to(device.autodiff())
    x = normal(3, 4, 3) if batch_first else normal(4, 3, 3)
    compare(run(ours, nn.utils.rnn), run(theirs, torch.nn.utils.rnn), (x,), device)
    for key, p in theirs.named_parameters():
        close(ours.get_parameter(key).grad, p.grad, key)


def test_packing_options() -> None:
    rnn = nn.utils.rnn
    a, b = wb.tensor(normal(4, 2)), wb.tensor(normal(2, 2, seed=1))
    want = torch.nn.utils.rnn.pad_sequence([torch.tensor(t.numpy()) for t in (a, b)], True, 9.0)
    np.testing.assert_array_equal(rnn.pad_sequence([a, b], True, 9.0).numpy(), want.numpy())
    padded, lengths = rnn.pad_packed_sequence(rnn.pack_sequence([a, b]), total_length=6)
    assert padded.shape == (6, 2, 2) and lengths.tolist() == [4, 2]
    for bad, match in (([2, 4], "fall"), ([5, 2], "1 to 4"), ([0, 0], "1 to 4")):
        with pytest.raises(wb.ValueRangeError, match=match):
            rnn.pack_padded_sequence(rnn.pad_sequence([a, b]), bad)
    with pytest.raises(wb.ShapeError, match="initial state"):
        nn.GRU(2, 3)(wb.ones(4, 1, 2), wb.zeros(1, 2, 3))
    with pytest.raises(wb.ShapeError, match=r"\[L, N, input\]"):
        nn.LSTM(2, 3)(wb.ones(4, 1, 3))


@pytest.mark.parametrize("name", ["RNNCell", "GRUCell", "LSTMCell"])
def test_cells(name: str, device: wb.Device) -> None:
    ours, theirs = (getattr(lib, name)(3, 4) for lib in (nn, torch.nn))
    compare(ours, theirs, (normal(2, 3),), device)


def test_dropout_between_layers_only() -> None:
    layer = nn.LSTM(3, 4, num_layers=2, dropout=0.9)
    x = wb.tensor(normal(5, 2, 3))
    assert (layer(x)[0].numpy() != layer(x)[0].numpy()).any()
    layer.eval()
    np.testing.assert_array_equal(layer(x)[0].numpy(), layer(x)[0].numpy())


def test_positional_encoding(device: wb.Device) -> None:
    layer = nn.PositionalEncoding(6, 10).to(device)
    got = layer(wb.zeros(2, 4, 6, device=device)).numpy()
    for position in range(4):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            np.testing.assert_allclose(
                got[1, position, 2 * i : 2 * i + 2], [np.sin(angle), np.cos(angle)], atol=1e-6
            )
    assert layer.state_dict() == {}
    with pytest.raises(wb.ShapeError, match="max_len=10"):
        layer(wb.zeros(1, 11, 6, device=device))


@pytest.mark.parametrize("interleaved", [True, False])
def test_rotary_encoding(interleaved: bool, device: wb.Device) -> None:
    layer = nn.RotaryEncoding(6, 20, interleaved=interleaved).to(device)
    x = normal(2, 5, 6)
    got = layer(wb.tensor(x, device=device)).numpy()
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + 3) for i in range(3)]
    for t in range(5):
        for i, (a, b) in enumerate(pairs):
            turn = np.exp(1j * t / 10000 ** (2 * i / 6)) * (x[:, t, a] + 1j * x[:, t, b])
            np.testing.assert_allclose(got[:, t, a], turn.real, atol=1e-5)
            np.testing.assert_allclose(got[:, t, b], turn.imag, atol=1e-5)
    # Scores depend on the distance only.
    q, k = (wb.tensor(normal(1, 1, 6, seed=s), device=device) for s in (1, 2))
    near = (layer(q, 3) * layer(k, 1)).sum().item()
    far = (layer(q, 12) * layer(k, 10)).sum().item()
    assert near == pytest.approx(far, abs=1e-4)


def test_indices_of_embeddings_are_checked(device: wb.Device) -> None:
    layer = nn.Embedding(5, 3).to(device)
    with pytest.raises(wb.IndexRangeError, match="index 5 has no row"):
        layer(wb.tensor([1, 5], device=device))
    with pytest.raises(IndexError, match="index -1"):
        layer(wb.tensor([1, -1], device=device))
    with pytest.raises(wb.DTypeError, match="integers"):
        layer(wb.tensor([1.0], device=device))
    kept = nn.Embedding.from_pretrained(wb.tensor(normal(4, 2)))
    assert not kept.weight.requires_grad
    np.testing.assert_array_equal(
        kept(wb.tensor(integers(4, 3))).numpy(), normal(4, 2)[integers(4, 3)]
    )
    assert (nn.Embedding(5, 3, padding_idx=-1).weight[4].numpy() == 0).all()
