import gc
import math
import re
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.config.presets import PRESETS
from pellucid.config.settings import CallbackName, Config, Header, SearchConfig, Settings, Size, memory_size
from pellucid.config.toml import (
    _field_docstrings,
    build_config,
    config_differences,
    flatten_config,
    load_config,
    override_settings,
    setting_choices,
    size_preset,
    to_toml,
    validate_config,
)
from pellucid.config.training_types import BUILT_IN_CALLBACKS
from pellucid.errors import ConfigError

SIZES = list(PRESETS)


def with_value(config: Config, key: str, value: object) -> Config:
    """Return a copy of the configuration with another value of the setting with this full key."""
    stage, _, name = key.rpartition(".")
    if not stage:
        return msgspec.structs.replace(config, **{name: value})
    changed = msgspec.structs.replace(getattr(config, stage), **{name: value})
    return msgspec.structs.replace(config, **{stage: changed})


def write_toml(folder: Path, text: str) -> Path:
    path = folder / "my.toml"
    path.write_text(text, encoding="utf-8")
    return path


def settings_strategy(kind: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - any annotation of a struct
    """Return a strategy of all valid values of a setting's type."""
    if isinstance(kind, type) and issubclass(kind, Settings):
        return st.builds(kind, **{f.name: field_strategy(f) for f in msgspec.structs.fields(kind)})
    if kind == tuple[CallbackName, ...]:
        return st.lists(st.sampled_from(BUILT_IN_CALLBACKS), unique=True).map(tuple)
    if setting_choices(kind) and kind != Header:
        return st.sampled_from(setting_choices(kind))
    if get_origin(kind) is Annotated and get_origin(get_args(kind)[0]) is tuple:
        kind = get_args(kind)[0]
    if get_origin(kind) is tuple:
        return st.lists(settings_strategy(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) is Annotated:
        base, limits = get_args(kind)
        if base is int:
            return st.integers(limits.ge, limits.le)
        low, high = limits.ge if limits.gt is None else limits.gt, limits.le or limits.lt or 1e300
        return st.floats(low, high, exclude_min=limits.gt is not None, exclude_max=limits.lt is not None)
    kinds = {bool: st.booleans(), str: st.text(max_size=5), Header: st.sampled_from([True, False, "auto"])}
    return kinds[kind]


def field_strategy(field: msgspec.structs.FieldInfo) -> st.SearchStrategy[Any]:
    """Return a strategy of the values of a field; a time limit is a text with a unit, columns are not empty, and a
    checksum has 64 digits.
    """
    if field.name in ("source_column", "target_column", "features_column", "class_column", "group_column"):
        return st.text(min_size=1, max_size=5).filter(lambda text: not text.isdecimal()) | st.sampled_from(["1", "20"])
    if field.name == "init_from_digest":
        return st.text("0123456789abcdef", min_size=64, max_size=64) | st.just("")
    return st.sampled_from(["", "90s", "1.5h"]) if field.name == "time_limit" else settings_strategy(field.type)


def consistent_settings(config: Config) -> Config:
    """Return the configuration without contradictions between settings."""
    if config.device == "cpu":
        config = with_value(config, "cuda_graphs", False)
    config = with_value(config, "search.min_length", min(config.search.min_length, config.search.max_length))
    if config.search.max_length_ratio or config.search.max_length:
        config = with_value(config, "search.min_length_ratio", 0.0)
    if config.search.max_length_ratio:
        config = with_value(config, "search.min_length", 0)
    if config.cuda_graphs:
        config = with_value(config, "training.scheduled_sampling", "none")
    config = consistent_characters(consistent_sampled_softmax(config))
    config = with_value(config, "training.batch_size", max(1, config.training.batch_size))
    if config.attention.type == "none":
        config = with_value(with_value(config, "decoder.pointer_generator", False), "training.coverage_loss", 0.0)
    config = with_value(config, "training.optimizer", "adamw")
    config = consistent_fine_tuning(config)
    config = with_value(config, "attention.num_heads", 1)
    if config.decoder.order == "attend-then-step":
        config = with_value(config, "decoder.input_feeding", False)
    for side in ("encoder", "decoder"):
        path = getattr(config, side).pretrained.replace("\0", "")  # no path has a NUL, which is refused
        config = with_value(config, f"{side}.pretrained", path)
        if getattr(config, side).embedding not in ("learned", "frozen"):
            config = with_value(config, f"{side}.pretrained", "")
            config = with_value(config, "decoder.tie_embeddings", config.decoder.tie_embeddings and side != "decoder")
    config = with_value(config, "encoder.hidden_size", min(config.encoder.hidden_size, 2**19))
    return config_of_task(with_value(config, "decoder.hidden_size", memory_size(config.encoder)))


def consistent_sampled_softmax(config: Config) -> Config:
    """Return the configuration without a sampled softmax if it needs the logits of all symbols."""
    needs_all = config.decoder.pointer_generator or config.training.rdrop_alpha or config.cuda_graphs
    if needs_all or config.training.scheduled_sampling != "none":
        return with_value(config, "training.sampled_softmax", 0)
    return config


def consistent_characters(config: Config) -> Config:
    """Return the configuration without characters of words if it has no words, no vectors of them, or CUDA graphs."""
    has_words = config.data.source_symbols not in ("characters", "whole", "position")
    if not has_words or config.encoder.embedding == "one-hot" or config.cuda_graphs:
        return with_value(config, "encoder.characters", "none")
    return config


def consistent_fine_tuning(config: Config) -> Config:
    """Return the configuration with paths without NUL, and without settings that need an initial run if it has none."""
    for name in ("init_from", "mix_in"):
        config = with_value(config, f"training.{name}", getattr(config.training, name).replace("\0", ""))
    if config.training.init_from:
        return config
    return with_value(with_value(config, "training.freeze", ()), "training.init_from_digest", "")


def config_of_task(config: Config) -> Config:
    """Return the configuration with the settings that its task requires, and without those that it refuses."""
    if config.task == "transduce":
        config = with_value(config, "data.target_symbols", "characters")
        config = with_value(with_value(config, "data.class_first", False), "data.class_column", "")
        if config.data.context_words:
            config = with_value(config, "encoder.feature_merge", "prefix")
        return with_value(config, "data.ignored_tag", "")
    config = with_value(config, "data.context_words", 0)
    for name in ("decoder.pointer_generator", "decoder.tie_embeddings", "cuda_graphs"):
        config = with_value(config, name, False)
    for name in ("training.scheduled_sampling", "training.augmentation"):
        config = with_value(config, name, "none")
    config = with_value(config, "training.sampled_softmax", 0)
    config = with_value(with_value(config, "decoder.pretrained", ""), "training.coverage_loss", 0.0)
    config = with_value(with_value(config, "search", SearchConfig()), "encoder.feature_merge", "sum")
    config = with_value(
        config, "data.target_symbols", {"classify": "whole", "point": "position"}.get(config.task, "words")
    )
    if config.task == "tag-and-classify":
        config = with_value(with_value(config, "data.equal_length", True), "data.class_first", True)
        return with_value(config, "attention.type", "additive")
    config = with_value(with_value(config, "data.class_first", False), "data.class_column", "")
    if config.task == "tag":
        return with_value(config, "data.equal_length", True)
    config = with_value(config, "data.ignored_tag", "")
    return with_value(config, "attention.type", "additive") if config.task == "point" else config


CONFIGS = settings_strategy(Config).map(consistent_settings)


@pytest.mark.parametrize("size", SIZES)
def test_presets_are_valid(size: Size) -> None:
    config = size_preset(size)
    assert config.size == size and validate_config(config) == config
    assert config.decoder.hidden_size == memory_size(config.encoder)
    assert validate_config(with_value(config, "attention.type", "dot"))


def test_a_larger_size_gives_a_larger_model() -> None:
    sizes = [size_preset(size).decoder.hidden_size for size in SIZES]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("size", SIZES)
def test_presets_round_trip_through_toml(size: Size, tmp_path: Path) -> None:
    assert load_config(write_toml(tmp_path, to_toml(size_preset(size)))) == size_preset(size)


def test_a_minimum_length_above_the_maximum_is_refused() -> None:
    settings = {"search": {"min_length": 5, "max_length": 4}}
    with pytest.raises(ConfigError, match=r"search\.min_length = 5 is greater than search\.max_length = 4"):
        build_config(settings, "a test")
    assert build_config({"search": {"min_length": 5}}, "a test").search.min_length == 5


@settings(deadline=None)
@given(CONFIGS)
def test_configurations_round_trip_through_toml(config: Config) -> None:
    assert build_config(tomllib.loads(to_toml(config)), "run") == config


def test_threads_can_write_toml_concurrently() -> None:
    def write_repeatedly(*_: object) -> None:
        """Let another thread run in the middle of a garbage collection."""
        sum(range(50))

    before, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(write_repeatedly)
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            texts = list(pool.map(lambda _: _fresh_toml("tiny"), range(12)))
    finally:
        gc.callbacks.remove(write_repeatedly)
        gc.set_threshold(*before)
        sys.setswitchinterval(interval)
    assert texts == [to_toml(size_preset("tiny"))] * 12


def _fresh_toml(size: Size) -> str:
    """Return a preset as TOML, after clearing the cache of docstrings."""
    _field_docstrings.cache_clear()
    return to_toml(size_preset(size))


@pytest.mark.parametrize("size", SIZES)
def test_toml_has_a_comment_for_every_key(size: Size) -> None:
    lines = [line for line in to_toml(size_preset(size)).splitlines() if line]
    previous_lines = dict(zip(lines[1:], lines, strict=False))
    keys = [line for line in lines if not line.startswith(("#", "["))]
    assert len(keys) == len(flatten_config(size_preset(size)))
    for key in keys:
        assert re.fullmatch(r"# [A-Z].{8,}\.", previous_lines[key]), key


def test_a_file_overlays_the_preset_and_overrides_overlay_the_file(tmp_path: Path) -> None:
    path = write_toml(tmp_path, 'size = "tiny"\nseed = 5\n[encoder]\nnum_layers = 3\ncell = "gru"\n')
    assert load_config(path) == build_config(
        {"size": "tiny", "seed": 5, "encoder": {"num_layers": 3, "cell": "gru"}}, ""
    )
    config = load_config(path, {"size": "large", "encoder": {"num_layers": 2}})
    assert (config.size, config.seed, config.encoder.num_layers, config.encoder.cell) == ("large", 5, 2, "gru")
    assert config.decoder == size_preset("large").decoder


@pytest.mark.parametrize("size", SIZES)
def test_a_size_replaces_the_values_that_the_settings_of_a_run_repeat_from_its_own_size(
    tmp_path: Path, size: Size
) -> None:
    run = override_settings(size_preset("small"), {"encoder": {"dropout": 0.35}, "training": {"epochs": 3}})
    path = write_toml(tmp_path, to_toml(run))
    assert load_config(path, {"size": "small"}) == load_config(path) == run
    config = load_config(path, {"size": size})
    assert config == override_settings(size_preset(size), {"encoder": {"dropout": 0.35}, "training": {"epochs": 3}})
    assert load_config(path, {"size": "auto"}) == load_config(path, {"size": "base"})
    path = write_toml(tmp_path, 'size = "auto"\nencoder.hidden_size = 64\n')
    assert load_config(path, {"size": size}).encoder.hidden_size == 64


def test_an_empty_file_is_the_base_preset(tmp_path: Path) -> None:
    assert load_config(write_toml(tmp_path, "")) == size_preset("base")


def test_a_whole_number_is_accepted_as_a_float() -> None:
    config = build_config({"training": {"learning_rate": 1, "clip_norm": 5}}, "my.toml")
    assert type(config.training.learning_rate) is float and config.training.clip_norm == 5.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoderr": {}}, "unknown key 'encoderr'; did you mean 'encoder'?"),
        ({"sede": 1}, "unknown key 'sede'; did you mean 'seed'?"),
        ({"encoder": {"hiden_size": 8}}, "unknown key 'encoder.hiden_size'; did you mean 'encoder.hidden_size'?"),
        ({"training": {"batch_sise": 1}}, "unknown key 'training.batch_sise'; did you mean 'training.batch_size'?"),
        ({"data": {"zzzz": 1}}, "unknown key 'data.zzzz'"),
        ({"search": {"beam": {"size": 4}}}, "unknown key 'search.beam'; did you mean 'search.beam_size'?"),
        ({"size": "bsae"}, "size: expected auto, tiny, small, base or large, got 'bsae'; did you mean 'base'?"),
        ({"size": 3}, "size: expected auto, tiny, small, base or large, got 3"),
        ({"size": [1]}, "size: expected auto, tiny, small, base or large, got [1]"),
        ({"encoder": {"cell": "gur"}}, "encoder.cell: expected gru or lstm, got 'gur'; did you mean 'gru'?"),
        ({"encoder": {"cell": 1}}, "encoder.cell: expected gru or lstm, got 1"),
        ({"decoder": {"init_hidden": "men"}},
         "decoder.init_hidden: expected zero, final or mean, got 'men'; did you mean 'mean'?"),
        ({"encoder": "lstm"}, "encoder: expected a table, got 'lstm'"),
        ({"seed": {"a": 1}}, "seed: expected a whole number, got {'a': 1}"),
        ({"encoder": {"hidden_size": "8"}}, "encoder.hidden_size: expected a whole number, got '8'"),
        ({"encoder": {"hidden_size": 8.5}}, "encoder.hidden_size: expected a whole number, got 8.5"),
        ({"encoder": {"num_layers": True}}, "encoder.num_layers: expected a whole number, got True"),
        ({"data": {"header": 1}}, "data.header: expected auto, true or false, got 1"),
        ({"data": {"source_column": 1}}, "data.source_column: expected a string, got 1"),
        ({"encoder": {"hidden_size": 0}}, "encoder.hidden_size: expected a whole number of at least 1, got 0"),
        ({"attention": {"filters": 0}}, "attention.filters: expected a whole number of at least 1, got 0"),
        ({"data": {"subword_vocab_size": -1}},
         "data.subword_vocab_size: expected a whole number of at least 1, got -1"),
        ({"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
        ({"seed": 2**32}, f"seed: expected a whole number of at most {2**32 - 1}, got {2**32}"),
        ({"encoder": {"dropout": 1.0}}, "encoder.dropout: expected a number below 1.0, got 1.0"),
        ({"training": {"learning_rate": 0.0}}, "training.learning_rate: expected a number above 0.0, got 0.0"),
        ({"training": {"learning_rate": math.nan}}, "training.learning_rate: expected a number above 0.0, got nan"),
        ({"training": {"learning_rate": math.inf}}, "training.learning_rate: expected a finite number, got inf"),
        ({"training": {"augmentation_ratio": 1e4}},
         "training.augmentation_ratio: expected a number of at most 1000.0, got 10000.0"),
        ({"training": {"learning_rate": 1e39}},
         "training.learning_rate: expected a number of at most 3.4e+38, got 1e+39"),
        ({"training": {"clip_value": 1e39}}, "training.clip_value: expected a number of at most 1000000.0, got 1e+39"),
        ({"search": {"length_penalty_alpha": 6.0}},
         "search.length_penalty_alpha: expected a number of at most 5.0, got 6.0"),
        ({"training": {"weight_decay": 0.1}}, "training.weight_decay = 0.1 needs training.optimizer = 'adamw'"),
        ({"device": "cudo"}, "device: expected auto, cpu or cuda, got 'cudo'; did you mean 'cuda'?"),
        ({"precision": "half"}, "precision: expected float32 or bf16, got 'half'"),
        ({"cuda_graphs": True}, "cuda_graphs = true needs a GPU, but device is 'cpu'"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_reported_with_file_key_and_expectation(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_config(settings, "my.toml")
    assert str(caught.value) == f"my.toml: {message}"


@pytest.mark.parametrize("score", ["dot", "scaled-dot"])
def test_dot_scores_need_equal_sizes(score: str) -> None:
    with pytest.raises(ConfigError, match=r"my\.toml: attention\.type = .* decoder\.hidden_size is 256 .* 128 units"):
        build_config({"attention": {"type": score}, "encoder": {"merge": "sum"}}, "my.toml")
    assert build_config({"attention": {"type": "general"}, "encoder": {"merge": "sum"}}, "my.toml")


def test_token_batches_need_a_batch_size() -> None:
    with pytest.raises(ConfigError, match=r"batch_type = 'tokens' needs training\.batch_size"):
        build_config({"training": {"batch_type": "tokens"}}, "my.toml")


def test_validate_config_checks_changed_configurations() -> None:
    config = size_preset("base")
    with pytest.raises(ConfigError, match=r"^encoder\.num_layers: expected a whole number of at least 1, got 0$"):
        validate_config(with_value(config, "encoder.num_layers", 0))
    with pytest.raises(
        ConfigError,
        match=r"^decoder\.cell: expected gru or lstm, got 'rnn'; the cell of another package is known once",
    ):
        validate_config(with_value(config, "decoder.cell", "rnn"))
    with pytest.raises(ConfigError, match=r"^training\.clip_norm: expected a finite number, got inf$"):
        validate_config(with_value(config, "training.clip_norm", math.inf))


def test_a_missing_file_and_a_folder_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml: no such file or directory"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"cannot read .*: is a directory"):
        load_config(tmp_path)


def test_invalid_toml_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"my\.toml is not TOML: .*line 2"):
        load_config(write_toml(tmp_path, 'size = "tiny"\n[encoder\n'))
    (tmp_path / "latin.toml").write_bytes(b'# caf\xe9\nsize = "tiny"\n')
    with pytest.raises(ConfigError, match=r"latin\.toml is not TOML: .*utf-8"):
        load_config(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    "key", ["seed", "size", "device", "data.max_sequence_length", "training.epochs", "data.input_format"]
)
@pytest.mark.parametrize("value", ["1" * 5000, "-" + "1" * 5000, "0x" + "f" * 5000, "1" * 4300, "[" + "1" * 4300 + "]"])
def test_a_number_with_thousands_of_digits_is_reported(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write_toml(tmp_path, f"{key} = {value}\n"))
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_a_number_beyond_64_bits_is_reported_with_its_key(tmp_path: Path) -> None:
    assert load_config(write_toml(tmp_path, f"[training]\nlearning_rate = {2**62}\n")).training.learning_rate == 2**62
    with pytest.raises(ConfigError, match=r"my\.toml: data\.x: expected a whole number of at most 64 bits, got -9223"):
        load_config(write_toml(tmp_path, f"[data]\nx = [1, {-(2**63) - 1}]\n"))


def test_deeply_nested_lists_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"my\.toml is not TOML: it is nested too deeply"):
        load_config(write_toml(tmp_path, "encoder.convolutions = " + "[" * 10_000 + "]" * 10_000))


def test_repeated_key_is_abbreviated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"my\.toml is not TOML: ") as caught:
        load_config(write_toml(tmp_path, f"a = {{ {'b' * 5000} = 1, {'b' * 5000} = 2 }}\n"))
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


def test_invalid_overrides_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'encoder\.layer'; did you mean 'encoder\.num_layers'"):
        load_config(write_toml(tmp_path, ""), {"encoder": {"layer": 2}})


def test_settings_are_frozen_values() -> None:
    config: Any = size_preset("tiny")
    assert config == size_preset("tiny") and hash(config) == hash(size_preset("tiny"))
    with pytest.raises(AttributeError):
        config.seed = 2
    with pytest.raises(AttributeError):
        config.encoder.num_layers = 2


def test_flatten_config_returns_every_setting_once() -> None:
    flat = flatten_config(size_preset("tiny"))
    assert flat["size"] == "tiny" and flat["encoder.hidden_size"] == 16 and flat["search.batch_size"] == 128
    assert not any(isinstance(value, dict) for value in flat.values())


@given(CONFIGS, CONFIGS)
def test_differences_list_every_setting_that_differs(one: Config, two: Config) -> None:
    assert config_differences(one, one) == []
    changed = [key for key, value in flatten_config(one).items() if flatten_config(two)[key] != value]
    assert [line.partition(":")[0] for line in config_differences(one, two)] == changed


def test_differences_are_readable() -> None:
    expected = with_value(size_preset("tiny"), "encoder.num_layers", 2)
    assert config_differences(size_preset("tiny"), expected) == ["encoder.num_layers: 1 in the run, 2 now"]


def test_differences_explain_a_zero_with_a_special_meaning() -> None:
    settings = {
        "threads": 0,
        "training": {"epochs": 3, "clip_norm": 0, "patience": 0},
        "search": {"max_length_ratio": 2},
    }
    differences = config_differences(build_config({"training": {"patience": 5}}, "it"), build_config(settings, "it"))
    assert differences == [
        "threads: 1 in the run, 0 (all cores) now",
        "training.epochs: 0.0 (derived from the number of training pairs) in the run, 3.0 now",
        "training.clip_norm: 1.0 in the run, 0.0 (off) now",
        "training.patience: 5 in the run, 0 (never) now",
        "search.max_length_ratio: 0.0 (off) in the run, 2.0 now",
    ]


@pytest.mark.parametrize(
    ("bidirectional", "merge", "size"),
    [(False, "concatenate", 8), (True, "concatenate", 16), (True, "sum", 8), (True, "product", 8)],
)
def test_memory_size_follows_bidirectional_and_merge(bidirectional: bool, merge: str, size: int) -> None:
    encoder = {"hidden_size": 8, "bidirectional": bidirectional, "merge": merge}
    assert memory_size(build_config({"encoder": encoder}, "my.toml").encoder) == size


def test_a_byte_order_mark_is_no_part_of_a_setting(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b'\xef\xbb\xbfsize = "tiny"\n')
    assert load_config(tmp_path / "a.toml").size == "tiny"
