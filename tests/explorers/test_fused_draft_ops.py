"""The fused draft step against the drafters' equations in float64 and stock's own path; what it
leaves to stock. In an engine: test_fused_draft_engine.py."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from engines.tree_store import TreeStore
from native_engine.decode import accepted_prefix
from native_engine.drafters.load import load_drafter
from native_engine.drafters.options import DrafterOptions
from native_engine.drafters.protocol import Ask
from native_engine.linear import LINEAR_BACKENDS
from native_engine.targets.protocol import Rows
from settings.paths import checkout_root
from tests.engines.native.drafters import synthetic
from tests.engines.native.drafters.reference import Reference
from tests.explorers.test_fused_cpp_ops import PORTABLE, distance, import_tree
from tests.explorers.test_parallel_drafter_mechanisms import (
    patch_of,
)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
NAME = "fused_draft_ops"
WORDS, WIDTH, ROOM = 2003, 64, 120
SPARK, FLASH2 = synthetic.DSPARK, synthetic.DFLASH2
SHAPES: dict[str, tuple[Mapping[str, Any], dict[str, Any], dict[str, Any]]] = {
    "dflash2": (FLASH2, {}, {}),
    "dflash2-whole": (
        FLASH2,
        {"layer_types": ["full_attention"] * 2, "num_key_value_heads": 4},
        {"block_size": 16, "selector_rank": 32, "conv_kernel_size": 3},
    ),
    "dflash-causal": (synthetic.DFLASH, {"num_key_value_heads": 1}, {}),
    "dspark-yarn": (SPARK, {"head_dim": 64, "intermediate_size": 100}, {"markov_rank": 40}),
    "dspark-own-vocabulary": (
        synthetic.DEEPSPEC,
        {"markov_head_type": "vanilla", "mask_token_id": WORDS - 1},
        {},
    ),
}


def shaped(name: str) -> dict[str, Any]:
    """A config.json whose sizes C++ takes."""
    raw, own, inner = SHAPES[name]
    sizes = {"hidden_size": WIDTH, "vocab_size": WORDS, "head_dim": 32, "intermediate_size": 72}
    config = {**raw, **sizes, **own}
    if "dflash_config" in raw:
        grouped = {"conv_group_size": 16} if raw is FLASH2 else {}
        changes = {"mask_token_id": WORDS - 1} | grouped | inner
        config["dflash_config"] = raw["dflash_config"] | changes
    return config


class Target:
    """A random embedding and head, all that a drafter shares."""

    layers, vocab_size, hidden_size = synthetic.TARGET_LAYERS, WORDS, WIDTH
    device = torch.device("cpu")

    def __init__(self, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(5)
        self.dtype = dtype
        self.table = torch.randn(WORDS, WIDTH, generator=generator).to(dtype)
        self.matrix = (torch.randn(WORDS, WIDTH, generator=generator) / 3).to(dtype)

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.table)

    def head(self, normed: Tensor) -> Tensor:
        return F.linear(normed, self.matrix)


@dataclass(frozen=True)
class Modules:
    load: ModuleType
    protocol: ModuleType
    library: ModuleType
    parts: ModuleType


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Modules]:
    """Of the patched tree; builds go to a fresh cache."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("store")
    store = TreeStore(folder / "trees")
    base = store.import_stock(checkout_root() / "engines/native", "native")
    tree = store.checkout(store.commit_patch(base.commit, patch_of(NAME), NAME).commit)
    names = ("drafters.load", "drafters.protocol", "fused_drafter.library", "fused_drafter.parts")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TORCH_EXTENSIONS_DIR", str(folder / "cache"))
        yield Modules(*import_tree(tree, *names))
    torch.set_num_threads(before)


