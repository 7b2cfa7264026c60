"""Evaluation of predictors on pairs: decoding, metrics, and comparisons of several runs.

`pellucid.evaluate` and `pellucid.compare` return these results, and the subcommand evaluate prints them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from pellucid.argument_checks import CheckedFields
from pellucid.config.settings import BeamSize, Config, DataConfig, Format, MetricName
from pellucid.config.task_settings import check_equal_tasks, get_task_settings, uses_pair_ngram
from pellucid.config.training_types import METRIC_TYPES, is_custom_metric
from pellucid.data.examples import (
    Example,
    ExampleFile,
    describe_used_columns,
    is_header_unknown,
    read_example_blocks,
    read_grouped_blocks,
)
from pellucid.data.headers import MAX_LINES, header_note
from pellucid.data.readers import BadLine, has_known_suffix
from pellucid.decoding.hypothesis_scorer import allows_pair_ngram_ranking
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, ConfigError, count_noun, quote
from pellucid.evaluation.assessment import (
    Assessment,
    AssessmentBuilder,
    ComparedAssessment,
    DecodedExamples,
    GroupComparison,
    SeedRates,
    compare_groups,
    compare_runs,
    join_assessments,
    keep_listed,
    rates_over_seeds,
)
from pellucid.evaluation.custom_metrics import build_metric
from pellucid.evaluation.evaluation_pairs import EvaluationPairs, OptionName, ReportNote
from pellucid.evaluation.output_counts import AssessedOutput
from pellucid.evaluation.risk_control import MAX_ERRORS, accepted_outputs, join_accepted_outputs
from pellucid.files import digest_file
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.reporting.tables import format_p_value, named_differences, score_rows
from pellucid.run_folder.unfinished_training import FinalUpdates, UnfinishedTraining
from pellucid.tasks.registry import get_task
from pellucid.version import __version__

MAX_LISTED_ERRORS = 10
"""Default number of listed errors."""
BLOCK_EXAMPLES = 4096
"""Number of examples of a file that are read together; more than the lines that show whether there is a header."""
Decode = Callable[[Predictor, EvaluationPairs], Iterator[list[list[Trace]]]]
"""Function that yields the outputs of each example, best first, for each of the chunks of the pairs."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(CheckedFields):
    """Options of `pellucid.evaluate` and `pellucid.compare`.

    Raises:
        ArgumentError: A field has the wrong type or is out of range.
    """

    group: str = ""
    """Column with the group of each pair, such as its language: a name, or a number from 1; empty if there is none."""
    multi_reference: bool = False
    """Merge pairs with the same source and features into one example with several correct targets."""
    texts: bool = False
    """Also compute metrics of running text: word error rate, character error rate, BLEU and chrF."""
    nbest: BeamSize | None = None
    """Number of outputs per source, 1 to 1,024, for accuracy at 1, 2, ... outputs; None for the best alone."""
    sampling: SamplingConfig | None = None
    """Settings of sampling, in place of a search; None for a search."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """For a row that cannot be read as a pair: raise an error, or skip it and list it in `bad_lines`."""
    metrics: tuple[str, ...] = ()
    """Names of metrics of other packages to compute, besides that of the run (`training.metric`)."""

    def __post_init__(self) -> None:
        """Check the fields, and that not both an n-best list and samples are requested."""
        super().__post_init__()
        if self.nbest is not None and self.sampling is not None:
            raise ArgumentError("nbest, sampling: expected one of them, got both")


class EvaluatedFile(NamedTuple):
    """A file of pairs, or of sources, that was evaluated, for the record of an evaluation."""

    path: str
    """Path as given, without the placeholder; "-" for standard input."""
    sha256: str | None
    """SHA-256 of its bytes in hexadecimal; None for a pipe, which can be read only once."""
    rows: int
    """Number of rows, without the header: pairs, bad lines and blank lines."""
    target: str | None
    """File of targets; None if `path` holds pairs."""
    target_sha256: str | None
    """SHA-256 of the file of targets; None without one, and for a pipe."""


class EvaluationProvenance(NamedTuple):
    """Inputs of an evaluation: run, files, and the settings of the search or of sampling."""

    run: str
    """Folder or name of the run, as given."""
    files: tuple[EvaluatedFile, ...]
    """Files of pairs, or of sources and targets: several with the placeholder, none for pairs in memory."""
    search: dict[str, Any] | None
    """Settings of the search, with the length of the n-best list; None for sampling, and for tasks without a search."""
    sampling: dict[str, Any] | None
    """Settings of sampling; None for a search."""
    lexicon: str | None
    """File of known pairs; None without one."""
    multi_reference: bool
    """Whether pairs with the same source and features were merged."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the version of Pellucid as plain values."""
        return {"version": __version__, **self._asdict(), "files": [file._asdict() for file in self.files]}


