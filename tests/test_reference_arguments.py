"""Functions of alignment, data, config, reporting, training and tuning refuse invalid arguments by naming them."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from invalid_calls import find_faults, function_name, list_arguments
from sample_predictions import make_prediction_trace
from sample_traces import make_small_trace
from trained_runs import copy_task_run

from pellucid.alignment import attention_path, pair_aligner
from pellucid.config import durations, settings, toml, validation
from pellucid.data import examples, headers, lines, readers, synthetic, tokenizers, vectors, vocabulary
from pellucid.data.examples import Example
from pellucid.errors import ArgumentError
from pellucid.reporting import display_text, figures, terminal
from pellucid.run_folder import checksums, lock, log, run_files, tensor_file, unfinished_training
from pellucid.training import preparation, session, snapshots
from pellucid.tuning import space

RUN = copy_task_run()
CONFIG = RUN.config
DATA = CONFIG.data
PAIRS = [Example("ab", "b"), Example("c", "c")]
VOCABULARIES = run_files.load_run_vocabularies(RUN.run, CONFIG)
TAG_TRACE = make_prediction_trace("tag", "ab", ["B-x", "O"])
TOKENIZERS = tokenizers.build_tokenizers(DATA)
LOG_RECORDS = log.read_log(RUN.run)
VECTORS = RUN.run.parent / "vectors.txt"
VECTORS.write_text("a 1 2\nb 2 3\n")
CHECKSUMS = RUN.run.parent / "run.sha256"
CHECKSUMS.write_text("0" * 64 + "  config.toml\n")
SPACE_FILE = RUN.run.parent / "space.toml"
SPACE_FILE.write_text("[training]\nlearning_rate = [0.001, 0.1, 'log']\n")

FUNCTIONS: dict[Callable[..., Any], dict[str, Any]] = {
    settings.memory_size: {"encoder": CONFIG.encoder},
    settings.output_layer_input_size: {"inputs": "state", "hidden_size": 1, "memory_size": 2},
    settings.has_source_features: {"config": CONFIG},
    settings.has_characters: {"config": CONFIG},
    pair_aligner.align_symbols: {"pairs": [(["a"], ["b"])]},
    attention_path.monotone_path: {"weights": np.ones((1, 1))},
    toml.read_toml: {"path": RUN.run / "config.toml"},
    toml.read_toml_settings: {"path": RUN.run / "config.toml"},
    toml.load_saved_config: {"path": RUN.run / "config.toml"},
    toml.missing_settings: {"path": RUN.run / "config.toml", "config": CONFIG},
    toml.validate_config: {"config": CONFIG},
    toml.check_training_extensions: {"config": CONFIG},
    toml.convert_settings: {"config": CONFIG},
    toml.check_settings: {"settings": {"seed": 1}},
    toml.override_settings: {"config": CONFIG, "overrides": {"seed": 2}},
    toml.flatten_config: {"config": CONFIG},
    toml.changed_settings: {"config": CONFIG},
    toml.config_differences: {"saved": CONFIG, "current": CONFIG},
    toml.to_toml: {"config": CONFIG},
    validation.check_consistency: {"config": CONFIG},
    validation.unused_settings: {"config": CONFIG},
    validation.reset_unused: {"config": CONFIG},
    examples.read_examples: {"path": RUN.files.train, "config": DATA},
    examples.read_partially_labeled: {"path": RUN.files.train, "config": DATA},
    examples.read_example_blocks: {"path": RUN.files.train, "config": DATA, "size": 10},
    examples.is_header_unknown: {"path": RUN.files.train, "config": DATA},
    examples.has_header: {"config": DATA},
    examples.count_columns: {"path": RUN.files.train, "config": DATA},
    examples.first_cells: {"path": RUN.files.train, "config": DATA},
    examples.file_delimiter: {"path": RUN.files.train, "config": DATA},
    examples.read_lexicon_examples: {"path": RUN.files.train, "config": CONFIG.data, "num_columns": 2},
    examples.count_examples: {"path": RUN.files.train, "config": CONFIG.data, "limit": 10},
    examples.describe_used_columns: {"path": RUN.files.train, "config": DATA},
    examples.read_column_names: {"path": RUN.files.train, "config": DATA},
    examples.read_grouped_examples: {"path": RUN.files.train, "config": DATA, "group": "2"},
    examples.read_grouped_blocks: {"path": RUN.files.train, "config": DATA, "group": "2", "size": 10},
    examples.iterate_row_ids: {"path": RUN.files.train, "config": DATA},
    durations.parse_duration: {"key": "training.time_limit", "text": "10m"},
    examples.read_other_columns: {"path": RUN.files.train, "config": DATA},
    examples.read_row_ids: {"path": RUN.files.train, "config": DATA},
    examples.read_sources: {"path": RUN.files.train, "config": DATA},
    examples.read_first_lines: {"path": RUN.files.train, "config": DATA},
    examples.parse_sources: {"lines": [b"ab\n"], "name": "lines", "config": DATA},
    examples.pair_config: {"config": DATA},
    examples.read_pairs: {"path": RUN.files.train, "config": DATA},
    examples.parse_pairs: {"lines": [b"ab\tb\n"], "name": "lines", "config": DATA},
    headers.with_header: {"config": DATA},
    lines.open_data_file: {"path": RUN.files.train},
    lines.read_lines: {"path": RUN.files.train},
    readers.resolve_format: {"path": RUN.files.train, "config": DATA},
    readers.resolve_input_format: {"path": RUN.files.train, "config": DATA},
    readers.has_known_suffix: {"path": RUN.files.train},
    vectors.read_vectors: {
        "path": VECTORS,
        "vocabulary": VOCABULARIES.source,
        "size": 2,
        "key": "encoder.embedding_size",
    },
    vocabulary.load_vocabularies: {"path": RUN.run / "vocabulary.json", "config": DATA},
    vocabulary.build_vocabulary: {"sequences": [["a", "b"], ["a"]], "min_count": 1},
    vocabulary.learn_tokenizers: {"examples": PAIRS, "config": DATA},
    vocabulary.learn_vocabularies: {"examples": PAIRS, "tokenizers": TOKENIZERS, "min_count": 1},
    vocabulary.extend_vocabulary: {"known": VOCABULARIES.source, "learned": VOCABULARIES.target},
    vocabulary.remove_symbol: {"vocabulary": VOCABULARIES.source, "symbol": "a"},
    tokenizers.train_subwords: {"texts": ["abab", "ab"], "max_subwords": 10},
    tokenizers.build_tokenizers: {"config": DATA},
    synthetic.spell_digits: {"digits": "12"},
    synthetic.spelled_digits: {"count": 2, "minimum": 1, "maximum": 2, "seed": 1},
    synthetic.digit_spans: {"symbols": ["one", "two"], "digits": "12"},
    synthetic.write_pairs: {"path": RUN.run.parent / "written.tsv", "examples": PAIRS},
    synthetic.read_words: {"path": RUN.files.train},
    synthetic.split_words: {"words": ["ab", "b", "c"], "validation": 1, "test": 1, "seed": 1},
    display_text.visible_symbol: {"symbol": "a"},
    display_text.visible_text: {"text": "ab"},
    display_text.visible_pieces: {"pieces": ["a", "b"]},
    display_text.visible_message: {"line": "ab"},
    display_text.ascii_symbol: {"symbol": "é"},
    display_text.grapheme_clusters: {"text": "ab"},
    display_text.wrap_columns: {"text": "ab cd", "width": 3},
    display_text.truncate_columns: {"text": "abcd", "max_width": 3},
    display_text.format_fraction: {"value": 0.5},
    figures.attention_figure: {"trace": make_small_trace()},
    figures.curves_figure: {"log": LOG_RECORDS},
    figures.tag_labels: {"trace": TAG_TRACE},
    figures.tags_figure: {"trace": TAG_TRACE},
    figures.mean_attention: {"traces": [make_small_trace()]},
    figures.mean_attention_figure: {"traces": [make_small_trace()]},
    figures.mean_weights_figure: {"mean": np.eye(2)},
    terminal.attention_caption: {"trace": make_small_trace()},
    terminal.render_trace: {"trace": make_small_trace()},
    terminal.shade_legend: {},
    run_files.member_folders: {"folder": RUN.run},
    run_files.load_run_config: {"folder": RUN.run},
    run_files.load_run_vocabularies: {"folder": RUN.run, "config": CONFIG},
    run_files.has_run: {"folder": RUN.run},
    checksums.folder_checksums: {"folder": RUN.run},
    checksums.read_checksums: {"path": CHECKSUMS},
    unfinished_training.find_unfinished: {"folder": RUN.run},
    unfinished_training.has_unfinished: {"folder": RUN.run},
    unfinished_training.read_final_updates: {"folder": RUN.run},
    lock.in_use: {"folder": RUN.run},
    log.read_log: {"folder": RUN.run},
    log.read_training_checksums: {"folder": RUN.run},
    log.load_run_log: {"folder": RUN.run},
    snapshots.read_snapshots: {"folder": RUN.run},
    snapshots.check_snapshots: {"folder": RUN.run},
    preparation.prepare_data: {"files": RUN.files, "folder": RUN.run.parent / "prepared", "config": CONFIG},
    session.train_run: {"files": RUN.files, "folder": RUN.run, "config": CONFIG},
    tensor_file.open_tensors: {"path": RUN.run / "model.safetensors"},
    space.load_space: {"path": SPACE_FILE, "base": CONFIG},
}


ARGUMENTS = [pair for pair in list_arguments(FUNCTIONS) if pair[1] not in ("lines", "sequences")]
"""Lines and sequences are checked item by item, after the check of types under pytest; see `invalid_arguments.py`."""


@pytest.mark.slow
@pytest.mark.parametrize(("function", "name"), ARGUMENTS, ids=function_name)
def test_an_invalid_argument_is_one_error_that_names_it(
    function: Callable[..., Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # some functions write to the path "x"
    assert find_faults(function, FUNCTIONS[function], name) == []


EXCEPTIONS = {
    "config.toml.size_preset": "converts its argument, which `invalid_arguments.py` calls",
    "config.toml.load_config": "converts its arguments, which `invalid_arguments.py` calls",
    "config.toml.read_settings": "reports wrong overrides as ConfigError; `load_config` converts the other arguments",
    "config.renamed_settings": "reads keys and settings of any form, and reports two names as ConfigError",
    "config.columns": "reads checked settings, and reports wrong ones as ConfigError",
    "config.settings.reads_features": "reads checked settings, also for each source",
    "config.settings.reads_neighbors": "reads checked settings",
    "config.settings.setting_paths": "reads checked settings, or flags",
    "config.presets": "reads settings and counts that are checked elsewhere",
    "data.examples.check_bad_lines": "counts lines that were read",
    "data.examples.describe_pair_files": "names files that were read",
    "data.normalization": "called for every text, which its callers check",
    "data.file_split": "reads checked settings, and numbers that the command line checks",
    "data.validation_split": "divides checked examples, for the reading of training files",
    "data.size_choice": "reads checked settings, and reports wrong ones as ConfigError",
    "data.prepared_data": "reads folders for trainings, and reports wrong settings as ConfigError",
    "config.toml.overlay_settings": "reports wrong settings as ConfigError",
    "alignment.lattice": "computes with encoded pairs",
    "alignment.types.no_alignment_reason": "takes the lengths of pairs that were read",
    "alignment.types.chunks_of_sizes": "takes the sizes that an aligner computes",
    "config.toml.build_config": "reports wrong settings as ConfigError, which test_argument_checks.py calls",
    "config.toml.is_section": "accepts any type",
    "config.toml.setting_choices": "accepts any type",
    "config.cell_types": "reads checked configurations; `pellucid.register_cell` checks its arguments",
    "config.training_types": "reads checked configurations; the functions that register check their arguments",
    "config.toml.unused_extension_notes": "is called by a training, with a checked configuration",
    "config.toml.named_extensions": "reads settings of files and configurations, of any type",
    "config.attention_types": "reads checked configurations; `pellucid.register_attention` checks its arguments",
    "config.toml.convert_value": "reports wrong values as ConfigError",
    "config.toml.extension_registry": "accepts any type",
    "config.extensions": "is called with names that are checked elsewhere",
    "config.extension_errors": "is called with errors that were raised",
    "config.task_settings": "reads checked configurations; `pellucid.register_task` checks its argument",
    "run_folder.log.other_log_error": "writes a message about a path that was read",
    "config.validation.output_length_range": "reads checked settings",
    "config.validation.reject_unused": "`keys` may be any collection, also a set",
    "training.data_file_check": "takes events and digests of trainings",
    "training.worker_group": "connects the processes of a training, which call it with tensors and messages",
    "training.parameter_updates": "computes with batches and messages of a training",
    "training.data_parallel": "is called by the training, with checked configurations",
    "training.local_workers": "starts processes with a checked command line",
    "data.batch_loaders": "prepares batches of encoded examples, for the training loop",
    "data.batches": "makes batches of encoded examples, for the training loop",
    "data.characters": "encodes examples for the training loop and for prediction, which check them",
    "data.context": "makes the contexts of words that were read, for examples.py and the decoding of text",
    "data.corpus": "stores encoded examples of a run folder",
    "data.encoding": "encodes examples for the training loop and for prediction, which check them",
    "data.examples.check_first_line": "examines what read_sources and read_pairs return",
    "data.examples.count_table_examples": "counts pairs of a table that `read_table` has made",
    "data.examples.config_for_rows": "describes a table that `read_table` has made",
    "data.examples.describe_table_columns": "describes a table that `read_table` has made",
    "data.examples.input_file_format": "is called with a path and settings that were read before",
    "data.examples.parse_table_pairs": "reads a table that `read_table` has made",
    "data.examples.parse_table_sources": "reads a table that `read_table` has made",
    "data.examples.read_partially_labeled_table": "reads a table that `read_table` has made",
    "data.examples.read_table_examples": "reads a table that `read_table` has made",
    "data.examples.source_columns": "reads checked settings, and reports wrong ones as ConfigError",
    "data.examples.training_columns": "reads checked settings, and reports wrong ones as ConfigError",
    "data.examples.empty_text_error": "takes the name of a column that the caller chooses",
    "data.examples.features_error": "is called for each example",
    "data.examples.length_error": "is called for each example",
    "data.examples.pair_error": "is called for each example",
    "data.extended_vocabulary": "encodes examples for prediction, which checks them",
    "data.csv_parser": "reads the lines that readers.py and delimiters.py give it",
    "data.delimiters": "examines the first lines of a file for readers.py",
    "data.headers": "examines single cells of a file, except with_header",
    "data.in_memory": "converts objects of any kind, and reports others itself",
    "data.ipa_phones": "examines texts that were read",
    "data.lines": "decodes single lines, except open_data_file and read_lines",
    "data.readers": "parses single records for examples.py, which checks its arguments, except the formats of files",
    "data.synthetic.draw_digits": "samples of the experiments with digits",
    "data.synthetic.make_typos": "samples of the experiments with typos",
    "data.synthetic.numbers_to_text": "samples of the experiments with digits",
    "data.synthetic.reverse_inputs": "samples of the experiments with digits",
    "data.target_vocabularies": "counts the symbols of training examples, for the training loop",
    "data.tokenizers.features_kind": "reads checked settings",
    "data.tokenizers.find_spaced_symbols": "examines texts that were read",
    "data.tokenizers.symbol_kind_warnings": "examines texts that were read",
    "data.vocabulary.code_points": "counts the characters of a column",
    "reporting.display_text.format_probability": "accepts NaN; `invalid_arguments.py` calls it",
    "reporting.figures": "draws parts of figures with Matplotlib's objects, except figures of traces, weights and logs",
    "reporting.progress": "prints the events of a training",
    "reporting.tables": "formats the results of an evaluation, which checks its arguments",
    "reporting.terminal_width": "is called with constants",
    "run_folder.predictor_saver": "converts its arguments, with which test_public_functions.py calls it",
    "run_folder.advice": "takes a text of this package",
    "run_folder.identity": "compares the files of a run when it is loaded or resumed",
    "run_folder.provisional_weight": "compares the files of a run when it is loaded",
    "run_folder.initial_run": "reads the run from which a training begins, whose arguments `pellucid.train` checks",
    "run_folder.initialization": "prepares the run folder of a training",
    "run_folder.lock.lock_run_folder": "is part of a training",
    "run_folder.lock.share_run_folder": "is part of the subcommand tune",
    "run_folder.log.append_log": "is part of a training",
    "run_folder.log.sync_log": "is part of a training",
    "run_folder.log.truncate_log": "is part of resuming a training",
    "run_folder.run_files.read_run_vocabularies": "is called with a folder and settings that were read before",
    "run_folder.run_files.pair_file_config": "is called with a path and settings that were read before",
    "run_folder.run_files.saved_size": "reports nothing: opening the run does",
    "training.session.build_checked_network": "is part of the start of a training",
    "training.session.build_state": "is part of the start of a training",
    "training.training_lock": "takes nothing",
    "training.run_folder_writer": "is part of a training",
    "training.training_records": "is part of a training",
    "training.augmentation": "is part of the start of a training",
    "training.mix_in": "is part of the start of a training",
    "training.data_warnings": "is part of the start of a training",
    "training.corpus_cache": "is part of the start of a training",
    "training.pretrained_embeddings": "is part of the start of a training",
    "training.size_measurement": "is called by `pellucid.train`, which checks the arguments",
    "run_folder.checksums.check_checksums": "compares checksums that were computed before",
    "run_folder.checksums.checksum_of_folder": "takes checksums that were computed before",
    "run_folder.checksums.format_checksums": "takes checksums that were computed before",
    "run_folder.log_records": "is called for each line of a log",
    "run_folder.model_file": "reads and writes the parameters of a run, whose names and shapes it checks",
    "run_folder.network_file": "reads and writes the parameters of a network, whose names and shapes it checks",
    "run_folder.torch_tensors": "reads and writes single files for the other modules",
    "run_folder.confidence_file": "reads and writes a file of a run folder, whose contents it checks",
    "run_folder.run_files.check_task_vocabularies": "checks vocabularies that were read before",
    "run_folder.run_files.read_ensemble_record": "reads a file of a run folder, whose content it checks",
    "run_folder.pair_ngram_file": "reads and writes a file of a run folder, whose contents it checks",
    "run_folder.predictor_loader.load": "converts its arguments, which `invalid_arguments.py` calls",
    "run_folder.predictor_loader.load_without_warnings": "converts its arguments for `load`",
    "run_folder.environment": "describes the machine, with numbers and names of this package",
    "run_folder.predictor_loader.load_members": "loads the members of an ensemble whose training has ended",
    "run_folder.predictor_loader.load_with_log": "is called for a run whose log was read before",
    "run_folder.run_parts": "builds predictors of run folders for `load`, which checks its arguments",
    "run_folder.progress": "reads the header of a checkpoint, which it checks",
    "run_folder.tensor_file": "reads and writes single files for the other modules, except open_tensors",
    "training.callbacks": "is part of a training; `invalid_arguments.py` calls `register_callback`",
    "training.torch_optimizer": "is part of an update; `invalid_arguments.py` calls `register_optimizer`",
    "training.checkpoint": "stores the state of a training",
    "training.ensemble_training": "runs the trainings of `pellucid.train`, which checks its arguments",
    "training.ensemble_fitting": "is part of the training of an ensemble",
    "training.fine_tuning": "is part of the start of a training",
    "training.gradient_clipping": "is part of an update",
    "training.loggers": "is part of a training",
    "training.loop": "is part of the training loop",
    "training.schedule": "is part of the training loop",
    "training.training_length": "is part of the training loop",
    "training.model_card": "is part of a training",
    "training.optimizer": "is part of an update",
    "training.confidence_training": "is part of a training",
    "training.validation_sample": "is part of the end of a training",
    "training.pair_ngram_training": "is part of a training",
    "training.progress_check": "is part of resuming a training",
    "training.sampled_softmax": "is part of an update",
    "training.scheduled_sampling": "is part of an update",
    "training.snapshots": "writes the snapshots of a training, except what reads them",
    "training.training_data": "reads the files of `pellucid.train`, which checks its arguments",
    "tuning.database.parse_database_url": "parses a flag of the subcommand tune",
    "tuning.journal": "reads and cuts the journal of the subcommand tune",
    "tuning.processes.identify_machine": "takes nothing",
    "tuning.results": "formats and writes the results of the subcommand tune",
    "tuning.search": "runs the trials of the subcommand tune",
    "tuning.space": "proposes the values of trials, except load_space",
}
"""Functions, and modules of functions, that do not check their arguments, or are called elsewhere, and why."""


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield each public function of the packages with its module and name: "data.lines.read_lines"."""
    for package in ("alignment", "config", "data", "run_folder", "reporting", "training", "tuning"):
        folder = importlib.import_module(f"pellucid.{package}").__path__
        for module in pkgutil.iter_modules(folder):
            loaded = importlib.import_module(f"pellucid.{package}.{module.name}")
            for name, value in vars(loaded).items():
                if inspect.isfunction(value) and value.__module__ == loaded.__name__ and not name.startswith("_"):
                    yield f"{package}.{module.name}.{name}", value


