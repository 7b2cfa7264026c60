"""English to Spanish on 112,000 pairs of Tatoeba, with words and with subwords: BLEU, chrF, attention as alignment."""

import random
import re
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
from pellucid.evaluation.metrics import CorpusScore, Evaluation, bleu, chrf, evaluate_examples
from pellucid.files import make_folder, write_json, write_text
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.jobs import run_jobs, train_with_progress
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.reporting.figures import mean_weights_figure, to_svg
from pellucid.training.run_folder import load, read_log
from pellucid.training.session import TrainingFiles
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.viewer.reports import ScoredRun, run_report, write_report
from pellucid.worker_pool import ProgressCallback

FOLDER, PARTS = Path("mt-tatoeba-spa-eng") / "derived-split", ("train", "dev", "test")
WORD_PATTERN = re.compile(r"(\s+)|(\w+(?:['’]\w+)*)|([^\w\s])")
JOINER = "▪"
"""Marks a punctuation token on each side without a space."""


class TatoebaPairs(NamedTuple):
    """Pairs of the three splits."""

    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]


class TranslationReferences(NamedTuple):
    """Distinct source sentences with all their translations."""

    sources: list[str]
    references: list[tuple[str, ...]]


def read_tatoeba(data: Path, samples: int) -> TatoebaPairs:
    """Read the three splits.

    Args:
        data: Folder of the data sets.
        samples: Maximum pairs of a split, drawn with a fixed seed; 0 takes all.

    Raises:
        DataError: A file is missing.
    """
    paths = [data / FOLDER / f"{part}.tsv.gz" for part in PARTS]
    if not all(path.exists() for path in paths):
        raise DataError(
            f"{data / FOLDER} lacks train.tsv.gz, dev.tsv.gz or test.tsv.gz: the sentences are those of "
            "manythings.org/anki (spa-eng), split so that none is in two sets; give the data folder with --data"
        )
    every = [read_examples(path, DataConfig()).examples for path in paths]
    if samples:
        every = [random.Random(1).sample(part, min(samples, len(part))) for part in every]
    return TatoebaPairs(*every)


