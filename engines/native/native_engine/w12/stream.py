"""Pack a folder of BF16 safetensors, a stretch of rows at a time.

Every tensor is read back from the written file and compared bit for bit with its source; one that
differs stops the run and leaves no packed file behind. A packed matrix NAME becomes
`NAME.w12.blocks`, `.meta`, `.tile_start` and `.entries`; rows, cols and base are in the file's
metadata under `w12`. Memory: a few hundred MB, whatever the size of the checkpoint.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from native_engine.w12.decode import decode_tiles
from native_engine.w12.errors import RoundTripError, W12FileError
from native_engine.w12.format import (
    BLOCK_BYTES,
    COUNT_BITS,
    ROWS,
    U16,
    PackedMatrix,
    choose_window,
    packed_bytes,
    tiles_of,
)
from native_engine.w12.format import exponent_histogram as histogram_of
from native_engine.w12.pack import count_escapes, meta_of, pack_tiles, pad
from native_engine.w12.safetensors_file import Entry, Reader, Writer

_CHUNK_WEIGHTS = 1 << 22
_WORTH = 0.97  # a packed tensor must be smaller than this share of its BF16 size
PARTS = {"blocks": "U8", "meta": "U32", "tile_start": "U32", "entries": "U16"}


@dataclass(frozen=True)
class TensorReport:
    """One line of the table. `kept` says why a tensor stayed as it was, "" when it was packed."""

    name: str
    rows: int
    cols: int
    bytes_before: int
    bytes_after: int
    base: int
    escapes: int
    kept: str

    @property
    def escape_rate(self) -> float:
        return self.escapes / max(1, self.rows * self.cols)


def _matrix_shape(entry: Entry) -> tuple[int, int]:
    return math.prod(entry.shape[:-1]), entry.shape[-1]


def _row_chunks(entry: Entry) -> Iterator[tuple[int, int]]:
    rows, cols = _matrix_shape(entry)
    step = max(1, _CHUNK_WEIGHTS // (ROWS * max(1, cols))) * ROWS
    for first in range(0, rows, step):
        yield first, min(first + step, rows)


def _read_rows(reader: Reader, entry: Entry, first: int, last: int) -> U16:
    cols = entry.shape[-1]
    flat = reader.read(entry.name, 2 * first * cols, 2 * (last - first) * cols, "<u2")
    return flat.reshape(last - first, cols)


def plan(reader: Reader, entry: Entry) -> TensorReport:
    """Decide about one tensor from its exponents alone."""
    size = entry.nbytes
    if entry.dtype != "BF16" or len(entry.shape) < 2 or math.prod(entry.shape) == 0:
        why = f"is {entry.dtype}" if entry.dtype != "BF16" else "not a matrix"
        return TensorReport(entry.name, math.prod(entry.shape), 1, size, size, 0, 0, why)
    rows, cols = _matrix_shape(entry)
    histogram = np.zeros(256, np.int64)
    for first, last in _row_chunks(entry):
        histogram += histogram_of(_read_rows(reader, entry, first, last))
    base, outside = choose_window(histogram)
    after = packed_bytes(rows, cols, outside)
    if after >= _WORTH * size:
        why = f"packed it would take {after / size:.0%} of its size"
        return TensorReport(entry.name, rows, cols, size, size, base, outside, why)
    escapes = sum(
        count_escapes(pad(_read_rows(reader, entry, first, last), base), base)
        for first, last in _row_chunks(entry)
    )
    after = packed_bytes(rows, cols, escapes)
    return TensorReport(entry.name, rows, cols, size, after, base, escapes, "")


def _layout(reader: Reader, reports: list[TensorReport]) -> dict[str, tuple[str, tuple[int, ...]]]:
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for report in reports:
        if report.kept:
            entry = reader.entries[report.name]
            tensors[report.name] = (entry.dtype, entry.shape)
            continue
        tiles, kblocks = tiles_of(report.rows, report.cols)
        shapes = {
            "blocks": (tiles, kblocks, BLOCK_BYTES),
            "meta": (tiles, kblocks),
            "tile_start": (tiles + 1,),
            "entries": (report.escapes,),
        }
        for part, dtype in PARTS.items():
            tensors[f"{report.name}.w12.{part}"] = (dtype, shapes[part])
    return tensors


def _pack_tensor(reader: Reader, writer: Writer, report: TensorReport) -> None:
    entry, name = reader.entries[report.name], f"{report.name}.w12"
    _, kblocks = tiles_of(report.rows, report.cols)
    written = np.zeros(1, np.uint32)
    writer.write(f"{name}.tile_start", 0, written)
    for first, last in _row_chunks(entry):
        bits = pad(_read_rows(reader, entry, first, last), report.base)
        blocks, counts, entries = pack_tiles(bits, report.base)
        tile = first // ROWS
        writer.write(f"{name}.blocks", tile * kblocks * BLOCK_BYTES, blocks)
        writer.write(f"{name}.meta", 4 * tile * kblocks, meta_of(counts))
        writer.write(f"{name}.entries", 2 * int(written[0]), entries)
        starts = written + np.cumsum(counts.sum(axis=1, dtype=np.uint32), dtype=np.uint32)
        writer.write(f"{name}.tile_start", 4 * (tile + 1), starts)
        written = starts[-1:]


def _copy_tensor(reader: Reader, writer: Writer, entry: Entry) -> None:
    for start in range(0, entry.nbytes, 1 << 24):
        piece = min(1 << 24, entry.nbytes - start)
        writer.write(entry.name, start, reader.read(entry.name, start, piece, "u1"))


def decode_rows(packed: Reader, report: TensorReport, first: int, last: int) -> U16:
    """Rows `first .. last` of a packed tensor; `first` is a multiple of 16."""
    name = f"{report.name}.w12"
    _, kblocks = tiles_of(report.rows, report.cols)
    tile, tiles = first // ROWS, -(-(last - first) // ROWS)
    count = tiles * kblocks
    blocks = packed.read(
        f"{name}.blocks", tile * kblocks * BLOCK_BYTES, count * BLOCK_BYTES, "u1"
    ).reshape(tiles, kblocks, BLOCK_BYTES)
    meta = packed.read(f"{name}.meta", 4 * tile * kblocks, 4 * count, "<u4")
    counts = (meta & np.uint32((1 << COUNT_BITS) - 1)).reshape(tiles, kblocks)
    ends = packed.read(f"{name}.tile_start", 4 * tile, 4 * (tiles + 1), "<u4")
    entries = packed.read(f"{name}.entries", 2 * int(ends[0]), 2 * int(ends[-1] - ends[0]), "<u2")
    bits = decode_tiles(blocks, counts, entries, report.base)
    return bits[: last - first, : report.cols]


def _verify(source: Reader, packed: Reader, report: TensorReport) -> None:
    entry = source.entries[report.name]
    if report.kept:
        for start in range(0, entry.nbytes, 1 << 24):
            piece = min(1 << 24, entry.nbytes - start)
            before = source.read(entry.name, start, piece, "u1")
            if not np.array_equal(before, packed.read(entry.name, start, piece, "u1")):
                raise RoundTripError(f"{report.name}: the copied bytes differ from the source")
        return
    for first, last in _row_chunks(entry):
        before = _read_rows(source, entry, first, last)
        if not np.array_equal(before, decode_rows(packed, report, first, last)):
            raise RoundTripError(f"{report.name}: rows {first}..{last} do not decode to the source")


def pack_file(source: Path, target: Path) -> list[TensorReport]:
    """Pack one safetensors file.

    Raises:
        RoundTripError: a tensor does not decode to its source; `target` is not written.
    """
    partial = target.with_name(target.name + ".partial")
    try:
        with Reader(source) as reader:
            reports = [plan(reader, entry) for entry in reader.entries.values()]
            metadata = {
                **reader.metadata,
                "w12": json.dumps(
                    {r.name: [r.rows, r.cols, r.base] for r in reports if not r.kept}
                ),
            }
            writer = Writer(partial, _layout(reader, reports), metadata)
            for report in reports:
                if report.kept:
                    _copy_tensor(reader, writer, reader.entries[report.name])
                else:
                    _pack_tensor(reader, writer, report)
            writer.close()
            with Reader(partial) as packed:
                for report in reports:
                    _verify(reader, packed, report)
        os.replace(partial, target)  # noqa: PTH105
    finally:
        partial.unlink(missing_ok=True)
    return reports


def load_matrix(path: Path, name: str) -> PackedMatrix:
    """One packed tensor of a packed file, whole."""
    with Reader(path) as reader:
        shapes = json.loads(reader.metadata.get("w12", "{}"))
        if name not in shapes:
            raise W12FileError(f"{path} holds no packed tensor {name!r}: {', '.join(shapes)}")
        rows, cols, base = shapes[name]
        tiles, kblocks = tiles_of(rows, cols)
        kinds = {"blocks": "u1", "meta": "<u4", "tile_start": "<u4", "entries": "<u2"}
        read = {
            part: reader.read(key := f"{name}.w12.{part}", 0, reader.entries[key].nbytes, kind)
            for part, kind in kinds.items()
        }
    return PackedMatrix(
        rows,
        cols,
        base,
        read["blocks"].reshape(tiles, kblocks, BLOCK_BYTES),
        read["meta"].reshape(tiles, kblocks),
        read["tile_start"],
        read["entries"],
    )


def table(reports: list[TensorReport]) -> list[str]:
    """The size and escape table, and its total."""
    lines = [f"{'tensor':56} {'shape':>14} {'MB':>9} {'packed':>9} {'base':>4} {'escapes':>9}"]
    for r in reports:
        note = f"  stays: {r.kept}" if r.kept else f" {r.base:4} {r.escape_rate:9.4%}"
        sizes = f"{r.bytes_before / 1e6:9.2f} {r.bytes_after / 1e6:9.2f}"
        lines.append(f"{r.name:56} {f'{r.rows}x{r.cols}':>14} {sizes}{note}")
    before, after = (sum(getattr(r, f) for r in reports) for f in ("bytes_before", "bytes_after"))
    packed = [r for r in reports if not r.kept]
    weights = sum(r.rows * r.cols for r in packed)
    rate = sum(r.escapes for r in packed) / max(1, weights)
    lines.append(
        f"total {before / 1e6:.1f} MB -> {after / 1e6:.1f} MB ({after / max(1, before):.1%}), "
        f"{len(packed)} of {len(reports)} tensors packed, {rate:.4%} escapes, "
        f"{8 * sum(r.bytes_after for r in packed) / max(1, weights):.2f} bits a packed weight; "
        "every tensor decodes to its source bits"
    )
    return lines


def pack_directory(source: Path, target: Path) -> list[str]:
    """Pack every safetensors file of a folder into `target`; returns the table."""
    files = sorted(source.glob("*.safetensors"))
    if not files:
        raise W12FileError(f"{source} holds no .safetensors file")
    target.mkdir(parents=True, exist_ok=True)
    reports: list[TensorReport] = []
    for path in files:
        reports += pack_file(path, target / path.name)
    for path in source.iterdir():
        if path.is_file() and path.suffix != ".safetensors" and "index" not in path.name:
            shutil.copy2(path, target / path.name)
    (target / "w12.json").write_text(json.dumps([asdict(r) for r in reports], indent=1) + "\n")
    return table(reports)
