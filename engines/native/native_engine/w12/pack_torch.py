"""The packer in torch, for matrices that already lie on a device. Same bytes as `pack.py`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from native_engine.w12.format import (
    BLOCK_BYTES,
    CODE_MASK,
    COLS,
    COUNT_BITS,
    ESCAPE_MASK,
    PAIR,
    ROWS,
    SIGN_MANTISSA_MASK,
    WEIGHTS,
)
from native_engine.w12.format import choose_window as _choose

_CHUNK_WEIGHTS = 1 << 25


@dataclass(frozen=True)
class PackedTensors:
    """The arrays of `PackedMatrix` as flat tensors: u8, int32 for words, int16 for entries."""

    rows: int
    cols: int
    base: int
    blocks: torch.Tensor
    escape_meta: torch.Tensor
    tile_start: torch.Tensor
    entries: torch.Tensor


def _chunks(weight: torch.Tensor) -> list[torch.Tensor]:
    tiles = max(1, _CHUNK_WEIGHTS // (ROWS * weight.shape[1]))
    bits = weight.detach().contiguous().view(torch.int16)
    return list(torch.split(bits, tiles * ROWS))


def exponent_histogram(weight: torch.Tensor) -> torch.Tensor:
    """How often each exponent occurs in a BF16 tensor: int64 `[256]` on the CPU."""
    total = torch.zeros(256, dtype=torch.int64, device=weight.device)
    for bits in _chunks(weight):
        exponents = (bits.reshape(-1).to(torch.int32) >> 7) & 0xFF
        total += torch.bincount(exponents, minlength=256)
    return total.cpu()


def _rotl(words: torch.Tensor, by: int) -> torch.Tensor:
    return ((words << by) | (words >> (32 - by))) & 0xFFFFFFFF


def _relative(bits: torch.Tensor, base: int) -> torch.Tensor:
    """X of a chunk in lane order, `[T, B, g, q, t, p, h]`, int64."""
    tiles, kblocks = bits.shape[0] // ROWS, bits.shape[1] // COLS
    view = bits.view(tiles, 2, 8, kblocks, 4, 2, 4, 2)
    ordered = view.permute(0, 3, 2, 6, 4, 5, 1, 7).contiguous().to(torch.int64) & 0xFFFF
    return ((ordered[..., 0] | (ordered[..., 1] << 16)) - base * PAIR) & 0xFFFFFFFF


def _pack_chunk(bits: torch.Tensor, base: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = _relative(bits, base)
    tiles, kblocks = x.shape[:2]
    codes, signs = x & CODE_MASK, x & SIGN_MANTISSA_MASK
    words = torch.empty(tiles * kblocks, BLOCK_BYTES // 4, dtype=torch.int64, device=x.device)
    joined = codes[..., 0, 0] | _rotl(codes[..., 0, 1], 4)
    joined = joined | _rotl(codes[..., 1, 0], 8) | _rotl(codes[..., 1, 1], 12)
    words[:, :128] = joined.reshape(-1, 128)
    merged = (signs[..., 0] | _rotl(signs[..., 1], 8)).reshape(-1, 32, 2, 4)
    words[:, 128:] = merged.transpose(1, 2).reshape(-1, 256)
    high = x & ESCAPE_MASK
    halves = torch.stack((high & 0xFFFF, high >> 16), dim=-1).view(tiles * kblocks, WEIGHTS)
    block, inside = halves.nonzero(as_tuple=True)
    half, h, p = inside & 1, (inside >> 1) & 1, (inside >> 2) & 1
    t, lane = (inside >> 3) & 3, inside >> 5
    within = torch.where(h == 0, 1 + 2 * half, 2 - 2 * half)
    byte = 512 * (t >> 1) + 16 * lane + 8 * (t & 1) + 4 * p + within
    counts = torch.bincount(block, minlength=tiles * kblocks).view(tiles, kblocks)
    blocks = words.to(torch.int32).view(torch.uint8).reshape(-1)
    return blocks, counts, (halves[block, inside] | byte).to(torch.int16)


def pack_tensor(weight: torch.Tensor, base: int | None = None) -> PackedTensors:
    """Pack a BF16 `[N, K]` tensor with N % 16 == 0 and K % 64 == 0 on its own device."""
    rows, cols = weight.shape
    if rows % ROWS or cols % COLS or weight.dtype != torch.bfloat16:
        raise ValueError(f"pack_tensor needs bf16 [16 n, 64 k], not {weight.dtype} {rows}x{cols}")
    if base is None:
        base, _ = _choose(exponent_histogram(weight).numpy())
    parts = [_pack_chunk(bits, base) for bits in _chunks(weight)]
    counts = torch.cat([part[1] for part in parts])
    starts = counts.cumsum(1) - counts
    tile_start = torch.zeros(rows // ROWS + 1, dtype=torch.int64, device=weight.device)
    tile_start[1:] = counts.sum(1).cumsum(0)
    return PackedTensors(
        rows,
        cols,
        base,
        torch.cat([part[0] for part in parts]),
        ((starts << COUNT_BITS) | counts).to(torch.int32).view(-1),
        tile_start.to(torch.int32),
        torch.cat([part[2] for part in parts]),
    )
