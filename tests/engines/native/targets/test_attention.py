"""Ragged attention against its definition, row by row and head by head in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from native_engine.targets.attention import CausalMasks, RaggedAttention
from native_engine.targets.kv_slots import KvSlots
from native_engine.targets.protocol import Rows

DIM = 8


def attend_by_definition(
    q: Tensor, keys: Tensor, values: Tensor, start: int, window: int | None, scale: float
) -> Tensor:
    """q `[rows, heads, d]` at positions `start ..`; keys, values `[tokens, kv_heads, d]`."""
    q, keys, values = q.double(), keys.double(), values.double()
    rows, heads, _ = q.shape
    group = heads // keys.shape[1]
    out = torch.zeros_like(q)
    for row in range(rows):
        last = start + row
        first = 0 if window is None else max(0, last - window + 1)
        for head in range(heads):
            seen = slice(first, last + 1)
            weights = (keys[seen, head // group] @ q[row, head] * scale).softmax(0)
            out[row, head] = weights @ values[seen, head // group]
    return out.reshape(rows, -1)


@pytest.mark.parametrize("window", [None, 1, 5, 16, 300])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (4, 4), (3, 1)])
@pytest.mark.parametrize("scale", [None, 1.37])
def test_ragged_batches_follow_the_definition(
    window: int | None, heads: int, kv_heads: int, scale: float | None
) -> None:
    """Prefill of several lengths (some above PACKED_ROWS_MAX), then decode and verify rows."""
    cpu = torch.device("cpu")
    cache = KvSlots(2, 5, 200, kv_heads, DIM, torch.float32, cpu)
    masks = CausalMasks(heads // kv_heads, torch.float32, cpu)
    held = {slot: torch.zeros(0, 2 * kv_heads, DIM) for slot in range(5)}
    for counts in ({3: 65, 0: 1, 4: 33}, {0: 8, 1: 32, 3: 1}, {4: 1, 1: 2, 3: 40, 0: 5}, {1: 1}):
        starts = tuple(len(held[slot]) for slot in counts)
        total = sum(counts.values())
        rows = Rows(torch.zeros(total, dtype=torch.int64), (*counts,), starts, (*counts.values(),))
        attend = RaggedAttention(rows, cache, masks)
        wide = torch.randn(total, (heads + 2 * kv_heads) * DIM)
        q, kv = wide[:, : heads * DIM], wide[:, heads * DIM :].view(total, 2 * kv_heads, DIM)
        ours = attend(1, q, kv, window=window, scale=scale)
        for slot, start, begin, end in rows.spans:
            held[slot] = torch.cat((held[slot], kv[begin:end]))
            cache.commit(slot, start + end - begin)
            keys, values = held[slot][:, :kv_heads], held[slot][:, kv_heads:]
            expected = attend_by_definition(
                q[begin:end].view(-1, heads, DIM),
                keys,
                values,
                start,
                window,
                1 / math.sqrt(DIM) if scale is None else scale,
            )
            assert (ours[begin:end] - expected).abs().max() < 1e-5


def test_windows_and_scales_differ_by_layer_within_one_pass() -> None:
    cpu = torch.device("cpu")
    cache = KvSlots(3, 1, 64, 1, DIM, torch.float32, cpu)
    masks = CausalMasks(2, torch.float32, cpu)
    rows = Rows(torch.zeros(20, dtype=torch.int64), (0,), (0,), (20,))
    attend = RaggedAttention(rows, cache, masks)
    q, kv = torch.randn(20, 2 * DIM), torch.randn(20, 2, DIM)
    for layer, (window, scale) in enumerate(((None, 0.5), (4, 2.0), (None, 1.0))):
        ours = attend(layer, q, kv, window=window, scale=scale)
        expected = attend_by_definition(q.view(20, 2, DIM), kv[:, :1], kv[:, 1:], 0, window, scale)
        assert (ours - expected).abs().max() < 1e-5