def group_references(pairs: Sequence[Example]) -> TranslationReferences:
    """Return each source once, with its targets."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(pair.source, []).append(pair.target)
    return TranslationReferences(list(found), [tuple(dict.fromkeys(targets)) for targets in found.values()])


def split_words(text: str) -> str:
    """Separate words and punctuation by spaces: "¿Eh?" becomes "¿▪ Eh ▪?".

    `join_words` reverses this, except for the width of spaces.
    """
    words: list[str] = []
    close = False
    for space, word, sign in WORD_PATTERN.findall(text):
        if word:
            if close:
                words[-1] += JOINER
            words.append(word)
        elif sign:
            words.append(JOINER + sign if close else sign)
        close = not space
    return " ".join(words)


def join_words(words: str) -> str:
    """Return the text of words that `split_words` has separated."""
    return words.replace(f" {JOINER}", "").replace(f"{JOINER} ", "").replace(JOINER, "")


def write_pair_files(sentences: TatoebaPairs, folder: Path, as_words: bool) -> TatoebaPairs:
    """Write the splits as TSV files and return them as written."""
    make_folder(folder)
    shown = TatoebaPairs(*([_split_pair(pair) for pair in part] for part in sentences)) if as_words else sentences
    for name, part in zip(PARTS, shown, strict=True):
        write_text(folder / f"{name}.tsv", "".join(f"{pair.source}\t{pair.target}\n" for pair in part))
    return shown


def _split_pair(pair: Example) -> Example:
    """Return a pair as words."""
    return Example(split_words(pair.source), split_words(pair.target))


BEAM_SIZE, NUM_LINKS = 5, 40


class TranslationSystem(NamedTuple):
    """One training, in a worker process."""

    name: str
    config: Config
    train: Path
    dev: Path
    folder: Path
    as_words: bool
    developed: Sequence[Example]
    tested: Sequence[Example]
    """Pairs in the form that training reads."""


class TranslationScores(NamedTuple):
    """Scores of the outputs on one set, against all translations of each sentence."""

    evaluation: Evaluation
    bleu: CorpusScore
    chrf: CorpusScore
    sentences: int
    references: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        rates = self.evaluation.to_dict()
        return {
            **{key: rates[key] for key in ("exact_match", "exact_match_ci95", "symbol_error_rate")},
            **{"bleu": self.bleu.score, "bleu_signature": self.bleu.signature},
            **{"chrf": self.chrf.score, "chrf_signature": self.chrf.signature},
            **{"sentences": self.sentences, "references": self.references},
        }


class AttentionLink(NamedTuple):
    """An output symbol, its frequency, and the source symbol with most of its attention."""

    written: str
    times: int
    read: str
    share: float


class TranslationResult(NamedTuple):
    """Result of a training."""

    system: TranslationSystem
    dev: TranslationScores
    test: TranslationScores
    greedy: TranslationScores
    """Scores on the test set with greedy decoding."""
    judgement: ScoredRun
    stopped: dict[str, Any]
    passes: float
    """Epochs over the training set."""
    sizes: tuple[int, int]
    """Size of the source and of the target vocabulary."""
    unknown: tuple[float, float]
    """Percentage of unknown source and target symbols in the test set."""
    parameters: int
    links: list[AttentionLink]
    statistics: list[AttentionStatistic]


def train_system(system: TranslationSystem, tell: ProgressCallback) -> TranslationResult:
    """Train on one thread and score; resume or reuse an existing run."""
    train_with_progress(TrainingFiles(system.train, system.dev), system.folder, system.config, tell)
    tell("decoding for evaluation")
    use_threads(system.config.threads)
    predictor = load(system.folder)
    log = read_log(system.folder)
    _, dev = score_system(predictor.with_beam(BEAM_SIZE), system, system.developed)
    _, greedy = score_system(predictor, system, system.tested)
    judgement, test = score_system(predictor.with_beam(BEAM_SIZE), system, system.tested)
    stopped = [record for record in log if record["event"] == "stopped"][-1]
    examples = next(record["examples"] for record in log if record["event"] == "read")  # the training file comes first
    known, cut = predictor.vocabularies, predictor.tokenizers
    sources = [cut.source.split(pair.source) for pair in system.tested]
    targets = [cut.target.split(pair.target) for pair in system.tested]
    return TranslationResult(
        system=system,
        dev=dev,
        test=test,
        greedy=greedy,
        judgement=judgement,
        stopped=stopped,
        passes=stopped["samples"] / examples,
        sizes=(len(known.source), len(known.target)),
        unknown=(unknown_share(sources, known.source), unknown_share(targets, known.target)),
        parameters=parameter_count(predictor.network),
        links=attention_links(judgement.traces, NUM_LINKS),
        statistics=summarize_attention(judgement.traces),
    )


def score_system(
    predictor: Predictor, system: TranslationSystem, pairs: Sequence[Example]
) -> tuple[ScoredRun, TranslationScores]:
    """Translate each distinct source once and score it against all its targets.

    BLEU and chrF compare texts, exact match compares symbols.

    Args:
        predictor: Predictor of the trained model.
        system: The system, which tells words from subwords.
        pairs: Pairs of one split.
    """
    grouped = group_references(pairs)
    traces = predictor.predict(grouped.sources)
    scored = score_traces(traces, grouped.references, predictor.tokenizers)
    evaluation = evaluate_examples(scored)
    outputs, references = plain_texts(traces, grouped, system.as_words)
    scores = TranslationScores(
        evaluation,
        bleu(outputs, references),
        chrf(outputs, references),
        len(grouped.sources),
        sum(map(len, grouped.references)),
    )
    return ScoredRun(predictor, traces, grouped.references, scored, evaluation), scores


def plain_texts(
    traces: Sequence[Trace], references: TranslationReferences, as_words: bool
) -> tuple[list[str], list[list[str]]]:
    """Return outputs and references as plain text."""
    read = join_words if as_words else str
    return [read(trace.output) for trace in traces], [list(map(read, own)) for own in references.references]


def unknown_share(sequences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> float:
    """Return the percentage of symbols outside a vocabulary."""
    lacking = [symbol not in vocabulary.ids for sequence in sequences for symbol in sequence]
    return 100 * float(np.mean(lacking)) if lacking else 0.0


def attention_links(traces: Sequence[Trace], count: int) -> list[AttentionLink]:
    """Return the source symbol with most attention for each of the most frequent output symbols.

    Args:
        traces: Decoded outputs with attention weights, which are summed over all traces.
        count: Number of output symbols, including the end symbol.
    """
    times: Counter[str] = Counter()
    weights: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for trace in traces:
        for written, row in zip(trace.target, trace.attention, strict=True):
            times[written] += 1
            for read, weight in zip(trace.source, row.tolist(), strict=True):
                weights[written][read] += weight
    found = []
    for written, often in times.most_common(count):
        ((read, weight),) = weights[written].most_common(1)
        found.append(AttentionLink(written, often, read, weight / sum(weights[written].values())))
    return found


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
split.

The budget is two hours on two cores; each system trains on one thread."""


