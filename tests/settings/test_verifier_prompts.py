"""The verifier-only set: what it must hold for any setting, and how its sizes follow."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import settings.verifier_prompts as module
from settings.errors import SettingError
from settings.loading import load_setting
from settings.paths import checkout_root
from settings.prompts import heldout_prompts, search_prompts, tokenizer_of
from settings.rules import check_rules
from settings.schema import Setting, Verification
from settings.verifier_prompts import VerifierPrompt, verifier_prompts, verifier_sizes
from settings.weights import ensure_target

TINY = checkout_root() / "tests/data/settings/tiny"
RANDOM = ("random_ids", "page_border", "long_answer")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECFARM_DATA", str(tmp_path_factory.mktemp("data")))
        setting = load_setting(TINY)
        yield setting, ensure_target(setting)


def sized(setting: Setting, total: int, **verification: int) -> Setting:
    serving = setting.serving.model_copy(update={"max_total_tokens": total})
    return setting.model_copy(
        update={"serving": serving, "verification": Verification(**verification)}
    )


def by_kind(prompts: tuple[VerifierPrompt, ...], clients: int) -> dict[str, list[VerifierPrompt]]:
    found: dict[str, list[VerifierPrompt]] = {}
    for prompt in prompts:
        if (prompt.clients > 1) == (clients > 1):
            found.setdefault(prompt.kind, []).append(prompt)
    return found


def test_the_embedded_default_gets_every_kind_at_full_size() -> None:
    sizes = verifier_sizes(load_setting("cpu_c1_smollm2-135m_ngram"))
    assert (sizes.long_prompt, sizes.long_answer) == (690, 720)
    assert sizes.long_prompt > 512 and sizes.long_prompt + sizes.answer > 700
    assert sizes.longest_prompt + sizes.last_answer == 2048
    assert sizes.new_tokens == 1000 and sizes.clients == 8


def test_a_tiny_context_gets_a_small_set_that_fits(tiny) -> None:
    setting, folder = tiny
    prompts = verifier_prompts(setting, folder, "s")
    total = setting.serving.max_total_tokens
    assert all(0 < len(p.prompt_ids) + p.max_new_tokens <= total for p in prompts)
    assert all(p.max_new_tokens > 0 for p in prompts)
    alone = by_kind(prompts, 1)
    (limit,) = alone["near_limit"]
    assert len(limit.prompt_ids) + limit.max_new_tokens == total
    (long,) = alone["long_answer"]
    assert long.max_new_tokens == total // 2 and long.ignore_eos
    assert sum(p.max_new_tokens for p in prompts if p.clients == 1) >= 1000


@pytest.mark.parametrize("total", [64, 256, 1024])
def test_any_context_holds_its_set(tiny, total: int) -> None:
    setting = sized(tiny[0], total)
    short = setting.decoding.model_copy(update={"max_new_tokens": 8})
    source = setting.prompts.heldout[0].model_copy(update={"count": 1})
    prompts = setting.prompts.model_copy(update={"search": (source,), "heldout": (source,)})
    setting = setting.model_copy(update={"decoding": short, "prompts": prompts})
    if total == 64:
        with pytest.raises(SettingError, match="fit"):
            verifier_prompts(setting, tiny[1], 1)
        return
    found = verifier_prompts(setting, tiny[1], 1)
    assert all(len(p.prompt_ids) + p.max_new_tokens <= total for p in found)


def test_kinds_and_counts(tiny) -> None:
    prompts = verifier_prompts(*tiny, "s")
    alone, together = by_kind(prompts, 1), by_kind(prompts, 8)
    assert {
        "ordinary",
        "random_ids",
        "shuffled",
        "long_prompt",
        "near_limit",
        "long_text",
        "longer_text",
        "long_answer",
        "page_border",
        "stop_token",
        "stop_string",
        "stop_ignored",
    } == set(alone)
    lengths = [len(p.prompt_ids) for p in alone["page_border"]]
    assert sorted(lengths) == [15, 16, 17, 63, 64, 65, 127, 128, 129]
    assert {p.max_new_tokens for p in alone["page_border"]} == {1, 2, 7}
    assert (
        len(
            {p.prompt_ids for case in ("token", "string", "ignored") for p in alone[f"stop_{case}"]}
        )
        == 2
    )
    assert all(p.ignore_eos for p in alone["stop_ignored"])
    assert not any(p.ignore_eos for p in alone["stop_token"] + alone["stop_string"])
    many = [p for group in together.values() for p in group]
    assert len(many) == 16 and all(p.clients == 8 for p in many)
    asked_alone = {p.prompt_ids for p in prompts if p.clients == 1}
    again = [p for p in many if p.prompt_ids in asked_alone]
    assert 8 <= len(again) < 16, "the same ones and different ones"
    once = {"near_limit", "long_answer", "long_text", "longer_text"}
    assert set(alone) - once == set(together), "each kind also at once"
    assert len({p.id for p in prompts}) == len(prompts)


def test_the_seed_decides(tiny) -> None:
    first = verifier_prompts(*tiny, "a")
    assert first == verifier_prompts(*tiny, "a")
    other = verifier_prompts(*tiny, "b")
    kinds = [Counter(p.kind for p in drawn if p.clients == 1) for drawn in (first, other)]
    assert kinds[0] == kinds[1]
    assert not {p.prompt_ids for p in first} & {p.prompt_ids for p in other}


def test_random_ids_are_plain_and_hard_to_copy(tiny) -> None:
    tokenizer = tokenizer_of(tiny[1])
    special = set(tokenizer.all_special_ids)
    drawn = [p for p in verifier_prompts(*tiny, "s") if p.kind in RANDOM]
    ids = [i for p in drawn for i in p.prompt_ids[1:]]
    assert special and not special & set(ids)
    assert len(set(ids)) > 200
    bigrams = [pair for p in drawn for pair in zip(p.prompt_ids, p.prompt_ids[1:], strict=False)]
    assert max(Counter(bigrams).values()) <= 3


def test_random_ids_follow_the_token_that_every_prompt_begins_with(tiny) -> None:
    start = tokenizer_of(tiny[1]).convert_tokens_to_ids("<|im_start|>")
    assert {p.prompt_ids[0] for p in heldout_prompts(*tiny, "s")} == {start}
    drawn = [p for p in verifier_prompts(*tiny, "s") if p.kind in RANDOM]
    assert {p.prompt_ids[0] for p in drawn} == {start}
    lengths = [len(p.prompt_ids) for p in drawn if p.kind in ("random_ids", "long_answer")]
    assert lengths and min(lengths) >= 24 and max(lengths) <= 48


def test_where_prompts_begin_with_different_tokens_random_ids_follow_none(
    tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = heldout_prompts(*tiny, "s")
    parted = [replace(held[0], prompt_ids=held[0].prompt_ids[1:]), *held[1:]]
    monkeypatch.setattr(module, "heldout_prompts", lambda *_: list(parted))
    drawn = [p for p in verifier_prompts(*tiny, "s") if p.kind in RANDOM]
    special = set(tokenizer_of(tiny[1]).all_special_ids)
    assert not special & {i for p in drawn for i in p.prompt_ids}


def test_long_text_is_held_out_prompts_as_they_are(tiny) -> None:
    setting = sized(tiny[0], 1024, long_prompt_tokens=200)
    alone = by_kind(verifier_prompts(setting, tiny[1], "s"), 1)
    (long,), (longer,), (shuffled,) = (
        alone[kind] for kind in ("long_text", "longer_text", "long_prompt")
    )
    asked = setting.decoding.max_new_tokens
    assert (len(long.prompt_ids), len(longer.prompt_ids)) == (200, (200 + 1024 - asked) // 2)
    assert long.max_new_tokens == longer.max_new_tokens == 2 * asked
    tokenizer = tokenizer_of(tiny[1])
    known = [p.text for p in heldout_prompts(setting, tiny[1], "s")]

    def holds(prompt: VerifierPrompt) -> list[bool]:
        said = tokenizer.decode(prompt.prompt_ids)
        return [text in said for text in known]

    assert sum(holds(long)) >= 3, "it may be cut before the last"
    assert all(holds(longer)) and not any(holds(shuffled))


def test_nothing_of_it_is_a_search_prompt(tiny) -> None:
    searched = {p.prompt_ids for p in search_prompts(*tiny)}
    assert not searched & {p.prompt_ids for p in verifier_prompts(*tiny, "s")}


def test_the_setting_may_say_how_large(tiny) -> None:
    setting = sized(
        tiny[0],
        256,
        new_tokens=2000,
        answer_tokens=40,
        long_answer_tokens=200,
        long_prompt_tokens=100,
        clients=12,
    )
    prompts = verifier_prompts(setting, tiny[1], "s")
    alone = by_kind(prompts, 1)
    assert alone["long_answer"][0].max_new_tokens == 200
    assert len(alone["long_prompt"][0].prompt_ids) == 100
    assert {p.max_new_tokens for p in alone["random_ids"]} == {40}
    assert sum(p.max_new_tokens for p in prompts if p.clients == 1) >= 2000
    assert {p.clients for p in prompts} == {1, 12}
    assert len([p for p in prompts if p.clients == 12]) == 24


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("answer_tokens", 209, "208 or less"),
        ("long_answer_tokens", 256, "208 or less"),
        ("long_prompt_tokens", 256, "255 or less"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(tiny, field: str, value: int, said: str) -> None:
    with pytest.raises(SettingError, match=rf"verification\.{field} = {value}") as caught:
        check_rules(sized(tiny[0], 256, **{field: value}), TINY / "setting.toml")
    assert said in str(caught.value)


def test_a_wrong_key_or_too_few_clients_is_named(tmp_path: Path) -> None:
    for name in ("tiny", "tiny-fp32"):
        (tmp_path / name).mkdir()
        text = (TINY.parent / name / "setting.toml").read_text()
        (tmp_path / name / "setting.toml").write_text(text + "\n[verification]\nclients = 8\n")
    file = tmp_path / "tiny/setting.toml"
    assert load_setting(file).verification.clients == 8
    good = file.read_text()
    for wrong, said in (("client = 8", "'clients'"), ("clients = 4", "clients = 4")):
        file.write_text(good.replace("clients = 8", wrong))
        with pytest.raises(SettingError, match="verification") as caught:
            load_setting(file)
        assert said in str(caught.value)
