"""Does an engine serve what was launched? Its own /server_info against the setting and stock's.

A claim proves nothing, but a claim that differs is an engine that set what only a setting may set,
or one that says openly that its acceptance is simulated. What stock states of a key that the
setting owns, a candidate launched with the same arguments must state too, and alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from settings.schema import Setting

_DTYPES = {
    "bfloat16": "bf16",
    "float32": "fp32",
    "float": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}
# How engines call what the setting names; `dtype` is the weights' alone where others are stated.
_STATED = {
    "weights_dtype": ("weights_dtype", "dtype"),
    "kv_dtype": ("kv_dtype", "kv_cache_dtype"),
    "lm_head_dtype": ("lm_head_dtype",),
}
# Owned by the launch, different from arm to arm.
_OF_ONE_LAUNCH = frozenset({"arm", "tree_hash", "host", "port"})


@dataclass(frozen=True)
class ServedFault:
    """`kind`: `cheating` (it is not what it was launched as) or `refused` (it serves other terms).
    `field` of /server_info, what was launched and what it states."""

    kind: Literal["cheating", "refused"]
    field: str
    launched: object
    stated: object

    def sentence(self) -> str:
        return f"/server_info states {self.field} = {self.stated!r:.80}, not {self.launched!r:.80}"


def served_fault(
    setting: Setting,
    *,
    arm: str,
    tree_hash: str,
    info: Mapping[str, Any],
    stock_info: Mapping[str, Any],
    owned: frozenset[str],
) -> ServedFault | None:
    """The first thing `info` states that was not launched; None when all of it agrees.

    Args:
        arm, tree_hash: as launched.
        info, stock_info: /server_info of this engine and of the stock arm beside it.
        owned: keys that belong to the setting (the engine driver's).
    """
    if info.get("replayed", False) is not False:
        return ServedFault("cheating", "replayed", False, info["replayed"])
    for name, launched in (("tree_hash", tree_hash), ("arm", arm)):
        if info.get(name, launched) != launched:
            return ServedFault("cheating", name, launched, info[name])
    for field, names in _STATED.items():
        wanted = getattr(setting.target, field)
        for name in names:
            stated = _dtype(info.get(name), setting.target.weights_dtype)
            if stated is not None and stated != wanted:
                return ServedFault("refused", name, wanted, info[name])
    for key in sorted((owned - _OF_ONE_LAUNCH) & stock_info.keys()):
        if key not in info:
            return ServedFault("refused", key, stock_info[key], None)
        if info[key] != stock_info[key]:
            return ServedFault("refused", key, stock_info[key], info[key])
    return None


def _dtype(stated: object, weights: str) -> str | None:
    """Our name of a dtype; `auto` is the weights' own; None where none is stated."""
    if stated is None:
        return None
    name = str(stated).removeprefix("torch.").lower()
    return weights if name == "auto" else _DTYPES.get(name, name)
