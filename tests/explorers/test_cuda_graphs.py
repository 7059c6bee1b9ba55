"""CUDA graphs of decode steps and of the draft block, their replay emulated: what is captured is
computed again from the inputs that a replay is given, so that fixed shapes, masks and places show.
Tokens are transformers' own."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.knobs import KnobValue
from engines.tree_store import TreeStore
from settings.paths import checkout_root
from tests.engines.native.drafters.test_single import KINDS, prompt_of, write_drafter
from tests.engines.native.tiny import make_folder, reference_greedy
from tests.explorers.test_fused_cpp_ops import import_tree
from tests.explorers.test_parallel_drafter_mechanisms import patch_of

NEW_TOKENS = 40
LENGTHS = (1, 12, 33, 5)
CAPACITY = 100
MODULES = ("config", "requests", "scheduler", "batching.batch_engine", "batching.batch_scheduler")


class _Stream:
    def __init__(self, *_: object) -> None: ...

    def wait_stream(self, *_: object) -> None: ...


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.cuda` as far as capturing needs it, on a CPU."""
    found: dict[str, Any] = {
        "Stream": _Stream,
        "current_stream": _Stream,
        "stream": lambda stream: contextlib.nullcontext(),
        "graph_pool_handle": lambda: None,
        "CUDAGraph": object,
        "graph": lambda graph, pool=None: contextlib.nullcontext(),
    }
    for name, value in found.items():
        monkeypatch.setattr(torch.cuda, name, value)


class Case:
    """The batch engine of a tree with one mechanism, one slot, on the CPU."""

    def __init__(self, folder: Path, drafter: str, mechanism: str, module: str) -> None:
        store = TreeStore(folder / f"trees-{drafter}")
        base = store.import_stock(checkout_root() / "engines/native", "native").commit
        knobs: dict[str, KnobValue] = {"speculation.drafter": drafter}
        base = store.commit_knobs(base, knobs).commit
        tree = store.checkout(store.commit_patch(base, patch_of(mechanism), mechanism).commit)
        loaded = import_tree(tree, *MODULES, module)
        self.config, self.requests, self.scheduler, self.batch, self.queue, self.graphed = loaded
        self.replayed = 0
        knobs_ = self.config.EngineConfig.from_file(tree / "engine.toml")
        self.options = self.batch.BatchOptions(
            model_dir=folder,
            dtype="fp32",
            device="cpu",
            load_format="safetensors",
            slots=1,
            max_total_tokens=CAPACITY,
            speculation=True,
            prefix_reuse=False,
            draft_model_dir=str(folder / drafter),
            root=tree,
        )
        self.knobs = knobs_
        self.engine = self.batch.load_batch_engine(self.options, knobs_)

    def answers(self) -> list[list[int]]:
        queue, found = self.queue.BatchScheduler(self.engine, 4), []
        for length in LENGTHS:
            done = threading.Event()
            box: list[Any] = []
            request = self.requests.GenerateRequest("r", prompt_of(length), NEW_TOKENS)

            def end(result: Any, box: list[Any] = box, done: threading.Event = done) -> None:
                box.append(result)
                done.set()

            queue.submit([self.scheduler.Job(request, lambda tokens: None, end)])
            assert done.wait(60)
            if isinstance(box[0], Exception):
                raise box[0]
            found.append(box[0].output_ids)
        queue.close()
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("target")


@pytest.fixture(scope="module")
def truth(folder: Path) -> list[list[int]]:
    model = make_folder(folder)
    for name, raw in KINDS.items():
        write_drafter(folder / name, raw)
    return [reference_greedy(model, list(prompt_of(n)), NEW_TOKENS) for n in LENGTHS]


@pytest.mark.parametrize("drafter", sorted(KINDS))
def test_steps_of_the_target(
    folder: Path,
    truth: list[list[int]],
    drafter: str,
    emulated: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(folder, drafter, "cuda_graph_target", "targets.graphed")
    monkeypatch.setattr(case.graphed, "_SHORTEST", 16)

    def replay(graph: Any, ids: torch.Tensor, positions: torch.Tensor) -> Any:
        case.replayed += 1
        graph.ids.copy_(ids)
        graph.positions.copy_(positions)
        forward, logits = graph._compute()
        graph.forward.hidden.copy_(forward.hidden)
        for held, tap in zip(graph.forward.taps, forward.taps, strict=True):
            held.copy_(tap)
        graph.logits.copy_(logits)
        return graph.forward

    monkeypatch.setattr(case.graphed._Graph, "replay", replay)
    decoder = case.engine.decoder
    with torch.inference_mode():
        decoder.target = case.batch._graphed(
            decoder.target, decoder.state, decoder.drafter, case.options, case.knobs
        )
    assert isinstance(decoder.target, case.graphed.GraphedTarget)
    assert case.answers() == truth
    assert case.replayed >= decoder.times.steps > 0, "decode steps are replayed, all of them"


@pytest.mark.parametrize("drafter", sorted(KINDS))
def test_blocks_of_the_drafter(
    folder: Path,
    truth: list[list[int]],
    drafter: str,
    emulated: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same drafts too: as many steps as the eager drafter takes."""
    case = Case(folder, drafter, "cuda_graph_draft", "drafters.graphed")
    assert case.answers() == truth
    eager = case.engine.decoder.times.steps
    monkeypatch.setattr(case.graphed, "_SHORTEST", 16)

    def replay(graph: Any, anchor: torch.Tensor, start: int) -> torch.Tensor:
        case.replayed += 1
        graph._anchor.copy_(anchor)
        graph._start.fill_(start)
        hidden: torch.Tensor = graph._hidden.copy_(graph._compute())
        return hidden

    monkeypatch.setattr(case.graphed._Graph, "replay", replay)
    inner = case.engine.decoder.drafter
    with torch.inference_mode():
        inner._graphed = case.graphed.GraphedBlock(
            inner._backbone, inner._context, inner._inputs, CAPACITY
        )
    assert case.answers() == truth
    assert case.engine.decoder.times.steps == 2 * eager
    assert case.replayed > 0
