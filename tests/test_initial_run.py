"""The initial run of a fine-tuning: settings that are inherited or refused, errors, ensembles, flags and API."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from command_line import run_pellucid
from torch import Tensor, nn
from trained_runs import (
    copy_run_folder,
    copy_task_run,
    make_small_config,
    train_to_end,
    training_flags,
    write_copy_files,
)

import pellucid
from pellucid.config.attention_types import ATTENTION_TYPES
from pellucid.config.presets import PRESETS
from pellucid.config.settings import AttentionConfig, Config
from pellucid.config.toml import build_config, load_config, override_settings, to_toml
from pellucid.errors import ConfigError, RunError
from pellucid.files import digest_file
from pellucid.model.attention import ScoredAttention
from pellucid.model.memory import Memory
from pellucid.run_folder.initial_run import (
    LEARNING_RATE_FACTOR,
    check_initial_settings,
    inherited_settings,
    is_inherited,
    load_initial_run,
    member_configs,
    resolve_initial_run,
    settings_over_initial_run,
)
from pellucid.run_folder.run_files import load_run_config
from pellucid.training.ensemble_training import plan_ensemble
from pellucid.training.training_data import TrainingFiles

EPOCH = {"training": {"epochs": 1}}


class FilteredAttention(ScoredAttention):
    """Scores of a key, with a parameter of the shape of two settings of the section."""

    def __init__(self, config: AttentionConfig, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.key_projection = nn.Linear(memory_size, query_size, bias=False)
        self.filters = nn.Parameter(torch.zeros(config.filters, config.filter_radius))

    def keys(self, memory: Memory) -> Tensor:
        keys: Tensor = self.key_projection(memory.states)
        return keys

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return torch.bmm(query, keys.transpose(1, 2)) * (1 + self.filters.sum())


def training_command(files: TrainingFiles, initial: Path, run: Path) -> list[object]:
    return ["train", files.train, "--valid", files.valid, "--init-from", initial, "--run", run]


def small_config(run: Path, training: Mapping[str, Any] | None = None) -> Config:
    return make_small_config({"init_from": str(run), "epochs": 1, **(training or {})})


@pytest.mark.slow
def test_network_and_symbols_are_inherited_and_the_training_is_not(tmp_path: Path) -> None:
    base = copy_task_run()
    settings = inherited_settings(base.run, tmp_path / "run")
    config = build_config(settings, "test")
    assert config.encoder.hidden_size == 6 and config.size == "tiny"
    assert config.encoder.dropout == 0.0 and config.training.epochs == 0
    assert config.training.learning_rate == PRESETS["tiny"]["training"]["learning_rate"] * LEARNING_RATE_FACTOR
    assert config.training.init_from == str(base.run)
    for key, inherited in (
        ("encoder.cell", True),
        ("decoder.dropout_mask", False),
        ("encoder.pretrained", False),
        ("attention.type", True),
        ("data.source_symbols", True),
        ("data.source_column", False),
        ("training.epochs", False),
        ("search.beam_size", False),
        ("seed", False),
    ):
        assert is_inherited(key) == inherited, key


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"encoder": {"hidden_size": 7, "dropout": 0.5}}, ["encoder.hidden_size: 6 in the run, 7 now"]),
        ({"encoder": {"cell": "lstm"}, "attention": {"size": 9}}, ["encoder.cell", "attention.size"]),
        ({"size": "small"}, ["size: 'tiny' in the run, 'small' now"]),
        ({"data": {"source_symbols": "words"}}, ["data.source_symbols: 'characters' in the run, 'words' now"]),
        ({"data": {"max_sequence_length": 5}}, ["data.max_sequence_length: 1000 in the run, 5 now"]),
        ({"decoder": {"tie_embeddings": True}}, ["decoder.tie_embeddings"]),
    ],
)
def test_settings_that_change_symbols_or_shapes_are_refused_by_name(
    settings: Mapping[str, Any], refused: list[str]
) -> None:
    base = pellucid.load(copy_task_run().run)
    config = override_settings(small_config(copy_task_run().run), settings)
    with pytest.raises(ConfigError) as caught:
        check_initial_settings(config, base.config, base.vocabularies)
    first, *lines, last = caught.value.args
    assert str(copy_task_run().run) in first and "leave them out" in last
    assert len(lines) == len(refused)
    assert all(any(line.strip().startswith(key) for line in lines) for key in refused)


def test_settings_of_the_same_shapes_may_differ() -> None:
    base = pellucid.load(copy_task_run().run)
    settings = {"encoder": {"dropout": 0.3, "embedding": "frozen"}, "data": {"max_sequence_length": 2000}}
    config = override_settings(small_config(copy_task_run().run), {**settings, "search": {"beam_size": 2}})
    check_initial_settings(config, base.config, base.vocabularies)


def refuse(files: TrainingFiles, run: Path, config: Config, message: str) -> None:
    with pytest.raises(RunError, match=message):
        train_to_end(files, run, config)
    assert not (run / "model.safetensors").exists() or run == Path(config.training.init_from)


def test_initial_runs_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    files = copy_task_run().files
    refuse(files, tmp_path / "run", small_config(tmp_path / "missing"), "missing is not a run folder.*no such folder")
    (tmp_path / "empty").mkdir()
    refuse(files, tmp_path / "run", small_config(tmp_path / "empty"), r"it holds no config\.toml")
    base = copy_run_folder(copy_task_run().run, tmp_path / "base")
    (base / "model.safetensors").unlink()
    refuse(files, tmp_path / "run", small_config(base), r"model\.safetensors is missing")
    content = bytearray((copy_task_run().run / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (base / "model.safetensors").write_bytes(content)
    refuse(files, tmp_path / "run", small_config(base), r"base/model\.safetensors is damaged.*restore it")
    (base / "model.safetensors").write_bytes(b"nonsense")
    refuse(files, tmp_path / "run", small_config(base), r"base/model\.safetensors")
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_begin_from_itself_or_from_its_own_successor(tmp_path: Path) -> None:
    files = copy_task_run().files
    base = copy_run_folder(copy_task_run().run, tmp_path / "base")
    refuse(files, base, small_config(base), "a training cannot begin from its own folder")
    refuse(files, base / "sub", small_config(base), "a run cannot be in the folder of another one")
    assert not (base / "sub").exists()
    train_to_end(files, tmp_path / "next", small_config(base))
    train_to_end(files, tmp_path / "last", small_config(tmp_path / "next"))
    shutil.rmtree(base)
    refuse(files, base, small_config(tmp_path / "next"), "would replace the run that")
    refuse(files, base, small_config(tmp_path / "last"), "would replace the run that")


def test_an_unfinished_run_is_an_initial_run_with_its_best_model(tmp_path: Path) -> None:
    base = copy_run_folder(copy_task_run().run, tmp_path / "base")
    (base / "training.safetensors").unlink()  # as a copy for prediction, or one that was interrupted
    (base / "log.jsonl").unlink()
    config = resolve_initial_run(small_config(base), tmp_path / "run")
    digest = digest_file(base / "model.safetensors")
    assert digest is not None and config.training.init_from_digest == digest.sha256
    assert load_initial_run(config).digest == digest.sha256


@pytest.mark.slow
def test_the_digest_of_the_model_is_recorded_and_compared(tmp_path: Path) -> None:
    files, base = copy_task_run().files, copy_run_folder(copy_task_run().run, tmp_path / "base")
    config = small_config(base, {"init_from_digest": "0" * 64})
    refuse(files, tmp_path / "run", config, "it is another model")
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        small_config(base, {"init_from_digest": "0" * 63})
    with pytest.raises(ConfigError, match=r"needs training\.init_from"):
        make_small_config({"init_from_digest": "0" * 64})
    train_to_end(files, tmp_path / "run", small_config(base))
    recorded = load_run_config(tmp_path / "run").training.init_from_digest
    train_to_end(files, tmp_path / "again", small_config(base, {"init_from_digest": recorded}))
    resolved = resolve_initial_run(small_config(base), tmp_path / "new")
    (base / "model.safetensors").write_bytes((tmp_path / "run" / "model.safetensors").read_bytes())
    with pytest.raises(RunError, match=r"not of the same run|changed while it was read"):
        load_initial_run(resolved)


def test_a_finished_run_is_found_again_without_its_initial_run(tmp_path: Path) -> None:
    files, base = copy_task_run().files, copy_run_folder(copy_task_run().run, tmp_path / "base")
    config = small_config(base)
    train_to_end(files, tmp_path / "run", config)
    shutil.rmtree(base)
    train_to_end(files, tmp_path / "run", config)
    settings = inherited_settings(base, tmp_path / "run")
    assert build_config(settings, "test").encoder.hidden_size == 6
    with pytest.raises(RunError, match="different configuration"):
        train_to_end(files, tmp_path / "run", small_config(copy_task_run().run))


@pytest.mark.slow
def test_another_attention_type_is_named_with_that_of_the_run(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path / "data", 16, 6)
    settings: dict[str, Any] = {"training": {"epochs": 1, "batch_size": 8, "pair_ngram": False}}
    location = {"size": "tiny", "attention": {"type": "location", "filter_radius": 4}, **settings}
    pellucid.train(files.train, files.valid, tmp_path / "base", location)
    with pytest.raises(ConfigError, match=r"attention\.type: 'location' in the run, 'additive' now"):
        pellucid.train(
            *(files.train, files.valid, tmp_path / "run", {"attention": {"type": "additive"}, **settings}),
            init_from=tmp_path / "base",
        )
    command = training_command(files, tmp_path / "base", tmp_path / "run")
    result = run_pellucid(*command, "--attention", "additive", "--epochs", 1, "--no-pair-ngram")
    assert result.code == 2 and "attention.type: 'location' in the run, 'additive' now" in result.err


@pytest.mark.slow
def test_another_class_inherits_the_settings_of_the_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: `init_from` took the defaults of settings that were not given, the flag those of the run."""
    files = write_copy_files(tmp_path / "data", 16, 6)
    settings: dict[str, Any] = {"training": {"epochs": 1, "pair_ngram": False}}
    for name in ("filters", "filters-wide"):
        monkeypatch.setitem(ATTENTION_TYPES.registered, name, FilteredAttention)
    given = {"size": "tiny", "attention": {"type": "filters", "filters": 8, "filter_radius": 3}, **settings}
    base = tmp_path / "base"
    pellucid.train(files.train, files.valid, base, given)
    for name in ("filters", "filters-wide"):
        other = {"attention": {"type": name}, **settings}
        called = pellucid.train(files.train, files.valid, tmp_path / f"call-{name}", other, init_from=base)
        assert called.config.attention.filters == 8 and called.config.attention.filter_radius == 3
    with pytest.raises(ConfigError) as caught:
        pellucid.train(
            *(files.train, files.valid, tmp_path / "other", {"attention": {"type": "additive"}, **settings}),
            init_from=base,
        )
    assert "attention.type: 'filters' in the run, 'additive' now" in str(caught.value)
    for name, filters in (("filters-wide", 8), ("additive", 10)):  # as a flag gives it
        inherited = build_config(settings_over_initial_run({}, base, tmp_path / "flags", name), "test")
        assert inherited.attention.type == "filters" and inherited.attention.filters == filters


