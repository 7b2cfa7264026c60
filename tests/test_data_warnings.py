"""training/data_warnings.py: data on which a training cannot succeed, repeated examples, and spaces."""

from pathlib import Path

import msgspec
import pytest
from command_line import run_pellucid
from trained_runs import make_small_config, train_to_end

from pellucid.config.settings import DataConfig, TaskName
from pellucid.data.examples import Example
from pellucid.data.tokenizers import symbol_kind_warnings
from pellucid.data.vocabulary import learn_tokenizers, learn_vocabularies
from pellucid.tasks.registry import build_network, get_task
from pellucid.training.data_warnings import OVERLAP_ADVICE, data_warnings, overlap_note
from pellucid.training.training_data import TrainingFiles, read_files


def find_data_warnings(
    task: TaskName, train: list[Example], validation_examples: list[Example], pointer_generator: bool = False
) -> list[str]:
    """Return the warnings about the data of a small training."""
    symbols = "characters" if task == "transduce" else "words"
    config = msgspec.structs.replace(make_small_config(data={"target_symbols": symbols}), task=task)
    config = msgspec.structs.replace(
        config, decoder=msgspec.structs.replace(config.decoder, pointer_generator=pointer_generator)
    )
    vocabularies = learn_vocabularies(train, learn_tokenizers(train, config.data), 1)
    network = build_network(config, vocabularies)
    predictor = get_task(config.task).build_predictor(config, vocabularies, network, "")
    return list(data_warnings(predictor, validation_examples, range(11, 11 + len(validation_examples))))


def test_a_single_class_is_reported() -> None:
    train = [Example("ab", "one")] * 4
    assert find_data_warnings("classify", train, train) == [
        "every training example has the same class, 'one': there is nothing to learn"
    ]
    assert find_data_warnings("classify", [*train, Example("b", "two")], train) == []
    assert "has the same tag, 'O'" in find_data_warnings("tag", [Example("ab", "O O")], [])[0]


@pytest.mark.parametrize("pointer_generator", [False, True])
def test_targets_that_the_model_cannot_produce_are_counted(pointer_generator: bool) -> None:
    train = [Example("abc", "abc")] * 4
    validation_examples = [Example("ab", "ab"), Example("ax", "axy"), Example("az", "az")]
    warnings = find_data_warnings("transduce", train, validation_examples, pointer_generator)
    expected = "2 of 3 validation targets cannot be produced by the model: no training target contains 'x' or others"
    expected += " (lines 12 and 13 of the validation file)"
    assert warnings == ([] if pointer_generator else [expected])


@pytest.mark.parametrize(
    ("targets", "warns"),
    [
        (["k a t", "d ɔ ɡ", "aɪ"], False),
        (["k a t", "d ɔ ɡ", "h aʊ s", "t͡ʃ ɪ p", "aɪ"], True),
        (["K AE1 T", "D AO1 G"], True),
        (["the cat sat", "a dog ran off", "it was a house"], False),
        (["cat", "dog"], False),
        (["hat gesehen", "ist gegangen"], False),
    ],
)
def test_symbols_between_spaces_that_are_split_into_characters_are_reported(targets: list[str], warns: bool) -> None:
    train = [Example("abc", target) for target in targets]
    warnings = find_data_warnings("transduce", train, train)
    assert len(warnings) == warns
    if warns:
        assert warnings[0].startswith(f"targets such as {targets[0]!r} seem to be symbols between spaces")
        assert warnings[0].endswith("consider --target-symbols words")
    assert find_data_warnings("tag", [Example("abc", "A B C")] * 2, [Example("abc", "A B C")]) == []


