"""The typo recipes at small size: networks, trainings, tables, figures and reports."""

import itertools
import json
import random
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import complaint, pellucid
from report_documents import titles_of, written_document
from torch import nn
from trained_runs import SMALL, right_here

from pellucid.config.settings import Config
from pellucid.config.toml import build_config
from pellucid.data.synthetic import Typo, WordList, read_words
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.typos import experiments
from pellucid.recipes.typos.report import (
    POST_BLUES,
    describe_typos,
    film_svg,
    rows_by_ambiguity,
    rows_by_length,
    rows_by_letter,
)
from pellucid.recipes.typos.training import (
    PADDING,
    POST_WORDS,
    SYMBOLS,
    TypoNetwork,
    TypoNetworkSizes,
    encode_words,
    make_typo_data,
    position_probabilities,
    predict_positions,
    rank_positions,
)
from pellucid.reporting.progress import multi_progress

State = tuple[torch.Tensor, torch.Tensor]
"""Hidden and cell of one layer for one word."""


@pytest.fixture(scope="module")
def word_list(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a word list with generated words and candidates for the post's words."""
    syllables = ["ba", "co", "di", "fer", "gu", "lan", "mo", "ne", "pis", "tor"]
    generator = random.Random(1)
    generated = {"".join(generator.choices(syllables, k=generator.randint(2, 6))) for _ in range(160)}
    path = tmp_path_factory.mktemp("words") / "words"
    candidates = {"bank", "bark", "downstairs", "table", "tally", "wants", "wretch", "bookcase", "parental"}
    path.write_text("".join(f"{word}\n" for word in sorted(generated | candidates)))
    return path


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Small networks, short trainings, no worker processes."""

    def quick_config(name: str, overrides: Mapping[str, Any]) -> Config:
        training = {"batch_size": 16, "epochs": 2, "learning_rate": 0.02}
        return build_config({"size": "tiny", "task": "point", **SMALL, "training": training, **overrides}, origin=name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "FAITHFUL_SIZES", TypoNetworkSizes(hidden=4, max_length=18))
        patch.setattr(experiments, "run_jobs", right_here)
        patch.setattr(experiments, "MAX_LETTERS", 18)
        patch.setattr(experiments, "load_recipe_config", quick_config)
        patch.setattr(experiments, "run_jobs", right_here)
        yield


@pytest.fixture(scope="module")
def faithful(word_list: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Output folder and lines of typo-faithful with two seeds."""
    out = tmp_path_factory.mktemp("faithful") / "out"
    return out, list(find_recipe("typo-faithful")(RecipeRequest(out, seeds=2, samples=640, words=word_list)))


@pytest.fixture(scope="module")
def attention(word_list: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Output folder and lines of typo-attention with one seed."""
    out = tmp_path_factory.mktemp("attention") / "out"
    return out, list(find_recipe("typo-attention")(RecipeRequest(out, samples=200, words=word_list)))


def lstm_cell(weights: list[torch.Tensor], vector: torch.Tensor, state: State) -> State:
    """Compute TensorFlow's LSTMCell with forget bias one (gates i, j, f, o) from PyTorch's weights (i, f, g, o)."""
    preactivations = weights[0] @ vector + weights[1] @ state[0] + weights[2]
    input_gate, forget_gate, candidate, output_gate = preactivations.chunk(4)
    new_cell = torch.sigmoid(forget_gate) * state[1] + torch.sigmoid(input_gate) * torch.tanh(candidate)
    return torch.sigmoid(output_gate) * torch.tanh(new_cell), new_cell


def test_network_equals_the_equations_of_the_post() -> None:
    torch.manual_seed(1)
    network = TypoNetwork(TypoNetworkSizes(hidden=3, max_length=5))

    def stack(module: nn.LSTM, vector: torch.Tensor, states: list[State]) -> torch.Tensor:
        for layer in range(3):
            names = ("weight_ih", "weight_hh", "bias_ih")
            states[layer] = lstm_cell([getattr(module, f"{name}_l{layer}") for name in names], vector, states[layer])
            vector = states[layer][0]
        return vector

    with torch.no_grad():
        states: list[State] = [(torch.zeros(3), torch.zeros(3))] * 3
        word = encode_words(["cab"], 5)[0]
        assert word.tolist() == [2, 0, 1, PADDING, PADDING]
        outputs = [stack(network.encoder, network.embedding.weight[symbol], states) for symbol in word]
        read_out = (torch.cat(outputs) * network.read_out_weight).sum() + network.read_out_bias
        logits = network.output(stack(network.decoder, read_out[None], states))
        assert torch.allclose(network(word[None])[0], logits, atol=1e-5)


def test_initial_parameters_are_those_of_tensorflow() -> None:
    torch.manual_seed(1)
    network = TypoNetwork(TypoNetworkSizes(hidden=32, max_length=16))
    first = dict(network.encoder.named_parameters())
    bias, hidden_bias = first["bias_ih_l0"], first["bias_hh_l0"]
    assert bias.tolist() == [0.0] * 32 + [1.0] * 32 + [0.0] * 64
    assert not hidden_bias.any() and not hidden_bias.requires_grad
    bound = (6 / (2 + 32 + 4 * 32)) ** 0.5
    assert first["weight_ih_l0"].abs().max() <= bound < 1.1 * first["weight_hh_l0"].abs().max()
    assert float(network.read_out_weight.detach().std()) == pytest.approx(
        1, abs=0.15
    ) and network.embedding.weight.shape == (28, 2)
    assert float(network.read_out_bias.detach()) == 0 and not network.output.bias.any()


def test_padding_is_encoded_and_may_be_predicted() -> None:
    torch.manual_seed(1)
    network = TypoNetwork(TypoNetworkSizes(hidden=8, max_length=8))
    with torch.no_grad():
        assert not torch.allclose(network(encode_words(["cab"], 8)), network(encode_words(["cab-"], 8)), atol=1e-6)
    predictions = predict_positions(partial(position_probabilities, network), [Typo("cab", 3, "cat")])
    probabilities = predictions.probabilities
    assert probabilities.shape == (1, 8) and probabilities.sum() == pytest.approx(1) and probabilities[0, 7] > 0


def test_rank_counts_more_probable_positions() -> None:
    probabilities = np.array([[0.5, 0.2, 0.3], [0.2, 0.4, 0.4]])
    assert rank_positions(probabilities, [Typo("abc", 2, ""), Typo("abc", 3, "")]).tolist() == [3, 1]


def test_accuracy_by_length_letter_and_ambiguity() -> None:
    words = WordList(["bank", "bark", "tables", "table", "tally"])
    typos = [Typo("bapk", 3, "bank"), Typo("tably", 5, "table"), Typo("tabies", 4, "tables")]
    cases = describe_typos(words, typos, np.array([1, 3, 4]))
    assert [(case.num_words, case.num_positions, case.best_accuracy) for case in cases] == [
        (2, 1, 1.0),
        (2, 2, 0.5),
        (1, 1, 1.0),
    ]
    rows = {row.label: row for row in [*rows_by_length(cases), *rows_by_letter(cases), *rows_by_ambiguity(cases)]}
    assert rows["all"][1:] == pytest.approx((3, 1 / 3, 2 / 3, 2 / 3, 1 / 3, 5 / 6))
    assert rows["up to 5 letters"].total == 2 and rows["8 letters or more"].total == 0 and rows["6"].top_3 == 0
    assert rows["right letter a vowel"].total == 1 and rows["wrong letter a vowel"].total == 1
    assert rows["right letter a consonant, wrong letter a vowel"].total == 1
    assert rows["several words, one position"].total == 1 and rows["short: one word fits"].total == 0


def test_training_set_excludes_tested_forms_and_post_words(word_list: Path) -> None:
    data = make_typo_data(read_words(word_list, max_length=18), 1)
    words = [{typo.right for typo in split} for split in data]
    assert all(not first & second for first, second in itertools.combinations(words, 2))
    assert not {typo.wrong for typo in data.train} & {typo.wrong for typo in (*data.dev, *data.test)}
    assert not {"bank", "table", "parental", "bookcase"} & set(itertools.chain(*words)) and len(data.test) > 30


def test_lines_of_typo_faithful(faithful: tuple[Path, list[str]]) -> None:
    lines = faithful[1]
    assert [line.split(":")[0] for line in lines[:2]] == [f"three layers of LSTM, seed {seed}" for seed in (1, 2)]
    assert "vowel separation ratio" in lines[2] and lines[2].startswith("seed 1") and lines[-1].startswith("report: ")


@pytest.mark.parametrize("name", ["faithful", "attention"])
def test_report_has_every_table(name: str, request: pytest.FixtureRequest) -> None:
    out, _ = request.getfixturevalue(name)
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    assert report["name"] == f"typo-{name}"
    all_words = report["by_length"][0]
    assert all_words["label"] == "all" and 0 <= all_words["top_1"] <= all_words["top_3"] <= 1
    assert all_words["top_1"] <= all_words["best_accuracy"] + 0.5
    assert sum(row["total"] for row in report["by_length"][3:]) == all_words["total"]
    assert sum(row["total"] for row in report["by_letter"][:2]) == all_words["total"]
    assert sum(row["total"] for row in report["by_ambiguity"][:3]) == all_words["total"]
    for run in report["runs"]:
        assert list(run["post_words"]) == list(POST_WORDS)
        assert [len(row) for row in run["post_words"].values()] == list(map(len, POST_WORDS))
        assert all(sum(row) <= 1 + 1e-3 for row in run["post_words"].values()) and run["curve"]
    titles = titles_of(written_document(out / "report.html"))
    assert {"By length", "By letter", "Ambiguity", "The words of the post"} <= set(titles)


def test_attention_excludes_padding(attention: tuple[Path, list[str]]) -> None:
    report = json.loads((attention[0] / "report.json").read_text())
    assert all(sum(row) == pytest.approx(1, abs=1e-3) for row in report["runs"][0]["post_words"].values())
    written = (attention[0] / "data" / "seed-1" / "train.tsv").read_text().splitlines()
    assert len(written) == 200
    wrong, position, right = written[0].split("\t")
    assert wrong[int(position) - 1] != right[int(position) - 1] and len(wrong) == len(right)


@pytest.mark.parametrize(
    ("name", "samples", "messages"),
    [
        ("typo-attention", 40, ["seed 1: 40 of ", " training typos\n", "seed 1: new run, ", "seed 1: update "]),
        ("typo-faithful", 640, ["seed 1: 32 of 640 samples · position accuracy ", "seed 1: 640 of 640 samples"]),
    ],
)
def test_progress_of_training_is_reported(
    name: str, samples: int, messages: list[str], word_list: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with multi_progress() as progress:
        list(find_recipe(name)(RecipeRequest(tmp_path / "out", samples=samples, words=word_list, progress=progress)))
    err = capsys.readouterr().err
    assert all(message in err for message in messages)


def test_finished_run_is_not_trained_again(attention: tuple[Path, list[str]], word_list: Path) -> None:
    out, lines = attention
    assert list(find_recipe("typo-attention")(RecipeRequest(out, samples=200, words=word_list))) == lines


def test_claims_of_the_post_are_measured_before_and_after_training(faithful: tuple[Path, list[str]]) -> None:
    report = json.loads((faithful[0] / "report.json").read_text())
    assert len(report["embedding"]) == 2
    for claims in report["embedding"]:
        for when in ("before", "after"):
            assert 1 / 65_781 <= claims[when]["p"] <= 1 and 1 <= claims[when]["isolation_rank"] <= 26


def test_film_animates_every_symbol_without_a_script(faithful: tuple[Path, list[str]]) -> None:
    root = ET.fromstring((faithful[0] / "film-seed-1.svg").read_text("utf-8"))
    animations = [each for each in root.iter() if each.tag.endswith("animateTransform")]
    assert len(animations) == len(SYMBOLS) and not [each for each in root.iter() if each.tag.endswith("script")]
    for each in animations:
        assert len(each.attrib["values"].split(";")) == len(each.attrib["keyTimes"].split(";"))


def test_film_points_are_inside_the_picture() -> None:
    film = np.random.default_rng(1).normal(size=(5, 28, 2)) * 9
    root = ET.fromstring(film_svg(film, "a < b"))
    points = [
        float(value)
        for each in root.iter()
        if each.tag.endswith("animateTransform")
        for pair in each.attrib["values"].split(";")
        for value in pair.split()
    ]
    assert min(points) > 0 and max(points) < 560


def test_post_figure_positions_exist() -> None:
    assert list(POST_BLUES) == list(POST_WORDS)
    assert all(1 <= position <= len(word) for word, blues in POST_BLUES.items() for position in blues)


def test_missing_word_list_is_an_error(tmp_path: Path) -> None:
    message = complaint(pellucid("recipe", "typo-faithful", "--out", tmp_path / "out", "--words", tmp_path / "none"))
    assert "apt-get install wamerican" in message and not (tmp_path / "out").exists()
    message = complaint(pellucid("recipe", "digits-data", "--out", tmp_path / "out", "--words", tmp_path / "none"))
    assert "--words applies to the typo recipes" in message


def test_typo_attention_is_bidirectional_without_dropout() -> None:
    config = load_recipe_config("typo-attention", {"seed": 7})
    assert config.task == "point" and config.encoder.bidirectional and config.seed == 7
    assert config.encoder.dropout == config.decoder.dropout == config.training.label_smoothing == 0