@pytest.mark.slow
def test_members_of_an_ensemble_begin_from_the_members_of_another(tmp_path: Path) -> None:
    files, training = write_copy_files(tmp_path / "data", 16, 6), {"epochs": 1, "batch_size": 8, "pair_ngram": False}
    settings = {"size": "tiny", "training": training}
    pellucid.train(files.train, files.valid, tmp_path / "base", settings, ensemble=2)
    pellucid.train(
        files.train, files.valid, tmp_path / "run", {"training": training}, ensemble=2, init_from=tmp_path / "base"
    )
    for seed in (1, 2):
        saved = load_run_config(tmp_path / "run" / f"seed-{seed}")
        assert saved.training.init_from == str(tmp_path / "base" / f"seed-{seed}") and saved.seed == seed
    config = small_config(tmp_path / "base")
    with pytest.raises(ConfigError, match=r"an ensemble of 2 runs, too few for 3 members.*--ensemble 2 or less"):
        plan_ensemble(files, tmp_path / "more", config, 3)
    with pytest.raises(RunError, match=r"is an ensemble: name one of its members, such as .*seed-1"):
        train_to_end(files, tmp_path / "single", config)
    folders = [tmp_path / "new" / "seed-1", tmp_path / "new" / "seed-2"]
    from_one = member_configs(small_config(tmp_path / "base" / "seed-1"), folders)
    assert [each.training.init_from for each in from_one] == [str(tmp_path / "base" / "seed-1")] * 2
    shutil.rmtree(tmp_path / "base")
    predictor = pellucid.train(
        files.train, files.valid, tmp_path / "run", {"training": training}, ensemble=2, init_from=tmp_path / "base"
    )
    assert len(predictor.vocabularies.source.symbols) == 4