class RunEvaluation(NamedTuple):
    """Evaluation of one run, or of one ensemble."""

    name: str
    """Full name of the run; the assessment may have an abbreviated one."""
    assessment: Assessment
    """Outputs with all their metrics."""
    counts: dict[str, int]
    """Numbers of lines, bad lines, blank lines, unknown source symbols, outputs truncated at the maximum length, and
    outputs that were ranked with the pair n-gram model."""
    seconds: float
    """Wall-clock time of decoding."""
    bad_lines: list[BadLine]
    """Lines or rows that were skipped."""
    config: Config
    """Configuration of the run, with the search settings of the evaluation."""
    parameters: int | None
    """Number of trained parameters of the network; of all members of an ensemble, and of the largest run for the
    placeholder {}. None before its first validation: the pair n-gram model then predicts alone."""
    notes: tuple[str, ...] = ()
    """Remarks about the pairs, such as columns that are not used."""
    provenance: EvaluationProvenance | None = None
    """Inputs of the evaluation, for its record."""
    unfinished: tuple[UnfinishedTraining, ...] = ()
    """Unfinished trainings among the run or the members of the ensemble; unknown for a loaded model."""
    final_updates: FinalUpdates | None = None
    """Number of updates of the training (`read_final_updates`); unknown for a loaded model and for an ensemble."""
    pair_ngram_weight: float | None = None
    """Weight of the pair n-gram model in the ranking of the outputs, 0 if it took no part; None without such a model,
    and if the runs of the placeholder {} have different weights."""
    training_checksums: tuple[str, ...] = ()
    """Checksums of the training files (`read_training_checksums`); empty for a loaded model."""

    def __str__(self) -> str:
        """Return the number of examples and a line for each metric, as the tables of `pellucid evaluate` name them.

        Raises:
            InputError: As on access to the metrics of the assessment.
        """
        rows = score_rows(self.assessment)
        width, values = (max(len(row[place]) for row in rows) for place in (0, 1))
        lines = [f"  {name:<{width}}  {value:>{values}}  {text}".rstrip() for name, value, text in rows]
        return "\n".join([f"{self.name}: {count_noun(len(self.assessment.counts), 'example')}", *lines])

    def __repr__(self) -> str:
        """Return the name, the number of examples and the main rates in percent, in one line."""
        num_examples = len(self.assessment.counts)
        rates = self.assessment.main_rates() if num_examples else {}
        values = "".join(f", {key}={rate:.2f}" for key, rate in rates.items())
        return f"<{type(self).__name__} {self.name!r}, {count_noun(num_examples, 'example')}{values}>"

    def to_dict(self, max_errors: int = MAX_LISTED_ERRORS) -> dict[str, Any]:
        """Return the metrics, counts and worst errors as plain values, as `pellucid evaluate --json` prints them.

        Args:
            max_errors: Maximum number of listed errors; 10 by default.
        """
        worst = [self.assessment.error_record(index) for index in self.assessment.worst_examples(max_errors)]
        provenance = {} if self.provenance is None else {"provenance": self.provenance.to_dict()}
        unfinished = [training.to_dict() for training in self.unfinished]
        numbers = {
            **self.counts,
            "pair_ngram_weight": self.pair_ngram_weight,
            "parameters": self.parameters,
            "seconds": self.seconds,
        }
        results = {**self.assessment.to_dict(), **numbers, **provenance}
        return {**results, "unfinished_trainings": unfinished, "worst": worst}


