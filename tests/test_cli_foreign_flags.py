"""cli/foreign_flags.py and cli/flag_suggestions.py: translation of flags of other programs, and suggestions."""

import pytest
from command_line import run_pellucid, usage_error_message

from pellucid.cli.arguments import expand_arguments, known_flags, parse_arguments
from pellucid.cli.completion import ARGUMENT_CLASSES
from pellucid.cli.flag_suggestions import UnknownFlagError, is_one_edit, unknown_flag_error
from pellucid.cli.foreign_flags import FOREIGN_FLAGS
from pellucid.cli.subcommand_flags import explain_unknown_flag
from pellucid.cli.subcommands import SUBCOMMANDS

REQUIRED_ARGUMENTS = {"train": ["a", "--valid", "b", "--run", "c"], "predict": ["run"], "evaluate": ["run", "file"]}


def unknown_flag_message(subcommand: str, *flags: str) -> str:
    """Return the error of the argument parser of a subcommand on these flags."""
    with pytest.raises(UnknownFlagError) as caught:
        parse_arguments(ARGUMENT_CLASSES[subcommand], subcommand, [*REQUIRED_ARGUMENTS[subcommand], *flags])
    message = explain_unknown_flag(caught.value.flag_text, subcommand, caught.value.flags)
    assert message.endswith(f" (pellucid {subcommand} --help)")
    return message.removesuffix(f" (pellucid {subcommand} --help)")


def test_foreign_flags_table_is_large_and_names_existing_flags() -> None:
    existing = {flag for subcommand in SUBCOMMANDS for flag in known_flags(ARGUMENT_CLASSES[subcommand])}
    assert len(FOREIGN_FLAGS) >= 120
    for name, uses in FOREIGN_FLAGS.items():
        assert name == name.lower().strip("-") and "_" not in name and uses
        for word in " ".join(uses).replace(",", " ").replace(";", " ").split():
            assert not word.startswith("--") or word in existing, (name, word)


@pytest.mark.parametrize("subcommand", REQUIRED_ARGUMENTS)
@pytest.mark.parametrize("name", FOREIGN_FLAGS)
def test_flag_of_another_program_is_translated(name: str, subcommand: str) -> None:
    own_flags = known_flags(ARGUMENT_CLASSES[subcommand])
    if f"--{name}" in own_flags:
        pytest.skip("the subcommand has this flag")
    for flag_text in (f"--{name}", f"--{name.replace('-', '_')}", f"-{name.replace('-', '_')}"):
        message = unknown_flag_message(subcommand, flag_text, "3")
        assert message.startswith((f"{flag_text} is ", f"{flag_text}: ")), message
        translation = message.removeprefix(f"{flag_text} is ").removesuffix(" here")
        if message.endswith(" here"):
            assert translation in FOREIGN_FLAGS[name] and translation.split()[0] in own_flags
        elif message.startswith(f"{flag_text} is "):
            flag, _, subcommands = translation.partition(" of pellucid ")
            assert flag in FOREIGN_FLAGS[name] and flag.split()[0] not in own_flags
            for other_subcommand in subcommands.split(", "):
                assert flag.split()[0] in known_flags(ARGUMENT_CLASSES[other_subcommand])
        else:
            assert message.removeprefix(f"{flag_text}: ") in FOREIGN_FLAGS[name]


COMMON_FLAGS = {
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


@pytest.mark.parametrize("name", COMMON_FLAGS)
def test_common_flags_of_other_programs_in_train(name: str) -> None:
    assert unknown_flag_message("train", f"--{name}=3") == f"--{name} is {COMMON_FLAGS[name]} here"
    result = run_pellucid("train", *REQUIRED_ARGUMENTS["train"], f"--{name}", 3)
    assert (
        usage_error_message(result) == f"--{name} is {COMMON_FLAGS[name]} here (pellucid train --help)"
        and result.out == ""
    )


def test_flags_of_other_subcommands_are_named() -> None:
    assert unknown_flag_message("predict", "--lr", "1") == "--lr is --learning-rate of pellucid train, tune"
    assert unknown_flag_message("train", "--n_best", "3") == "--n_best is --nbest of pellucid predict, evaluate"
    expected = "there is no flag --dropout; it is a flag of pellucid train, tune"
    assert unknown_flag_message("predict", "--dropout", "0.1") == expected
    assert unknown_flag_message("train", "--fp16").startswith(
        "--fp16: there is no float16; pellucid train --precision bf16"
    )


def test_flags_with_underscores_or_one_hyphen() -> None:
    arguments = ["--batch_size", "32", "--learning_rate", "0.1", "--label_smoothing=0.2", "--max_length", "9"]
    expanded = ["--training.batch-size", "32", "--training.learning-rate", "0.1", "--training.label-smoothing=0.2"]
    expanded += ["--search.max-length", "9"]
    assert expand_arguments(ARGUMENT_CLASSES["train"], arguments) == expanded
    assert unknown_flag_message("train", "-batch_size", "32") == "-batch_size is --batch-size here"
    assert unknown_flag_message("predict", "-beam_size", "5") == "-beam_size is --beam-size here"


@pytest.mark.parametrize(
    ("subcommand", "flag", "suggested"),
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
def test_similar_flags_are_suggested(subcommand: str, flag: str, suggested: str) -> None:
    assert unknown_flag_message(subcommand, flag) == f"there is no flag {flag}; did you mean {suggested}?"


@pytest.mark.parametrize("flag", ["--rum", "--bask", "--max", "--size-of-it", "--max-jobs", "--seeds-file"])
def test_flags_of_another_meaning_are_not_suggested(flag: str) -> None:
    assert "did you mean" not in unknown_flag_message("train", flag)


def test_lr_is_learning_rate_and_valid_has_no_suggestion() -> None:
    message = usage_error_message(run_pellucid("train", "a", "--lr", "1"))
    assert message == "--lr is --learning-rate here (pellucid train --help)"
    assert "did you mean" not in usage_error_message(run_pellucid("predict", "run", "--valid", "b"))


def test_one_edit_is_detected() -> None:
    one_edit_pairs = [("vaild", "valid"), ("jsn", "json"), ("valids", "valid"), ("valyd", "valid"), ("vald", "valid")]
    other_pairs = [
        ("valid", "valid"),
        ("mask", "task"),
        ("rum", "run"),
        ("vlaidd", "valid"),
        ("lr", "run"),
        ("", "json"),
    ]
    assert [is_one_edit(*pair) for pair in one_edit_pairs] == [True] * 5
    assert [is_one_edit(*pair) for pair in other_pairs] == [False] * 6


def test_a_setting_of_an_attention_of_another_package_has_advice() -> None:
    message = unknown_flag_error("--attention.window", ["--attention", "--attention.filter-radius"], {})
    assert message.startswith("there is no flag --attention.window; an attention type of another package cannot add")
    assert "attention.filter_radius" in message
