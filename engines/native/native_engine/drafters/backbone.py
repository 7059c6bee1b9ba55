"""The stack that DFlash, DFlash2 and DSpark share: fused target features injected as keys and
values, and a block of rows that attends to them (DFlash, arXiv 2602.06036, section 3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from native_engine.drafters.attention import BlockRows
from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.context_cache import Angles, ContextCache, Places
from native_engine.drafters.dynamic_conv import DynamicConv, convolved
from native_engine.llama import swiglu
from native_engine.rope import rotate_, rotate_into
from native_engine.targets.modules import Pack, Reader, RmsNorm
from native_engine.targets.source import TensorSource


class DraftLayer:
    """Pre-norm layer `i`; `window` and `causal` say what its rows see. kv: its k_proj above its
    v_proj, `[2 * kv_heads * head_dim, hidden]`."""

    def __init__(
        self, config: DrafterConfig, source: TensorSource, i: int, kv: Tensor, pack: Pack
    ) -> None:
        c, at, reader = config, f"layers.{i}", Reader(source, pack, config.rms_norm_eps)
        d, inner, attention = c.hidden_size, c.intermediate_size, f"{at}.self_attn"
        self.window, self.causal = c.windows[i], c.causal[i]
        self.input_norm = reader.norm(f"{at}.input_layernorm", d)
        self.q = reader.linear(attention, {"q_proj": c.q_width}, d)
        self.kv = pack(kv)
        self.q_norm = reader.norm(f"{attention}.q_norm", c.head_dim)
        self.k_norm = reader.norm(f"{attention}.k_norm", c.head_dim)
        self.o = reader.linear(attention, {"o_proj": d}, c.q_width)
        self.attention_conv = (
            DynamicConv(c, source, f"{at}.attention_conv", pack) if c.conv else None
        )
        self.post_norm = reader.norm(f"{at}.post_attention_layernorm", d)
        self.gate_up = reader.linear(f"{at}.mlp", {"gate_proj": inner, "up_proj": inner}, d)
        self.down = reader.linear(f"{at}.mlp", {"down_proj": d}, inner)
        self.mlp_conv = DynamicConv(c, source, f"{at}.mlp_conv", pack) if c.conv else None
        self._index, self._head_dim = i, c.head_dim

    def __call__(self, x: Tensor, rows: BlockRows, angles: Angles, cache: ContextCache) -> Tensor:
        def attention(inner: Tensor) -> Tensor:
            kv = self.kv(inner).view(len(inner), 2, -1, self._head_dim)
            rotate_into(kv[:, 0], self.k_norm(kv[:, 0]), *angles)
            cache.write(self._index, rows.places, kv)
            q = self.q_norm(self.q(inner).view(len(inner), -1, self._head_dim))
            rotate_(q, *angles)
            sight = rows.sight(self.window, self.causal)
            return self.o(rows.attend(q, cache, self._index, sight))

        def mlp(inner: Tensor) -> Tensor:
            return self.down(swiglu(self.gate_up(inner)))

        x = convolved(self.attention_conv, self.input_norm(x), x, rows.size, attention)
        return convolved(self.mlp_conv, self.post_norm(x), x, rows.size, mlp)


class Backbone:
    """`fuse` makes context features of taps, `append` commits them, `block` runs drafted rows."""

    def __init__(self, config: DrafterConfig, source: TensorSource, pack: Pack) -> None:
        c, d, eps = config, config.hidden_size, config.rms_norm_eps
        fc = source.take("fc.weight", d, len(config.taps) * d)
        self.config = config
        self.dtype, self.device = fc.dtype, fc.device
        self._fc = pack(fc)
        self._hidden_norm = RmsNorm(source.take("hidden_norm.weight", d), eps)
        # One product makes the context's keys and values of every layer.
        width = c.kv_heads * c.head_dim
        names = [
            f"layers.{i}.self_attn.{name}_proj.weight" for i in range(c.layers) for name in "kv"
        ]
        kv = torch.cat([source.take(name, width, d) for name in names])
        self._layers = [
            DraftLayer(c, source, i, kv[2 * width * i : 2 * width * (i + 1)], pack)
            for i in range(c.layers)
        ]
        self._context_kv = pack(kv)
        self._context_norm = RmsNorm(None, eps)
        gains = [layer.k_norm.gain for layer in self._layers if layer.k_norm.gain is not None]
        self._context_gains = torch.stack(gains).unsqueeze(1)
        self._norm = RmsNorm(source.take("norm.weight", d), eps)

    def new_cache(self, slots: int, capacity: int) -> ContextCache:
        """Room for `capacity` committed rows a slot, and a block after them."""
        rows = capacity + self.config.block_size
        return ContextCache(self.config, slots, rows, self.device, self.dtype)

    def fuse(self, taps: Sequence[Tensor]) -> Tensor:
        """Context features `[rows, hidden]` of the target's taps, `[rows, hidden]` each."""
        features = torch.cat([tap.to(self.dtype) for tap in taps], dim=-1)
        return self._hidden_norm(self._fc(features))

    def append(self, features: Tensor, at: Places, cache: ContextCache) -> None:
        """Inject features as keys and values of every layer: neither the layers' input norms nor
        their convolutions apply to context."""
        c = self.config
        kv = self._context_kv(features).view(len(features), c.layers, 2, c.kv_heads, c.head_dim)
        keys = self._context_norm(kv[:, :, 0].float()) * self._context_gains
        cos, sin = cache.angles(at)
        rotate_into(kv[:, :, 0], keys.to(kv.dtype), cos.unsqueeze(1), sin.unsqueeze(1))
        cache.write_all(at, kv)

    def block(self, x: Tensor, rows: BlockRows, cache: ContextCache) -> Tensor:
        """Embedded blocks `[n * block, hidden]` to final normed hidden states of that shape."""
        angles = cache.angles(rows.places)
        for layer in self._layers:
            x = layer(x, rows, angles, cache)
        return self._norm(x)