@pytest.mark.parametrize(
    ("targets", "advice"),
    [
        (["t͡ʃˈeɪnd͡ʒ", "t͡ʃˈɛs", "kˈɪd"], "keeps t͡ʃ and d͡ʒ together"),
        (["baːt", "ɡɐ"], "keeps aː together"),
        (["kˈɪd", "bˈɪd"], ""),
        (["किताब", "पानी"], ""),
    ],
)
def test_ipa_that_is_split_into_characters_is_reported(targets: list[str], advice: str) -> None:
    train = [Example("abc", target) for target in targets]
    expected = [f"the targets look like IPA: --target-symbols ipa {advice}"] if advice else []
    assert find_data_warnings("transduce", train, train) == expected
    words = ["abc"] * len(targets)
    assert list(symbol_kind_warnings(words, targets, DataConfig())) == expected
    assert list(symbol_kind_warnings(words, targets, DataConfig(target_symbols="ipa"))) == []
    assert list(symbol_kind_warnings(words, targets, DataConfig(equal_length=True))) == []
    expected = [warning.replace("target", "source") for warning in expected]
    assert list(symbol_kind_warnings(targets, words, DataConfig())) == expected


def test_phones_between_spaces_are_reported_also_with_ipa() -> None:
    (warning,) = symbol_kind_warnings(["ab"] * 2, ["k ˈa t", "d ɔ ɡ"], DataConfig(target_symbols="ipa"))
    assert "they are split into IPA phones, of which the space is one: consider --target-symbols words" in warning


@pytest.mark.parametrize(
    ("targets", "is_advised"), [(["cat", "dog", "a mouse"], True), (["the cat", "a dog", "a mouse", "mice"], False)]
)
def test_characters_are_advised_only_if_most_targets_are_one_word(targets: list[str], is_advised: bool) -> None:
    """Regression test: sentences with rare words, as those of the recipe spanish-tatoeba, had the advice too."""
    config = make_small_config(data={"target_symbols": "words"})
    train = [Example("ab", "known")]
    vocabularies = learn_vocabularies(train, learn_tokenizers(train, config.data), 1)
    predictor = get_task("transduce").build_predictor(config, vocabularies, build_network(config, vocabularies), "")
    examples = [Example("ab", target) for target in targets]
    (warning,) = data_warnings(predictor, examples, range(1, 1 + len(examples)))
    advice = "; most targets are one word: leave out --target-symbols words"
    assert warning.endswith(advice if is_advised else "of the validation file)")


