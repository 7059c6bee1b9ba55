"""What SGLang 0.5.21 imports on a CPU and never calls there: for contract tests without a GPU.

Beside a CPU build of torch, torchvision's wheel cannot load its operators, and its Python code asks
for their schemas when it is imported; and without `sgl_kernel` the rotary embedding imports vLLM's
CUDA kernel before it takes its plain path. Calling either stand-in is an error.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NoReturn

import torch

_SCHEMAS = tuple(
    f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")
)
_keep: list[Any] = []


def install() -> None:
    """Idempotent; to be called before anything imports torchvision or SGLang."""
    if _keep:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for schema in _SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    # A library that is collected takes its schemas along.
    _keep.append(library)
    custom_ops = ModuleType("vllm._custom_ops")
    custom_ops.rotary_embedding = _unavailable  # type: ignore[attr-defined]
    vllm = ModuleType("vllm")
    vllm._custom_ops = custom_ops  # type: ignore[attr-defined]
    sys.modules.setdefault("vllm", vllm)
    sys.modules.setdefault("vllm._custom_ops", custom_ops)


def _unavailable(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("a CUDA kernel was called on a CPU")
