"""English to Spanish on 112,000 pairs of Tatoeba, with words and with subwords: BLEU, chrF, attention as alignment."""

import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pellucid.config.settings import Config, DataConfig
from pellucid.data.examples import Example, read_examples
from pellucid.data.vocabulary import Vocabulary
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError, InputError, quote, suggest
from pellucid.evaluation.alignment import AttentionStatistic, mean_attention_map, summarize_attention
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.metrics import CorpusScore, Evaluation, ScoredExample, bleu, chrf, evaluate_examples
from pellucid.files import make_folder, write_json, write_text
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.pair_ngram.predictor import PairNgramPredictor, fit_pair_ngram_predictor
from pellucid.recipes.experiments import DataSplits, merge_settings, name_changes
from pellucid.recipes.jobs import run_jobs, train_with_progress
from pellucid.recipes.published_data import describe_download
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.transduction_experiments import decode_with_pair_ngram
from pellucid.reporting.figures import mean_weights_figure, to_svg
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.training.training_data import TrainingFiles
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.viewer.reports import ScoredRun, run_report, write_report
from pellucid.worker_pool import ProgressCallback

FOLDER, PARTS = Path("mt-tatoeba-spa-eng") / "derived-split", ("train", "dev", "test")
WORD_PATTERN = re.compile(r"(\s+)|(\w+(?:['’]\w+)*)|([^\w\s])")
JOINER = "▪"
"""Marker of a punctuation token on each side that has no space in the text."""


class TranslationReferences(NamedTuple):
    """Distinct source sentences with all their translations."""

    sources: list[str]
    references: list[tuple[str, ...]]


def read_tatoeba(data: Path, samples: int) -> DataSplits:
    """Read the three splits of English and Spanish sentences.

    Args:
        data: Folder of the data sets.
        samples: Maximum number of pairs of each split, drawn with a fixed seed; 0 takes all.

    Returns:
        The pairs of the three splits.

    Raises:
        DataError: A file is missing or damaged.
    """
    paths = [data / FOLDER / f"{part}.tsv.gz" for part in PARTS]
    if not all(path.exists() for path in paths):
        raise DataError(
            f"{data / FOLDER} lacks train.tsv.gz, dev.tsv.gz or test.tsv.gz: the sentences are those of "
            "manythings.org/anki (spa-eng), split so that no sentence is in two sets; "
            + describe_download(FOLDER.parts[0])
        )
    splits = [read_examples(path, DataConfig()).examples for path in paths]
    if samples:
        splits = [random.Random(1).sample(split, min(samples, len(split))) for split in splits]
    return DataSplits(*splits)


def group_references(pairs: Sequence[Example]) -> TranslationReferences:
    """Return each distinct source once, in the order of first occurrence, with all its distinct targets.

    Args:
        pairs: Pairs of one split.
    """
    targets_by_source: dict[str, list[str]] = {}
    for pair in pairs:
        targets_by_source.setdefault(pair.source, []).append(pair.target)
    references = [tuple(dict.fromkeys(targets)) for targets in targets_by_source.values()]
    return TranslationReferences(list(targets_by_source), references)


def tokenize(text: str) -> str:
    """Separate words and punctuation by spaces: "¿Eh?" becomes "¿▪ Eh ▪?".

    A joiner mark (`JOINER`) shows where there was no space. `detokenize` reverses this, except for the width of spaces.

    Args:
        text: A sentence.

    Returns:
        Words and punctuation, separated by spaces.
    """
    words: list[str] = []
    is_adjacent = False
    for space, word, sign in WORD_PATTERN.findall(text):
        if word:
            if is_adjacent:
                words[-1] += JOINER
            words.append(word)
        elif sign:
            words.append(JOINER + sign if is_adjacent else sign)
        is_adjacent = not space
    return " ".join(words)


def detokenize(words: str) -> str:
    """Return the text of words that `tokenize` has separated, without the joiner marks.

    Args:
        words: Words separated by spaces.
    """
    return words.replace(f" {JOINER}", "").replace(f"{JOINER} ", "").replace(JOINER, "")


