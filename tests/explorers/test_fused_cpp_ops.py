"""The fused forward pass against stock's own and transformers' (FP32 and FP64)."""

from __future__ import annotations

import importlib
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

import native_engine.engine as stock
from engines.tree_store import TreeStore
from explorers.mechanism import load_mechanism
from native_engine.config import EngineConfig
from native_engine.errors import NotFinite
from native_engine.requests import GenerateRequest
from settings.paths import checkout_root
from tests.engines.native.drafters.test_single import (
    KINDS,
    knobs_of,
    layer_outputs,
    write_drafter,
)
from tests.engines.native.tiny import VOCAB, make_folder, reference_greedy

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
FOLDER = checkout_root() / "explorers/catalogue/fused_cpp_ops"
SHAPES = [(6, 2, True), (4, 4, False), (3, 1, True), (6, 3, False)]
PORTABLE = {"x86_64": "-march=x86-64-v2", "aarch64": "-march=armv8-a"}


@dataclass(frozen=True)
class Pair:
    """The same weights in stock's engine and the patched one, and transformers' model."""

    stock: Any
    fused: Any
    reference: LlamaForCausalLM


def import_tree(tree: Path, *names: str) -> list[ModuleType]:
    """Modules of another native_engine tree, beside the one already imported."""

    def ours() -> dict[str, ModuleType]:
        found = [name for name in sys.modules if name.split(".")[0] == "native_engine"]
        return {name: sys.modules.pop(name) for name in found}

    kept = ours()
    sys.path.insert(0, str(tree))
    try:
        return [importlib.import_module(f"native_engine.{name}") for name in names]
    finally:
        sys.path.remove(str(tree))
        ours()
        sys.modules.update(kept)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ModuleType]]:
    """engine, fused.model and fused.library of the patched tree; builds go to a fresh cache."""
    folder = tmp_path_factory.mktemp("store")
    store = TreeStore(folder / "trees")
    base = store.import_stock(checkout_root() / "engines/native", "native")
    patch = load_mechanism(FOLDER).proposal(FOLDER, "memory").change.patch
    tree = store.checkout(store.commit_patch(base.commit, patch, "fused").commit)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TORCH_EXTENSIONS_DIR", str(folder / "cache"))
        yield import_tree(tree, "engine", "fused.model", "fused.library")


def make_pair(
    modules: list[ModuleType], folder: Path, dtype: str, shape: tuple[int, int, bool] = SHAPES[0]
) -> Pair:
    heads, kv_heads, tied = shape
    reference = make_folder(folder, heads=heads, kv_heads=kv_heads, tied=tied)
    pair = Pair(
        stock.load_engine(folder, EngineConfig(), dtype, 700),
        modules[0].load_engine(folder, EngineConfig(), dtype, 700),
        reference,
    )
    assert pair.fused.model.fused is not None
    return pair


