"""The body of POST /generate into engine requests."""

from __future__ import annotations

import uuid

from native_engine.errors import BadRequest
from native_engine.requests import GenerateRequest, LogprobOptions, SamplingOptions
from native_engine.server.fields import Fields
from native_engine.server.parameters import GENERATE, SAMPLING
from native_engine.server.state import ServerState

DEFAULT_NEW_TOKENS = 128
TOP_MAX = 1024
COLDEST = 1e-6
"""Colder is greedy, as in SGLang: logits divided by less leave FP32."""


def parse_generate(
    fields: Fields, state: ServerState
) -> tuple[tuple[GenerateRequest, ...], bool, bool]:
    """The requests; whether their prompts came as a list, so that the reply is a list; whether to
    stream. Raises BadRequest naming the field."""
    GENERATE.check(fields)
    prompts, batched = _prompts(fields, state)
    sampling = fields.table("sampling_params")
    SAMPLING.check(sampling, sampled=state.batch is not None)
    stream = fields.flag("stream")
    if stream and batched:
        raise fields.fail("stream", "one prompt a streamed request")
    identity = fields.text("rid") or uuid.uuid4().hex
    requests = tuple(
        build_request(
            state,
            ids,
            sampling,
            identity if len(prompts) == 1 else f"{identity}-{i}",
            sampling.integer("max_new_tokens", None, 0, state.facts.max_total_tokens),
            _logprobs(fields, len(ids)),
        )
        for i, ids in enumerate(prompts)
    )
    return requests, batched, stream


def build_request(
    state: ServerState,
    ids: tuple[int, ...],
    sampling: Fields,
    identity: str,
    max_new_tokens: int | None,
    logprobs: LogprobOptions | None = None,
    names: tuple[str, str] = ("input_ids", "max_new_tokens"),
) -> GenerateRequest:
    """Common to the native and the OpenAI API: lengths and stop rules. `names`: what the caller
    calls the prompt and the limit of new tokens."""
    limit, prompt = state.facts.max_total_tokens, f"{len(ids)} prompt tokens"
    room = limit - len(ids)
    if room < 0 or (room == 0 and max_new_tokens != 0):
        raise BadRequest(names[0], f"{prompt}; this server holds {limit} in all")
    if max_new_tokens is None:
        max_new_tokens = min(DEFAULT_NEW_TOKENS, room)
    if max_new_tokens > room:
        raise BadRequest(names[1], f"{prompt} + {max_new_tokens} exceed max_total_tokens {limit}")
    stops = set(sampling.ids("stop_token_ids", state.vocab_size))
    stops |= set(state.scheduler.engine.model_config.eos_token_ids)
    # As in SGLang, ignore_eos switches every stop id off, the request's own too.
    if sampling.flag("ignore_eos"):
        stops.clear()
    texts = sampling.texts("stop")
    if texts and state.tokenizer is None:
        raise sampling.fail("stop", "this server has no tokenizer; use stop_token_ids")
    how = _sampling(sampling) if state.batch is not None else None
    return GenerateRequest(identity, ids, max_new_tokens, frozenset(stops), texts, logprobs, how)


def _sampling(fields: Fields) -> SamplingOptions | None:
    """None: greedy, which is also what a request without a temperature gets."""
    temperature = fields.number("temperature", 0.0, -1.0, 1e6)
    if temperature < 0:
        raise fields.fail("temperature", "0 (greedy) or more is needed")
    top_p = fields.number("top_p", 1.0, 0.0, 1.0)
    top_k = fields.integer("top_k", -1, -1, 2**31)
    if top_k == 0:
        raise fields.fail("top_k", "-1 (all tokens) or at least 1 is needed")
    # OpenAI's name and SGLang's.
    seed = fields.integer("seed", None, -(2**63), 2**63 - 1)
    seed = fields.integer("sampling_seed", seed, -(2**63), 2**63 - 1)
    if temperature < COLDEST or top_k == 1:
        return None
    return SamplingOptions(temperature, top_p, max(top_k, 0), seed)


def _prompts(fields: Fields, state: ServerState) -> tuple[list[tuple[int, ...]], bool]:
    ids, text = fields.raw.get("input_ids"), fields.raw.get("text")
    if (ids is None) == (text is None):
        raise BadRequest("input_ids", "give either input_ids or text")
    if ids is not None:
        batched = isinstance(ids, list) and bool(ids) and isinstance(ids[0], list)
        rows = {f"input_ids[{i}]": row for i, row in enumerate(ids)} if batched else {}
        prompts = [
            fields.check_ids(name, row, state.vocab_size)
            for name, row in (rows or {"input_ids": ids}).items()
        ]
    else:
        if state.tokenizer is None:
            raise BadRequest("text", "this server has no tokenizer; use input_ids")
        batched = isinstance(text, list)
        texts = text if batched else [text]
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts) or not texts:
            raise BadRequest("text", "a string or a list of strings is needed")
        prompts = [tuple(state.tokenizer.encode(t)) for t in texts]
    if not all(prompts):
        raise BadRequest("text" if ids is None else "input_ids", "an empty prompt")
    return prompts, batched


def _logprobs(fields: Fields, prompt_tokens: int) -> LogprobOptions | None:
    raw_top = fields.integer("return_raw_logits_topk", 0, 0, TOP_MAX)
    top = fields.integer("top_logprobs_num", 0, 0, TOP_MAX)
    start = fields.integer("logprob_start_len", -1, -1, prompt_tokens - 1)
    if not fields.flag("return_logprob") and not raw_top:
        return None
    return LogprobOptions(None if start < 0 else start, top, raw_top)
