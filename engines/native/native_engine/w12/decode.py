"""Decode W12 on the CPU: the oracle of every kernel, block by block."""

from __future__ import annotations

import numpy as np

from native_engine.w12.format import (
    BLOCK_BYTES,
    CODE_MASK,
    COLS,
    COUNT_BITS,
    PAIR,
    ROWS,
    SIGN_MANTISSA_MASK,
    U8,
    U16,
    U32,
    WEIGHTS,
    PackedMatrix,
)


def _rotr(words: U32, by: int) -> U32:
    return (words >> np.uint32(by)) | (words << np.uint32(32 - by)) if by else words


def decode_tiles(blocks: U8, counts: U32, entries: U16, base: int) -> U16:
    """Decode whole row tiles: blocks `[T, B, 1536]`, counts `[T, B]` to bits `[16 T, 64 B]`."""
    tiles, kblocks, _ = blocks.shape
    words = np.ascontiguousarray(blocks).view("<u4").reshape(tiles, kblocks, BLOCK_BYTES // 4)
    codes = words[..., :128].reshape(tiles, kblocks, 32, 4)  # lane, t
    halves = words[..., 128:].reshape(tiles, kblocks, 2, 32, 2, 2)  # t / 2, lane, t % 2, p
    signs = halves.transpose(0, 1, 3, 2, 4, 5).reshape(tiles, kblocks, 32, 4, 2)  # lane, t, p
    relative = np.empty((tiles, kblocks, 32, 4, 2, 2), "<u4")  # lane, t, p, h
    for p in range(2):
        for h in range(2):
            code = _rotr(codes, 4 * (h + 2 * p)) & np.uint32(CODE_MASK)
            sign = _rotr(signs[..., p], 8 * h) & np.uint32(SIGN_MANTISSA_MASK)
            relative[..., p, h] = code | sign
    _patch(relative.view("<u2").reshape(tiles * kblocks * WEIGHTS), counts, entries)
    ordered = (relative + np.uint32(base * PAIR)).view("<u2")
    ordered = ordered.reshape(tiles, kblocks, 8, 4, 4, 2, 2, 2)  # g q t p h e
    rows = ordered.transpose(0, 6, 2, 1, 4, 5, 3, 7)  # T h g B t p q e
    return np.ascontiguousarray(rows).reshape(tiles * ROWS, kblocks * COLS)


def _patch(values: U16, counts: U32, entries: U16) -> None:
    """Fill in the bits of every escape; `values` is in lane order, flat."""
    block = np.repeat(np.arange(counts.size, dtype=np.int64), counts.reshape(-1))
    byte = (entries & np.uint16(1023)).astype(np.int64)
    h = 1 - (byte & 1)  # the upper bytes of a word rotated by 8 are its bytes 0 and 2
    half = np.where(h == 0, (byte >> 1) & 1, 1 - ((byte >> 1) & 1))
    p, lane = (byte >> 2) & 1, (byte >> 4) & 31
    t = 2 * (byte >> 9) + ((byte >> 3) & 1)
    index = block * WEIGHTS + (((lane * 4 + t) * 2 + p) * 2 + h) * 2 + half
    values[index] |= entries & np.uint16(0x7800)


def decode_matrix(packed: PackedMatrix) -> U16:
    """The BF16 bit patterns `[rows, cols]` of a packed matrix, tails cut off."""
    counts = packed.escape_meta & np.uint32((1 << COUNT_BITS) - 1)
    bits = decode_tiles(packed.blocks, counts, packed.entries, packed.base)
    return np.ascontiguousarray(bits[: packed.rows, : packed.cols])