@torch.inference_mode()
def run(engine: Any, prefix: list[int], rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states and logits of `rows` after `prefix`."""
    engine.decoder.start(prefix)
    hidden = engine.model.forward(torch.tensor(rows), engine.decoder.cache).hidden
    return hidden, engine.model.logits(hidden)


def draw(count: int) -> list[int]:
    return torch.randint(0, VOCAB, (count,)).tolist()


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max() / b.double().abs().max())


def check_fp32(pair: Pair, prefixes: list[int], rows: list[int]) -> None:
    """Near stock, and as near to exact arithmetic (transformers in FP64) as stock is."""
    exact = pair.reference.double()
    ours, theirs = 0.0, 0.0
    for length in prefixes:
        for count in rows:
            prefix, ids = draw(length), draw(count)
            (h, logits), (h0, logits0) = run(pair.fused, prefix, ids), run(pair.stock, prefix, ids)
            assert h.shape == h0.shape and logits.shape == logits0.shape
            assert distance(h, h0) < 1e-5, (length, count)
            with torch.inference_mode():
                truth = exact(torch.tensor([prefix + ids])).logits[0, length:]
            ours, theirs = max(ours, distance(logits, truth)), max(theirs, distance(logits0, truth))
    assert ours < 2 * theirs + 1e-6


@pytest.mark.parametrize("shape", SHAPES)
def test_fp32_hidden_states_at_any_length_and_rows(
    modules: list[ModuleType], tmp_path: Path, shape: tuple[int, int, bool]
) -> None:
    pair = make_pair(modules, tmp_path, "fp32", shape)
    check_fp32(pair, [1, 7, 15, 16, 17, 333], [1, 3, 8, 16])
    check_fp32(pair, [29], list(range(1, 18)))


@pytest.mark.parametrize("speculation", [False, True])
def test_fp32_greedy_tokens_are_transformers(
    modules: list[ModuleType], tmp_path: Path, speculation: bool
) -> None:
    pair = make_pair(modules, tmp_path, "fp32")
    engine = modules[0].load_engine(tmp_path, EngineConfig(), "fp32", 700, speculation)
    prompt = draw(23)
    result = engine.run(GenerateRequest(id="a", prompt_ids=prompt, max_new_tokens=300))
    assert result.output_ids == reference_greedy(pair.reference, prompt, 300)
    assert (result.accepted > 0) == speculation


def test_bf16_is_nearer_to_exact_than_stock(modules: list[ModuleType], tmp_path: Path) -> None:
    pair = make_pair(modules, tmp_path, "bf16")
    exact = pair.reference.bfloat16().double()
    ours, theirs, between = [], [], []
    for length in (5, 64, 200):
        for count in (1, 2, 8, 15):
            prefix, ids = draw(length), draw(count)
            (_, logits), (_, logits0) = run(pair.fused, prefix, ids), run(pair.stock, prefix, ids)
            assert logits.dtype == torch.bfloat16
            with torch.inference_mode():
                truth = exact(torch.tensor([prefix + ids])).logits[0, length:]
            ulp = 2.0 ** (truth.abs().amax(-1, keepdim=True).log2().floor() - 7)
            ours.append(((logits.double() - truth) / ulp).abs().mean(-1))
            theirs.append(((logits0.double() - truth) / ulp).abs().mean(-1))
            between.append(((logits.double() - logits0.double()) / ulp).abs().flatten())
    assert torch.cat(ours).mean() < torch.cat(theirs).mean()
    assert torch.cat(between).median() <= 2


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_cpu_without_avx512_computes_the_same(
    modules: list[ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    if platform.machine() not in PORTABLE:
        pytest.skip(f"no portable target named for {platform.machine()}")
    native = make_pair(modules, tmp_path, dtype).fused
    library = modules[2]
    flags = [f for f in library.FLAGS if not f.startswith("-march")]
    monkeypatch.setattr(library, "FLAGS", (*flags, PORTABLE[platform.machine()]))
    library.load_library.cache_clear()
    try:
        pair = make_pair(modules, tmp_path, dtype)
    finally:
        library.load_library.cache_clear()
    assert pair.fused.model.fused._library is not native.model.fused._library
    if dtype == "fp32":
        check_fp32(pair, [40], [1, 6, 16])
    prefix, ids = draw(50), draw(9)
    (_, ours), (_, theirs) = run(pair.fused, prefix, ids), run(native, prefix, ids)
    assert distance(ours, theirs) < (1e-5 if dtype == "fp32" else 0.05)


def test_rejected_rows_leave_no_trace(modules: list[ModuleType], tmp_path: Path) -> None:
    engine = make_pair(modules, tmp_path, "bf16").fused
    model, cache = engine.model, engine.decoder.cache

    @torch.inference_mode()
    def after(wrong: list[int]) -> torch.Tensor:
        engine.decoder.start(list(range(2, 30)))
        if wrong:
            model.forward(torch.tensor(wrong), cache)
            cache.truncate(28)
        return model.logits(model.forward(torch.tensor([5, 6, 7]), cache).hidden).clone()

    assert torch.equal(after([]), after([90, 91, 92, 93, 94]))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_nan_is_never_swallowed(modules: list[ModuleType], tmp_path: Path, dtype: str) -> None:
    engine = make_pair(modules, tmp_path, dtype).fused
    with torch.inference_mode():
        engine.model.embedding[50] = float("nan")
    prefix = [i for i in draw(40) if i != 50]
    assert run(engine, prefix, [3, 4, 51, 6])[1].isfinite().all()
    _, logits = run(engine, prefix, [3, 4, 50, 6])
    assert logits[2:].isnan().all()
    with pytest.raises(NotFinite):
        stock.greedy(logits)


def test_misuse_is_refused_before_anything_is_written(
    modules: list[ModuleType], tmp_path: Path
) -> None:
    engine = make_pair(modules, tmp_path, "fp32").fused
    engine.decoder.start(draw(690))
    cache = engine.decoder.cache
    before = cache.data.clone()
    with pytest.raises(ValueError, match="700 tokens, 701 asked"):
        engine.model.forward(torch.tensor(draw(11)), cache)
    for wrong in (-1, VOCAB):
        with pytest.raises(IndexError, match=f"0 .. {VOCAB - 1}"):
            engine.model.forward(torch.tensor([4, wrong]), cache)
    assert cache.length == 690 and torch.equal(cache.data, before)


def test_more_threads_or_no_compiler_leave_stocks_path(
    modules: list[ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = make_pair(modules, tmp_path, "fp32")
    prefix, ids = draw(30), draw(4)
    expected = run(pair.stock, prefix, ids)[1]

    def unpatched() -> torch.Tensor:
        engine = modules[0].load_engine(tmp_path, EngineConfig(), "fp32", 700)
        assert engine.model.fused is None
        return run(engine, prefix, ids)[1]

    torch.set_num_threads(2)
    try:
        assert distance(unpatched(), expected) < 1e-6
    finally:
        torch.set_num_threads(1)
    modules[2].load_library.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert torch.equal(unpatched(), expected)


def test_the_library_is_built_once_and_named_by_its_source(
    modules: list[ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = modules[2]
    first = library.compile_library()
    made = first.stat().st_mtime_ns
    assert library.compile_library() == first and first.stat().st_mtime_ns == made
    assert [path.suffix for path in first.parent.iterdir()].count(".so") >= 1
    monkeypatch.setattr(library, "FLAGS", (*library.FLAGS, "-std=c++1066"))
    with pytest.raises(library.BuildError, match="failed"):
        library.compile_library()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_greedy_choice_is_torchs(modules: list[ModuleType], dtype: torch.dtype) -> None:
    argmax = import_tree(Path(modules[2].SOURCES).parents[1], "fused.argmax")[0]
    for vocab in (2, 97, 255, 256, 257, 1000, 4096):
        logits = torch.randn(9, vocab).to(dtype)
        logits[1] = 2.5  # ties: the lowest id
        logits[2, vocab // 2] = logits[2, -1] = 50
        logits[3] = -float("inf")
        logits[3, -1] = -3
        logits[4, 0] = -float("inf")
        logits[5, vocab - 1] = float("nan")
        logits[6, vocab // 3] = float("nan")
        logits[7, vocab // 2] = float("inf")
        logits[8] = -float("inf")
        got = argmax.greedy_ids(logits)
        assert got[:5] == stock.greedy(logits[:5].contiguous())
        assert got[5:] == [-1, -1, -1, -1]
    assert argmax.greedy_ids(torch.randn(2, 9).half()) is None
    assert argmax.greedy_ids(torch.randn(9, 2).t()) is None


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_taps_are_the_layers_outputs(modules: list[ModuleType], tmp_path: Path, dtype: str) -> None:
    """Near transformers' in FP64, of the model's dtype, in the order asked for, for any subset."""
    pair = make_pair(modules, tmp_path, dtype)
    exact = pair.reference.to(pair.fused.model.dtype).double()
    for length, count, taps in ((5, 1, (-1, 0, 2)), (64, 8, (0, 1)), (30, 16, (1,)), (9, 3, ())):
        prefix, ids = draw(length), draw(count)
        kept = []
        for engine in (pair.fused, pair.stock):
            engine.decoder.start(prefix)
            with torch.inference_mode():
                hidden, found = engine.model.forward(torch.tensor(ids), engine.decoder.cache, taps)
            assert hidden.shape == (count, exact.config.hidden_size)
            assert [tap.shape for tap in found] == [hidden.shape] * len(taps)
            assert all(tap.dtype == engine.model.dtype for tap in found)
            assert 2 not in taps or distance(found[-1], hidden) < 0.005
            kept.append(found)
        truth = layer_outputs(exact, prefix + ids)
        for tap, ours, theirs in zip(taps, *kept, strict=True):
            wanted = truth[tap + 1][length:]
            limit = 1e-5 if dtype == "fp32" else 1.2 * distance(theirs, wanted) + 1e-6
            assert distance(ours, wanted) < limit


@pytest.mark.parametrize("name", ["dflash", "dspark"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_parallel_drafter_gets_them(
    modules: list[ModuleType], tmp_path: Path, name: str, dtype: str
) -> None:
    reference = make_folder(tmp_path)
    drafter, _, _ = write_drafter(tmp_path / name, KINDS[name])
    knobs, prompt = knobs_of(name), draw(23)
    request = GenerateRequest("a", tuple(prompt), 60)
    found = [
        load(tmp_path, knobs, dtype, 160, True, None, str(drafter)).run(request)
        for load in (modules[0].load_engine, stock.load_engine)
    ]
    assert found[0].drafted > 100
    ar = modules[0].load_engine(tmp_path, knobs, dtype, 160, False).run(request)
    if dtype == "fp32":
        assert found[0].output_ids == reference_greedy(reference, prompt, 60) == ar.output_ids
        counts = [(result.steps, result.drafted, result.accepted) for result in found]
        assert counts[0] == counts[1]
