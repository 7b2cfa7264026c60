"""Damaged and malicious run folders are refused by one message that names the file and the field."""

import io
import json
import os
import re
import shutil
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from task_cases import task_run
from trained_runs import assert_runs_identical, copy_run_folder, copy_task_run, digits_run

from pellucid.config.settings import DataConfig
from pellucid.config.toml import ADDED_SETTINGS, flatten_config, load_config
from pellucid.errors import ConfigError, InputError, RunError
from pellucid.files import read_bytes
from pellucid.run_folder import log, tensor_file
from pellucid.run_folder.identity import read_identity
from pellucid.run_folder.lock import in_use, lock_run_folder
from pellucid.run_folder.log import append_log, cut_log, load_run_log, read_log
from pellucid.run_folder.model_file import VERSIONS, parameter_file
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.progress import Progress
from pellucid.run_folder.run_files import ENSEMBLE, load_run_config, member_folders
from pellucid.run_folder.tensor_file import open_tensors
from pellucid.training.events import FileSaved, ModelBuilt
from pellucid.training.session import train_run
from pellucid.training.snapshots import read_snapshots
from pellucid.viewer.inputs import find_validation_file, run_names

NESTED_BRACKETS = "[" * 100_000
MANY_DIGITS = "9" * 5_000
LONG_NAME = "a" * 5_000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a copy of a finished run."""
    return copy_run_folder(copy_task_run().run, tmp_path / "run")


def error_message(operation: Callable[[], object]) -> str:
    """Return the message of the InputError that the operation raises."""
    with pytest.raises(InputError) as caught:
        operation()
    return str(caught.value)


def resume(run: Path) -> None:
    """Repeat the training command of the run."""
    list(train_run(copy_task_run().files, run, copy_task_run().config))


def first_snapshot(run: Path) -> Path:
    """Return the path of the first snapshot of a run."""
    return sorted((run / "snapshots").iterdir())[0]


READERS: dict[str, Callable[[Path], object]] = {
    "config.toml": load,
    "vocabulary.json": load,
    "model.safetensors": load,
    "ensemble.json": load,
    "log.jsonl": read_log,
    "training.safetensors": resume,
    "snapshot": read_snapshots,
}
"""Files of a run folder, and the function that reads each."""


def file_path(run: Path, name: str) -> Path:
    """Return the path of a file in READERS."""
    return first_snapshot(run) if name == "snapshot" else run / name


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "huge", "loop"])
def test_special_and_endless_files_are_refused(run: Path, name: str, kind: str) -> None:
    path = file_path(run, name)
    path.unlink(missing_ok=True)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path.name)
        case "huge":
            path.write_bytes(b"")
            os.truncate(path, 2**40)
    message = error_message(lambda: READERS[name](run))
    assert str(path) in message and len(message) < 1000
    if kind in ("pipe", "device"):
        assert message.startswith(f"{path} is a {'named pipe' if kind == 'pipe' else 'device'}, not a regular file; ")


@pytest.mark.parametrize("name", READERS)
def test_a_link_to_a_regular_file_is_read(run: Path, name: str) -> None:
    path = file_path(run, name)
    if name == ENSEMBLE:
        return
    path.rename(run.parent / "elsewhere")
    path.symlink_to(run.parent / "elsewhere")
    READERS[name](run)


def test_a_lock_that_is_a_pipe_is_refused(run: Path) -> None:
    (run / ".lock").unlink(missing_ok=True)
    os.mkfifo(run / ".lock")
    assert not in_use(run)
    assert str(run / ".lock") in error_message(lambda: lock_run_folder(run).__enter__())


def test_a_log_that_is_a_pipe_is_refused(run: Path) -> None:
    (run / "log.jsonl").unlink()
    os.mkfifo(run / "log.jsonl")
    assert str(run / "log.jsonl") in error_message(lambda: append_log(run, {"event": "compiling"}))


@pytest.mark.parametrize("name", [".lock", "log.jsonl", "snapshots"])
@pytest.mark.parametrize("finished", [True, False])
def test_a_training_writes_nothing_through_a_link(run: Path, name: str, finished: bool) -> None:
    """The target of the link is not changed and not created."""
    elsewhere = run.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "000001-99999999.safetensors").write_bytes(b"precious")
    (elsewhere / "file").write_bytes(b"precious\n")
    if finished:
        (run / ".lock").touch()
    else:
        events = train_run(copy_task_run().files, run.parent / "interrupted", copy_task_run().config)
        next(event for event in events if isinstance(event, FileSaved))
        events.close()
        run = run.parent / "interrupted"
    (run / name).rename(run.parent / "old")
    (run / name).symlink_to(elsewhere if name == "snapshots" else elsewhere / "file")
    message = error_message(lambda: resume(run))
    assert message.startswith(f"{run / name} is a symbolic link, and a training writes only into its own folder: ")
    assert sorted(path.read_bytes() for path in elsewhere.iterdir()) == [b"precious", b"precious\n"]
    (run / name).unlink()
    (run / name).symlink_to(elsewhere / "new")
    assert str(run / name) in error_message(lambda: resume(run)) and not (elsewhere / "new").exists()
    (run / name).unlink()
    (run.parent / "old").rename(run / name)
    resume(run)
    assert_runs_identical(copy_task_run().run, run)


@pytest.mark.parametrize("name", [".lock", "log.jsonl"])
def test_locking_and_logging_refuse_a_link(run: Path, name: str) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(run.parent / "new")
    assert str(run / name) in error_message(
        lambda: lock_run_folder(run).__enter__() if name == ".lock" else append_log(run, {})
    )
    assert not (run.parent / "new").exists()


def test_virtual_files_are_read_up_to_the_size_limit(tmp_path: Path) -> None:
    """Files in /proc report no size; reading all of pagemap gives half a terabyte."""
    (tmp_path / "a").symlink_to("/proc/self/pagemap")
    assert stat.S_ISREG((tmp_path / "a").stat().st_mode)
    assert "is too large" in error_message(lambda: read_bytes(tmp_path / "a", limit=1000))


@pytest.mark.parametrize("size", [9, 10, 11])
def test_a_file_is_read_up_to_the_size_limit(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(b"x" * size)
    if size <= 10:
        assert read_bytes(tmp_path / "a", limit=10) == b"x" * size
    else:
        assert error_message(lambda: read_bytes(tmp_path / "a", limit=10)) == (
            f"{tmp_path / 'a'} is too large: it has more than 10 bytes"
        )


def test_a_settings_file_of_the_user_may_be_a_pipe(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"seed = 7")
    os.close(write)
    assert load_config(Path(f"/dev/fd/{read}"), regular=False).seed == 7
    os.close(read)
    assert "is too large" in error_message(lambda: load_config(Path("/dev/zero"), regular=False))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (f"a = {NESTED_BRACKETS}", "is not TOML: it is nested too deeply"),
        (f"a = {MANY_DIGITS}", "is not TOML: it contains a number with thousands of digits"),
        (f"a{'.a' * 400_000} = 1", "is not TOML: a line has more than 1,000 dots"),
        (f"[a{'.a' * 999}]" + "".join(f"\nb{n}{'.a' * 999} = 1" for n in range(10)), "has more than 10,000 dots"),
        (f"seed{'.a' * 900} = 1", "is not TOML: it is nested too deeply"),
        (f"seed{'.a' * 50} = 1", "seed: expected a whole number, got {'a': {'a'"),
        (f"seed = '{LONG_NAME}'", "seed: expected a whole number, got 'aaaa"),
        ("[search]\nmax_length_ratio = 1e300", "search.max_length_ratio: expected"),
        ("[search]\ncoverage_penalty = 1e308", "search.coverage_penalty: expected"),
        ("[search]\nlength_penalty_alpha = 1e308", "search.length_penalty_alpha: expected"),
    ],
)
def test_invalid_settings_are_refused(run: Path, content: str, reason: str) -> None:
    (run / "config.toml").write_text(content)
    message = error_message(lambda: load(run))
    assert message.startswith(f"{run / 'config.toml'}") and reason in message and len(message) < 1000
    with pytest.raises(ConfigError):
        load_config(run / "config.toml")


def remove_settings(text: str, kind: str) -> str:
    """Return a configuration without the section [search], without one setting, or empty."""
    if kind == "search":
        return text[: text.index("[search]")]
    return "" if kind == "all" else re.sub(rf"(?m)^{kind} = .*\n", "", text)


@pytest.mark.parametrize(
    ("kind", "first"),
    [("search", "search.max_length"), ("beam_size", "search.beam_size"), ("seed", "seed"), ("all", "size")],
)
def test_a_configuration_that_lacks_settings_is_refused_and_the_training_command_restores_it(
    run: Path, kind: str, first: str
) -> None:
    """A missing setting is not replaced by its preset, which would change the outputs without a message."""
    config = run / "config.toml"
    original = config.read_bytes()
    keys = [key for key in flatten_config(load_config(config)) if kind in key or kind == "all"]
    keys = [key for key in keys if key not in ADDED_SETTINGS]
    others = f" and {len(keys) - 1} other settings" if len(keys) > 1 else ""
    config.write_text(remove_settings(original.decode(), kind), "utf-8")
    expected = f"{config} lacks {first}{others}: restore the file, or give the training command again"
    assert error_message(lambda: load(run)) == error_message(lambda: load_run_config(run)) == expected
    (built,) = (event for event in train_run(*copy_task_run()._replace(run=run)) if isinstance(event, ModelBuilt))
    assert f"{config} lacked settings: it is written anew" in built.warnings and config.read_bytes() == original
    load(run)


@pytest.mark.parametrize("key", sorted(ADDED_SETTINGS))
def test_a_configuration_of_an_earlier_version_is_loaded(run: Path, key: str) -> None:
    config = run / "config.toml"
    expected, name = load_run_config(run), key.rpartition(".")[2]
    config.write_text(remove_settings(config.read_text("utf-8"), name), "utf-8")
    assert f"{name} =" not in config.read_text("utf-8")
    assert load_run_config(run) == expected
    load(run)


def test_a_missing_extension_is_refused_with_the_packages_of_the_training(run: Path) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text("utf-8").replace('type = "additive"', 'type = "cosine"'), "utf-8")
    versions = {VERSIONS: json.dumps({"pellucid": "0.1.0", "my-attention": "1"})}
    (run / "model.safetensors").write_bytes(parameter_file({"a": np.zeros(1, np.float32)}, versions))
    message = error_message(lambda: load_run_config(run))
    assert message.startswith(f"{config}: attention.type = 'cosine' is neither built in nor installed: install ")
    assert message.endswith("; the model was trained with 'my-attention 1'")


NUM_FIRST_SETTINGS = 105
"""Number of settings that every saved configuration has."""


def test_settings_that_were_added_since_the_first_runs_are_named(run: Path) -> None:
    """If a setting is added, `ADDED_SETTINGS` names it, unless earlier runs shall be refused."""
    assert len(flatten_config(load_run_config(run)).keys() - ADDED_SETTINGS) == NUM_FIRST_SETTINGS


def test_a_configuration_that_lacks_settings_and_differs_is_refused(run: Path) -> None:
    config = run / "config.toml"
    text = re.sub(r"(?m)^epochs = .*$", "epochs = 2", remove_settings(config.read_text("utf-8"), "search"))
    config.write_text(text, "utf-8")
    message = error_message(lambda: resume(run))
    assert "different configuration" in message and "training.epochs: 2.0 in the run, 3.0" in message
    assert "search." not in message and config.read_text("utf-8") == text


@pytest.mark.parametrize("key", ["longest_source", "longest_target"])
def test_a_vocabulary_with_too_long_training_texts_is_refused(run: Path, key: str) -> None:
    content = json.loads((run / "vocabulary.json").read_text("utf-8")) | {key: 1001}
    (run / "vocabulary.json").write_text(json.dumps(content), "utf-8")
    assert error_message(lambda: load(run)) == (
        f"{run / 'vocabulary.json'}: {key}: expected at most 1000 (data.max_sequence_length of the run), got 1001; "
        "restore the file from a copy of the run, or train the model again"
    )


@pytest.mark.parametrize("damage", ["longer", "shorter", "swapped", "tags"])
def test_positions_that_do_not_fit_the_configuration_are_refused(tmp_path: Path, damage: str) -> None:
    """The symbols of a pointer are the positions of the longest source, in order."""
    run = copy_run_folder(task_run("point").run, tmp_path / "run")
    config, vocabulary = run / "config.toml", run / "vocabulary.json"
    content, size = json.loads(vocabulary.read_text("utf-8")), load_config(config).data.max_sequence_length
    symbols = content["target"]["symbols"]
    assert symbols == [str(position) for position in range(1, size + 1)]
    if damage in ("longer", "shorter"):
        size += 100 if damage == "longer" else -100
        settings = config.read_text("utf-8")
        config.write_text(
            re.sub(r"(?m)^max_sequence_length = \d\d+$", f"max_sequence_length = {size}", settings, count=1), "utf-8"
        )
        assert load_config(config).data.max_sequence_length == size
        reason = f"got {len(symbols)} symbols"
    elif damage == "swapped":
        symbols[3:5] = symbols[4], symbols[3]
        vocabulary.write_text(json.dumps(content), "utf-8")
        reason = "got '5' in place 4"
    else:
        shutil.copy(task_run("tag").run / "vocabulary.json", vocabulary)
        reason = "'C' "
    message = error_message(lambda: load(run))
    assert message.startswith(f"{vocabulary}: target.symbols: ") and reason in message and len(message) < 1000
    if damage != "tags":
        assert f"expected the positions 1 to {size} in order (data.max_sequence_length of the run)" in message


@pytest.mark.parametrize("key", ["source_symbols", "target_symbols", "features_symbols"])
def test_invalid_symbol_settings_are_refused_with_the_file_name(run: Path, key: str) -> None:
    settings = (run / "config.toml").read_text("utf-8")
    (run / "config.toml").write_text(re.sub(rf"(?m)^{key} = .*$", f'{key} = "charcters"', settings), "utf-8")
    message = error_message(lambda: load(run))
    assert message.startswith(f"{run / 'config.toml'}: data.{key}: expected ") and "charcters" in message


@pytest.mark.parametrize("minimum", [0, 2**15])
def test_outputs_far_beyond_the_training_targets_are_refused(run: Path, minimum: int) -> None:
    """Decoding would take minutes per source if the network generated no end-of-sequence symbol."""
    settings = (run / "config.toml").read_text("utf-8")
    for name, value in (("min_length", minimum), ("max_length", 2**15)):
        settings = settings.replace(f"\n{name} = 0\n", f"\n{name} = {value}\n")
    (run / "config.toml").write_text(settings, "utf-8")
    assert error_message(lambda: load(run)) == (
        f"{run / 'config.toml'}: search.{'min' if minimum else 'max'}_length: expected at most 1000 (10 times "
        "the longest training target, which has 3 symbols, or 1000 where that is more), got 32768; "
        "correct the file, or restore it from a copy of the run"
    )
    (run / "config.toml").write_text(settings.replace(str(2**15), "1000"), "utf-8")
    assert load(run).max_length == 1000


@pytest.mark.parametrize(
    "key", ["encoder.hidden_size", "encoder.num_layers", "encoder.embedding_size", "attention.size"]
)
@pytest.mark.parametrize("size", [20_000, 2**20])
def test_sizes_that_do_not_fit_the_parameters_are_refused(run: Path, key: str, size: int) -> None:
    section, _, name = key.partition(".")
    lines = (run / "config.toml").read_text("utf-8").split("\n")
    start = lines.index(f"[{section}]")
    index = next(index for index, line in enumerate(lines) if index > start and line.startswith(f"{name} = "))
    lines[index] = f"{name} = {size}"
    (run / "config.toml").write_text("\n".join(lines), "utf-8")
    message = error_message(lambda: load(run))
    if key == "encoder.num_layers":
        assert message.startswith(f"{run / 'config.toml'}: {key}: expected a whole number of at most 100, got {size}; ")
    else:
        files = f"{run / 'config.toml'} and {run / 'model.safetensors'}"
        assert message.startswith(f"{files} are not of the same run: {key} is {size}, and ")


INVALID_VOCABULARIES: dict[str, tuple[str, object]] = {
    "longest_target": ("longest_target", 1e30),
    "longest_target, whole": ("longest_target", 10**30),
    "longest_source": ("longest_source", -1),
    "counts": ("counts", 10**30),
    "digits": ("longest_target", MANY_DIGITS),
    "deep": ("longest_target", NESTED_BRACKETS),
    "further key": ("further", NESTED_BRACKETS),
}


@pytest.mark.parametrize("kind", INVALID_VOCABULARIES)
def test_an_invalid_vocabulary_is_refused(run: Path, kind: str) -> None:
    key, value = INVALID_VOCABULARIES[kind]
    content = json.loads((run / "vocabulary.json").read_text("utf-8"))
    if key == "counts":
        content["source"]["counts"][0] = value
    else:
        content[key] = value
    text = json.dumps(content).replace(f'"{MANY_DIGITS}"', MANY_DIGITS).replace(f'"{NESTED_BRACKETS}"', NESTED_BRACKETS)
    (run / "vocabulary.json").write_text(text, "utf-8")
    message = error_message(lambda: load(run))
    assert message.startswith(f"{run / 'vocabulary.json'} is not a vocabulary: ")
    field = "source.counts" if key == "counts" else key
    assert ("contains unknown field `further`" if key == "further" else f"$.{field}") in message


@pytest.mark.parametrize(
    ("name", "key", "reason"),
    [
        ("vocabulary.json", "longest_target", "is not a vocabulary: "),
        ("vocabulary.json", "counts", "is not a vocabulary: "),
        ("ensemble.json", "members", "does not list the members of an ensemble by their folders' names: "),
    ],
)
def test_a_duplicate_key_is_refused(run: Path, name: str, key: str, reason: str) -> None:
    """JSON readers differ in which of the two values they take."""
    if name == "ensemble.json":
        (run / name).write_text(f'{{"{key}": ["a"]}}')
    content = (run / name).read_text("utf-8")
    value = {"longest_target": "3", "counts": "[]", "members": '["b"]'}[key]
    (run / name).write_text(content.replace(f'"{key}"', f'"{key}": {value}, "{key}"', 1), "utf-8")
    message = error_message(lambda: load(run))
    assert message.startswith(f"{run / name} {reason}the key '{key}' occurs twice in an object; restore the file from ")


def rewrite_header(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Apply a change to the header of a safetensors file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    change(header)
    new_header = json.dumps(header).encode()
    path.write_bytes(len(new_header).to_bytes(8, "little") + new_header + content[8 + length :])


def first_tensor(header: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of the first tensor in a header."""
    tensor: dict[str, Any] = header[next(name for name in sorted(header) if name != "__metadata__")]
    return tensor


