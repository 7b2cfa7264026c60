"""Assessment of runs on files of pairs, for the subcommand evaluate."""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pellucid.cli.messages import print_message
from pellucid.cli.search_flags import SearchFlags, apply_search_flags, decode_nbest, decode_samples, read_lexicon
from pellucid.cli.sources import lexicon_count_message
from pellucid.config.columns import column_number
from pellucid.config.settings import Config, DataConfig, Device, Format
from pellucid.config.task_settings import check_equal_tasks, get_task_settings
from pellucid.data.examples import (
    STANDARD_INPUT,
    Example,
    ExampleFile,
    describe_used_columns,
    is_header_unknown,
    read_examples,
    read_grouped_examples,
)
from pellucid.data.headers import header_note, with_header
from pellucid.data.readers import BadLine, has_known_suffix
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError, InputError, quote
from pellucid.evaluation.assessment import (
    Assessment,
    DecodedExamples,
    assess_outputs,
    join_assessments,
    merge_references,
)
from pellucid.evaluation.risk_control import MAX_ERRORS, accepted_outputs
from pellucid.reporting.tables import short_names

if TYPE_CHECKING:
    from pellucid.decoding.constraints import Lexicon
    from pellucid.decoding.predictor import Predictor
    from pellucid.decoding.sampling import SamplingConfig

PLACEHOLDER = "{}"
"""Placeholder for the name of a group in the path of a file or run."""


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
    """Column of the groups, a name or a number from 1; empty for none."""
    texts: bool
    """Whether metrics of running text are computed."""
    input_format: Format
    """Format of the file; "auto" uses the file name, else the format of the training file."""
    search: SearchFlags
    sampling: "SamplingConfig | None"
    """Settings of sampling; None for a search."""
    device: Device
    """Device for decoding."""


class AssessmentInputs(NamedTuple):
    """Run folders and files of one group; the group is empty without the placeholder."""

    group: str
    runs: tuple[Path, ...]
    file: Path
    target: Path | None


class AssessmentResults(NamedTuple):
    """Assessment of each run, with counts of the input and decoding times."""

    runs: list[Assessment]
    counts: list[dict[str, int]]
    """For each run: lines, bad lines, blank lines, unknown source symbols, outputs truncated at the maximum length, and
    outputs that were ranked with the pair n-gram model."""
    seconds: list[float]
    """Wall-clock time of decoding of each run."""
    bad_lines: list[BadLine]
    """Lines that were skipped."""
    names: Sequence[str] = ()
    """Full names of the runs; the assessments have abbreviated ones."""
    configs: Sequence[Config] = ()
    """Configuration of each run."""

    def seed_groups(self) -> list[list[Assessment]]:
        """Return the groups of runs whose settings are equal except for seed and threads, by their first runs."""
        groups: list[list[tuple[Config, Assessment]]] = []
        for run, config in zip(self.runs, self.configs, strict=True):
            matching = (group for group in groups if all(_differs_in_seed(config, other) for other, _ in group))
            group = next(matching, None)
            if group is None:
                groups.append(group := [])
            group.append((config, run))
        return [[run for _, run in group] for group in groups]


def _differs_in_seed(one: Config, other: Config) -> bool:
    """Return whether the seeds of two configurations differ, and all settings but seed and threads are equal."""
    return one.seed != other.seed and msgspec.structs.replace(one, seed=other.seed, threads=other.threads) == other


def assess_runs(runs: Sequence[Path], file: Path, options: AssessmentOptions) -> AssessmentResults:
    """Decode and score pairs with every run.

    Args:
        runs: Run folders. If `file` contains the placeholder {}, it is replaced in these paths, too.
        file: File of pairs, or "-" for standard input. Each file that matches the placeholder is a group; files without
            a run of their name are skipped with a message.
        options: Options for reading and decoding.

    Returns:
        One assessment per run, over all groups.

    Raises:
        InputError: A run or a file cannot be read, the runs have different tasks, the task does not support an option,
            or only a run has the placeholder.
    """
    with _stored_input(file) as stored:
        groups, lexicons = list(_inputs_by_group(runs, stored, options.target)), LexiconCache()
        results = [_assess_group(inputs, options, lexicons) for inputs in groups]
    names = _run_names(runs)
    joined_assessments = [join_assessments([result.runs[index] for result in results]) for index in range(len(runs))]
    counts = [_sum_counts([result.counts[index] for result in results]) for index in range(len(runs))]
    seconds = [sum(result.seconds[index] for result in results) for index in range(len(runs))]
    assessments = [
        replace(assessment, name=name) for assessment, name in zip(joined_assessments, short_names(names), strict=True)
    ]
    bad_lines = [line for result in results for line in result.bad_lines]
    return AssessmentResults(assessments, counts, seconds, bad_lines, names, results[0].configs)


