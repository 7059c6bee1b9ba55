"""Makes the static n-gram table of this mechanism from the target's own greedy answers.

    python explorers/catalogue/static_table/make_table.py answers --out answers.jsonl
    python explorers/catalogue/static_table/make_table.py table answers.jsonl --out table.txt

Prompts are templates written here (seed 7): none comes from a prompt set a setting uses, so neither
search nor held-out prompts are in the table. `answers` takes about 15 minutes on 2 cores.
`table.txt` has one entry a line: one to three context ids and the id that most often follows. An
entry that shorter contexts predict alike is left out.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from pathlib import Path

_TOPICS = [
    "photosynthesis",
    "volcanoes",
    "the French Revolution",
    "black holes",
    "machine learning",
    "supply and demand",
    "the water cycle",
    "vaccines",
    "plate tectonics",
    "the Roman Empire",
    "climate change",
    "DNA",
    "gravity",
    "jazz music",
    "electric cars",
    "the stock market",
    "bread baking",
    "chess openings",
    "the immune system",
    "renewable energy",
    "ancient Egypt",
    "the internet",
    "dolphins",
    "coral reefs",
    "nutrition",
    "yoga",
    "time management",
    "public speaking",
    "gardening",
    "budgeting",
    "the moon landing",
    "quantum computing",
    "democracy",
    "Shakespeare",
    "the Great Wall of China",
    "coffee",
    "bicycles",
    "bees",
    "earthquakes",
    "compilers",
]
_TASKS = [
    "reverses a list",
    "checks whether a number is prime",
    "counts the words in a sentence",
    "returns the factorial of n",
    "merges two sorted lists",
    "finds the maximum in a list",
    "removes duplicates from a list",
    "computes the Fibonacci sequence",
    "sorts a dictionary by value",
    "checks whether a string is a palindrome",
    "counts vowels in a string",
    "flattens a nested list",
    "computes the average of numbers",
    "converts Celsius to Fahrenheit",
    "finds common elements of two lists",
    "returns the n-th triangular number",
    "rotates a list by k places",
    "computes the greatest common divisor",
    "transposes a matrix",
    "validates brackets",
]
_WHO = ["Tom", "Maria", "Ahmed", "Lucy", "Chen", "Olga", "Sam", "Nina", "Peter", "Aisha"]
_THINGS = ["apples", "books", "marbles", "pencils", "stickers", "cookies", "cards", "oranges"]
_ABOUT = (
    "Explain {} to a beginner.",
    "Write a short essay about {}.",
    "List five facts about {}.",
    "What are the pros and cons of {}?",
    "Write a blog post introduction about {}.",
    "Compose an email to a friend about {}.",
)
_CODE = (
    "Write a Python function that {}.",
    'Complete this Python function:\n\ndef solve(x):\n    """This function {}.\n'
    '    >>> solve(...)\n    """\n',
    "Explain step by step how to write code that {}.",
    "Write unit tests for a function that {}.",
)
_WORD_PROBLEMS = 160


def prompts() -> list[str]:
    """All template prompts, shuffled, always the same."""
    rng = random.Random(7)
    found = [form.format(topic) for topic in _TOPICS for form in _ABOUT]
    found += [form.format(task) for task in _TASKS for form in _CODE]
    found += [_word_problem(rng) for _ in range(_WORD_PROBLEMS)]
    rng.shuffle(found)
    return found


def _word_problem(rng: random.Random) -> str:
    a, b, c = rng.randint(3, 40), rng.randint(2, 12), rng.randint(2, 9)
    w, v = rng.sample(_WHO, 2)
    th = rng.choice(_THINGS)
    numbers = ", ".join(str(rng.randint(-50, 99)) for _ in range(7))
    return rng.choice(
        (
            f"{w} has {a} {th}. {v} gives {w} {b} more {th} each day for {c} days. "
            f"How many {th} does {w} have now?",
            f"A box of {th} costs ${b}. {w} buys {c} boxes and pays with a ${a + b * c} note. "
            f"How much change does {w} get?",
            f"{w} reads {a} pages a day. How many pages does {w} read in {b} weeks if {w} rests "
            f"{c % 6} days a week?",
            f"{v} earns ${a} an hour and works {b} hours a day for {c} days. "
            f"How much does {v} earn in total?",
            f"Calculate {a} * {b} + {c}. Show your work.",
            f"What is {a * b} divided by {b}? Give only the answer.",
            f"Sort these numbers in increasing order: {numbers}",
            f"Is the following sequence arithmetic: {a}, {a + b}, {a + 2 * b}, {a + 3 * b}? "
            "Explain.",
        )
    )


def answer(out: Path, setting_name: str, batch: int = 32, new_tokens: int = 160) -> None:
    """The target's greedy answers by transformers' generate, token ids, one JSON list a line."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from settings.loading import load_setting
    from settings.weights import ensure_target

    folder = ensure_target(load_setting(setting_name))
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    end = tokenizer.eos_token_id
    with out.open("w") as file:
        todo = prompts()
        for first in range(0, len(todo), batch):
            chats = [[{"role": "user", "content": p}] for p in todo[first : first + batch]]
            texts = [
                tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
                for chat in chats
            ]
            inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
            with torch.inference_mode():
                rows = model.generate(
                    **inputs, max_new_tokens=new_tokens, do_sample=False, pad_token_id=end
                )
            for row in rows[:, inputs["input_ids"].shape[1] :].tolist():
                ids = row[: row.index(end) + 1] if end in row else row
                file.write(json.dumps(ids) + "\n")
            print(f"{min(first + batch, len(todo))} of {len(todo)} answers", flush=True)


def table(answers: Path, out: Path) -> None:
    """Most frequent followers of one to three tokens, without what shorter contexts predict."""
    counts: list[dict[tuple[int, ...], Counter[int]]] = [defaultdict(Counter) for _ in range(4)]
    for line in answers.read_text().splitlines():
        ids = json.loads(line)
        for at in range(1, len(ids)):
            for n in range(1, min(3, at) + 1):
                counts[n][tuple(ids[at - n : at])][ids[at]] += 1
    best = [{key: c.most_common(1)[0][0] for key, c in level.items()} for level in counts]
    lines = []
    for n in (1, 2, 3):
        for key, following in sorted(best[n].items()):
            if n == 1 or best[n - 1].get(key[1:]) != following:
                lines.append(" ".join(map(str, (*key, following))))
    out.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} entries")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the static n-gram table")
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("answers")
    first.add_argument("--setting", default="cpu_c1_smollm2-135m_ngram")
    first.add_argument("--out", type=Path, required=True)
    second = commands.add_parser("table")
    second.add_argument("answers", type=Path)
    second.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "answers":
        answer(given.out, given.setting)
    else:
        table(given.answers, given.out)


if __name__ == "__main__":
    main()
