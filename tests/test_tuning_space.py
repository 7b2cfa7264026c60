"""A search space is parsed, validated and applied to configurations."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import few_examples, make_config

from pellucid.config.settings import Config
from pellucid.config.toml import flatten_config, size_preset
from pellucid.errors import ConfigError
from pellucid.tuning.space import (
    ChoiceDimension,
    LinkedSetting,
    RangeDimension,
    apply_values,
    default_space,
    describe_space,
    initial_values,
    load_space,
)

BASE = make_config({"training": {"epochs": 10.0}})


def parse_space(folder: Path, text: str) -> object:
    """Return the search space of a TOML text."""
    (folder / "space.toml").write_text(text)
    return load_space(folder / "space.toml", BASE)


def test_every_form_of_a_dimension_is_parsed(tmp_path: Path) -> None:
    space = parse_space(
        tmp_path,
        '[encoder]\nhidden_size = { times = [0.5, 1, 0.01] }\ncell = { choices = ["gru", "lstm"] }\n'
        "num_layers = { from = 1, to = 3 }\ndropout = { from = 0, to = 0.5, step = 0.1 }\n"
        '[decoder]\nhidden_size = { like = "encoder.hidden_size", times = 2 }\n'
        '[training]\nlearning_rate = { from = 1e-4, to = 1e-2, scale = "log" }\n',
    )
    assert space == (
        (
            ChoiceDimension("encoder.hidden_size", (8, 16, 1)),
            ChoiceDimension("encoder.cell", ("gru", "lstm")),
            RangeDimension("encoder.num_layers", 1, 3, None, False),
            RangeDimension("encoder.dropout", 0, 0.5, 0.1, False),
            RangeDimension("training.learning_rate", 1e-4, 1e-2, None, True),
        ),
        (LinkedSetting("decoder.hidden_size", "encoder.hidden_size", 2.0),),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[encoder", "is not TOML"),
        ("size = 3", "size: only settings of a section can be searched"),
        ("", "the search space is empty"),
        (
            "[encoder]\nhiden_size = {choices = [1]}",
            "'encoder.hiden_size' cannot be searched: unknown key.*hidden_size",
        ),
        ('[training]\nmetric = {choices = ["loss"]}', "it is the objective of the search"),
        ("[encoder]\nnum_layers = 2", "encoder.num_layers: expected {choices"),
        ("[encoder]\nnum_layers = {choice = [1]}", "encoder.num_layers: expected {choices"),
        ("[encoder]\nnum_layers = {choices = [1], step = 2}", "encoder.num_layers: .*step"),
        ("[encoder]\nnum_layers = {choices = []}", "expected at least one value"),
        ("[encoder]\nnum_layers = {choices = [0]}", "encoder.num_layers: .*>= 1, got 0"),
        ('[encoder]\ncell = {choices = ["gur"]}', "encoder.cell: .*got 'gur'"),
        ("[encoder]\ncell = {from = 1, to = 2}", "encoder.cell: expected choices"),
        ("[encoder]\ncell = {times = [1]}", "has no multiples"),
        ("[encoder]\nnum_layers = {from = 1, to = 2.5}", "expected whole numbers"),
        ("[encoder]\nnum_layers = {from = 2, to = 1}", "expected from < to"),
        ("[encoder]\ndropout = {from = 0, to = 0.5, scale = 'log'}", "requires from > 0 and no step"),
        ("[encoder]\ndropout = {from = 0, to = 1.5}", "encoder.dropout: .*got 1.5"),
        ("[training]\nlearning_rate = {from = 0.1, to = inf}", "training.learning_rate: expected from < to"),
        *(
            (
                f"[encoder]\ndropout = {{from = 0.0, to = 0.5, step = {step}}}",
                "dropout: step: expected a number above 0",
            )
            for step in ("nan", "inf", "1e-320", "0", "-0.1", "0.6")
        ),
        *(
            (f"[encoder]\nhidden_size = {{from = 8, to = 64, step = {step}}}", "step: expected a whole number")
            for step in ("0.5", "1.5", "8.0")
        ),
        (
            '[encoder]\nnum_layers = {like = "encoder.layer"}',
            "unknown key 'encoder.layer'; did you mean 'encoder.num_layers'",
        ),
        ('[encoder]\ncell = {like = "decoder.cell", times = 2}', "has no multiples"),
        (
            '[encoder]\nnum_layers = {like = "decoder.num_layers"}\ndropout = {choices = [0.1]}\n'
            '[decoder]\nnum_layers = {like = "encoder.num_layers"}',
            "is linked to itself through",
        ),
    ],
)
def test_invalid_search_space_raises_config_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_space(tmp_path, text)


NUMBERS = ["1" * 4300, "1" * 5000, "0x" + "f" * 5000, "9223372036854775808", "inf", "nan", "1e308", "-1", "[[1]]"]
FORMS = [
    *("{{choices = [{n}]}}", "{{from = {n}, to = 3}}", "{{from = 0.1, to = {n}}}", "{{times = [{n}]}}", "{n}"),
    *("{{from = 0.1, to = 0.3, step = {n}}}", '{{like = "decoder.hidden_size", times = {n}}}'),
]


@pytest.mark.parametrize("key", ["encoder.hidden_size", "encoder.dropout", "encoder.cell", "encoder.convolutions"])
def test_any_number_in_a_space_is_valid_or_an_error(tmp_path: Path, key: str) -> None:
    section, _, name = key.partition(".")
    for number in NUMBERS:
        for form in FORMS:
            path = _write_space(tmp_path, f"[{section}]\n{name} = {form.format(n=number)}\n")
            try:
                space = load_space(path, BASE)
                assert describe_space(space) and apply_values(BASE, space, initial_values(BASE, space), "a trial")
            except ConfigError as error:
                assert len(str(error)) < 400 + len(str(path))


def test_links_may_form_a_chain() -> None:
    space = default_space(BASE, ())
    config = apply_values(BASE, space, {"encoder.hidden_size": 24, "encoder.dropout": 0.2}, "a trial")
    assert (config.encoder.hidden_size, config.decoder.hidden_size, config.attention.size) == (24, 48, 48)
    assert (config.decoder.dropout, config.seed, config.training.epochs) == (0.2, BASE.seed, 10.0)


def test_explicit_settings_are_not_searched_and_links_follow_them() -> None:
    base = make_config({"encoder": {"hidden_size": 20}, "training": {"epochs": 10.0}})
    space = default_space(base, {"encoder.hidden_size", "training.epochs"})
    assert not {"encoder.hidden_size", "training.epochs"} & {each.key for each in space.searched}
    config = apply_values(base, space, initial_values(base, space), "a trial")
    assert (config.encoder.hidden_size, config.decoder.hidden_size) == (20, 40)


def test_contradictory_values_raise_config_error(tmp_path: Path) -> None:
    space = load_space(_write_space(tmp_path, '[attention]\ntype = {choices = ["dot"]}\n'), BASE)
    with pytest.raises(ConfigError, match="a trial: attention\\.type"):
        apply_values(make_config({"decoder": {"hidden_size": 7}}), space, {"attention.type": "dot"}, "a trial")


def _write_space(folder: Path, text: str) -> Path:
    (folder / "space.toml").write_text(text)
    return folder / "space.toml"


@pytest.mark.parametrize("size", ["tiny", "small", "base", "large"])
def test_default_space_contains_the_preset(size: str) -> None:
    base: Config = make_config({"size": size, "training": {"epochs": 30.0}})
    space = default_space(base, ())
    assert set(initial_values(base, space)) == {each.key for each in space.searched}
    assert apply_values(base, space, initial_values(base, space), "a trial") == base
    assert len(describe_space(space)) == len(space.searched) + len(space.linked)
    assert set(flatten_config(size_preset("base"))) >= {each.key for each in (*space.searched, *space.linked)}


@few_examples
@given(st.data())
def test_every_point_of_the_default_space_is_valid(data: st.DataObject) -> None:
    space = default_space(BASE, ())
    values: dict[str, bool | int | float | str] = {}
    for each in space.searched:
        values_of_dimension = (
            st.sampled_from(each.values) if isinstance(each, ChoiceDimension) else st.floats(each.low, each.high)
        )
        values[each.key] = data.draw(values_of_dimension)
    settings = flatten_config(apply_values(BASE, space, values, "a trial"))
    assert all(settings[key] == value for key, value in values.items())
