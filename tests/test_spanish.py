"""The networks of the Spanish post compared with NumPy and with their equations, and the recipe at small size."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from report_documents import parts_of, titles_of, written_document
from torch import Tensor, nn

from pellucid.model.network import parameter_count
from pellucid.recipes.catalog import find_recipe
from pellucid.recipes.recipe import RecipeRequest
from pellucid.recipes.spanish import faithful
from pellucid.recipes.spanish.networks import (
    SpanishArchitecture,
    SpanishNetwork,
    SpanishStepState,
    TensorFlowAttention,
    TensorFlowGRU,
    TensorFlowLSTM,
    attend_all,
    attend_words,
)
from pellucid.recipes.spanish.sentences import (
    EOS,
    GO,
    PAD,
    PAIRS,
    SPECIAL,
    TRAINING_PAIRS,
    UNK,
    UNTRANSLATED,
    build_corpus,
    build_vocabulary,
    tokenize,
)
from pellucid.recipes.spanish.studies import PaddingMode
from pellucid.recipes.spanish.training import (
    MAX_GRADIENT_NORM,
    SentenceBatch,
    SpanishStudy,
    clip_global_norm,
    run_study,
    sentence_loss,
    slice_rows,
    tensor_shapes,
    to_tensors,
    translate,
    weight_on_padding,
)
from pellucid.viewer.report_schema import ReportText

CORPUS = build_corpus(PAIRS)
DATA = to_tensors(CORPUS.data)
SMALL = SpanishArchitecture(hidden=8, embedding=8)


def small(design: SpanishArchitecture = SMALL, seed: int = 3) -> SpanishNetwork:
    torch.manual_seed(seed)
    return SpanishNetwork(design, len(CORPUS.english.words), len(CORPUS.spanish.words)).eval()


def sigmoid(values: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-values))
    return result


def weights_of(layer: nn.Linear) -> tuple[np.ndarray, np.ndarray]:
    return layer.weight.detach().numpy().T, layer.bias.detach().numpy()


def numpy_gru(cell: TensorFlowGRU, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    gates, gate_bias = weights_of(cell.gates)
    own, own_bias = weights_of(cell.candidate)
    both = sigmoid(np.concatenate([x, h], axis=1) @ gates + gate_bias)
    reset, update = both[:, : h.shape[1]], both[:, h.shape[1] :]
    candidate = np.tanh(np.concatenate([x, reset * h], axis=1) @ own + own_bias)
    after: np.ndarray = update * h + (1 - update) * candidate
    return after


@pytest.mark.parametrize(("plain", "parameters"), [(False, 1_820_922), (True, 1_279_722)])
def test_number_of_parameters_with_the_authors_vocabularies(plain: bool, parameters: int) -> None:
    assert (
        parameter_count(SpanishNetwork(SpanishArchitecture("plain" if plain else "attention"), 215, 222)) == parameters
    )


def test_the_pairs_have_the_authors_shape() -> None:
    english, spanish = ([len(tokenize(pair[side])) for pair in PAIRS] for side in (0, 1))
    assert len(PAIRS) == 20 and TRAINING_PAIRS == 16
    assert (min(english), max(english)) == (11, 31)
    assert (min(spanish) + 1, max(spanish) + 1) == (12, 32)
    assert [column.shape for column in CORPUS.data] == [(20, 32), (20,), (20, 33), (20, 33)]


def test_ids_are_by_frequency_with_padding_go_end_and_unknown_first() -> None:
    known = build_vocabulary([["b", "a", "a"], ["c", "a", "b", "12"]])
    assert known.words == (*SPECIAL, "a", "b", "c", "00")
    assert known.ids(["a", "zzz", "37"]) == [4, UNK, 7]
    assert (PAD, GO, EOS, UNK) == (0, 1, 2, 3)


def test_punctuation_is_separated_and_case_is_kept() -> None:
    assert tokenize('He said: "Go, (now)!" Don\'t?') == [
        *("He", "said", ":", '"', "Go", ",", "(", "now", ")", "!", '"', "Don", "'", "t", "?"),
    ]
    assert UNK in CORPUS.english.ids(tokenize(UNTRANSLATED))


def test_decoder_inputs_are_the_targets_a_step_later() -> None:
    data = CORPUS.data
    assert (data.given[:, 0] == GO).all()
    assert (data.given[:, 1:] == data.targets[:, :-1]).all()
    assert (data.targets[:, -1] == PAD).all() and ((data.targets == EOS).sum(axis=1) == 1).all()


def test_a_step_of_the_decoder_is_its_equations() -> None:
    network = small(SMALL._replace(heads=2))
    batch = slice_rows(DATA, 0, 3)
    encoded = network.encode(batch.source, batch.lengths)
    first, features = network.init_decoder(encoded)
    assert features is not None and network.attention is not None
    before = network.step(network.target_embedding[batch.given[:, 0]], first, features).carried
    step = network.step(network.target_embedding[batch.given[:, 1]], before, features)

    states, contexts = encoded.outputs.detach().numpy(), before.head_outputs.contexts.detach().numpy()
    y = network.target_embedding.detach().numpy()[batch.given[:, 1].numpy()]
    merge, merge_bias = weights_of(network.merge)
    x = np.concatenate([y, contexts[:, 0], contexts[:, 1]], axis=1) @ merge + merge_bias
    assert isinstance(network.cell, TensorFlowGRU)
    h = numpy_gru(network.cell, x, before.state.detach().numpy())
    found = []
    for head in range(2):
        query, query_bias = weights_of(network.attention.queries[head])  # type: ignore[arg-type]
        key = network.attention.projections[head].detach().numpy()
        v = network.attention.vectors[head].detach().numpy()
        e = np.einsum("bsh,h->bs", np.tanh(states @ key + (h @ query + query_bias)[:, None]), v)
        alpha = np.exp(e) / np.exp(e).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(
            step.carried.head_outputs.weights[:, head].detach().numpy(), alpha, rtol=2e-5, atol=1e-7
        )
        found.append(np.einsum("bs,bsh->bh", alpha, states))
    project, project_bias = weights_of(network.project)
    output = np.concatenate([h, *found], axis=1) @ project + project_bias
    np.testing.assert_allclose(step.carried.state.detach().numpy(), h, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(step.output.detach().numpy(), output, rtol=2e-5, atol=1e-6)


def test_the_lstm_is_its_equations_and_passes_its_cell_on() -> None:
    torch.manual_seed(1)
    cell, x, state = TensorFlowLSTM(3, 4), torch.randn(2, 3), torch.randn(2, 8)
    gates, bias = weights_of(cell.gates)
    c, h = np.split(state.numpy(), 2, axis=1)
    i, j, f, o = np.split(np.concatenate([x.numpy(), h], axis=1) @ gates + bias, 4, axis=1)
    after = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j)
    output, new = cell(x, state)
    np.testing.assert_allclose(new.detach().numpy(), np.hstack([after, sigmoid(o) * np.tanh(after)]), rtol=1e-5)
    assert torch.equal(output, new[:, 4:])


def test_the_convolution_is_a_product_and_pads_nothing() -> None:
    torch.manual_seed(2)
    attention, states = TensorFlowAttention(4, 4, 1, attend_all), torch.randn(2, 7, 4)
    kernel = attention.projections[0].T[:, :, None, None]
    four = nn.functional.conv2d(states.permute(0, 2, 1)[..., None], kernel, padding="same")
    assert four.shape == (2, 4, 7, 1)
    keys = attention.prepare(states, torch.tensor([7, 7])).keys[0]
    torch.testing.assert_close(four[..., 0].permute(0, 2, 1), keys)


@pytest.mark.parametrize(("weigh", "beyond"), [(attend_all, True), (attend_words, False)])
def test_padding_is_attended_or_not(weigh: Callable[[Tensor, Tensor], Tensor], beyond: bool) -> None:
    weights = weigh(torch.tensor([[1.0, 2.0, 0.5]]), torch.tensor([2]))
    assert float(weights.sum()) == pytest.approx(1.0)
    assert bool(weights[0, 2] > 0) == beyond


def test_outputs_after_the_end_are_zero_and_the_state_is_the_last_one() -> None:
    network, batch = small(), slice_rows(DATA, 0, 4)
    encoded = network.encode(batch.source, batch.lengths)
    alone = network.encode(batch.source[1:2, : int(batch.lengths[1])], batch.lengths[1:2])
    torch.testing.assert_close(encoded.state[1:2], alone.state)
    assert (encoded.outputs[1, int(batch.lengths[1]) :] == 0).all()


@pytest.mark.parametrize(("padding", "same"), [("masked", True), ("attended", False)])
def test_only_masked_padding_changes_nothing(padding: PaddingMode, same: bool) -> None:
    network, batch = small(SMALL._replace(padding=padding)), slice_rows(DATA, 1, 2)
    wide = network(network.encode(batch.source, batch.lengths), batch.given).outputs
    narrow = network(network.encode(batch.source[:, : int(batch.lengths[0])], batch.lengths), batch.given).outputs
    assert torch.allclose(wide, narrow, atol=1e-6) == same


def test_initial_state_attention_changes_what_the_first_step_is_given() -> None:
    batch = slice_rows(DATA, 0, 2)
    plain, looking = small(), small(SMALL._replace(initial_state_attention=True))
    looking.load_state_dict(plain.state_dict())
    for network, zero in ((plain, True), (looking, False)):
        encoded = network.encode(batch.source, batch.lengths)
        carried, features = network.init_decoder(encoded)
        assert bool((carried.head_outputs.contexts == 0).all()) == zero
        if not zero and network.attention is not None and features is not None:
            assert torch.equal(carried.head_outputs.contexts, network.attention(encoded.state, features).contexts)


@pytest.mark.parametrize("updating", [False, True])
def test_fed_back_words_train_the_embedding_only_if_requested(updating: bool) -> None:
    network, batch = small(), slice_rows(DATA, 0, 4)
    written = network.feed_previous(network.encode(batch.source, batch.lengths), 6, updating)
    torch.autograd.backward(written.outputs.square().sum())
    gradient = network.target_embedding.grad
    assert gradient is not None
    trained = set(gradient.abs().sum(dim=1).nonzero().flatten().tolist())
    fed = set(written.given.flatten().tolist())
    assert len(fed) > 1 and trained == (fed if updating else {GO})


def test_feeding_back_the_given_words_equals_teacher_forcing() -> None:
    network, batch = small(), slice_rows(DATA, 0, 2)
    encoded = network.encode(batch.source, batch.lengths)
    alone = network.feed_previous(encoded, 5, False)
    again = network(encoded, alone.given)
    torch.testing.assert_close(alone.outputs, again.outputs)
    likeliest = network.softmax(alone.outputs).argmax(dim=2)
    assert torch.equal(alone.given[:, 1:], likeliest[:, :-1])


def test_initial_parameters_are_those_of_tensorflow() -> None:
    network = SpanishNetwork(SpanishArchitecture(), 215, 222)
    assert network.attention is not None and isinstance(network.cell, TensorFlowGRU)
    bounds = {
        0.1181: network.source_embedding,
        0.1162: network.target_embedding,
        0.0707: network.cell.gates.weight,
        0.1000: network.attention.projections[0],
        1.7321: network.attention.vectors[0],
        1.7320: network.softmax.bias,
    }
    for bound, parameter in bounds.items():
        assert 0.97 * bound < float(parameter.detach().abs().max()) <= bound + 1e-4
    assert (network.cell.gates.bias == 1).all() and (network.cell.candidate.bias == 0).all()
    assert (network.merge.bias == 0).all() and (network.project.bias == 0).all()


def test_dropout_takes_half_of_outputs_and_nothing_of_the_state() -> None:
    network, batch = small(), slice_rows(DATA, 0, 4)
    kept = network.encode(batch.source, batch.lengths)
    torch.manual_seed(0)
    dropped = network.train().encode(batch.source, batch.lengths)
    assert torch.equal(kept.state, dropped.state)
    words = torch.arange(kept.outputs.shape[1]) < batch.lengths[:, None]
    share = float((dropped.outputs[words] == 0).float().mean())
    assert 0.4 < share < 0.6
    left = (dropped.outputs != 0) & words[:, :, None]
    torch.testing.assert_close(dropped.outputs[left], 2 * kept.outputs[left])


def test_the_loss_is_summed_over_words_and_averaged_over_sentences() -> None:
    logits, targets = torch.randn(2, 4, 9), torch.tensor([[5, 6, 2, 0], [7, 2, 0, 0]])
    probabilities = logits.log_softmax(dim=2)
    wanted = -sum(float(probabilities[b, t, int(targets[b, t])]) for b in (0, 1) for t in range(4) if targets[b, t]) / 2
    assert float(sentence_loss(logits, targets)) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("size", "after"), [(50.0, MAX_GRADIENT_NORM), (3.0, 3.0)])
def test_global_gradient_norm_is_at_most_five(size: float, after: float) -> None:
    layer = nn.Linear(2, 2)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter) * size / 6**0.5
    clip_global_norm(layer)
    length = sum(float(p.grad.square().sum()) for p in layer.parameters() if p.grad is not None) ** 0.5
    assert length == pytest.approx(after, rel=1e-5)


def test_shapes_are_those_of_the_post_but_for_its_convolution() -> None:
    network = small()
    letters = {"N": 4, "H": 8, "C": len(CORPUS.spanish.words), "1": 1}
    for shape in tensor_shapes(network, slice_rows(DATA, 0, 4)):
        for letter, size in zip(filter(None, shape.post.split(", ")), shape.sizes, strict=True):
            if letter in letters:
                assert size == letters[letter], shape.name
    features = next(
        shape for shape in tensor_shapes(network, slice_rows(DATA, 0, 4)) if shape.name.startswith("features")
    )
    assert features.sizes == (4, 32, 1, 8)


@pytest.mark.parametrize("design", [SMALL, SMALL._replace(decoder="plain"), SMALL._replace(cell="lstm", embedding=5)])
def test_a_short_training_learns_and_is_a_function_of_its_seed(design: SpanishArchitecture) -> None:
    first, again = (run_study(SpanishStudy("short", design, seed=2, epochs=4)) for _ in range(2))
    assert first.curve == again.curve and len(first.curve) == 4
    assert first.curve[-1].training < first.curve[0].training
    assert (first.padding is None) == (design.decoder == "plain")


def test_translation_has_attention_on_padding() -> None:
    network = small()
    trace = translate(network, CORPUS, PAIRS[0][0])
    assert len(trace.source) == 32 and trace.source[-1] == SPECIAL[PAD]
    assert trace.attention.shape == (len(trace.target), 32)
    np.testing.assert_allclose(trace.attention.sum(axis=1), 1, rtol=1e-5)
    masked = small(SMALL._replace(padding="masked"))
    assert weight_on_padding(network, DATA) > 0.05 and weight_on_padding(masked, DATA) == 0


def test_a_state_is_a_value() -> None:
    network, batch = small(), slice_rows(DATA, 0, 2)
    encoded = network.encode(batch.source, batch.lengths)
    first, features = network.init_decoder(encoded)
    embedded = network.target_embedding[batch.given[:, 0]]
    one, other = (network.step(embedded, SpanishStepState(*first), features) for _ in range(2))
    assert torch.equal(one.output, other.output)


def test_recipe_reports_its_trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = (SpanishStudy("attention", SMALL), SpanishStudy("plain encoder-decoder", SMALL._replace(decoder="plain")))
    monkeypatch.setattr(faithful, "STUDIES", two)
    lines = list(find_recipe("spanish-faithful")(RecipeRequest(tmp_path / "out", samples=32)))
    assert [line.split(",")[0] for line in lines[:2]] == ["attention", "plain encoder-decoder"]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [len(run["validation_loss"]) for run in report["runs"]] == [2, 2]
    assert report["overfitting"] == lines[2]
    document = written_document(tmp_path / "out" / "report.html")
    assert "Training and validation loss" in titles_of(document)
    assert any("height'" in part.text for part in parts_of(document, ReportText, "Shapes"))


def test_batches_keep_their_columns() -> None:
    assert SentenceBatch._fields == type(CORPUS.data)._fields