@pytest.mark.slow
def test_from_is_a_flag_and_an_argument(tmp_path: Path) -> None:
    base = copy_task_run()
    files = base.files
    command = ["train", files.train, "--valid", files.valid, "--init-from", base.run, "--epochs", 1, "--no-pair-ngram"]
    result = run_pellucid(*command, "--run", tmp_path / "flags")
    assert result.code == 0, result.err
    assert f"{base.run}: initial parameters and symbols; no new symbols" in result.err
    training = {"epochs": 1, "pair_ngram": False}
    pellucid.train(files.train, files.valid, tmp_path / "call", {"training": training}, init_from=base.run)
    contents = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("flags", "call")]
    assert contents[0] == contents[1]
    (tmp_path / "settings.toml").write_text(
        f'size = "auto"\n[training]\ninit_from = "{base.run}"\nepochs = 1\npair_ngram = false\n'
    )
    in_file = ["train", files.train, "--valid", files.valid, "--config", tmp_path / "settings.toml"]
    assert run_pellucid(*in_file, "--run", tmp_path / "file").code == 0
    assert (tmp_path / "file" / "model.safetensors").read_bytes() == contents[0]
    complete = override_settings(load_run_config(tmp_path / "flags"), {"training": {"init_from_digest": ""}})
    pellucid.train(files.train, files.valid, tmp_path / "config", complete)
    assert (tmp_path / "config" / "model.safetensors").read_bytes() == contents[0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--encoder.hidden-size", 7], "encoder.hidden_size: 6 in the run, 7 now"),
        (["--size", "small"], "size: 'tiny' in the run, 'small' now"),
        (["--freeze", "decoders"], "--freeze: expected encoder, attention, decoder, embeddings or output"),
        (["--mix-in-fraction", 0.2], "training.mix_in_fraction = 0.2 needs training.mix_in"),
        (["--mix-in", "missing.tsv"], "missing.tsv"),
    ],
)
def test_mistakes_on_the_command_line_are_messages(tmp_path: Path, flags: list[object], message: str) -> None:
    files = copy_task_run().files
    command = training_command(files, copy_task_run().run, tmp_path / "run")
    result = run_pellucid(*command, *flags)
    assert result.code == 2 and message in result.err and "Traceback" not in result.err


