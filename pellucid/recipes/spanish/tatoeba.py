"""Sentences of Tatoeba, English and Spanish: as they stand, or as words; with all the translations of a sentence."""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pellucid.config.settings import Config, DataConfig
from pellucid.data.examples import Example, read_examples
from pellucid.data.vocabulary import Vocabulary
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError
from pellucid.evaluation.alignment import AttentionStatistic, summarize_attention
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.metrics import CorpusScore, Evaluation, bleu, chrf, evaluate_examples
from pellucid.files import make_folder, write_text
from pellucid.model.device import use_threads
from pellucid.model.network import parameter_count
from pellucid.recipes.following import train_telling
from pellucid.training.run_folder import load, read_log
from pellucid.training.session import Files
from pellucid.viewer.reports import ScoredRun
from pellucid.worker_pool import ProgressCallback

FOLDER, PARTS = Path("mt-tatoeba-spa-eng") / "derived-split", ("train", "dev", "test")
WORD = re.compile(r"(\s+)|(\w+(?:['’]\w+)*)|([^\w\s])")
JOINER = "▪"
"""Stands on a sign, on the side where no space parts it from what it stands beside."""


class Sentences(NamedTuple):
    """The pairs of the three sets."""

    train: Sequence[Example]
    dev: Sequence[Example]
    test: Sequence[Example]


class Asked(NamedTuple):
    """Different sentences, and all that the set has as a translation of each."""

    sources: list[str]
    references: list[tuple[str, ...]]


def read_sentences(data: Path, samples: int) -> Sentences:
    """The three sets; with `samples`, so many training pairs drawn with a fixed seed, and no more of the others."""
    paths = [data / FOLDER / f"{part}.tsv.gz" for part in PARTS]
    if not all(path.exists() for path in paths):
        raise DataError(
            f"{data / FOLDER} lacks train.tsv.gz, dev.tsv.gz or test.tsv.gz: the sentences are those of "
            "manythings.org/anki (spa-eng), split so that none is in two parts; give their folder with --data"
        )
    every = [read_examples(path, DataConfig()).examples for path in paths]
    if samples:
        every = [random.Random(1).sample(part, min(samples, len(part))) for part in every]
    return Sentences(*every)


def asked_of(pairs: Sequence[Example]) -> Asked:
    """Each source once, with its targets."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        found.setdefault(pair.source, []).append(pair.target)
    return Asked(list(found), [tuple(dict.fromkeys(targets)) for targets in found.values()])


def apart(text: str) -> str:
    """Words and signs with a space between: "¿Eh?" is "¿▪ Eh ▪?". `together` undoes it, but for the width of spaces."""
    words: list[str] = []
    close = False
    for space, word, sign in WORD.findall(text):
        if word:
            if close:
                words[-1] += JOINER
            words.append(word)
        elif sign:
            words.append(JOINER + sign if close else sign)
        close = not space
    return " ".join(words)


def together(words: str) -> str:
    """The text of words that `apart` has parted."""
    return words.replace(f" {JOINER}", "").replace(f"{JOINER} ", "").replace(JOINER, "")


def write_sets(sentences: Sentences, folder: Path, as_words: bool) -> Sentences:
    """The training and development pairs as files that training reads; all sets as it reads them."""
    make_folder(folder)
    shown = Sentences(*([_parted(pair) for pair in part] for part in sentences)) if as_words else sentences
    for name, part in zip(PARTS, shown, strict=True):
        write_text(folder / f"{name}.tsv", "".join(f"{pair.source}\t{pair.target}\n" for pair in part))
    return shown


def _parted(pair: Example) -> Example:
    """A pair as words."""
    return Example(apart(pair.source), apart(pair.target))


BEAM, PAIRS = 5, 40


class System(NamedTuple):
    """One training, for a process of its own."""

    name: str
    config: Config
    train: Path
    dev: Path
    folder: Path
    as_words: bool
    developed: Sequence[Example]
    tested: Sequence[Example]
    """Pairs as training reads them."""


class Worth(NamedTuple):
    """Outputs of one set, beside all translations of each sentence."""

    evaluation: Evaluation
    bleu: CorpusScore
    chrf: CorpusScore
    sentences: int
    references: int

    def told(self) -> dict[str, Any]:
        """Plain values for JSON."""
        rates = self.evaluation.to_dict()
        return {
            **{key: rates[key] for key in ("exact_match", "exact_match_ci95", "symbol_error_rate")},
            **{"bleu": self.bleu.score, "bleu_signature": self.bleu.signature},
            **{"chrf": self.chrf.score, "chrf_signature": self.chrf.signature},
            **{"sentences": self.sentences, "references": self.references},
        }


class Linked(NamedTuple):
    """A written symbol, how often it was written, and what it looked at most, with its share of the weight."""

    written: str
    times: int
    read: str
    share: float


class Outcome(NamedTuple):
    """What came of one training."""

    system: System
    dev: Worth
    test: Worth
    greedy: Worth
    """Of the test set, without a beam."""
    judgement: ScoredRun
    stopped: dict[str, Any]
    passes: float
    """Over the training set."""
    sizes: tuple[int, int]
    """Symbols of the source and of the target vocabulary."""
    unknown: tuple[float, float]
    """Share of the test set's source and target symbols that the vocabulary lacks, in per cent."""
    parameters: int
    links: list[Linked]
    statistics: list[AttentionStatistic]


