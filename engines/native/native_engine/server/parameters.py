"""Which parameters a request may name. None is ignored in silence: a client that asks for sampling
and gets greedy text would believe that it was sampled.

A parameter is read; or *neutral*, which clients send with the value that asks for nothing, and any
other value is refused; or *idle*, a label or a seed that cannot change a greedy answer. A null
counts as absent.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from native_engine.server.fields import Fields, shown

_GREEDY = "decoding is greedy"
_UNSERVED = "this engine does not serve it"
_NAME_CHARACTERS = 80
_SAMPLED = frozenset({"temperature", "top_p", "top_k"})


@dataclass(frozen=True)
class Neutral:
    """The values that ask for nothing, and why no other is served."""

    values: tuple[Any, ...] = ()
    reason: str = _UNSERVED

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

    def with_sampling(self) -> Parameters:
        """The same where temperature, top_p, top_k and a seed are served."""
        rest = {
            name: replace(rule, reason=_UNSERVED) if rule.reason == _GREEDY else rule
            for name, rule in self.neutral.items()
            if name not in _SAMPLED
        }
        return Parameters(self.read | _SAMPLED, rest, self.idle)

    def check(self, fields: Fields) -> None:
        """Raises BadRequest naming an unknown parameter and the nearest known one, or a known one
        that asks for what this engine does not do."""
        for name, value in fields.raw.items():
            if name in self.read or name in self.idle:
                continue
            rule = self.neutral.get(name)
            if rule is None:
                raise fields.fail(*self._unknown(name))
            if value is not None and not rule.allows(value):
                served = " or ".join(shown(allowed) for allowed in rule.values)
                only = f"only {served} is accepted" if served else "leave it out"
                raise fields.fail(name, f"{rule.reason}: {only}, got {shown(value)}")

    def _unknown(self, name: str) -> tuple[str, str]:
        # A lone surrogate could not be encoded into the reply.
        safe = name[:_NAME_CHARACTERS].encode("ascii", "backslashreplace").decode()
        known = sorted(self.read | self.neutral.keys() | self.idle)
        near = difflib.get_close_matches(safe, known, n=1)
        if near:
            return safe, f"unknown parameter; did you mean {near[0]!r}?"
        return safe, f"unknown parameter; known: {', '.join(sorted(self.read))}"


_SAMPLING = {
    "temperature": Neutral((0,), _GREEDY),
    "top_p": Neutral((1,), _GREEDY),
    # Of one token the best is the greedy choice.
    "top_k": Neutral((-1, 1), _GREEDY),
    "min_p": Neutral((0,), _GREEDY),
    "frequency_penalty": Neutral((0,), _GREEDY),
    "presence_penalty": Neutral((0,), _GREEDY),
    "repetition_penalty": Neutral((1,), _GREEDY),
    "logit_bias": Neutral(({},), _GREEDY),
    "n": Neutral((1,), "one answer a prompt"),
}
_SGLANG_SAMPLING = _SAMPLING | {
    "min_new_tokens": Neutral((0,)),
    "skip_special_tokens": Neutral((True,)),
    "spaces_between_special_tokens": Neutral((True,)),
    "no_stop_trim": Neutral((False,)),
    "stream_interval": Neutral((1,)),
    "custom_params": Neutral(({},)),
    "json_schema": Neutral(),
    "regex": Neutral(),
    "ebnf": Neutral(),
    "structural_tag": Neutral(),
    "stop_regex": Neutral(([], "")),
}
_STOPS = frozenset({"stop", "stop_token_ids", "ignore_eos"})

GENERATE = Parameters(
    frozenset({"input_ids", "text", "sampling_params", "stream", "rid"})
    | {"return_logprob", "logprob_start_len", "top_logprobs_num", "return_raw_logits_topk"},
    {
        "return_text_in_logprobs": Neutral((False,)),
        "return_hidden_states": Neutral((False,)),
        "token_ids_logprob": Neutral(([],)),
        "image_data": Neutral(([],)),
        "input_embeds": Neutral(),
        "lora_path": Neutral(),
        "session_params": Neutral(({},)),
        "custom_logit_processor": Neutral(),
    },
    frozenset({"log_metrics", "priority"}),
)
SAMPLING = Parameters(_STOPS | {"max_new_tokens"}, _SGLANG_SAMPLING, frozenset({"sampling_seed"}))

_OPENAI = _SGLANG_SAMPLING | {"min_tokens": Neutral((0,)), "store": Neutral((False,))}
_OPENAI_IDLE = frozenset({"model", "seed", "user", "metadata", "service_tier"})

COMPLETION = Parameters(
    _STOPS | {"prompt", "max_tokens", "stream", "stream_options"},
    _OPENAI
    | {
        "logprobs": Neutral((False,), "/generate returns log-probabilities"),
        "echo": Neutral((False,)),
        "suffix": Neutral(("",)),
        "best_of": Neutral((1,), "one answer a prompt"),
    },
    _OPENAI_IDLE,
)
CHAT = Parameters(
    _STOPS | {"messages", "max_tokens", "max_completion_tokens", "stream", "stream_options"},
    _OPENAI
    | {
        "logprobs": Neutral((False,), "/generate returns log-probabilities"),
        "top_logprobs": Neutral((0,), "/generate returns log-probabilities"),
        "tools": Neutral(([],)),
        "tool_choice": Neutral(("none", "auto")),
        "functions": Neutral(([],)),
        "function_call": Neutral(("none", "auto")),
        "response_format": Neutral(({"type": "text"},)),
        "modalities": Neutral((["text"],)),
        "audio": Neutral(),
        "prediction": Neutral(),
        "reasoning_effort": Neutral(("none",)),
        "web_search_options": Neutral(),
        "chat_template_kwargs": Neutral(({},)),
        "continue_final_message": Neutral((False,)),
    },
    _OPENAI_IDLE | {"parallel_tool_calls", "safety_identifier", "prompt_cache_key"},
)
STREAM_OPTIONS = Parameters(
    frozenset({"include_usage"}),
    {"continuous_usage_stats": Neutral((False,))},
    # Padding against eavesdroppers on encrypted streams; none is added to these.
    frozenset({"include_obfuscation"}),
)
# What an answer of this or another server carries when a client sends it back as history.
MESSAGE = Parameters(
    frozenset({"role", "content"}),
    {
        "refusal": Neutral(("",)),
        "annotations": Neutral(([],)),
        "audio": Neutral(),
        "tool_calls": Neutral(([],)),
        "function_call": Neutral(),
        "tool_call_id": Neutral(),
        "reasoning_content": Neutral(("",)),
        "name": Neutral(),
    },
)
