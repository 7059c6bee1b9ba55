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
from native_engine.kernels.schedule import MAX_CLUSTER, RAW_BYTES, W12_BYTES, Launch, Schedule
from native_engine.kernels.stages import Escapes, Staged, arrange
from native_engine.w12.format import COUNT_BITS, PackedMatrix
from native_engine.w12.pack import lane_order
from native_engine.w12.pack_torch import PackedTensors

_CALLED_AHEAD = 32_768  # bytes of the following weight a thread block calls into the L2 cache


class KernelLaunchError(RuntimeError):
    """A launch was refused; the message is CUDA's."""


class _Params(ctypes.Structure):
    """Mirror of `SkinnyParams` in skinny_params.cuh."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weights", "meta", "tile_start", "entries", "out")),
        ("block_stride", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("m", "ldo", "kblocks", "groups", "each", "extra")),
        ("cluster", ctypes.c_int32),
        ("k_start", ctypes.c_int32 * (MAX_CLUSTER + 1)),
        *((name, ctypes.c_int32) for name in ("row_warps", "split", "chunk", "grouped", "stages")),
        *((name, ctypes.c_int32) for name in ("room", "base", "out_f32", "dependent")),
        ("zero", ctypes.c_uint32),
        ("next", ctypes.c_void_p),
        ("next_stride", ctypes.c_int64),
        *((name, ctypes.c_int32) for name in ("next_blocks", "next_bytes")),
    )


@dataclass(frozen=True)
class RawWeight:
    """BF16 weights of a `[rows, cols]` matrix, arranged for a schedule."""

    rows: int
    cols: int
    schedule: Schedule
    staged: Staged

    @property
    def nbytes(self) -> int:
        """Bytes of weights a launch reads."""
        return self.staged.read


@dataclass(frozen=True)
class W12Weight:
    """W12 weights arranged for a schedule; the escape list as in `PackedMatrix`, for the stages
    that have no room for theirs."""

    rows: int
    cols: int
    base: int
    schedule: Schedule
    staged: Staged
    escape_meta: torch.Tensor
    tile_start: torch.Tensor
    entries: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of weights a launch reads, escapes included."""
        return self.staged.read


