"""The model card: a Markdown description of the model of a run."""

import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from pellucid.config.attention_types import is_custom_attention
from pellucid.config.settings import PATH_SETTINGS, Config, has_characters
from pellucid.config.toml import changed_settings
from pellucid.config.training_types import BUILT_IN_OPTIMIZERS, METRIC_TYPES, format_metric, is_custom_metric
from pellucid.data.validation_split import describe_overlap
from pellucid.decoding.hypothesis_scorer import allows_pair_ngram_ranking
from pellucid.errors import count_noun, quote
from pellucid.files import MAX_SETTINGS_SIZE, read_bytes
from pellucid.model.network import parameter_count
from pellucid.run_folder.advice import REMOVE_CARD, add_advice
from pellucid.run_folder.identity import PACKAGE, required_packages
from pellucid.run_folder.log import RunLog
from pellucid.run_folder.run_files import PAIR_NGRAM
from pellucid.tasks.registry import get_task
from pellucid.tasks.task import Task
from pellucid.training.fine_tuning import initial_run_sentence
from pellucid.training.optimizer import BETA_1, BETA_2, EPSILON
from pellucid.training.schedule import stop_reason
from pellucid.training.training_length import describe_updates, has_equal_epochs
from pellucid.training.training_state import TrainingState
from pellucid.version import __version__

LICENSE = "Apache-2.0"
"""SPDX identifier of the license of Pellucid."""
LICENSE_NAME = "Apache License 2.0"
MODEL_SECTIONS = ("data.", "encoder.", "attention.", "decoder.", "training.", "search.")
STATED_SETTINGS = frozenset(
    {
        *("data.input_format", "data.delimiter", "data.header", "data.source_symbols", "data.target_symbols"),
        *(f"data.{role}_column" for role in ("source", "target", "features", "class", "group")),
        *("data.on_bad_line", "encoder.dropout", "encoder.embedding_dropout", "encoder.recurrent_dropout"),
        *("decoder.dropout", "decoder.embedding_dropout", "decoder.recurrent_dropout", "encoder.embedding_size"),
        *("decoder.embedding_size", "encoder.word_dropout", "encoder.context_dropout", "attention.type"),
        *("search.beam_size", "search.length_normalization", "search.batch_size"),
        *(
            f"training.{name}"
            for name in (
                *("epochs", "time_limit", "batch_size", "batch_type", "optimizer", "learning_rate", "weight_decay"),
                *("lr_schedule", "warmup_ratio", "clip_norm", "label_smoothing", "rdrop_alpha", "coverage_loss"),
                *("metric", "init_from", "init_from_digest", "callbacks", "snapshots"),
            )
        ),
    }
)
"""Settings that a card states in lines of their own, and those that change no parameter."""


def build_model_card(state: TrainingState, log: RunLog) -> str:
    """Return the model card of a run in Markdown: architecture, data, scores of the best validation, limitations.

    Args:
        state: Training state of the run.
        log: Training log.
    """
    return "\n".join(
        [
            "# A Pellucid model",
            "",
            *_about(state, log),
            "",
            "## Scores on the validation set",
            "",
            *_best_scores(state, log),
            *_pair_ngram_scores(log, state.config),
            "",
            "## Limitations",
            "",
            "The model knows only the symbols in `vocabulary.json` and reads others as unknown. Attention weights show",
            "which source positions it used, not why. The scores hold only for data like the validation set.",
            "",
            "## For a paper",
            "",
            *_paper_facts(state, log),
            "",
            "## Use",
            "",
            "`pellucid predict DIR FILE`, or `pellucid.load(DIR).predict([...])`, where DIR is this folder.",
            *(f"Needs {text}; it computes in PyTorch." for text in required_packages(state.config)),
            "`config.toml` contains every setting; a batch size or a number of epochs of 0 there is derived from the",
            f"data, as above. Written by Pellucid {__version__}.",
            "",
        ]
    )


def is_damaged_card(path: Path, expected: str) -> bool:
    """Return whether a card is damaged: not UTF-8, with a NUL character, a mere beginning of the expected card, or
    another text of exactly its length.

    Any other difference counts as the edit of a person.

    Args:
        path: File of the card.
        expected: Expected card of the run.

    Raises:
        RunError: The file is missing, not regular, unreadable, or larger than `MAX_SETTINGS_SIZE`.
    """
    try:
        with add_advice(REMOVE_CARD):
            card = read_bytes(path, limit=MAX_SETTINGS_SIZE).decode("utf-8")
    except UnicodeDecodeError:
        return True
    return "\0" in card or (card != expected and (len(card) == len(expected) or expected.startswith(card)))


