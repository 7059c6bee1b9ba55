"""How the skinny GEMM is spread over the chip: a function of the matrix alone.

The split of the k range (`split`, `cluster`) fixes the order of every sum, so it must not depend
on the number of tokens: row i of a batch is then the same bits whatever M is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ROWS = 16
COLS = 64
MAX_CONSUMERS = 19
TOKEN_TILES = (1, 2, 3, 4, 6, 8)
MAX_TOKENS = 8 * TOKEN_TILES[-1]
SCRATCH_BYTES = 2432  # of a consumer warp: exponents of a block, escape look-up
BLOCK_BYTES = {True: 1536, False: 2048}  # by w12
_IN_FLIGHT = {True: 120_000, False: 160_000}  # bytes of weights a block asks for ahead, by w12
_FAR = 48  # k blocks of one warp


@dataclass(frozen=True)
class Schedule:
    """`groups` clusters of `cluster` blocks share the row tiles; a block works on `row_warps` row
    tiles at a time, `split` warps each."""

    groups: int
    cluster: int
    row_warps: int
    split: int

    def __post_init__(self) -> None:
        if self.row_warps * self.split > MAX_CONSUMERS:
            raise ValueError(f"row_warps x split is at most {MAX_CONSUMERS}: {self}")

    def passes(self, rows: int) -> int:
        """Passes a block makes over its row tiles."""
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


@dataclass(frozen=True)
class Ring:
    """`stages` stages of `unroll` k blocks a warp: how far copies run ahead. No influence on the
    order of sums."""

    unroll: int
    stages: int


def stage_bytes(schedule: Schedule, w12: bool, tiles: int, unroll: int = 1) -> int:
    """Activations, weights and two barriers, rounded up as the swizzle needs."""
    blocks = schedule.split * unroll
    used = blocks * (tiles * 1024 + schedule.row_warps * BLOCK_BYTES[w12]) + 16
    return -(-used // 1024) * 1024


def _partial_bytes(schedule: Schedule, tiles: int) -> int:
    """Partial sums of a split k range, kept in the ring when it is empty."""
    consumers = schedule.row_warps * schedule.split
    return consumers * tiles * 512 if schedule.split * schedule.cluster > 1 else 0


def deepest(schedule: Schedule, w12: bool, tiles: int, shared_bytes: int, unroll: int) -> Ring:
    """As many stages as fit."""
    consumers = schedule.row_warps * schedule.split
    each = stage_bytes(schedule, w12, tiles, unroll)
    stages = min(64, (shared_bytes - consumers * SCRATCH_BYTES * w12) // each)
    if stages < 1 or stages * each < _partial_bytes(schedule, tiles):
        raise ValueError(f"{schedule} with {8 * tiles} tokens needs more shared memory")
    return Ring(unroll, stages)


def ring(schedule: Schedule, w12: bool, tiles: int, shared_bytes: int, cols: int) -> Ring:
    """How deep and in what pieces; measured on an H200.

    Two k blocks a copy where one thread would issue many short ones (an unsplit k range: two such
    stages must fit) or a warp walks far (three). No deeper than the memory needs: with everything
    asked for at once, what the escapes need waits behind it.
    """
    kblocks = cols // COLS // schedule.cluster // schedule.split
    wide = schedule.split == 1 or kblocks >= _FAR
    for unroll in (2, 1) if wide else (1,):
        try:
            deep = deepest(schedule, w12, tiles, shared_bytes, unroll)
        except ValueError:
            continue
        weights = schedule.split * unroll * schedule.row_warps * BLOCK_BYTES[w12]
        enough = max(3, _IN_FLIGHT[w12] // weights)
        if deep.stages >= (2 if schedule.split == 1 else 3) or unroll == 1:
            partials = -(
                -_partial_bytes(schedule, tiles) // stage_bytes(schedule, w12, tiles, unroll)
            )
            return Ring(unroll, max(min(deep.stages, enough), partials))
    raise ValueError(f"{schedule} with {8 * tiles} tokens needs more shared memory")


def _fits(schedule: Schedule, shared_bytes: int) -> bool:
    """Whether every number of tokens gets a ring at least two stages deep, in both formats."""
    try:
        return all(
            deepest(schedule, w12, TOKEN_TILES[-1], shared_bytes, 1).stages >= 2
            for w12 in (True, False)
        )
    except ValueError:
        return False


def _candidates(rows: int, cols: int, multiprocessors: int) -> Iterator[Schedule]:
    """Schedules to try, the best first."""
    tiles, kblocks = rows // ROWS, cols // COLS
    each = -(-tiles // multiprocessors)
    # pairs of blocks only where half the chip would idle: the exchange costs more than it evens out
    cluster = 2 if 2 * tiles <= multiprocessors and kblocks >= 32 else 1
    groups = -(-tiles // each)
    if each <= MAX_CONSUMERS:
        widest = max(1, min(16 // each, kblocks // cluster, 8))
        for split in range(widest, 0, -1):
            yield Schedule(groups, cluster, each, split)
    groups = min(tiles, multiprocessors)
    each = -(-tiles // groups)
    for passes in range(-(-each // MAX_CONSUMERS), each + 1):
        yield Schedule(groups, 1, -(-each // passes), 1)


def choose(rows: int, cols: int, multiprocessors: int, shared_bytes: int) -> Schedule:
    """A schedule whose blocks all have the same number of row tiles, or nearly."""
    for schedule in _candidates(rows, cols, multiprocessors):
        if _fits(schedule, shared_bytes):
            return schedule
    raise ValueError(f"no schedule for {rows} x {cols} in {shared_bytes} bytes of shared memory")
