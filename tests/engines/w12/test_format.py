"""W12 keeps every bit of every BF16 pattern, whatever the shape and the window."""

import numpy as np
import pytest

from native_engine.w12 import choose_window, decode_matrix, pack_matrix
from native_engine.w12.format import exponent_histogram, packed_bytes

EVERY_PATTERN = np.arange(1 << 16, dtype=np.uint16)


def bf16_bits(values: np.ndarray) -> np.ndarray:
    """Truncate float32 to BF16 patterns."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def escapes_by_hand(bits: np.ndarray, base: int) -> int:
    """Pair by pair in Python integers: the words less the base, as the format defines it."""
    count = 0
    for low, high in bits.reshape(-1, 2).tolist():
        x = (low + (high << 16) - base * 0x00800080) % (1 << 32)
        count += (x >> 11 & 15 != 0) + (x >> 27 & 15 != 0)
    return count


@pytest.mark.parametrize("base", [0, 1, 97, 105, 112, 239, 240])
def test_every_pattern_survives(base: int) -> None:
    bits = np.random.default_rng(base).permutation(EVERY_PATTERN).reshape(256, 256)
    packed = pack_matrix(bits, base)
    assert np.array_equal(decode_matrix(packed), bits)
    assert len(packed.entries) == escapes_by_hand(bits, base)
    assert abs(len(packed.entries) - (256 - 16) * 256) < 256  # borrows move few across the border


@pytest.mark.parametrize("left", [0x0000, 0x8000, 0x4E00, 0x5600, 0x7FC1, 0xFFFF])
def test_every_pattern_beside_a_borrowing_neighbour(left: int) -> None:
    bits = np.empty((1 << 16, 2), np.uint16)
    bits[:, 0], bits[:, 1] = left, EVERY_PATTERN
    matrix = bits.reshape(512, 256)
    assert np.array_equal(decode_matrix(pack_matrix(matrix, 105)), matrix)


@pytest.mark.parametrize(
    "pattern", [0x0000, 0x8000, 0x0001, 0x807F, 0x7F80, 0xFF80, 0x7FC1, 0xFFFF]
)
def test_special_values_at_every_position_of_a_block(pattern: int) -> None:
    rng = np.random.default_rng(pattern)
    for position in range(1024):
        bits = bf16_bits(rng.normal(0, 0.02, (16, 64)))
        bits.reshape(-1)[position] = pattern
        assert np.array_equal(decode_matrix(pack_matrix(bits, 108)), bits)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 33])
@pytest.mark.parametrize("cols", [1, 63, 64, 65, 130])
def test_tails(rows: int, cols: int) -> None:
    bits = bf16_bits(np.random.default_rng(rows * 1000 + cols).normal(0, 0.02, (rows, cols)))
    packed = pack_matrix(bits)
    assert np.array_equal(decode_matrix(packed), bits)
    assert packed.nbytes == packed_bytes(rows, cols, len(packed.entries))


def in_window(rng: np.random.Generator, density: float) -> np.ndarray:
    exponents = rng.integers(108, 124, (64, 256)) << 7
    bits = (exponents | rng.integers(0, 128, (64, 256))).astype(np.uint16)
    bits[rng.random(bits.shape) < density] = (3 << 7) | 0x8001
    return bits


@pytest.mark.parametrize("density", [0.0, 0.0002, 0.01, 0.05, 1.0])
def test_escape_densities(density: float) -> None:
    bits = in_window(np.random.default_rng(7), density)
    packed = pack_matrix(bits, 108)
    assert len(packed.entries) == escapes_by_hand(bits, 108)
    assert np.array_equal(decode_matrix(packed), bits)


def test_window_is_the_best_one() -> None:
    bits = bf16_bits(np.random.default_rng(3).normal(0, 0.02, (512, 512)))
    histogram = exponent_histogram(bits)
    base, outside = choose_window(histogram)
    by_hand = min(histogram.sum() - histogram[b : b + 16].sum() for b in range(241))
    assert outside == by_hand
    assert abs(len(pack_matrix(bits).entries) - outside) <= 1
    assert 0 < outside / bits.size < 0.0003  # a Gaussian leaves about 0.007 % outside
    assert base + 15 >= 119


def test_block_bytes_follow_the_written_layout() -> None:
    """One weight at a time, the bits the docstring of `format` promises and no others."""
    base = 100
    for row, col in [(0, 0), (9, 0), (3, 2), (15, 63), (8, 21), (7, 46)]:
        bits = np.full((16, 64), base << 7, np.uint16)
        bits[row, col] = 0x8000 | ((base + 9) << 7) | 0x55
        words = pack_matrix(bits, base).blocks.reshape(-1).view("<u4").astype(np.int64)
        g, h, t = row % 8, row // 8, col // 16
        p, q, e = (col % 16) // 8, (col % 8) // 2, col % 2
        lane, register = 4 * g + q, h + 2 * p
        code = 9 << (7 + 16 * e)
        code = ((code << 4 * register) | (code >> (32 - 4 * register))) & 0xFFFFFFFF
        sign = 0x8055 << (16 * e)
        sign = ((sign << 8 * h) | (sign >> (32 - 8 * h))) & 0xFFFFFFFF
        expected = np.zeros(384, np.int64)
        expected[lane * 4 + t] = code
        expected[128 + (t // 2) * 128 + lane * 4 + (t % 2) * 2 + p] = sign
        assert np.array_equal(words, expected)


def test_an_entry_names_the_byte_of_its_weight() -> None:
    base = 100
    for row, col in [(0, 0), (0, 1), (9, 0), (9, 1), (3, 26), (15, 63), (8, 21)]:
        bits = np.full((16, 64), base << 7, np.uint16)
        bits[row, col] = (base + 37) << 7  # 37 = 2 * 16 + 5: escape bits 2, code 5
        packed = pack_matrix(bits, base)
        g, h, t = row % 8, row // 8, col // 16
        p, q, e = (col % 16) // 8, (col % 8) // 2, col % 2
        word = (t // 2) * 128 + (4 * g + q) * 4 + (t % 2) * 2 + p
        bit = 11 + 16 * e  # of the word, then rotated by a byte for the lower rows
        byte = 4 * word + ((bit + 8 * h) % 32) // 8
        assert packed.entries.tolist() == [2 << 11 | byte]


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match="2-D uint16"):
        pack_matrix(np.zeros(4, np.uint16))
