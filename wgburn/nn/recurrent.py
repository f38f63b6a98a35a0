"""Recurrent layers and cells: RNN, LSTM, GRU;
layers, both directions, sequences of several lengths.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.errors import ShapeError, ValueRangeError
from ..tensor.creation import empty, zeros
from ..tensor.movement import cat, stack
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

State = tuple[Any, ...]


def _tanh_step(x: Any, h: Any, state: State) -> State:
    return ((x + h).tanh(),)


def _relu_step(x: Any, h: Any, state: State) -> State:
    return ((x + h).relu(),)


def _lstm_step(x: Any, h: Any, state: State) -> State:
    size = state[1].shape[-1]
    i, f, g, o = (x + h).split(size, -1)
    c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_step(x: Any, h: Any, state: State) -> State:
    size = state[0].shape[-1]
    xr, xz, xn = x.split(size, -1)
    hr, hz, hn = h.split(size, -1)
    z = (xz + hz).sigmoid()
    n = (xn + (xr + hr).sigmoid() * hn).tanh()
    return (n + z * (state[0] - n),)


_STEPS = {"RNN_TANH": _tanh_step, "RNN_RELU": _relu_step, "LSTM": _lstm_step, "GRU": _gru_step}
_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


class _Recurrent(Module):
    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        proj_size: int,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if not 0 <= dropout <= 1:
            raise ValueRangeError(f"{name}: dropout={dropout} must be a probability, 0 to 1")
        if proj_size < 0 or proj_size >= hidden_size:
            raise ValueRangeError(f"{name}: proj_size={proj_size} must be below hidden_size")
        self.mode, self.input_size, self.hidden_size = mode, input_size, hidden_size
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional, self.proj_size = dropout, bidirectional, proj_size
        rows = _GATES[mode] * hidden_size
        out = proj_size or hidden_size
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                width = input_size if layer == 0 else out * (2 if bidirectional else 1)
                shapes = {"weight_ih": (rows, width), "weight_hh": (rows, out)}
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}  # type: ignore[dict-item]
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for kind, shape in shapes.items():
                    self.register_parameter(
                        kind + suffix, Parameter(empty(shape, dtype=dtype, device=device))
                    )
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def _direction(self, x: Any, suffix: str, state: State, masks: Any) -> tuple[Any, State]:
        """x [L, N, *] through one direction: outputs [L, N, *] and the last state.

        masks: [L, N, 1], true while a sequence lasts; beyond its end a state stays and outputs are
        0.
        """
        own = self._parameters
        bias_ih, bias_hh = own.get("bias_ih" + suffix), own.get("bias_hh" + suffix)
        gates = F.linear(x, own["weight_ih" + suffix], bias_ih)
        step = _STEPS[self.mode]
        w_hh, w_hr = own["weight_hh" + suffix], own.get("weight_hr" + suffix)
        length = x.shape[0]
        order = range(length - 1, -1, -1) if suffix.endswith("_reverse") else range(length)
        outs: list[Any] = [None] * length
        for t in order:
            new = step(gates[t], F.linear(state[0], w_hh, bias_hh), state)
            if w_hr is not None:
                new = (F.linear(new[0], w_hr), *new[1:])
            if masks is None:
                outs[t] = new[0]
            else:
                here = masks[t]
                outs[t] = here.where(new[0], 0.0)
                new = tuple(here.where(a, b) for a, b in zip(new, state, strict=True))
            state = new
        return stack(outs), state

    def _initial(self, hx: Any, n: int, like: Any) -> list[State]:
        """The state of each layer and direction."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [self.proj_size or self.hidden_size]
        if self.mode == "LSTM":
            sizes.append(self.hidden_size)
        if hx is None:
            given = [
                zeros(count, n, s, dtype=like.dtype, device=like.device.inner()) for s in sizes
            ]
        else:
            given = list(hx) if isinstance(hx, (tuple, list)) else [hx]
            want = [(count, n, s) for s in sizes]
            if [t.shape for t in given] != want:
                raise ShapeError(
                    f"{type(self).__name__}: initial state {[t.shape for t in given]} must be "
                    f"{want}"
                )
        return [tuple(t[i] for t in given) for i in range(count)]

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """(outputs, last state); input [L, N, *], with batch_first [N, L, *], [L, *], or packed."""
        packed = isinstance(input, PackedSequence)
        x = input.padded if packed else input
        batch_first = input.batch_first if packed else self.batch_first
        single = x.ndim == 2
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size or (x.shape[-2] == 0 and single):
            order = "[N, L, input]" if batch_first else "[L, N, input]"
            raise ShapeError(
                f"{type(self).__name__}: input {x.shape} must be {order} or [L, input] with input "
                f"{self.input_size}"
            )
        if single:
            x = x.unsqueeze(1)
            if hx is not None:
                lift = hx if isinstance(hx, (tuple, list)) else (hx,)
                hx = tuple(t.unsqueeze(1) for t in lift)
        elif batch_first:
            x = x.transpose(0, 1)
        if x.shape[0] == 0:
            raise ShapeError(f"{type(self).__name__}: input {input.shape} has no steps")
        masks = input.masks() if packed else None
        states = self._initial(hx, x.shape[1], x)
        last: list[State] = []
        for layer in range(self.num_layers):
            outs = []
            for suffix in self._suffixes(layer):
                out, state = self._direction(x, suffix, states[len(last)], masks)
                outs.append(out)
                last.append(state)
            x = outs[0] if len(outs) == 1 else cat(outs, -1)
            if layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        finals = tuple(stack(list(parts)) for parts in zip(*last, strict=True))
        if single:
            x, finals = x.squeeze(1), tuple(f.squeeze(1) for f in finals)
        elif batch_first:
            x = x.transpose(0, 1)
        out = input.with_padded(x) if packed else x
        return out, finals if self.mode == "LSTM" else finals[0]

    def extra_repr(self) -> str:
        out = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0.0),
            ("bidirectional", False),
        ):
            value = getattr(self, name)
            if value != default:
                out += f", {name}={value}"
        return out