@pytest.mark.parametrize(("num_sampled", "warns"), [(0, False), (10, False), (15, True), (1000, True)])
def test_a_sampled_softmax_of_a_small_vocabulary_is_reported(num_sampled: int, warns: bool) -> None:
    """The number of symbols is that of the line before it, without the four special ones (regression test)."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    config = make_small_config({"sampled_softmax": num_sampled})
    train = [Example(letters, letters)]
    vocabularies = learn_vocabularies(train, learn_tokenizers(train, config.data), 1)
    predictor = get_task("transduce").build_predictor(config, vocabularies, build_network(config, vocabularies), "")
    warning = (
        f"training.sampled_softmax = {num_sampled:,} saves no time: there are only 26 target symbols; without it, the "
        "softmax is exact"
    )
    assert list(data_warnings(predictor, train, [1])) == [warning] * warns


@pytest.mark.parametrize(
    ("init_from", "mix_in", "num_examples", "warns"),
    [("old", "", 5, True), ("old", "", 100, False), ("old", "old.tsv", 5, False), ("", "", 5, False)],
)
def test_a_fine_tuning_that_may_forget_is_reported(init_from: str, mix_in: str, num_examples: int, warns: bool) -> None:
    """Regression test: 50 new words without --mix-in and --valid made a model worse, without a warning."""
    config, train = make_small_config({"init_from": init_from, "mix_in": mix_in}), [Example("ab", "b")] * 5
    vocabularies = learn_vocabularies(train, learn_tokenizers(train, config.data), 1)
    predictor = get_task("transduce").build_predictor(config, vocabularies, build_network(config, vocabularies), "")
    warnings = list(data_warnings(predictor, train * (num_examples // 5), range(num_examples)))
    assert (
        warnings
        == [
            "the model may forget earlier pairs, and 5 validation examples may not show it: use --mix-in "
            "FILE to repeat earlier pairs, or include some of them in the file of --valid"
        ]
        * warns
    )


def test_warnings_are_printed_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("ab\tA\n" * 20, "utf-8")
    (tmp_path / "dev.tsv").write_text("ab\tB\n" * 5, "utf-8")
    task = ("--task", "classify", "--size", "tiny", "--training.epochs", "1")
    result = run_pellucid(
        "train", tmp_path / "train.tsv", "--valid", tmp_path / "dev.tsv", "--run", tmp_path / "run", *task
    )
    assert result.code == 0
    assert "note: every training example has the same class, 'A'" in result.err
    expected = (
        "note: 5 of 5 validation targets cannot be produced by the model: no training target contains 'B' "
        "(lines 1, 2, 3, 4 and 5 of"
    )
    assert expected in result.err


def test_duplicates_and_spaces_at_the_ends_are_told(tmp_path: Path) -> None:
    """One note for each file says how many there are, and what happens with them."""
    train, valid = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    train.write_text("ab\tx\nab\tx\nab\tx\nab\ty\ncd \tx\n ef\ty \n", "utf-8")
    valid.write_text("gh\tx\ngh\tx\n", "utf-8")
    first, second = read_files(TrainingFiles(train, valid), DataConfig(), None).file_events
    assert first.text_note == (
        "2 examples repeat an earlier one exactly (lines 2 and 3): each is trained on; 2 sources begin or end with a "
        "space, which is a symbol (lines 5 and 6): remove such spaces if they mean nothing; 1 target begins or ends "
        "with a space, which is a symbol (line 6): remove such spaces if they mean nothing"
    )
    assert second.text_note == "1 example repeats an earlier one exactly (line 2): each is scored"
    words = DataConfig(source_symbols="words", target_symbols="words")
    assert "space" not in read_files(TrainingFiles(train, valid), words, None).file_events[0].text_note
    split = read_files(TrainingFiles(train, None), DataConfig(), None).file_events
    assert split[0].text_note.startswith(
        "2 examples repeat an earlier one exactly (lines 2 and 3): each is used; 2 sources"
    )


def test_spaces_in_symbols_between_separators_are_told(tmp_path: Path) -> None:
    """Regression test: such a space was not reported if it does not change the number of symbols."""
    train, valid = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    train.write_text("ab\tx|y\ncd\tx|y \n", "utf-8")
    valid.write_text("gh\tx\n", "utf-8")
    data = DataConfig(target_symbols="|")
    assert read_files(TrainingFiles(train, valid), data, None).file_events[0].text_note == (
        "1 target begins or ends with a space, which is a part of a symbol (line 2): remove such spaces if they mean "
        "nothing"
    )


def test_the_note_on_shared_examples_states_its_consequence_from_a_tenth_on() -> None:
    """Regression test: a validation file of training lines had only its number, and a score of 99 %."""
    assert overlap_note(0, 100, "a.tsv") == ""
    assert overlap_note(9, 100, "a.tsv") == "9 of 100 validation examples are also in a.tsv"
    consequence = f"scores and confidence are too high for new data; {OVERLAP_ADVICE}"
    assert overlap_note(10, 100, "a.tsv") == f"10 of 100 validation examples are also in a.tsv: {consequence}"


def test_the_card_names_validation_examples_of_the_training_set(tmp_path: Path) -> None:
    lines = [f"{letter}{other}\t{letter.upper()}{other.upper()}" for letter in "abcd" for other in "abcd"]
    train, valid = tmp_path / "train.tsv", tmp_path / "valid.tsv"
    train.write_text("\n".join(lines) + "\n", "utf-8")
    valid.write_text("\n".join(lines[:3]) + "\n", "utf-8")
    train_to_end(TrainingFiles(train, valid), tmp_path / "run", make_small_config({"epochs": 1.0}))
    text = (tmp_path / "run" / "card.md").read_text("utf-8")
    assert (
        "3 of 3 validation examples are also in the training set: scores and confidence are too high for new data."
        in text
    )
