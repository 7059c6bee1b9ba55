"""W12: lossless 12-bit storage of BF16 matrices (format, packer, decoder, files)."""

from native_engine.w12.decode import decode_matrix
from native_engine.w12.format import PackedMatrix, choose_window
from native_engine.w12.pack import pack_matrix

__all__ = ["PackedMatrix", "choose_window", "decode_matrix", "pack_matrix"]