INVALID_HEADERS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "metadata null": (lambda h: h.update(__metadata__=None), "its header: Expected `object`, got `null`"),
    "half of a surrogate pair": (
        lambda h: h["__metadata__"].update(settings='{"a":"\ud800"}'),
        "its header: 'utf-8' codec can't encode character",
    ),
    "half of a surrogate pair in a name": (
        lambda h: h.update({"\ud800": first_tensor(h)}),
        "its header: 'utf-8' codec can't encode character",
    ),
    "metadata of numbers": (lambda h: h.update(__metadata__={"format": 1}), "its header: Expected `str`, got `int`"),
    "unsupported type": (lambda h: first_tensor(h).update(dtype="F8_E4M3"), "as F8_E4M3: expected one of BOOL"),
    "another type": (lambda h: first_tensor(h).update(dtype="I32"), "is I32 ["),
    "type bool": (lambda h: first_tensor(h).update(dtype="BOOL"), "is BOOL ["),
    "type float16": (lambda h: first_tensor(h).update(dtype="F16"), "is F16 ["),
    "negative size": (lambda h: first_tensor(h).update(shape=[-1, 2]), "Expected `int` >= 0 - at `$.shape[0]`"),
    "huge size": (lambda h: first_tensor(h).update(shape=[2**60, 2]), "Expected `int` <= 9007199254740992"),
    "many dimensions": (lambda h: first_tensor(h).update(shape=[9] * 1000), "Expected `array` of length <= 8"),
    "reversed offsets": (lambda h: first_tensor(h).update(data_offsets=[8, 0]), "is not a whole safetensors file"),
    "additional tensor": (lambda h: h.update(x=first_tensor(h)), "it holds x, which the network lacks"),
    "missing tensor": (lambda h: h.pop("encoder.table.weight"), "it lacks encoder.table.weight"),
    "long name": (
        lambda h: h.update({"A" * 5000: first_tensor(h)}),
        "holds a tensor whose name has 5,000 characters, AA",
    ),
    "tensor null": (lambda h: h.update(x=None), "x in its header: Expected `object`, got `null`"),
}


