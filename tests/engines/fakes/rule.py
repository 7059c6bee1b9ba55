"""The fake engine's next-token rule, written a second time for the tests."""


def row(prefix: list[int]) -> list[float]:
    return [((sum(prefix) * 31 + len(prefix) * 7 + i * 53) % 101) / 8 for i in range(97)]


def greedy(prompt: list[int], count: int) -> tuple[int, ...]:
    ids = list(prompt)
    for _ in range(count):
        values = row(ids)
        ids.append(values.index(max(values)))
    return tuple(ids[len(prompt) :])
