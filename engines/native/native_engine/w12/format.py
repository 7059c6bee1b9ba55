"""The W12 format: what each bit of a packed matrix means.

A BF16 value is sign (1), exponent (8), mantissa (7). A trained matrix uses few exponents, so a
matrix stores a window of 16 consecutive exponents `base .. base + 15` as 4-bit codes beside the 8
bits of sign and mantissa: 12 bits a weight.

Two weights of neighbouring columns are one 32-bit word W, the left one in the low half. Stored is
X = W - base * 0x00800080 modulo 2^32. For weights inside the window bits 14..11 and 30..27 of X are
zero and are left out. A weight for which they are not is an *escape*: its four bits go to a list.
Subtracting and adding are exact modulo 2^32, so every pair of bit patterns is kept (a borrow out of
a low half changes what is stored for its neighbour, and comes back when the base is added).

Layout (little endian), made for the A operand of the tensor cores' k16 step:

* a block is 16 rows x 64 columns = 32 lanes x 32 weights = 1536 bytes; blocks are stored
  `[row tile][k block]`;
* lane `4 g + q` owns rows `g`, `g + 8`; of step `t` of 4 it owns columns `16 t + 8 p + 2 q`, `+ 1`
  in register `h + 2 p`, h = 1 for row `g + 8`;
* bytes 0..511: one code word a lane and step; register `r` sits at mask 0x07800780, rotated left
  by `4 r`;
* bytes 512..1535: two sign/mantissa words a lane and step, `[t / 2][lane][t % 2][p]`; register
  h = 0 at mask 0x807F807F in place, h = 1 rotated left by 8;
* an escape entry is `bits << 11 | byte`: byte is where these bits would lie in words laid out as
  the sign/mantissa words are. Entries are one list, sorted by block;
* `escape_meta[tile, block]` = first entry (counted from the tile's first) << 11 | count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ROWS = 16  # rows of a block: the part of an A tile one warp holds
COLS = 64  # columns of a block: four k16 steps
BLOCK_BYTES = 1536
WEIGHTS = ROWS * COLS
WINDOW = 16
COUNT_BITS = 11  # an escape count of 0 .. 1024
CODE_MASK = 0x07800780
SIGN_MANTISSA_MASK = 0x807F807F
ESCAPE_MASK = 0x78007800
PAIR = 0x00800080  # one step of the exponents of both weights of a word

U8 = NDArray[np.uint8]
U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class PackedMatrix:
    """A packed `[rows, cols]` BF16 matrix; rows and cols are the unpadded ones.

    `blocks` u8 `[tiles, kblocks, 1536]`, `escape_meta` u32 `[tiles, kblocks]`, `tile_start` u32
    `[tiles + 1]` (first entry of each tile), `entries` u16 `[escapes]`.
    """

    rows: int
    cols: int
    base: int
    blocks: U8
    escape_meta: U32
    tile_start: U32
    entries: U16

    @property
    def nbytes(self) -> int:
        arrays = (self.blocks, self.escape_meta, self.tile_start, self.entries)
        return sum(array.nbytes for array in arrays)

    @property
    def escape_rate(self) -> float:
        return len(self.entries) / max(1, self.rows * self.cols)


def tiles_of(rows: int, cols: int) -> tuple[int, int]:
    """(row tiles, k blocks) of a matrix, tails padded up."""
    return -(-rows // ROWS), -(-cols // COLS)


def packed_bytes(rows: int, cols: int, escapes: int) -> int:
    """Bytes of a packed matrix with that many escapes."""
    tiles, kblocks = tiles_of(rows, cols)
    return tiles * kblocks * (BLOCK_BYTES + 4) + 4 * (tiles + 1) + 2 * escapes


def exponent_histogram(bits: U16) -> I64:
    """How often each of the 256 exponents occurs."""
    exponents = ((bits >> np.uint16(7)) & np.uint16(0xFF)).ravel()
    return np.bincount(exponents, minlength=256).astype(np.int64)


def choose_window(histogram: I64) -> tuple[int, int]:
    """(base, weights outside) of the 16-exponent window that leaves the fewest outside."""
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(histogram)])
    inside = running[WINDOW:] - running[:-WINDOW]
    base = int(np.argmax(inside))
    return base, int(running[-1] - inside[base])
