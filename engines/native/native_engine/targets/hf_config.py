"""config.json of a checkpoint, key by key: what the code does not compute is refused by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from native_engine.errors import ConfigError


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
            raise ConfigError(f"{self.where} {key}={value!r}: a positive integer is needed")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = default if self.raw.get(key) is None else self.raw[key]
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ConfigError(f"{self.where} {key}={value!r}: a number is needed")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self.raw.get(key, default))

    def require(self, **computed: Any) -> None:
        """Each key, where it is present and not null, has the one value the code computes."""
        for key, value in computed.items():
            found = self.raw.get(key)
            if found is not None and found != value:
                raise ConfigError(f"{self.where} {key}={found!r}: only {value!r} is computed")

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

    def heads(self) -> tuple[int, int, int]:
        """Query heads, key/value heads (a divisor of them), head dimension."""
        heads = self.integer("num_attention_heads")
        kv_heads = self.integer("num_key_value_heads", heads)
        if heads % kv_heads:
            raise ConfigError(
                f"{self.where} num_key_value_heads={kv_heads} must divide "
                f"num_attention_heads={heads}"
            )
        return heads, kv_heads, self.integer("head_dim", self.integer("hidden_size") // heads)

    def layer_types(self, default: list[str], known: tuple[str, ...]) -> list[str]:
        """`layer_types`, one of `known` for each of `num_hidden_layers` layers."""
        kinds = self.raw.get("layer_types") or default
        layers = self.integer("num_hidden_layers")
        if type(kinds) is not list or len(kinds) != layers or any(k not in known for k in kinds):
            raise ConfigError(
                f"{self.where} layer_types: {', '.join(known)} for each of num_hidden_layers"
            )
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
            raise ConfigError(f"{config.where} eos_token_id={value!r}: one token id or a list")
        found.update(ids)
    return tuple(sorted(found))
