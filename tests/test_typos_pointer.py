"""The pointer network over language models has the masks, energies and loss of its equations."""

import json
from pathlib import Path

import pytest
import torch
from trained_runs import run_jobs_serially
from typo_cases import SYLLABLES

from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.recipe import RecipeRequest
from pellucid.recipes.typos import experiments
from pellucid.recipes.typos.pointer import (
    LanguageModelPointer,
    PointerSizes,
    PointerTrainingPlan,
    encode_rows,
    language_model_loss,
    letter_log_probabilities,
)
from pellucid.recipes.typos.training import PADDING, POST_WORDS, SYMBOLS

SMALL = PointerSizes(embedding=3, language_model=5, context=4, max_length=18)


@pytest.fixture
def network() -> LanguageModelPointer:
    """Return a small untrained network."""
    torch.manual_seed(1)
    return LanguageModelPointer(SMALL).eval()


def test_letter_prediction_is_independent_of_the_letter(network: LanguageModelPointer) -> None:
    one, two = (
        network.predict_letters(network.encode_contexts(*encode_rows([word], 18).select(torch.tensor([0]))))
        for word in ("cable", "cadle")
    )
    assert torch.equal(one.forward[0, :3], two.forward[0, :3]) and not torch.equal(
        one.forward[0, 3:], two.forward[0, 3:]
    )
    assert torch.equal(one.backward[0, 2:], two.backward[0, 2:])
    assert not torch.equal(one.backward[0, :2], two.backward[0, :2])


def test_padding_and_the_letter_itself_have_probability_zero(network: LanguageModelPointer) -> None:
    batch = encode_rows(["cab", "tables"], 18).select(torch.tensor([0, 1]))
    with torch.no_grad():
        probabilities = network(*batch)[0].exp()
    assert torch.allclose(probabilities.sum(dim=(1, 2)), torch.ones(2))
    assert not probabilities[0, 3:].any() and not probabilities[:, :, PADDING].any()
    assert all(probabilities[1, index, SYMBOLS.index(letter)] == 0 for index, letter in enumerate("tables"))
    assert (probabilities[0, :3] > 0).sum() == 3 * 26


def test_outputs_are_independent_of_the_batch(network: LanguageModelPointer) -> None:
    words = ["cab", "tables", "downwtairs"]
    with torch.no_grad():
        outputs = network(*encode_rows(words, 18).select(torch.arange(3)))[0]
        for row, word in enumerate(words):
            single = network(*encode_rows([word], 18).select(torch.tensor([0])))[0]
            assert torch.allclose(single[0], outputs[row, : len(word)], atol=1e-5)


def test_energy_equals_its_equation(network: LanguageModelPointer) -> None:
    """Compute the energies letter by letter from the layers of the network."""
    batch = encode_rows(["bapk"], 18).select(torch.tensor([0]))
    with torch.no_grad():
        logits, predictions = network(*batch)
        contexts = network.encode_contexts(*batch)
        inputs = torch.cat([contexts.before, contexts.after, network.embedding(batch.words)], dim=2)
        states, _ = network.context_lstm(inputs)
        ends, ids, weights = contexts.ends[0], batch.words[0].tolist(), network.score_weights.tolist()
        forward, backward = predictions.forward[0], predictions.backward[0]
        energies = {}
        for s in range(4):
            key = torch.tanh(network.key_projection(states[0, s]) + network.query_projection(ends))
            for c in set(range(27)) - {ids[s]}:
                energy = network.letter_scores(key)[c] + weights[4] * forward[s, c] + weights[5] * backward[s, c]
                energy = energy + weights[0] * sum(forward[t, ids[t]] for t in range(s))
                energy = energy + weights[1] * sum(backward[t, ids[t]] for t in range(s + 1, 4))
                energies[s, c] = energy + weights[2] * forward[s, ids[s]] + weights[3] * backward[s, ids[s]]
        expected = torch.stack(list(energies.values())).log_softmax(dim=0)
        computed = torch.stack([logits[0, s, c] for s, c in energies])
    assert torch.allclose(computed, expected, atol=1e-5)


def test_language_model_loss_excludes_padding(network: LanguageModelPointer) -> None:
    batch = encode_rows(["cab", "tables"], 18).select(torch.tensor([0, 1]))
    with torch.no_grad():
        predictions = network.predict_letters(network.encode_contexts(*batch))
        loss = float(language_model_loss(batch.words, predictions))
        expected = -sum(
            float(letter_log_probabilities(batch.words, direction)[row, index])
            for direction in predictions
            for row, length in ((0, 3), (1, 6))
            for index in range(length)
        )
    assert loss == pytest.approx(expected / 9, rel=1e-5)


@pytest.mark.slow
def test_recipe_learns_and_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tmp_path / "words"
    word_list = {a + b + c for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES[:3]}
    words.write_text("".join(f"{word}\n" for word in sorted(word_list)))
    sizes = PointerSizes(embedding=16, language_model=32, context=16, max_length=18)
    plan = PointerTrainingPlan(
        language_model_epochs=4, batch_size=16, num_validations=2, learning_rate=0.01, warmup_updates=20
    )
    monkeypatch.setattr(experiments, "LANGUAGE_MODEL_SIZES", sizes)
    monkeypatch.setattr(experiments, "LANGUAGE_MODEL_PLAN", plan)
    monkeypatch.setattr(experiments, "run_jobs", run_jobs_serially)
    lines = list(find_recipe("typo-language-model")(RecipeRequest(tmp_path / "out", samples=4_000, words=words)))
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert lines[0].startswith("language models, seed 1") and report["by_length"][0]["top_1"] > 0.75
    assert all(sum(report["runs"][0]["post_words"][word]) == pytest.approx(1, abs=2e-3) for word in POST_WORDS)
    again = list(find_recipe("typo-language-model")(RecipeRequest(tmp_path / "again", samples=4_000, words=words)))
    assert again[0].rsplit(" in ", 1)[0] == lines[0].rsplit(" in ", 1)[0]