def write_pair_files(splits: DataSplits, folder: Path, as_words: bool) -> DataSplits:
    """Write the splits as train.tsv, dev.tsv and test.tsv.

    Args:
        splits: Pairs of the three splits.
        folder: Folder of the files.
        as_words: Write the sentences as `tokenize` returns them; otherwise as they are.

    Returns:
        The pairs as they are in the files.

    Raises:
        RunError: A file cannot be written.
    """
    make_folder(folder)
    if as_words:
        splits = DataSplits(*([_split_pair(pair) for pair in split] for split in splits))
    for name, split in zip(PARTS, splits, strict=True):
        write_text(folder / f"{name}.tsv", "".join(f"{pair.source}\t{pair.target}\n" for pair in split))
    return splits


def _split_pair(pair: Example) -> Example:
    """Return a pair as words."""
    return Example(tokenize(pair.source), tokenize(pair.target))


BEAM_SIZE, NUM_LINKS = 5, 40


class TranslationSystem(NamedTuple):
    """One of the two translation systems (words, subwords) with one seed: configuration and data of its training."""

    name: str
    """A value of `SYSTEMS`."""
    config: Config
    files: TrainingFiles
    folder: Path
    """Run folder."""
    as_words: bool
    """Symbols are words; otherwise subwords."""
    splits: DataSplits
    """Pairs in the form of the files."""


class TranslationScores(NamedTuple):
    """Scores of the outputs on one set, against all translations of each sentence."""

    evaluation: Evaluation
    bleu: CorpusScore
    chrf: CorpusScore
    num_sources: int
    """Number of distinct sources."""
    num_references: int
    """Number of their translations together."""

    def to_json(self) -> dict[str, Any]:
        """Return scores with signatures and counts as plain values for JSON."""
        rates = self.evaluation.to_dict()
        return {
            **{key: rates[key] for key in ("exact_match", "exact_match_ci95", "symbol_error_rate")},
            **{"bleu": self.bleu.score, "bleu_signature": self.bleu.signature},
            **{"chrf": self.chrf.score, "chrf_signature": self.chrf.signature},
            **{"sentences": self.num_sources, "references": self.num_references},
        }


class TranslationBaseline(NamedTuple):
    """Scores of a pair n-gram model that is fitted to the training pairs, and the time to fit it."""

    dev: TranslationScores
    test: TranslationScores
    seconds: float
    """CPU seconds to encode the pairs and to fit the model."""


class AttentionLink(NamedTuple):
    """An output symbol, its frequency, and the source symbol with most of its attention."""

    target: str
    frequency: int
    """Number of occurrences of the output symbol."""
    source: str
    share: float
    """Fraction of the attention of the output symbol on the source symbol."""


class TranslationResult(NamedTuple):
    """Result of a training."""

    system: TranslationSystem
    dev: TranslationScores
    """Scores on the validation set with beam search."""
    test: TranslationScores
    """Scores on the test set with beam search."""
    greedy: TranslationScores
    """Scores on the test set with greedy decoding."""
    pair_ngram: TranslationBaseline | None
    """Scores of the pair n-gram model; None if the pairs have no alignments."""
    scored_run: ScoredRun
    """Outputs on the test set with beam search."""
    stop_record: dict[str, Any]
    """Last record of the training log: updates, samples and seconds of training."""
    epochs: float
    """Passes over the training set: samples seen per training pair."""
    vocabulary_sizes: tuple[int, int]
    """Size of the source and of the target vocabulary."""
    unknown: tuple[float, float]
    """Percentage of unknown source and target symbols in the test set."""
    parameters: int
    """Number of parameters."""
    links: list[AttentionLink]
    statistics: list[AttentionStatistic]
    """Attention statistics of the outputs on the test set."""


