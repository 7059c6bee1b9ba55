"""The packer in torch, for matrices that already lie on a device. Same bytes as `pack.py`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from native_engine.w12.format import BLOCK_BYTES, COLS, COUNT_BITS, ROWS, WEIGHTS, WINDOW
from native_engine.w12.format import choose_window as _choose

_CHUNK_WEIGHTS = 1 << 25


@dataclass(frozen=True)
class PackedTensors:
    """The arrays of `PackedMatrix` as flat tensors: u8, and int32 for the words."""

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


def _pack_chunk(bits: torch.Tensor, base: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tiles, kblocks = bits.shape[0] // ROWS, bits.shape[1] // COLS
    view = bits.view(tiles, 2, 8, kblocks, 4, 4, 2, 2)
    ordered = view.permute(0, 3, 2, 4, 5, 6, 1, 7).contiguous().to(torch.int64) & 0xFFFF
    code = ((ordered >> 7) & 0xFF) - base
    escaped = (code < 0) | (code >= WINDOW)
    code = code.masked_fill(escaped, 0) << 7
    codes = code[..., 0] | (code[..., 1] << 16)  # T B g q t p h
    sign = ordered & 0x807F
    signs = sign[..., 0] | (sign[..., 1] << 16)
    words = torch.empty(tiles, kblocks, BLOCK_BYTES // 4, dtype=torch.int64, device=bits.device)
    joined = codes[..., 0, 0] | _rotl(codes[..., 0, 1], 4)
    joined = joined | _rotl(codes[..., 1, 0], 8) | _rotl(codes[..., 1, 1], 12)
    words[..., :128] = joined.reshape(tiles, kblocks, 128)
    merged = (signs[..., 0] | _rotl(signs[..., 1], 8)).reshape(tiles, kblocks, 32, 2, 4)
    words[..., 128:] = merged.transpose(2, 3).reshape(tiles, kblocks, 256)
    counts = escaped.view(tiles, kblocks, WEIGHTS).sum(dim=2)
    index = escaped.view(-1).nonzero().squeeze(1)
    inside = index % WEIGHTS
    half, h, p = inside & 1, (inside >> 1) & 1, (inside >> 2) & 1
    t, lane = (inside >> 3) & 3, inside >> 5
    position = t * 256 + lane * 8 + (h + 2 * p) * 2 + half
    exponent = (ordered.view(-1)[index] >> 7) & 0xFF
    blocks = words.to(torch.int32).view(torch.uint8).reshape(-1)
    return blocks, counts, ((position << 8) | exponent).to(torch.int32)


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
