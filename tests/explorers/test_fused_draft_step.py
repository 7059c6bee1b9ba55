"""The fused draft step against stock's layers, and what it leaves to them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import native_engine.engine as stock
from engines.tree_store import TreeStore
from explorers.mechanism import load_mechanism
from native_engine.drafters.protocol import Ask
from native_engine.requests import GenerateRequest
from settings.paths import checkout_root
from tests.engines.native.drafters import synthetic
from tests.engines.native.drafters.test_single import knobs_of, prompt_of, write_drafter
from tests.engines.native.tiny import make_folder, reference_greedy
from tests.explorers.test_fused_cpp_ops import distance, import_tree

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
FOLDER = checkout_root() / "explorers/catalogue/fused_draft_step"
WHOLE = {"layer_types": ["full_attention"] * 2, "head_dim": 16}
SHAPES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "dflash2": ("dflash", synthetic.DFLASH2, WHOLE),
    "dflash2, one head a group": ("dflash", synthetic.DFLASH2, {**WHOLE, "head_dim": 48,
                                                                "num_key_value_heads": 4}),
    "dflash": ("dflash", synthetic.DFLASH, {**WHOLE, "is_causal": False, "head_dim": 32}),
    "dspark": ("dspark", synthetic.DSPARK, {**WHOLE, "intermediate_size": 100}),
}  # fmt: skip


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """engine and fused_draft.backbone of the patched tree; builds go to a fresh cache."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("store")
    store = TreeStore(folder / "trees")
    base = store.import_stock(checkout_root() / "engines/native", "native")
    patch = load_mechanism(FOLDER).proposal(FOLDER, "memory").change.patch
    tree = store.checkout(store.commit_patch(base.commit, patch, "fused").commit)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TORCH_EXTENSIONS_DIR", str(folder / "cache"))
        yield import_tree(tree, "engine", "fused_draft.backbone")
    torch.set_num_threads(before)


def engines(modules: list[Any], folder: Path, shape: str, dtype: str, **changes: Any) -> list[Any]:
    """The patched engine and stock's, with the same weights."""
    name, raw, own = SHAPES[shape]
    drafter, _, _ = write_drafter(folder / "drafter", raw, **(own | changes))
    return [
        load(folder, knobs_of(name), dtype, 160, draft_model_dir=str(drafter))
        for load in (modules[0].load_engine, stock.load_engine)
    ]


@torch.inference_mode()
def hidden(engine: Any, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """A block's hidden states after `ids`, and the keys and values it leaves behind the context."""
    engine.decoder.start(ids[:-1])
    inner = engine.decoder.drafter.inner
    states = inner.hidden([Ask(0, ids, 9)])[0].clone()
    at = len(ids) - 1
    return states, inner._context.data[..., at : at + len(states), :].clone()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_is_stocks(modules: list[Any], tmp_path: Path, shape: str, dtype: str) -> None:
    """FP32: to rounding. BF16: nearer to FP32 of the same weights than stock is."""
    make_folder(tmp_path)
    ours, theirs = engines(modules, tmp_path, shape, dtype)
    assert ours.decoder.drafter.inner._backbone._fused is not None
    (exact,) = engines(modules, tmp_path, shape, "fp32")[1:]
    errors = []
    for length in (2, 9, 33, 150):
        ids = [*prompt_of(length), 7]
        mine, stocks, truth = hidden(ours, ids), hidden(theirs, ids), hidden(exact, ids)
        for a, b, c in zip(mine, stocks, truth, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            assert distance(a, b) < (1e-5 if dtype == "fp32" else 0.1)
            errors.append(((a.double() - c).abs().mean(), (b.double() - c).abs().mean()))
    if dtype == "bf16":
        assert sum(a for a, _ in errors) < 1.1 * sum(b for _, b in errors)


@pytest.mark.parametrize("shape", ["dflash2", "dspark"])
def test_tokens_and_counts_are_stocks(modules: list[Any], tmp_path: Path, shape: str) -> None:
    model = make_folder(tmp_path)
    ours, theirs = engines(modules, tmp_path, shape, "fp32")
    for length in (1, 12, 100):
        request = GenerateRequest("r", prompt_of(length), 40)
        a, b = ours.run(request), theirs.run(request)
        assert a.output_ids == reference_greedy(model, list(request.prompt_ids), 40)
        assert (a.steps, a.drafted, a.accepted) == (b.steps, b.drafted, b.accepted)
    assert a.drafted > 50


@pytest.mark.parametrize(
    "changes",
    [
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"is_causal": True},
        {"head_dim": 8},
    ],
)
def test_what_it_cannot_compute_is_left_to_stock(
    modules: list[Any], tmp_path: Path, changes: dict[str, Any]
) -> None:
    make_folder(tmp_path)
    ours, theirs = engines(modules, tmp_path, "dflash2", "fp32", **changes)
    assert ours.decoder.drafter.inner._backbone._fused is None
    ids = [*prompt_of(20), 7]
    assert torch.equal(hidden(ours, ids)[0], hidden(theirs, ids)[0])


def test_no_compiler_leaves_stocks_layers(
    modules: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path)
    modules[1].load_library.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PATH", str(tmp_path))
    ours, _ = engines(modules, tmp_path, "dspark", "fp32")
    assert ours.decoder.drafter.inner._backbone._fused is None


def test_a_block_beyond_the_cache_is_refused(modules: list[Any], tmp_path: Path) -> None:
    make_folder(tmp_path)
    ours, _ = engines(modules, tmp_path, "dspark", "fp32")
    inner = ours.decoder.drafter.inner
    run = modules[1].Run(0, inner._context.data.shape[4] - 3, inner._context.data.shape[4] + 1)
    with pytest.raises(ValueError, match="a block of 4 below"):
        inner._backbone._fused(torch.zeros(4, 96), run, inner._context)