def _about(state: TrainingState, log: RunLog) -> list[str]:
    """Return sizes and data."""
    config, vocabularies, progress = state.config, state.predictor.vocabularies, state.progress
    augmented = log.first("augmented")
    synthetic = augmented["made"] if augmented else 0
    note = f", {synthetic:,} of them synthetic" if synthetic else ""
    num_examples, per_epoch = state.num_new_examples, state.examples_per_epoch
    if per_epoch > num_examples:
        note += f" and, in each epoch, on {per_epoch - num_examples:,} of {state.num_mixed_in:,} earlier ones"
    fine_tuned, seconds = initial_run_sentence(config), count_noun(round(progress.seconds), "second")
    return [
        f"{get_task(config.task).describe_architecture(config)}. "
        f"{parameter_count(state.predictor.network):,} parameters.",
        "",
        f"* Trained on {count_noun(num_examples, 'example')}{note}: {count_noun(progress.samples, 'sample')} in "
        f"{count_noun(progress.update, 'update')}, {seconds}, seed {config.seed}.",
        _size_choice(config, log),
        *([f"* {fine_tuned}"] if fine_tuned else []),
        f"* Stopped because {stop_reason(progress, config.training)}."
        if progress.is_finished
        else "* Training was interrupted.",
        f"* Source: {count_noun(len(vocabularies.source.symbols), 'symbol')} ({quote(config.data.source_symbols)}), "
        f"longest {vocabularies.longest_source}.",
        f"* Target: {count_noun(len(vocabularies.target.symbols), 'symbol')} ({quote(config.data.target_symbols)}), "
        f"longest {vocabularies.longest_target}.",
    ]


def _size_choice(config: Config, log: RunLog) -> str:
    """Return the size and its choice: by the number of pairs, or for a time limit with the estimated updates."""
    choice = log.first("size_chosen")
    if choice is None:
        return f"* Size {config.size}."
    if not choice.get("time_limit"):
        return f"* Size {choice['size']}, {choice['reason']}."
    sizes = ("large", "base", "small")
    estimates = [f"{size} {choice[key]:,}" for size in sizes if (key := f"updates_{size}") in choice]
    reason = f"; {choice['reason']}" if choice.get("reason") else ""
    return (
        f"* Size {choice['size']}, chosen for {choice['time_limit']} by the speed of a few updates; estimated updates: "
        f"{', '.join(estimates)}{reason}."
    )


def _paper_facts(state: TrainingState, log: RunLog) -> list[str]:
    """Return what a paper states of a training and what reproduces it, with a BibTeX entry."""
    config, started = state.config, log.all("started")
    first = started[0] if started else {}
    commit = first.get("commit", "")
    units = {"examples": "examples", "tokens": "source and target positions"}[config.training.batch_type]
    is_exact = has_equal_epochs(config.training)
    updates = f" ({describe_updates(first['updates'], is_exact)})" if "updates" in first else ""
    limits = f", or {config.training.time_limit}" if config.training.time_limit else ""
    part = " in the last fifth of the training" if state.progress.in_last_part else ""
    environments = [text for text in dict.fromkeys(map(_environment, started)) if text]
    continued = [f"* Continued with: {text}" for text in environments[1:]]
    return [
        f"* Parameters: {parameter_count(state.predictor.network):,}",
        f"* Batch size: {state.batch_size:,} {units}",
        f"* Epochs: at most {state.max_epochs:.4g}{updates}{limits}; done: "
        f"{count_noun(state.progress.update, 'update')}, the last in epoch {state.progress.epoch + 1:,}; the "
        f"parameters are of update {state.progress.best_update:,}",
        *_methods(config),
        f"* Model selection: best {config.training.metric.replace('_', ' ')} on the validation set{part}; "
        f"{count_noun(state.progress.validations, 'validation')}",
        f"* Seed: {config.seed}",
        f"* Software: {environments[0] if environments else 'not recorded'}",
        *continued,
        *_data_checksums(log),
        f"* License of the software: {LICENSE}",
        "",
        "Another kind of processor or other versions give other last bits, and so other scores, as another seed would.",
        "",
        "```bibtex",
        "@software{pellucid,",
        "  author  = {{The Pellucid maintainers}},",
        "  title   = {Pellucid: recurrent encoder-decoders with attention},",
        f"  version = {{{_trained_version(first)}}},",
        *([f"  year    = {{{first['time'][:4]}}},"] if "time" in first else []),
        f"  note    = {{{LICENSE_NAME}{f', commit {commit}' if commit else ''}}},",
        "}",
        "```",
    ]


