"""A parallel drafter's config.json: DFlash, DFlash2 and DSpark in every published packaging.

Keys lie flat (v1, DeepSpec), in `dflash_config` (v2, SpecForge) or the backbone's in
`transformer_layer_config` with tap ids one higher (the speculators packaging)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from native_engine.errors import ConfigError
from native_engine.tables import unknown_name
from native_engine.targets.hf_config import HfConfig, ModelShape

ARCHITECTURES = {
    "DFlashDraftModel": "dflash",
    "DFlash2DraftModel": "dflash2",
    "DSparkDraftModel": "dspark",
    "Qwen3DSparkModel": "dspark",
}
MARKOV_KINDS = ("vanilla", "gated", "rnn")


@dataclass(frozen=True)
class Yarn:
    """YaRN (Peng et al., arXiv 2309.00071): positions stretched by `factor` beyond `original`."""

    factor: float
    original: int
    beta_fast: float
    beta_slow: float
    attention_factor: float | None


@dataclass(frozen=True)
class ConvConfig:
    """Dynamic causal convolutions of DFlash2: `taps` rows, `group` channels share a kernel."""

    taps: int
    group: int


@dataclass(frozen=True)
class SelectorConfig:
    """Candidate selector of DFlash2: rank of its codebooks, candidates a slot."""

    rank: int
    top_k: int


@dataclass(frozen=True)
class MarkovConfig:
    """DSpark's sequential head: `kind` is one of vanilla, gated, rnn."""

    rank: int
    kind: str


@dataclass(frozen=True)
class DrafterConfig(ModelShape):
    """Everything a drafter's forward pass depends on.

    windows: tokens each layer sees (itself included), None for all. causal: whether a block row of
    that layer sees only rows before it. taps: ids of target layers (-1: the embedding), each tap
    that layer's output. temperatures: DSpark's confidence calibration by slot, empty for none."""

    kind: str
    rope_theta: float
    yarn: Yarn | None
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    block_size: int
    taps: tuple[int, ...]
    mask_token_id: int
    logit_multiplier: float
    logit_softcap: float | None
    anchor_predicts: bool
    own_embedding: bool
    own_head: bool
    conv: ConvConfig | None
    selector: SelectorConfig | None
    markov: MarkovConfig | None
    confidence: bool
    confidence_with_markov: bool
    temperatures: tuple[float, ...]

    @property
    def max_drafts(self) -> int:
        """Tokens one block drafts: the anchor's slot drafts in DSpark only."""
        return self.block_size if self.anchor_predicts else self.block_size - 1

    @classmethod
    def from_folder(cls, folder: Path) -> DrafterConfig:
        """Raises ConfigError naming the key that is missing, unknown or not computed."""
        return cls.from_mapping(HfConfig.from_folder(folder).raw)

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any], where: str = "config.json") -> DrafterConfig:
        """From the content of a config.json; `where` names it in errors."""
        kind, own_vocab = _kind(raw, where)
        hf = HfConfig(_flat(HfConfig(raw, where)), where)
        shape, dspark, v2 = hf.shape(1e-6), kind == "dspark", kind == "dflash2"
        hf.require(hidden_act="silu", attention_bias=False, rope_is_neox_style=True)
        hf.require(draft_vocab_size=shape["vocab_size"])
        windows = hf.windows(["full_attention"] * shape["layers"])
        causal = hf.raw.get("is_causal")
        markov = _markov(hf) if dspark else None
        config = cls(
            **shape,
            kind=kind,
            rope_theta=hf.rope().number("rope_theta", hf.number("rope_theta", 10000.0)),
            yarn=_yarn(hf.rope()),
            windows=windows,
            # The reference's rule for checkpoints that do not say: sliding layers are causal.
            causal=tuple(w is not None if causal is None else bool(causal) for w in windows),
            block_size=hf.integer("block_size"),
            taps=_taps(hf),
            mask_token_id=hf.integer("mask_token_id"),
            logit_multiplier=hf.number("output_multiplier", 1.0),
            logit_softcap=_optional(hf, "final_logit_softcapping"),
            anchor_predicts=dspark and hf.flag("sample_from_anchor", True),
            own_embedding=own_vocab,
            own_head=own_vocab,
            conv=ConvConfig(*hf.sizes("conv_kernel_size", "conv_group_size")) if v2 else None,
            selector=SelectorConfig(*hf.sizes("selector_rank", "selector_top_k")) if v2 else None,
            markov=markov,
            confidence=dspark and hf.flag("enable_confidence_head"),
            confidence_with_markov=bool(markov) and hf.flag("confidence_head_with_markov", True),
            temperatures=tuple(_numbers(hf, "confidence_temperatures") or ()),
        )
        config._check(hf)
        return config

    def _check(self, hf: HfConfig) -> None:
        if self.max_drafts < 1:
            raise hf.error("block_size", "no slot to draft in")
        if self.mask_token_id >= self.vocab_size:
            raise hf.error("mask_token_id", f"below vocab_size={self.vocab_size}")
        if self.conv and self.hidden_size % self.conv.group:
            raise hf.error("conv_group_size", f"must divide hidden_size={self.hidden_size}")
        given, slots = len(self.temperatures), self.max_drafts
        if given not in (0, slots):
            raise hf.error("confidence_temperatures", f"{given} values for {slots} slots")


