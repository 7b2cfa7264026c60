"""Settings that require others: contradictions are refused, and so are settings without effect."""

from importlib import resources
from typing import Any

import msgspec
import pytest
from command_line import run_pellucid, usage_error_message
from trained_runs import copy_task_run, training_flags

import pellucid as library
from pellucid.config.settings import Config
from pellucid.config.toml import build_config, flatten_config, size_preset, to_toml, validate_config
from pellucid.config.validation import (
    AUTOREGRESSIVE_SETTINGS,
    REQUIREMENTS,
    USE_CONDITIONS,
    reject_unused,
    reset_unused,
    unused_settings,
)
from pellucid.errors import ConfigError
from pellucid.run_folder.predictor_loader import load

WORDS: dict[str, Any] = {"source_symbols": "words"}
GRU: dict[str, Any] = {"characters": "gru"}
UNUSED_SETTINGS: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    ({"data": {"features_symbols": "+"}}, "data.features_column", {"data": {"features_column": "3"}}),
    ({"encoder": {"feature_merge": "sum"}}, "data.features_column", {"data": {"features_column": "3"}}),
    ({"encoder": {"merge": "sum", "bidirectional": False}}, "encoder.bidirectional = true", {}),
    ({"encoder": {"residual": True}}, "encoder.num_layers of 2 or more", {"encoder": {"num_layers": 2}}),
    ({"decoder": {"residual": True}}, "decoder.num_layers of 2 or more", {"decoder": {"num_layers": 2}}),
    ({"encoder": {"dropout_mask": "sequence", "dropout": 0.0}}, "encoder.dropout above 0", {}),
    ({"decoder": {"recurrent_dropout_on": "states"}}, "recurrent_dropout", {"decoder": {"recurrent_dropout": 0.1}}),
    ({"encoder": {"character_size": 8}}, "encoder.characters = 'convolution'", {"encoder": GRU, "data": WORDS}),
    ({"encoder": {"word_dropout": 0.1}}, "encoder.characters = 'convolution'", {"encoder": GRU, "data": WORDS}),
    ({"encoder": {"word_dropout": 0.1, **GRU}, "data": {**WORDS, "min_count": 2}}, "data.min_count = 1", {}),
    ({"attention": {"filters": 4}}, "attention.type = 'location'", {"attention": {"type": "location"}}),
    ({"training": {"sampling_probability": 0.5}}, "scheduled_sampling", {"training": {"scheduled_sampling": "linear"}}),
    ({"training": {"ema_decay": 0.9}}, "training.weight_averaging = 'ema'", {"training": {"weight_averaging": "ema"}}),
    ({"training": {"averaged_checkpoints": 3}}, "averaging = 'last'", {"training": {"weight_averaging": "last"}}),
    ({"training": {"augmentation_ratio": 2.0}}, "training.augmentation", {"training": {"augmentation": "copy"}}),
    ({"size": "tiny", "training": {"rdrop_alpha": 1.0}}, "a dropout above 0", {"encoder": {"dropout": 0.1}}),
    ({"search": {"max_length_offset": 5}}, "search.max_length_ratio above 0", {"search": {"max_length_ratio": 2.0}}),
    ({"search": {"min_length_offset": 5}}, "search.min_length_ratio above 0", {"search": {"min_length_ratio": 0.5}}),
    ({"search": {"length_penalty_alpha": 2.0}}, "normalization = 'gnmt'", {"search": {"length_normalization": "gnmt"}}),
    ({"search": {"coverage_penalty": 0.2}, "attention": {"type": "none"}}, "which attention.type = 'none'", {}),
]  # fmt: skip


