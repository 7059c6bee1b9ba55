"""config.json of a checkpoint, key by key: what the code does not compute is refused by name."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from native_engine.errors import ConfigError


@dataclass(frozen=True)
class ModelShape:
    """Sizes that every decoder has, target or drafter; each query head's KV head is shared by
    `group` of them."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_norm_eps: float

    @property
    def group(self) -> int:
        return self.heads // self.kv_heads

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim


@dataclass(frozen=True)
class HfConfig:
    """One JSON object of config.json; `where` names it in errors."""

    raw: Mapping[str, Any]
    where: str = "config.json"

    @classmethod
    def from_folder(cls, folder: Path, name: str = "config.json") -> HfConfig:
        path = folder / name
        try:
            raw = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: {error}") from error
        if not isinstance(raw, dict):
            raise ConfigError(f"{path}: a JSON object is needed")
        return cls(raw, name)

    def error(self, key: str, problem: str) -> ConfigError:
        """What is wrong with the value of `key`, short however long that is."""
        return ConfigError(f"{self.where} {key}={reprlib.repr(self.raw.get(key))}: {problem}")

    def section(self, key: str) -> HfConfig:
        """The object under `key` (`text_config` of a model that also sees)."""
        value = self.raw.get(key)
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self.where} {key}: a JSON object is needed")
        return HfConfig(value, f"{self.where} {key}")

    def integer(self, key: str, default: int | None = None) -> int:
        """A positive integer; `default` where the key is absent or null."""
        value = default if self.raw.get(key) is None else self.raw[key]
        if not isinstance(value, int) or value < 1:
            raise self.error(key, "a positive integer is needed")
        return value

    def sizes(self, *keys: str) -> list[int]:
        return [self.integer(key) for key in keys]

    def number(self, key: str, default: float | None = None) -> float:
        value = default if self.raw.get(key) is None else self.raw[key]
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, "a number is needed")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self.raw.get(key, default))

    def require(self, **computed: Any) -> None:
        """Each key, where it is present and not null, has the one value the code computes."""
        for key, value in computed.items():
            if self.raw.get(key) not in (None, value):
                raise self.error(key, f"only {value!r} is computed")

    def require_dense(self) -> None:
        """What layers of Llama and Qwen3 compute."""
        self.require(hidden_act="silu", attention_bias=False, mlp_bias=False)
        self.require(quantization_config=None)

    def rope_theta(self) -> float:
        """Base of plain RoPE over whole heads. `rope_parameters`, `rope_scaling` or flat keys."""
        rope = self.rope()
        rope.require(rope_type="default", type="default", partial_rotary_factor=1.0)
        self.require(partial_rotary_factor=1.0)
        return rope.number("rope_theta", self.number("rope_theta", 10000.0))

    def rope(self) -> HfConfig:
        """`rope_parameters`, or `rope_scaling`, or nothing."""
        rope = self.raw.get("rope_parameters") or self.raw.get("rope_scaling") or {}
        if not isinstance(rope, Mapping) or any(isinstance(v, Mapping) for v in rope.values()):
            raise ConfigError(f"{self.where} rope_parameters: only one RoPE for all layers")
        return HfConfig(rope, f"{self.where} rope_parameters")

    def shape(self, eps: float | None = None) -> dict[str, Any]:
        """The fields of ModelShape; `eps` where config.json does not say."""
        hidden, heads = self.integer("hidden_size"), self.integer("num_attention_heads")
        kv_heads = self.integer("num_key_value_heads", heads)
        if heads % kv_heads:
            raise self.error("num_key_value_heads", f"must divide num_attention_heads={heads}")
        return {
            "vocab_size": self.integer("vocab_size"),
            "hidden_size": hidden,
            "intermediate_size": self.integer("intermediate_size"),
            "layers": self.integer("num_hidden_layers"),
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": self.integer("head_dim", hidden // heads),
            "rms_norm_eps": self.number("rms_norm_eps", eps),
        }

    def layer_types(self, default: list[str], known: tuple[str, ...]) -> list[str]:
        """`layer_types`, one of `known` for each of `num_hidden_layers` layers."""
        kinds = self.raw.get("layer_types") or default
        layers = self.integer("num_hidden_layers")
        if type(kinds) is not list or len(kinds) != layers or any(k not in known for k in kinds):
            raise self.error("layer_types", f"{', '.join(known)} for each of num_hidden_layers")
        return list(kinds)

    def windows(self, default: list[str]) -> tuple[int | None, ...]:
        """Tokens each layer's attention sees, itself included; None: all."""
        kinds = self.layer_types(default, ("full_attention", "sliding_attention"))
        return tuple(
            self.integer("sliding_window") if kind == "sliding_attention" else None
            for kind in kinds
        )


def eos_token_ids(folder: Path, *configs: HfConfig) -> tuple[int, ...]:
    """Where answers end: `eos_token_id` (one or a list) of `configs` and, where there is one, of
    generation_config.json."""
    if (folder / "generation_config.json").exists():
        configs += (HfConfig.from_folder(folder, "generation_config.json"),)
    found: set[int] = set()
    for config in configs:
        value = config.raw.get("eos_token_id")
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(type(token) is int for token in ids):
            raise config.error("eos_token_id", "one token id or a list")
        found.update(ids)
    return tuple(sorted(found))
