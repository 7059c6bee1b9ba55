"""Makes the drafted tokens of this mechanism from the target's own greedy answers.

    python -m explorers.catalogue.reduced_draft_vocabulary.make_ids FOLDER_OR_FILE .. [--count 4096]

reads shards of `engines.training` (`shard-*.safetensors`; prompts are not counted) or JSON lines
that are each a list of token ids, and puts the list into change.patch beside this file. Every ninth
answer is held back: the share of its tokens that the list holds is printed. Where fewer tokens
occur than are wanted, the list is filled up with the lowest ids: the tokenizer's first merges.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

PATCH = Path(__file__).with_name("change.patch")
TOKENS = "native_engine/drafters/drafted_tokens.txt"
_HELD_BACK = 9


def answers(sources: Iterable[Path]) -> Iterator[list[int]]:
    """Token ids of each answer of files, or of the shards of folders."""
    for source in sources:
        for path in sorted(source.glob("shard-*.safetensors")) if source.is_dir() else [source]:
            if path.suffix == ".safetensors":
                yield from shard_answers(path)
            else:
                yield from map(json.loads, path.read_text().splitlines())


def shard_answers(path: Path) -> Iterator[list[int]]:
    from engines.training.shards import read_shard

    shard = read_shard(path)
    for i in range(len(shard)):
        yield shard.sequence(i)[int(shard.prompt_lengths[i]) :]


def frequent(counts: Counter[int], count: int) -> list[int]:
    """The `count` most frequent ids, rising; the lowest ids where there are too few."""
    ranked = [token for token, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    unseen = (token for token in itertools.count() if token not in counts)
    return sorted(itertools.islice(itertools.chain(ranked, unseen), count))


def listing(ids: list[int], width: int = 96) -> str:
    """Rising ids as lines of ids and ranges (`5 8-11`)."""
    items, first = [], ids[0]
    for here, following in zip(ids, [*ids[1:], -1], strict=True):
        if following != here + 1:
            items.append(str(here) if first == here else f"{first}-{here}")
            first = following
    lines = [""]
    for item in items:
        if len(lines[-1]) + len(item) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {item}".strip()
    return "\n".join(lines) + "\n"


def with_file(patch: str, path: str, text: str) -> str:
    """`patch` in which it adds new file `path` with `text`, in place of what it added before."""
    body = text.encode()
    blob = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()[:7]
    lines = text.splitlines()
    section = (
        f"diff --git a/{path} b/{path}\nnew file mode 100644\nindex 0000000..{blob}\n"
        f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n"
    ) + "".join(f"+{line}\n" for line in lines)
    sections = re.split(r"(?m)^(?=diff --git )", patch)
    kept = [part for part in sections if part and not part.startswith(f"diff --git a/{path} ")]
    return "".join(sorted([*kept, section]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Put the drafted tokens into change.patch")
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=4096)
    given = parser.parse_args()
    seen, held = Counter[int](), Counter[int]()
    for number, answer in enumerate(answers(given.sources)):
        (held if number % _HELD_BACK == 0 else seen).update(answer)
    ids = frequent(seen, given.count)
    known = set(ids)
    share = sum(n for token, n in held.items() if token in known) / max(1, held.total())
    PATCH.write_text(with_file(PATCH.read_text(), TOKENS, listing(ids)))
    print(f"{len(ids)} tokens from {seen.total()}; {share:.4f} of {held.total()} held back")


if __name__ == "__main__":
    main()