class RunComparisons(NamedTuple):
    """Evaluations of several runs on the same pairs, and their comparisons."""

    evaluations: list[RunEvaluation]
    comparisons: list[ComparedAssessment]
    """Comparison of the first run with each other one."""
    seeds: list[SeedRates]
    """Mean and standard deviation of each group of runs that differ in their seeds only."""
    mean_differences: list[GroupComparison]
    """Differences between the group of the first run and each other group of seeds."""
    distinct: list[ComparedAssessment]
    """The comparisons with the first run of each other group; seeds of one group are not compared with each other."""

    def __str__(self) -> str:
        """Return the metrics of each run (`RunEvaluation`), and the differences of the first run to the others.

        Raises:
            InputError: As on access to the metrics of the assessments.
        """
        first = self.evaluations[0].name
        lines = [
            f"{first} - {evaluation.name}, {name}: {rate.difference:+.2f} points, p: {format_p_value(rate.p)}"
            for (_, comparison), evaluation in zip(self.comparisons, self.evaluations[1:], strict=True)
            for name, rate in named_differences(comparison)
        ]
        return "\n".join([*map(str, self.evaluations), *lines])

    def __repr__(self) -> str:
        """Return the evaluations in one line."""
        return f"<{type(self).__name__} {', '.join(map(repr, self.evaluations))}>"

    @property
    def unfinished_names(self) -> list[str]:
        """Names in the assessments of the runs whose training is unfinished; means over seeds contain them."""
        return [evaluation.assessment.name for evaluation in self.evaluations if evaluation.unfinished]

    @property
    def timed_updates(self) -> dict[str, int]:
        """Number of updates of each run of a group of seeds, by its name in the assessments, if a limit of time has
        ended a training of the group."""
        updates = {
            evaluation.assessment.name: evaluation.final_updates
            for evaluation in self.evaluations
            if evaluation.final_updates is not None
        }
        groups = [[name for name in group.runs if name in updates] for group in self.seeds]
        timed_groups = [names for names in groups if any(updates[name].stopped_by_time_limit for name in names)]
        return {name: updates[name].updates for names in timed_groups for name in names}

    def to_dict(self, max_errors: int = MAX_LISTED_ERRORS) -> dict[str, Any]:
        """Return all results as plain values, as `pellucid evaluate --json` prints them.

        "seeds" has the mean and standard deviation of each main rate, for each group of runs that differ in their seeds
        only, with the names of those whose training is unfinished, and the numbers of updates if a limit of time has
        ended a training of the group; "mean_differences" has the differences between the group of the first run and
        others.

        Args:
            max_errors: Maximum number of listed errors of each run and each comparison; 10 by default.
        """
        first, pairs = self.evaluations[0], []
        for (other, comparison), evaluation in zip(self.comparisons, self.evaluations[1:], strict=True):
            record: dict[str, Any] = {"a": first.name, "b": evaluation.name, **comparison.to_dict()}
            for key, one, opponent in (
                ("a_right_b_wrong", first.assessment, other),
                ("b_right_a_wrong", other, first.assessment),
            ):
                rows = one.exclusively_right(opponent, max_errors)
                record[key] = [
                    {**opponent.error_record(index), "right_output": one.outputs[index].trace.output} for index in rows
                ]
            pairs.append(record)
        names = {evaluation.assessment.name: evaluation.name for evaluation in self.evaluations}
        updates = self.timed_updates
        seeds = [
            {
                "runs": [names[name] for name in group.runs],
                "unfinished_runs": [names[name] for name in group.runs if name in self.unfinished_names],
                "timed_updates": {names[name]: updates[name] for name in group.runs if name in updates},
                **{rate.key: rate.to_dict() for rate in group.rates},
            }
            for group in self.seeds
        ]
        means = [
            {**group.to_dict(), "a": [names[name] for name in group.a], "b": [names[name] for name in group.b]}
            for group in self.mean_differences
        ]
        runs = [{"name": evaluation.name, **evaluation.to_dict(max_errors)} for evaluation in self.evaluations]
        return {"runs": runs, "comparisons": pairs, "seeds": seeds, "mean_differences": means}


