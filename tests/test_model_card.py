"""The model card: every number in it comes from the run."""

import hashlib
import json
import math
import platform
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import safetensors.torch
from trained_runs import (
    copy_run_folder,
    copy_task_run,
    digits_run,
    make_small_config,
    train_to_end,
    write_copy_files,
)

from pellucid.config.settings import TaskName
from pellucid.config.toml import build_config, flatten_config
from pellucid.run_folder.log import read_log
from pellucid.run_folder.run_files import load_run_config
from pellucid.tasks.registry import BUILT_IN_TASKS, get_task
from pellucid.training.events import TrainingStarted
from pellucid.training.model_card import STATED_SETTINGS, _methods, _scores
from pellucid.training.session import train_run
from pellucid.training.training_length import derived_batch_size, derived_epochs
from pellucid.version import __version__


def read_card() -> str:
    return (digits_run().run / "card.md").read_text("utf-8")


@pytest.mark.slow
def test_the_card_contains_the_best_validation() -> None:
    best = [record for record in read_log(digits_run().run) if record["event"] == "validated" and record["best"]][-1]
    assert f"On 40 examples, by greedy decoding, at update {best['update']:,}:" in read_card()
    assert (
        f"exact match {best['exact_match']:.2f} % (sequence error rate {100 - best['exact_match']:.2f} %)"
        in read_card()
    )
    assert f"symbol error rate {best['symbol_error_rate']:.2f} %" in read_card()
    assert f"cross-entropy {best['loss']:.4f} per symbol" in read_card()


def test_the_card_describes_the_model_and_its_data() -> None:
    tensors = safetensors.torch.load_file(digits_run().run / "model.safetensors")
    assert f"{sum(tensor.numel() for tensor in tensors.values()):,} parameters" in read_card()
    assert "Trained on 300 examples: 3,000 samples in 150 updates" in read_card()
    cell = digits_run().config.encoder.cell.upper()
    assert f"with additive attention: bidirectional {cell} encoder of 1 layer of 16 units per direction" in read_card()
    assert "Source: 16 symbols ('characters'), longest 17." in read_card()
    assert "Target: 10 symbols ('characters'), longest 3." in read_card()
    assert "Stopped because the maximum number of epochs is reached." in read_card()


def test_the_card_states_what_a_paper_needs() -> None:
    (started,) = [record for record in read_log(digits_run().run) if record["event"] == "started"]
    tensors = safetensors.torch.load_file(digits_run().run / "model.safetensors")
    packages = (("PyTorch", "torch"), ("NumPy", "numpy"), ("Numba", "numba"), ("llvmlite", "llvmlite"))
    installed = ", ".join(f"{name} {version(package)}" for name, package in packages)
    commit = f"commit {started['commit']}, " if "commit" in started else ""
    versions = f"pellucid {__version__}, {commit}Python {platform.python_version()}, {installed}"
    facts = read_card().partition("## For a paper")[2].partition("## Use")[0]
    for expected in (
        f"* Parameters: {sum(tensor.numel() for tensor in tensors.values()):,}\n",
        f"* Batch size: {started['batch_size']} examples\n",
        f"* Epochs: at most {started['epochs']:g} ({started['updates']:,} updates); done: 150 updates, ",
        ", the last in epoch 10;",
        "* Optimizer: Adam (β₁ = 0.9, β₂ = 0.999, ε = 1e-08), peak learning rate ",
        f"% of the updates, then {digits_run().config.training.lr_schedule}; gradients clipped to the norm 1\n",
        "* Regularization: dropout 0 in the encoder and 0 in the decoder, label smoothing "
        f"{digits_run().config.training.label_smoothing:g}\n",
        "* Embeddings: 16 units in the encoder, 16 in the decoder\n",
        "* Model selection: best exact match on the validation set in the last fifth of the training; 5 validations\n",
        "* Search: beam size 5, length normalization none\n",
        f"* Seed: {digits_run().config.seed}\n",
        f"* Software: {versions}, {started['processor']}, {started['threads']} thread",
        "* License of the software: Apache-2.0\n",
        f"  version = {{{__version__}}},\n",
        *(
            f"* SHA-256 of `{path.name}`: `{hashlib.sha256(path.read_bytes()).hexdigest()}`\n"
            for path in (digits_run().files.train, digits_run().files.valid)
        ),
    ):
        assert expected in facts


def test_derived_numbers_are_in_the_log_and_in_the_card(tmp_path: Path) -> None:
    """Batch size and epochs are 0 in config.toml, as they are derived from the data; the log has their values."""
    config = make_small_config({"batch_size": 0, "epochs": 0, "snapshots": False})
    files = write_copy_files(tmp_path)
    events = train_run(files, tmp_path / "run", config)
    for event in events:
        if isinstance(event, TrainingStarted):
            break
    events.close()
    saved = load_run_config(tmp_path / "run").training
    assert (saved.batch_size, saved.epochs) == (0, 0)
    (started,) = [record for record in read_log(tmp_path / "run") if record["event"] == "started"]
    num_examples = len(files.train.read_text("utf-8").splitlines())
    size, epochs = derived_batch_size(num_examples), derived_epochs(num_examples)
    assert (started["batch_size"], started["epochs"]) == (size, epochs)
    assert started["updates"] == math.ceil(epochs * math.ceil(num_examples / size))
    assert started["processor"] and started["threads"] >= 1
    assert started["python"] == platform.python_version() and started["torch"] == version("torch")


