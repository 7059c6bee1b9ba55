"""What a check of a final folder sees: everything whole, or the one thing that was changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.answers import GenerationRequest
from engines.certificate import certificate_bytes, load_certificate, sealed, sha256
from engines.tree_store import TreeStore
from farm.campaign.heldout_draws import Draw, HeldoutPrompts, drawn
from farm.promotion.certification import failed_check
from farm.promotion.checks import Check, State, check_certificate, recorded_prompts
from farm.promotion.export import export_final
from settings.loading import load_setting
from settings.weight_hashes import WeightHashes
from tests.farm.promotion.finals import SEED, SETTING, WEIGHTS, evidence, winner
from tests.farm.report.samples import sample_report

Change = Callable[[dict[str, Any]], object]
DRAWS = (Draw("confirm:c08:0"), Draw("confirm:c08:1"), Draw("exact:c08", 2))


def heldout(seed: str) -> HeldoutPrompts:
    """Six prompts a purpose, two of which every purpose gives."""

    def of(purpose: str) -> tuple[GenerationRequest, ...]:
        own = [int(sha256(f"{seed}{purpose}{n}".encode())[:8], 16) for n in range(4)]
        return tuple(GenerationRequest(f"set/{n}", (n, 7), 160) for n in (5, 6, *own))

    return of


WITH_DRAFTER = replace(
    WEIGHTS, drafter=WeightHashes("checkout:" + "5" * 64, {"model.safetensors": "6" * 64})
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return promoted(tmp_path, monkeypatch)


def promoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: WeightHashes = WEIGHTS
) -> Path:
    """A promoted engine of a real tree store, its prompts drawn from its seed."""
    monkeypatch.setenv("SPECFARM_DATA", str(tmp_path / "data"))
    source = tmp_path / "source"
    source.mkdir(parents=True)
    (source / "engine.toml").write_text("k = 7\n")
    (source / "loop.py").write_text("STEPS = 1\n")
    store = TreeStore(tmp_path / "store")
    stock = store.import_stock(source, "native")
    final = store.commit_files(stock.commit, {"loop.py": b"STEPS = 2\n"}, "Take two steps")
    report = replace(sample_report(), stock_tree=stock.tree_hash)
    best = replace(winner(report), tree_hash=final.tree_hash, commit=final.commit)
    draws = drawn(heldout(SEED), DRAWS)
    given = evidence(stock_commit=stock.commit, heldout=draws, weights=weights)
    return export_final(report, best, store, tmp_path / "final", given)


def changed_drafter(**changes: Any) -> WeightHashes:
    assert WITH_DRAFTER.drafter is not None
    return replace(WITH_DRAFTER, drafter=replace(WITH_DRAFTER.drafter, **changes))


def looked(folder: Path, weights: WeightHashes = WEIGHTS) -> dict[str, Check]:
    data, raw = load_certificate(folder)
    setting = load_setting(SETTING)
    found = check_certificate(folder, data, raw, setting, heldout, weights)
    return {check.name: check for check in found}


def test_a_whole_folder_passes_every_check(folder: Path) -> None:
    found = looked(folder)
    # The hand-made harness hash is of no code: told, not held against the engine.
    assert {name for name, c in found.items() if c.state is not State.OK} == {"harness"}
    assert found["harness"].state is State.DIFFERS
    assert failed_check(list(found.values())) is None
    assert "12 recorded prompts" in found["prompts"].detail


def test_draws_are_recorded_as_they_were_asked(folder: Path) -> None:
    data, _ = load_certificate(folder)
    assert [len(prompts) for prompts in recorded_prompts(data)] == [6, 4, 2]


def change_byte(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = next(iter(sorted(folder.glob(name))))
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(bytes(content))

    return change


@pytest.mark.parametrize(
    ("name", "failing"),
    [
        ("stock.bundle", {"files", "tree"}),
        ("patches/0001-*.patch", {"files", "patch series"}),
        ("engine.lock", {"files"}),
        ("RESULT.md", {"files"}),
        ("certificate.json", {"seal"}),
    ],
)
def test_one_byte_of_any_file_fails(folder: Path, name: str, failing: set[str]) -> None:
    change_byte(name)(folder)
    found = {check for check, c in looked(folder).items() if c.state is State.FAILED}
    assert found >= failing


def forged(folder: Path, change: Change) -> None:
    """Changes the certificate and seals it again: only what it says can give it away."""
    data, _ = load_certificate(folder)
    change(data)
    (folder / "certificate.json").write_bytes(certificate_bytes(sealed(data)))


def swap_prompt_id(data: dict[str, Any]) -> None:
    data["heldout"]["draws"][1]["prompts"][0][1][0] += 1


def drop_prompt(data: dict[str, Any]) -> None:
    del data["heldout"]["draws"][0]["prompts"][-1]


def take_none(data: dict[str, Any]) -> None:
    data["heldout"]["draws"][2]["take"] = 0


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        (lambda d: d["heldout"].update(seed="another"), "seed"),
        (swap_prompt_id, "prompts"),
        (drop_prompt, "prompts"),
        (take_none, "prompts"),
        (lambda d: d["heldout"].update(draws="none"), "prompts"),
        (lambda d: d["hashes"].update(patch_series="0" * 64), "patch series"),
        (lambda d: d["hashes"].update(final_tree="0" * 40), "lock"),
        (lambda d: d["hashes"].update(files={}), "files"),
        (lambda d: d.update(setting="another"), "lock"),
        (lambda d: d["weights"].update(pin="pypi:0"), "weights"),
        (lambda d: d.update(weights=3), "weights"),
    ],
)
def test_what_a_forger_seals_again_is_still_found(
    folder: Path, change: Change, failing: str
) -> None:
    forged(folder, change)
    assert failing in {name for name, c in looked(folder).items() if c.state is State.FAILED}


def test_a_patch_of_another_engine_with_its_hashes_is_another_tree(folder: Path) -> None:
    path = next((folder / "patches").iterdir())
    path.write_text(path.read_text().replace("+STEPS = 2", "+STEPS = 3"))

    def rehash(data: dict[str, Any]) -> None:
        name = f"patches/{path.name}"
        data["hashes"]["files"][name] = sha256(path.read_bytes())
        data["hashes"]["patch_series"] = sha256(f"{sha256(path.read_bytes())}\n".encode())

    forged(folder, rehash)
    found = {name: c for name, c in looked(folder).items() if c.state is State.FAILED}
    assert set(found) == {"tree"} and "final_tree is" in found["tree"].detail


def test_other_weights_fail(folder: Path) -> None:
    found = looked(folder, WeightHashes(WEIGHTS.pin, {"model.safetensors": "9" * 64}))
    assert found["weights"].state is State.FAILED
    assert "9" * 64 in found["weights"].detail and "8" * 64 in found["weights"].detail
    more = {**WEIGHTS.files, "more.safetensors": "8" * 64}
    assert looked(folder, WeightHashes(WEIGHTS.pin, more))["weights"].state is State.FAILED


def test_a_drafters_weights_are_certified_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    plain = folder
    drafted = promoted(tmp_path / "drafted", monkeypatch, WITH_DRAFTER)
    whole = looked(drafted, WITH_DRAFTER)["weights"]
    assert whole.state is State.OK and "of the drafter" in whole.detail
    others: list[tuple[WeightHashes, str]] = [
        (changed_drafter(files={"model.safetensors": "9" * 64}), "drafter weights model"),
        (changed_drafter(files={}), "drafter weights model.safetensors have sha256 None"),
        (changed_drafter(pin="checkout:" + "9" * 64), "pins its drafter by checkout:999"),
        (WEIGHTS, "no weights any more"),
        (replace(WITH_DRAFTER, pin="pypi:0"), "pins its target"),
    ]
    for found, said in others:
        check = looked(drafted, found)["weights"]
        assert check.state is State.FAILED and said in check.detail
    unsaid = looked(plain, WITH_DRAFTER)["weights"]
    assert unsaid.state is State.NOT_RECORDED and "drafter" in unsaid.detail


def test_the_first_version_says_what_it_lacks_and_fails_nothing(folder: Path) -> None:
    data, _ = load_certificate(folder)
    numbered = enumerate(p for draw in recorded_prompts(data) for p in draw)
    data["heldout"]["prompt_ids"] = {f"{n}:{name}": list(ids) for n, (name, ids) in numbered}
    del data["heldout"]["draws"]
    for key in ("certificate_sha256", "weights", "sandbox", "clocks", "candidate"):
        del data[key]
    (folder / "certificate.json").write_text(json.dumps({**data, "schema_version": 1}, indent=1))
    found = looked(folder)
    unsaid = {name for name, check in found.items() if check.state is State.NOT_RECORDED}
    assert unsaid == {"seal", "prompts", "weights"}
    assert failed_check(list(found.values())) is None
    assert recorded_prompts(load_certificate(folder)[0])[0][0] == ("set/5", (5, 7))
