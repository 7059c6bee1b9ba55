"""What /server_info may state, on the native engine's own words and on SGLang's."""

from __future__ import annotations

from typing import Any

import pytest

from engines.server_driver import SETTING_OWNED_KEYS
from tests.verifier.settings_for_tests import tiny
from verifier.served import ServedFault, served_fault

NATIVE: dict[str, Any] = {
    "engine": "native",
    "arm": "candidate",
    "tree_hash": "a" * 40,
    "dtype": "bf16",
    "threads": 1,
    "max_total_tokens": 256,
    "max_running_requests": 1,
    "replayed": False,
    "engine_config": {"speculation": {"draft_tokens": 9}},
    "component_times": {"steps": 3},
}
STOCK = NATIVE | {
    "arm": "stock",
    "tree_hash": "b" * 40,
    "engine_config": {"speculation": {"draft_tokens": 7}},
    "component_times": {"steps": 4},
}
SGLANG = {"dtype": "bfloat16", "kv_cache_dtype": "auto", "tree_hash": "a" * 40}


def fault(
    info: dict[str, Any], stock: dict[str, Any] = STOCK, dtype: str = "bf16"
) -> ServedFault | None:
    return served_fault(
        tiny(dtype),
        arm="candidate",
        tree_hash="a" * 40,
        info=info,
        stock_info=stock,
        owned=SETTING_OWNED_KEYS,
    )


@pytest.mark.parametrize(
    ("info", "stock"),
    [
        (NATIVE, STOCK),
        (SGLANG, SGLANG),
        (SGLANG | {"dtype": "torch.bfloat16", "kv_cache_dtype": "bf16"}, {}),
        ({}, {}),
        # Performance is the candidate's own: knobs, times, limits no setting names.
        (NATIVE | {"cuda_graph_max_bs": 4}, STOCK | {"cuda_graph_max_bs": 8}),
    ],
)
def test_what_was_launched_is_served(info: dict[str, Any], stock: dict[str, Any]) -> None:
    assert fault(info, stock) is None


@pytest.mark.parametrize(
    ("change", "kind", "field"),
    [
        ({"replayed": True}, "cheating", "replayed"),
        ({"replayed": None}, "cheating", "replayed"),
        ({"arm": "stock"}, "cheating", "arm"),
        ({"tree_hash": "b" * 40}, "cheating", "tree_hash"),
        ({"dtype": "fp32"}, "refused", "dtype"),
        ({"dtype": "float8_e4m3fn"}, "refused", "dtype"),
        ({"kv_dtype": "fp8"}, "refused", "kv_dtype"),
        ({"kv_cache_dtype": "fp8_e4m3"}, "refused", "kv_cache_dtype"),
        ({"lm_head_dtype": "int8"}, "refused", "lm_head_dtype"),
        ({"max_total_tokens": 128}, "refused", "max_total_tokens"),
        ({"max_running_requests": 8}, "refused", "max_running_requests"),
        ({"threads": 2}, "refused", "threads"),
        ({"threads": "1"}, "refused", "threads"),
    ],
)
def test_what_differs_is_named(change: dict[str, Any], kind: str, field: str) -> None:
    found = fault(NATIVE | change)
    assert found is not None
    assert (found.kind, found.field, found.stated) == (kind, field, change[field])
    assert f"states {field} = " in found.sentence()


def test_what_stock_states_may_not_be_left_out() -> None:
    silent = {key: value for key, value in NATIVE.items() if key != "max_total_tokens"}
    found = fault(silent)
    assert found == ServedFault("refused", "max_total_tokens", 256, None)


def test_the_twin_is_held_to_its_own_dtype() -> None:
    assert fault(NATIVE | {"dtype": "fp32"}, STOCK | {"dtype": "fp32"}, "fp32") is None
    found = fault(NATIVE, STOCK, "fp32")
    assert found is not None and found.launched == "fp32"