def train_system(system: TranslationSystem, on_progress: ProgressCallback) -> TranslationResult:
    """Train a run, or resume or reuse an existing one, and score it; runs in a worker process.

    Args:
        system: Configuration, files and pairs of the training.
        on_progress: Progress callback.

    Returns:
        The scores and the attention statistics.

    Raises:
        DataError: A data file cannot be read.
        RunError: The run folder holds other files or another run, is in use, or cannot be written; or the training
            diverges.
    """
    train_with_progress(system.files, system.folder, system.config, on_progress)
    on_progress("decoding for evaluation")
    use_threads(system.config.threads)
    predictor = load(system.folder)
    log = read_log(system.folder)
    _, dev = score_system(predictor.with_beam(BEAM_SIZE), system.splits.dev, system.as_words)
    _, greedy = score_system(predictor.with_beam(1), system.splits.test, system.as_words)
    scored_run, test = score_system(predictor.with_beam(BEAM_SIZE), system.splits.test, system.as_words)
    stop_record = [record for record in log if record["event"] == "stopped"][-1]
    num_examples = next(record["examples"] for record in log if record["event"] == "read")  # training file is first
    vocabularies, tokenizers = predictor.vocabularies, predictor.tokenizers
    sources = [tokenizers.source.split(pair.source) for pair in system.splits.test]
    targets = [tokenizers.target.split(pair.target) for pair in system.splits.test]
    return TranslationResult(
        system=system,
        dev=dev,
        test=test,
        greedy=greedy,
        pair_ngram=score_pair_ngram(predictor, system),
        scored_run=scored_run,
        stop_record=stop_record,
        epochs=stop_record["samples"] / num_examples,
        vocabulary_sizes=(len(vocabularies.source), len(vocabularies.target)),
        unknown=(
            unknown_percentage(sources, vocabularies.source),
            unknown_percentage(targets, vocabularies.target),
        ),
        parameters=parameter_count(predictor.network),
        links=attention_links(scored_run.traces, NUM_LINKS),
        statistics=summarize_attention(scored_run.traces),
    )


def score_system(predictor: Predictor, pairs: Sequence[Example], as_words: bool) -> tuple[ScoredRun, TranslationScores]:
    """Translate each distinct source once and score it against all its targets.

    Args:
        predictor: Predictor of the trained model, with the beam size of the search.
        pairs: Pairs of one split.
        as_words: The pairs have words separated by `tokenize`; otherwise plain text.

    Returns:
        The outputs with their references for the page, and the scores.
    """
    grouped = group_references(pairs)
    traces = predictor.predict(grouped.sources)
    scored = score_traces(traces, grouped.references, predictor.tokenizers)
    scores = score_translations([trace.output for trace in traces], scored, grouped, as_words)
    return ScoredRun(predictor, traces, grouped.references, scored, scores.evaluation), scores


def score_pair_ngram(predictor: Predictor, system: TranslationSystem) -> TranslationBaseline | None:
    """Fit a pair n-gram model to the training pairs and score it.

    Args:
        predictor: Predictor of the trained model, for its tokenizers and vocabularies.
        system: The system, for its pairs.

    Returns:
        The scores; None if the pairs have no alignments.
    """
    started = time.process_time()
    model = fit_pair_ngram_predictor(system.splits.train, predictor.tokenizers, predictor.vocabularies)
    seconds = time.process_time() - started
    if model is None:
        return None
    dev, test = (
        _score_pair_ngram_outputs(model, split, system.as_words) for split in (system.splits.dev, system.splits.test)
    )
    return TranslationBaseline(dev, test, seconds)


def _score_pair_ngram_outputs(model: PairNgramPredictor, pairs: Sequence[Example], as_words: bool) -> TranslationScores:
    """Return the scores of a pair n-gram model on one split."""
    grouped, target = group_references(pairs), model.tokenizers.target
    examples = [Example(source, "") for source in grouped.sources]
    scored = [output for (output,) in decode_with_pair_ngram(model, examples, grouped.references, 1)]
    return score_translations([target.join(example.output) for example in scored], scored, grouped, as_words)