@pytest.mark.parametrize("kind", INVALID_HEADERS)
def test_an_invalid_header_is_refused(run: Path, kind: str) -> None:
    change, reason = INVALID_HEADERS[kind]
    rewrite_header(run / "model.safetensors", change)
    message = error_message(lambda: load(run))
    assert message.startswith(f"{run / 'model.safetensors'} ") and reason in message, message
    assert len(message) < len(str(run)) + 1000


def test_a_snapshot_with_a_long_name_of_a_tensor_is_refused_in_a_short_message(run: Path) -> None:
    path = first_snapshot(run)
    rewrite_header(path, lambda header: header.update({"A" * 5000: {**first_tensor(header), "dtype": "I32"}}))
    message = error_message(lambda: read_snapshots(run))
    assert message.startswith(f"{path} holds a tensor whose name has 5,000 characters, AA")
    assert len(message) < len(str(path)) + 300


@pytest.mark.parametrize(
    "content", [NESTED_BRACKETS, "{" * 9, f'{{"a":{MANY_DIGITS}}}', "\ud800", "[]", '{"a":"\\ud800"}']
)
def test_a_header_that_is_not_json_is_refused(run: Path, content: str) -> None:
    header = content.encode("utf-8", "surrogatepass")
    (run / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "model.safetensors is not a whole safetensors file: " in error_message(lambda: load(run))


@pytest.mark.parametrize("length", [0, 1, 2**63, 2**64 - 1])
def test_a_wrong_header_length_is_refused(run: Path, length: int) -> None:
    content = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(length.to_bytes(8, "little") + content[8:])
    assert "model.safetensors is not a whole safetensors file: " in error_message(lambda: load(run))


@pytest.mark.parametrize("kind", [torch.int32, torch.bool, torch.float16, torch.float64, torch.float8_e4m3fn])
def test_parameters_of_another_type_are_not_cast(run: Path, kind: torch.dtype) -> None:
    path = run / "model.safetensors"
    tensors = safetensors.torch.load(path.read_bytes())
    name = sorted(tensors)[0]
    tensors[name] = torch.ones(tensors[name].shape).to(kind)
    safetensors.torch.save_file(tensors, path)
    message = error_message(lambda: load(run))
    assert message.startswith(f"{path} ") and name in message


DAMAGED_LINES = [
    *(
        '{"event":[]}',
        '{"event":{}}',
        '{"event":"read","update":"x"}',
        f'{{"event":"stopped","update":{MANY_DIGITS}}}',
        NESTED_BRACKETS,
    ),
    *('{"event":"read","update":5,"path":"a","examples":1,"blank_lines":0,"bad_lines":[]}', '{"event":"compil'),
    '{"event":"stopped","update":1,"update":2,"samples":1,"epoch":1,"seconds":1}',
    '{"event":"read","path":5,"examples":1,"blank_lines":0,"bad_lines":[]}',
    '{"event":"read","path":"a","examples":"many","blank_lines":0,"bad_lines":[]}',
    '{"event":"read","path":"a","sha256":5,"examples":1,"blank_lines":0,"bad_lines":[]}',
    '{"event":"read","path":"a","size":"5","examples":1,"blank_lines":0,"bad_lines":[]}',
    '{"event":"compiling","validation":"x"}',
    '{"event":"interpolated","weight":1e308,"exact_match":1,"network_exact_match":1,"sources":1}',
    '{"event":"interpolated","weight":0.5,"exact_match":101,"network_exact_match":1,"sources":1}',
    '{"event":"pair_ngram","examples":1,"exact_match":-1e308}',
    '{"event":"stopped","update":1,"validation":"x","samples":1,"epoch":1,"seconds":1}',
    '{"event":"stopped","update":1e400,"samples":1,"epoch":1,"seconds":1}',
    '{"event":"stopped","update":true,"samples":1,"epoch":1,"seconds":1}',
    '{"event":"stopped","update":1,"samples":1,"epoch":1,"seconds":NaN}',
    '{"event":"stopped","update":1,"samples":1,"epoch":1,"seconds":1,"more":{"deep":{}}}',
    '{"event":"validated","update":1,"samples":1,"epoch":1,"seconds":1,"exact_match":1,"symbol_error_rate":1,'
    '"symbol_accuracy":1,"loss":1,"best":"yes"}',
]


@pytest.mark.parametrize("line", DAMAGED_LINES)
def test_a_damaged_log_line_is_counted_and_has_no_other_effect(run: Path, line: str) -> None:
    original = read_log(run)
    assert load_run_log(run).describe_damage() == []
    with (run / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(f"{line}\n\n")
    assert read_log(run) == original
    assert load_run_log(run).describe_damage() == [f"{run / 'log.jsonl'}: 1 damaged line skipped"]
    find_validation_file(run, DataConfig())
    cut_log(run, Progress(update=10**6, validations=10**6), "")
    assert read_log(run) == original and load_run_log(run).describe_damage() == []


def test_a_long_log_line_is_damaged_and_takes_little_memory(run: Path) -> None:
    original = read_log(run)
    with (run / "log.jsonl").open("ab") as log:
        log.write(b'{"event":"' + b"x" * 40_000_000 + b'"}\n')
        log.write(b"{" * (2**20))  # no line end, maximum line length
    tracemalloc.start()
    assert read_log(run) == original
    assert load_run_log(run).describe_damage() == [f"{run / 'log.jsonl'}: 2 damaged lines skipped"]
    assert tracemalloc.get_traced_memory()[1] < 16_000_000
    tracemalloc.stop()


def test_a_log_above_the_size_limit_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_LOG_SIZE", (run / "log.jsonl").stat().st_size - 1)
    with pytest.raises(RunError, match=r"log\.jsonl is too large: it has more than [\d,]+ bytes"):
        read_log(run)


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"\n", b"\0" * 100])
def test_a_log_without_an_end_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    """Virtual files of the system, such as /proc/self/pagemap, have size 0, and some have no end."""

    class EndlessFile(io.BufferedReader):
        def readline(self, size: int | None = -1, /) -> bytes:
            assert size is not None
            return line if line.endswith(b"\n") else line * (size // len(line)) + line[: size % len(line)]

    monkeypatch.setattr(log, "MAX_LOG_SIZE", 2**21)
    monkeypatch.setattr(log, "open_regular", lambda path, kind: EndlessFile(io.FileIO(os.devnull)))
    with pytest.raises(RunError, match=r"log\.jsonl is too large: it has more than 2,097,152 bytes"):
        load_run_log(run)


def test_a_log_without_the_best_validation_is_reported_on_resume(run: Path) -> None:
    def resume_warnings() -> tuple[str, ...]:
        events = train_run(copy_task_run().files, run, copy_task_run().config)
        return next(event.warnings for event in events if isinstance(event, ModelBuilt))

    assert not any("lacks" in line for line in resume_warnings())
    (run / "log.jsonl").unlink()
    warning = next(line for line in resume_warnings() if "lacks" in line)
    assert warning.startswith(f"{run / 'log.jsonl'} lacks the best validation, at update ")


def test_the_log_of_another_run_does_not_change_the_model_card(run: Path) -> None:
    card, path = (run / "card.md").read_text("utf-8"), run / "log.jsonl"
    path.write_text(re.sub(r'"loss": ([0-9.]+)', r'"loss": 9\1', path.read_text("utf-8")), "utf-8")
    events = train_run(copy_task_run().files, run, copy_task_run().config)
    warnings = next(event.warnings for event in events if isinstance(event, ModelBuilt))
    events.close()
    assert [line for line in warnings if "is of another run" in line] and not any(
        "card.md" in line for line in warnings
    )
    assert (run / "card.md").read_text("utf-8") == card


def test_a_log_with_an_impossible_file_name_is_read(run: Path) -> None:
    for name in (LONG_NAME, "a\0b"):
        line = {"event": "read", "path": name, "examples": 1, "blank_lines": 0, "bad_lines": []}
        line |= {"size": 1, "sha256": "0" * 64}
        (run / "log.jsonl").write_text(f"{json.dumps(line)}\n" * 2, "utf-8")
        message = error_message(lambda: find_validation_file(run, DataConfig()))
        assert len(read_log(run)) == 2 and "is not, or no longer, the validation file of this run" in message
        assert len(message) < 1500


@pytest.mark.parametrize(
    "content",
    [
        *(f'{{"members":["{name}"]}}' for name in ("..", ".", "", "/", "/tmp", "a/..", "../a", "a\\u0000b", "a/")),
        *(
            '{"members":["a","a"]}',
            '{"members":{"a":1}}',
            f'{{"members":{NESTED_BRACKETS}',
            f'{{"a":{NESTED_BRACKETS}',
            '{"members":["\\ud800"]}',
        ),
        *(
            f'{{"members":{MANY_DIGITS}}}',
            json.dumps({"members": [f"a{at}" for at in range(1001)]}),
            '{"members":["a"],"b":1}',
        ),
    ],
    ids=lambda content: content[:20],
)
def test_an_invalid_list_of_members_is_refused(run: Path, content: str) -> None:
    (run / ENSEMBLE).write_text(content)
    message = error_message(lambda: member_folders(run))
    assert message.startswith(f"{run / ENSEMBLE} does not list the members of an ensemble by their folders' names: ")


def test_a_member_with_a_too_long_name_is_refused(tmp_path: Path) -> None:
    for name in (LONG_NAME, "a" * 256, "é" * 128):
        (tmp_path / ENSEMBLE).write_text(json.dumps({"members": [name]}))
        message = error_message(lambda: load(tmp_path))
        assert "…' is not the name of a folder: it has more than 255 bytes" in message and len(message) < 500
    assert "a path that is not too long for the system" in error_message(lambda: load(tmp_path / LONG_NAME))


def test_nested_and_recursive_ensembles_are_refused(tmp_path: Path, run: Path) -> None:
    """Members are single runs. A member may be a link to a folder elsewhere."""
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    for name in ("outer", "outer/inner"):
        (tmp_path / name / ENSEMBLE).write_text('{"members":["inner"]}')
    assert error_message(lambda: load(tmp_path / "outer")) == (
        f"{tmp_path / 'outer' / 'inner'} is not a run folder: it holds no config.toml"
    )
    (tmp_path / "outer" / "inner" / ENSEMBLE).unlink()
    (tmp_path / "outer" / "inner").rmdir()
    (tmp_path / "outer" / "inner").symlink_to(tmp_path / "outer")
    assert "holds no config.toml" in error_message(lambda: load(tmp_path / "outer"))
    (tmp_path / "outer" / "inner").unlink()
    (tmp_path / "outer" / "inner").symlink_to(run)
    assert load(tmp_path / "outer").predict(["ab"])[0].source == ("a", "b")


INVALID_SNAPSHOTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "text": lambda record: record["traces"][0].update(text=5),
    "lengths": lambda record: record["traces"][0].update(target=[]),
    "num_features": lambda record: record["traces"][0].update(num_features=100),
    "unknown": lambda record: record["traces"][0].update(unknown=[100]),
    "steps": lambda record: record["traces"][0]["top"].pop(),
    "traces": lambda record: record.update(traces=record["traces"] * 9),
    "format": lambda record: record.update(format=1),
}


