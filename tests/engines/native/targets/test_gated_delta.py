"""The recurrence against transformers' two forms of it and a literal FP64 loop."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers.models.qwen3_5.modeling_qwen3_5 import (
    causal_conv1d_fn,
    torch_chunk_gated_delta_rule,
    torch_recurrent_gated_delta_rule,
)

from native_engine.targets.gated_delta import (
    DeltaRows,
    causal_conv,
    read_rows,
    replay_rows,
    run_rows,
    unit,
)

SHAPES = [(1, 1, 1, 4, 4), (2, 7, 2, 8, 16), (3, 64, 3, 16, 8), (1, 150, 2, 8, 8), (8, 9, 1, 8, 8)]


def draw(
    n: int, rows: int, key_heads: int, key_dim: int, value_dim: int, group: int = 3
) -> dict[str, Tensor]:
    heads = key_heads * group
    return {
        "q": torch.randn(n, rows, key_heads, key_dim),
        "k": torch.randn(n, rows, key_heads, key_dim),
        "v": torch.randn(n, rows, heads, value_dim),
        "g": -torch.rand(n, rows, heads).mul(4).exp() * 0.05,
        "beta": torch.rand(n, rows, heads),
        "state": torch.randn(n, heads, key_dim, value_dim),
    }


def ours(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    q = unit(x["q"]) * x["q"].shape[-1] ** -0.5
    rows = DeltaRows(q, unit(x["k"]), x["v"], x["g"], x["beta"])
    out, state = run_rows(rows, x["state"])
    if x["v"].shape[1] <= 64:
        assert torch.equal(out, read_rows(rows, x["state"]))
        assert torch.equal(state, replay_rows(rows, x["state"]))
    return out, state


def literal(x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Row by row in FP64, from the equations."""
    q, k, v, g, beta, s = (x[name].double() for name in ("q", "k", "v", "g", "beta", "state"))
    group = v.shape[2] // k.shape[2]
    q, k = (t / (t.square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
    q, k = (t.repeat_interleave(group, dim=2) for t in (q, k))
    out = torch.zeros_like(v)
    for t in range(v.shape[1]):
        s = g[:, t].exp()[..., None, None] * s
        error = v[:, t] - torch.einsum("nhkv,nhk->nhv", s, k[:, t])
        s = s + torch.einsum("nhk,nhv->nhkv", k[:, t], beta[:, t, :, None] * error)
        out[:, t] = torch.einsum("nhkv,nhk->nhv", s, q[:, t]) / k.shape[-1] ** 0.5
    return out, s


@pytest.mark.parametrize("shape", SHAPES)
def test_the_chunk_form_is_the_recurrence(shape: tuple[int, int, int, int, int]) -> None:
    torch.manual_seed(shape[1])
    x = draw(*shape)
    before = x["state"].clone()
    out, state = ours(x)
    exact_out, exact_state = literal(x)
    assert (out - exact_out).abs().max() < 1e-5
    assert (state - exact_state).abs().max() < 1e-5
    assert torch.equal(x["state"], before)


@pytest.mark.parametrize(
    "reference", [torch_chunk_gated_delta_rule, torch_recurrent_gated_delta_rule]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_agrees(shape: tuple[int, int, int, int, int], reference: object) -> None:
    torch.manual_seed(shape[1])
    x = draw(*shape)
    assert callable(reference)
    theirs_out, theirs_state = reference(
        x["q"],
        x["k"],
        x["v"],
        g=x["g"],
        beta=x["beta"],
        initial_state=x["state"],
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    out, state = ours(x)
    assert (out - theirs_out).abs().max() < 1e-5
    assert (state - theirs_state).abs().max() < 1e-5


def test_strong_decay_over_a_chunk_neither_overflows_nor_loses_the_rows_behind_it() -> None:
    x = draw(2, 130, 2, 8, 8)
    x["g"] = torch.full_like(x["g"], -30.0)
    out, state = ours(x)
    exact_out, exact_state = literal(x)
    assert torch.isfinite(out).all()
    assert (out - exact_out).abs().max() < 1e-5
    assert (state - exact_state).abs().max() < 1e-5


def test_rows_of_padding_leave_rows_and_state_alone() -> None:
    x = draw(2, 9, 2, 8, 8)
    for name in ("g", "beta"):
        x[name][:, 5:] = 0
    out, state = ours(x)
    short = {name: t if name == "state" else t[:, :5] for name, t in x.items()}
    short_out, short_state = ours(short)
    assert (out[:, :5] - short_out).abs().max() < 1e-6
    assert (state - short_state).abs().max() < 1e-6


@pytest.mark.parametrize("rows", [1, 2, 5, 70])
def test_convolution(rows: int) -> None:
    window, weight = torch.randn(2, 3 + rows, 24), torch.randn(24, 4)
    expected = causal_conv1d_fn(window.transpose(1, 2), weight, None, activation="silu")
    got = causal_conv(window, weight.t())
    assert (got - expected.transpose(1, 2)[:, 3:]).abs().max() < 1e-5
    one = torch.cat([causal_conv(window[:, t : t + 4], weight.t()) for t in range(rows)], dim=1)
    assert (got - one).abs().max() < 1e-6
