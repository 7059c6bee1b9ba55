"""The stack that DFlash, DFlash2 and DSpark share: fused target features injected as keys and
values, and a block of rows that attends to them (DFlash, arXiv 2602.06036, section 3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from native_engine.drafters.attention import BlockRows
from native_engine.drafters.config import DrafterConfig
from native_engine.drafters.context_cache import ContextCache
from native_engine.drafters.dynamic_conv import DynamicConv, convolved
from native_engine.drafters.rope import rotary
from native_engine.linear import Linear
from native_engine.llama import swiglu
from native_engine.rope import rotate_
from native_engine.targets.norms import RmsNorm
from native_engine.targets.rotary import Rotary
from native_engine.targets.source import TensorSource

Pack = Callable[[Tensor], Linear]
Angles = tuple[Tensor, Tensor]


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
    def load(cls, config: DrafterConfig, source: TensorSource, i: int, pack: Pack) -> DraftLayer:
        c, at = config, f"layers.{i}"
        d, ff, kv = c.hidden_size, c.intermediate_size, c.kv_heads * c.head_dim

        def norm(name: str, width: int) -> RmsNorm:
            return RmsNorm(source.take(f"{at}.{name}.weight", width), c.rms_norm_eps)

        def take(name: str, rows: int, columns: int) -> Tensor:
            return source.take(f"{at}.{name}_proj.weight", rows, columns)

        def conv(name: str) -> DynamicConv | None:
            return DynamicConv.load(c, source, f"{at}.{name}", pack) if c.conv else None

        k_v = (take("self_attn.k", kv, d), take("self_attn.v", kv, d))
        gate_up = (take("mlp.gate", ff, d), take("mlp.up", ff, d))
        return cls(
            window=c.windows[i],
            causal=c.causal[i],
            input_norm=norm("input_layernorm", d),
            q=pack(take("self_attn.q", c.heads * c.head_dim, d)),
            kv=pack(torch.cat(k_v)),
            q_norm=norm("self_attn.q_norm", c.head_dim),
            k_norm=norm("self_attn.k_norm", c.head_dim),
            o=pack(take("self_attn.o", d, c.heads * c.head_dim)),
            attention_conv=conv("attention_conv"),
            post_norm=norm("post_attention_layernorm", d),
            gate_up=pack(torch.cat(gate_up)),
            down=pack(take("mlp.down", d, ff)),
            mlp_conv=conv("mlp_conv"),
        )

    def keys_values(self, x: Tensor, angles: Angles, head_dim: int) -> Tensor:
        """Keys, normed and rotated, and values of `[rows, hidden]`: `[rows, 2, kv_heads, hd]`."""
        kv = self.kv(x).view(x.shape[0], 2, -1, head_dim)
        keys = self.k_norm(kv[:, 0])
        rotate_(keys, *angles)
        return torch.stack((keys, kv[:, 1]), dim=1)


class Backbone:
    """`fuse` makes context features of taps, `append` commits them, `block` runs drafted rows."""

    def __init__(self, config: DrafterConfig, source: TensorSource, pack: Pack) -> None:
        d, eps = config.hidden_size, config.rms_norm_eps
        fc = source.take("fc.weight", d, len(config.taps) * d)
        self.config = config
        self.dtype, self.device = fc.dtype, fc.device
        self._fc = pack(fc)
        self._hidden_norm = RmsNorm(source.take("hidden_norm.weight", d), eps)
        self._layers = [DraftLayer.load(config, source, i, pack) for i in range(config.layers)]
        self._norm = RmsNorm(source.take("norm.weight", d), eps)
        self._rotary: Rotary = rotary(config, self.device, self.dtype)

    def new_cache(self, slots: int, capacity: int) -> ContextCache:
        """Room for `capacity` committed rows a slot, and a block after them."""
        rows = capacity + self.config.block_size
        return ContextCache(self.config, slots, rows, self.device, self.dtype)

    def fuse(self, taps: Sequence[Tensor]) -> Tensor:
        """Context features `[rows, hidden]` of the target's taps, `[rows, hidden]` each."""
        features = torch.cat([tap.to(self.dtype) for tap in taps], dim=-1)
        return self._hidden_norm(self._fc(features))

    def append(
        self, features: Tensor, slots: Tensor, positions: Tensor, cache: ContextCache
    ) -> None:
        """Inject features as keys and values of every layer: neither the layers' input norms nor
        their convolutions apply to context."""
        angles = self._rotary.at(positions)
        for i, layer in enumerate(self._layers):
            kv = layer.keys_values(features, angles, self.config.head_dim)
            cache.write(i, slots, positions, kv)

    def block(self, x: Tensor, rows: BlockRows, cache: ContextCache) -> Tensor:
        """Embedded blocks `[n * block, hidden]` to final normed hidden states of that shape."""
        angles = self._rotary.at(rows.positions)
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
            hd = self.config.head_dim
            cache.write(i, rows.slot_of_row, rows.positions, layer.keys_values(inner, angles, hd))
            q = layer.q_norm(layer.q(inner).view(x.shape[0], -1, hd))
            rotate_(q, *angles)
            sight = rows.sight(layer.window, layer.causal)
            return layer.o(rows.attend(q, cache, i, sight))

        def mlp(inner: Tensor) -> Tensor:
            return layer.down(swiglu(layer.gate_up(inner)))

        x = x + convolved(layer.attention_conv, layer.input_norm(x), rows.size, attention)
        return x + convolved(layer.mlp_conv, layer.post_norm(x), rows.size, mlp)
