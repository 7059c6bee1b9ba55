"""A setting of no engine at all: what a simulated campaign is searched for."""

from __future__ import annotations

from settings.schema import Setting

SETTING = Setting.model_validate(
    {
        "schema_version": 1,
        "name": "simulated",
        "summary": "no engine at all",
        "target": {
            "name": "none",
            "checkpoint": {"source": "random", "licence": "Apache-2.0"},
            "weights_dtype": "bf16",
            "kv_dtype": "bf16",
            "lm_head_dtype": "bf16",
        },
        "drafter": {"kind": "ngram"},
        "hardware": {"gpu": "cpu", "memory_gb": 1.0},
        "serving": {"concurrency": 1, "max_running_requests": 1, "max_total_tokens": 64},
        "decoding": {"max_new_tokens": 8},
        "prompts": {
            "search": [{"set": "arithmetic", "count": 2}],
            "heldout": [{"set": "arithmetic", "count": 2}],
        },
        "engine": {"name": "native"},
        "measurement": {"mode": "slices", "estimator": "quiet_time", "seconds_per_candidate": 10},
    }
)