@contextmanager
def _stored_input(file: Path) -> Iterator[Path]:
    """Yield the file itself; for -, a temporary file with the content of standard input."""
    if str(file) != "-":
        yield file
        return
    if sys.stdin is None:
        raise DataError("standard input is closed: give a file of pairs")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STANDARD_INPUT
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
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
    names = _matching_names(str(file))
    if not names:
        raise DataError(f"no file matches {file} ({PLACEHOLDER} is a placeholder for a name)")
    missing = {name: path for name in names for path in runs if not _fill_placeholder(path, name).is_dir()}
    if len(missing) == len(names):
        raise DataError(f"{len(names)} files match {file}, but no run folder matches {runs[0]}")
    if missing:
        skipped = ", ".join(missing)
        print_message(f"note: no run for {len(missing)} of {len(names)} files, which are skipped: {skipped}")
    for name in names:
        if name not in missing:
            paths = tuple(_fill_placeholder(path, name) for path in runs)
            yield AssessmentInputs(
                name, paths, _fill_placeholder(file, name), _fill_placeholder(target, name) if target else None
            )


def _matching_names(pattern: str) -> list[str]:
    """Return the sorted names for which a file matches the pattern."""
    first, *rest = (re.escape(piece) for piece in pattern.split(PLACEHOLDER))
    matching = re.compile(first + "([^/]+)" + r"\1".join(rest))
    paths = glob("*".join(escape(piece) for piece in pattern.split(PLACEHOLDER)))
    return sorted(match[1] for match in map(matching.fullmatch, paths) if match)


def _fill_placeholder(path: Path, name: str) -> Path:
    """Return a path with a name in place of the placeholder."""
    return Path(str(path).replace(PLACEHOLDER, name))


def _assess_group(inputs: AssessmentInputs, options: AssessmentOptions, lexicons: LexiconCache) -> AssessmentResults:
    """Assess all runs on one group; the settings of the first run determine how the file is read and tokenized."""
    from pellucid.model.device import use_threads
    from pellucid.tasks.registry import get_task

    predictors = [_load_predictor(path, options, lexicons) for path in inputs.runs]
    tasks = (predictor.config.task for predictor in predictors)
    check_equal_tasks(list(zip(map(str, inputs.runs), tasks, strict=True)))
    data = _data_config(predictors[0].config.data, inputs.file, options)
    reading, groups = _read_pairs(inputs, data, options)
    decoded = _group_examples(reading, [" ".join(filter(None, [inputs.group, group])) for group in groups], options)
    configs = [predictor.config for predictor in predictors]
    results = AssessmentResults([], [], [], reading.bad_lines, configs=configs)
    for path, predictor in zip(inputs.runs, predictors, strict=True):
        use_threads(predictor.config.threads)
        start_time = time.perf_counter()
        outputs = _decode(predictor, decoded.examples, options)
        results.seconds.append(time.perf_counter() - start_time)
        lexicon = predictor.options.lexicon
        if lexicon is not None:
            num_found = sum(traces[0].origin == "lexicon" for traces in outputs)
            print_message(f"{path}: {lexicon_count_message(num_found, lexicon, options.search.lexicon)}")
        run_decoded = decoded._replace(outputs=outputs)
        reference_tokenizers, metrics = predictors[0].tokenizers, get_task(predictor.config.task).metrics
        assessment = assess_outputs(
            path.name, run_decoded, predictor.tokenizers, reference_tokenizers, metrics, options.texts
        )
        results.runs.append(_with_acceptance(assessment, predictor, options))
        results.counts.append(_counts(reading, run_decoded))
        if predictor.pair_ngram_weight and options.sampling is None:
            print_message(
                f"{path}: outputs are ranked by the network and by the pair n-gram model, whose weight is "
                f"{predictor.pair_ngram_weight:g}; --no-pair-ngram ranks by the network alone"
            )
    return results


def _with_acceptance(assessment: Assessment, predictor: "Predictor", options: AssessmentOptions) -> Assessment:
    """Return an assessment with the outputs that are accepted by confidence, or with the reason for none."""
    obstacle = (
        "samples have no confidence"
        if options.sampling is not None
        else predictor.confidence_obstacle(options.search.nbest or 1)
    )
    if obstacle or predictor.confidence is None or not assessment.confident:
        return replace(assessment, confidence_obstacle=obstacle)
    right = [assessment.scored[index].exact for index in assessment.confident]
    accepted = [
        accepted_outputs(predictor.confidence, assessment.confidences, right, max_error) for max_error in MAX_ERRORS
    ]
    return replace(assessment, accepted=tuple(accepted))


def _load_predictor(path: Path, options: AssessmentOptions, lexicons: LexiconCache) -> "Predictor":
    """Load a run or an ensemble with the search options."""
    from pellucid.decoding.options import DecodingOptions
    from pellucid.run_folder.predictor_loader import load

    predictor = apply_search_flags(load(path, options.device), options.search)
    key = predictor.config.data, predictor.vocabularies.columns
    if key not in lexicons:
        lexicons[key] = read_lexicon(predictor, options.search)
    _check_options(predictor, options)
    return predictor.with_options(DecodingOptions(lexicon=lexicons[key]))


