"""The model card: every number in it comes from the run."""

import re

import pytest
import safetensors.torch
from trained_runs import copy_task_run, digits_run

from pellucid.config.settings import TaskName
from pellucid.config.toml import build_config
from pellucid.run_folder.log import read_log
from pellucid.tasks.registry import BUILT_IN_TASKS, get_task
from pellucid.training.model_card import _scores


def read_card() -> str:
    return (digits_run().run / "card.md").read_text("utf-8")


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
    assert (
        f"with additive attention: bidirectional {cell} encoder of 1 layer(s) of 16 units per direction" in read_card()
    )
    assert "Source: 16 symbols ('characters'), longest 17." in read_card()
    assert "Target: 10 symbols ('characters'), longest 3." in read_card()
    assert "Stopped because all its passes over the data are done." in read_card()


def test_the_card_is_markdown_without_local_paths() -> None:
    assert read_card().startswith("# A Pellucid model\n") and read_card().endswith("\n")
    assert re.findall(r"^## (.*)$", read_card(), re.MULTILINE) == [
        "Scores on the validation set",
        "Limitations",
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


@pytest.mark.parametrize("task", BUILT_IN_TASKS)
def test_every_task_describes_the_convolutions_of_the_encoder(task: str) -> None:
    encoder = {"convolutions": [3, 5], "filters": 24}
    config = build_config({"size": "tiny", "task": task, "encoder": encoder}, origin="test")
    description = get_task(task).describe_architecture(config)
    assert "convolutions of 3 and 5 symbols (24 filters each), bidirectional GRU encoder of 1 layer(s)" in description


def test_span_f1_is_listed_if_the_log_has_it() -> None:
    best = {"update": 3, "exact_match": 12.5, "symbol_accuracy": 90.0, "span_f1": 80.0, "loss": 0.5}
    assert _scores(best, 7, get_task("tag"))[2:4] == ["* span F1 80.00 %", "* tag accuracy 90.00 %"]
