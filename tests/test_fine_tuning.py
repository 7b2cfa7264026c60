"""Fine-tuning: vocabularies and parameters that grow, frozen parts, earlier pairs, and resumption without the base."""

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from small_networks import make_config
from test_killed import assert_complete, record_states
from trained_runs import (
    DataFiles,
    assert_training_resumes,
    comparable_log_records,
    copy_run_folder,
    copy_task_run,
    make_copy_examples,
    make_small_config,
    train_to_end,
    write_copy_files,
    write_pairs,
)

from pellucid.config.settings import Config
from pellucid.config.toml import override_settings
from pellucid.data.batches import collate
from pellucid.data.encoding import EncodedExamples, to_ragged
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import Vocabularies, Vocabulary
from pellucid.errors import ConfigError, DataError, RunError
from pellucid.kernels.dispatch import disable_kernels
from pellucid.model.network import Network
from pellucid.run_folder.initial_run import InitialRun
from pellucid.run_folder.predictor_loader import load
from pellucid.tasks.registry import build_network, get_task
from pellucid.training import run_folder_writer
from pellucid.training.events import ModelBuilt, PairsMixedIn, ValidationCompleted
from pellucid.training.fine_tuning import (
    extend_vocabularies,
    freeze_parts,
    frozen_part_warnings,
    initialize_network,
    part_of,
)
from pellucid.training.mix_in import mix_in_pairs
from pellucid.training.session import build_state
from pellucid.training.training_data import TrainingFiles, read_training_data
from pellucid.training.training_length import num_drawn
from pellucid.training.training_state import TrainingState

NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "lstm, several layers, location": {
        "encoder": {"cell": "lstm", "num_layers": 2},
        "decoder": {"cell": "lstm", "num_layers": 2},
        "attention": {"type": "location"},
    },
    "tied": {"decoder": {"tie_embeddings": True, "order": "step-then-attend", "input_feeding": True}},
    "frozen embeddings": {"encoder": {"embedding": "frozen"}, "decoder": {"embedding": "frozen"}},
    "one-hot": {
        "encoder": {"embedding": "one-hot"},
        "decoder": {"embedding": "one-hot"},
        "attention": {"type": "general"},
    },
    "one-hot and convolutions": {"encoder": {"embedding": "one-hot", "convolutions": [2, 3]}},
    "no feedback, no attention": {"decoder": {"embedding": "none"}, "attention": {"type": "none"}},
    "features as a prefix": {"data": {"features_column": "3"}},
    "summed features": {"data": {"features_column": "3"}, "encoder": {"feature_merge": "sum"}},
    "one-hot with features": {"data": {"features_column": "3"}, "encoder": {"embedding": "one-hot"}},
    "tag": {"task": "tag"},
    "classify": {"task": "classify"},
    "point": {"task": "point", "data": {"max_sequence_length": 6}},
    "pointer-generator": {"decoder": {"pointer_generator": True, "embedding": "one-hot"}},
}


def count_symbols(symbols: str) -> Vocabulary:
    return Vocabulary(tuple(symbols), tuple(range(len(symbols), 0, -1)))


def make_vocabularies(source: str, target: str, features: str) -> Vocabularies:
    return Vocabularies(count_symbols(source), count_symbols(target), count_symbols(features), 5, 6)


OLD, NEW = make_vocabularies("abcd", "wxyz", "XY"), make_vocabularies("bedf", "vwu", "YZ")


def grow(settings: Mapping[str, Any]) -> tuple[Config, Network, Network, Network, Vocabularies]:
    """Return the old network, a new one as it is built, and one that is initialized from the old one."""
    config = make_config(settings)
    old, learned = OLD, NEW
    if config.task == "point":
        positions = count_symbols("123456")
        old, learned = (msgspec.structs.replace(each, target=positions) for each in (old, learned))
    extended = extend_vocabularies(old, learned, config)
    network = build_network(override_settings(config, {"seed": 5}), old).eval()
    fresh, grown = (build_network(config, extended).eval() for _ in range(2))
    predictor = get_task(config.task).build_predictor(config, old, network, "old")
    initialized = initialize_network(grown, InitialRun(Path("old"), "0" * 64, predictor), config, extended)
    assert initialized.new_source == ("e", "f")
    return config, network, fresh, grown, extended


