"""State of a hybrid target: slotted keys and values, and recurrent state at the committed row.

A forward pass never moves the recurrent state: every verify step reads the committed state, and
the pass leaves behind the projections of its rows (before the convolution). `commit` replays the
accepted ones through convolution and recurrence: no matrix is multiplied again, and no state is
kept per draft token. A long run of prompt rows keeps the state it ended in instead, for `commit`
to adopt (drafters.md section 4.1 lists engines that do either)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from native_engine.errors import StateError
from native_engine.targets import gated_delta
from native_engine.targets.gated_delta import DeltaRows, DeltaShape, DeltaWeights
from native_engine.targets.kv_slots import KvSlots
from native_engine.targets.protocol import Rows, Span

REPLAY_ROWS = gated_delta.CHUNK_ROWS
"""A sequence's rows of one forward pass that can be accepted in part; longer runs are prompts."""


@dataclass
class Group:
    """Sequences of one forward pass that are mixed together, padded to `t` rows each.

    where: their slots, as an index. index: `[n, t]`, each padded row's row in the pass. rows,
    places: the true rows and where they stand in `n * t`. Per recurrent layer: `windows` (rows
    before the convolution, the slot's last ones first), `gates` (b, a), and `ends` of prompts."""

    where: slice | Tensor
    index: Tensor
    rows: Tensor
    places: Tensor
    prompt: bool
    windows: list[Tensor] = field(default_factory=list)
    gates: list[Tensor] = field(default_factory=list)
    ends: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class _Uncommitted:
    group: Group
    member: int
    rows: int


class HybridState:
    """`kv` of the attention layers; of the recurrent layers `conv` `[slots, layers, conv_rows,
    channels]` and `recurrent` `[slots, layers, value_heads, key_dim, value_dim]` FP32."""

    rewinds = False

    def __init__(
        self, kv: KvSlots, shape: DeltaShape, weights: DeltaWeights, slots: int, dtype: torch.dtype
    ) -> None:
        """`weights` of all recurrent layers, stacked."""
        self.kv, self._shape, self._weights = kv, shape, weights
        layers, device = weights.rate.shape[0], weights.rate.device
        self.conv = torch.zeros(
            slots, layers, shape.conv_rows, shape.channels, dtype=dtype, device=device
        )
        heads = shape.value_heads, shape.key_dim, shape.value_dim
        self.recurrent = torch.zeros(slots, layers, *heads, device=device)
        self._uncommitted: dict[int, _Uncommitted] = {}

    def begin(self, rows: Rows) -> list[Group]:
        """Groups of a pass whose `rows` the `kv` has taken in: short runs together, each prompt
        alone."""
        short = [span for span in rows.spans if span.end - span.begin <= REPLAY_ROWS]
        long = [[span] for span in rows.spans if span.end - span.begin > REPLAY_ROWS]
        groups = []
        for spans in [short, *long] if short else long:
            group = _group(spans, rows.ids.device)
            groups.append(group)
            for member, span in enumerate(spans):
                self._uncommitted[span.slot] = _Uncommitted(group, member, span.end - span.begin)
        return groups

    def mix(self, groups: list[Group], layer: int, mixed: Tensor, ba: Tensor) -> Tensor:
        """Recurrent layer number `layer` on the pass's projections `[total, channels]` and `[total,
        2 * value_heads]`: `[total, value_heads, value_dim]` in their dtype."""
        shape, weights = self._shape, self._weights.layer(layer)
        out = mixed.new_empty(mixed.shape[0], shape.value_heads, shape.value_dim)
        for group in groups:
            state = self.recurrent[group.where, layer]
            window = torch.cat((self.conv[group.where, layer], mixed[group.index]), dim=1)
            gates = ba[group.index]
            rows = DeltaRows.of(window, gates, weights, shape)
            if group.prompt:
                read, end = gated_delta.run_rows(rows, state)
                group.ends.append(end)
                group.windows.append(window[:, -shape.conv_rows :].clone())
            else:
                read = gated_delta.read_rows(rows, state)
                group.windows.append(window)
                group.gates.append(gates)
            true = read.flatten(0, 1).index_select(0, group.places)
            out.index_copy_(0, group.rows, true.to(out.dtype))
        return out

    def commit(self, slot: int, length: int) -> None:
        """Keep the first `length` tokens. StateError when that is behind the committed ones, or
        takes a part of a prompt's rows (more than REPLAY_ROWS in one pass)."""
        accepted = length - self.kv.length(slot)
        last = self._uncommitted.get(slot)
        if accepted < 0:
            text = f"recurrent state cannot go back {-accepted} tokens to {length}"
            raise StateError(slot, f"{text}; reset it and run them again")
        if last and last.group.prompt and 0 < accepted < last.rows:
            text = f"{accepted} of {last.rows} rows; a pass of more than {REPLAY_ROWS}"
            raise StateError(slot, f"{text} rows is committed whole")
        self.kv.commit(slot, length)
        self._uncommitted.pop(slot, None)
        if accepted and last:
            self._advance(slot, last, accepted)

    def reset(self, slot: int) -> None:
        self.kv.reset(slot)
        self._uncommitted.pop(slot, None)
        self.conv[slot].zero_()
        self.recurrent[slot].zero_()

    def _advance(self, slot: int, last: _Uncommitted, accepted: int) -> None:
        group, kept = last.group, self._shape.conv_rows
        if group.prompt:
            torch.cat(group.ends, out=self.recurrent[slot])
            torch.cat(group.windows, out=self.conv[slot])
            return
        # Every layer at once: the layer takes the place of the sequence.
        window = torch.stack([w[last.member, : kept + accepted] for w in group.windows])
        gates = torch.stack([g[last.member, :accepted] for g in group.gates])
        rows = DeltaRows.of(window, gates, self._weights, self._shape)
        self.recurrent[slot] = gated_delta.replay_rows(rows, self.recurrent[slot])
        self.conv[slot] = window[:, accepted:]


def _group(spans: list[Span], device: torch.device) -> Group:
    begins = torch.tensor([[span.begin] for span in spans])
    counts = torch.tensor([[span.end - span.begin] for span in spans])
    longest, slots = int(counts.max()), [span.slot for span in spans]
    at = torch.arange(longest)
    true = at < counts
    # Padded with a row of its own: one of another sequence may hold NaN, which no mask stops.
    index = begins + at * true
    # One sequence's state is read in place, not gathered.
    alone = slice(slots[0], slots[0] + 1)
    return Group(
        where=alone if len(slots) == 1 else torch.tensor(slots, device=device),
        index=index.to(device),
        rows=index[true].to(device),
        places=true.flatten().nonzero().squeeze(1).to(device),
        prompt=longest > REPLAY_ROWS,
    )
