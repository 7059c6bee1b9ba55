"""How the skinny GEMM is spread over the chip: a function of the matrix alone.

The split of the k range (`split`, `cluster`, `chunk`) fixes the order of every sum, so it must not
depend on the number of tokens: row i of a batch is then the same bits whatever M is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ROWS = 16
COLS = 64
MAX_CONSUMERS = 20  # warps
TOKEN_TILES = (1, 2, 3, 4, 6, 8)
MAX_TOKENS = 8 * TOKEN_TILES[-1]
MAX_CLUSTER = 4
PLANE_BYTES = 1024  # the escape bits of a block
W12_BYTES = 1536  # of a stored 16x64 block
RAW_BYTES = 2048
MAX_ROOM = 4095  # escape entries of a stage
USUAL_ROOM = 384  # more than what 1 % of escapes needs in a stage
_FEW_ROOM = 64  # above what 0.02 % of escapes need
_FAR = 64  # k blocks
_SHARE = 16  # k blocks
_MORE_BUSY = 1.18


@dataclass(frozen=True)
class Schedule:
    """`groups` clusters of `cluster` thread blocks share the row tiles; a thread block works on
    `row_warps` row tiles at a time, `split` warps each, `chunk` k blocks in a row."""

    groups: int
    cluster: int
    row_warps: int
    split: int
    chunk: int = 1

    def __post_init__(self) -> None:
        if self.row_warps * self.split > MAX_CONSUMERS:
            raise ValueError(f"row_warps x split is at most {MAX_CONSUMERS}: {self}")
        if self.chunk not in (1, 2) or self.cluster > MAX_CLUSTER:
            raise ValueError(f"chunk is 1 or 2, cluster at most {MAX_CLUSTER}: {self}")

    def warps(self, grouped: bool) -> int:
        """Consumer warps of a thread block; `grouped` in fours, spare ones included."""
        return (-(-self.row_warps // 4) * 4 if grouped else self.row_warps) * self.split

    def k_starts(self, kblocks: int) -> list[int]:
        """First k block of every thread block of a cluster, and the end."""
        return [kblocks * rank // self.cluster for rank in range(self.cluster + 1)]

    def passes(self, rows: int) -> int:
        """Passes a thread block makes over its row tiles."""
        each = -(-(rows // ROWS) // self.groups)
        return -(-each // self.row_warps)

    def check(self, rows: int, cols: int) -> None:
        """Refuse a matrix this schedule cannot do."""
        if rows % ROWS or cols % COLS:
            raise ValueError(f"needs N % {ROWS} == 0 and K % {COLS} == 0, not {rows} x {cols}")
        if self.split * self.cluster > 1 and self.passes(rows) > 1:
            raise ValueError(f"a split k range needs one pass over the rows: {self} at N={rows}")
        if self.groups > rows // ROWS:
            raise ValueError(f"{self.groups} groups for {rows // ROWS} row tiles")


def token_tiles(tokens: int) -> int:
    """Tiles of 8 tokens the kernel is instantiated for, at least `tokens`."""
    for tiles in TOKEN_TILES:
        if tokens <= 8 * tiles:
            return tiles
    raise ValueError(f"at most {MAX_TOKENS} tokens a launch, not {tokens}")


def escape_bytes(schedule: Schedule, rows: int, room: int) -> int:
    """Escape part of a stage of `rows` row tiles: starts, `room` entries, padding to a line of the
    cache: copies that begin within one are slower."""
    used = 2 * (schedule.split * rows + 1 + room)
    return -(-used // 128) * 128 if room else 0


@dataclass(frozen=True)
class Launch:
    """What may differ between launches of one schedule without a change of the result: warps in
    fours that multiply together, and how many stages the copies run ahead."""

    grouped: bool
    stages: int


def stage_bytes(schedule: Schedule, block: int, room: int, tiles: int) -> int:
    """Activations, weights and two barriers, rounded up as the swizzle needs."""
    kblocks = schedule.split * schedule.chunk
    weights = escape_bytes(schedule, schedule.row_warps, room) + (
        kblocks * schedule.row_warps * block
    )
    return -(-(kblocks * tiles * 1024 + weights + 16) // 1024) * 1024


def plane_bytes(schedule: Schedule, block: int) -> int:
    """What the consumer warps need beside the ring: a plane a k block of every share."""
    planes = schedule.row_warps * schedule.split * schedule.chunk
    return planes * PLANE_BYTES if block < RAW_BYTES else 0


def _partial_bytes(schedule: Schedule, tiles: int) -> int:
    """Partial sums of a thread block that splits its k range, kept in the ring when it is empty."""
    shares = schedule.row_warps * schedule.split
    return shares * tiles * 512 if schedule.split > 1 and schedule.cluster == 1 else 0


def exchange_bytes(schedule: Schedule, tiles: int) -> int:
    """Where a thread block receives the partial sums of its cluster, and a barrier."""
    shares, cluster = schedule.cluster * schedule.split, schedule.cluster
    return 16 + -(-schedule.row_warps * tiles // cluster) * shares * 512 if cluster > 1 else 0


def deepest(schedule: Schedule, block: int, room: int, tiles: int, shared_bytes: int) -> int:
    """As many stages as fit."""
    each = stage_bytes(schedule, block, room, tiles)
    beside = plane_bytes(schedule, block) + exchange_bytes(schedule, tiles)
    stages = min(64, (shared_bytes - beside) // each)
    if stages < 1 or stages * each < _partial_bytes(schedule, tiles):
        raise ValueError(f"{schedule} with {8 * tiles} tokens needs more shared memory")
    return stages


def launch(
    schedule: Schedule,
    block: int,
    room: int,
    tiles: int,
    shared_bytes: int,
    *,
    wgmma: bool,
    dependent: bool = False,
) -> Launch:
    """How to launch; measured on an H200.

    Warps multiply in fours where the chip can and none of the four would be spare, or where that
    is made up for: reading the activations once for four warps counts for more the more tokens.
    """
    full = schedule.split * schedule.cluster == 1 or schedule.row_warps % 4 == 0
    grouped = wgmma and tiles >= (2 if full else 6) and schedule.warps(True) <= MAX_CONSUMERS
    deep = deepest(schedule, block, room, tiles, shared_bytes)
    weights = schedule.split * schedule.chunk * schedule.row_warps * block
    chained = dependent and room <= _FEW_ROOM
    least = 4 if dependent and schedule.row_warps < 8 else 3
    enough = max(least, _in_flight(schedule, block, chained) // weights)
    partials = -(-_partial_bytes(schedule, tiles) // stage_bytes(schedule, block, room, tiles))
    return Launch(grouped, max(min(deep, enough), partials))


def _in_flight(schedule: Schedule, block: int, chained: bool) -> int:
    """Bytes of weights a thread block asks for ahead: with much more on its way than the memory
    needs, some thread blocks end late. `chained`: a dependent launch with few escapes, whose
    stages are read as soon as they arrive."""
    if block >= RAW_BYTES:
        return 160_000
    if schedule.row_warps < 8:
        return 96_000
    return 150_000 if chained else 120_000


def _fits(schedule: Schedule, shared_bytes: int) -> bool:
    """Whether every number of tokens gets a ring two stages deep, in both forms; one stage where
    there are more escapes than usual."""
    forms = ((W12_BYTES, MAX_ROOM, 1), (W12_BYTES, USUAL_ROOM, 2), (RAW_BYTES, 0, 2))
    try:
        return all(
            deepest(schedule, block, room, TOKEN_TILES[-1], shared_bytes) >= least
            for block, room, least in forms
        )
    except ValueError:
        return False


def _pairs(tiles: int, kblocks: int, multiprocessors: int) -> Schedule | None:
    """Pairs of thread blocks that share the k range: where single ones would leave much of the chip
    idle and read all activations for few rows each. Else the exchange costs more than it saves, as
    it does with fewer than `_SHARE` k blocks a warp."""
    each, pair = (-(-tiles // units) for units in (multiprocessors, multiprocessors // 2))
    busy, paired = -(-tiles // each), 2 * -(-tiles // pair)
    split = min(MAX_CONSUMERS // pair, max(2, kblocks // (2 * _SHARE)))
    if kblocks < _FAR or paired < _MORE_BUSY * busy or split < 2:
        return None
    return Schedule(min(tiles, multiprocessors // 2), 2, pair, split, 2 if split == 2 else 1)


def _candidates(rows: int, cols: int, multiprocessors: int) -> Iterator[Schedule]:
    """Schedules to try, the best first."""
    tiles, kblocks = rows // ROWS, cols // COLS
    if pairs := _pairs(tiles, kblocks, multiprocessors):
        yield pairs
    each = -(-tiles // multiprocessors)
    groups = -(-tiles // each)
    if each <= MAX_CONSUMERS:
        widest = max(1, min(MAX_CONSUMERS // each, kblocks, 8))
        for split in range(widest, 1, -1):
            yield Schedule(min(tiles, multiprocessors), 1, each, split, 1)
        yield Schedule(groups, 1, each, 1, 2)
    groups = min(tiles, multiprocessors)
    each = -(-tiles // groups)
    for passes in range(-(-each // MAX_CONSUMERS), each + 1):
        for chunk in (2, 1):
            yield Schedule(groups, 1, -(-each // passes), 1, chunk)


def choose(rows: int, cols: int, multiprocessors: int, shared_bytes: int) -> Schedule:
    """A schedule whose thread blocks all have the same number of row tiles, or nearly: where their
    warps share k ranges the whole chip works, if not evenly."""
    for schedule in _candidates(rows, cols, multiprocessors):
        if _fits(schedule, shared_bytes):
            return schedule
    raise ValueError(f"no schedule for {rows} x {cols} in {shared_bytes} bytes of shared memory")