def test_old_symbols_keep_their_ids_and_new_ones_follow() -> None:
    config = make_config({"data": {"features_column": "3"}})
    extended = extend_vocabularies(OLD, NEW, config)
    assert extended.source.symbols == tuple("abcdef") and extended.target.symbols == tuple("wxyzvu")
    assert extended.features.symbols == tuple("XYZ")
    assert extended.source.counts == (0, 4, 0, 2, 3, 1)
    assert extend_vocabularies(extended, NEW, config) == extended


def test_features_that_are_not_read_are_left_out() -> None:
    assert extend_vocabularies(OLD, NEW, make_config({})).features == NEW.features


@pytest.mark.parametrize("name", NETWORKS)
def test_an_extended_network_computes_the_same_for_old_symbols(name: str) -> None:
    """The logits of old symbols are equal, for sources with features too."""
    config, network, fresh, grown, extended = grow(NETWORKS[name])
    features = "X;Y" if config.data.features_column else ""
    target = {"tag": "wxyz", "classify": "x", "point": "3"}.get(config.task, "zyx")
    examples = [Example("abdc", target, features)]
    batches = []
    for vocabularies in (OLD, extended):
        if config.task == "point":
            vocabularies = msgspec.structs.replace(vocabularies, target=count_symbols("123456"))
        tokenizers = build_tokenizers(config.data)
        encoded = get_task(config.task).encode_examples(examples, tokenizers, vocabularies, config)
        batches.append(collate(encoded, np.array([0])))
    with torch.no_grad():
        before, after = (each(batch) for each, batch in zip((network, grown), batches, strict=True))
    size = before.logits.shape[-1] if config.task == "point" else network.vocabulary_size
    if config.decoder.pointer_generator:
        torch.testing.assert_close(after.weights, before.weights)
    else:
        torch.testing.assert_close(after.logits[..., :size], before.logits[..., :size], rtol=1e-5, atol=1e-6)
    if config.task != "point":
        assert grown.vocabulary_size == size + 2
    parameters, random = grown.state_dict(), fresh.state_dict()
    for key, value in network.state_dict().items():
        changed = parameters[key] != random[key]
        assert int(changed.sum()) <= value.numel(), key  # at most as many values as the old network has are written


def test_the_rows_of_new_symbols_are_those_of_a_new_network() -> None:
    _, network, fresh, grown, _ = grow({"data": {"features_column": "3"}})
    old, new, random = (each.state_dict()["encoder.table.weight"] for each in (network, grown, fresh))
    assert new[:8].equal(old[:8]) and new[8:10].equal(random[8:10])
    assert new[10:16].equal(old[8:14]) and new[16:].equal(random[16:])
    old, new, random = (each.state_dict()["decoder.head.projection.weight"] for each in (network, grown, fresh))
    assert new[:8].equal(old) and new[8:].equal(random[8:])


def test_a_gate_that_reads_one_hot_vectors_last_is_extended_at_its_end() -> None:
    _, network, fresh, grown, _ = grow(NETWORKS["pointer-generator"])
    key = "decoder.copying.gate.weight"
    old, new, random = (each.state_dict()[key] for each in (network, grown, fresh))
    assert new[:, : old.shape[1]].equal(old) and new[:, old.shape[1] :].equal(random[:, old.shape[1] :])


def test_a_network_of_other_parameters_is_refused() -> None:
    config = make_config({})
    predictor = get_task("transduce").build_predictor(config, OLD, build_network(config, OLD), "old")
    initial = InitialRun(Path("old"), "0" * 64, predictor)
    for settings, message in (
        ({"decoder": {"hidden_size": 33}}, "has the shape"),
        ({"encoder": {"num_layers": 2}}, "other parameters"),
    ):
        other = make_config(settings)
        with pytest.raises(RunError, match=message):
            initialize_network(build_network(other, OLD), initial, other, OLD)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({}, {"encoder", "attention", "decoder", "embeddings", "output"}),
        ({"task": "tag"}, {"encoder", "embeddings", "output"}),
        ({"task": "classify"}, {"encoder", "attention", "decoder", "embeddings", "output"}),
        ({"task": "point"}, {"encoder", "attention", "decoder", "embeddings"}),
        (
            {"encoder": {"embedding": "one-hot"}, "attention": {"type": "none"}},
            {"encoder", "decoder", "embeddings", "output"},
        ),
    ],
)
def test_each_parameter_belongs_to_one_part_that_can_be_frozen(settings: Mapping[str, Any], parts: set[str]) -> None:
    config = make_config(settings)
    vocabularies = msgspec.structs.replace(OLD, target=count_symbols("123")) if config.task == "point" else OLD
    network = build_network(config, vocabularies)
    found = {part_of(name) for name, parameter in network.named_parameters() if parameter.numel()}
    assert found == parts
    for part in parts:
        frozen = override_settings(config, {"training": {"init_from": "a", "freeze": [part]}})
        network = build_network(config, vocabularies)
        freeze_parts(network, frozen)
        assert {part_of(name) for name, p in network.named_parameters() if not p.requires_grad} == {part}