def run_tatoeba(request: RecipeRequest) -> Iterator[str]:
    """Train and score both systems with every seed; write report.json and report.html."""
    jobs = [(f"{system.name}, seed {system.config.seed}", system) for system in _plan_systems(request)]
    outcomes = []
    for outcome in run_jobs(train_system, jobs, request):
        outcomes.append(outcome)
        title = f"{TITLE}: {_result_name(outcome)}"
        write_report(
            outcome.system.folder / "report.html",
            run_report(outcome.system.folder, outcome.judgement, title, INTRODUCTION),
        )
        yield _result_line(outcome)
    write_json(request.out / "report.json", {"name": NAME, "runs": [_result_json(outcome) for outcome in outcomes]})
    last = outcomes[-1]
    page = run_report(
        last.system.folder, last.judgement, TITLE, f"{INTRODUCTION}\n\nExamples below: {_result_name(last)}."
    )
    summary = [
        (f"BLEU, {_result_name(each)}", f"{each.test.bleu.score:.2f} (test, beam {BEAM_SIZE})") for each in outcomes
    ]
    parts = [_system_table(outcomes), *(part for outcome in outcomes for part in _report_parts(outcome))]
    write_report(request.out / "report.html", replace(page, summary=[*summary, *page.summary], parts=parts))
    yield f"report: {request.out / 'report.html'}"


def _plan_systems(request: RecipeRequest) -> list[TranslationSystem]:
    """Write the pairs and return the systems to train."""
    for name in request.only:
        if name not in SYSTEMS:
            known = ", ".join(SYSTEMS)
            raise InputError(f"{NAME} has no system {quote(name)}{suggest(name, SYSTEMS)} (there are: {known})")
    make_folder(request.out)
    sentences, systems = read_tatoeba(request.data, request.samples), []
    for name in (each for each in SYSTEMS if not request.only or each in request.only):
        folder, as_words = request.out / "data" / name, name == "words"
        seen = write_pair_files(sentences, folder, as_words)
        for seed in range(1, request.seeds + 1):
            settings: dict[str, Any] = {"seed": seed}
            if as_words:
                settings["data"] = {"source_symbols": "words", "target_symbols": "words"}
            systems.append(
                TranslationSystem(
                    name=name,
                    config=load_recipe_config(NAME, settings),
                    train=folder / "train.tsv",
                    dev=folder / "dev.tsv",
                    folder=request.out / "runs" / f"{name}-seed-{seed}",
                    as_words=as_words,
                    developed=seen.dev,
                    tested=seen.test,
                )
            )
    return systems


def _result_name(outcome: TranslationResult) -> str:
    """Return system and seed."""
    return f"{outcome.system.name}, seed {outcome.system.config.seed}"


def _result_line(outcome: TranslationResult) -> str:
    """Return the line of a run."""
    test, seconds = outcome.test, outcome.stopped["seconds"]
    return (
        f"{_result_name(outcome)}: test BLEU {test.bleu.score:.2f}, chrF {test.chrf.score:.2f}, exact match "
        f"{test.evaluation.exact_match:.2f} % (greedy: BLEU {outcome.greedy.bleu.score:.2f}); dev BLEU "
        f"{outcome.dev.bleu.score:.2f}; {outcome.sizes[0]:,} and {outcome.sizes[1]:,} symbols, "
        f"{outcome.unknown[0]:.2f} % and {outcome.unknown[1]:.2f} % of the test set's unknown; {outcome.parameters:,} "
        f"parameters, {outcome.passes:.3g} passes in {seconds:,.0f} s"
    )


