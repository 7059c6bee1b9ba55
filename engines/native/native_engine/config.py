"""What is computed (`ModelConfig`, from config.json) and how fast (`EngineConfig`, engine.toml)."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from native_engine.errors import ConfigError
from native_engine.tables import read_table


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a Llama-architecture model."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_positions: int
    tied_head: bool
    eos_token_ids: tuple[int, ...]

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.heads // self.kv_heads

    @classmethod
    def from_folder(cls, folder: Path) -> ModelConfig:
        """Read config.json (and generation_config.json, if there is one) of a Hugging Face folder.

        Raises ConfigError for an architecture variant this engine does not compute."""
        raw = _read_json(folder / "config.json")
        _refuse_variants(raw)
        heads = _integer(raw, "num_attention_heads")
        kv_heads = raw.get("num_key_value_heads") or heads
        if heads % kv_heads:
            raise ConfigError(
                f"config.json num_key_value_heads={kv_heads} must divide "
                f"num_attention_heads={heads}"
            )
        hidden = _integer(raw, "hidden_size")
        rope = raw.get("rope_parameters") or {}
        generation = folder / "generation_config.json"
        stops = _read_json(generation) if generation.exists() else {}
        eos = _token_ids(stops.get("eos_token_id")) | _token_ids(raw.get("eos_token_id"))
        return cls(
            vocab_size=_integer(raw, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=_integer(raw, "intermediate_size"),
            layers=_integer(raw, "num_hidden_layers"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=raw.get("head_dim") or hidden // heads,
            rms_norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
            max_positions=int(raw.get("max_position_embeddings", 2048)),
            tied_head=bool(raw.get("tie_word_embeddings", False)),
            eos_token_ids=tuple(sorted(eos)),
        )


@dataclass(frozen=True)
class LinearKnobs:
    """Linear backend by weight dtype: names of `native_engine.linear`."""

    bf16: str = "packed"
    fp32: str = "plain"


@dataclass(frozen=True)
class PrefillKnobs:
    chunk_tokens: int = 256
    head_rows: int = 64

    def __post_init__(self) -> None:
        for name in ("chunk_tokens", "head_rows"):
            if getattr(self, name) < 1:
                raise ConfigError(f"engine.toml prefill.{name} must be at least 1")


@dataclass(frozen=True)
class SpeculationKnobs:
    drafter: str = "ngram"
    draft_tokens: int = 7
    verify: str = "chain"

    def __post_init__(self) -> None:
        if self.draft_tokens < 1:
            raise ConfigError("engine.toml speculation.draft_tokens must be at least 1")
        if self.verify != "chain":
            raise ConfigError(f"engine.toml speculation.verify={self.verify!r}: known: 'chain'")


@dataclass(frozen=True)
class BatchingKnobs:
    """Rows (tokens) of all sequences in one forward pass; `prefill_rows` of them are kept for
    prompts while any is being read (drafts are cut shorter then)."""

    rows_per_step: int = 512
    prefill_rows: int = 128

    def __post_init__(self) -> None:
        if not 1 <= self.prefill_rows < self.rows_per_step:
            raise ConfigError("engine.toml batching: 1 <= prefill_rows < rows_per_step is needed")


@dataclass(frozen=True)
class EngineConfig:
    """engine.toml. `drafters` holds one table of options per drafter, read by that drafter."""

    linear: LinearKnobs = field(default_factory=LinearKnobs)
    prefill: PrefillKnobs = field(default_factory=PrefillKnobs)
    speculation: SpeculationKnobs = field(default_factory=SpeculationKnobs)
    batching: BatchingKnobs = field(default_factory=BatchingKnobs)
    drafters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def from_file(cls, path: Path) -> EngineConfig:
        """Raises ConfigError naming the key, its table and the nearest known key."""
        try:
            raw = tomllib.loads(path.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
        return read_table(cls, raw, path.name)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: a JSON object is needed")
    return raw


def _integer(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"config.json {key}={value!r}: a positive integer is needed")
    return value


def _token_ids(value: Any) -> set[int]:
    if value is None:
        return set()
    return {int(v) for v in value} if isinstance(value, list) else {int(value)}


def _refuse_variants(raw: Mapping[str, Any]) -> None:
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    unsupported = {
        "model_type": raw.get("model_type", "llama") != "llama",
        "hidden_act": raw.get("hidden_act", "silu") != "silu",
        "rope_type": kind != "default",
        "attention_bias": bool(raw.get("attention_bias")),
        "mlp_bias": bool(raw.get("mlp_bias")),
        "quantization_config": bool(raw.get("quantization_config")),
    }
    for key, bad in unsupported.items():
        if bad:
            raise ConfigError(
                f"config.json {key}: only Llama with SiLU, default RoPE, no biases is computed"
            )
