"""Settings load, and every way to get one wrong says what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from settings.errors import SettingError
from settings.loading import list_settings, load_exact_twin, load_setting
from settings.paths import checkout_root

TINY = checkout_root() / "tests/data/settings/tiny/setting.toml"


@pytest.fixture
def edited(tmp_path: Path):
    """Load tiny's text after replacing one piece of it; the FP32 twin lies beside it."""
    twin = TINY.parent.parent / "tiny-fp32/setting.toml"
    (tmp_path / "tiny-fp32").mkdir()
    (tmp_path / "tiny").mkdir()

    def load(old: str, new: str, both: bool = False):
        text = TINY.read_text()
        assert old in text
        (tmp_path / "tiny/setting.toml").write_text(text.replace(old, new, 1))
        other = twin.read_text()
        (tmp_path / "tiny-fp32/setting.toml").write_text(
            other.replace(old, new, 1) if both else other
        )
        return load_setting(tmp_path / "tiny")

    return load


def test_every_shipped_setting_loads() -> None:
    assert "cpu_c1_smollm2-135m_ngram" in list_settings()
    for name in list_settings():
        assert load_setting(name).name == name


def test_name_folder_and_file_mean_the_same() -> None:
    root = TINY.parent.parent
    by_name = load_setting("tiny", root=root)
    assert by_name == load_setting(TINY) == load_setting(str(TINY.parent))
    assert by_name.target.checkpoint.config == str(TINY.parent / "model")


def test_twin_differs_in_dtypes_only() -> None:
    setting = load_setting("cpu_c1_smollm2-135m_ngram")
    twin = load_exact_twin("cpu_c1_smollm2-135m_ngram")
    assert twin is not None and twin.target.weights_dtype == "fp32"
    assert twin.target.checkpoint == setting.target.checkpoint
    assert load_exact_twin(twin.name) is None


def test_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(SettingError, match="cpu_c1_smollm2-135m_ngram"):
        load_setting("cpu_c1_smollm2_ngram")
    with pytest.raises(SettingError, match="does not exist"):
        load_setting("./nowhere")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("threads = 1", "thread = 1", ["hardware.thread = 1", "'threads'"]),
        ("concurrency = 1", "zzz = 1", ["serving.zzz", "Known keys", "max_total_tokens"]),
        ('kind = "ngram"', 'kind = "ngrm"', ["drafter.kind = 'ngrm'", "'ngram'"]),
        ('weights_dtype = "bf16"', 'weights_dtype = "int3"', ["target.weights_dtype", "fp8"]),
        ('summary = "', 'sumary = "', ["sumary", "'summary'", "summary is missing"]),
        ("count = 4 }]", "cuont = 4 }]", ["prompts.search[0].cuont", "'count'"]),
        ("max_new_tokens = 24", "max_new_tokens = -1", ["decoding.max_new_tokens = -1"]),
        ("memory_gb = 1.0", 'memory_gb = "lots"', ["hardware.memory_gb = 'lots'"]),
        ("[engine.arms.ar]", "[engine.arms.arr]", ["engine.arms.arr", "'ar'"]),
        ("[engine.arms.ar]\nargs", "[engine.arms.ar]\nargz", ["engine.arms.ar.argz", "'args'"]),
        ("licence =", "revision = 'main'\nlicence =", ["target.checkpoint.revision = 'main'"]),
        ("schema_version = 1", "schema_version = 9", ["schema_version = 9"]),
        ("[serving]", "[serving", ["not valid TOML", "line"]),
        ("[serving]", f"a = {'[' * 9999}", ["not valid TOML", "recursion"]),
        ("threads = 1", 'threads = "1"', ["hardware.threads = '1'", "integer"]),
        ("threads = 1", "threads = true", ["hardware.threads = True", "integer"]),
        ("threads = 1", "threads = 99999999999999999999", ["hardware.threads", "1024"]),
        ("memory_gb = 1.0", "memory_gb = inf", ["hardware.memory_gb = inf", "finite"]),
        ("seed = 7", "seed = 170141183460469231731687303715884105727", ["target.checkpoint.seed"]),
        ("count = 4 }]", "count = 100000000000 }]", ["prompts.search[0].count", "100000"]),
    ],
)
def test_schema_errors_name_field_value_and_remedy(edited, old, new, said) -> None:
    with pytest.raises(SettingError) as caught:
        edited(old, new)
    assert "tiny/setting.toml" in str(caught.value)
    for part in said:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('gpu = "cpu"', 'gpu = "h300"', ["h300", "h200"]),
        ("max_new_tokens = 24", "max_new_tokens = 256", ["max_new_tokens = 256", "256"]),
        ("stop_token_ids = [2]", "stop_token_ids = [2, -3]", ["stop_token_ids", "-3"]),
        ("temperature = 0.0", "temperature = 0.7", ["decoding.temperature = 0.7", "0"]),
        ("concurrency = 1", "concurrency = 2", ["concurrency = 2", "max_running_requests"]),
        ("[engine.arms.ar]", "[engine.arms.final]", ["engine.arms.ar is missing"]),
        ('name = "tiny"', 'name = "other"', ["'other'", "folder"]),
        ('config = "../tiny/model"', "", ["target.checkpoint.config is missing"]),
        ('source = "random"', 'source = "checkout"', ["target.checkpoint.path is missing"]),
        (
            'source = "random"',
            f'source = "checkout"\nsha256 = "{"0" * 64}"\npath = "../x"',
            ["'../x' is not inside the repository", "'local'"],
        ),
        ('set = "arithmetic"', 'set = "aritmetic"', ["prompts.search[0]", "'arithmetic'"]),
        ('exact_twin = "tiny-fp32"', 'exact_twin = "tiny-fp23"', ["exact_twin", "tiny-fp32"]),
        ("seed = 7", "seed = 8", ["exact_twin", "[target]", "dtypes"]),
        ('exact_twin = "tiny-fp32"', 'exact_twin = "tiny"', ["weights_dtype", "fp32"]),
    ],
)
def test_rules_across_fields(edited, old, new, said) -> None:
    with pytest.raises(SettingError) as caught:
        edited(old, new)
    for part in said:
        assert part in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(edited, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    setting = edited("seed = 7", "seed = 7")
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(SettingError, match=r"setting\.toml cannot be read: Permission denied"):
        load_setting(Path(setting.target.checkpoint.config).parents[1] / "tiny")


def test_heldout_rows_may_not_begin_inside_the_searched_ones(edited) -> None:
    search = 'search = [{ set = "arithmetic", first = 0, count = 4 }]'
    heldout = 'heldout = [{ set = "arithmetic", first = 0, count = 4 }]'
    rows = (
        'search = [{ set = "gsm8k", first = 3, count = 4 }]\nheldout = [{ set = "gsm8k", first = '
    )
    with pytest.raises(SettingError, match=r"begins at row 6, inside the search's rows 3\.\.6"):
        edited(f"{search}\n{heldout}", f"{rows}6, count = 1 }}]", both=True)
    edited(f"{search}\n{heldout}", f"{rows}7, count = 1 }}]", both=True)
