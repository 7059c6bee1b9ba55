"""Which parameters a request may name. None is ignored in silence: a client that asks for sampling
and gets greedy text would believe that it was sampled.

A parameter is read; or *neutral*, which clients send with the value that asks for nothing, and any
other value is refused; or *idle*, a label or a seed that cannot change a greedy answer. A null
counts as absent.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from native_engine.server.fields import Fields, shown

_GREEDY = "decoding is greedy"
_UNSERVED = "this engine does not serve it"
_ONE_ANSWER = "one answer a prompt"
_LOGPROBS = "/generate returns log-probabilities"
_NAME_CHARACTERS = 80
_SAMPLED = frozenset({"temperature", "top_p", "top_k"})


@dataclass(frozen=True)
class Neutral:
    """The values that ask for nothing, and why no other is served."""

    values: tuple[Any, ...]
    reason: str

    def allows(self, value: Any) -> bool:
        # 1 == True in Python; in JSON they are different values.
        return any(
            value == allowed and isinstance(value, bool) == isinstance(allowed, bool)
            for allowed in self.values
        )


@dataclass(frozen=True)
class Parameters:
    """All parameters of one JSON object."""

    read: frozenset[str]
    neutral: Mapping[str, Neutral] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()

    def check(self, fields: Fields, sampled: bool = False) -> None:
        """Raises BadRequest naming an unknown parameter and the nearest known one, or a known one
        that asks for what this engine does not do. `sampled`: temperature, top_p, top_k and a seed
        are served."""
        for name, value in fields.raw.items():
            if name in self.read or name in self.idle or (sampled and name in _SAMPLED):
                continue
            rule = self.neutral.get(name)
            if rule is None:
                raise fields.fail(*self._unknown(name))
            if value is not None and not rule.allows(value):
                served = " or ".join(shown(allowed) for allowed in rule.values)
                reason = _UNSERVED if sampled and rule.reason == _GREEDY else rule.reason
                only = f"only {served} is accepted" if served else "leave it out"
                raise fields.fail(name, f"{reason}: {only}, got {shown(value)}")

    def _unknown(self, name: str) -> tuple[str, str]:
        # A lone surrogate could not be encoded into the reply.
        safe = name[:_NAME_CHARACTERS].encode("ascii", "backslashreplace").decode()
        known = sorted(self.read | self.neutral.keys() | self.idle)
        near = difflib.get_close_matches(safe, known, n=1)
        if near:
            return safe, f"unknown parameter; did you mean {near[0]!r}?"
        return safe, f"unknown parameter; known: {', '.join(sorted(self.read))}"


def _neutral(names: str, *values: Any, reason: str = _UNSERVED) -> dict[str, Neutral]:
    return dict.fromkeys(names.split(), Neutral(values, reason))


_SAMPLING = (
    _neutral("temperature min_p frequency_penalty presence_penalty", 0, reason=_GREEDY)
    | _neutral("top_p repetition_penalty", 1, reason=_GREEDY)
    # Of one token the best is the greedy choice.
    | _neutral("top_k", -1, 1, reason=_GREEDY)
    | _neutral("logit_bias", {}, reason=_GREEDY)
    | _neutral("n", 1, reason=_ONE_ANSWER)
    | _neutral("skip_special_tokens spaces_between_special_tokens", True)
    | _neutral("no_stop_trim", False)
    | _neutral("min_new_tokens", 0)
    | _neutral("stream_interval", 1)
    | _neutral("custom_params", {})
    | _neutral("stop_regex", [], "")
    | _neutral("json_schema regex ebnf structural_tag")
)
_STOPS = frozenset({"stop", "stop_token_ids", "ignore_eos"})

GENERATE = Parameters(
    frozenset({"input_ids", "text", "sampling_params", "stream", "rid"})
    | {"return_logprob", "logprob_start_len", "top_logprobs_num", "return_raw_logits_topk"},
    _neutral("return_text_in_logprobs return_hidden_states", False)
    | _neutral("token_ids_logprob image_data", [])
    | _neutral("session_params", {})
    | _neutral("input_embeds lora_path custom_logit_processor"),
    frozenset({"log_metrics", "priority"}),
)
SAMPLING = Parameters(_STOPS | {"max_new_tokens"}, _SAMPLING, frozenset({"sampling_seed"}))

_OPENAI = _SAMPLING | _neutral("min_tokens", 0) | _neutral("store", False)
_OPENAI |= _neutral("logprobs", False, reason=_LOGPROBS)
_OPENAI_IDLE = frozenset({"model", "seed", "user", "metadata", "service_tier"})

COMPLETION = Parameters(
    _STOPS | {"prompt", "max_tokens", "stream", "stream_options"},
    _OPENAI
    | _neutral("echo", False)
    | _neutral("suffix", "")
    | _neutral("best_of", 1, reason=_ONE_ANSWER),
    _OPENAI_IDLE,
)
CHAT = Parameters(
    _STOPS | {"messages", "max_tokens", "max_completion_tokens", "stream", "stream_options"},
    _OPENAI
    | _neutral("top_logprobs", 0, reason=_LOGPROBS)
    | _neutral("tools functions", [])
    | _neutral("tool_choice function_call", "none", "auto")
    | _neutral("response_format", {"type": "text"})
    | _neutral("modalities", ["text"])
    | _neutral("reasoning_effort", "none")
    | _neutral("chat_template_kwargs", {})
    | _neutral("continue_final_message", False)
    | _neutral("audio prediction web_search_options"),
    _OPENAI_IDLE | {"parallel_tool_calls", "safety_identifier", "prompt_cache_key"},
)
STREAM_OPTIONS = Parameters(
    frozenset({"include_usage"}),
    _neutral("continuous_usage_stats", False),
    # Padding against eavesdroppers on encrypted streams; none is added to these.
    frozenset({"include_obfuscation"}),
)
# What an answer of this or another server carries when a client sends it back as history.
MESSAGE = Parameters(
    frozenset({"role", "content"}),
    _neutral("refusal reasoning_content", "")
    | _neutral("annotations tool_calls", [])
    | _neutral("audio function_call tool_call_id name"),
)