@pytest.mark.parametrize("kind", INVALID_SNAPSHOTS)
def test_an_invalid_snapshot_is_refused(run: Path, kind: str) -> None:
    path = first_snapshot(run)

    def change(header: dict[str, Any]) -> None:
        snapshot_record = json.loads(header["__metadata__"]["snapshot"])
        INVALID_SNAPSHOTS[kind](snapshot_record)
        header["__metadata__"]["snapshot"] = json.dumps(snapshot_record)

    rewrite_header(path, change)
    assert error_message(lambda: read_snapshots(run)).startswith(
        f"{path} is not a snapshot of this version of Pellucid: "
    )


def test_a_changed_bit_of_a_snapshot_is_detected_and_stops_a_resumed_training(run: Path) -> None:
    path = first_snapshot(run)
    content = path.read_bytes()
    for index in (len(content) - 1, content.index(b"log_probabilities") + 25):
        path.write_bytes(content[:index] + bytes([content[index] ^ 1]) + content[index + 1 :])
        message = error_message(lambda: read_snapshots(run))
        assert message.startswith(f"{path} is not a snapshot of this version of Pellucid: "), message
        reason = message.removesuffix("; remove this file: only its picture of the training is lost")
        assert error_message(lambda: resume(run)) == f"{reason}; remove this file to resume without it" != message
    path.unlink()
    resume(run)


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_a_file_in_place_of_the_snapshot_folder_is_reported(run: Path, kind: str) -> None:
    (run / "snapshots").rename(run.parent / "old")
    if kind == "file":
        (run / "snapshots").touch()
    else:
        os.mkfifo(run / "snapshots")
    expected = f"{run / 'snapshots'} is not a folder, but snapshots of the training belong there: remove it"
    assert error_message(lambda: read_snapshots(run)) == error_message(lambda: resume(run)) == expected


