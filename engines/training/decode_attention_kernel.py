"""The Triton kernel of `decode_attention` (imported on first use: the CPU needs no Triton)."""

# Triton reads annotations: constexpr and nothing else may be one, and not as a string.
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def decode_attention_kernel(
    queries,
    cache,
    lengths,
    out,
    scale,
    query_stride,
    slot_stride,
    head_stride,
    kv: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    rows: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Grid (slots, kv). The output is contiguous `[slots, kv * group, head_dim]`; a sequence of
    length 0 gives zeros."""
    slot = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    length = tl.load(lengths + slot).to(tl.int32)
    row = tl.arange(0, rows)
    dim = tl.arange(0, head_dim)
    query_at = (head * group + row)[:, None] * head_dim + dim[None, :]
    real = (row < group)[:, None]
    query = tl.load(queries + slot * query_stride + query_at, mask=real, other=0.0)
    keys = cache + slot * slot_stride + head * head_stride
    values = keys + kv * head_stride
    largest = tl.full((rows,), float("-inf"), tl.float32)
    total = tl.zeros((rows,), tl.float32)
    mixed = tl.zeros((rows, head_dim), tl.float32)
    for start in range(0, length, block):
        token = start + tl.arange(0, block)
        there = token < length
        at = token[:, None] * head_dim + dim[None, :]
        key = tl.load(keys + at, mask=there[:, None], other=0.0)
        value = tl.load(values + at, mask=there[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(there[None, :], score, float("-inf"))
        newest = tl.maximum(largest, tl.max(score, 1))
        shrink = tl.exp(largest - newest)
        weight = tl.exp(score - newest[:, None])
        total = total * shrink + tl.sum(weight, 1)
        mixed = mixed * shrink[:, None] + tl.dot(weight.to(value.dtype), value)
        largest = newest
    mixed = mixed / tl.maximum(total, 1e-30)[:, None]
    where = out + slot * (kv * group * head_dim) + query_at
    tl.store(where, mixed.to(out.dtype.element_ty), mask=real)
