"""Metrics and comparisons as terminal tables."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile

from rich.cells import cell_len
from rich.markup import escape as markup_escape
from rich.table import Table
from rich.text import Text

from pellucid.errors import count_noun
from pellucid.evaluation.assessment import Assessment, ComparedAssessment, GroupComparison, RateStatistics, SeedRates
from pellucid.evaluation.calibration import CoveragePoint
from pellucid.evaluation.custom_metrics import MetricScore
from pellucid.evaluation.label_metrics import TOP_K, LabelMetrics
from pellucid.evaluation.metrics import ConfidenceInterval, Evaluation, GroupAccuracy, wilson_interval
from pellucid.evaluation.risk_control import AcceptedOutputs
from pellucid.evaluation.significance import RateDifference, RunComparison, smallest_run_p
from pellucid.evaluation.task_metrics import NamedRate
from pellucid.reporting.display_text import visible_symbol, visible_text

MAX_NAME_LENGTH = 20
"""Maximum length of a name in a table, in characters."""
MAX_RUN_COLUMNS = 3
"""Maximum number of runs that have a column each; of more, each has a row."""
NO_VALIDATION = "no validation of the network yet"
"""Reason why outputs have no probability."""
WORD_ENDS = re.compile(r"[-_./ ]")


def short_names(names: Sequence[str], width: int = MAX_NAME_LENGTH) -> list[str]:
    """Return short names: the parts that all have in common, and the middle of long names, are replaced by "…".

    The common words at the beginning are replaced first, then those at the end if a name is still too long. Different
    names stay different.

    Args:
        names: The names; returned unchanged if none is longer than `width`.
        width: Maximum length of a name in characters; exceeded if names would become equal.
    """
    if max(map(len, names), default=0) <= width:
        return list(names)
    prefix_length = _common_prefix_length(names)
    suffixes = [f"…{name[prefix_length:]}" if prefix_length else name for name in names]
    if max(map(len, suffixes)) > width:
        suffixes = _without_common_suffix(suffixes)
    for max_length in range(width, max(width, *map(len, suffixes)) + 1):
        shortened = [_elide_middle(name, max_length) for name in suffixes]
        if len(set(shortened)) == len(set(names)):
            return shortened
    return list(names)


def _common_prefix_length(names: Sequence[str]) -> int:
    """Return the length of the common prefix of names, up to the end of a word."""
    equal_columns = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    common = "".join(column[0] for column in equal_columns) if len(set(names)) > 1 else ""
    ends = [match.end() for match in WORD_ENDS.finditer(common)]
    return ends[-1] if ends else 0


def _without_common_suffix(names: Sequence[str]) -> list[str]:
    """Return names with "…" in place of their common words at the end; unchanged if a name would have no words left."""
    length = _common_prefix_length([name[::-1] for name in names])
    if not length or any(not name[:-length].strip("…") for name in names):
        return list(names)
    return [f"{name[:-length]}…" for name in names]


def _elide_middle(name: str, width: int) -> str:
    """Return a name with its middle replaced by "…". More of its end is kept, where names usually differ."""
    if len(name) <= width:
        return name
    end = (width - 1) * 2 // 3
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


MAX_LABELS = 16
"""Maximum number of labels in a confusion table."""


def label_metric_rows(metrics: LabelMetrics, evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """Return the metrics of labels (tags, classes or positions) as rows of name, value, and interval or explanation.

    Args:
        metrics: The label metrics; those that are None have no row.
        evaluation: The metrics of the same outputs as sequences, for the sequence accuracy of tags.
    """
    accuracy, interval = f"{metrics.accuracy:.2f} %", _format_ci(metrics.accuracy_ci95)
    rows = [("accuracy", accuracy, interval)]
    if metrics.parts:
        rows = [
            (f"{prefix}accuracy".replace("_", " "), f"{part.accuracy:.2f} %", _format_ci(part.accuracy_ci95))
            for prefix, part in metrics.parts.items()
        ]
        exact_interval = f"{_format_ci(evaluation.exact_match_ci95)} (class and all tags)"
        rows.append(("sequence accuracy", f"{evaluation.exact_match:.2f} %", exact_interval))
    elif metrics.per_position:
        exact = f"{evaluation.exact_match:.2f} %", f"{_format_ci(evaluation.exact_match_ci95)} (whole sequences)"
        rows = [("tag accuracy", accuracy, interval), ("sequence accuracy", *exact)]
        rows += [("Q3", accuracy, "accuracy of the tags H, E and C")] if metrics.q3 is not None else []
    if metrics.top_k_accuracy is not None and metrics.top_k_ci95 is not None:
        rows.append((f"top-{TOP_K} accuracy", f"{metrics.top_k_accuracy:.2f} %", _format_ci(metrics.top_k_ci95)))
    if metrics.macro_f1 is not None:
        rows.append(("macro F1", f"{metrics.macro_f1:.2f} %", "mean over labels"))
    if metrics.mcc is not None:
        rows.append(("Matthews correlation", f"{metrics.mcc:.4f}", "for any number of labels (Gorodkin 2004)"))
    if metrics.spans is not None:
        spans = metrics.spans
        rows.append(("span F1", f"{spans.f1:.2f} %", _format_ci(spans.f1_ci95)))
        predicted, reference = f"{spans.num_predicted:,}", f"{spans.num_reference:,}"
        counts = f"{spans.num_correct:,} correct of {predicted} predicted, {reference} in the references"
        rows.append(("span precision, recall", f"{spans.precision:.2f} %, {spans.recall:.2f} %", counts))
    return rows


def label_confusion_tables(metrics: LabelMetrics) -> list[Table]:
    """Return the confusion matrix of labels as a table, or those of classes and tags.

    Args:
        metrics: The label metrics.

    Returns:
        Tables of counts: references in rows, predictions in columns; none for fewer than two or more than `MAX_LABELS`
        labels.
    """
    named = {f"{prefix}labels".replace("_", " "): part for prefix, part in metrics.parts.items()} or {"labels": metrics}
    tables = [_label_confusion_table(part, name) for name, part in named.items()]
    return [table for table in tables if table is not None]


def _label_confusion_table(metrics: LabelMetrics, name: str) -> Table | None:
    """Return the confusion matrix of labels with a name; None for fewer than two or more than `MAX_LABELS`."""
    if not 1 < len(metrics.labels) <= MAX_LABELS:
        return None
    table = Table(title=f"{name}: references (rows) and predictions (columns)", title_justify="left")
    for heading in ("", *map(visible_symbol, metrics.labels)):
        table.add_column(Text(heading), justify="right")
    for label, counts in zip(metrics.labels, metrics.confusion, strict=True):
        table.add_row(Text(visible_symbol(label)), *(f"{count:,}" for count in counts))
    return table


MAX_UPDATE_RATIO = 1.1
"""Largest ratio of the numbers of updates of seeds of which the table does not warn."""
MAX_ACCURACIES = 15
"""Maximum number of rows of accuracies by position or length; the last of more rows holds the rest."""
MAX_GROUPS = 60
"""Maximum number of positions or lengths in a table, for tags of long sequences."""
MAX_CONFUSIONS = 10
"""Maximum number of symbol confusions in a table."""
ERROR_RATE_UNITS = {True: "CER: edits over characters", False: "PER: edits over symbols"}
"""Explanation of the symbol error rate, by whether symbols are characters."""
SHORT_NAMES = {"sequence error rate": "sequence error", "symbol error rate": "symbol error"}
"""Short names for column headings."""
PAIR_NGRAM_ROWS = ("exact match, pair n-gram alone", "symbol error rate, pair n-gram alone")
"""Names of the scores of the pair n-gram model alone, a baseline."""
ERROR_NUMBERS = ("errors", "confidence", "log-probability")
"""Columns of numbers of the worst outputs; the last ones are left out first where they have no room."""
REVIEW_COVERAGES = (0.5, 0.8, 0.9, 0.95, 1.0)
"""Coverages in the table of selective accuracy."""


def assessment_tables(
    assessment: Assessment, counts: Mapping[str, int], seconds: float, max_errors: int, width: int = 80
) -> Iterator[Table]:
    """Yield the tables that `pellucid evaluate` prints for one run.

    They are the metrics, the groups, the confusion matrix of labels, the accuracy by position and length, the symbol
    errors, the selective accuracy and the worst outputs; those without content are left out.

    Args:
        assessment: The assessment of the run.
        counts: Number of lines of each kind by its key, such as "bad_lines"; zeros and "lines" are left out.
        seconds: Seconds of decoding.
        max_errors: Maximum number of wrong outputs to list, worst first; 0 for none.
        width: Width of the terminal in columns, for the table of wrong outputs; 80 by default.
    """
    yield _summary_table(assessment, counts, seconds)
    if assessment.mean:
        yield group_table([assessment])
    if assessment.label_metrics is not None:
        yield from label_confusion_tables(assessment.label_metrics)
    for title, accuracies in (
        ("target position", assessment.evaluation.positions),
        ("source length", assessment.evaluation.lengths),
    ):
        if assessment.label_metrics is None or 1 < len(accuracies) <= MAX_GROUPS:
            yield _accuracy_table(title, accuracies)
    if assessment.confusions.errors:
        yield _confusion_table(assessment)
    if assessment.best_calibration is not None:
        yield _coverage_table(assessment, assessment.best_calibration.coverage_points)
    if assessment.accepted:
        yield _acceptance_table(assessment.accepted)
    rows = assessment.worst_examples(max_errors)
    if rows:
        yield _error_table(assessment, rows, width)


def comparison_tables(
    runs: Sequence[Assessment],
    comparisons: Sequence[ComparedAssessment],
    seconds: Sequence[float],
    max_listed: int,
    parameters: Sequence[int | None] = (),
    width: int = 80,
) -> Iterator[Table]:
    """Yield the tables that compare the first run with other runs on the same examples.

    They are the metrics of all runs, the groups, the differences with significance, the paired outcomes, and lists of
    examples that are correct in only one of two runs.

    Args:
        runs: Assessments of the runs.
        comparisons: Comparisons of the first run with other runs.
        seconds: Seconds of decoding of each run.
        max_listed: Maximum number of examples in each list; 0 for no lists.
        parameters: Number of parameters of each run, None for one whose network takes no part; empty by default, for
            none.
        width: Width of the terminal in columns, for the table of the metrics; 80 by default.
    """
    yield _run_table(runs, seconds, parameters, width)
    if runs[0].mean:
        yield group_table(runs)
    if comparisons:
        yield _significance_table(runs, comparisons, have_seeds=len(comparisons) < len(runs) - 1)
        yield _agreement_table(runs, comparisons)
    for other, comparison in comparisons:
        for one, opponent, total in ((runs[0], other, comparison.only_a), (other, runs[0], comparison.only_b)):
            rows = one.exclusively_right(opponent, max_listed)
            if rows:
                yield _disagreement_table(one, opponent, rows, total)


def group_table(runs: Sequence[Assessment]) -> Table:
    """Return a table of the rates of each group (rows) and run (columns), with their macro averages in the last row.

    Of a single run, the first rate has its 95 % interval.

    Args:
        runs: Assessments of the runs on the same examples, which have groups.
    """
    several, rates_of = len(runs) > 1, runs[0].metrics.rates
    names = [rate.name for rate in rates_of(runs[0].groups[0])]
    table = _empty_table(f"{' and '.join(names)} by group", "group", "of")
    first, *others = (f"{SHORT_NAMES.get(name, name)} %" for name in names)
    for run in runs:
        for heading in (first, *([] if several else ["95 % interval"]), *others):
            table.add_column(f"{_run_name(run)}\n{heading}" if several else heading, justify="right", overflow="fold")
    for rows in zip(*(run.groups for run in runs), strict=True):
        cells = [cell for row in rows for cell in rate_cells(rates_of(row), several)]
        table.add_row(Text(visible_text(rows[0].group)), f"{rows[0].examples:,}", *cells)
    table.add_section()
    cells = [cell for run in runs if run.mean for cell in rate_cells(rates_of(run.mean), several)]
    table.add_row("mean", count_noun(len(runs[0].groups), "group"), *cells)
    return table


def rate_cells(rates: Sequence[NamedRate], several: bool) -> list[str]:
    """Return the cells for the rates of a run in one group, or for their means.

    Args:
        rates: Rates, the main one first.
        several: True if the table compares several runs, which leaves out the interval.
    """
    first, *others = rates
    interval = [] if several else [_format_interval(first.interval)]
    return [f"{first.value:.2f}", *interval, *(f"{rate.value:.2f}" for rate in others)]


def score_rows(assessment: Assessment) -> list[tuple[str, str, str]]:
    """Return the metrics of a run as rows of name, value, and 95 % interval or explanation.

    Which ones depends on the task, and on the optional scores of the assessment.

    Args:
        assessment: The assessment of the run.
    """
    evaluation, texts = assessment.evaluation, assessment.text_scores
    if assessment.label_metrics is not None:
        rows = label_metric_rows(assessment.label_metrics, evaluation)
    else:
        unit = ERROR_RATE_UNITS[assessment.characters]
        rows = [
            ("exact match", f"{evaluation.exact_match:.2f} %", _format_ci(evaluation.exact_match_ci95)),
            (
                "sequence error rate",
                f"{evaluation.sequence_error_rate:.2f} %",
                f"{_format_ci(evaluation.sequence_error_rate_ci95)} (wrong outputs; of single words: WER)",
            ),
            (
                "symbol error rate",
                f"{evaluation.symbol_error_rate:.2f} %",
                f"{_format_ci(evaluation.symbol_error_rate_ci95)} ({unit})",
            ),
            ("symbol accuracy", f"{evaluation.symbol_accuracy:.2f} %", "by position, including the end"),
            *_pair_ngram_rows(assessment),
        ]
    if texts:
        rows += [
            (
                "word error rate",
                f"{texts.word_error_rate:.2f} %",
                f"{_format_ci(texts.word_error_rate_ci95)} (WER: edits over words)",
            ),
            (
                "character error rate",
                f"{texts.character_error_rate:.2f} %",
                _format_ci(texts.character_error_rate_ci95),
            ),
            ("BLEU", f"{texts.bleu.score:.2f}", texts.bleu.signature),
            ("chrF", f"{texts.chrf.score:.2f}", texts.chrf.signature),
        ]
    for score in assessment.metric_scores:
        rows.append((visible_text(score.name), format_metric_value(score), _format_metric_interval(score)))
    for oracle in assessment.oracle:
        rows.append((f"oracle accuracy, k = {oracle.k}", f"{oracle.accuracy:.2f} %", _format_ci(oracle.ci95)))
    if assessment.oracle:
        rows.append(("mean reciprocal rank", f"{assessment.mean_reciprocal_rank:.4f}", "MRR"))
    return [*rows, *_probability_rows(assessment), *_confidence_rows(assessment)]


def _pair_ngram_rows(assessment: Assessment) -> list[tuple[str, str, str]]:
    """Return exact match and symbol error rate of the pair n-gram model alone; nothing if it takes no part."""
    evaluation, mean = assessment.pair_ngram_evaluation, assessment.pair_ngram_mean
    if evaluation is None:
        return []
    exact, errors = _format_ci(evaluation.exact_match_ci95), _format_ci(evaluation.symbol_error_rate_ci95)
    if mean is not None:
        exact, errors = (
            f"{interval}; mean over groups {rate:.2f} %"
            for interval, rate in ((exact, mean.exact_match), (errors, mean.symbol_error_rate))
        )
    rates = (evaluation.exact_match, exact), (evaluation.symbol_error_rate, errors)
    return [(name, f"{rate:.2f} %", note) for name, (rate, note) in zip(PAIR_NGRAM_ROWS, rates, strict=True)]


def score_columns(runs: Sequence[Assessment]) -> dict[str, list[str]]:
    """Return the value of each metric for each run, by the name of the metric; "–" where a run lacks it.

    Args:
        runs: Assessments of the runs.
    """
    scores = [score_rows(run) for run in runs]
    values = [{name: value for name, value, _ in rows} for rows in scores]
    names = dict.fromkeys(name for rows in sorted(scores, key=len, reverse=True) for name, _, _ in rows)
    return {name: [of_run.get(name, "–") for of_run in values] for name in names}


def format_metric_value(score: MetricScore) -> str:
    """Return the value of a metric of another package with its unit, or "undefined".

    Args:
        score: The value.
    """
    if score.value is None:
        return "undefined"
    return f"{score.value:.2f} {score.unit}" if score.unit else f"{score.value:.4g}"


def _format_metric_interval(score: MetricScore) -> str:
    """Return the interval of a metric of another package, and which direction is better."""
    direction = "higher is better" if score.higher_is_better else "lower is better"
    if score.value is None:
        return f"no example counts; {direction}"
    if score.interval is None:
        return direction
    low, high = (format_metric_value(score._replace(value=end)) for end in score.interval)
    return f"95 % interval {low} to {high}; {direction}"


def _probability_rows(assessment: Assessment) -> list[tuple[str, str, str]]:
    """Return the calibration of the probabilities; without any, the reason."""
    calibration, of = assessment.calibration, " of a tag" if assessment.unit == "tags" else ""
    if calibration is None:
        return [(f"calibration error{of}", "–", NO_VALIDATION), (f"Brier score{of}", "–", "")]
    explanation = (
        f"mean probability{of} {100 * calibration.mean_probability:.1f} %, accuracy {100 * calibration.accuracy:.1f} %"
    )
    return [
        (f"calibration error{of}", f"{100 * calibration.expected_calibration_error:.2f} %", explanation),
        (f"Brier score{of}", f"{calibration.brier:.4f}", "0 is best"),
    ]


def _confidence_rows(assessment: Assessment) -> list[tuple[str, str, str]]:
    """Return the calibration of the confidences; without any, the reason."""
    calibration, name = assessment.confidence_calibration, "calibration error of the confidence"
    if calibration is None:
        return [(name, "–", assessment.no_confidence_reason), ("Brier score of the confidence", "–", "")]
    explanation = (
        f"mean confidence {100 * calibration.mean_probability:.1f} %, accuracy {100 * calibration.accuracy:.1f} %; "
        f"perfectly calibrated confidences would have {100 * assessment.calibration_error_by_chance:.2f} %"
    )
    return [
        (name, f"{100 * calibration.expected_calibration_error:.2f} %", explanation),
        ("Brier score of the confidence", f"{calibration.brier:.4f}", "0 is best"),
    ]


def count_label(name: str) -> str:
    """Return the label of a count of an evaluation: "bad lines", "ranked with the pair n-gram model".

    Args:
        name: Key of the count, such as "bad_lines".
    """
    return name.replace("_", " ").replace("pair ngram", "the pair n-gram model")


def _summary_table(assessment: Assessment, counts: Mapping[str, int], seconds: float) -> Table:
    """Return the table of the metrics of one run."""
    table = Table(show_header=False, box=None)
    for row in score_rows(assessment):
        table.add_row(*row)
    table.add_row("examples", f"{assessment.evaluation.examples:,}", f"decoded in {seconds:.1f} s")
    for name, count in counts.items():
        if count and name != "lines":
            table.add_row(count_label(name), f"{count:,}", "")
    return table


def _accuracy_table(title: str, accuracies: Sequence[GroupAccuracy]) -> Table:
    """Return a table of accuracies by position or length."""
    table = _empty_table(f"accuracy by {title}", title, "correct", "of", "%", "95 % interval")
    for group in _limit_accuracies(accuracies):
        interval = _format_interval(ConfidenceInterval(group.low, group.high), 1)
        table.add_row(group.label, f"{group.right:,}", f"{group.total:,}", f"{group.percent:.1f}", interval)
    return table


def _limit_accuracies(accuracies: Sequence[GroupAccuracy]) -> list[GroupAccuracy]:
    """Return at most `MAX_ACCURACIES` accuracies: the last of more is that of all remaining positions or lengths."""
    if len(accuracies) <= MAX_ACCURACIES:
        return list(accuracies)
    shown, rest = accuracies[: MAX_ACCURACIES - 1], accuracies[MAX_ACCURACIES - 1 :]
    right, total = sum(group.right for group in rest), sum(group.total for group in rest)
    first, last = rest[0].label.partition("–")[0], rest[-1].label.rpartition("–")[2]
    interval = wilson_interval(right, total).percent
    return [*shown, GroupAccuracy(f"{first}–{last}", right, total, interval.low, interval.high)]


def _confusion_table(assessment: Assessment) -> Table:
    """Return the table of the most frequent symbol errors."""
    table = _empty_table("most frequent symbol errors", "expected", "output", "count", "of")
    for confusion in assessment.confusions.errors[:MAX_CONFUSIONS]:
        symbols = (Text(format_symbol(symbol)) for symbol in (confusion.expected, confusion.predicted))
        table.add_row(*symbols, f"{confusion.count:,}", f"{confusion.num_expected:,}" if confusion.num_expected else "")
    return table


def format_symbol(symbol: str | None) -> str:
    """Return a symbol for display.

    Args:
        symbol: The symbol; None, for an insertion or a deletion, is shown as a dash.
    """
    return "–" if symbol is None else visible_symbol(symbol)


def _coverage_table(assessment: Assessment, points: Sequence[CoveragePoint]) -> Table:
    """Return the table of selective accuracy by coverage, in the order of the confidences if there are any."""
    by_confidence = assessment.ranks_by_confidence
    unit = "outputs" if by_confidence else assessment.unit
    table = _empty_table(
        f"selective accuracy: the most {'confident' if by_confidence else 'probable'} {unit}",
        "auto-accepted",
        "accuracy %",
        "errors in the remainder",
        f"{'confidence' if by_confidence else 'probability'} threshold",
    )
    has_errors = any(point.accuracy < 1 or point.error_recall < 1 for point in points)
    for point in points:
        if point.coverage in REVIEW_COVERAGES:
            errors = f"{100 * point.error_recall:.0f} %" if has_errors else "–"
            cells = (f"{100 * point.accuracy:.1f}", errors, f"{point.threshold:.3f}")
            table.add_row(f"{100 * point.coverage:.0f} %", *cells)
    return table


def _acceptance_table(accepted: Sequence[AcceptedOutputs]) -> Table:
    """Return the table of the outputs that are accepted automatically under each bound."""
    table = _empty_table(
        "automatic acceptance by confidence",
        "bound",
        "--min-confidence",
        "accepted",
        "accepted and wrong",
        "errors among accepted",
        caption="bound on the expected share of all outputs that are accepted and wrong, for pairs like those of the "
        "validation set; it does not bound the errors among the accepted outputs",
    )
    for row in accepted:
        missing = "one per run" if row.accepted else "no threshold"
        threshold = missing if row.min_confidence is None else f"{row.min_confidence:g}"
        cells = (row.accepted / row.total, row.wrong / row.total, row.wrong / max(1, row.accepted))
        table.add_row(f"{100 * row.max_error:g} %", threshold, *(f"{100 * cell:.1f} %" for cell in cells))
    return table


def _error_table(assessment: Assessment, rows: Sequence[int], width: int) -> Table:
    """Return the table of the worst outputs.

    Numbers that have no room beside the texts are left out, and named below the table. Longer texts are wrapped.
    """
    headings = [*_place_headings(assessment), "source", "output", "expected", *ERROR_NUMBERS]
    cells = [_error_cells(assessment, index) for index in rows]
    columns = dict(zip(headings, zip(*cells, strict=True), strict=True))
    omitted = list[str]()
    while len(omitted) < len(ERROR_NUMBERS) and _table_width(columns) > width:
        omitted.insert(0, ERROR_NUMBERS[-1 - len(omitted)])
        del columns[omitted[0]]
    caption = "order: most errors per expected symbol first"
    caption += f"; columns that do not fit: {', '.join(omitted)}" if omitted else ""
    table = Table(title="worst examples", caption=caption, title_justify="left", caption_justify="left")
    for heading in columns:
        table.add_column(heading, overflow="fold", no_wrap=heading in ERROR_NUMBERS)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _error_cells(assessment: Assessment, index: int) -> list[str]:
    """Return the cells of a wrong output."""
    row = assessment.error_record(index)
    cells = [*_place_cells(assessment, index), row["source"], row["output"], " | ".join(row["references"])]
    confidence = "–" if row["confidence"] is None else f"{row['confidence']:.2f}"
    log_probability = "–" if row["log_probability"] is None else f"{row['log_probability']:.2f}"
    return [*map(visible_text, cells), str(row["errors"]), confidence, log_probability]


def _table_width(columns: Mapping[str, Sequence[str]]) -> int:
    """Return the width of a table in which no cell is wrapped; each column has a border and two spaces."""
    return 1 + sum(3 + max(map(cell_len, (heading, *cells))) for heading, cells in columns.items())


def _place_headings(assessment: Assessment) -> list[str]:
    """Return the headings of the columns for the line and the id of an example; none if they are unknown."""
    return [*(["line"] if assessment.has_lines else []), *(["id"] if assessment.has_ids else [])]


def _place_cells(assessment: Assessment, index: int) -> list[str]:
    """Return the cells below `_place_headings`; with groups of files, the group precedes the line."""
    output = assessment.outputs[index]
    group = f"{output.group} " if len(assessment.outcomes) > 1 else ""
    return [
        *([f"{group}{output.line}"] if assessment.has_lines else []),
        *([output.id or ""] if assessment.has_ids else []),
    ]


def _run_table(
    runs: Sequence[Assessment], seconds: Sequence[float], parameters: Sequence[int | None], width: int
) -> Table:
    """Return a table of the metrics of each run: a column for each run, or for more than `MAX_RUN_COLUMNS` a row."""
    metrics = score_columns(runs)
    if parameters:
        metrics["parameters"] = ["–" if number is None else f"{number:,}" for number in parameters]
    metrics["decoded in"] = [f"{values:.1f} s" for values in seconds]
    title = f"{runs[0].evaluation.examples:,} examples"
    if len(runs) > MAX_RUN_COLUMNS:
        requested = {visible_text(name) for name in runs[0].custom_metrics}
        return _table_of_runs({title: list(map(_run_name, runs)), **metrics}, width, requested)
    table = _empty_table("", title, *map(_run_name, runs))
    for name, values in metrics.items():
        table.add_row(name, *values)
    return table


def _table_of_runs(columns: Mapping[str, list[str]], width: int, requested: Collection[str]) -> Table:
    """Return a table with a row for each run. The last metrics that have no room are left out, and named below it.

    Those of the pair n-gram model alone are left out first. Those of other packages, which were requested or selected
    the runs, are left out only after all others.
    """
    shown = {SHORT_NAMES.get(name, name): values for name, values in columns.items()}
    omitted = set[str]()
    by_importance = sorted(list(shown)[1:], key=lambda name: (name not in requested, name in PAIR_NGRAM_ROWS))
    for name in by_importance[:0:-1]:
        if _table_width({key: values for key, values in shown.items() if key not in omitted}) <= width:
            break
        omitted.add(name)
    names = ", ".join(name for name in shown if name in omitted)
    shown = {name: values for name, values in shown.items() if name not in omitted}
    caption = f"columns that do not fit (--json has them): {names}" if omitted else ""
    table = _empty_table("", *shown, caption=caption)
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    return table


def unfinished_note(group: SeedRates, unfinished: Collection[str]) -> str:
    """Return a warning that means over seeds contain runs whose training is unfinished; "" if there are none.

    Args:
        group: Rates of the runs.
        unfinished: Names of the runs whose training is unfinished.
    """
    names = [visible_text(name) for name in group.runs if name in unfinished]
    if not names:
        return ""
    return f"WARNING: the training of {', '.join(names)} is unfinished, and mean and deviation contain it"


def timed_updates_note(group: SeedRates, updates: Mapping[str, int]) -> str:
    """Return a warning that runs differ in their updates, because trainings ended by time; "" if they do not.

    Args:
        group: Rates of the runs.
        updates: Number of updates of each run, if a limit of time has ended a training of its group.
    """
    counts = [updates[name] for name in group.runs if name in updates]
    if not counts or max(counts) <= MAX_UPDATE_RATIO * min(counts):
        return ""
    return (
        f"WARNING: --time ended trainings of this group, which made {min(counts):,} to {max(counts):,} updates, and "
        "the deviation contains this; --epochs gives all seeds the same number"
    )


def seed_table(group: SeedRates, unfinished: Collection[str] = (), updates: Mapping[str, int] | None = None) -> Table:
    """Return the table of mean and standard deviation of each rate over runs that differ in their seeds.

    Args:
        group: Rates of the runs.
        unfinished: Names of the runs whose training is unfinished, of which the table warns; none by default.
        updates: Number of updates of each run, if a limit of time has ended a training of its group; the table warns if
            they differ. None by default.
    """
    headings = ("score", "mean", "95 % interval", "standard deviation", "lowest", "highest")
    scope = ", means over groups" if group.over_groups else ""
    title = f"{len(group.runs)} seeds{scope}: {', '.join(map(visible_text, group.runs))}"
    notes = (unfinished_note(group, unfinished), timed_updates_note(group, updates or {}), SEED_INTERVAL_NOTE)
    caption = "\n".join(filter(None, notes))
    table = _empty_table(title, *headings, caption=caption)
    for row in seed_rows(group.rates):
        table.add_row(*row)
    return table


SEED_INTERVAL_NOTE = (
    "interval of the mean over seeds, on these examples alone (Student's t); standard deviation with n − 1; the "
    "sequence error rate of single words is their WER"
)
"""Explanation of the columns of scores over seeds."""


def seed_rows(rates: Sequence[RateStatistics]) -> list[list[str]]:
    """Return name, mean, its interval, standard deviation, lowest and highest value of each rate.

    Args:
        rates: Rates of several runs.
    """
    return [
        [
            rate.name,
            f"{rate.mean:.2f} %",
            _format_interval(rate.interval),
            f"{rate.standard_deviation:.2f}",
            f"{min(rate.values):.2f} %",
            f"{max(rate.values):.2f} %",
        ]
        for rate in rates
    ]


def group_comparison_table(comparison: GroupComparison) -> Table:
    """Return the table of the differences between the mean rates of two groups of runs.

    Args:
        comparison: Comparison of the groups.
    """
    names = [", ".join(map(visible_text, runs)) for runs in (comparison.a, comparison.b)]
    headings = ("score", "mean of A", "mean of B", "A − B", "95 % interval", "p")
    caption = f"interval: bootstrap over examples and seeds, widened for few seeds\n{run_permutation_note(comparison)}"
    table = _empty_table(f"A: {names[0]}\nB: {names[1]}", *headings, caption=caption)
    for key, row in comparison.differences.items():
        p = "–" if row.p is None else format_p_value(row.p)
        cells = (f"{row.a:.2f} %", f"{row.b:.2f} %", f"{row.difference:+z.2f}", _format_interval(row.ci95), p)
        table.add_row(comparison.names[key], *cells)
    return table


def run_permutation_note(comparison: GroupComparison) -> str:
    """Return the explanation of the p-value over seeds, or the reason for none.

    Args:
        comparison: Comparison of two groups of runs.
    """
    num_a, num_b = len(comparison.a), len(comparison.b)
    smallest = smallest_run_p(num_a, num_b)
    if any(row.p is not None for row in comparison.differences.values()):
        return f"p: permutation test over seeds, on these examples alone; {smallest:.3g} is the smallest possible"
    return (
        f"no p: with {num_a} and {num_b} seeds, a permutation test over seeds cannot give less than {smallest:.2g}; "
        "four and four are enough"
    )


def _significance_table(
    runs: Sequence[Assessment], comparisons: Sequence[ComparedAssessment], have_seeds: bool
) -> Table:
    """Return the table of differences with their significance."""
    scope = "means over groups" if runs[0].mean else "all examples"
    headings = ("compared with", "score", "difference", "95 % interval", "p", "better in")
    caption = "interval and “better in”: bootstrap; p: permutation test, which is more reliable if few examples differ"
    if have_seeds:
        note = "each row compares two single trainings, and says nothing about their settings: see the means above"
        caption = f"{note}\n{caption}"
    table = _empty_table(f"{_run_name(runs[0])} minus each other run, {scope}", *headings, caption=caption)
    for run, comparison in comparisons:
        for name, difference in named_differences(comparison):
            cells = (
                f"{difference.difference:+z.2f}",
                _format_interval(difference.ci95),
                format_p_value(difference.p),
                f"{100 * difference.a_better:.1f} %",
            )
            table.add_row(_run_name(run), name, *cells)
    return table


def _agreement_table(runs: Sequence[Assessment], comparisons: Sequence[ComparedAssessment]) -> Table:
    """Return the table of examples that are correct in both runs, in one, or in neither."""
    table = _empty_table(
        "correct examples", "compared with", "both", f"only {_run_name(runs[0])}", "only the other", "neither"
    )
    for run, comparison in comparisons:
        counts = (comparison.both, comparison.only_a, comparison.only_b, comparison.neither)
        table.add_row(_run_name(run), *(f"{count:,}" for count in counts))
    return table


def named_differences(comparison: RunComparison) -> list[tuple[str, RateDifference]]:
    """Return the differences of rates between two runs with their display names, most important first.

    Args:
        comparison: Comparison of two runs.
    """
    differences = comparison.differences
    return [(name, differences[key]) for key, name in comparison.metrics.compared_rates]


def format_p_value(p: float) -> str:
    """Return a p-value as text with four decimals: "0.0312", or "< 0.0002" if it is below 0.0002.

    Args:
        p: The p-value.
    """
    return f"{p:.4f}" if p >= 0.0002 else "< 0.0002"


def _disagreement_table(correct: Assessment, wrong: Assessment, indices: Sequence[int], total: int) -> Table:
    """Return the table of some of the `total` examples that are correct in one run and wrong in the other."""
    title = f"{_run_name(correct)} correct, {_run_name(wrong)} wrong: {len(indices):,} of {total:,}"
    headings = (*_place_headings(correct), "source", _run_name(correct), _run_name(wrong))
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for index in indices:
        cells = (
            *_place_cells(correct, index),
            correct.outputs[index].trace.text,
            correct.outputs[index].trace.output,
            wrong.outputs[index].trace.output,
        )
        table.add_row(*(Text(visible_text(cell)) for cell in cells))
    return table


def _run_name(run: Assessment) -> str:
    """Return the name of a run without markup."""
    return markup_escape(visible_text(run.name))


def _empty_table(title: str, *headings: str, caption: str = "") -> Table:
    """Return an empty table with right-aligned columns."""
    table = Table(title=title or None, caption=caption or None, title_justify="left", caption_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")  # a name is never cut
    return table


def _format_ci(interval: ConfidenceInterval) -> str:
    """Return an interval as "95 %: low to high"."""
    return f"95 %: {_format_interval(interval)}"


def _format_interval(interval: ConfidenceInterval, digits: int = 2) -> str:
    """Return an interval as "low to high"."""
    return f"{interval.low:.{digits}f} to {interval.high:.{digits}f}"