def test_a_link_to_itself_has_a_name_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert run_names([tmp_path / "loop"]) == ["loop"]


DAMAGED_CARDS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda card: b"",
    "cut short": lambda card: card[:-9],
    "a changed bit": lambda card: card.replace(b"# A", b"# a", 1),
    "no text": lambda card: card[:9] + b"\xff" + card[10:],
    "NUL": lambda card: bytes(len(card) + 7),
}


@pytest.mark.parametrize("kind", DAMAGED_CARDS)
def test_a_damaged_card_is_reported_and_rewritten(run: Path, kind: str) -> None:
    card = run / "card.md"
    original = card.read_bytes()
    card.write_bytes(DAMAGED_CARDS[kind](original))
    warnings = [
        event.warnings
        for event in train_run(copy_task_run().files, run, copy_task_run().config)
        if isinstance(event, ModelBuilt)
    ]
    assert f"{card} was damaged: it is written anew at the end of the training" in warnings[0]
    assert card.read_bytes() == original
    card.write_bytes(original + b"Ours.\n")
    resume(run)
    assert card.read_bytes() == original + b"Ours.\n"
    card.unlink()
    os.mkfifo(card)
    assert error_message(lambda: resume(run)) == (
        f"{card} is a named pipe, not a regular file; remove it: the training command writes it anew"
    )


