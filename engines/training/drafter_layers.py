"""One trainable draft layer and its parts, under the published tensor names.

Arithmetic as in `native_engine.drafters` (DFlash, arXiv 2602.06036, section 3; DFlash2's dynamic
convolutions), over many blocks of one sequence at once."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engines.training.attention import attend
from native_engine.drafters.config import DrafterConfig

Angles = tuple[Tensor, Tensor]
INITIAL_STD = 0.02


class Norm(nn.Module):
    """RMSNorm in FP32, of the input's dtype."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x if x.dtype == torch.float64 else x.float()
        return F.rms_norm(wide, (x.shape[-1],), self.weight.to(wide.dtype), self.eps).to(x.dtype)


def linear(inputs: int, out: int) -> nn.Linear:
    """A bias-free linear, N(0, 0.02)."""
    made = nn.Linear(inputs, out, bias=False)
    nn.init.normal_(made.weight, std=INITIAL_STD)
    return made


class DynamicConv(nn.Module):
    """`Conv(x)_t = sum_o (base[o] + dyn[t, o, group]) * x_{t-o}` inside a block; the identity
    until trained."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        assert config.conv is not None
        d, taps = config.hidden_size, config.conv.taps
        self.groups = d // config.conv.group
        base = torch.zeros(2, taps, d)
        base[:, 0] = 1
        self.base_kernel = nn.Parameter(base)
        self.kernel_projection = nn.Linear(d, 2 * taps * self.groups, bias=False)
        nn.init.zeros_(self.kernel_projection.weight)

    def kernels(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        """Coefficients before and after the sublayer, `[.., taps, groups, group]`."""
        dynamic: Tensor = self.kernel_projection(normed)
        _, taps, d = self.base_kernel.shape
        base = self.base_kernel.to(dynamic.dtype).view(2, taps, self.groups, d // self.groups)
        dynamic = dynamic.view(*normed.shape[:-1], 2, taps, self.groups, 1)
        before, after = (base + dynamic).unbind(-4)
        return before, after

    @staticmethod
    def apply_kernel(x: Tensor, kernel: Tensor) -> Tensor:
        """Convolve the rows of each block, `[.., block, hidden]`."""
        taps = kernel.shape[-3]
        flat = kernel.flatten(-2)
        out = flat[..., 0, :] * x
        for o in range(1, taps):
            out = out + flat[..., o, :] * F.pad(x[..., :-o, :], (0, 0, o, 0))
        return out


class Attention(nn.Module):
    """Projections of one layer; keys and values of context and block share them."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        c, d = config, config.hidden_size
        self.head_dim, self.group = c.head_dim, c.heads // c.kv_heads
        self.q_proj = linear(d, c.heads * c.head_dim)
        self.k_proj = linear(d, c.kv_heads * c.head_dim)
        self.v_proj = linear(d, c.kv_heads * c.head_dim)
        self.o_proj = linear(c.heads * c.head_dim, d)
        self.q_norm = Norm(c.head_dim, c.rms_norm_eps)
        self.k_norm = Norm(c.head_dim, c.rms_norm_eps)

    def queries(self, x: Tensor, angles: Angles) -> Tensor:
        """`[batch, rows, hidden]` to `[batch, heads, rows, head_dim]`."""
        q = self.q_norm(self.q_proj(x).unflatten(-1, (-1, self.head_dim)))
        return rotate(q, angles).transpose(1, 2)

    def keys_values(self, x: Tensor, angles: Angles) -> tuple[Tensor, Tensor]:
        """`[batch, kv_heads, rows, head_dim]` each."""
        k = self.k_norm(self.k_proj(x).unflatten(-1, (-1, self.head_dim)))
        v: Tensor = self.v_proj(x).unflatten(-1, (-1, self.head_dim))
        return rotate(k, angles).transpose(1, 2), v.transpose(1, 2)


class Mlp(nn.Module):
    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        self.gate_proj = linear(config.hidden_size, config.intermediate_size)
        self.up_proj = linear(config.hidden_size, config.intermediate_size)
        self.down_proj = linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class DraftLayer(nn.Module):
    """Pre-norm attention over context and block, then SwiGLU, each between two convolutions."""

    def __init__(self, config: DrafterConfig) -> None:
        super().__init__()
        d, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm, self.post_attention_layernorm = Norm(d, eps), Norm(d, eps)
        self.self_attn, self.mlp = Attention(config), Mlp(config)
        self.attention_conv = DynamicConv(config) if config.conv else None
        self.mlp_conv = DynamicConv(config) if config.conv else None

    def forward(
        self, x: Tensor, features: Tensor, at: Angles, angles: Angles, mask: Tensor
    ) -> Tensor:
        """Blocks `[batch, blocks, size, hidden]`; `features` `[batch, tokens, hidden]` with angles
        `at`; `angles` of the blocks' rows; `mask` `[batch, 1, blocks * size, tokens + blocks *
        size]`, added to scores."""
        q, block_k, block_v, after = self.before(x, angles)
        k, v = self.self_attn.keys_values(features, at)
        shared = self.self_attn.group
        keys = torch.cat((k, block_k), dim=2).repeat_interleave(shared, dim=1)
        values = torch.cat((v, block_v), dim=2).repeat_interleave(shared, dim=1)
        mixed = attend(q, keys, values, mask)
        return self.after(x, mixed, after)

    def before(self, x: Tensor, angles: Angles) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys, values of the blocks' rows; coefficients of the second convolution."""
        normed = self.input_layernorm(x)
        inner, after = normed, None
        if self.attention_conv is not None:
            first, after = self.attention_conv.kernels(normed)
            inner = self.attention_conv.apply_kernel(normed, first)
        inner = inner.flatten(1, 2)
        k, v = self.self_attn.keys_values(inner, angles)
        return self.self_attn.queries(inner, angles), k, v, after

    def after(self, x: Tensor, mixed: Tensor, kernel: Tensor | None) -> Tensor:
        """What follows attention's `[batch, heads, rows, head_dim]`."""
        out: Tensor = self.self_attn.o_proj(mixed.transpose(1, 2).flatten(-2)).view_as(x)
        if self.attention_conv is not None and kernel is not None:
            out = self.attention_conv.apply_kernel(out, kernel)
        x = x + out
        normed = self.post_attention_layernorm(x)
        if self.mlp_conv is None:
            plain: Tensor = x + self.mlp(normed)
            return plain
        first, last = self.mlp_conv.kernels(normed)
        inner = self.mlp(self.mlp_conv.apply_kernel(normed, first))
        return x + self.mlp_conv.apply_kernel(inner, last)


def rotate(heads: Tensor, angles: Angles) -> Tensor:
    """Rotate `[batch, rows, heads, head_dim]`: a head's halves against each other."""
    cos, sin = angles
    turned: Tensor = heads * cos + heads.roll(heads.shape[-1] // 2, -1) * sin
    return turned
