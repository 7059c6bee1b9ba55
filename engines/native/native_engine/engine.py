"""The engine: a folder and a configuration in, generated requests out. One request at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from native_engine.config import EngineConfig, ModelConfig
from native_engine.decode import Decoder, Step, greedy
from native_engine.drafter import make_drafter
from native_engine.drafters.single import single_drafter
from native_engine.errors import ConfigError
from native_engine.kv_cache import KVCache
from native_engine.llama import Llama
from native_engine.logprobs import Recorder
from native_engine.requests import GenerateRequest, GenerateResult
from native_engine.tables import unknown_name
from native_engine.weights import load_weights

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class Engine:
    """Model, cache and decoder of one server process; `decode_text` is needed for stop strings."""

    def __init__(
        self,
        model_config: ModelConfig,
        model: Llama,
        decoder: Decoder,
        decode_text: Callable[[list[int]], str] | None = None,
    ) -> None:
        self.model_config = model_config
        self.model = model
        self.decoder = decoder
        self.decode_text = decode_text

    def run(
        self,
        request: GenerateRequest,
        emit: Callable[[list[int]], None] = lambda tokens: None,
        proceed: Callable[[], bool] = lambda: True,
    ) -> GenerateResult:
        """Generate; `emit` gets each step's new tokens but the last step's, which come with the
        result. `proceed` is asked before every step: once it says no, the finish reason is abort.

        Raises NotFinite when the target's logits are not finite."""
        result = GenerateResult()
        logits = self._prefill(request, result, proceed)
        if logits is None:
            result.finish = {"type": "abort", "message": "cancelled by the client"}
            return result
        first = greedy(logits)
        if result.outputs is not None:
            result.outputs.add(logits, first)
        if request.max_new_tokens == 0:
            result.finish = {"type": "length", "length": 0}
            return result
        self._commit(request, result, first, emit)
        if result.finish is None:
            context = [*request.prompt_ids, *first]
            self._decode(request, result, context, emit, proceed)
        return result

    def _prefill(
        self, request: GenerateRequest, result: GenerateResult, proceed: Callable[[], bool]
    ) -> torch.Tensor | None:
        ids, options = request.prompt_ids, request.logprobs
        if options is None:
            return self.decoder.start(ids, proceed=proceed)
        result.outputs = Recorder(options.top, options.raw_top)
        result.inputs = inputs = Recorder(options.top, options.raw_top)
        if options.start is None:
            return self.decoder.start(ids, proceed=proceed)
        inputs.open(ids[options.start])

        def visit(position: int, logits: torch.Tensor) -> None:
            inputs.add(logits, ids[position + 1 : position + 1 + len(logits)])

        return self.decoder.start(ids, options.start, visit, proceed)

    def _decode(
        self,
        request: GenerateRequest,
        result: GenerateResult,
        context: list[int],
        emit: Callable[[list[int]], None],
        proceed: Callable[[], bool],
    ) -> None:
        steps: Iterator[Step] = self.decoder.steps(context, request.max_new_tokens - 1)
        while result.finish is None:
            if not proceed():
                result.finish = {"type": "abort", "message": "cancelled by the client"}
                return
            step = next(steps)
            result.steps += 1
            result.drafted += step.rows - 1
            result.accepted += len(step.tokens) - 1
            kept = self._commit(request, result, step.tokens, emit)
            if result.outputs is not None:
                result.outputs.add(step.logits[:kept], step.tokens[:kept])

    def _commit(
        self,
        request: GenerateRequest,
        result: GenerateResult,
        tokens: list[int],
        emit: Callable[[list[int]], None],
    ) -> int:
        """Append tokens up to the first stop; how many were kept."""
        kept: list[int] = []
        for token in tokens:
            kept.append(token)
            result.output_ids.append(token)
            if token in request.stops:
                result.finish = {"type": "stop", "matched": token}
            elif request.stop_texts and (text := self._stop_text(request, result.output_ids)):
                result.finish = {"type": "stop", "matched": text}
            elif len(result.output_ids) == request.max_new_tokens:
                result.finish = {"type": "length", "length": request.max_new_tokens}
            if result.finish is not None:
                break
        if result.finish is None:
            emit(kept)
        return len(kept)

    def _stop_text(self, request: GenerateRequest, output_ids: list[int]) -> str | None:
        """The stop string in the answer's text, which no earlier token completed."""
        if self.decode_text is None:
            return None
        longest = max(map(len, request.stop_texts))
        # A character is up to four tokens, and a cut one shows as up to three at the tail's start.
        needed, size = longest + 3, 4 * longest + 8
        while True:
            tail = output_ids[-size:]
            text = self.decode_text(tail)
            found = next((stop for stop in request.stop_texts if stop in text), None)
            # Special tokens add no text: the tail must reach back past as many as there are.
            if found or size >= len(output_ids) or len(self.decode_text(tail[:-1])) >= needed:
                return found
            size *= 2


def load_engine(
    folder: Path,
    knobs: EngineConfig,
    dtype: str,
    max_total_tokens: int,
    speculation: bool = True,
    decode_text: Callable[[list[int]], str] | None = None,
    draft_model_dir: str | None = None,
) -> Engine:
    """Load a Hugging Face folder. `max_total_tokens` bounds prompt plus output of a request;
    `draft_model_dir` holds the weights of a parallel drafter.

    Raises ConfigError or WeightsError."""
    if dtype not in DTYPES:
        raise unknown_name("--dtype", dtype, DTYPES)
    config = ModelConfig.from_folder(folder)
    if not 1 < max_total_tokens <= config.max_positions:
        raise ConfigError(
            f"--max-total-tokens {max_total_tokens}: 2 to max_position_embeddings="
            f"{config.max_positions}"
        )
    # Read engine.toml's drafter table even when it is off: a wrong key is an error in every arm.
    drafter = make_drafter(knobs)
    with torch.inference_mode():
        weights = load_weights(folder, config, DTYPES[dtype])
        model = Llama(config, weights, knobs, max_total_tokens)
        if drafter is None and speculation:
            drafter = single_drafter(knobs, model, draft_model_dir, max_total_tokens)
        cache = KVCache(config, max_total_tokens, DTYPES[dtype])
    decoder = Decoder(model, cache, drafter if speculation else None, knobs.prefill)
    return Engine(config, model, decoder, decode_text)
