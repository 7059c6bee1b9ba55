"""Which slot of the target's state a request gets, and what of an earlier request it may keep."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from native_engine.errors import BadRequest
from native_engine.requests import GenerateRequest
from native_engine.targets.protocol import TargetState


class Slots:
    """`count` slots of `capacity` tokens. With `reuse` a freed slot keeps its tokens until it is
    taken again, and a request that begins alike goes on from there. State that cannot rewind serves
    only requests that begin with all it holds.

    take, give back: on the engine thread. flush: whenever no request runs."""

    def __init__(self, state: TargetState, count: int, capacity: int, reuse: bool = False) -> None:
        self._state = state
        self._reuse = reuse
        # From the left: empty slots, then the one freed longest ago.
        self._free = deque(range(count))
        self._kept: dict[int, list[int]] = {}
        self.count, self.capacity = count, capacity
        self.prefix_hits = 0
        self.cached_tokens = 0

    def check(self, request: GenerateRequest) -> None:
        """Raises BadRequest for what no slot can hold: drafts never need more than the answer."""
        prompt, new = len(request.prompt_ids), request.max_new_tokens
        if not prompt:
            raise BadRequest("input_ids", "an empty prompt")
        if prompt + new > self.capacity:
            text = f"{prompt} prompt tokens + {new} exceed max_total_tokens {self.capacity}"
            raise BadRequest("max_new_tokens", text)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def kept_tokens(self) -> int:
        """Tokens that free slots keep for reuse."""
        return sum(map(len, self._kept.values()))

    def take(self, request: GenerateRequest) -> tuple[int, int]:
        """A free slot and how many of the prompt's tokens it already holds."""
        slot, held = self._best(request)
        self._free.remove(slot)
        kept = self._kept.pop(slot, [])
        if held:
            self.prefix_hits += 1
            self.cached_tokens += held
            if held < len(kept):
                self._state.commit(slot, held)
        else:
            self._state.reset(slot)
        return slot, held

    def give_back(self, slot: int, tokens: Sequence[int]) -> None:
        """The slot's request ended; `tokens` are what the state holds there."""
        if self._reuse and tokens:
            self._kept[slot] = list(tokens)
            self._free.append(slot)
        else:
            self._free.appendleft(slot)

    def flush(self) -> None:
        """Forget what free slots keep."""
        self._kept.clear()
        self.prefix_hits = self.cached_tokens = 0

    def _best(self, request: GenerateRequest) -> tuple[int, int]:
        slot, held = self._free[0], 0
        if self._kept:
            prompt = list(request.prompt_ids)
            # At least one row is computed, and every row that is asked for.
            limit = len(prompt) - 1
            if request.logprobs is not None and request.logprobs.start is not None:
                limit = min(limit, request.logprobs.start)
            for candidate, kept in self._kept.items():
                common = _common_prefix(kept, prompt, limit)
                if common > held and (self._state.rewinds or common == len(kept)):
                    slot, held = candidate, common
        return slot, held


def _common_prefix(a: list[int], b: list[int], limit: int) -> int:
    """Length of the longest common prefix, at most `limit`: halving, slices compare in C."""
    low, high = 0, min(len(a), len(b), limit)
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
