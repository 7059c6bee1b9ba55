"""config.json of a Qwen3.5/3.6/3.8 dense hybrid (qwen3_5, or its text part qwen3_5_text)."""

from __future__ import annotations

from native_engine.targets.decoder import DecoderShape
from native_engine.targets.fp8 import Fp8Format
from native_engine.targets.gated_delta import DeltaShape
from native_engine.targets.hf_config import HfConfig

LINEAR, FULL = "linear_attention", "full_attention"


class Qwen35Config:
    """prefix: of the text model's tensor names. kinds: LINEAR or FULL for each layer. rotary_dims:
    rotated dimensions of a head (the first). fp8: None for a checkpoint in one dtype."""

    def __init__(self, config: HfConfig) -> None:
        """Raises ConfigError naming a key whose value is not computed.

        Text has one position per token, so the three sections of the interleaved multimodal RoPE
        turn by the same angle: `mrope_section` changes nothing and is not read."""
        sees = config.raw.get("model_type") == "qwen3_5"
        text = config.section("text_config") if sees else config
        text.require(hidden_act="silu", attention_bias=False, attn_output_gate=True)
        text.require(mamba_ssm_dtype="float32")
        rope = text.rope()
        rope.require(rope_type="default", type="default")
        share = rope.number("partial_rotary_factor", text.number("partial_rotary_factor", 0.25))
        period = text.integer("full_attention_interval", 4)
        layers = range(1, text.integer("num_hidden_layers") + 1)
        default = [LINEAR if i % period else FULL for i in layers]
        self.prefix = "model.language_model" if sees else "model"
        self.kinds = tuple(text.layer_types(default, (LINEAR, FULL)))
        windows = (None,) * self.kinds.count(FULL)
        self.shape = DecoderShape(**text.shape(1e-6), windows=windows)
        self.rotary_dims = int(self.shape.head_dim * share)
        self.rope_theta = rope.number("rope_theta", text.number("rope_theta", 10000.0))
        self.tied_head = config.flag("tie_word_embeddings")
        self.fp8 = Fp8Format.from_config(config.raw)
        self.delta = DeltaShape(
            key_heads=text.integer("linear_num_key_heads", 16),
            value_heads=text.integer("linear_num_value_heads", 32),
            key_dim=text.integer("linear_key_head_dim", 128),
            value_dim=text.integer("linear_value_head_dim", 128),
            conv_rows=text.integer("linear_conv_kernel_dim", 4) - 1,
        )
        if self.delta.value_heads % self.delta.key_heads:
            raise text.error("linear_num_key_heads", "must divide linear_num_value_heads")
        if not self.delta.conv_rows:
            raise text.error("linear_conv_kernel_dim", "at least 2 is needed")