def merge_settings(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the union of two settings tables."""
    return {
        key: {**one.get(key, {}), **other[key]} if isinstance(other.get(key), dict) else one[key]
        for key in {**one, **other}
    }


@pytest.mark.parametrize(
    ("settings", "condition", "required_settings"), UNUSED_SETTINGS, ids=lambda each: str(each)[:40]
)
def test_an_unused_setting_names_its_condition(
    settings: dict[str, Any], condition: str, required_settings: dict[str, Any]
) -> None:
    config = build_config(settings, "test")  # the configuration of a saved run may contain unused settings
    with pytest.raises(ConfigError) as caught:
        reject_unused(config)
    section = next(name for name in settings if name != "size")
    key = next(iter(settings[section]))
    assert f"{section}.{key} = " in str(caught.value) and condition in str(caught.value)
    assert "otherwise it has no effect" in str(caught.value)
    if required_settings:
        reject_unused(build_config(merge_settings(settings, required_settings), "test"))


def test_every_requirement_names_settings_and_defaults_satisfy_all() -> None:
    known_keys = set(flatten_config(size_preset("base")))
    assert {requirement.key for requirement in (*REQUIREMENTS, *USE_CONDITIONS)} <= known_keys
    for size in ("tiny", "small", "base", "large"):
        reject_unused(size_preset(size))
    for file in resources.files("pellucid.recipes").iterdir():
        if file.name.endswith(".toml") and file.name != "published_data.toml":
            reject_unused(library.load_config(resources.files("pellucid.recipes") / file.name))  # type: ignore[arg-type]


@pytest.mark.parametrize("key", AUTOREGRESSIVE_SETTINGS)
def test_autoregressive_settings_are_refused_for_other_tasks(key: str) -> None:
    section, _, name = key.rpartition(".")
    common: dict[str, Any] = {"task": "tag", "device": "cuda"}
    values = {"decoder.pretrained": "a.vec", "training.scheduled_sampling": "linear", "training.augmentation": "copy"}
    values |= {"search.length_normalization": "gnmt"}
    default = flatten_config(size_preset("base"))[key]
    value: Any = values.get(key, not default if isinstance(default, bool) else 2)
    settings = merge_settings(common, {section: {name: value}}) if section else {**common, name: value}
    with pytest.raises(ConfigError) as caught:
        build_config(settings, "test")
    assert f"{key} = " in str(caught.value)
    assert "needs task = 'transduce', whose outputs are generated symbol by symbol" in str(caught.value)


def test_a_default_may_be_set_explicitly() -> None:
    reject_unused(
        build_config({"training": {"sampling_probability": 0.25}, "search": {"length_penalty_alpha": 0.6}}, "test")
    )


def test_reset_unused_resets_unused_settings_only() -> None:
    config = build_config({"encoder": {"residual": True, "num_layers": 1, "hidden_size": 7}}, "test")
    reset_config = reset_unused(config)
    assert unused_settings(config) and not unused_settings(reset_config) and validate_config(reset_config)
    assert {key for key, value in flatten_config(config).items() if value != flatten_config(reset_config)[key]} == {
        "encoder.residual"
    }
    assert reset_unused(reset_config) == reset_config and "residual = false" in to_toml(reset_config)


def build_search_config(search: dict[str, Any]) -> Config:
    return build_config({"search": search, "data": {"max_sequence_length": 100}}, "test")


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"min_length": 5, "max_length": 4}, "search.min_length = 5 is greater than search.max_length = 4"),
        (
            {"min_length_ratio": 2.0, "max_length_ratio": 1.5},
            "min_length_ratio = 2.0 is greater than search.max_length_ratio = 1.5",
        ),
        (
            {"min_length_ratio": 1.0, "min_length_offset": 3, "max_length_ratio": 1.0},
            "search.min_length_ratio = 1.0 and search.min_length_offset = 3 require longer outputs than "
            "search.max_length_ratio = 1.0 allow, for every source: for one of 100 symbols, at least 103 and at most "
            "100",
        ),
        ({"min_length": 50, "max_length_ratio": 0.1}, "search.min_length = 50 require longer"),
        ({"min_length_ratio": 1.0, "min_length_offset": 9, "max_length": 5}, "10 symbols"),
    ],
)
def test_limits_that_cross_for_all_sources_are_refused(search: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_search_config(search)
    assert message in str(caught.value) or "require longer outputs" in str(caught.value)


def test_limits_that_cross_for_short_sources_only_are_valid() -> None:
    build_search_config({"min_length_ratio": 0.5, "min_length_offset": 2, "max_length_ratio": 1.5})
    model = load(copy_task_run().run)
    search = msgspec.structs.replace(
        model.config.search, min_length_ratio=0.5, min_length_offset=2, max_length_ratio=1.0, max_length_offset=0
    )
    with pytest.warns(UserWarning, match="the maximum is used"):
        result = model.with_search(search).predict(["a", "abcdabcd"])
    assert len(result[0].output) <= 1 and 6 <= len(result[1].output) <= 8


def test_train_refuses_unused_settings_and_crossing_limits() -> None:
    trained = copy_task_run()
    command = (
        "train",
        trained.files.train,
        "--valid",
        trained.files.valid,
        "--run",
        "unused",
        *training_flags(trained.config),
    )
    message = usage_error_message(run_pellucid(*command, "--training.ema-decay", 0.5))
    assert message == "training.ema_decay = 0.5 needs training.weight_averaging = 'ema'; otherwise it has no effect"
    message = usage_error_message(run_pellucid(*command, "--search.min-length", 30000))
    assert "search.min_length = 30000 exceeds the maximum length, " in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--min-length", 30000], "--min-length = 30000 exceeds the maximum length, 15 (1.5 times"),
        (["--max-length-offset", 5], "--max-length-offset = 5 needs search.max_length_ratio above 0"),
        (["--length-penalty-alpha", 2], "--length-penalty-alpha = 2.0 needs search.length_normalization = 'gnmt'"),
        (
            ["--min-length-ratio", 3, "--max-length-ratio", 2],
            "--min-length-ratio = 3.0 is greater than --max-length-ratio = 2.0",
        ),
        (["--sample", 2, "--beam-size", 3], "--beam-size controls beam search and cannot be combined with --sample"),
        (["--sample", 2, "--coverage-penalty", 3], "--coverage-penalty controls beam search"),
        (["--top-k", 2], "--top-k requires --sample"),
    ],
)
@pytest.mark.parametrize("subcommand", ["predict", "evaluate"])
def test_decoding_refuses_crossing_limits_and_unused_flags(
    subcommand: str, arguments: list[object], message: str
) -> None:
    file = [copy_task_run().files.valid]
    assert message in usage_error_message(run_pellucid(subcommand, copy_task_run().run, *file, *arguments))


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_path_of_vectors_with_nul_is_refused(side: str) -> None:
    with pytest.raises(ConfigError, match=f"{side}.pretrained: expected the path of a file, got"):
        build_config({side: {"pretrained": "vec\0tors"}}, "config")