def score_translations(
    outputs: Sequence[str], scored: Sequence[ScoredExample], references: TranslationReferences, as_words: bool
) -> TranslationScores:
    """Return the scores of outputs: BLEU and chrF of plain texts, exact match and symbol error rate of symbols.

    Args:
        outputs: Output of each source, as text.
        scored: The outputs and their references, as symbols.
        references: References of each source.
        as_words: Outputs and references have words separated by `tokenize`; otherwise plain text.
    """
    to_text = detokenize if as_words else str
    texts = list(map(to_text, outputs))
    reference_texts = [list(map(to_text, targets)) for targets in references.references]
    return TranslationScores(
        evaluate_examples(scored),
        bleu(texts, reference_texts),
        chrf(texts, reference_texts),
        len(references.sources),
        sum(map(len, references.references)),
    )


def unknown_percentage(sequences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> float:
    """Return the percentage of symbols outside a vocabulary; 0 for no symbols.

    Args:
        sequences: Symbols of each sequence.
        vocabulary: The vocabulary.
    """
    is_unknown = [symbol not in vocabulary.ids for sequence in sequences for symbol in sequence]
    return 100 * float(np.mean(is_unknown)) if is_unknown else 0.0


def attention_links(traces: Sequence[Trace], count: int) -> list[AttentionLink]:
    """Return the source symbol with most attention for each of the most frequent output symbols, the most frequent
    first.

    Args:
        traces: Decoded outputs with attention weights, which are summed over all traces.
        count: Maximum number of output symbols, of which the end symbol may be one.
    """
    frequencies: Counter[str] = Counter()
    weights: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for trace in traces:
        for target, row in zip(trace.target, trace.attention, strict=True):
            frequencies[target] += 1
            for source, weight in zip(trace.source, row.tolist(), strict=True):
                weights[target][source] += weight
    links = []
    for target, frequency in frequencies.most_common(count):
        ((source, weight),) = weights[target].most_common(1)
        links.append(AttentionLink(target, frequency, source, weight / sum(weights[target].values())))
    return links


NAME, TITLE = "spanish-tatoeba", "English to Spanish, with words and with subwords"
SYSTEMS = ("words", "subwords")
NUM_EXAMPLES = 12
INTRODUCTION = """\
Sentences of Tatoeba (manythings.org/anki, CC BY 2.0), split so that no English and no Spanish sentence occurs in two
sets. Pellucid's model is trained twice: with words and punctuation as symbols (frequency five or more; others are
unknown), and with 4,000 subwords per side, learned by byte-pair encoding from the training file. All other settings
are equal: sizes, epochs, learning rate.

Scores are with beam size 5. Each distinct English sentence of a set is translated once and scored against all its
Spanish translations in the set; BLEU and chrF are sacrebleu's, on plain text. There is no published number for this
split. The baseline is a pair n-gram model, fitted to the same symbols of the training pairs.

The budget is two hours on two cores; each system trains on one thread."""


def run_tatoeba(request: RecipeRequest) -> Iterator[str]:
    """Train and score both systems with every seed; write report.json and report.html.

    Args:
        request: The recipe's request; `only` may name "words" or "subwords".

    Yields:
        A line per run and the path of the report.

    Raises:
        InputError: A name in `only` is unknown; or as in `run_jobs`.
        DataError: The sentences are missing or damaged.
        RunError: A file cannot be written.
        ConfigError: A setting of the request is invalid together with those of the recipe.
    """
    jobs = [(f"{system.name}, seed {system.config.seed}", system) for system in _plan_systems(request)]
    results, introduction = [], name_changes(INTRODUCTION, request.settings)
    for result in run_jobs(train_system, jobs, request):
        results.append(result)
        title = f"{TITLE}: {_result_name(result)}"
        write_report(
            result.system.folder / "report.html",
            run_report(result.system.folder, result.scored_run, title, introduction),
        )
        yield _result_line(result)
    write_json(request.out / "report.json", {"name": NAME, "runs": [_result_json(result) for result in results]})
    last = results[-1]
    page = run_report(
        last.system.folder, last.scored_run, TITLE, f"{introduction}\n\nExamples below: {_result_name(last)}."
    )
    summary = [
        (f"BLEU, {_result_name(result)}", f"{result.test.bleu.score:.2f} (test, beam size {BEAM_SIZE})")
        for result in results
    ]
    parts = [_system_table(results), *(part for result in results for part in _report_parts(result))]
    write_report(request.out / "report.html", replace(page, summary=[*summary, *page.summary], parts=parts))
    yield f"report: {request.out / 'report.html'}"


def _plan_systems(request: RecipeRequest) -> list[TranslationSystem]:
    """Write the pairs and return the systems to train."""
    for name in request.only:
        if name not in SYSTEMS:
            names = ", ".join(SYSTEMS)
            raise InputError(f"{NAME} has no system {quote(name)}{suggest(name, SYSTEMS)} (there are: {names})")
    make_folder(request.out)
    splits, systems = read_tatoeba(request.data, request.samples), []
    for name in (system for system in SYSTEMS if not request.only or system in request.only):
        folder, as_words = request.out / "data" / name, name == "words"
        written_splits = write_pair_files(splits, folder, as_words)
        for seed in range(1, request.seeds + 1):
            settings: dict[str, Any] = {"seed": seed}
            if as_words:
                settings["data"] = {"source_symbols": "words", "target_symbols": "words"}
            systems.append(
                TranslationSystem(
                    name=name,
                    config=load_recipe_config(NAME, merge_settings(settings, request.settings)),
                    files=TrainingFiles(folder / "train.tsv", folder / "dev.tsv"),
                    folder=request.out / "runs" / f"{name}-seed-{seed}",
                    as_words=as_words,
                    splits=written_splits,
                )
            )
    return systems


def _result_name(result: TranslationResult) -> str:
    """Return system and seed."""
    return f"{result.system.name}, seed {result.system.config.seed}"


def _result_line(result: TranslationResult) -> str:
    """Return the line of a run."""
    test, sizes, seconds = result.test, result.vocabulary_sizes, result.stop_record["seconds"]
    return (
        f"{_result_name(result)}: test BLEU {test.bleu.score:.2f}, chrF {test.chrf.score:.2f}, exact match "
        f"{test.evaluation.exact_match:.2f} % (greedy: BLEU {result.greedy.bleu.score:.2f}); dev BLEU "
        f"{result.dev.bleu.score:.2f}; vocabularies of {sizes[0]:,} and {sizes[1]:,} symbols, "
        f"{result.unknown[0]:.2f} % and {result.unknown[1]:.2f} % unknown in the test set; {result.parameters:,} "
        f"parameters, {result.epochs:.3g} epochs in {seconds:,.0f} s{_format_baseline(result.pair_ngram)}"
    )


def _format_baseline(baseline: TranslationBaseline | None) -> str:
    """Return the scores of the pair n-gram model for the line of a run."""
    if baseline is None:
        return ""
    return (
        f"; pair n-gram model: test BLEU {baseline.test.bleu.score:.2f}, chrF {baseline.test.chrf.score:.2f}, in "
        f"{baseline.seconds:,.0f} CPU s"
    )


def _result_json(result: TranslationResult) -> dict[str, Any]:
    """Return the numbers of one run."""
    return {
        **{"system": result.system.name, "seed": result.system.config.seed, "beam": BEAM_SIZE},
        **{"dev": result.dev.to_json(), "test": result.test.to_json(), "test_greedy": result.greedy.to_json()},
        "pair_ngram": _baseline_json(result.pair_ngram),
        **{"source_symbols": result.vocabulary_sizes[0], "target_symbols": result.vocabulary_sizes[1]},
        **{"unknown_source": result.unknown[0], "unknown_target": result.unknown[1]},
        "parameters": result.parameters,
        **{key: result.stop_record[key] for key in ("seconds", "update", "samples")},
        "epochs": result.epochs,
        "attention": {
            statistic.name: [statistic.value, statistic.low, statistic.high] for statistic in result.statistics
        },
        "links": [link._asdict() for link in result.links],
        "config": msgspec.to_builtins(result.system.config),
    }


def _baseline_json(baseline: TranslationBaseline | None) -> dict[str, Any] | None:
    """Return the numbers of the pair n-gram model."""
    if baseline is None:
        return None
    return {"dev": baseline.dev.to_json(), "test": baseline.test.to_json(), "cpu_seconds": baseline.seconds}


def _system_table(results: Sequence[TranslationResult]) -> ReportTable:
    """Return the table of all runs."""
    rows = []
    for result in results:
        for split, scores in (("dev", result.dev), ("test", result.test), ("test, greedy", result.greedy)):
            rows.append([_result_name(result), split, *_score_cells(scores), *_cost_cells(result)])
        if baseline := result.pair_ngram:
            name = f"pair n-gram model, {result.system.name}"
            cells = [*_cost_cells(result)[:2], "–", f"{baseline.seconds:,.0f}"]
            rows += [
                [name, split, *_score_cells(scores), *cells]
                for split, scores in (("dev", baseline.dev), ("test", baseline.test))
            ]
    heads = ["system", "set", "BLEU", "chrF", "exact match", "sources", "references"]
    size_heads = ["vocabulary size", "unknown in the test set", "parameters", "seconds"]
    signatures = f"{results[0].test.bleu.signature}; {results[0].test.chrf.signature}"
    units = "Pairs of numbers are for source and target; seconds are those of the training, or CPU seconds of the fit."
    return ReportTable("Both systems", f"{units} {signatures}", [*heads, *size_heads], rows)


def _score_cells(scores: TranslationScores) -> list[str]:
    """Return the scores of a table row."""
    evaluation = scores.evaluation
    low, high = evaluation.exact_match_ci95
    return [
        f"{scores.bleu.score:.2f}",
        f"{scores.chrf.score:.2f}",
        f"{evaluation.exact_match:.2f} % ({low:.2f} to {high:.2f})",
        f"{scores.num_sources:,}",
        f"{scores.num_references:,}",
    ]


def _cost_cells(result: TranslationResult) -> list[str]:
    """Return sizes and training time of a table row."""
    return [
        f"{result.vocabulary_sizes[0]:,}, {result.vocabulary_sizes[1]:,}",
        f"{result.unknown[0]:.2f} %, {result.unknown[1]:.2f} %",
        f"{result.parameters:,}",
        f"{result.stop_record['seconds']:,.0f}",
    ]


def _report_parts(result: TranslationResult) -> Iterator[ReportPart]:
    """Yield attention as alignment, and example translations."""
    title = f"Attention as alignment: {_result_name(result)}"
    mean = mean_attention_map(result.scored_run.traces)
    if mean is not None:
        caption = "Mean weights over the test set; every source and every target is scaled to ten bins."
        yield ReportFigure(title, caption, to_svg(mean_weights_figure(mean)))
    statistics = [
        f"{statistic.name}: {statistic.value:.3f} {statistic.unit} ({statistic.low:.3f} to {statistic.high:.3f})"
        for statistic in _alignment_statistics(result)
    ]
    yield ReportText(title, "; ".join(statistics) + ".")
    rows = [[link.target, f"{link.frequency:,}", link.source, f"{100 * link.share:.0f} %"] for link in result.links]
    caption = (
        "The most frequent output symbols, each with the source symbol of greatest weight, summed over the test set."
    )
    yield ReportTable(title, caption, ["output symbol", "frequency", "source symbol", "share of the attention"], rows)
    grouped = group_references(result.system.splits.test)
    interval = max(1, len(grouped.sources) // NUM_EXAMPLES)
    scored_run = result.scored_run
    examples = range(0, interval * min(NUM_EXAMPLES, len(grouped.sources)), interval)
    rows = [
        [grouped.sources[n], scored_run.traces[n].output, " / ".join(scored_run.references[n][:3])] for n in examples
    ]
    caption = f"Every {interval}th sentence of the test set with at most three references."
    yield ReportTable(f"Translations: {_result_name(result)}", caption, ["English", "output", "references"], rows)


def _alignment_statistics(result: TranslationResult) -> list[Any]:
    """Return the statistics of attention that describe alignment."""
    names = ("entropy", "monotonicity", "diagonality", "coverage deviation")
    return [statistic for statistic in result.statistics if statistic.name in names]