def _check_options(predictor: "Predictor", options: AssessmentOptions) -> None:
    """Raise `InputError` for options that the task of a model does not support."""
    task = predictor.config.task
    if options.texts and not predictor.autoregressive:
        raise InputError(f"--texts scores generated text, but the task of the model is {quote(task)}")
    if options.multi_reference and get_task_settings(task).per_position:
        several = "tasks with several correct outputs"
        raise InputError(f"--multi-reference applies to {several}, but the task is {quote(task)}")


def _decode(predictor: "Predictor", examples: Sequence[Example], options: AssessmentOptions) -> list[list[Trace]]:
    """Return the outputs of each example: the best, the n best, or samples."""
    if options.sampling is not None:
        return decode_samples(predictor, examples, options.sampling)
    if options.search.nbest is None:
        return [[trace] for trace in predictor.predict_examples(examples)]
    return decode_nbest(predictor, examples, options.search.nbest)


def _data_config(trained: DataConfig, file: Path, options: AssessmentOptions) -> DataConfig:
    """Return the data configuration of the file: format by option, else by file name, else as in training."""
    format = options.input_format
    if format == "auto" and not has_known_suffix(file):
        format = trained.input_format
    file_config = with_header(trained, options.search.header)
    return msgspec.structs.replace(file_config, on_bad_line=options.search.on_bad_line, input_format=format)


def _read_pairs(
    inputs: AssessmentInputs, data: DataConfig, options: AssessmentOptions
) -> tuple[ExampleFile, list[str]]:
    """Read the pairs of one group of files, with the group of each."""
    if not options.group:
        reading = read_examples(inputs.file, data, inputs.target)
        note = header_note(reading.examples) if is_header_unknown(inputs.file, data, inputs.target) else ""
        display_name = STANDARD_INPUT if inputs.file.name == STANDARD_INPUT else inputs.file
        if note:
            print_message(f"note: {display_name}: {note}")
        if inputs.target is None and (ignored := describe_used_columns(inputs.file, data)):
            print_message(f"note: {display_name}: {ignored}")
        return reading, [""] * len(reading.examples)
    if inputs.target is not None:
        raise InputError("--group requires columns in FILE; with --target, FILE has none")
    try:
        return read_grouped_examples(inputs.file, data, options.group)
    except InputError as error:
        if f"expected {column_number(options.group)} columns" in str(error):
            raise DataError(f"--group {options.group}: no such column ({str(error).splitlines()[0]})") from error
        raise type(error)(*(line.replace("data.group_column", "--group") for line in error.args)) from error


def _group_examples(reading: ExampleFile, names: Sequence[str], options: AssessmentOptions) -> DecodedExamples:
    """Return the examples of one group of files with their references, sorted by group, without outputs."""
    groups: dict[str, list[Example]] = {}
    for example, group in zip(reading.examples, names, strict=True):
        groups.setdefault(group, []).append(example)
    if not options.multi_reference:
        _note_several_targets(reading.examples)
    grouped = DecodedExamples([], [], [], [])
    for group, examples in groups.items():
        merged = (
            merge_references(examples)
            if options.multi_reference
            else [(example, (example.target,)) for example in examples]
        )
        grouped.examples.extend(example for example, _ in merged)
        grouped.references.extend(references for _, references in merged)
        grouped.groups.extend([group] * len(merged))
    return grouped


def _note_several_targets(examples: Sequence[Example]) -> None:
    """Report sources that occur with several targets; each pair is an example of its own."""
    distinct = {(example.source, example.features, example.target) for example in examples}
    several = len(distinct) - len({(source, features) for source, features, _ in distinct})
    if several:
        print_message(
            f"note: {several:,} further targets repeat the source of an earlier pair; each pair is scored against its "
            "own target (--multi-reference accepts any of them)"
        )


def _counts(reading: ExampleFile, decoded: DecodedExamples) -> dict[str, int]:
    """Return counts of the input and of the outputs of a run."""
    best = [outputs[0] for outputs in decoded.outputs]
    return {
        "lines": len(reading.examples),
        "bad_lines": len(reading.bad_lines),
        "blank_lines": reading.num_blank_lines,
        "unknown_symbols": sum(len(trace.unknown) for trace in best),
        "cut_outputs": sum(not trace.finished for trace in best),
        "ranked_with_pair_ngram": sum(trace.pair_ngram_score is not None for trace in best),
    }


def _sum_counts(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    """Return the sums of the counts of several parts."""
    return {name: sum(part_counts[name] for part_counts in counts) for name in counts[0]}


def _run_names(runs: Sequence[Path]) -> list[str]:
    """Return a short name for each run: folder name without the placeholder, or the path if names are not unique."""
    names = [path.name.replace(PLACEHOLDER, "").strip("-_. ") or str(path) for path in runs]
    return names if len(set(names)) == len(names) else [str(path) for path in runs]