def compare_evaluations(evaluations: Sequence[RunEvaluation]) -> RunComparisons:
    """Compare the first of several runs with the others, and summarize runs that differ in their seeds only.

    Args:
        evaluations: Evaluations on the same pairs, at least one.

    Raises:
        InputError: The groups of the examples differ, or an example has no reference.
    """
    first, groups = evaluations[0].assessment, _seed_groups(evaluations)
    comparisons = [
        ComparedAssessment(other.assessment, compare_runs(first, other.assessment)) for other in evaluations[1:]
    ]
    differences = [compare_groups(groups[0], group) for group in groups[1:] if len(groups[0]) > 1 or len(group) > 1]
    return RunComparisons(
        list(evaluations),
        comparisons,
        [rates_over_seeds(runs) for runs in groups if len(runs) > 1],
        differences,
        [each for each in comparisons if any(each.run is group[0] for group in groups[1:])],
    )


def _seed_groups(evaluations: Sequence[RunEvaluation]) -> list[list[Assessment]]:
    """Return the groups of runs that differ in seed and threads only, by their first runs."""
    groups: list[list[RunEvaluation]] = []
    for run in evaluations:
        matching = (group for group in groups if all(_differs_in_seed(run, each) for each in group))
        group = next(matching, None)
        if group is None:
            groups.append(group := [])
        group.append(run)
    return [[run.assessment for run in group] for group in groups]


def _differs_in_seed(one: RunEvaluation, other: RunEvaluation) -> bool:
    """Return whether two runs differ in their seeds, but neither in their training files nor in another setting, except
    threads."""
    checksums = zip(one.training_checksums, other.training_checksums, strict=False)
    if any(first and second and first != second for first, second in checksums):
        return False
    seed, threads = other.config.seed, other.config.threads
    return one.config.seed != seed and msgspec.structs.replace(one.config, seed=seed, threads=threads) == other.config


def describe_evaluated_file(path: Path, target: Path | None, rows: int, name: str) -> EvaluatedFile:
    """Return the record of a file of pairs, or of sources and targets.

    Args:
        path: File of pairs, or of sources.
        target: File of targets; None if `path` holds pairs.
        rows: Number of rows that were read.
        name: Name of the first file in the record.
    """
    digests = [None if each is None else digest_file(each) for each in (path, target)]
    checksum, target_checksum = (None if digest is None else digest.sha256 for digest in digests)
    return EvaluatedFile(name, checksum, rows, None if target is None else str(target), target_checksum)


def add_provenance(
    evaluations: Sequence[RunEvaluation],
    files: tuple[EvaluatedFile, ...],
    nbest: int | None,
    sampling: SamplingConfig | None,
    multi_reference: bool,
    lexicon: Path | None = None,
) -> list[RunEvaluation]:
    """Return evaluations with the record of their inputs.

    Args:
        evaluations: Evaluations of several runs on the same pairs.
        files: Files that were evaluated.
        nbest: Number of outputs per source; None for the best alone.
        sampling: Settings of sampling; None for a search.
        multi_reference: Whether pairs with the same source and features are merged.
        lexicon: File of known pairs; None without one.
    """
    settings = None if sampling is None else asdict(sampling)
    path = None if lexicon is None else str(lexicon)

    def describe(run: RunEvaluation) -> EvaluationProvenance:
        """Return the record of the inputs of one evaluation."""
        has_search = get_task_settings(run.config.task).autoregressive and sampling is None
        ranks_with_both = allows_pair_ngram_ranking(run.config.search) and uses_pair_ngram(run.config)
        search = {**msgspec.to_builtins(run.config.search), "pair_ngram": ranks_with_both, "nbest": nbest}
        return EvaluationProvenance(run.name, files, search if has_search else None, settings, path, multi_reference)

    return [run._replace(provenance=describe(run)) for run in evaluations]


