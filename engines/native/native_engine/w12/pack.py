"""Pack BF16 bit patterns into W12 blocks, a stretch of row tiles at a time."""

from __future__ import annotations

import numpy as np

from native_engine.w12.format import (
    BLOCK_BYTES,
    CODE_MASK,
    COLS,
    COUNT_BITS,
    ESCAPE_MASK,
    PAIR,
    ROWS,
    SIGN_MANTISSA_MASK,
    U8,
    U16,
    U32,
    WEIGHTS,
    PackedMatrix,
    choose_window,
    exponent_histogram,
    tiles_of,
)


def lane_order(bits: U16) -> U16:
    """`[16 T, 64 B]` to `[T, B, g, q, t, p, h, e]`, contiguous: the order of the registers."""
    tiles, kblocks = bits.shape[0] // ROWS, bits.shape[1] // COLS
    view = bits.reshape(tiles, 2, 8, kblocks, 4, 2, 4, 2)  # T h g B t p q e
    return np.ascontiguousarray(view.transpose(0, 3, 2, 6, 4, 5, 1, 7))


def _rotl(words: U32, by: int) -> U32:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by)) if by else words


def _relative(bits: U16, base: int) -> U32:
    """X of every pair along the last axis: the words less the base of both halves."""
    return bits.view("<u4") - np.uint32(base * PAIR)


def pad(bits: U16, base: int) -> U16:
    """Pad to whole blocks with a pattern inside the window, so that padding never escapes."""
    rows, cols = bits.shape
    tiles, kblocks = tiles_of(rows, cols)
    if (rows, cols) == (tiles * ROWS, kblocks * COLS):
        return bits
    out = np.full((tiles * ROWS, kblocks * COLS), base << 7, np.uint16)
    out[:rows, :cols] = bits
    return out


def count_escapes(bits: U16, base: int) -> int:
    """Escapes of whole row tiles `[16 T, 64 B]`."""
    x = _relative(np.ascontiguousarray(bits), base)
    return int(np.count_nonzero((x & np.uint32(ESCAPE_MASK)).view("<u2")))


def pack_tiles(bits: U16, base: int) -> tuple[U8, U32, U16]:
    """Pack whole row tiles `[16 T, 64 B]`.

    Returns blocks u8 `[T, B, 1536]`, counts u32 `[T, B]` and the entries in block order.
    """
    ordered = lane_order(bits)
    tiles, kblocks = ordered.shape[:2]
    x = _relative(ordered, base)[..., 0]  # T B g q t p h
    codes, signs = x & np.uint32(CODE_MASK), x & np.uint32(SIGN_MANTISSA_MASK)
    words = np.empty((tiles, kblocks, BLOCK_BYTES // 4), "<u4")
    code_words = codes[..., 0, 0] | _rotl(codes[..., 0, 1], 4)
    code_words |= _rotl(codes[..., 1, 0], 8) | _rotl(codes[..., 1, 1], 12)
    words[..., :128] = code_words.reshape(tiles, kblocks, 128)
    sign_words = signs[..., 0] | _rotl(signs[..., 1], 8)  # T B g q t p
    halves = sign_words.reshape(tiles, kblocks, 32, 2, 4).transpose(0, 1, 3, 2, 4)
    words[..., 128:] = halves.reshape(tiles, kblocks, 256)
    high = (x & np.uint32(ESCAPE_MASK)).view("<u2").reshape(tiles * kblocks, WEIGHTS)
    counts = np.count_nonzero(high, axis=1).astype(np.uint32).reshape(tiles, kblocks)
    return words.view(np.uint8), counts, _entries(high)


def _entries(high: U16) -> U16:
    """Entries of all escapes in block order; `high` is `[blocks, 1024]` in lane order."""
    block, inside = np.nonzero(high)
    half, h, p = inside & 1, (inside >> 1) & 1, (inside >> 2) & 1
    t, lane = (inside >> 3) & 3, inside >> 5
    within = np.where(h == 0, 1 + 2 * half, 2 - 2 * half)  # h = 1 is rotated by a byte
    byte = 512 * (t >> 1) + 16 * lane + 8 * (t & 1) + 4 * p + within
    entries: U16 = high[block, inside] | byte.astype(np.uint16)
    return entries


def meta_of(counts: U32) -> U32:
    """Escape meta words from counts `[T, B]`: start within the tile << 11 | count."""
    starts = np.cumsum(counts, axis=1, dtype=np.uint32) - counts
    return (starts << np.uint32(COUNT_BITS)) | counts


def pack_matrix(bits: U16, base: int | None = None) -> PackedMatrix:
    """Pack a whole `[rows, cols]` matrix of BF16 bit patterns; `base` defaults to the best."""
    if bits.ndim != 2 or bits.dtype != np.uint16:
        raise ValueError(f"pack_matrix takes a 2-D uint16 array, not {bits.ndim}-D {bits.dtype}")
    if base is None:
        base, _ = choose_window(exponent_histogram(bits))
    blocks, counts, entries = pack_tiles(pad(bits, base), base)
    per_tile = counts.sum(axis=1, dtype=np.uint32)
    tile_start = np.concatenate([np.zeros(1, np.uint32), np.cumsum(per_tile, dtype=np.uint32)])
    return PackedMatrix(
        bits.shape[0], bits.shape[1], base, blocks, meta_of(counts), tile_start, entries
    )
