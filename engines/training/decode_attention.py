"""Attention of one new token a sequence over a slot cache: a Triton kernel that reads each
sequence's own tokens only, and the same in plain torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# (queries [slots, heads, head_dim], cache [slots, 2 * kv_heads, capacity, head_dim] with keys
# before values, lengths [slots], span) -> [slots, heads * head_dim]. Sequence b attends to its
# first lengths[b] tokens; none of them is at or after `span`.
DecodeAttention = Callable[[Tensor, Tensor, Tensor, int], Tensor]

_BLOCK = 64
# tl.dot needs 16 rows; the query heads of one KV head fill the first of them.
_ROWS = 16


def matmul_attention(queries: Tensor, cache: Tensor, lengths: Tensor, span: int) -> Tensor:
    """Two batched products over the first `span` tokens of every slot, softmax in FP32."""
    slots, heads, head_dim = queries.shape
    kv = cache.shape[1] // 2
    keys, values = cache[:, :kv, :span], cache[:, kv:, :span]
    grouped = queries.view(slots, kv, heads // kv, head_dim)
    scores = (grouped @ keys.transpose(-1, -2)).float() * head_dim**-0.5
    hidden = torch.arange(span, device=cache.device) >= lengths.unsqueeze(1)
    scores.masked_fill_(hidden[:, None, None], torch.finfo(torch.float32).min)
    mixed: Tensor = scores.softmax(-1).to(values.dtype) @ values
    return mixed.reshape(slots, heads * head_dim)


def triton_attention(queries: Tensor, cache: Tensor, lengths: Tensor, span: int) -> Tensor:
    """One program a sequence and KV head; online softmax over blocks of its tokens."""
    slots, heads, head_dim = queries.shape
    kv, capacity = cache.shape[1] // 2, cache.shape[2]
    out = torch.empty_like(queries)
    _kernel()[(slots, kv)](
        queries,
        cache,
        lengths,
        out,
        head_dim**-0.5,
        queries.stride(0),
        cache.stride(0),
        capacity * head_dim,
        kv=kv,
        group=heads // kv,
        head_dim=head_dim,
        rows=_ROWS,
        block=_BLOCK,
        num_warps=4,
        num_stages=3,
    )
    return out.view(slots, heads * head_dim)


def decode_attention(device: torch.device, dtype: torch.dtype) -> DecodeAttention:
    """The kernel where it works and agrees with plain torch (BF16 on CUDA), else plain torch."""
    if device.type != "cuda" or dtype != torch.bfloat16:
        return matmul_attention
    try:
        problem = _disagreement(device, dtype)
    except Exception as error:
        # Whatever stops the kernel, the job can go on without it.
        problem = f"{type(error).__name__}: {error}"
    if problem is None:
        return triton_attention
    print(f"decode attention falls back to torch ({problem})", file=sys.stderr, flush=True)
    return matmul_attention


def _disagreement(device: torch.device, dtype: torch.dtype) -> str | None:
    generator = torch.Generator(device).manual_seed(0)
    queries = torch.randn(5, 9, 64, device=device, generator=generator).to(dtype)
    cache = torch.randn(5, 6, 192, 64, device=device, generator=generator).to(dtype)
    lengths = torch.tensor([1, 63, 64, 65, 192], device=device)
    ours = triton_attention(queries, cache, lengths, 192).float()
    plain = matmul_attention(queries.float(), cache.float(), lengths, 192)
    error = float((ours - plain).abs().max())
    return None if error < 0.03 else f"the Triton kernel is off by {error:.3g}"


def _kernel() -> Any:
    from engines.training.decode_attention_kernel import decode_attention_kernel

    return decode_attention_kernel
