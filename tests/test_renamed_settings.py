"""config/renamed_settings.py: files with the former names of settings load as those with the present names."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from command_line import run_pellucid, usage_error_message
from safetensors.numpy import load_file
from trained_runs import assert_runs_identical, copy_run_folder, copy_task_run, make_small_config, train_to_end

from pellucid.config.renamed_settings import (
    FORMER_NAMES,
    RENAMED_SETTINGS,
    hashed_settings,
    renaming_advice,
    with_current_names,
)
from pellucid.config.settings import Config
from pellucid.config.toml import (
    build_config,
    flatten_config,
    load_config,
    load_saved_config,
    missing_settings,
    override_settings,
    to_toml,
)
from pellucid.data.prepared_data import DESCRIPTION_FILE, read_prepared
from pellucid.errors import ConfigError, DataError, RunError
from pellucid.files import parse_json
from pellucid.run_folder.identity import read_identity
from pellucid.run_folder.model_file import RUN_KEYS, SETTINGS, parameter_file
from pellucid.run_folder.run_files import load_run_config
from pellucid.run_folder.tensor_file import open_tensors
from pellucid.runtime.run_reader import read_run
from pellucid.training.events import UpdateCompleted
from pellucid.training.preparation import DataPrepared, prepare_data
from pellucid.training.session import train_run
from pellucid.training.training_data import resolve_auto_settings
from pellucid.tuning.space import load_space
from pellucid.tuning.study import TuningStudy

FORMER = """
task = "tag"
size = "tiny"
[data]
aligned = true
features_column = "3"
[encoder]
features = "sum"
[decoder]
output = "context"
[training]
initial_run = "runs/a"
initial_digest = ""
"""
PRESENT = """
task = "tag"
size = "tiny"
[data]
equal_length = true
features_column = "3"
[encoder]
feature_merge = "sum"
[decoder]
output_layer_inputs = "context"
[training]
init_from = "runs/a"
init_from_digest = ""
"""


def with_former_lines(text: str) -> str:
    """Return TOML in which each renamed setting has its former name, as earlier versions wrote it."""
    lines, section = text.splitlines(), ""
    for index, line in enumerate(lines):
        section = line[1:-1] if line.startswith("[") else section
        if match := re.match(r"(\w+) = ", line):
            name = FORMER_NAMES.get(f"{section}.{match[1]}", f".{match[1]}").partition(".")[2]
            lines[index] = f"{name}{line[match.end(1) :]}"
    return "\n".join(lines) + "\n"


def write_former_run(run: Path, destination: Path) -> Path:
    """Copy a run folder, with the former names in its settings and in the header of its model; return the copy."""
    copy = copy_run_folder(run, destination)
    settings = copy / "config.toml"
    former = with_former_lines(settings.read_text("utf-8"))
    assert all(re.search(rf"^{key.partition('.')[2]} = ", former, re.MULTILINE) for key in RENAMED_SETTINGS)
    settings.write_text(former, "utf-8")
    model = copy / "model.safetensors"
    with open_tensors(model) as stored:
        run_metadata = {key: value for key, value in stored.metadata.items() if key in RUN_KEYS}
    names = {FORMER_NAMES.get(key, key): value for key, value in json.loads(run_metadata[SETTINGS]).items()}
    assert "encoder.features" in names and "decoder.output" in names
    run_metadata[SETTINGS] = json.dumps(names)
    model.write_bytes(parameter_file(load_file(model), run_metadata))
    return copy


def test_each_renamed_setting_exists_and_stays_in_its_section() -> None:
    keys = flatten_config(make_small_config())
    for former, current in RENAMED_SETTINGS.items():
        assert former not in keys and current in keys
        assert former.partition(".")[0] == current.partition(".")[0]
    assert len(FORMER_NAMES) == len(RENAMED_SETTINGS)


def test_a_file_with_former_names_loads_as_one_with_present_names(tmp_path: Path) -> None:
    (tmp_path / "former.toml").write_text(FORMER)
    (tmp_path / "present.toml").write_text(PRESENT)
    config = load_config(tmp_path / "present.toml")
    assert load_config(tmp_path / "former.toml") == config
    assert load_config(tmp_path / "former.toml", {"size": "small"}).size == "small"
    complete = tmp_path / "complete.toml"
    complete.write_text(with_former_lines(to_toml(config)))
    assert load_saved_config(complete) == config and missing_settings(complete, config) == []
    written = to_toml(config)
    assert not any(re.search(rf"^{key.partition('.')[2]} = ", written, re.MULTILINE) for key in RENAMED_SETTINGS)


@pytest.mark.parametrize(("former", "current"), RENAMED_SETTINGS.items())
def test_a_file_with_both_names_of_a_setting_is_refused_with_both(former: str, current: str, tmp_path: Path) -> None:
    section, names = former.partition(".")[0], [key.partition(".")[2] for key in (former, current)]
    path = tmp_path / "both.toml"
    path.write_text(f"[{section}]\n{names[0]} = 1\n{names[1]} = 1\n")
    reason = f"{former} is the former name of {current}: give {current} only"
    with pytest.raises(ConfigError, match=re.escape(f"{path}: {reason}") + "$"):
        load_config(path)
    with pytest.raises(ConfigError, match=re.escape(f"{path}: {reason}; correct the file, or restore it")):
        load_saved_config(path)
    with pytest.raises(ConfigError, match=re.escape(f"{path}: {reason}") + "$"):
        load_space(path, make_small_config())


def test_settings_of_other_forms_are_left_to_the_check_of_their_types() -> None:
    given = {"data": 1, "encoder": {"features": {"features": 2}}, "szie": None, "aligned": True}
    renamed = with_current_names(given)
    assert renamed == {"data": 1, "encoder": {"feature_merge": {"features": 2}}, "szie": None, "aligned": True}


@pytest.mark.parametrize(("former", "current"), RENAMED_SETTINGS.items())
def test_python_settings_with_a_former_name_are_refused_with_the_present_one(former: str, current: str) -> None:
    section, _, name = former.partition(".")
    with pytest.raises(ConfigError, match=rf"unknown key '{former}'; its name is now '{current}'"):
        build_config({section: {name: ""}}, "test")
    assert renaming_advice(current) == ""


@pytest.mark.parametrize(
    ("flag", "renamed"),
    [
        ("--from", "--init-from"),
        ("--initial-run", "--init-from"),
        ("--training.initial-run", "--training.init-from"),
        ("--training.initial_digest", "--training.init-from-digest"),
        ("--encoder.features", "--encoder.feature-merge"),
        ("--decoder.output", "--decoder.output-layer-inputs"),
        ("--aligned", "--equal-length"),
        ("--no-aligned", "--no-equal-length"),
    ],
)
def test_former_flags_are_refused_with_the_present_one(flag: str, renamed: str) -> None:
    message = usage_error_message(run_pellucid("train", "a.tsv", "--run", "run", flag, "x"))
    assert message == f"there is no flag {flag}; its name is now {renamed} (pellucid train --help)"


def test_only_settings_that_are_true_or_false_have_a_negated_flag() -> None:
    message = usage_error_message(run_pellucid("train", "a.tsv", "--run", "run", "--no-from", "x"))
    assert message == "there is no flag --no-from (pellucid train --help)"


def test_a_former_flag_of_another_subcommand_is_named_with_it() -> None:
    message = usage_error_message(run_pellucid("predict", "run", "--from", "x"))
    reason = "there is no flag --from; its name is now --init-from of pellucid train, tune"
    assert message == f"{reason} (pellucid predict --help)"


@pytest.mark.parametrize("name", ["model.json", "viewer/example.html"])
def test_published_pages_show_the_present_names(name: str) -> None:
    text = (Path(__file__).parents[1] / "docs" / name).read_text("utf-8")
    for former, current in RENAMED_SETTINGS.items():
        old, new = (f"\\n{key.partition('.')[2]} = " for key in (former, current))
        assert old not in text and new in text, (former, current)


def test_hashes_have_the_former_names() -> None:
    config = make_small_config({"callbacks": ["tensorboard"]}, data={"header": "auto"})
    expected = msgspec.json.encode(config)
    for former, current in RENAMED_SETTINGS.items():
        old, new = (f'"{key.partition(".")[2]}":'.encode() for key in (former, current))
        assert expected.count(new) == 1
        expected = expected.replace(new, old)
    assert msgspec.json.encode(hashed_settings(config)) == expected
    data = msgspec.json.encode(config.data).replace(b'"equal_length":', b'"aligned":')
    assert msgspec.json.encode(hashed_settings(config.data)) == data


def test_a_run_with_former_names_predicts_and_evaluates_the_same(tmp_path: Path) -> None:
    trained = copy_task_run()
    former = write_former_run(trained.run, tmp_path / "former")
    config = load_run_config(trained.run)
    assert load_run_config(former) == config and read_run(former).config == config
    arguments = (trained.files.valid, "--output-format", "jsonl")
    outputs = [run_pellucid("predict", run, *arguments).out for run in (former, trained.run)]
    assert outputs[0] == outputs[1] and outputs[0].count("\n") == 10
    tables = [run_pellucid("evaluate", run, trained.files.valid, "--json").out for run in (former, trained.run)]
    own = ("name", "provenance", "seconds")
    results = [{key: value for key, value in json.loads(table).items() if key not in own} for table in tables]
    assert results[0] == results[1] and len(results[0]) > 20


def test_settings_of_a_model_are_compared_by_their_present_names(tmp_path: Path) -> None:
    former = write_former_run(copy_task_run().run, tmp_path / "former")
    identity = read_identity(former)
    identity.check_config(copy_task_run().config)
    config = override_settings(copy_task_run().config, {"decoder": {"output_layer_inputs": "context"}})
    with pytest.raises(RunError, match=r"decoder\.output_layer_inputs is 'context', and 'state-and-context' in"):
        identity.check_config(config)


@pytest.mark.slow
def test_an_unfinished_run_with_former_names_is_resumed_to_the_bit(tmp_path: Path) -> None:
    files = copy_task_run().files
    config = make_small_config({"init_from": str(copy_task_run().run), "epochs": 2, "eval_interval": 0.5}, dropout=0.3)
    train_to_end(files, tmp_path / "whole", config)
    events = train_run(files, tmp_path / "part", config)
    for event in events:
        if isinstance(event, UpdateCompleted) and event.progress.update == 6:
            break
    events.close()
    former = write_former_run(tmp_path / "part", tmp_path / "former")
    settings = (former / "config.toml").read_text("utf-8")
    train_to_end(files, former, config)
    assert (former / "config.toml").read_text("utf-8") == settings
    (former / "config.toml").write_text((tmp_path / "whole" / "config.toml").read_text("utf-8"), "utf-8")
    assert_runs_identical(former, tmp_path / "whole")


def test_prepared_data_with_former_names_is_read(tmp_path: Path) -> None:
    files, config = copy_task_run().files, make_small_config(data={"equal_length": True})
    *_, prepared = prepare_data(files, tmp_path / "data", config)
    assert isinstance(prepared, DataPrepared)
    resolved = msgspec.structs.replace(config, data=resolve_auto_settings(files, config.data))
    expected, path = read_prepared(tmp_path / "data", resolved), tmp_path / "data" / DESCRIPTION_FILE
    content = path.read_text("utf-8")
    path.write_text(content.replace('"equal_length"', '"aligned"'), "utf-8")
    assert parse_json(path.read_bytes())["data"]["aligned"] is True
    assert read_prepared(tmp_path / "data", resolved).description == expected.description
    before = path.read_bytes()
    list(prepare_data(files, tmp_path / "data", config))
    assert path.read_bytes() == before
    path.write_text(content.replace('"equal_length"', '"aligned": true, "equal_length"'), "utf-8")
    with pytest.raises(DataError, match=r"data\.aligned is the former name of data\.equal_length"):
        read_prepared(tmp_path / "data", resolved)


def test_a_search_space_with_former_names_is_that_with_present_names(tmp_path: Path) -> None:
    former, present = tmp_path / "former.toml", tmp_path / "present.toml"
    text = '[decoder]\noutput = {choices = ["state", "context"]}\n[encoder]\nmerge = {like = "encoder.features"}\n'
    former.write_text(text)
    renamed = text.replace("output", "output_layer_inputs").replace("encoder.features", "encoder.feature_merge")
    present.write_text(renamed)
    assert load_space(former, make_small_config()) == load_space(present, make_small_config())


def study_changes(stored: Mapping[str, object], config: Config) -> list[str]:
    """Return what differs between the stored settings of a study and a configuration."""
    new = {"data": "", "settings": flatten_config(config), "space": []}
    return TuningStudy._changes({"data": "", "settings": stored, "space": []}, new)


def test_the_settings_of_a_search_are_compared_by_their_present_names() -> None:
    config = make_small_config()
    stored = {FORMER_NAMES.get(key, key): value for key, value in flatten_config(config).items()}
    assert study_changes(stored, config) == []
    assert study_changes({**stored, "decoder.output": "context"}, config) == ["settings (decoder.output_layer_inputs)"]
