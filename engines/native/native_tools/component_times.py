"""Where a step's time goes: the forward pass with a clock around every operator group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from native_engine.drafters.single import SingleDrafter
from native_engine.kv_cache import KVCache
from native_engine.linear import Linear
from native_engine.llama import Llama

COMPONENTS = (
    "embedding",
    "norms",
    "qkv",
    "rope",
    "attention",
    "o_proj",
    "gate_up",
    "activation",
    "down",
    "lm_head",
    "host",
)


class _TimedLinear:
    """A linear whose calls are added to one component."""

    def __init__(self, inner: Linear, add: Callable[[float], None]) -> None:
        self._inner, self._add = inner, add

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        began = perf_counter()
        y = self._inner(x)
        self._add(perf_counter() - began)
        return y

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        began = perf_counter()
        y = self._inner.add(x, residual)
        self._add(perf_counter() - began)
        return y


@torch.inference_mode()
def component_times(
    model: Llama, cache: KVCache, rows: int, context: int, repeats: int = 10
) -> dict[str, float]:
    """Milliseconds per step of `rows` rows after `context` tokens, by component: each component's
    minimum over `repeats`. `host` is the whole step minus the others (KV writes, views, Python and
    the clocks themselves). `total` is an unclocked step's minimum, so the parts add up to more."""
    ids = torch.randint(0, model.config.vocab_size, (rows,))
    cache.truncate(0)
    cache.extend(context)

    def step() -> float:
        cache.truncate(context)
        began = perf_counter()
        model.logits(model.forward(ids, cache).hidden)
        return perf_counter() - began

    step()
    total = min(step() for _ in range(repeats))
    runs: list[dict[str, float]] = []
    for _ in range(repeats):
        spent: dict[str, float] = defaultdict(float)
        restore = _install(model, spent)
        try:
            whole = step()
        finally:
            restore()
        began = perf_counter()
        torch.nn.functional.embedding(ids, model.embedding)
        spent["embedding"] = perf_counter() - began
        spent["host"] = whole - sum(spent.values())
        runs.append(dict(spent))
    best = {name: 1e3 * min(run[name] for run in runs) for name in COMPONENTS}
    return {**best, "total": 1e3 * total}


@torch.inference_mode()
def draft_times(drafter: SingleDrafter, context: int, repeats: int = 10) -> dict[str, float]:
    """Milliseconds of a parallel drafter's step after `context` tokens, each the minimum over
    `repeats`: `context` takes in one committed row, `draft` is the block through the layers,
    `draft_head` the target's head on its slots, `selector` what picks the tokens (candidate
    selector or Markov head), `total` all four."""
    inner = drafter.inner
    taps = [torch.randn(context, inner.config.hidden_size) for _ in drafter.taps]
    drafter.reset()
    drafter.read(taps)
    ids = [0] * (context + 1)
    runs: list[dict[str, float]] = []
    for _ in range(repeats + 1):
        spent: dict[str, float] = defaultdict(float)
        kept = inner.hidden, inner.unary
        inner.hidden = clocked(spent, "draft", kept[0])  # type: ignore[method-assign]
        inner.unary = clocked(spent, "draft_head", kept[1])  # type: ignore[method-assign]
        began = perf_counter()
        drafter.propose(ids)
        spent["selector"] = perf_counter() - began - sum(spent.values())
        inner.hidden, inner.unary = kept  # type: ignore[method-assign]
        drafter.rewind(context - 1)
        began = perf_counter()
        drafter.read([tap[:1] for tap in taps])
        spent["context"] = perf_counter() - began
        spent["total"] = sum(spent.values())
        runs.append(dict(spent))
    return {name: 1e3 * min(run[name] for run in runs[1:]) for name in runs[0]}


def clocked(spent: dict[str, float], name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    """`inner`, its seconds added to `spent[name]`."""

    def call(*args: Any) -> Any:
        began = perf_counter()
        result = inner(*args)
        spent[name] += perf_counter() - began
        return result

    return call


def _install(model: Llama, spent: dict[str, float]) -> Callable[[], None]:
    """Put clocks around the model's operator groups; the returned call takes them off."""

    def adder(name: str) -> Callable[[float], None]:
        def add(seconds: float) -> None:
            spent[name] += seconds

        return add

    kept = (model.layers, model.head, model.norm, model.rotate, model.attend, model.activate)
    model.layers = [
        type(layer)(
            layer.input_norm,
            _TimedLinear(layer.qkv, adder("qkv")),
            _TimedLinear(layer.o, adder("o_proj")),
            layer.post_norm,
            _TimedLinear(layer.gate_up, adder("gate_up")),
            _TimedLinear(layer.down, adder("down")),
        )
        for layer in kept[0]
    ]
    model.head = _TimedLinear(kept[1], adder("lm_head"))
    model.norm = clocked(spent, "norms", kept[2])
    model.rotate = clocked(spent, "rope", kept[3])
    model.attend = clocked(spent, "attention", kept[4])
    model.activate = clocked(spent, "activation", kept[5])

    def restore() -> None:
        (model.layers, model.head, model.norm, model.rotate, model.attend, model.activate) = kept

    return restore