def conduct(system: System, tell: ProgressCallback) -> Outcome:
    """Train on one thread, or go on, or find it finished; and judge."""
    train_telling(Files(system.train, system.dev), system.folder, system.config, tell)
    tell("decoding, to judge it")
    use_threads(system.config.threads)
    transducer = load(system.folder)
    log = read_log(system.folder)
    _, dev = judged(transducer.with_beam(BEAM), system, system.developed)
    _, greedy = judged(transducer, system, system.tested)
    judgement, test = judged(transducer.with_beam(BEAM), system, system.tested)
    stopped = [record for record in log if record["event"] == "stopped"][-1]
    examples = next(record["examples"] for record in log if record["event"] == "read")  # the training file comes first
    known, cut = transducer.vocabularies, transducer.tokenizers
    sources = [cut.source.split(pair.source) for pair in system.tested]
    targets = [cut.target.split(pair.target) for pair in system.tested]
    return Outcome(
        system=system,
        dev=dev,
        test=test,
        greedy=greedy,
        judgement=judgement,
        stopped=stopped,
        passes=stopped["samples"] / examples,
        sizes=(len(known.source), len(known.target)),
        unknown=(unknown_share(sources, known.source), unknown_share(targets, known.target)),
        parameters=parameter_count(transducer.network),
        links=links_of(judgement.traces, PAIRS),
        statistics=summarize_attention(judgement.traces),
    )


def judged(transducer: Predictor, system: System, pairs: Sequence[Example]) -> tuple[ScoredRun, Worth]:
    """Each different source once: BLEU and chrF of the texts, exact match in symbols, against all its targets."""
    asked = asked_of(pairs)
    traces = transducer.predict(asked.sources)
    scored = score_traces(traces, asked.references, transducer.tokenizers)
    evaluation = evaluate_examples(scored)
    outputs, references = texts_of(traces, asked, system.as_words)
    worth = Worth(
        evaluation,
        bleu(outputs, references),
        chrf(outputs, references),
        len(asked.sources),
        sum(map(len, asked.references)),
    )
    return ScoredRun(transducer, traces, asked.references, scored, evaluation), worth


def texts_of(traces: Sequence[Trace], asked: Asked, as_words: bool) -> tuple[list[str], list[list[str]]]:
    """Outputs and references as a person writes them."""
    read = together if as_words else str
    return [read(trace.output) for trace in traces], [list(map(read, own)) for own in asked.references]


def unknown_share(sequences: Sequence[Sequence[str]], vocabulary: Vocabulary) -> float:
    """The share of symbols that a vocabulary lacks, in per cent."""
    lacking = [symbol not in vocabulary.ids for sequence in sequences for symbol in sequence]
    return 100 * float(np.mean(lacking)) if lacking else 0.0


def links_of(traces: Sequence[Trace], count: int) -> list[Linked]:
    """Attention read as a dictionary: for the commonest written symbols, the source symbol with the most weight.

    Weights are summed over all traces; the share is of the symbol's own sum. The end stands last in a target.
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
        found.append(Linked(written, often, read, weight / sum(weights[written].values())))
    return found