@pytest.mark.slow
def test_named_columns_are_those_of_the_initial_run_if_the_new_file_has_them(tmp_path: Path) -> None:
    pairs = [line.split("\t") for line in copy_task_run().files.train.read_text("utf-8").splitlines()]
    table, other = tmp_path / "table.csv", tmp_path / "other.csv"
    table.write_text("id,old,new\n" + "".join(f"{n},{pair[0]},{pair[1]}\n" for n, pair in enumerate(pairs)), "utf-8")
    other.write_text("".join(f"{pair[0]},{pair[1]}\n" for pair in pairs), "utf-8")
    settings = ["--size", "tiny", "--epochs", 1, "--no-pair-ngram"]
    columns = ["--source-column", "old", "--target-column", "new"]
    assert run_pellucid("train", table, *columns, "--run", tmp_path / "base", *settings).code == 0
    start = ["--init-from", tmp_path / "base", "--epochs", 1, "--no-pair-ngram"]
    result = run_pellucid("train", table, *start, "--run", tmp_path / "same", "--mix-in", table)
    assert result.code == 0, result.err
    saved = load_run_config(tmp_path / "same").data
    assert (saved.source_column, saved.target_column) == ("old", "new")
    assert run_pellucid("train", other, *start, "--no-header", "--run", tmp_path / "numbers").code == 0
    assert load_run_config(tmp_path / "numbers").data.source_column == "1"
    model = pellucid.train(table, None, tmp_path / "call", {"training": {"epochs": 1}}, init_from=tmp_path / "base")
    assert model.config.data.source_column == "old"
    given = ["--source-column", "new", "--target-column", "old"]
    assert run_pellucid("train", table, *start, *given, "--run", tmp_path / "given").code == 0
    assert load_run_config(tmp_path / "given").data.source_column == "new"


def test_auto_is_the_size_of_the_initial_run(tmp_path: Path) -> None:
    files = copy_task_run().files
    command = training_command(files, copy_task_run().run, tmp_path / "run")
    result = run_pellucid(*command, "--size", "auto", "--freeze", "encoder", "embeddings", "--epochs", 1)
    assert result.code == 0, result.err
    saved = load_run_config(tmp_path / "run")
    assert saved.size == "tiny" and saved.training.freeze == ("encoder", "embeddings")


def test_runs_without_these_settings_are_read(tmp_path: Path) -> None:
    """Folders of earlier versions lack the settings of fine-tuning."""
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    lines = (run / "config.toml").read_text("utf-8").splitlines(keepends=True)
    names = ("init_from", "init_from_digest", "freeze", "mix_in", "mix_in_fraction")
    kept = [line for line in lines if not line.startswith(tuple(f"{name} = " for name in names))]
    assert len(lines) - len(kept) == len(names)
    (run / "config.toml").write_text("".join(kept), "utf-8")
    assert load_run_config(run) == load_run_config(copy_task_run().run)
    assert msgspec.structs.asdict(load_run_config(run).training)["init_from"] == ""
    assert training_flags(load_run_config(run))


def test_an_initial_run_whose_own_initial_run_is_no_path_can_be_used(tmp_path: Path) -> None:
    """Regression test: a link to itself was a traceback, and a long name an error."""
    (tmp_path / "loop").symlink_to("loop")
    base = copy_run_folder(copy_task_run().run, tmp_path / "base")
    for initial in (tmp_path / "loop", Path("a" * 300)):
        config = override_settings(load_config(base / "config.toml"), {"training": {"init_from": str(initial)}})
        (base / "config.toml").write_text(to_toml(config))
        assert resolve_initial_run(small_config(base), tmp_path / "run").training.init_from_digest