def _kind(raw: Mapping[str, Any], where: str) -> tuple[str, bool]:
    """Drafter kind, and whether it carries its own embedding and head."""
    names = raw.get("architectures") or ()
    name = names[0] if isinstance(names, list) and names else str(names)
    if name not in ARCHITECTURES:
        raise unknown_name(f"{where} architectures", name, ARCHITECTURES)
    return ARCHITECTURES[name], name == "Qwen3DSparkModel"


def _flat(config: HfConfig) -> dict[str, Any]:
    """One level of keys: the backbone's, the top level's, then the drafter's own."""
    raw = config.raw

    def section(key: str) -> Mapping[str, Any]:
        return config.section(key).raw if raw.get(key) else {}

    flat = {**section("transformer_layer_config"), **raw}
    flat |= {**section("dflash_config"), **section("dspark_config")}
    if "speculators_model_type" in raw:
        flat.setdefault("sample_from_anchor", False)
        if raw.get("sliding_window_non_causal"):
            flat.setdefault("is_causal", False)
    if "causal" in flat:
        flat.setdefault("is_causal", flat["causal"])
    return flat


def _taps(hf: HfConfig) -> tuple[int, ...]:
    """Layer ids; absent: evenly spaced from the second layer to the third from the end."""
    shifted = _numbers(hf, "aux_hidden_state_layer_ids")
    ids = _numbers(hf, "target_layer_ids") or (shifted and [i - 1 for i in shifted])
    if ids is None:
        depth, count = hf.integer("num_target_layers"), hf.integer("num_hidden_layers")
        if count == 1:
            return (depth // 2,)
        return tuple(round(1 + k * (depth - 4) / (count - 1)) for k in range(count))
    last = hf.integer("num_target_layers", max(ids) + 1) - 1
    if not ids or list(ids) != sorted(set(ids)) or not -1 <= ids[0] <= ids[-1] <= last:
        raise ConfigError(f"{hf.where} target_layer_ids={ids}: rising ids from -1 to {last}")
    return tuple(ids)


def _numbers(hf: HfConfig, key: str) -> list[Any] | None:
    values = hf.raw.get(key) or None
    if values and (type(values) is not list or {*map(type, values)} - {int, float}):
        raise hf.error(key, "a list of numbers is needed")
    return values


def _yarn(rope: HfConfig) -> Yarn | None:
    kind = rope.raw.get("rope_type") or rope.raw.get("type") or "default"
    if kind == "default":
        return None
    if kind != "yarn":
        raise unknown_name(f"{rope.where} rope_type", str(kind), ("default", "yarn"))
    original = rope.integer("original_max_position_embeddings")
    fast, slow = rope.number("beta_fast", 32.0), rope.number("beta_slow", 1.0)
    scale = _optional(rope, "attention_factor")
    return Yarn(rope.number("factor"), original, fast, slow, scale)


def _optional(hf: HfConfig, key: str) -> float | None:
    return None if hf.raw.get(key) is None else hf.number(key)


def _markov(hf: HfConfig) -> MarkovConfig | None:
    if not hf.raw.get("markov_rank"):
        return None
    kind = str(hf.raw.get("markov_head_type") or "vanilla").lower()
    if kind not in MARKOV_KINDS:
        raise unknown_name(f"{hf.where} markov_head_type", kind, MARKOV_KINDS)
    return MarkovConfig(hf.integer("markov_rank"), kind)
