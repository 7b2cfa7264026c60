"""Assessment of runs on files of pairs, for the subcommand evaluate."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.cli.evaluation_blocks import EvaluationCluster, decode_examples
from pellucid.cli.input_flags import PairFileFlags, file_data_config
from pellucid.cli.messages import print_message
from pellucid.cli.search_flags import SearchFlags, apply_search_flags, needs_pair_ngram, read_lexicon
from pellucid.cli.sources import (
    PLACEHOLDER,
    fill_placeholder,
    lexicon_count_message,
    matching_names,
    open_standard_input,
)
from pellucid.config.settings import DataConfig, Device, Format
from pellucid.config.task_settings import check_equal_tasks
from pellucid.data.examples import STANDARD_INPUT, Example, describe_pair_files, iterate_row_ids
from pellucid.decoding.streaming import map_chunks
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError, InputError
from pellucid.evaluation.evaluation_pairs import EvaluationPairs, RowIds
from pellucid.evaluation.output_counts import AssessedOutput
from pellucid.record_file import RecordFile
from pellucid.reporting.tables import short_names
from pellucid.run_evaluation import (
    GroupColumn,
    RunEvaluation,
    add_provenance,
    check_evaluation,
    choose_custom_metrics,
    describe_evaluated_file,
    evaluate_predictors,
    evaluation_data_config,
    join_evaluations,
    read_evaluation_blocks,
    with_custom_metrics,
)
from pellucid.run_folder.log import read_training_checksums
from pellucid.run_folder.unfinished_training import find_unfinished, read_final_updates

if TYPE_CHECKING:
    from pellucid.decoding.lexicon import Lexicon
    from pellucid.decoding.predictor import Predictor
    from pellucid.decoding.sampling_config import SamplingConfig


class LexiconCache(dict[tuple["DataConfig", int], "Lexicon | None"]):
    """Lexicons by data settings and number of columns of the training file.

    The file is read once for all runs that share them.
    """


class AssessmentOptions(NamedTuple):
    """Options of evaluate for reading and decoding pairs."""

    target: Path | None
    """File of targets; None if the file of pairs holds them."""
    multi_reference: bool
    """Whether pairs with the same source and features are merged."""
    group: str
    """Column of the groups, a name or a number from 1; empty if there is none."""
    texts: bool
    """Whether metrics of running text are computed."""
    input_format: Format
    """Format of the file; "auto" uses the file name, else the format of the training file."""
    reading: PairFileFlags
    """Columns, header and treatment of bad lines."""
    search: SearchFlags
    sampling: "SamplingConfig | None"
    """Settings of sampling; None for a search."""
    device: Device
    """Device for decoding."""
    num_listed: int
    """Maximum length of lists of outputs; all others are dropped after they are scored."""
    metrics: tuple[str, ...] = ()
    """Names of further metrics, of other packages, which need all outputs."""
    errors: "Sequence[RecordFile[dict[str, Any]]]" = ()
    """Files of the wrong outputs of each run, as plain values, which are filled; empty if they are not needed."""
    cluster: EvaluationCluster | None = None
    """Cluster that decodes; None for this process."""


class AssessmentInputs(NamedTuple):
    """Run folders and files of one group; the group is empty without the placeholder."""

    group: str
    runs: tuple[Path, ...]
    file: Path
    target: Path | None


def assess_runs(runs: Sequence[Path], file: Path, options: AssessmentOptions) -> list[RunEvaluation]:
    """Decode and score pairs with every run.

    Args:
        runs: Run folders. If `file` contains the placeholder {}, it is replaced in these paths, too.
        file: File of pairs, or "-" for standard input. Each file that matches the placeholder is a group; files without
            a run of their name are skipped with a message.
        options: Options for reading and decoding.

    Returns:
        One evaluation per run, over all groups.

    Raises:
        InputError: A run or a file cannot be read, the runs have different tasks, the task does not support an option,
            or only a run has the placeholder.
    """
    with _stored_input(file) as stored:
        groups, lexicons = list(_inputs_by_group(runs, stored, options.target)), LexiconCache()
        results = [_assess_group(inputs, options, lexicons) for inputs in groups]
    names = _run_names(runs)
    abbreviated = short_names(names)
    return [
        join_evaluations([result[index] for result in results], name, short_name, str(path))
        for index, (name, short_name, path) in enumerate(zip(names, abbreviated, runs, strict=True))
    ]


@contextmanager
def _stored_input(file: Path) -> Iterator[Path]:
    """Yield the file itself; for -, a temporary file with the content of standard input."""
    if str(file) != "-":
        yield file
        return
    content = open_standard_input("pairs")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STANDARD_INPUT
        with path.open("wb") as copy:
            shutil.copyfileobj(content, copy)
        try:
            yield path
        except InputError as error:
            raise type(error)(str(error).replace(f"{folder}{os.sep}", "")) from error


def _inputs_by_group(runs: Sequence[Path], file: Path, target: Path | None) -> Iterator[AssessmentInputs]:
    """Yield the inputs of one group, or of a group for each name that fills the placeholder in all paths."""
    if PLACEHOLDER not in str(file):
        path_with_placeholder = next(
            (path for path in [*runs, *filter(None, [target])] if PLACEHOLDER in str(path)), None
        )
        if path_with_placeholder is not None:
            raise InputError(f"{path_with_placeholder} contains the placeholder {PLACEHOLDER}, but {file} does not")
        yield AssessmentInputs("", tuple(runs), file, target)
        return
    names = matching_names(file)
    if not names:
        raise DataError(f"no file matches {file} ({PLACEHOLDER} is a placeholder for a name)")
    missing = {name: path for name in names for path in runs if not fill_placeholder(path, name).is_dir()}
    if len(missing) == len(names):
        raise DataError(f"{len(names)} files match {file}, but no run folder matches {missing[names[0]]}")
    if missing:
        skipped = ", ".join(missing)
        print_message(f"note: no run for {len(missing)} of {len(names)} files, which are skipped: {skipped}")
    for name in names:
        if name not in missing:
            paths = tuple(fill_placeholder(path, name) for path in runs)
            yield AssessmentInputs(
                name, paths, fill_placeholder(file, name), fill_placeholder(target, name) if target else None
            )


def _assess_group(inputs: AssessmentInputs, options: AssessmentOptions, lexicons: LexiconCache) -> list[RunEvaluation]:
    """Assess all runs on one group; the settings of the first run determine how the file is read and tokenized."""
    predictors = [(str(path), _load_predictor(path, options, lexicons)) for path in inputs.runs]
    unfinished = [tuple(find_unfinished(path)) for path in inputs.runs]
    check_equal_tasks([(name, predictor.config.task) for name, predictor in predictors])
    data = file_data_config(predictors[0][1].config.data, options.reading, inputs.file, options.input_format)
    data = evaluation_data_config(data, inputs.file, options.input_format)
    pairs = _read_pairs(inputs, data, options)
    metrics = choose_custom_metrics([predictor.config for _, predictor in predictors], options.metrics, print_message)

    def report_run(name: str, predictor: "Predictor", num_from_lexicon: int) -> None:
        _report_outputs(name, predictor, num_from_lexicon, options)

    def store_errors(run: int, outputs: Sequence[AssessedOutput]) -> None:
        if options.errors:
            options.errors[run].extend(output.record() for output in outputs if not output.scored.exact)

    nbest = 0 if options.sampling is not None else options.search.nbest or 1
    evaluations = evaluate_predictors(
        predictors,
        pairs,
        partial(_decode, options=options),
        options.texts,
        nbest,
        num_listed=None if metrics else options.num_listed,
        report_run=report_run,
        store_outputs=store_errors,
    )
    evaluations = with_custom_metrics(evaluations, metrics)
    name = "-" if inputs.file.name == STANDARD_INPUT else str(inputs.file)
    file = describe_evaluated_file(inputs.file, inputs.target, pairs.num_rows, name)
    search = options.search
    recorded = add_provenance(
        evaluations, (file,), search.nbest, options.sampling, options.multi_reference, search.lexicon
    )
    return [
        evaluation._replace(
            unfinished=unfinished_trainings,
            final_updates=read_final_updates(path),
            training_checksums=read_training_checksums(path),
        )
        for evaluation, unfinished_trainings, path in zip(recorded, unfinished, inputs.runs, strict=True)
    ]


def _report_outputs(name: str, predictor: "Predictor", num_from_lexicon: int, options: AssessmentOptions) -> None:
    """Print how many outputs the lexicon gave, and which models ranked them."""
    from pellucid.decoding.base_transducer import BaseTransducer  # NumPy takes a moment to import

    lexicon = predictor.options.lexicon
    if lexicon is not None:
        print_message(f"{name}: {lexicon_count_message(num_from_lexicon, lexicon, options.search.lexicon)}")
    pair_ngram = predictor.pair_ngram if isinstance(predictor, BaseTransducer) else None
    alone = pair_ngram is not None and pair_ngram.predicts_alone  # another message says so
    if predictor.pair_ngram_weight and options.sampling is None and not alone:
        weight = predictor.pair_ngram_weight
        models = f"the network and by the pair n-gram model, whose weight is {weight:g}"
        if weight == 1:
            models = "the pair n-gram model alone, whose weight is 1; the network only proposes candidates"
        print_message(f"{name}: outputs are ranked by {models}; --no-pair-ngram ranks by the network alone")


def option_flag(name: str) -> str:
    """Return the flag of an option: "--multi-reference" for "multi_reference".

    Args:
        name: Name of the option in Python.
    """
    return f"--{name.replace('_', '-')}"


def _load_predictor(path: Path, options: AssessmentOptions, lexicons: LexiconCache) -> "Predictor":
    """Load a run or an ensemble with the search options."""
    from pellucid.decoding.options import DecodingOptions
    from pellucid.run_folder.predictor_loader import load

    device: Device = options.device if options.cluster is None else "cpu"  # this process decodes nothing then
    predictor = apply_search_flags(load(path, device, needs_pair_ngram(options.search)), options.search)
    key = predictor.config.data, predictor.vocabularies.columns
    if key not in lexicons:
        lexicons[key] = read_lexicon(predictor, options.search)
    check_evaluation(predictor, options.texts, options.multi_reference, option_flag)
    return predictor.with_options(DecodingOptions(lexicon=lexicons[key]))


def _decode(predictor: "Predictor", pairs: EvaluationPairs, options: AssessmentOptions) -> Iterator[list[list[Trace]]]:
    """Yield the outputs of each example of each chunk: the best, the n best, or samples."""
    search, sampling = options.search, options.sampling
    if options.cluster is not None:
        return options.cluster.decode(predictor, pairs, search, sampling)

    def decode_chunk(chunk: Sequence[Example], first: int) -> list[list[Trace]]:
        return decode_examples(predictor, chunk, first, search.nbest, sampling)

    return map_chunks(decode_chunk, pairs.example_chunks())


def _read_pairs(inputs: AssessmentInputs, data: DataConfig, options: AssessmentOptions) -> EvaluationPairs:
    """Read the pairs of one group of files, with the group and the id of each."""
    if options.group and inputs.target is not None:
        raise InputError("--group requires columns in FILE; with --target, FILE has none")
    name = STANDARD_INPUT if inputs.file.name == STANDARD_INPUT else str(inputs.file)
    pairs, ids = EvaluationPairs(options.multi_reference, describe_pair_files(inputs.file, inputs.target)), None
    try:
        group_column = GroupColumn(options.group, "--group") if options.group else None
        for block, groups in read_evaluation_blocks(
            inputs.file, inputs.target, data, group_column, print_message, name
        ):
            if not len(pairs) and inputs.target is None and (rows := iterate_row_ids(inputs.file, data)):
                ids = RowIds(rows)
            pairs.add(block, [" ".join(filter(None, [inputs.group, group])) for group in groups], ids)
    except DataError as error:
        if error.missing_columns != ("group",):
            raise
        raise DataError(f"--group {options.group}: no such column ({str(error).splitlines()[0]})") from error
    pairs.arrange(print_message, option_flag)
    return pairs


def _run_names(runs: Sequence[Path]) -> list[str]:
    """Return a short name for each run: folder name without the placeholder, or the path if names are not unique."""
    names = [path.name.replace(PLACEHOLDER, "").strip("-_. ") or str(path) for path in runs]
    return names if len(set(names)) == len(names) else [str(path) for path in runs]