@pytest.mark.parametrize("card_state", ["unchanged", "removed", "of equal length"])
def test_a_card_never_has_the_scores_of_another_validation(run: Path, card_state: str) -> None:
    """The log has an earlier validation, but not the best one, whose parameters the model has."""
    log, card = run / "log.jsonl", run / "card.md"
    best = max(each["update"] for each in read_log(run) if each["event"] == "validated" and each["best"])
    lines = log.read_bytes().splitlines(keepends=True)
    (index,) = (index for index, line in enumerate(lines) if b'"validated"' in line and b'"update": %d,' % best in line)
    log.write_bytes(b"".join([*lines[:index], b"{}\n", *lines[index + 1 :]]))
    assert any(each["event"] == "validated" and each["best"] for each in read_log(run))
    original = card.read_text("utf-8")
    if card_state == "removed":
        card.unlink()
    elif card_state != "unchanged":
        card.write_text(original.replace("# A", "# a", 1), "utf-8")
    text_before = card.read_text("utf-8") if card.exists() else ""
    resume(run)
    if text_before:
        assert card.read_text("utf-8") == text_before
    else:
        scores, following = "## Scores on the validation set\n\n", "\n\n## Limitations"
        start, end = original.index(scores) + len(scores), original.index(following)
        unknown = f"Unknown: `log.jsonl` lacks the best validation, at update {best}."
        assert card.read_text("utf-8") == original[:start] + unknown + original[end:]