def test_the_card_of_an_earlier_log_says_what_is_not_recorded(tmp_path: Path) -> None:
    """A run that an earlier version finished has no environment in its log; its card is written with the rest."""
    run = copy_run_folder(digits_run().run, tmp_path / "run")
    (run / "card.md").unlink()
    keys = ("python", "torch", "numpy", "numba", "llvmlite", "processor", "threads", "batch_size")
    records = [{key: value for key, value in record.items() if key not in keys} for record in read_log(run)]
    (run / "log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    train_to_end(digits_run().files, run, digits_run().config)
    assert "* Software: not recorded\n" in (run / "card.md").read_text("utf-8")


def test_the_card_is_markdown_without_local_paths() -> None:
    assert read_card().startswith("# A Pellucid model\n") and read_card().endswith("\n")
    assert re.findall(r"^## (.*)$", read_card(), re.MULTILINE) == [
        "Scores on the validation set",
        "Limitations",
        "For a paper",
        "Use",
    ]
    assert str(digits_run().run) not in read_card()


def test_the_best_validation_need_not_be_the_last() -> None:
    """Validation scores of the small run rise and fall; the card shows the best one, which the log marks."""
    validations = [record for record in read_log(copy_task_run().run) if record["event"] == "validated"]
    best = [record for record in validations if record["best"]][-1]
    assert f"at update {best['update']:,}:" in (copy_task_run().run / "card.md").read_text("utf-8")
    assert best["exact_match"] == max(record["exact_match"] for record in validations)


@pytest.mark.parametrize(
    ("task", "lines"),
    [
        ("tag", ["* tag accuracy 90.00 %", "* sequence accuracy 12.50 %", "* cross-entropy 0.5000 per tag"]),
        ("classify", ["* accuracy 12.50 %", "* cross-entropy 0.5000 per class"]),
        ("point", ["* accuracy 12.50 %", "* cross-entropy 0.5000 per position"]),
    ],
)
def test_each_task_has_its_own_score_names(task: TaskName, lines: list[str]) -> None:
    best = {"update": 3, "exact_match": 12.5, "symbol_error_rate": 10.0, "symbol_accuracy": 90.0, "loss": 0.5}
    assert _scores(best, 7, get_task(task)) == ["On 7 examples, at update 3:", "", *lines]


def test_the_card_names_the_search_of_the_validations() -> None:
    best = {"update": 3, "exact_match": 12.5, "symbol_error_rate": 10.0, "loss": 0.5}
    assert _scores(best, 7, get_task("transduce"))[0] == "On 7 examples, by greedy decoding, at update 3:"


def test_the_card_names_each_setting_of_network_and_training_that_is_not_the_default() -> None:
    """Regression test: R-Drop, averaged weights, scheduled sampling and others were missing."""
    facts = "\n".join(_methods(build_config({"size": "tiny"}, origin="test")))
    assert "dropout 0 in the encoder and 0 in the decoder, label smoothing 0.1\n* Precision: float32\n" in facts
    assert facts.endswith("* Other settings of network and training: the defaults of the size and the task")
    training: dict[str, object] = {
        **{"rdrop_alpha": 1, "coverage_loss": 0.5, "weight_averaging": "ema", "scheduled_sampling": "linear"},
        **{"augmentation": "copy", "mix_in": "/home/user/earlier.tsv", "snapshots": False, "epochs": 3},
    }
    encoder = {"recurrent_dropout": 0.25, "pretrained": "/home/user/vectors.txt", "convolutions": [3, 5]}
    decoder = {"embedding_dropout": 0.125, "tie_embeddings": True}
    settings = {"size": "tiny", "precision": "bf16", "training": training, "encoder": encoder, "decoder": decoder}
    facts = "\n".join(_methods(build_config(settings, origin="test")))
    regularization = (
        "label smoothing 0.1, embedding dropout 0 in the encoder and 0.125 in the decoder, recurrent dropout 0.25 in "
        "the encoder and 0 in the decoder, R-Drop with the weight 1, coverage loss with the weight 0.5"
    )
    assert f"{regularization}\n* Precision: bf16\n" in facts
    other = (
        '`encoder.pretrained = "vectors.txt"`, `encoder.convolutions = [3, 5]`, `decoder.tie_embeddings = true`, '
        '`training.scheduled_sampling = "linear"`, `training.weight_averaging = "ema"`, '
        '`training.augmentation = "copy"`, `training.mix_in = "earlier.tsv"`'
    )
    assert facts.endswith(f"* Other settings of network and training that are not the defaults: {other}")
    assert "/home" not in facts
    sampled = build_config({"size": "tiny", "training": {"sampled_softmax": 300}}, origin="test")
    assert "`training.sampled_softmax = 300`" in _methods(sampled)[-1]


def test_each_setting_of_a_training_is_stated_or_compared_with_its_default() -> None:
    """A new setting is named without a change of the card, unless it has a line of its own."""
    assert flatten_config(build_config({}, origin="test")).keys() >= STATED_SETTINGS


@pytest.mark.parametrize("task", BUILT_IN_TASKS)
def test_every_task_describes_the_convolutions_of_the_encoder(task: str) -> None:
    encoder = {"convolutions": [3, 5], "filters": 24}
    config = build_config({"size": "tiny", "task": task, "encoder": encoder}, origin="test")
    description = get_task(task).describe_architecture(config)
    assert "convolutions of 3 and 5 symbols (24 filters each), bidirectional GRU encoder of 1 layer" in description


def test_span_f1_is_listed_if_the_log_has_it() -> None:
    best = {"update": 3, "exact_match": 12.5, "symbol_accuracy": 90.0, "span_f1": 80.0, "loss": 0.5}
    assert _scores(best, 7, get_task("tag"))[2:4] == ["* span F1 80.00 %", "* tag accuracy 90.00 %"]