def join_evaluations(parts: Sequence[RunEvaluation], name: str, short_name: str, run: str) -> RunEvaluation:
    """Return several evaluations of one run, on different pairs, as one.

    Args:
        parts: The evaluations, at least one.
        name: Full name of the run.
        short_name: Name of its assessment.
        run: Folder of the run in the record of its provenance, with the placeholder.
    """
    provenance = parts[0].provenance
    if provenance is not None:
        files = tuple(file for part in parts if part.provenance is not None for file in part.provenance.files)
        provenance = provenance._replace(run=run, files=files)
    assessment = replace(join_assessments([part.assessment for part in parts]), name=short_name)
    counts = {key: sum(part.counts[key] for part in parts) for key in parts[0].counts}
    bad_lines = [line for part in parts for line in part.bad_lines]
    seconds = sum(part.seconds for part in parts)
    weights = {part.pair_ngram_weight for part in parts}
    return parts[0]._replace(
        name=name,
        assessment=assessment,
        counts=counts,
        seconds=seconds,
        bad_lines=bad_lines,
        parameters=max((part.parameters for part in parts if part.parameters is not None), default=None),
        provenance=provenance,
        unfinished=tuple(training for part in parts for training in part.unfinished),
        pair_ngram_weight=weights.pop() if len(weights) == 1 else None,
        training_checksums=tuple(checksum for part in parts for checksum in part.training_checksums),
    )


def evaluation_data_config(data: DataConfig, path: Path, input_format: Format) -> DataConfig:
    """Return the data settings of a file of pairs: the format by option, else by file name, else as in training.

    Args:
        data: Data settings of the run, with the columns, the header and the treatment of bad lines of this file.
        path: The file.
        input_format: Format of the file; "auto" if it is not given.
    """
    if input_format == "auto" and not has_known_suffix(path):
        input_format = data.input_format
    return msgspec.structs.replace(data, input_format=input_format)


class GroupColumn(NamedTuple):
    """Column of the groups of an evaluation."""

    column: str
    """Name, or number from 1."""
    setting: str
    """Flag or argument that selects the column, for messages."""


def read_evaluation_blocks(
    path: Path, target: Path | None, data: DataConfig, group: GroupColumn | None, report: ReportNote, name: str = ""
) -> Iterator[tuple[ExampleFile, list[str]]]:
    """Read the pairs of a file in blocks, with the group of each.

    Args:
        path: File of pairs, or of sources.
        target: File of targets; None if `path` holds pairs.
        data: Data settings of the file (`evaluation_data_config`).
        group: Column of the groups; None if there is none.
        report: Function that receives notes about the first line and unused columns, when all pairs are read.
        name: Name of the file in notes; its path by default.

    Yields:
        The examples of the next lines, and the group of each, "" without groups.

    Raises:
        InputError: As in `read_example_blocks` and `read_grouped_blocks`.
    """
    if group is not None:
        yield from read_grouped_blocks(path, data, group.column, BLOCK_EXAMPLES, group.setting)
        return
    first = list[Example]()
    for block in read_example_blocks(path, data, BLOCK_EXAMPLES, target):
        first += block.examples[: 1 + MAX_LINES - len(first)]
        yield block, [""] * len(block.examples)
    if is_header_unknown(path, data, target) and (note := header_note(first)):
        report(f"note: {name or path}: {note}")
    if target is None and (ignored := describe_used_columns(path, data)):
        report(f"note: {name or path}: {ignored}")


def check_evaluation(predictor: Predictor, texts: bool, multi_reference: bool, option: OptionName) -> None:
    """Check that the task of a model supports the options of an evaluation.

    Args:
        predictor: The model.
        texts: Whether metrics of running text are computed.
        multi_reference: Whether pairs with the same source and features are merged.
        option: Function that returns the name of an option in messages.

    Raises:
        ConfigError: It does not; the message names the option.
    """
    task = predictor.config.task
    if texts and not predictor.autoregressive:
        raise ConfigError(f"{option('texts')} scores generated text, but the task of the model is {quote(task)}")
    settings = get_task_settings(task)
    if multi_reference and (settings.per_position or settings.class_first):
        several = "tasks with several correct outputs"
        raise ConfigError(f"{option('multi_reference')} applies to {several}, but the task is {quote(task)}")