class RNN(_Recurrent):
    """h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueRangeError(f"RNN: nonlinearity {nonlinearity!r}; use 'tanh' or 'relu'")
        super().__init__(
            f"RNN_{nonlinearity.upper()}",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
        )
        self.nonlinearity = nonlinearity


class LSTM(_Recurrent):
    """Long short-term memory; the state is (h, c). proj_size projects h to a smaller size."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )


class GRU(_Recurrent):
    """Gated recurrent unit."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            0,
            device,
            dtype,
        )


class _Cell(Module):
    mode = ""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        rows = _GATES[self.mode] * hidden_size
        for name, shape in (
            ("weight_ih", (rows, input_size)),
            ("weight_hh", (rows, hidden_size)),
            ("bias_ih", (rows,)),
            ("bias_hh", (rows,)),
        ):
            wanted = bias or not name.startswith("bias")
            made = Parameter(empty(shape, dtype=dtype, device=device)) if wanted else None
            self.register_parameter(name, made)
        bound = 1.0 / math.sqrt(hidden_size) if hidden_size else 0.0
        for p in self.parameters():
            init.uniform_(p, -bound, bound)

    def forward(self, input: Any, hx: Any = None) -> Any:
        if input.shape[-1] != self.input_size or input.ndim not in (1, 2):
            raise ShapeError(
                f"{type(self).__name__}: input {input.shape} must be [N, {self.input_size}]"
            )
        if hx is None:
            shape = (*input.shape[:-1], self.hidden_size)
            zero = zeros(shape, dtype=input.dtype, device=input.device.inner())
            state: State = (zero, zero) if self.mode == "LSTM" else (zero,)
        else:
            state = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        x = F.linear(input, self.weight_ih, self.bias_ih)
        new = _STEPS[self.mode](x, F.linear(state[0], self.weight_hh, self.bias_hh), state)
        return new if self.mode == "LSTM" else new[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class RNNCell(_Cell):
    """One step of an RNN."""

    mode = "RNN_TANH"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueRangeError(f"RNNCell: nonlinearity {nonlinearity!r}; use 'tanh' or 'relu'")
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.mode = f"RNN_{nonlinearity.upper()}"
        self.nonlinearity = nonlinearity


class LSTMCell(_Cell):
    """One step of an LSTM: gives (h, c)."""

    mode = "LSTM"


class GRUCell(_Cell):
    """One step of a GRU."""

    mode = "GRU"
