"""What is computed (`ModelConfig`, from config.json) and how fast (`EngineConfig`, engine.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from native_engine.errors import ConfigError
from native_engine.tables import read_table
from native_engine.targets.hf_config import HfConfig, ModelShape, eos_token_ids


@dataclass(frozen=True)
class ModelConfig(ModelShape):
    """A Llama-architecture model."""

    rope_theta: float
    max_positions: int
    tied_head: bool
    eos_token_ids: tuple[int, ...]

    @classmethod
    def from_folder(cls, folder: Path) -> ModelConfig:
        """Read config.json (and generation_config.json, if there is one) of a Hugging Face folder.

        Raises ConfigError for an architecture variant this engine does not compute."""
        config = HfConfig.from_folder(folder)
        config.require(model_type="llama")
        config.require_dense()
        return cls(
            **config.shape(1e-6),
            rope_theta=config.rope_theta(),
            max_positions=config.integer("max_position_embeddings", 2048),
            tied_head=config.flag("tie_word_embeddings"),
            eos_token_ids=eos_token_ids(folder, config),
        )


@dataclass(frozen=True)
class ServedModel:
    """What the server asks of a model of any architecture. eos_token_ids: of config.json, its text
    part and generation_config.json together."""

    model_type: str
    vocab_size: int
    hidden_size: int
    layers: int
    max_positions: int
    eos_token_ids: tuple[int, ...]
    quantised: bool

    @classmethod
    def from_folder(cls, folder: Path) -> ServedModel:
        """Raises ConfigError naming the file and the key."""
        config = HfConfig.from_folder(folder)
        text = config.section("text_config") if "text_config" in config.raw else config
        return cls(
            model_type=str(config.raw.get("model_type", "llama")),
            vocab_size=text.integer("vocab_size"),
            hidden_size=text.integer("hidden_size"),
            layers=text.integer("num_hidden_layers"),
            max_positions=text.integer("max_position_embeddings", 2048),
            eos_token_ids=eos_token_ids(folder, config, text),
            quantised=bool(config.raw.get("quantization_config")),
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
