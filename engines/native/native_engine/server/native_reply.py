"""Results of POST /generate in SGLang's shapes."""

from __future__ import annotations

from typing import Any

from native_engine.requests import GenerateRequest, GenerateResult


def meta_info(
    request: GenerateRequest, result: GenerateResult, latency_s: float | None, weight_version: str
) -> dict[str, Any]:
    """`latency_s` is None while the answer is still growing."""
    meta: dict[str, Any] = {
        "id": request.id,
        "finish_reason": result.finish,
        "prompt_tokens": len(request.prompt_ids),
        "completion_tokens": len(result.output_ids),
        "cached_tokens": result.cached,
        "weight_version": weight_version,
        **({"replayed": True} if result.replayed else {}),
    }
    if latency_s is None:
        return meta
    meta["e2e_latency"] = latency_s
    meta["spec_verify_ct"] = result.steps
    meta["spec_accept_length"] = len(result.output_ids) / result.steps if result.steps else None
    meta["spec_num_proposed_drafts"] = result.drafted
    meta["spec_num_correct_drafts"] = result.accepted
    if request.logprobs is not None:
        for side, recorder in (("input", result.inputs), ("output", result.outputs)):
            if recorder is None:
                continue
            meta[f"{side}_token_logprobs"] = recorder.tokens
            meta[f"{side}_top_logprobs"] = recorder.tops if request.logprobs.top else []
            if request.logprobs.raw_top:
                meta[f"{side}_raw_logits_topk"] = recorder.raw_tops
                meta[f"{side}_token_raw_logits"] = recorder.raw_tokens
    return meta


def visible_text(request: GenerateRequest, result: GenerateResult, text: str) -> str:
    """The answer's text, cut before the stop string that ended it."""
    matched = (result.finish or {}).get("matched")
    if isinstance(matched, str) and matched in text:
        return text[: text.index(matched)]
    return text
