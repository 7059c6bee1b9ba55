"""config.json of the drafter to train, in the published keys; and its size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines.training.errors import TrainingError
from engines.training.options import TrainOptions
from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.describe import describe

LARGEST_PARAMETERS = 16_700_000
"""What fits in 32 MB of BF16."""


def config_json(options: TrainOptions, target: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of DFlash2 or DSpark for `target` (its config.json): width, heads and RoPE are the
    target's; embedding and head are shared with it, so the checkpoint holds neither."""
    c = target
    dspark = options.kind == "dspark"
    own: dict[str, Any] = {
        "block_size": options.block_size,
        "mask_token_id": options.mask_token,
        "target_layer_ids": options.tap_ids,
    }
    if dspark:
        own |= {
            "markov_rank": options.markov_rank,
            "markov_head_type": "vanilla",
            "enable_confidence_head": True,
            "confidence_head_with_markov": True,
            "sample_from_anchor": True,
        }
    else:
        own |= {
            "conv_kernel_size": 2,
            "conv_group_size": options.conv_group,
            "selector_rank": options.selector_rank,
            "selector_top_k": options.selector_top_k,
        }
    rope = c.get("rope_parameters") or {}
    return {
        "architectures": ["DSparkDraftModel" if dspark else "DFlash2DraftModel"],
        "model_type": "qwen3",
        "hidden_act": "silu",
        "attention_bias": False,
        "num_hidden_layers": options.layers,
        "hidden_size": c["hidden_size"],
        "intermediate_size": options.intermediate,
        "num_attention_heads": c["num_attention_heads"],
        "num_key_value_heads": c["num_key_value_heads"],
        "head_dim": c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"],
        "vocab_size": c["vocab_size"],
        "rms_norm_eps": c["rms_norm_eps"],
        "max_position_embeddings": c.get("max_position_embeddings", 2048),
        "num_target_layers": c["num_hidden_layers"],
        "layer_types": ["full_attention"] * options.layers,
        "is_causal": options.causal,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": rope.get("rope_theta") or c.get("rope_theta", 10000.0),
        },
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "dflash_config": own,
    }


def checked_config(raw: Mapping[str, Any]) -> DrafterConfig:
    """The drafter `raw` describes.

    Raises:
        TrainingError: it would be larger than what may ship.
    """
    config = DrafterConfig.from_mapping(raw)
    parameters = describe(config).parameters
    if parameters > LARGEST_PARAMETERS:
        raise TrainingError(
            f"the drafter would have {parameters:,} parameters; {LARGEST_PARAMETERS:,} may ship",
            "Fewer --layers or --taps, a smaller --intermediate or rank",
        )
    return config
