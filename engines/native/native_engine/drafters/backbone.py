"""The stack that DFlash, DFlash2 and DSpark share: fused target features injected as keys and
values, and a block of rows that attends to them (DFlash, arXiv 2602.06036, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from native_engine.drafters.attention import BlockRows
from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.context_cache import Angles, ContextCache, Places
from native_engine.drafters.dynamic_conv import DynamicConv, convolved
from native_engine.linear import Linear
from native_engine.llama import swiglu
from native_engine.rope import rotate_, rotate_into
from native_engine.targets.modules import RmsNorm
from native_engine.targets.source import TensorSource

Pack = Callable[[Tensor], Linear]


@dataclass(frozen=True)
class DraftLayer:
    """One pre-norm layer; `window` and `causal` say what its rows see."""

    window: int | None
    causal: bool
    input_norm: RmsNorm
    q: Linear
    kv: Linear
    q_norm: RmsNorm
    k_norm: RmsNorm
    o: Linear
    attention_conv: DynamicConv | None
    post_norm: RmsNorm
    gate_up: Linear
    down: Linear
    mlp_conv: DynamicConv | None

    @classmethod
    def load(
        cls, config: DrafterConfig, source: TensorSource, i: int, kv: Tensor, pack: Pack
    ) -> DraftLayer:
        """`kv`: the layer's k_proj above its v_proj, `[2 * kv_heads * head_dim, hidden]`."""
        c, at = config, f"layers.{i}"
        d, ff = c.hidden_size, c.intermediate_size

        def norm(name: str, width: int) -> RmsNorm:
            return RmsNorm(source.take(f"{at}.{name}.weight", width), c.rms_norm_eps)

        def take(name: str, rows: int, columns: int) -> Tensor:
            return source.take(f"{at}.{name}_proj.weight", rows, columns)

        def conv(name: str) -> DynamicConv | None:
            return DynamicConv.load(c, source, f"{at}.{name}", pack) if c.conv else None

        gate_up = (take("mlp.gate", ff, d), take("mlp.up", ff, d))
        return cls(
            window=c.windows[i],
            causal=c.causal[i],
            input_norm=norm("input_layernorm", d),
            q=pack(take("self_attn.q", c.heads * c.head_dim, d)),
            kv=pack(kv),
            q_norm=norm("self_attn.q_norm", c.head_dim),
            k_norm=norm("self_attn.k_norm", c.head_dim),
            o=pack(take("self_attn.o", d, c.heads * c.head_dim)),
            attention_conv=conv("attention_conv"),
            post_norm=norm("post_attention_layernorm", d),
            gate_up=pack(torch.cat(gate_up)),
            down=pack(take("mlp.down", d, ff)),
            mlp_conv=conv("mlp_conv"),
        )


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
            DraftLayer.load(c, source, i, kv[2 * width * i : 2 * width * (i + 1)], pack)
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
        for i, layer in enumerate(self._layers):
            x = self._layer(i, layer, x, rows, angles, cache)
        return self._norm(x)

    def _layer(
        self,
        i: int,
        layer: DraftLayer,
        x: Tensor,
        rows: BlockRows,
        angles: Angles,
        cache: ContextCache,
    ) -> Tensor:
        def attention(inner: Tensor) -> Tensor:
            heads = (len(inner), -1, self.config.head_dim)
            kv = layer.kv(inner).view(len(inner), 2, -1, self.config.head_dim)
            rotate_into(kv[:, 0], layer.k_norm(kv[:, 0]), *angles)
            cache.write(i, rows.places, kv)
            q = layer.q_norm(layer.q(inner).view(heads))
            rotate_(q, *angles)
            return layer.o(rows.attend(q, cache, i, rows.sight(layer.window, layer.causal)))

        def mlp(inner: Tensor) -> Tensor:
            return layer.down(swiglu(layer.gate_up(inner)))

        x = convolved(layer.attention_conv, layer.input_norm(x), x, rows.size, attention)
        return convolved(layer.mlp_conv, layer.post_norm(x), x, rows.size, mlp)
