"""Attention on the device, row by row against a softmax in float64: every number of rows round the
blocks that the device's kernels work in."""

from __future__ import annotations

import pytest
import torch

from native_engine.targets.attention import CausalMasks, attend_rows

HEADS, KV_HEADS = 6, 2
ROWS = (1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 66, 97, 127, 128, 129, 161, 193, 257)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("prefix", [0, 5, 64, 200])
def test_every_number_of_rows(dtype: torch.dtype, head_dim: int, prefix: int) -> None:
    torch.manual_seed(0)
    device = torch.device("cuda")
    torch.backends.cuda.enable_cudnn_sdp(False)  # as the engine does
    masks = CausalMasks(HEADS // KV_HEADS, dtype, device)
    for rows in ROWS:
        total = prefix + rows
        q = torch.randn(rows, HEADS * head_dim, device=device).to(dtype)
        kv = torch.randn(2, 1, KV_HEADS, total + 9, head_dim, device=device).to(dtype)
        keys, values = kv[0, :, :, :total], kv[1, :, :, :total]
        ours = attend_rows(q, keys, values, masks.get(rows, prefix, None), None)
        heads = q.double().view(rows, HEADS, head_dim).transpose(0, 1)
        wide = [t[0].double().repeat_interleave(HEADS // KV_HEADS, 0) for t in (keys, values)]
        scores = heads @ wide[0].transpose(1, 2) / head_dim**0.5
        later = torch.ones(rows, total, dtype=torch.bool, device=device).triu(prefix + 1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ wide[1]
        expected = mixed.transpose(0, 1).reshape(rows, -1)
        limit = 1e-5 if dtype == torch.float32 else 0.03
        assert (ours.double() - expected).abs().max() < limit, (rows, prefix)
