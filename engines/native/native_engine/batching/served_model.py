"""What the server asks of a model's configuration, of any architecture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from native_engine.targets.hf_config import HfConfig, eos_token_ids


@dataclass(frozen=True)
class ServedModel:
    """`eos_token_ids`: of config.json, its text part and generation_config.json together."""

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