class _DecodedRun:
    """A run whose outputs are decoded, scored and counted in chunks."""

    def __init__(
        self, name: str, predictor: Predictor, builder: AssessmentBuilder, outputs: Iterator[list[list[Trace]]]
    ) -> None:
        """Begin before the first chunk.

        Args:
            name: Full name of the run.
            predictor: Its predictor.
            builder: Builder of its assessment, without outputs.
            outputs: Outputs of each example of each chunk, which are decoded during iteration.
        """
        self.name, self.predictor, self.builder, self.outputs = name, predictor, builder, outputs
        self.seconds, self.num_from_lexicon = 0.0, 0
        self.counts = dict.fromkeys(("unknown_symbols", "truncated_outputs", "ranked_with_pair_ngram"), 0)

    def add_next(self, chunk: DecodedExamples) -> list[AssessedOutput]:
        """Decode and score the next chunk; return its outputs.

        Args:
            chunk: The examples of the chunk, without outputs.

        Raises:
            InputError: As in decoding.
        """
        use_threads(self.predictor.config.threads)
        start_time = time.perf_counter()
        traces = next(self.outputs)
        self.seconds += time.perf_counter() - start_time
        outputs = self.builder.add(chunk._replace(outputs=traces))
        best = [output.trace for output in outputs]
        self.counts["unknown_symbols"] += sum(len(trace.unknown) for trace in best)
        self.counts["truncated_outputs"] += sum(not trace.finished for trace in best)
        self.counts["ranked_with_pair_ngram"] += sum(trace.pair_ngram_score is not None for trace in best)
        self.num_from_lexicon += sum(trace.origin == "lexicon" for trace in best)
        if isinstance(self.predictor, Transducer) and self.predictor.pair_ngram is not None:
            self._add_baseline(self.predictor, outputs)
        return outputs

    def evaluation(self, pairs: EvaluationPairs, nbest: int) -> RunEvaluation:
        """Return the evaluation of all outputs.

        Args:
            pairs: The pairs, for their counts.
            nbest: Number of outputs per source of the search; 0 for samples.
        """
        lines = {
            "lines": len(pairs),
            "bad_lines": len(pairs.bad_lines),
            "blank_lines": pairs.num_blank_lines,
        }
        weight, predicts_alone = None, False
        if isinstance(self.predictor, Transducer) and self.predictor.pair_ngram is not None:
            weight = self.predictor.pair_ngram_weight if nbest else 0.0  # samples are those of the network
            predicts_alone = self.predictor.pair_ngram.predicts_alone
        return RunEvaluation(
            self.name,
            _with_acceptance(self.builder.build(), self.predictor, nbest),
            {**lines, **self.counts},
            self.seconds,
            pairs.bad_lines,
            self.predictor.config,
            None if predicts_alone else sum(map(parameter_count, self.predictor.networks)),
            pair_ngram_weight=weight,
        )

    def _add_baseline(self, predictor: Transducer, outputs: Sequence[AssessedOutput]) -> None:
        """Score the outputs of the pair n-gram model alone, in the symbols of the comparison."""
        found, target = predictor.predict_by_pair_ngram([output.example for output in outputs]), predictor.tokenizers
        shared = self.builder.shared.target
        if target.target != shared:
            found = [tuple(shared.split(target.target.join(symbols))) for symbols in found]
        self.builder.add_baseline(
            [output.scored._replace(output=symbols) for output, symbols in zip(outputs, found, strict=True)]
        )


