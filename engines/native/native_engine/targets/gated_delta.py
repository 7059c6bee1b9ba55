"""The gated delta net's recurrence from an FP32 state: verify rows, replayed rows, prompts.

S_t = exp(g_t) S_{t-1} + k_t u_t^T with u_t = beta_t (v_t - exp(g_t) S_{t-1}^T k_t), read as
o_t = S_t^T q_t (Yang et al. 2024, arXiv 2412.06464, section 3.1). Rows are taken 64 at a time in
the chunk form of its section 3.3: every u of a chunk at once, from one triangular system. u of a
row depends on no later row, so the first rows of a verify step are what they would be alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_ROWS = 64
L2_EPS = 1e-6


@dataclass(frozen=True)
class DeltaShape:
    """Heads of one layer: each key head serves `value_heads / key_heads` consecutive value heads.
    conv_rows: earlier rows the causal convolution sees (its kernel size less one)."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_rows: int

    @property
    def channels(self) -> int:
        """Width of the mixed q, k, v row that the convolution runs over."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


class DeltaWeights(NamedTuple):
    """FP32 weights of one layer, or of all with the layer as leading dimension.

    conv: `[kernel, channels]`, oldest row first. rate: `[value_heads]`, -exp(A_log). dt_bias:
    `[value_heads]`."""

    conv: Tensor
    rate: Tensor
    dt_bias: Tensor

    def layer(self, index: int) -> DeltaWeights:
        return DeltaWeights(self.conv[index], self.rate[index], self.dt_bias[index])


class DeltaRows(NamedTuple):
    """Inputs of the recurrence, FP32, `[n, t, heads, ..]`: unit q (times key_dim**-0.5) and k of
    the key heads; v, log decay g and beta of the value heads. A row of g = beta = 0 changes
    nothing."""

    q: Tensor
    k: Tensor
    v: Tensor
    g: Tensor
    beta: Tensor

    @classmethod
    def of(cls, window: Tensor, ba: Tensor, weights: DeltaWeights, shape: DeltaShape) -> DeltaRows:
        """From projections: `window` `[n, conv_rows + t, channels]`, mixed q, k, v before the
        convolution; `ba` `[n, t, 2 * value_heads]`, b before a."""
        mixed = causal_conv(window, weights.conv)
        keys = shape.key_heads * shape.key_dim
        q, k, v = torch.split(mixed, [keys, keys, shape.value_heads * shape.value_dim], dim=-1)
        b, a = ba.chunk(2, dim=-1)
        g = weights.rate.unsqueeze(-2) * F.softplus(a.float() + weights.dt_bias.unsqueeze(-2))
        return cls(
            unit(torch.unflatten(q, -1, (shape.key_heads, -1))) * shape.key_dim**-0.5,
            unit(torch.unflatten(k, -1, (shape.key_heads, -1))),
            torch.unflatten(v, -1, (shape.value_heads, -1)).float(),
            g,
            b.sigmoid().float(),
        )


def causal_conv(window: Tensor, weight: Tensor) -> Tensor:
    """SiLU of the depthwise convolution of `[..., kernel - 1 + t, channels]`: `[..., t, channels]`.

    Element by element in FP32, so that few rows cost a few operators, and rounded once."""
    kernel = weight.shape[-2]
    rows = window.shape[-2] - kernel + 1
    wide = window.float()
    total = wide[..., :rows, :] * weight[..., :1, :]
    for tap in range(1, kernel):
        total.addcmul_(wide[..., tap : tap + rows, :], weight[..., tap : tap + 1, :])
    return F.silu(total).to(window.dtype)


def unit(x: Tensor) -> Tensor:
    """`x / |x|` over the last dimension, in FP32."""
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + L2_EPS)


def read_rows(rows: DeltaRows, state: Tensor) -> Tensor:
    """Outputs `[n, t, value_heads, value_dim]` of at most a few dozen rows after `state` `[n,
    value_heads, key_dim, value_dim]`, without the state behind them (a verify step)."""
    return _ungrouped(_Chunk(rows, _grouped(state, rows)).read())


def replay_rows(rows: DeltaRows, state: Tensor) -> Tensor:
    """The state behind at most a few dozen rows, without their outputs."""
    return _Chunk(rows, _grouped(state, rows)).end().flatten(1, 2)


def run_rows(rows: DeltaRows, state: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs of any number of rows, and the state behind the last; `state` is not changed."""
    state = _grouped(state, rows)
    outputs = []
    for begin in range(0, rows.k.shape[1], CHUNK_ROWS):
        chunk = _Chunk(DeltaRows(*(x[:, begin : begin + CHUNK_ROWS] for x in rows)), state)
        outputs.append(_ungrouped(chunk.read()))
        state = chunk.end()
    return torch.cat(outputs, dim=1), state.flatten(1, 2)


class _Chunk:
    """Rows of one chunk after `state`, as `[n, key_heads, group, t, ..]`: what is made of keys
    alone is made once for the value heads that share them."""

    def __init__(self, rows: DeltaRows, state: Tensor) -> None:
        group = (rows.k.shape[2], -1)
        v, g, beta = (
            torch.unflatten(x.transpose(1, 2), 1, group)
            for x in (rows.v, rows.g.unsqueeze(-1), rows.beta.unsqueeze(-1))
        )
        self.q, self.k = (x.transpose(1, 2).unsqueeze(2) for x in (rows.q, rows.k))
        self.state = state
        self.total = g.cumsum(-2)
        self.decay = self.total.exp()
        # Decay from row j to row i >= j. The upper half goes before exp, or it overflows.
        self.between = (self.total - self.total.transpose(-1, -2)).tril_().exp_().tril_()
        self.update = beta * (v - self.decay * (self.k @ state))
        if rows.k.shape[1] > 1:
            system = beta * (self.k @ self.k.transpose(-1, -2)) * self.between
            self.update = torch.linalg.solve_triangular(
                system, self.update, upper=False, unitriangular=True
            )

    def read(self) -> Tensor:
        among = (self.q @ self.k.transpose(-1, -2)) * self.between
        return self.decay * (self.q @ self.state) + among @ self.update

    def end(self) -> Tensor:
        fading = (self.total[..., -1:, :] - self.total).exp()
        added = (self.k * fading).transpose(-1, -2) @ self.update
        return added.addcmul_(self.decay[..., -1:, :], self.state)


def _grouped(state: Tensor, rows: DeltaRows) -> Tensor:
    return torch.unflatten(state, 1, (rows.k.shape[2], -1))


def _ungrouped(out: Tensor) -> Tensor:
    return out.flatten(1, 2).transpose(1, 2)