def test_a_damaged_model_is_reported_and_rewritten_from_the_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    events = train_run(copy_task_run().files, run, copy_task_run().config)
    next(event for event in events if isinstance(event, FileSaved) and event.is_best_model)
    events.close()
    model = run / "model.safetensors"
    original = model.read_bytes()
    model.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    events = train_run(copy_task_run().files, run, copy_task_run().config)
    warnings = next(event.warnings for event in events if isinstance(event, ModelBuilt))
    events.close()
    assert f"{model} was damaged: it is written anew from the checkpoint" in warnings
    assert model.read_bytes() == original
    resume(run)
    assert_runs_identical(copy_task_run().run, run)


@pytest.mark.parametrize("value", [NESTED_BRACKETS, MANY_DIGITS, "", "null"])
def test_invalid_snapshot_metadata_is_refused(run: Path, value: str) -> None:
    rewrite_header(first_snapshot(run), lambda header: header["__metadata__"].update(snapshot=value))
    assert "is not a snapshot" in error_message(lambda: read_snapshots(run))


def test_a_snapshot_of_another_run_is_refused_and_other_files_are_ignored(run: Path) -> None:
    other = first_snapshot(digits_run().run).read_bytes()
    former, own = (read_identity(folder).fingerprint.encode() for folder in (digits_run().run, run))
    other = other.replace(former, own)
    (run / "snapshots" / "²-³.safetensors").write_bytes(b"")
    (run / "snapshots" / f"{'9' * 200}-00000001.safetensors").write_bytes(other)
    assert "is not a snapshot of this run: source has the shape" in error_message(lambda: read_snapshots(run))