def evaluate_predictors(  # noqa: PLR0913 (models, examples, and what is measured)
    predictors: Sequence[tuple[str, Predictor]],
    pairs: EvaluationPairs,
    decode: Decode,
    texts: bool,
    nbest: int = 1,
    num_listed: int | None = None,
    report_run: Callable[[str, Predictor, int], None] = lambda name, predictor, num_from_lexicon: None,
    store_outputs: Callable[[int, Sequence[AssessedOutput]], None] = lambda run, outputs: None,
) -> list[RunEvaluation]:
    """Decode examples with each predictor, and compare the outputs with the references.

    The runs decode chunk by chunk, each chunk with all runs, so that outputs that are not listed are dropped. The
    outputs of the pair n-gram model of a run alone are compared with the references as well, as a baseline, also if it
    takes no part in the ranking. The symbols of the comparison are those of the first predictor.

    Args:
        predictors: Name and predictor of each run, at least one.
        pairs: The examples with their references.
        decode: Function that decodes.
        texts: Whether metrics of running text are computed.
        nbest: Number of outputs per source of the search; 0 for samples, which have no confidence.
        num_listed: Maximum length of lists of outputs, for which outputs are kept; None keeps all outputs.
        report_run: Function that is called at the end for each predictor, with the number of outputs of its lexicon.
        store_outputs: Function that is called with the number of a run, from 0, and its outputs of each chunk.

    Raises:
        InputError: The tasks of the predictors differ, or as in `decode`.
    """
    check_equal_tasks([(name, predictor.config.task) for name, predictor in predictors])
    shared = predictors[0][1].tokenizers
    names = [_short_name(name, predictor) for name, predictor in predictors]
    names = names if len(set(names)) == len(names) else [name for name, _ in predictors]
    runs = list[_DecodedRun]()
    for short_name, (name, predictor) in zip(names, predictors, strict=True):
        metrics = get_task(predictor.config.task).metrics
        builder = AssessmentBuilder(short_name, predictor.tokenizers, shared, metrics, texts)
        runs.append(_DecodedRun(name, predictor, builder, decode(predictor, pairs)))
    for chunk in pairs.chunks():
        for number, run in enumerate(runs):
            store_outputs(number, run.add_next(chunk))
        if num_listed is not None:
            keep_listed([run.builder for run in runs], num_listed)
    for run in runs:
        report_run(run.name, run.predictor, run.num_from_lexicon)
    return [run.evaluation(pairs, nbest) for run in runs]


def _short_name(name: str, predictor: Predictor) -> str:
    """Return the last part of the path of a run; the whole name of an ensemble, which joins paths of its members."""
    return name if len(predictor.networks) > 1 else Path(name).name or name


def choose_custom_metrics(
    configs: Sequence[Config], names: Sequence[str], report: ReportNote
) -> tuple[MetricName, ...]:
    """Return the custom metrics to compute: the named ones, and the training.metric of the runs.

    Args:
        configs: Configuration of each run.
        names: Names of custom metrics.
        report: Function that receives a note about a metric of a run that is not installed, and so is not computed.

    Raises:
        ConfigError: A named metric is built in or not known, or a package does not provide it.
    """
    for name in names:
        if not is_custom_metric(name):
            raise ConfigError(
                f"metrics: {quote(name)} is a built-in metric, whose results need no option; name a metric of another "
                "package"
            )
        build_metric(name)
    trained = dict.fromkeys(config.training.metric for config in configs)
    selected = [name for name in trained if is_custom_metric(name) and name not in names]
    for name in selected:
        if name not in METRIC_TYPES:
            report(f"note: {METRIC_TYPES.missing_message('training.metric', name)}; it is not computed")
    return tuple(dict.fromkeys([*names, *(name for name in selected if name in METRIC_TYPES)]))


def with_custom_metrics(evaluations: Sequence[RunEvaluation], metrics: tuple[MetricName, ...]) -> list[RunEvaluation]:
    """Return evaluations with metrics of other packages.

    Args:
        evaluations: Evaluations on the same pairs, which keep all outputs if there is a metric.
        metrics: Names of the metrics (`choose_custom_metrics`).

    Raises:
        ConfigError: A metric fails.
    """
    joined = [run._replace(assessment=replace(run.assessment, custom_metrics=metrics)) for run in evaluations]
    for run in joined:
        _ = run.assessment.metric_scores  # a metric that fails is reported before anything is printed
    return joined


def _with_acceptance(assessment: Assessment, predictor: Predictor, nbest: int) -> Assessment:
    """Return an assessment with the outputs that are accepted by confidence, or with the reason for none."""
    obstacle = predictor.no_confidence_reason(nbest) if nbest else "samples have no confidence"
    if obstacle or predictor.confidence is None or not assessment.num_with_confidence:
        return replace(assessment, no_confidence_reason=obstacle)
    blocks = [
        [accepted_outputs(predictor.confidence, confidences, right, max_error) for max_error in MAX_ERRORS]
        for confidences, right in assessment.counts.confidences()
    ]
    return replace(assessment, accepted=tuple(map(join_accepted_outputs, zip(*blocks, strict=True))))