def test_parts_that_do_not_exist_and_all_parts_are_refused() -> None:
    config = make_config({"task": "tag", "training": {"init_from": "a", "freeze": ["attention"]}})
    with pytest.raises(ConfigError, match=r"no part 'attention'.*it has encoder, embeddings, output"):
        freeze_parts(build_network(config, OLD), config)
    config = override_settings(config, {"training": {"freeze": ["encoder", "embeddings", "output"]}})
    with pytest.raises(ConfigError, match="nothing would be trained"):
        freeze_parts(build_network(config, OLD), config)
    with pytest.raises(ConfigError, match=r"training.freeze = .* needs training.init_from"):
        make_config({"training": {"freeze": ["encoder"]}})


def write_new_files(folder: Path, count: int = 12) -> DataFiles:
    """Write pairs with two symbols that the runs of copies lack, and a validation file."""
    folder.mkdir(parents=True, exist_ok=True)
    translated = str.maketrans("ab", "xy")
    examples = [
        Example(pair.source.translate(translated), pair.target.translate(translated))
        for pair in make_copy_examples(count + 6, seed=3)
    ]
    return DataFiles(
        write_pairs(folder / "new.tsv", examples[:count]), write_pairs(folder / "new-dev.tsv", examples[count:])
    )


def fine_tuning_config(training: Mapping[str, Any], dropout: float = 0.2) -> Config:
    return make_small_config({"init_from": str(copy_task_run().run), "epochs": 2, **training}, dropout)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(
    ("part", "averaging"),
    [
        *((part, "none") for part in ("encoder", "attention", "decoder", "embeddings", "output")),
        *((part, averaging) for part in ("encoder", "embeddings") for averaging in ("ema", "last")),
    ],
)
def test_frozen_parts_keep_their_bits(tmp_path: Path, part: str, averaging: str, kernels: bool) -> None:
    files = copy_task_run().files
    config = fine_tuning_config({"freeze": [part], "weight_averaging": averaging, "epochs": 1, "learning_rate": 0.1})
    with nullcontext() if kernels else disable_kernels():
        train_to_end(files, tmp_path / "run", config)
    before, after = (load(run).network.state_dict() for run in (copy_task_run().run, tmp_path / "run"))
    unchanged = {name for name, value in before.items() if after[name].equal(value)}
    assert unchanged == {name for name in before if part_of(name) == part}


def test_new_symbols_are_counted_in_the_event_and_the_log(tmp_path: Path) -> None:
    events = train_to_end(write_new_files(tmp_path), tmp_path / "run", fine_tuning_config({"freeze": ["embeddings"]}))
    (built,) = [event for event in events if isinstance(event, ModelBuilt)]
    assert built.initialized is not None and set(built.initialized.new_source) == {"x", "y"}
    assert any("embeddings: the parameters of the 4 new symbols there stay random" in text for text in built.warnings)
    (warning,) = frozen_part_warnings(fine_tuning_config({"freeze": ["output"]}), built.initialized)
    assert warning == "training.freeze = output: the parameters of the 2 new symbols there stay random"
    record = comparable_log_records(tmp_path / "run")[0]
    assert record["event"] == "initialized" and record["new_source"] == record["new_target"] == 2
    assert record["sha256"] == load(tmp_path / "run").config.training.init_from_digest
    base, new = load(copy_task_run().run), load(tmp_path / "run")
    assert new.vocabularies.source.symbols[:4] == base.vocabularies.source.symbols
    assert "Fine-tuned from" in (tmp_path / "run" / "card.md").read_text("utf-8")


def mixing_settings(files: TrainingFiles) -> dict[str, Any]:
    return {"mix_in": str(files.train), "mix_in_fraction": 0.4}