def _methods(config: Config) -> list[str]:
    """Return the settings of the optimization that an experimental section states."""
    training, encoder, decoder = config.training, config.encoder, config.decoder
    decay = f", weight decay {training.weight_decay:g}" if training.weight_decay else ""
    optimizer = f"{training.optimizer} of another package{decay}"
    if training.optimizer in BUILT_IN_OPTIMIZERS:
        name = "AdamW" if training.optimizer == "adamw" else "Adam"
        optimizer = f"{name} (β₁ = {BETA_1}, β₂ = {BETA_2}, ε = {EPSILON:g}{decay})"
    clipping = f"gradients clipped to the norm {training.clip_norm:g}" if training.clip_norm else "no clipping by norm"
    search = f"* Search: beam size {config.search.beam_size}, length normalization {config.search.length_normalization}"
    attention = config.attention
    sizes = (
        f"size {attention.size}, filters {attention.filters}, filter_radius {attention.filter_radius}, num_heads "
        f"{attention.num_heads}"
    )
    custom = f"* Attention: {attention.type} of another package, which may read: {sizes}"
    return [
        *([custom] if is_custom_attention(attention) else []),
        f"* Optimizer: {optimizer}, peak learning rate {training.learning_rate:g} after a linear warmup over "
        f"{100 * training.warmup_ratio:g} % of the updates, then {training.lr_schedule}; {clipping}",
        f"* Regularization: {', '.join(_regularization(config))}",
        f"* Precision: {config.precision}",
        f"* Embeddings: {encoder.embedding_size} units in the encoder, {decoder.embedding_size} in the decoder",
        "* Initialization: input weights of cells by Glorot and Bengio (2010), hidden weights orthogonal, embeddings "
        "normal with variance 1 / size, linear layers uniform within ±1/√inputs",
        *([search] if get_task(config.task).settings.autoregressive else []),
        *_other_settings(config),
    ]


def _regularization(config: Config) -> list[str]:
    """Return the kinds of regularization: dropout and label smoothing always, others where they are used."""
    training, encoder, decoder = config.training, config.encoder, config.decoder
    both = "in the encoder and {} in the decoder"
    optional = {
        f"embedding dropout {encoder.embedding_dropout:g} {both.format(f'{decoder.embedding_dropout:g}')}": (
            encoder.embedding_dropout or decoder.embedding_dropout
        ),
        f"recurrent dropout {encoder.recurrent_dropout:g} {both.format(f'{decoder.recurrent_dropout:g}')}": (
            encoder.recurrent_dropout or decoder.recurrent_dropout
        ),
        f"word dropout {encoder.word_dropout:g}": has_characters(config) and encoder.word_dropout,
        f"dropout {encoder.context_dropout:g} of context words": config.data.context_words and encoder.context_dropout,
        f"R-Drop with the weight {training.rdrop_alpha:g}": training.rdrop_alpha,
        f"coverage loss with the weight {training.coverage_loss:g}": training.coverage_loss,
    }
    return [
        f"dropout {encoder.dropout:g} {both.format(f'{decoder.dropout:g}')}",
        f"label smoothing {training.label_smoothing:g}",
        *(text for text, is_used in optional.items() if is_used),
    ]


def _other_settings(config: Config) -> list[str]:
    """Return the settings of network and training that differ from their defaults and have no line of their own."""
    changed = [
        f"`{key} = {_setting_value(key, value)}`"
        for key, value in changed_settings(config).items()
        if key.startswith(MODEL_SECTIONS) and key not in STATED_SETTINGS
    ]
    if not changed:
        return ["* Other settings of network and training: the defaults of the size and the task"]
    return [f"* Other settings of network and training that are not the defaults: {', '.join(changed)}"]


def _setting_value(key: str, value: object) -> str:
    """Return the value of a setting as in TOML; of a path only the name, since a card is made to be shared."""
    section, _, name = key.partition(".")
    is_path = name in PATH_SETTINGS.get(section, ())
    return json.dumps(PurePath(str(value)).name if is_path else value, ensure_ascii=False)


