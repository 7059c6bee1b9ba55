"""The batch path put together: target, slots, drafter, decoder, from a folder and flags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from native_engine.batching.admission import Slots
from native_engine.batching.batch_decoder import BatchDecoder
from native_engine.batching.ngram_batch import PerSlotDrafter
from native_engine.batching.replay import ReplayDrafter, ReplayOptions, read_histogram
from native_engine.batching.sampling import Draft, verify
from native_engine.batching.sequence import StopRules
from native_engine.config import EngineConfig, ServedModel
from native_engine.drafter import DRAFTERS
from native_engine.drafters.load import load_named
from native_engine.drafters.options import PARALLEL_DRAFTERS
from native_engine.drafters.protocol import BatchDrafter
from native_engine.errors import ConfigError
from native_engine.tables import read_table, unknown_name
from native_engine.targets.hybrid_state import REPLAY_ROWS
from native_engine.targets.load import load_target
from native_engine.targets.protocol import Rows, Target, TargetState

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8": torch.bfloat16}
"""What activations are computed in; fp8: the checkpoint's own quantised matrices."""
REPLAY = "replay"
"""The drafter of the batch path alone."""


@dataclass(frozen=True)
class BatchOptions:
    """The launch flags that decide what the batch path loads. `draft_model_dir`: with dummy weights
    also a published configuration's name. `root`: engine.toml's folder."""

    model_dir: Path
    dtype: str
    device: str
    load_format: str
    slots: int
    max_total_tokens: int
    speculation: bool
    prefix_reuse: bool
    draft_model_dir: str | None
    root: Path


@dataclass(frozen=True)
class BatchEngine:
    """What `BatchScheduler` drives."""

    model_config: ServedModel
    decoder: BatchDecoder
    slots: Slots
    replayed: bool


def load_batch_engine(
    options: BatchOptions,
    knobs: EngineConfig,
    decode_text: Callable[[list[int]], str] | None = None,
) -> BatchEngine:
    """Raises ConfigError or WeightsError; also where the device has no room for what is asked."""
    device = _device(options.device)
    served = ServedModel.from_folder(options.model_dir)
    _check_sizes(options, knobs, served)
    layout = knobs.linear.fp32 if options.dtype == "fp32" else knobs.linear.bf16
    # `packed` is a CPU's layout for one sequence's rows.
    linear = {"cpu": "bucketed", "cuda": "plain"}[device.type] if layout == "packed" else layout
    try:
        with torch.inference_mode():
            dtype, source = DTYPES[options.dtype], options.load_format
            target = load_target(options.model_dir, dtype, device, source, linear)
            drafter = batch_drafter(options, knobs, target)
            state = target.new_state(options.slots, options.max_total_tokens)
            if drafter is not None:
                _check_draft(drafter, knobs, state)
                drafter.open(options.slots, options.max_total_tokens)
            if device.type == "cuda":
                rehearse(target, state, options, knobs.batching.rows_per_step)
    except torch.OutOfMemoryError as error:
        raise ConfigError(
            f"{options.slots} slots of {options.max_total_tokens} tokens and a step do not fit "
            "beside the weights: lower --max-running-requests, --max-total-tokens or engine.toml "
            f"[batching] rows_per_step ({error})"
        ) from error
    replayed = isinstance(drafter, ReplayDrafter)
    rule = drafter.verify if isinstance(drafter, ReplayDrafter) else verify
    decoder = BatchDecoder(target, state, drafter, knobs, StopRules(decode_text), rule)
    slots = Slots(state, options.slots, options.max_total_tokens, options.prefix_reuse)
    return BatchEngine(served, decoder, slots, replayed)


def rehearse(target: Target, state: TargetState, options: BatchOptions, rows: int) -> None:
    """Run the largest step there can be: what does not fit must show before anyone is served."""
    counts = [options.max_total_tokens] * min(options.slots, rows // options.max_total_tokens)
    if len(counts) < options.slots and rows > sum(counts):
        counts.append(rows - sum(counts))
    ids = torch.zeros(sum(counts), dtype=torch.long, device=target.device)
    largest = Rows.of(ids, [(slot, 0, count) for slot, count in enumerate(counts)])
    verify(target.logits(target.forward(largest, state).hidden), [Draft(0, [0] * (len(ids) - 1))])
    for slot in largest.slots:
        state.reset(slot)


def batch_drafter(
    options: BatchOptions, knobs: EngineConfig, target: Target
) -> BatchDrafter | None:
    """The drafter engine.toml names. Its tables are read even when speculation is off."""
    name = knobs.speculation.drafter
    known = (*DRAFTERS, *PARALLEL_DRAFTERS, REPLAY)
    for given in (name, *knobs.drafters):
        if given not in known:
            raise unknown_name("engine.toml drafter", given, known)
    where = "engine.toml [drafters.replay]"
    replay = read_table(ReplayOptions, knobs.drafters.get(REPLAY, {}), where)
    draft_tokens = knobs.speculation.draft_tokens
    if not options.speculation:
        return None
    if name in PARALLEL_DRAFTERS:
        return _parallel(name, options, knobs, target)
    if name == REPLAY:
        histogram = read_histogram(options.root / replay.histogram, draft_tokens)
        inner = _parallel(replay.drafter, options, knobs, target) if replay.drafter else None
        return ReplayDrafter(histogram, draft_tokens, inner, replay.seed)
    table = knobs.drafters.get(name, {})
    return PerSlotDrafter(lambda: DRAFTERS[name](table, draft_tokens), draft_tokens)


def _parallel(
    name: str, options: BatchOptions, knobs: EngineConfig, target: Target
) -> BatchDrafter:
    if name not in PARALLEL_DRAFTERS:
        raise unknown_name("engine.toml [drafters.replay] drafter", name, PARALLEL_DRAFTERS)
    return load_named(name, knobs, options.draft_model_dir, target, options.load_format)


def _check_draft(drafter: BatchDrafter, knobs: EngineConfig, state: TargetState) -> None:
    asked = knobs.speculation.draft_tokens
    if min(drafter.draft_tokens, asked) >= REPLAY_ROWS and not state.rewinds:
        text = f"a recurrent target takes back at most {REPLAY_ROWS - 1} in a step"
        raise ConfigError(f"engine.toml [speculation] draft_tokens={asked}: {text}")


def _device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch sees no CUDA device here; use --device cpu")
    # Suspected, not shown, to plan anew for each length and to keep the plans: host memory grew
    # under load, and throughput rose, on an H200.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device(name)


def _check_sizes(options: BatchOptions, knobs: EngineConfig, served: ServedModel) -> None:
    most, batching = served.max_positions, knobs.batching
    if not 1 < options.max_total_tokens <= most:
        flag = f"--max-total-tokens {options.max_total_tokens}"
        raise ConfigError(f"{flag}: 2 to max_position_embeddings={most}")
    if options.dtype == "fp8" and not served.quantised:
        raise ConfigError("--dtype fp8: config.json has no quantization_config; use bf16 or fp32")
    if options.slots + batching.prefill_rows > batching.rows_per_step:
        raise ConfigError(
            f"engine.toml [batching] rows_per_step={batching.rows_per_step}: at least "
            f"--max-running-requests {options.slots} + prefill_rows {batching.prefill_rows}"
        )
