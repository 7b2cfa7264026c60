"""cli/foreign_flags.py and cli/flag_suggestions.py: flags of other programs lead to ours; suggestions never mislead."""

import pytest
from command_line import run_pellucid, usage_error_message

from pellucid.cli.arguments import expand_arguments, known_flags, parse_arguments
from pellucid.cli.completion import ARGUMENT_CLASSES
from pellucid.cli.flag_suggestions import UnknownFlagError, is_one_edit
from pellucid.cli.foreign_flags import FOREIGN_FLAGS
from pellucid.cli.subcommand_flags import explain_unknown_flag
from pellucid.cli.subcommands import SUBCOMMANDS

NEEDED = {"train": ["a", "--valid", "b", "--run", "c"], "predict": ["run"], "evaluate": ["run", "file"]}


def told(verb: str, *flags: str) -> str:
    """The error of the parser of a subcommand, in this process."""
    with pytest.raises(UnknownFlagError) as caught:
        parse_arguments(ARGUMENT_CLASSES[verb], verb, [*NEEDED[verb], *flags])
    message = explain_unknown_flag(caught.value.flag_text, verb, caught.value.flags)
    assert message.endswith(f" (pellucid {verb} --help)")
    return message.removesuffix(f" (pellucid {verb} --help)")


def test_the_table_is_large_and_names_only_flags_that_exist() -> None:
    existing = {flag for verb in SUBCOMMANDS for flag in known_flags(ARGUMENT_CLASSES[verb])}
    assert len(FOREIGN_FLAGS) >= 120
    for name, uses in FOREIGN_FLAGS.items():
        assert name == name.lower().strip("-") and "_" not in name and uses
        for word in " ".join(uses).replace(",", " ").replace(";", " ").split():
            assert not word.startswith("--") or word in existing, (name, word)


@pytest.mark.parametrize("verb", NEEDED)
@pytest.mark.parametrize("name", FOREIGN_FLAGS)
def test_a_flag_of_another_program_leads_to_ours(name: str, verb: str) -> None:
    ours = known_flags(ARGUMENT_CLASSES[verb])
    if f"--{name}" in ours:
        pytest.skip("the subcommand has this flag")
    for written in (f"--{name}", f"--{name.replace('-', '_')}", f"-{name.replace('-', '_')}"):
        message = told(verb, written, "3")
        assert message.startswith((f"{written} is ", f"{written}: ")), message
        here = message.removeprefix(f"{written} is ").removesuffix(" here")
        if message.endswith(" here"):
            assert here in FOREIGN_FLAGS[name] and here.split()[0] in ours
        elif message.startswith(f"{written} is "):
            flag, _, homes = here.partition(" of pellucid ")
            assert flag in FOREIGN_FLAGS[name] and flag.split()[0] not in ours
            for home in homes.split(", "):
                assert flag.split()[0] in known_flags(ARGUMENT_CLASSES[home])
        else:
            assert message.removeprefix(f"{written}: ") in FOREIGN_FLAGS[name]


COMMON = {
    **{"lr": "--learning-rate", "max_epoch": "--epochs", "num_train_epochs": "--epochs", "max-epochs": "--epochs"},
    **{"validation_file": "--valid", "dev": "--valid", "save_dir": "--run", "output_dir": "--run"},
    **{"model_dir": "--run", "rnn_size": "--hidden-size", "enc_layers": "--encoder.num-layers"},
    **{"encoder-layers": "--encoder.num-layers", "word_vec_size": "--embedding-size", "early_stopping": "--patience"},
    **{"max_grad_norm": "--clip-norm", "gradient_clip_val": "--clip-norm", "beam": "--beam-size"},
    **{"num_beams": "--beam-size", "max_len_b": "--max-length", "gpu": "--device cuda", "optim": "--optimizer"},
    **{"lenpen": "--length-normalization gnmt --length-penalty-alpha", "tie_word_embeddings": "--tie-embeddings"},
    **{"rnn_type": "--cell", "global_attention": "--attention", "copy_attn": "--pointer-generator"},
    **{"features_col": "--features-column", "source_col": "--source-column", "target_col": "--target-column"},
    **{"bf16": "--precision bf16", "accelerator": "--device", "label_smoothing_factor": "--label-smoothing"},
}


@pytest.mark.parametrize("name", COMMON)
def test_common_flags_of_other_programs_in_train(name: str) -> None:
    assert told("train", f"--{name}=3") == f"--{name} is {COMMON[name]} here"
    done = run_pellucid("train", *NEEDED["train"], f"--{name}", 3)
    assert usage_error_message(done) == f"--{name} is {COMMON[name]} here (pellucid train --help)" and done.out == ""


def test_flags_of_other_subcommands_are_named() -> None:
    assert told("predict", "--lr", "1") == "--lr is --learning-rate of pellucid train, tune"
    assert told("train", "--n_best", "3") == "--n_best is --nbest of pellucid predict, evaluate"
    expected = "there is no flag --dropout; it is a flag of pellucid train, tune"
    assert told("predict", "--dropout", "0.1") == expected
    assert told("train", "--fp16").startswith("--fp16: there is no half precision on the CPU; pellucid train")


def test_flags_with_underscores_or_one_hyphen() -> None:
    given = ["--batch_size", "32", "--learning_rate", "0.1", "--label_smoothing=0.2", "--max_length", "9"]
    expanded = ["--training.batch-size", "32", "--training.learning-rate", "0.1", "--training.label-smoothing=0.2"]
    expanded += ["--search.max-length", "9"]
    assert expand_arguments(ARGUMENT_CLASSES["train"], given) == expanded
    assert told("train", "-batch_size", "32") == "-batch_size is --batch-size here"
    assert told("predict", "-beam_size", "5") == "-beam_size is --beam-size here"


@pytest.mark.parametrize(
    ("verb", "flag", "suggested"),
    [
        ("train", "--vaild", "'--valid'"),
        ("train", "--hiddensize", "'--hidden-size'"),
        ("train", "--size-batch", "'--batch-size'"),
        ("train", "--rdrop", "'--rdrop-alpha'"),
        ("train", "--encoder.hiden-size", "'--encoder.hidden-size'"),
        ("train", "--smothing", "'--label-smoothing'"),
        ("predict", "--format", "'--output-format' or '--input-format'"),
        ("predict", "--bad-line", "'--on-bad-line'"),
        ("evaluate", "--jsn", "'--json'"),
    ],
)
def test_similar_flags_are_suggested(verb: str, flag: str, suggested: str) -> None:
    assert told(verb, flag) == f"there is no flag {flag}; did you mean {suggested}?"


@pytest.mark.parametrize("flag", ["--rum", "--bask", "--max", "--size-of-it", "--max-jobs", "--seeds-file"])
def test_flags_of_another_meaning_are_not_suggested(flag: str) -> None:
    assert "did you mean" not in told("train", flag)


def test_flags_of_the_issue_no_longer_mislead() -> None:
    said = usage_error_message(run_pellucid("train", "a", "--lr", "1"))
    assert said == "--lr is --learning-rate here (pellucid train --help)"
    assert "--aligned" not in usage_error_message(run_pellucid("predict", "run", "--valid", "b"))


def test_one_edit() -> None:
    close = [("vaild", "valid"), ("jsn", "json"), ("valids", "valid"), ("valyd", "valid"), ("vald", "valid")]
    far = [("valid", "valid"), ("mask", "task"), ("rum", "run"), ("vlaidd", "valid"), ("lr", "run"), ("", "json")]
    assert [is_one_edit(*pair) for pair in close] == [True] * 5
    assert [is_one_edit(*pair) for pair in far] == [False] * 6
