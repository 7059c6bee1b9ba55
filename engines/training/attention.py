"""Scaled dot-product attention through back ends that round as their dtype says."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

_EXACT = [SDPBackend.MATH]
_FAST = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """`[batch, heads, rows, head_dim]`; `mask`: added to scores, or None for a causal square.

    On CUDA in FP32 other back ends may round products to TF32."""
    exact = q.device.type == "cuda" and q.dtype == torch.float32
    with sdpa_kernel(_EXACT if exact else _FAST):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
