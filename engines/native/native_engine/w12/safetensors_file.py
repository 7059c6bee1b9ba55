"""Read and write safetensors piecewise, so that a file never has to fit in memory."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_engine.w12.errors import W12FileError

ITEM_BYTES = {
    "BF16": 2,
    "F16": 2,
    "F32": 4,
    "U8": 1,
    "I8": 1,
    "U16": 2,
    "U32": 4,
    "I32": 4,
    "I64": 8,
}


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: `start` and `nbytes` count from the beginning of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int


class Reader:
    """Entries and metadata of a safetensors file, and any stretch of its bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        length = int.from_bytes(self._file.read(8), "little")
        if not 2 <= length <= path.stat().st_size - 8:
            raise W12FileError(f"{path} is not a safetensors file: fetch it again")
        header: dict[str, Any] = json.loads(self._file.read(length))
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        base = 8 + length
        self.entries: dict[str, Entry] = {}
        for name, item in header.items():
            begin, end = item["data_offsets"]
            shape = tuple(item["shape"])
            self.entries[name] = Entry(name, item["dtype"], shape, base + begin, end - begin)

    def read(self, name: str, start: int, nbytes: int, dtype: str) -> NDArray[Any]:
        """`nbytes` from byte `start` of a tensor, as a flat array of numpy dtype `dtype`."""
        self._file.seek(self.entries[name].start + start)
        data = self._file.read(nbytes)
        if len(data) != nbytes:
            raise W12FileError(f"{self.path}: {name} is cut short; fetch the file again")
        return np.frombuffer(data, dtype)

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


class Writer:
    """Lays out all tensors first, then takes their bytes in any order and in any pieces."""

    def __init__(
        self,
        path: Path,
        tensors: dict[str, tuple[str, tuple[int, ...]]],
        metadata: dict[str, str],
    ) -> None:
        header: dict[str, Any] = {"__metadata__": metadata}
        offset = 0
        self._starts: dict[str, int] = {}
        for name, (dtype, shape) in tensors.items():
            nbytes = ITEM_BYTES[dtype] * math.prod(shape)
            header[name] = {
                "dtype": dtype,
                "shape": shape,
                "data_offsets": [offset, offset + nbytes],
            }
            self._starts[name] = offset
            offset += nbytes
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        self._base = 8 + len(text)
        self._file = path.open("w+b")
        self._file.write(len(text).to_bytes(8, "little") + text)
        self._file.truncate(self._base + offset)

    def write(self, name: str, start: int, data: NDArray[Any]) -> None:
        """Put an array's bytes at byte `start` of a tensor."""
        self._file.seek(self._base + self._starts[name] + start)
        self._file.write(np.ascontiguousarray(data).data)

    def close(self) -> None:
        self._file.close()