def _result_json(outcome: TranslationResult) -> dict[str, Any]:
    """Return the numbers of one run."""
    return {
        **{"system": outcome.system.name, "seed": outcome.system.config.seed, "beam": BEAM_SIZE},
        **{"dev": outcome.dev.to_json(), "test": outcome.test.to_json(), "test_greedy": outcome.greedy.to_json()},
        **{"source_symbols": outcome.sizes[0], "target_symbols": outcome.sizes[1]},
        **{"unknown_source": outcome.unknown[0], "unknown_target": outcome.unknown[1]},
        "parameters": outcome.parameters,
        **{key: outcome.stopped[key] for key in ("seconds", "update", "samples")},
        "passes": outcome.passes,
        "attention": {each.name: [each.value, each.low, each.high] for each in outcome.statistics},
        "links": [link._asdict() for link in outcome.links],
        "config": msgspec.to_builtins(outcome.system.config),
    }


def _system_table(outcomes: Sequence[TranslationResult]) -> ReportTable:
    """Return the table of all runs."""
    rows = []
    for outcome in outcomes:
        for which, scores in (("dev", outcome.dev), ("test", outcome.test), ("test, greedy", outcome.greedy)):
            rows.append([_result_name(outcome), which, *_score_cells(scores), *_cost_cells(outcome)])
    heads = ["system", "set", "BLEU", "chrF", "exact match", "sentences", "translations"]
    more = ["symbols", "unknown in the test set", "parameters", "seconds"]
    signatures = f"{outcomes[0].test.bleu.signature}; {outcomes[0].test.chrf.signature}"
    return ReportTable("Both systems", f"Two numbers are for source and target. {signatures}", [*heads, *more], rows)


def _score_cells(scores: TranslationScores) -> list[str]:
    """Return the scores of a table row."""
    evaluation = scores.evaluation
    low, high = evaluation.exact_match_ci95
    return [
        f"{scores.bleu.score:.2f}",
        f"{scores.chrf.score:.2f}",
        f"{evaluation.exact_match:.2f} % ({low:.2f} to {high:.2f})",
        f"{scores.sentences:,}",
        f"{scores.references:,}",
    ]


def _cost_cells(outcome: TranslationResult) -> list[str]:
    """Return sizes and training time of a table row."""
    return [
        f"{outcome.sizes[0]:,}, {outcome.sizes[1]:,}",
        f"{outcome.unknown[0]:.2f} %, {outcome.unknown[1]:.2f} %",
        f"{outcome.parameters:,}",
        f"{outcome.stopped['seconds']:,.0f}",
    ]


def _report_parts(outcome: TranslationResult) -> Iterator[ReportPart]:
    """Yield attention as alignment, and example translations."""
    title = f"Attention as alignment: {_result_name(outcome)}"
    mean = mean_attention_map(outcome.judgement.traces)
    if mean is not None:
        caption = "Mean weights over the test set; every source and every target is scaled to ten bins."
        yield ReportFigure(title, caption, to_svg(mean_weights_figure(mean)))
    statistics = [
        f"{each.name}: {each.value:.3f} {each.unit} ({each.low:.3f} to {each.high:.3f})"
        for each in _alignment_statistics(outcome)
    ]
    yield ReportText(title, "; ".join(statistics) + ".")
    rows = [[each.written, f"{each.times:,}", each.read, f"{100 * each.share:.0f} %"] for each in outcome.links]
    caption = (
        "The most frequent output symbols, each with the source symbol of greatest weight, summed over the test set."
    )
    yield ReportTable(title, caption, ["written", "times", "looked at", "share of the weight"], rows)
    grouped = group_references(outcome.system.tested)
    every = max(1, len(grouped.sources) // NUM_EXAMPLES)
    judgement = outcome.judgement
    chosen = range(0, every * min(NUM_EXAMPLES, len(grouped.sources)), every)
    lines = [[grouped.sources[n], judgement.traces[n].output, " / ".join(judgement.references[n][:3])] for n in chosen]
    caption = f"Every {every}th sentence of the test set, and up to three of its translations."
    yield ReportTable(
        f"Translations: {_result_name(outcome)}", caption, ["English", "written", "translations of the set"], lines
    )


def _alignment_statistics(outcome: TranslationResult) -> list[Any]:
    """Return the statistics of attention that describe alignment."""
    wanted = ("entropy", "monotonicity", "diagonality", "coverage deviation")
    return [each for each in outcome.statistics if each.name in wanted]