def test_every_public_function_is_called_with_invalid_arguments_or_is_an_exception() -> None:
    result = dict(public_functions())
    called = {name for name, function in result.items() if function in FUNCTIONS}
    assert len(called) == len(FUNCTIONS)
    excepted = {name for name in result if name in EXCEPTIONS or name.rpartition(".")[0] in EXCEPTIONS}
    assert sorted(result.keys() - called - excepted) == []
    assert sorted(name for name in EXCEPTIONS if name in called) == []
    assert sorted(name for name in EXCEPTIONS if not any(f"{each}.".startswith(f"{name}.") for each in result)) == []


@pytest.mark.parametrize(
    "function", [function for function in FUNCTIONS if "path" in FUNCTIONS[function]], ids=function_name
)
def test_paths_may_be_text(function: Callable[..., Any]) -> None:
    valid_arguments = FUNCTIONS[function]
    if function in (synthetic.read_words, space.load_space):
        return  # they accept no file of this module
    one, other = (function(**{**valid_arguments, "path": kind(valid_arguments["path"])}) for kind in (str, Path))
    if isinstance(one, Iterator):
        assert list(one) == list(other)


def test_settings_of_a_run_are_not_its_data_settings() -> None:
    with pytest.raises(ArgumentError, match=r"^config: expected a DataConfig, got Config\("):
        examples.read_examples(RUN.files.train, CONFIG)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^config: expected a Config, got None$"):
        toml.validate_config(None)  # type: ignore[arg-type]
