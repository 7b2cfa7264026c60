"""Short names of flags, the same in every subcommand, and flags of settings without their section."""

SHORT_FLAGS = {
    "a": "--attention",
    "b": "--batch-size",
    "c": "--config",
    "d": "--device",
    "e": "--epochs",
    "f": "--output-format",
    "g": "--group",
    "i": "--input-format",
    "j": "--jobs",
    "k": "--beam-size",
    "l": "--learning-rate",
    "m": "--metric",
    "n": "--nbest",
    "p": "--patience",
    "r": "--run",
    "s": "--size",
    "t": "--task",
    "v": "--valid",
}
"""Flag of each letter. A subcommand has the letter if it has the flag."""

_TRAINING = (
    "epochs time_limit batch_size batch_type optimizer learning_rate weight_decay lr_schedule warmup_ratio clip_value "
    "clip_norm label_smoothing sampled_softmax coverage_loss scheduled_sampling sampling_probability rdrop_alpha "
    "weight_averaging ema_decay averaged_checkpoints augmentation augmentation_ratio eval_interval metric patience "
    "perfect_patience pair_ngram callbacks snapshots init_from freeze mix_in mix_in_fraction"
)
_SEARCH = (
    "max_length min_length max_length_ratio max_length_offset min_length_ratio min_length_offset beam_size "
    "length_normalization length_penalty_alpha coverage_penalty"
)
_BOTH = (
    "cell hidden_size num_layers dropout dropout_mask embedding_size embedding_dropout recurrent_dropout "
    "recurrent_dropout_on layer_normalization residual"
)
_ENCODER = "bidirectional convolutions characters character_size word_dropout"
_DECODER = "input_feeding tie_embeddings pointer_generator num_hops init_hidden"


def _flag(name: str) -> str:
    """Return the flag of a setting: --max-length for "max_length"."""
    return f"--{name.replace('_', '-')}"


SETTING_FLAGS: dict[str, tuple[str, ...]] = {
    **{_flag(name): (_flag(f"training.{name}"),) for name in _TRAINING.split()},
    **{_flag(name): (_flag(f"search.{name}"),) for name in _SEARCH.split()},
    **{_flag(name): (_flag(f"encoder.{name}"), _flag(f"decoder.{name}")) for name in _BOTH.split()},
    **{_flag(name): (_flag(f"encoder.{name}"),) for name in _ENCODER.split()},
    **{_flag(name): (_flag(f"decoder.{name}"),) for name in _DECODER.split()},
    "--time": ("--training.time-limit",),
    "--attention": ("--attention.type",),
    "--attention-size": ("--attention.size",),
    "--num-heads": ("--attention.num-heads",),
}
"""Flags of settings without their section, and the flags with it that they stand for: one, or those of encoder and
decoder. Names that say little without the section, such as type and output, have no such flag."""


def short_name(flag: str) -> str:
    """Return the letter of a flag with its hyphen, such as "-e"; "" if it has none.

    Args:
        flag: The flag, such as "--epochs".
    """
    return next((f"-{letter}" for letter, name in SHORT_FLAGS.items() if name == flag), "")


def other_names(flag: str) -> list[str]:
    """Return the other names of a flag in help: its letter, and its name without the section.

    Args:
        flag: The flag with its section, such as "--training.epochs".
    """
    shorter = [name for name, targets in SETTING_FLAGS.items() if flag in targets]
    return [*filter(None, map(short_name, [flag, *shorter])), *shorter]
