"""Weights arranged for a schedule, read back the way the kernel addresses them."""

import pytest
import torch

from native_engine.kernels import stages
from native_engine.kernels.schedule import Schedule, escape_bytes
from native_engine.kernels.stages import Escapes, Staged, arrange

SIZE = 96  # of a block
CASES = [
    (Schedule(1, 1, 20, 1, 2), 41, 3),
    (Schedule(3, 1, 2, 1, 1), 17, 10),
    (Schedule(5, 1, 2, 8, 1), 10, 37),
    (Schedule(3, 1, 2, 5, 2), 5, 47),
    (Schedule(3, 2, 5, 2, 2), 13, 35),
    (Schedule(2, 2, 1, 8, 1), 2, 2),
    (Schedule(2, 3, 4, 2, 1), 7, 50),
    (Schedule(2, 1, 3, 1, 2), 9, 13),
]


def random_escapes(tiles: int, kblocks: int, most: int) -> Escapes:
    counts = torch.randint(0, most + 1, (tiles, kblocks))
    entries = torch.randint(0x800, 0x7800, (int(counts.sum()) + 1,)) & ~(1 << 10)
    return Escapes(counts, entries.to(torch.int16))


def wanted(escapes: Escapes, tile: int, kblocks: list[int]) -> list[int]:
    """Entries of a chunk, its second block marked in bit 10."""
    flat, width = escapes.counts.flatten(), escapes.counts.shape[1]
    found = []
    for j, kblock in enumerate(kblocks):
        at = tile * width + kblock
        first, count = int(flat[:at].sum()), int(flat[at])
        found += [int(e) | j << 10 for e in escapes.entries[first : first + count]]
    return found


def read_back(
    plan: Schedule, blocks: torch.Tensor, staged: Staged, escapes: Escapes | None
) -> tuple[int, int]:
    """Walk every stage of every thread block: (bytes read, chunks sent to the list)."""
    tiles, kblocks, _ = blocks.shape
    each, extra = divmod(tiles, plan.groups)
    memory = staged.data.view(-1, staged.stride)
    read = listed = 0
    for thread_block, mine in enumerate(memory):
        group, rank = divmod(thread_block, plan.cluster)
        first = group * each + min(group, extra)
        end = first + each + (group < extra)
        k_first, k_end = (kblocks * r // plan.cluster for r in (rank, rank + 1))
        at = 0
        for tile in range(first, end, plan.row_warps):
            rows = min(plan.row_warps, end - tile)
            head = escape_bytes(plan, rows, staged.room)
            for k in range(k_first, k_end, plan.split * plan.chunk):
                stage = list(range(k, min(k + plan.split * plan.chunk, k_end)))
                words = mine[at : at + head].view(torch.int16).tolist()
                body = mine[at + head :][: len(stage) * rows * SIZE].view(len(stage), rows, SIZE)
                expected = blocks[tile : tile + rows, stage[0] : stage[-1] + 1].transpose(0, 1)
                assert torch.equal(body, expected)
                at += head + len(stage) * rows * SIZE
                if escapes is None:
                    continue
                for share in range(plan.split):
                    chunk = stage[share * plan.chunk :][: plan.chunk]
                    for row in range(rows):
                        word, stop = (w & 0xFFFF for w in words[share * rows + row :][:2])
                        start, stop = word & 0xFFF, stop & 0xFFF
                        entries = wanted(escapes, tile + row, chunk)
                        any_in = [bool(wanted(escapes, tile + row, [k])) for k in chunk]
                        assert [bool(word & 0x1000 << j) for j in range(len(chunk))] == any_in
                        if word & 0x8000:
                            listed += 1
                            assert word & 0x4000 and start == stop == 0 and entries
                            continue
                        assert bool(word & 0x4000) == (len(entries) > 32)
                        assert words[plan.split * rows + 1 :][start:stop] == entries
        read += at
    return read, listed


@pytest.mark.parametrize(("plan", "tiles", "kblocks"), CASES)
@pytest.mark.parametrize("most", [None, 0, 3])
def test_every_block_and_escape_is_where_the_kernel_looks(
    plan: Schedule, tiles: int, kblocks: int, most: int | None
) -> None:
    torch.manual_seed(tiles * kblocks)
    blocks = torch.randint(0, 256, (tiles, kblocks, SIZE), dtype=torch.uint8)
    escapes = None if most is None else random_escapes(tiles, kblocks, most)
    staged = arrange(blocks, plan, escapes)
    assert read_back(plan, blocks, staged, escapes) == (staged.read, 0)
    assert staged.stride % 128 == 0


def test_stages_without_room_refer_to_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    plan = Schedule(3, 2, 5, 2, 2)
    blocks = torch.randint(0, 256, (13, 35, SIZE), dtype=torch.uint8)
    escapes = random_escapes(13, 35, 3)
    monkeypatch.setattr(stages, "_STALL_BYTES", 1)  # lists are cheap: room for few stages pays
    staged = arrange(blocks, plan, escapes)
    read, listed = read_back(plan, blocks, staged, escapes)
    assert read == staged.read and 0 < listed < 13 * 35


def test_a_stage_of_nothing_but_escapes_is_listed() -> None:
    plan = Schedule(1, 1, 8, 1, 1)
    blocks = torch.zeros(8, 2, SIZE, dtype=torch.uint8)
    counts = torch.zeros(8, 2, dtype=torch.int64)
    counts[:, 1] = 1024
    escapes = Escapes(counts, torch.full((8192 + 1,), 0x800, dtype=torch.int16))
    staged = arrange(blocks, plan, escapes)
    assert staged.room <= stages.MAX_ROOM
    assert read_back(plan, blocks, staged, escapes) == (staged.read, 8)