def raw_order(weight: torch.Tensor) -> torch.Tensor:
    """A BF16 `[N, K]` matrix as blocks u8 `[row tiles, k blocks, 2048]`, on its own device."""
    rows, cols = weight.shape
    schedules.Schedule(1, 1, 1, 1).check(rows, cols)
    bits = weight.detach().contiguous().view(torch.int16)
    view = bits.view(rows // 16, 2, 8, cols // 64, 4, 2, 4, 2)  # T h g B t p q e
    ordered = view.permute(0, 3, 4, 2, 6, 5, 1, 7).contiguous()  # T B t g q p h e
    return ordered.view(torch.uint8).view(rows // 16, cols // 64, RAW_BYTES)


def raw_blocks(bits: np.ndarray) -> np.ndarray:
    """The same order from bit patterns with numpy: `[T, B, 2048]` bytes."""
    ordered = lane_order(bits).transpose(0, 1, 4, 2, 3, 5, 6, 7)
    return np.ascontiguousarray(ordered).view(np.uint8).reshape(*ordered.shape[:2], RAW_BYTES)


def raw_weight(weight: torch.Tensor, schedule: Schedule | None = None) -> RawWeight:
    """Arrange a BF16 `[N, K]` matrix, on its own device."""
    rows, cols = weight.shape
    plan = schedule or schedule_for(rows, cols, weight.device.index or 0)
    plan.check(rows, cols)
    return RawWeight(rows, cols, plan, arrange(raw_order(weight), plan))


def w12_weight(
    packed: PackedMatrix | PackedTensors,
    device: torch.device | str,
    schedule: Schedule | None = None,
) -> W12Weight:
    """Copy a packed matrix to a device and arrange it there."""
    rows, cols = packed.rows, packed.cols
    plan = schedule or schedule_for(rows, cols, torch.device(device).index or 0)
    plan.check(rows, cols)

    def move(array: np.ndarray | torch.Tensor) -> torch.Tensor:
        if isinstance(array, torch.Tensor):
            return array.to(device).view(-1)
        signed = {"uint8": np.uint8, "uint16": np.int16, "uint32": np.int32}[array.dtype.name]
        return torch.from_numpy(np.ascontiguousarray(array).view(signed).reshape(-1)).to(device)

    meta = move(packed.escape_meta)
    # one spare entry, so that an empty list still has an address
    entries = torch.cat([move(packed.entries), torch.zeros(1, dtype=torch.int16, device=device)])
    counts = (meta.to(torch.int64) & ((1 << COUNT_BITS) - 1)).view(rows // 16, cols // 64)
    blocks = move(packed.blocks).view(rows // 16, cols // 64, W12_BYTES)
    staged = arrange(blocks, plan, Escapes(counts, entries))
    return W12Weight(rows, cols, packed.base, plan, staged, meta, move(packed.tile_start), entries)


@cache
def _device(index: int) -> tuple[ctypes.CDLL, int, int]:
    properties = torch.cuda.get_device_properties(index)
    library = load_library((properties.major, properties.minor))
    shared = int(library.specfarm_shared_limit(index))
    return library, properties.multi_processor_count, shared


def shared_bytes(device: int) -> int:
    """Shared memory a thread block of the device may use."""
    return _device(device)[2]


@cache
def schedule_for(rows: int, cols: int, device: int) -> Schedule:
    """The schedule of a matrix on a device."""
    _, multiprocessors, shared = _device(device)
    return schedules.choose(rows, cols, multiprocessors, shared)


@cache
def launch_for(
    plan: Schedule, block: int, room: int, tokens: int, dependent: bool, device: int
) -> Launch:
    """How a device launches a schedule on blocks of that many bytes."""
    return schedules.launch(
        plan,
        block,
        room,
        schedules.token_tiles(tokens),
        shared_bytes(device),
        wgmma=torch.cuda.get_device_capability(device) == (9, 0),
        dependent=dependent,
    )


def linear(
    x: torch.Tensor,
    weight: RawWeight | W12Weight,
    out: torch.Tensor | None = None,
    *,
    dependent: bool = False,
    following: RawWeight | W12Weight | None = None,
    launch: Launch | None = None,
) -> torch.Tensor:
    """x `[M, K]` times the weight: `[M, N]`, BF16 unless `out` is FP32.

    `dependent` starts the launch before the previous kernel of the stream has ended (programmatic
    dependent launch); it asks for its own weights and waits before it touches x or `out`.
    `following` is the weight of the next launch, where the caller knows it: its first bytes are
    called into the L2 cache at the end of this one.
    """
    tokens, cols = x.shape
    if cols != weight.cols or x.dtype != torch.bfloat16 or x.stride(1) != 1:
        raise ValueError(f"x must be bf16 [M, {weight.cols}], unit stride; got {tuple(x.shape)}")
    if out is None:
        out = torch.empty(tokens, weight.rows, dtype=torch.bfloat16, device=x.device)
    index = x.device.index or 0
    plan, staged = weight.schedule, weight.staged
    tiles = schedules.token_tiles(tokens)
    w12 = isinstance(weight, W12Weight)
    block = W12_BYTES if w12 else RAW_BYTES
    how = launch or launch_for(plan, block, staged.room, tokens, dependent, index)
    params = _Params(
        weights=staged.data.data_ptr(),
        out=out.data_ptr(),
        block_stride=staged.stride,
        m=tokens,
        ldo=out.stride(0),
        kblocks=cols // 64,
        groups=plan.groups,
        each=weight.rows // 16 // plan.groups,
        extra=weight.rows // 16 % plan.groups,
        cluster=plan.cluster,
        k_start=tuple(plan.k_starts(cols // 64)),
        row_warps=plan.row_warps,
        split=plan.split,
        chunk=plan.chunk,
        grouped=int(how.grouped),
        stages=how.stages,
        room=staged.room,
        out_f32=int(out.dtype == torch.float32),
        dependent=int(dependent),
    )
    if isinstance(weight, W12Weight):
        params.meta = weight.escape_meta.data_ptr()
        params.tile_start = weight.tile_start.data_ptr()
        params.entries = weight.entries.data_ptr()
        params.base = weight.base
    if following is not None:
        params.next = following.staged.data.data_ptr()
        params.next_stride = following.staged.stride
        params.next_blocks = following.schedule.groups * following.schedule.cluster
        params.next_bytes = min(_CALLED_AHEAD, following.staged.stride)
    stream = torch.cuda.current_stream(index).cuda_stream
    library = _device(index)[0]
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
