"""Evaluation of predictors on pairs: decoding, metrics, and comparisons of several runs.

`pellucid.evaluate` and `pellucid.compare` return these results, and the subcommand evaluate prints them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec

from pellucid.argument_checks import CheckedFields
from pellucid.config.settings import Config, DataConfig, Format, Width
from pellucid.config.task_settings import check_equal_tasks, get_task_settings, uses_pair_ngram
from pellucid.config.training_types import METRIC_TYPES, is_custom_metric
from pellucid.data.examples import (
    Example,
    ExampleFile,
    describe_used_columns,
    is_header_unknown,
    read_examples,
    read_grouped_examples,
)
from pellucid.data.headers import header_note
from pellucid.data.readers import BadLine, has_known_suffix
from pellucid.data.tokenizers import Tokenizers
from pellucid.decoding.hypothesis_scorer import allows_pair_ngram_ranking
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.sampling_config import SamplingConfig
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ArgumentError, ConfigError, quote
from pellucid.evaluation.assessment import (
    Assessment,
    ComparedAssessment,
    DecodedExamples,
    GroupComparison,
    SeedRates,
    assess_outputs,
    compare_groups,
    compare_runs,
    join_assessments,
    merge_references,
    rates_over_seeds,
)
from pellucid.evaluation.custom_metrics import build_metric
from pellucid.evaluation.risk_control import MAX_ERRORS, accepted_outputs
from pellucid.files import digest_file
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.reporting.tables import exclusively_right
from pellucid.run_folder.completion import FinalUpdates, UnfinishedTraining
from pellucid.tasks.registry import get_task
from pellucid.version import __version__

MAX_LISTED_ERRORS = 10
"""Default number of listed errors."""
ReportNote = Callable[[str], None]
"""Function that receives notes for the user."""
Decode = Callable[[Predictor, Sequence[Example]], list[list[Trace]]]
"""Function that returns the outputs of each example, best first."""
OptionName = Callable[[str], str]
"""Function that returns the name of an option as the user writes it: "texts", or "--texts" on the command line."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(CheckedFields):
    """Options of `pellucid.evaluate` and `pellucid.compare`.

    Raises:
        ArgumentError: A field has the wrong type or is out of range.
    """

    group: str = ""
    """Column with the group of each pair, such as its language: a name, or a number from 1; empty for none."""
    multi_reference: bool = False
    """Merge pairs with the same source and features into one example with several correct targets."""
    texts: bool = False
    """Also compute metrics of running text: word error rate, character error rate, BLEU and chrF."""
    nbest: Width | None = None
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
    parameters: int
    """Number of trained parameters; of all members of an ensemble, and of the largest run for the placeholder {}."""
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
        timed_groups = [names for names in groups if any(updates[name].by_time for name in names)]
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
                rows = exclusively_right(one, opponent)[:max_errors]
                record[key] = [
                    {**opponent.error_record(index), "right_output": one.traces[index].output} for index in rows
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
    """Return the groups of runs whose settings are equal except for seed and threads, by their first runs."""
    groups: list[list[RunEvaluation]] = []
    for run in evaluations:
        matching = (group for group in groups if all(_differs_in_seed(run.config, each.config) for each in group))
        group = next(matching, None)
        if group is None:
            groups.append(group := [])
        group.append(run)
    return [[run.assessment for run in group] for group in groups]


def _differs_in_seed(one: Config, other: Config) -> bool:
    """Return whether the seeds of two configurations differ, and all settings but seed and threads are equal."""
    return one.seed != other.seed and msgspec.structs.replace(one, seed=other.seed, threads=other.threads) == other


def describe_evaluated_file(path: Path, target: Path | None, reading: ExampleFile, name: str) -> EvaluatedFile:
    """Return the record of a file of pairs, or of sources and targets.

    Args:
        path: File of pairs, or of sources.
        target: File of targets; None if `path` holds pairs.
        reading: What was read.
        name: Name of the first file in the record.
    """
    digests = [None if each is None else digest_file(each) for each in (path, target)]
    checksum, target_checksum = (None if digest is None else digest.sha256 for digest in digests)
    rows = len(reading.examples) + len(reading.bad_lines) + reading.num_blank_lines
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
        parameters=max(part.parameters for part in parts),
        provenance=provenance,
        unfinished=tuple(training for part in parts for training in part.unfinished),
        pair_ngram_weight=weights.pop() if len(weights) == 1 else None,
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


def read_evaluation_pairs(
    path: Path, target: Path | None, data: DataConfig, group: str, report: ReportNote, name: str = ""
) -> tuple[ExampleFile, list[str]]:
    """Read the pairs of a file, with the group of each.

    Args:
        path: File of pairs, or of sources.
        target: File of targets; None if `path` holds pairs.
        data: Data settings of the file (`evaluation_data_config`).
        group: Column of the groups; empty for none.
        report: Function that receives notes about the first line and unused columns.
        name: Name of the file in notes; its path by default.

    Returns:
        The examples, and the group of each, "" without groups.

    Raises:
        InputError: As in `read_examples` and `read_grouped_examples`, or the pairs are two files, which have no groups.
    """
    if group:
        return read_grouped_examples(path, data, group)
    reading = read_examples(path, data, target)
    if is_header_unknown(path, data, target) and (note := header_note(reading.examples)):
        report(f"note: {name or path}: {note}")
    if target is None and (ignored := describe_used_columns(path, data)):
        report(f"note: {name or path}: {ignored}")
    return reading, [""] * len(reading.examples)


def group_examples(
    reading: ExampleFile,
    groups: Sequence[str],
    multi_reference: bool,
    report: ReportNote,
    option: OptionName,
    ids: Mapping[int, str] = MappingProxyType({}),
) -> DecodedExamples:
    """Return examples with their references, without outputs.

    Examples of one group follow each other; groups have the order of their first examples. Of merged pairs, the line
    and the id are those of the first.

    Args:
        reading: The examples.
        groups: Group of each example.
        multi_reference: Whether pairs with the same source and features are merged.
        report: Function that receives a note about sources with several targets.
        option: Function that returns the name of an option in the note.
        ids: Identifier of the rows of the file, by line number; empty by default.
    """
    by_group: dict[str, list[tuple[Example, int]]] = {}
    for example, line, group in zip(reading.examples, reading.line_numbers, groups, strict=True):
        by_group.setdefault(group, []).append((example, line))
    if not multi_reference:
        _note_several_targets(reading.examples, report, option)
    grouped, lines = DecodedExamples([], [], [], []), list[int]()
    for group, numbered in by_group.items():
        if multi_reference:
            merged = merge_references([example for example, _ in numbered])
            first_lines: dict[tuple[str, str], int] = {}
            for example, line in numbered:
                first_lines.setdefault((example.source, example.features), line)
            lines.extend(first_lines.values())
        else:
            merged = [(example, (example.target,)) for example, _ in numbered]
            lines.extend(line for _, line in numbered)
        grouped.examples.extend(example for example, _ in merged)
        grouped.references.extend(references for _, references in merged)
        grouped.groups.extend([group] * len(merged))
    return grouped._replace(lines=lines, ids=[ids.get(line, "") for line in lines] if ids else ())


def _note_several_targets(examples: Sequence[Example], report: ReportNote, option: OptionName) -> None:
    """Report sources that occur with several targets; each pair is an example of its own."""
    distinct = {(example.source, example.features, example.target) for example in examples}
    several = len(distinct) - len({(source, features) for source, features, _ in distinct})
    if several:
        report(
            f"note: {several:,} further targets repeat the source of an earlier pair; each pair is scored against its "
            f"own target ({option('multi_reference')} accepts any of them), and intervals and p-values treat the pairs "
            "as independent"
        )


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


def evaluate_predictors(  # noqa: PLR0913 (models, examples, and what is measured)
    predictors: Sequence[tuple[str, Predictor]],
    reading: ExampleFile,
    grouped: DecodedExamples,
    decode: Decode,
    texts: bool,
    nbest: int = 1,
    finished: Callable[[str, Predictor, list[list[Trace]]], None] = lambda name, predictor, outputs: None,
) -> list[RunEvaluation]:
    """Decode examples with each predictor, and compare the outputs with the references.

    The outputs of the pair n-gram model of a run alone are compared with the references as well, as a baseline, also if
    it takes no part in the ranking. The symbols of the comparison are those of the first predictor.

    Args:
        predictors: Name and predictor of each run, at least one.
        reading: The input, for its counts.
        grouped: The examples with their references (`group_examples`).
        decode: Function that decodes.
        texts: Whether metrics of running text are computed.
        nbest: Number of outputs per source of the search; 0 for samples, which have no confidence.
        finished: Function that is called with the outputs of each predictor.

    Raises:
        InputError: The tasks of the predictors differ, or as in `decode`.
    """
    check_equal_tasks([(name, predictor.config.task) for name, predictor in predictors])
    shared, evaluations = predictors[0][1].tokenizers, list[RunEvaluation]()
    names = [name if " with " in name else Path(name).name for name, _ in predictors]  # the members of an ensemble
    names = names if len(set(names)) == len(names) else [name for name, _ in predictors]
    for short_name, (name, predictor) in zip(names, predictors, strict=True):
        use_threads(predictor.config.threads)
        start_time = time.perf_counter()
        outputs = decode(predictor, grouped.examples)
        seconds = time.perf_counter() - start_time
        finished(name, predictor, outputs)
        decoded, metrics = grouped._replace(outputs=outputs), get_task(predictor.config.task).metrics
        assessment = assess_outputs(short_name, decoded, predictor.tokenizers, shared, metrics, texts)
        assessment = _with_acceptance(assessment, predictor, nbest)
        weight = None
        if isinstance(predictor, Transducer) and predictor.pair_ngram is not None:
            assessment = _with_pair_ngram(assessment, predictor, shared)
            weight = predictor.pair_ngram_weight if nbest else 0.0  # samples are those of the network
        parameters = sum(map(parameter_count, predictor.networks))
        evaluations.append(
            RunEvaluation(
                name,
                assessment,
                _counts(reading, outputs),
                seconds,
                reading.bad_lines,
                predictor.config,
                parameters,
                pair_ngram_weight=weight,
            )
        )
    return evaluations


def with_custom_metrics(
    evaluations: Sequence[RunEvaluation], names: Sequence[str], report: ReportNote
) -> list[RunEvaluation]:
    """Return evaluations with metrics of other packages: named ones, and those by which the runs were selected.

    Args:
        evaluations: Evaluations on the same pairs.
        names: Names of metrics.
        report: Function that receives a note about a metric of a run that is not installed, and so is not computed.

    Raises:
        ConfigError: A named metric is not known, a package does not provide it, or it fails.
    """
    for name in names:
        if is_custom_metric(name):
            build_metric(name)
    trained = dict.fromkeys(run.config.training.metric for run in evaluations)
    selected = [name for name in trained if is_custom_metric(name) and name not in names]
    for name in selected:
        if name not in METRIC_TYPES:
            report(f"note: {METRIC_TYPES.missing_message('training.metric', name)}; it is not computed")
    chosen = tuple(dict.fromkeys([*names, *(name for name in selected if name in METRIC_TYPES)]))
    chosen = tuple(filter(is_custom_metric, chosen))
    joined = [run._replace(assessment=replace(run.assessment, custom_metrics=chosen)) for run in evaluations]
    for run in joined:
        _ = run.assessment.metric_scores  # a metric that fails is reported before anything is printed
    return joined


def _with_acceptance(assessment: Assessment, predictor: Predictor, nbest: int) -> Assessment:
    """Return an assessment with the outputs that are accepted by confidence, or with the reason for none."""
    obstacle = predictor.no_confidence_reason(nbest) if nbest else "samples have no confidence"
    if obstacle or predictor.confidence is None or not assessment.confident:
        return replace(assessment, no_confidence_reason=obstacle)
    right = [assessment.scored[index].exact for index in assessment.confident]
    accepted = [
        accepted_outputs(predictor.confidence, assessment.confidences, right, max_error) for max_error in MAX_ERRORS
    ]
    return replace(assessment, accepted=tuple(accepted))


def _with_pair_ngram(assessment: Assessment, predictor: Transducer, shared: Tokenizers) -> Assessment:
    """Return an assessment with the outputs of the pair n-gram model alone, in the symbols of the comparison."""
    outputs, target = predictor.predict_by_pair_ngram(assessment.decoded.examples), predictor.tokenizers.target
    if target != shared.target:
        outputs = [tuple(shared.target.split(target.join(output))) for output in outputs]
    scored = zip(assessment.scored, outputs, strict=True)
    return replace(assessment, pair_ngram_outputs=tuple(example._replace(output=output) for example, output in scored))


def _counts(reading: ExampleFile, outputs: Sequence[list[Trace]]) -> dict[str, int]:
    """Return counts of the input and of the outputs of a run."""
    best = [traces[0] for traces in outputs]
    return {
        "lines": len(reading.examples),
        "bad_lines": len(reading.bad_lines),
        "blank_lines": reading.num_blank_lines,
        "unknown_symbols": sum(len(trace.unknown) for trace in best),
        "cut_outputs": sum(not trace.finished for trace in best),
        "ranked_with_pair_ngram": sum(trace.pair_ngram_score is not None for trace in best),
    }
