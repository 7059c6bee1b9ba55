"""Weights in the order a schedule reads them: what a thread block copies for a stage is one piece.

The order is that of work_range.cuh: thread block, pass over its row tiles, stage; in a stage the
escapes of its chunks (W12), then the blocks `[k block][row tile]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F

from native_engine.kernels.schedule import MAX_ROOM, Schedule, escape_bytes

# beside where the escapes of a share start: which blocks have any, more than a lane each, no room
_FIRST, _SECOND, _MORE, _LISTED = 0x1000, 0x2000, 0x4000, 0x8000
_LANES = 32
_STALL_BYTES = 65_536  # what a look into the list costs, in bytes that could have been copied


@dataclass(frozen=True)
class Staged:
    """`data` u8, `stride` bytes a thread block; `room` for escape entries in a stage; `read` bytes
    of weights that one launch copies."""

    data: torch.Tensor
    stride: int
    room: int
    read: int


@dataclass(frozen=True)
class Escapes:
    """Counts of every block `[tiles, kblocks]` and the entries (int16) in block order."""

    counts: torch.Tensor
    entries: torch.Tensor


@dataclass(frozen=True)
class _Part:
    """One pass of one rank of neighbouring groups that have the same number of row tiles."""

    group: int
    groups: int
    tiles: int  # row tiles of a group
    tile: int  # first row tile of the first group
    first: int  # first row tile of the pass within its group
    rows: int
    rank: int
    k_first: int
    k_count: int

    def take(self, per_block: torch.Tensor) -> torch.Tensor:
        """`[tiles, kblocks, ...]` to `[groups, rows, k_count, ...]`."""
        mine = per_block[self.tile : self.tile + self.groups * self.tiles]
        view = mine.view(self.groups, self.tiles, *per_block.shape[1:])
        rows = view[:, self.first : self.first + self.rows]
        return rows[:, :, self.k_first : self.k_first + self.k_count]


def _parts(schedule: Schedule, tiles: int, kblocks: int) -> Iterator[_Part]:
    each, extra = divmod(tiles, schedule.groups)
    for group, groups, count in ((0, extra, each + 1), (extra, schedule.groups - extra, each)):
        if not groups or not count:
            continue
        tile = group * each + min(group, extra)
        for rank, (k_first, k_end) in enumerate(pairwise(schedule.k_starts(kblocks))):
            for first in range(0, count, schedule.row_warps):
                rows = min(schedule.row_warps, count - first)
                yield _Part(group, groups, count, tile, first, rows, rank, k_first, k_end - k_first)


def _pad_stages(values: torch.Tensor, schedule: Schedule) -> torch.Tensor:
    """`[groups, rows, k]` to `[groups, steps, share, rows, chunk]`, zeros behind the end."""
    per = schedule.split * schedule.chunk
    steps = -(-values.shape[2] // per)
    padded = F.pad(values, (0, steps * per - values.shape[2]))
    view = padded.view(*values.shape[:2], steps, schedule.split, schedule.chunk)
    return view.permute(0, 2, 3, 1, 4)


def _choose_room(schedule: Schedule, parts: list[_Part], counts: torch.Tensor) -> int:
    """Entries a stage has room for: the cheapest trade of bytes against looks into the list."""
    totals = torch.cat(
        [_pad_stages(p.take(counts), schedule).sum((2, 3, 4)).flatten() for p in parts]
    )
    ordered = totals.sort().values
    room = torch.unique(ordered.clamp(max=MAX_ROOM))
    beyond = totals.numel() - torch.searchsorted(ordered, room, right=True)
    cost = 2 * room * totals.numel() + _STALL_BYTES * beyond
    return max(2, int(room[cost.argmin()]))


def _escape_words(
    part: _Part, schedule: Schedule, escapes: Escapes, before: torch.Tensor, room: int
) -> torch.Tensor:
    """Escape parts of all stages of a part: int16 `[groups, steps, words]`."""
    counts = _pad_stages(part.take(escapes.counts), schedule)
    first = _pad_stages(part.take(before), schedule)
    groups, steps = counts.shape[:2]
    words = escape_bytes(schedule, part.rows, room) // 2
    shares = schedule.split * part.rows
    out = torch.zeros(groups * steps, words, dtype=torch.int16, device=counts.device)
    by_share = counts.sum(4).reshape(-1, shares)
    ends = by_share.cumsum(1)
    listed = ends[:, -1] > room
    any_in = counts.reshape(-1, shares, schedule.chunk) > 0
    flags = _FIRST * any_in[..., 0] + _MORE * (by_share > _LANES)
    if schedule.chunk > 1:
        flags += _SECOND * any_in[..., 1]
    unlisted = torch.where(listed[:, None], 0, ends - by_share)
    refer = torch.where(listed[:, None] & (by_share > 0), _MORE | _LISTED, 0)
    out[:, :shares] = (unlisted | flags | refer).to(torch.int16)
    out[:, shares] = torch.where(listed, 0, ends[:, -1]).to(torch.int16)
    flat = counts.reshape(groups * steps, -1)
    offset = (flat.cumsum(1) - flat).reshape(-1)  # of a block's entries in its stage
    number = torch.where(listed[:, None], 0, flat).reshape(-1)
    owner = torch.repeat_interleave(torch.arange(number.numel(), device=out.device), number)
    within = torch.arange(owner.numel(), device=out.device) - (number.cumsum(0) - number)[owner]
    entry = escapes.entries[first.reshape(-1)[owner] + within]
    entry = entry | ((owner % schedule.chunk) << 10).to(torch.int16)
    out[owner // flat.shape[1], shares + 1 + offset[owner] + within] = entry
    return out.view(groups, steps, words)


def _piece(
    part: _Part, schedule: Schedule, blocks: torch.Tensor, words: torch.Tensor | None
) -> torch.Tensor:
    """All stages of a part in a row: u8 `[groups, bytes]`."""
    mine = part.take(blocks)
    groups, rows, kblocks, size = mine.shape
    per = schedule.split * schedule.chunk
    full = kblocks // per
    stages = [mine[:, :, : full * per].reshape(groups, rows, full, per, size)]
    if kblocks % per:
        stages.append(mine[:, :, full * per :].reshape(groups, rows, 1, kblocks % per, size))
    pieces = [stage.permute(0, 2, 3, 1, 4).flatten(2) for stage in stages]
    if words is not None:
        heads = words.view(torch.uint8)
        split = (heads[:, :full], heads[:, full:])
        pieces = [torch.cat(pair, dim=2) for pair in zip(split, pieces, strict=False)]
    return torch.cat([piece.reshape(groups, -1) for piece in pieces], dim=1)


def arrange(blocks: torch.Tensor, schedule: Schedule, escapes: Escapes | None = None) -> Staged:
    """Blocks u8 `[row tiles, k blocks, bytes]` in the order of the schedule."""
    tiles, kblocks, _ = blocks.shape
    parts = list(_parts(schedule, tiles, kblocks))
    room = _choose_room(schedule, parts, escapes.counts) if escapes else 0
    if escapes:
        running = escapes.counts.flatten().cumsum(0).view_as(escapes.counts)
        before = running - escapes.counts
    pieces: dict[tuple[int, int], list[torch.Tensor]] = {}
    for part in parts:
        words = _escape_words(part, schedule, escapes, before, room) if escapes else None
        pieces.setdefault((part.group, part.rank), []).append(_piece(part, schedule, blocks, words))
    sizes = {key: sum(piece.shape[1] for piece in group) for key, group in pieces.items()}
    stride = -(-max(sizes.values()) // 128) * 128
    shape = (schedule.groups, schedule.cluster, stride)
    data = torch.zeros(shape, dtype=torch.uint8, device=blocks.device)
    read = 0
    for (group, rank), group_pieces in pieces.items():
        at = 0
        for piece in group_pieces:
            data[group : group + len(piece), rank, at : at + piece.shape[1]] = piece
            at += piece.shape[1]
            read += piece.numel()
    return Staged(data.view(-1), stride, room, read)
