"""The pointer over language models: masks, energies, loss, and the recipe at small size."""

import json
from pathlib import Path

import pytest
import torch
from trained_runs import right_here

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

SMALL = PointerSizes(embedding=3, sides=5, around=4, longest=18)


@pytest.fixture
def network() -> LanguageModelPointer:
    """A small untrained network."""
    torch.manual_seed(1)
    return LanguageModelPointer(SMALL).eval()


def test_letter_prediction_is_independent_of_the_letter(network: LanguageModelPointer) -> None:
    one, two = (
        network.predict_letters(network.encode_contexts(*encode_rows([word], 18).take(torch.tensor([0]))))
        for word in ("cable", "cadle")
    )
    assert torch.equal(one.forwards[0, :3], two.forwards[0, :3]) and not torch.equal(
        one.forwards[0, 3:], two.forwards[0, 3:]
    )
    assert torch.equal(one.backwards[0, 2:], two.backwards[0, 2:])
    assert not torch.equal(one.backwards[0, :2], two.backwards[0, :2])


def test_padding_and_the_letter_itself_have_probability_zero(network: LanguageModelPointer) -> None:
    rows = encode_rows(["cab", "tables"], 18).take(torch.tensor([0, 1]))
    with torch.no_grad():
        chances = network(*rows)[0].exp()
    assert torch.allclose(chances.sum(dim=(1, 2)), torch.ones(2))
    assert not chances[0, 3:].any() and not chances[:, :, PADDING].any()
    assert all(chances[1, at, SYMBOLS.index(letter)] == 0 for at, letter in enumerate("tables"))
    assert (chances[0, :3] > 0).sum() == 3 * 26


def test_batch_composition_changes_nothing(network: LanguageModelPointer) -> None:
    words = ["cab", "tables", "downwtairs"]
    with torch.no_grad():
        together = network(*encode_rows(words, 18).take(torch.arange(3)))[0]
        for row, word in enumerate(words):
            alone = network(*encode_rows([word], 18).take(torch.tensor([0])))[0]
            assert torch.allclose(alone[0], together[row, : len(word)], atol=1e-5)


def test_energy_equals_its_equation(network: LanguageModelPointer) -> None:
    """Recomputed letter by letter from the network's own parts."""
    rows = encode_rows(["bapk"], 18).take(torch.tensor([0]))
    with torch.no_grad():
        logits, foretold = network(*rows)
        sides = network.encode_contexts(*rows)
        entering = torch.cat([sides.before, sides.after, network.table(rows.words)], dim=2)
        around, _ = network.around(entering)
        ends, ids, trust = sides.ends[0], rows.words[0].tolist(), network.score_weights.tolist()
        forwards, backwards = foretold.forwards[0], foretold.backwards[0]
        energies = {}
        for s in range(4):
            key = torch.tanh(network.keys(around[0, s]) + network.query(ends))
            for c in set(range(27)) - {ids[s]}:
                energy = network.letters(key)[c] + trust[4] * forwards[s, c] + trust[5] * backwards[s, c]
                energy = energy + trust[0] * sum(forwards[t, ids[t]] for t in range(s))
                energy = energy + trust[1] * sum(backwards[t, ids[t]] for t in range(s + 1, 4))
                energies[s, c] = energy + trust[2] * forwards[s, ids[s]] + trust[3] * backwards[s, ids[s]]
        expected = torch.stack(list(energies.values())).log_softmax(dim=0)
        found = torch.stack([logits[0, s, c] for s, c in energies])
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_loss_counts_letters_alone(network: LanguageModelPointer) -> None:
    rows = encode_rows(["cab", "tables"], 18).take(torch.tensor([0, 1]))
    with torch.no_grad():
        foretold = network.predict_letters(network.encode_contexts(*rows))
        loss = float(language_model_loss(rows.words, foretold))
        by_hand = -sum(
            float(letter_log_probabilities(rows.words, side)[row, at])
            for side in foretold
            for row, n in ((0, 3), (1, 6))
            for at in range(n)
        )
    assert loss == pytest.approx(by_hand / 9, rel=1e-5)


def test_recipe_learns_and_is_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tmp_path / "words"
    syllables = ["ba", "co", "di", "fer", "gu", "lan", "mo", "ne", "pis", "tor"]
    listed = {a + b + c for a in syllables for b in syllables for c in syllables[:3]}
    words.write_text("".join(f"{word}\n" for word in sorted(listed)))
    monkeypatch.setattr(experiments, "FORETOLD_SIZES", PointerSizes(embedding=16, sides=32, around=16, longest=18))
    monkeypatch.setattr(
        experiments, "FORETOLD_PLAN", PointerTrainingPlan(passes=4, batch=16, validations=2, rate=0.01, warm=20)
    )
    monkeypatch.setattr(experiments, "run_jobs", right_here)
    lines = list(find_recipe("typo-foretold")(RecipeRequest(tmp_path / "out", samples=4_000, words=words)))
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert lines[0].startswith("foretold, seed 1") and report["by_length"][0]["top_1"] > 0.75
    assert all(sum(report["runs"][0]["examples"][word]) == pytest.approx(1, abs=2e-3) for word in POST_WORDS)
    again = list(find_recipe("typo-foretold")(RecipeRequest(tmp_path / "again", samples=4_000, words=words)))
    assert again[0].rsplit(" in ", 1)[0] == lines[0].rsplit(" in ", 1)[0]