class Both:
    """The patched drafter and stock's with the same weights, and their equations."""

    def __init__(
        self, modules: Modules, folder: Path, raw: dict[str, Any], dtype: torch.dtype, **more: Any
    ) -> None:
        weights = synthetic.write_checkpoint(folder, raw)
        self.target, self.protocol = Target(dtype), modules.protocol
        given = (folder, self.target, dtype, self.target.device, "safetensors")
        options = DrafterOptions(**more)
        self.ours = modules.load.load_drafter(*given, modules.load.DrafterOptions(**more))
        self.stock = load_drafter(*given, options)
        rounded = {name: tensor.to(dtype) for name, tensor in weights.items()}
        self.reference = Reference(raw, rounded, self.target.table, self.target.matrix)
        for drafter in (self.ours, self.stock):
            drafter.open(1, ROOM)
        generator = torch.Generator().manual_seed(7)
        taps = torch.randn(len(self.stock.taps), ROOM, WIDTH, generator=generator)
        self.taps = list(taps.to(dtype).unbind(0))
        self.held = 0

    def read(self, rows: int, back: int = 0) -> None:
        """Observe `rows` more, after stepping `back`."""
        self.held -= back
        for drafter in (self.ours, self.stock):
            taps = [tap[self.held : self.held + rows] for tap in self.taps]
            drafter.observe(Rows(torch.empty(rows), (0,), (self.held,), (rows,)), taps)
        self.held += rows

    @property
    def ids(self) -> list[int]:
        return [(37 * i + 11) % WORDS for i in range(self.held + 1)]

    def hidden(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ours, stock's, exact."""
        ask = Ask(0, self.ids, 99)
        ours, theirs = self.ours.hidden([ask])[0], self.stock.hidden([ask])[0]
        return (
            ours,
            theirs,
            self.reference.hidden(self.ids, [tap[: self.held] for tap in self.taps]),
        )

    def drafts(self, limit: int = 99, **how: Any) -> list[list[int]]:
        """Ours, stock's."""
        ask = Ask(0, self.ids, limit, **how)
        return [drafter.propose([ask]).tokens[0] for drafter in (self.ours, self.stock)]


def both(
    modules: Modules, folder: Path, shape: str, dtype: torch.dtype = torch.float32, **more: Any
) -> Both:
    pair = Both(modules, folder, shaped(shape), dtype, **more)
    assert pair.ours._fused is not None
    return pair


@pytest.mark.parametrize("shape", SHAPES)
def test_fp32_is_the_equations(modules: Modules, tmp_path: Path, shape: str) -> None:
    """Hidden states to 1e-5 and drafts, through appends of every size and partial acceptance."""
    pair = both(modules, tmp_path, shape)
    for rows, back in ((1, 0), (16, 0), (17, 0), (2, 1), (8, 7), (3, 3), (5, 2), (15, 0)):
        pair.read(rows, back)
        ours, theirs, exact = pair.hidden()
        assert distance(ours, theirs) < 1e-5 and distance(ours, exact) < 1e-5
        mine, stocks = pair.drafts()
        assert mine == stocks == pair.reference.greedy(exact, pair.ids[-1], len(mine))
        assert len(mine) == pair.stock.draft_tokens
        assert pair.drafts(2) == [mine[:2]] * 2
    assert distance(pair.ours._context.data, pair.stock._context.data) < 1e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_bf16_is_no_further_from_exact_than_stock(
    modules: Modules, tmp_path: Path, shape: str
) -> None:
    """Nor are its drafts, counted up to the first token that exact arithmetic would not draft."""
    pair = both(modules, tmp_path, shape, torch.bfloat16)
    errors = torch.zeros(2, dtype=torch.float64)
    held = [0, 0]
    for rows in (9, 3, 1, 8, 2, 20, 4, 4, 7, 12):
        pair.read(rows)
        ours, theirs, exact = pair.hidden()
        assert ours.dtype == torch.bfloat16 and ours.shape == theirs.shape
        errors += torch.stack([(x.double() - exact).abs().mean() for x in (ours, theirs)])
        drafts = pair.drafts()
        truth = pair.reference.greedy(exact, pair.ids[-1], len(drafts[0]))
        held = [n + accepted_prefix(draft, truth) for n, draft in zip(held, drafts, strict=True)]
    assert errors[0] < 1.05 * errors[1]
    assert held[0] >= 0.8 * held[1] > 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cpu_without_avx512_computes_the_same(
    modules: Modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    if platform.machine() not in PORTABLE:
        pytest.skip(f"no portable target named for {platform.machine()}")
    library = modules.library
    flags = [f for f in library.FLAGS if not f.startswith("-march")]
    native = both(modules, tmp_path / "native", "dflash2", dtype)
    monkeypatch.setattr(library, "FLAGS", (*flags, PORTABLE[platform.machine()]))
    library.load_library.cache_clear()
    try:
        pairs = [both(modules, tmp_path / name, name, dtype) for name in ("dflash2", "dspark-yarn")]
    finally:
        library.load_library.cache_clear()
    assert pairs[0].ours._fused._library is not native.ours._fused._library
    for pair in pairs:
        pair.read(30)
        pair.read(6)
        ours, _, exact = pair.hidden()
        assert distance(ours, exact) < (1e-5 if dtype == torch.float32 else 0.05)
        if dtype == torch.float32:
            mine, stocks = pair.drafts()
            assert mine == stocks


def test_any_matrix_gives_its_rows(modules: Modules) -> None:
    """However it is packed: products with unit vectors are exact."""
    for dtype in (torch.float32, torch.bfloat16):
        weight = torch.randn(150, 96).to(dtype)
        for name in ("plain", "packed", "bucketed"):
            rows = modules.parts.rows_of(LINEAR_BACKENDS[name](weight), 96, weight)
            assert torch.equal(rows, weight) and rows.is_contiguous()


@pytest.mark.parametrize("loud", [0.02, 1.0, 30.0])
def test_markov_groups_are_passed_over_only_where_they_cannot_win(
    modules: Modules, tmp_path: Path, loud: float
) -> None:
    """Whether the logits or the Markov head decide."""
    pair = both(modules, tmp_path, "dspark-yarn")
    pair.target.matrix.mul_(loud)
    for drafter in (pair.ours, pair.stock):
        drafter.open(1, ROOM)
    pair.held = 0
    for rows in (5, 4, 3, 7, 1, 6):
        pair.read(rows)
        mine, stocks = pair.drafts()
        assert mine == stocks


@pytest.mark.parametrize("shape", ["dspark-yarn", "dspark-own-vocabulary"])
def test_a_schedule_cuts_the_same_drafts(modules: Modules, tmp_path: Path, shape: str) -> None:
    lengths = set()
    pair = both(modules, tmp_path, shape, schedule="threshold", threshold=0.4)
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10):
        pair.read(rows)
        mine, stocks = pair.drafts()
        assert mine == stocks
        lengths.add(len(mine))
    assert len(lengths) > 1


def test_a_sample_is_stocks_own(modules: Modules, tmp_path: Path) -> None:
    pair = both(modules, tmp_path, "dflash2")
    pair.read(12)
    found = []
    for drafter in (pair.ours, pair.stock):
        generator = torch.Generator().manual_seed(1)
        ask = Ask(0, pair.ids, 9, temperature=1.0, generator=generator)
        found.append(drafter.propose([ask]))
    assert found[0].tokens == found[1].tokens
    ours, theirs = (proposal.q[0] for proposal in found)
    assert ours is not None and theirs is not None and distance(ours, theirs) < 1e-4


@pytest.mark.parametrize(
    ("raw", "slots"),
    [
        (shaped("dflash2") | {"head_dim": 16}, 1),
        (shaped("dflash2") | {"output_multiplier": 0.3, "final_logit_softcapping": 2.0}, 1),
        (shaped("dspark-own-vocabulary") | {"markov_head_type": "rnn"}, 1),
        (shaped("dspark-yarn"), 2),
    ],
)
def test_what_it_cannot_compute_is_left_to_stock(
    modules: Modules, tmp_path: Path, raw: dict[str, Any], slots: int
) -> None:
    pair = Both(modules, tmp_path, raw, torch.float32)
    for drafter in (pair.ours, pair.stock):
        drafter.open(slots, ROOM)
    assert pair.ours._fused is None
    pair.read(20)
    ours, theirs, _ = pair.hidden()
    mine, stocks = pair.drafts()
    assert torch.equal(ours, theirs) and mine == stocks


def test_more_threads_or_no_compiler_leave_stocks_path(
    modules: Modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(2)
    try:
        assert Both(modules, tmp_path, shaped("dflash2"), torch.float32).ours._fused is None
    finally:
        torch.set_num_threads(1)
    modules.library.load_library.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Both(modules, tmp_path, shaped("dflash2"), torch.float32).ours._fused is None
    modules.library.load_library.cache_clear()


def test_misuse_is_refused(modules: Modules, tmp_path: Path) -> None:
    pair = both(modules, tmp_path, "dflash2")
    pair.read(7)
    for drafter in (pair.ours, pair.stock):
        with pytest.raises(ValueError, match="rows from 9 follow 7"):
            drafter.observe(Rows(torch.empty(1), (0,), (9,), (1,)), [t[:1] for t in pair.taps])
        with pytest.raises(ValueError, match="anchor at 3, 7 rows observed"):
            drafter.propose([Ask(0, [1, 2, 3, 4], 5)])
    room = pair.ours._context.data.shape[4]
    with pytest.raises(ValueError, match=f"room for {room} rows"):
        pair.ours._fused.block(torch.zeros(1, WIDTH), room - 4)
    assert not pair.ours._fused.append([tap[:4] for tap in pair.taps], room - 3)