@pytest.mark.parametrize("training", [{}, {"weight_averaging": "ema", "freeze": ["encoder"]}])
def test_a_fine_tuning_resumes_to_the_same_bits(tmp_path: Path, training: Mapping[str, Any]) -> None:
    config = fine_tuning_config({**training, **mixing_settings(copy_task_run().files)})
    assert_training_resumes(write_new_files(tmp_path), config, tmp_path, update=3)


@pytest.mark.slow
def test_a_fine_tuning_resumes_after_a_kill_between_any_two_changes_without_its_initial_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first checkpoint on, the initial run is not needed."""
    monkeypatch.setattr(run_folder_writer, "SAVE_SECONDS", -1.0)
    base = copy_run_folder(copy_task_run().run, tmp_path / "base")
    files, mixing = write_new_files(tmp_path), mixing_settings(copy_task_run().files)
    config = fine_tuning_config({**mixing, "init_from": str(base), "epochs": 1, "pair_ngram": True})
    uninterrupted = tmp_path / "runs" / "uninterrupted"
    with record_states(uninterrupted, tmp_path / "left") as states:
        train_to_end(files, uninterrupted, config)
    has_checkpoint = [(state / "training.safetensors").exists() for state in states]
    assert not all(has_checkpoint) and any(has_checkpoint)
    for state in [state for state, has in zip(states, has_checkpoint, strict=True) if not has]:
        train_to_end(files, state, config)
        assert_complete(state, uninterrupted)
    shutil.rmtree(base)
    for state in [state for state, has in zip(states, has_checkpoint, strict=True) if has]:
        train_to_end(files, state, config)
        assert_complete(state, uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("num_lines", [1, 2, 3])
def test_a_fine_tuning_whose_first_log_records_are_cut_logs_the_rest(tmp_path: Path, num_lines: int) -> None:
    """The records of data files are one write, of which a crash may leave a part, and the checkpoint is there then."""
    files = write_new_files(tmp_path)
    config = fine_tuning_config({**mixing_settings(copy_task_run().files), "epochs": 1})
    uninterrupted = tmp_path / "runs" / "uninterrupted"
    with record_states(uninterrupted, tmp_path / "left") as states:
        train_to_end(files, uninterrupted, config)
    logs = ((state, state / "log.jsonl") for state in states)
    cut, log = next((state, path) for state, path in logs if path.exists() and len(path.read_bytes().splitlines()) > 3)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:num_lines]) + lines[num_lines][:20])
    train_to_end(files, cut, config)
    assert_complete(cut, uninterrupted)


@pytest.mark.slow
def test_a_resumed_run_with_other_data_is_refused(tmp_path: Path) -> None:
    files, config = write_new_files(tmp_path), fine_tuning_config({})
    train_to_end(files, tmp_path / "run", config)
    with files.train.open("a") as file:
        file.write("qq\tqq\n")
    with pytest.raises(RunError, match="other data"):
        train_to_end(files, tmp_path / "run", config)


def make_state(num_new: int, num_old: int, share: float) -> TrainingState:
    config = make_small_config({"mix_in": "old.tsv", "mix_in_fraction": share, "batch_size": 3})
    ids = to_ragged([[4, 5]] * (num_new + num_old))
    network = build_network(config, OLD)
    state = build_state(network, config, OLD, EncodedExamples(ids, ids), [Example("a", "w")], "")
    state.num_mixed_in = num_old
    return state


@pytest.mark.parametrize(("num_old", "share", "drawn"), [(50, 0.5, 10), (50, 0.2, 2), (3, 0.5, 10), (4, 0.0, 0)])
def test_each_epoch_has_all_new_pairs_and_its_own_share_of_the_old_ones(num_old: int, share: float, drawn: int) -> None:
    state = make_state(10, num_old, share)
    assert num_drawn(10, share) == drawn and state.examples_per_epoch == 10 + drawn
    epochs = [np.concatenate(state.plan_batches(epoch)) for epoch in (0, 1, 0)]
    for rows in epochs:
        assert sorted(rows[rows < 10]) == list(range(10)) and len(rows) == 10 + drawn
        counts = np.bincount(rows[rows >= 10] - 10, minlength=num_old)
        assert drawn == 0 or counts.max() - counts.min() <= 1
    assert np.array_equal(epochs[0], epochs[2])
    if num_old == 50 and share == 0.5:
        assert set(epochs[0]) != set(epochs[1])


@pytest.mark.slow
def test_old_pairs_are_counted_and_reported(tmp_path: Path) -> None:
    files = write_new_files(tmp_path)
    mix_in = write_pairs(tmp_path / "old.tsv", [*make_copy_examples(30, seed=1), Example("q", "q")])
    mix_in.write_text(mix_in.read_text() + files.valid.read_text().splitlines()[0] + "\nbad\n")
    config = fine_tuning_config({"mix_in": str(mix_in), "mix_in_fraction": 0.5})
    with pytest.raises(DataError, match=r"old\.tsv"):
        train_to_end(files, tmp_path / "stopped", config)
    config = override_settings(config, {"data": {"on_bad_line": "skip"}})
    events = train_to_end(files, tmp_path / "run", config)
    (mixed,) = [event for event in events if isinstance(event, PairsMixedIn)]
    validation_sources = {line.split("\t")[0] for line in files.valid.read_text().splitlines()}
    sources = [line.split("\t")[0] for line in mix_in.read_text().splitlines() if "\t" in line]
    left_out = sum(source in validation_sources for source in sources)
    assert len(sources) == 32 and left_out > 0
    assert mixed[1:5] == (32 - left_out, 12, 12, left_out)
    assert len(mixed.bad_lines) == 1
    record = next(record for record in comparable_log_records(tmp_path / "run") if record["event"] == "mixed_in")
    assert (record["examples"], record["per_epoch"], record["new_examples"], record["bad_lines"]) == (
        *mixed[1:4],
        1,
    )
    assert "q" in load(tmp_path / "run").vocabularies.source.symbols
    assert f"on 12 of {mixed.num_examples} earlier ones" in (tmp_path / "run" / "card.md").read_text("utf-8")


def test_old_pairs_of_the_validation_set_alone_are_refused(tmp_path: Path) -> None:
    files = write_new_files(tmp_path)
    (tmp_path / "old.tsv").write_text(files.valid.read_text())
    config = fine_tuning_config({"mix_in": str(tmp_path / "old.tsv")})
    with pytest.raises(DataError, match="the sources of all pairs are in the validation set; mix in other pairs"):
        train_to_end(files, tmp_path / "run", config)


def test_old_pairs_of_which_most_lines_are_bad_are_refused(tmp_path: Path) -> None:
    """Regression test: the file of earlier pairs was not checked, as all other files of a training are."""
    old = write_pairs(tmp_path / "old.tsv", make_copy_examples(10, seed=1))
    old.write_text(old.read_text("utf-8") + "bad\n" * 12, "utf-8")
    config = make_small_config({"mix_in": str(old)})
    config = override_settings(config, {"data": {"on_bad_line": "skip"}})
    data = read_training_data(write_new_files(tmp_path), config, config.data)
    with pytest.raises(DataError, match=r"old\.tsv: 12 of 22 lines are bad"):
        mix_in_pairs(data, config, config.data)


@pytest.mark.slow
def test_the_subword_model_of_the_initial_run_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    data = {"source_symbols": "subwords", "subword_vocab_size": 8}
    files = write_copy_files(tmp_path / "base", 30, 8)
    config = make_small_config({"epochs": 1}, data=data)
    train_to_end(files, tmp_path / "base" / "run", config)
    config = override_settings(config, {"training": {"init_from": str(tmp_path / "base" / "run")}})
    train_to_end(write_new_files(tmp_path), tmp_path / "run", config)
    base, new = (load(run).vocabularies for run in (tmp_path / "base" / "run", tmp_path / "run"))
    assert new.pieces == base.pieces and new.source.symbols[: len(base.source.symbols)] == base.source.symbols
    assert {"x", "y"} <= set(new.source.symbols)


def test_the_initial_parameters_are_the_best_model_unless_the_training_improves_them(tmp_path: Path) -> None:
    files = copy_task_run().files
    config = fine_tuning_config({"learning_rate": 1e-30, "epochs": 1})
    events = train_to_end(files, tmp_path / "run", config)
    validations = [event.progress.update for event in events if isinstance(event, ValidationCompleted)]
    assert validations == [0, 5]
    before, after = (load(run).network.state_dict() for run in (copy_task_run().run, tmp_path / "run"))
    assert all(after[name].equal(value) for name, value in before.items())
    assert "at update 0" in (tmp_path / "run" / "card.md").read_text("utf-8")
