"""y = x W^T for few tokens on a GPU: our BF16 kernel, and the same kernel on W12 weights.

Both take weights prepared once (`RawWeight`, `W12Weight`), x `[M, K]` BF16 with unit stride along
K, and give `[M, N]` BF16 or FP32. Same schedule, same order of sums: the outputs agree bit for
bit, and row i does not depend on M. Needs N % 16 == 0, K % 64 == 0, M <= 64.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from native_engine.kernels import schedule as schedules
from native_engine.kernels.build import load_library
from native_engine.kernels.schedule import Ring, Schedule
from native_engine.w12.format import PackedMatrix
from native_engine.w12.pack import lane_order
from native_engine.w12.pack_torch import PackedTensors


class KernelLaunchError(RuntimeError):
    """A launch was refused; the message is CUDA's."""


class _Params(ctypes.Structure):
    """Mirror of `SkinnyParams` in skinny_params.cuh."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weights", "meta", "tile_start", "entries", "out")),
        *((name, ctypes.c_int32) for name in ("m", "ldo", "tiles", "kblocks", "groups")),
        *((name, ctypes.c_int32) for name in ("each", "extra", "cluster", "row_warps", "split")),
        *((name, ctypes.c_int32) for name in ("unroll", "stages", "base", "out_f32", "dependent")),
        ("zero", ctypes.c_uint32),
    )


@dataclass(frozen=True)
class RawWeight:
    """BF16 weights in block order: u8 `[N / 16, K / 64, 2048]`."""

    rows: int
    cols: int
    blocks: torch.Tensor

    @property
    def nbytes(self) -> int:
        return self.blocks.numel()


@dataclass(frozen=True)
class W12Weight:
    """W12 weights on the device; the fields are those of `PackedMatrix`."""

    rows: int
    cols: int
    base: int
    blocks: torch.Tensor
    escape_meta: torch.Tensor
    tile_start: torch.Tensor
    entries: torch.Tensor

    @property
    def nbytes(self) -> int:
        words = self.escape_meta.numel() + self.tile_start.numel() + self.entries.numel()
        return self.blocks.numel() + 4 * words


def raw_weight(weight: torch.Tensor) -> RawWeight:
    """Reorder a BF16 `[N, K]` matrix, on its own device."""
    rows, cols = weight.shape
    schedules.Schedule(1, 1, 1, 1).check(rows, cols)
    bits = weight.detach().contiguous().view(torch.int16)
    view = bits.view(rows // 16, 2, 8, cols // 64, 4, 4, 2, 2)  # T h g B q t p e
    ordered = view.permute(0, 3, 5, 2, 4, 6, 1, 7).contiguous()  # T B t g q p h e
    return RawWeight(rows, cols, ordered.view(torch.uint8).reshape(-1))


def raw_blocks(bits: np.ndarray) -> np.ndarray:
    """The same order from bit patterns with numpy: `[T, B, 2048]` bytes."""
    ordered = lane_order(bits).transpose(0, 1, 4, 2, 3, 5, 6, 7)
    return np.ascontiguousarray(ordered).view(np.uint8).reshape(*ordered.shape[:2], 2048)


def w12_weight(packed: PackedMatrix | PackedTensors, device: torch.device | str) -> W12Weight:
    """Copy a packed matrix to a device."""
    schedules.Schedule(1, 1, 1, 1).check(packed.rows, packed.cols)

    def move(array: np.ndarray | torch.Tensor) -> torch.Tensor:
        if isinstance(array, torch.Tensor):
            return array.to(device).view(-1)
        signed = np.uint8 if array.dtype == np.uint8 else np.int32
        return torch.from_numpy(np.ascontiguousarray(array).view(signed).reshape(-1)).to(device)

    # one spare entry, so that an empty list still has an address
    entries = torch.cat([move(packed.entries), torch.zeros(1, dtype=torch.int32, device=device)])
    return W12Weight(
        packed.rows,
        packed.cols,
        packed.base,
        move(packed.blocks),
        move(packed.escape_meta),
        move(packed.tile_start),
        entries,
    )


@cache
def _device(index: int) -> tuple[ctypes.CDLL, int, int]:
    properties = torch.cuda.get_device_properties(index)
    library = load_library((properties.major, properties.minor))
    shared = int(library.specfarm_shared_limit(index))
    return library, properties.multi_processor_count, shared


def shared_bytes(device: int) -> int:
    """Shared memory a block of the device may use."""
    return _device(device)[2]


@cache
def schedule_for(rows: int, cols: int, device: int) -> Schedule:
    _, multiprocessors, shared = _device(device)
    return schedules.choose(rows, cols, multiprocessors, shared)


def linear(
    x: torch.Tensor,
    weight: RawWeight | W12Weight,
    out: torch.Tensor | None = None,
    *,
    dependent: bool = False,
    schedule: Schedule | None = None,
    ring: Ring | None = None,
) -> torch.Tensor:
    """x `[M, K]` times the weight: `[M, N]`, BF16 unless `out` is FP32.

    `dependent` starts the launch before the previous kernel of the stream has ended (programmatic
    dependent launch); it asks for its own weights and waits before it touches x or `out`.
    """
    tokens, cols = x.shape
    if cols != weight.cols or x.dtype != torch.bfloat16 or x.stride(1) != 1:
        raise ValueError(f"x must be bf16 [M, {weight.cols}], unit stride; got {tuple(x.shape)}")
    if out is None:
        out = torch.empty(tokens, weight.rows, dtype=torch.bfloat16, device=x.device)
    index = x.device.index or 0
    library, _, shared = _device(index)
    plan = schedule or schedule_for(weight.rows, weight.cols, index)
    plan.check(weight.rows, weight.cols)
    tiles = schedules.token_tiles(tokens)
    w12 = isinstance(weight, W12Weight)
    depth = ring or schedules.ring(plan, w12, tiles, shared, cols)
    params = _Params(
        weights=weight.blocks.data_ptr(),
        out=out.data_ptr(),
        m=tokens,
        ldo=out.stride(0),
        tiles=weight.rows // 16,
        kblocks=cols // 64,
        groups=plan.groups,
        each=weight.rows // 16 // plan.groups,
        extra=weight.rows // 16 % plan.groups,
        cluster=plan.cluster,
        row_warps=plan.row_warps,
        split=plan.split,
        unroll=depth.unroll,
        stages=depth.stages,
        out_f32=int(out.dtype == torch.float32),
        dependent=int(dependent),
    )
    if isinstance(weight, W12Weight):
        params.meta = weight.escape_meta.data_ptr()
        params.tile_start = weight.tile_start.data_ptr()
        params.entries = weight.entries.data_ptr()
        params.base = weight.base
    stream = torch.cuda.current_stream(index).cuda_stream
    code = library.specfarm_skinny(
        ctypes.byref(params),
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_int64(x.stride(0)),
        int(w12),
        tiles,
        ctypes.c_void_p(stream),
    )
    if code:
        raise KernelLaunchError(f"{library.specfarm_error(code).decode()} ({code}) for {plan}")
    return out