def test_snapshots_with_other_tensor_types_are_refused(run: Path) -> None:
    for name in ("source", "entropy 0"):
        for kind in ("BF16", "I16", "F16", "F8_E5M2"):
            path = first_snapshot(run)
            content = path.read_bytes()
            rewrite_header(path, lambda header, name=name, kind=kind: header[name].update(dtype=kind))  # type: ignore[misc]
            if (name, kind) != ("source", "F16"):
                with pytest.raises(RunError, match=r"\.safetensors (is not a|holds)"):
                    read_snapshots(run)
            path.write_bytes(content)


def test_a_copy_without_the_pair_ngram_model_warns(run: Path) -> None:
    """A folder that was copied for prediction has no log that says that the training wrote the model."""
    text = (run / "config.toml").read_text("utf-8")
    before_search, _, search = text.rpartition("[search]")
    (run / "config.toml").write_text(
        before_search.replace("pair_ngram = false", "pair_ngram = true") + "[search]" + search
    )
    load(run)  # an unfinished training has no weight yet
    (run / "log.jsonl").unlink()
    with pytest.warns(UserWarning, match=r"pair_ngram\.safetensors is missing: outputs are ranked by"):
        load(run)
    (run / "config.toml").write_text(text, "utf-8")
    load(run)


def test_a_virtual_file_without_data_is_no_tensor_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a virtual file of the system, such as /proc/kmsg, may return None."""

    class FileWithoutData(io.BytesIO):
        def read(self, size: int | None = -1, /) -> Any:  # noqa: ANN401
            return None

    monkeypatch.setattr(tensor_file, "open_regular", lambda path: FileWithoutData())
    with pytest.raises(RunError, match="does not begin with the length of a header"), open_tensors(Path("model")):
        pass