def _environment(started: Mapping[str, Any]) -> str:
    """Return the software, the processor and the threads in the record of a start; "" in one of an earlier version."""
    names = {"python": "Python", "torch": "PyTorch", "numpy": "NumPy", "numba": "Numba", "llvmlite": "llvmlite"}
    versions = [f"{name} {started[key]}" for key, name in names.items() if key in started]
    if not versions:
        return ""
    machine = [str(started[key]) for key in ("gpu", "processor") if started.get(key)]
    threads = started.get("threads", 1)
    commit = [f"commit {started['commit']}"] if started.get("commit") else []
    return ", ".join(
        [started.get("versions", ""), *commit, *versions, *machine, f"{threads} thread{'' if threads == 1 else 's'}"]
    )


def _trained_version(started: Mapping[str, Any]) -> str:
    """Return the version of Pellucid in the record of a start; that which writes the card if it has none."""
    names = [part.rpartition(" ") for part in started.get("versions", "").split(", ")]
    return next((version for name, _, version in names if name == PACKAGE), __version__)


def _data_checksums(log: RunLog) -> list[str]:
    """Return the SHA-256 of each data file, by its name without folders; files that were pipes have none."""
    files = [
        (str(record[path]), record[digest])
        for record in (*log.all("read"), *log.all("mixed_in"))
        for path, digest in (("path", "sha256"), ("target", "target_sha256"))
        if path in record and record.get(digest)
    ]
    return [f"* SHA-256 of `{PurePath(path).name}`: `{digest}`" for path, digest in files]


def _best_scores(state: TrainingState, log: RunLog) -> list[str]:
    """Return the scores of the best validation, whose parameters the model has; never those of another one."""
    progress = state.progress
    if progress.best_validation_score is None:
        return ["No validation was made."]
    best = log.best_validation(progress)
    if best is None:
        return [f"Unknown: `log.jsonl` lacks the best validation, at update {progress.best_update:,}."]
    config = state.config
    num_examples = len(state.validation_examples)
    overlap = describe_overlap(log.num_shared_examples, num_examples, "the training set")
    return [*_scores(best, num_examples, get_task(config.task)), *(["", f"{overlap}."] if overlap else [])]


def _pair_ngram_scores(log: RunLog, config: Config) -> list[str]:
    """Return the scores with the pair n-gram model, if there is one."""
    weighted = log.first("interpolated")
    if weighted is None:
        return []
    alone = weighted.get("pair_ngram_exact_match")
    model = f"The pair n-gram model (`{PAIR_NGRAM}`) has the weight {weighted['weight']:g}"
    is_used = allows_pair_ngram_ranking(config.search)
    model += " in predictions" if is_used else ", which predictions with the search settings of this run do not use"
    if not weighted["sources"]:
        return ["", f"{model}: no source of the validation set has a symbol."]
    own, fitted = "", log.first("pair_ngram")
    if fitted is not None:
        own = f" Its own outputs, without the network, have an exact match of {fitted['exact_match']:.2f} %"
        own += f" on {fitted['sources']:,} different sources." if "sources" in fitted else "."
    return [
        "",
        f"{model}.{own}",
        "",
        f"On {weighted['sources']:,} different sources, of the outputs of both with the configured beam size:",
        "",
        f"* exact match if the network ranks them alone {weighted['network_exact_match']:.2f} %",
        *([f"* exact match if the pair n-gram model ranks them alone {alone:.2f} %"] if alone is not None else []),
        f"* exact match if both rank them {weighted['exact_match']:.2f} %",
    ]


def _scores(best: dict[str, Any], examples: int, task: Task) -> list[str]:
    """Return the best validation, whose outputs greedy search found."""
    scores = [
        f"{metric.name} {best[metric.key]:.2f} %" for metric in task.metrics.validation_metrics if metric.key in best
    ]
    method = ""
    if task.settings.autoregressive:
        scores[0] += f" (sequence error rate {100 - best['exact_match']:.2f} %)"
        method = ", by greedy decoding"
    custom = [
        f"{name} {format_metric(name, value)}"
        for name, value in best.items()
        if is_custom_metric(name) and name in METRIC_TYPES
    ]
    lines = [*scores, *custom, f"cross-entropy {best['loss']:.4f} per {task.labels.symbol}"]
    return [
        f"On {count_noun(examples, 'example')}{method}, at update {best['update']:,}:",
        "",
        *(f"* {line}" for line in lines),
    ]
