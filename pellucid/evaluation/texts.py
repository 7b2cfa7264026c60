"""Scores of running texts, outputs of several words: word and character error rates by edits, BLEU and chrF."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pellucid.errors import InputError
from pellucid.evaluation.intervals import Interval, bootstrap_ratio
from pellucid.evaluation.metrics import edit_distance


class Corpus(NamedTuple):
    """A score of all outputs together, and the signature that says exactly how it was computed."""

    score: float
    signature: str


@dataclass(frozen=True)
class TextScores:
    """What outputs are worth as texts. Rates are percentages."""

    word_edit_rate: float
    """Word error rate as speech recognition has it: edit distances over words, summed, over words of references."""
    word_edit_rate_ci95: Interval
    words: int
    """Words of the nearest references."""
    character_error_rate: float
    """The same over characters, spaces included."""
    character_error_rate_ci95: Interval
    bleu: Corpus
    chrf: Corpus

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "word_edit_rate": self.word_edit_rate,
            "word_edit_rate_ci95": list(self.word_edit_rate_ci95),
            "words": self.words,
            "character_error_rate": self.character_error_rate,
            "character_error_rate_ci95": list(self.character_error_rate_ci95),
            "bleu": self.bleu._asdict(),
            "chrf": self.chrf._asdict(),
        }


def text_scores(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> TextScores:
    """Every score of these texts; `InputError` where there is none, or one has no reference.

    Error rates go by the reference nearest in words, or in characters, the first at a tie; words are what white space
    parts, as in the NIST scoring of speech (sclite), without any normalisation. A sum of lengths of 0 counts as 1.
    """
    if not outputs or not all(references):
        raise InputError("texts are scored against references: there is none")
    pairs = list(zip(outputs, references, strict=True))
    words = [_nearest(output.split(), [text.split() for text in own]) for output, own in pairs]
    characters = [_nearest(output, own) for output, own in pairs]
    return TextScores(
        *_rate(words),
        sum(length for _, length in words),
        *_rate(characters),
        bleu=bleu(outputs, references),
        chrf=chrf(outputs, references),
    )


def bleu(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Corpus:
    """Corpus BLEU, 0 to 100: the geometric mean of clipped 1- to 4-gram precisions times the brevity penalty.

    By sacrebleu with its defaults (tokens by 13a, case kept, exponential smoothing). Sources: K. Papineni, S. Roukos,
    T. Ward and W.-J. Zhu (2002), "BLEU: a method for automatic evaluation of machine translation", ACL; M. Post (2018),
    "A call for clarity in reporting BLEU scores", WMT.
    """
    from sacrebleu.metrics.bleu import BLEU  # half a second to import, and only texts need it

    metric = BLEU()
    score = metric.corpus_score(list(outputs), _streams(references)).score
    return Corpus(float(score), str(metric.get_signature()))


def chrf(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Corpus:
    """Corpus chrF2, 0 to 100: the F2 of 1- to 6-grams of characters, by sacrebleu with its defaults.

    Source: M. Popović (2015), "chrF: character n-gram F-score for automatic MT evaluation", WMT.
    """
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    score = metric.corpus_score(list(outputs), _streams(references)).score
    return Corpus(float(score), str(metric.get_signature()))


def _streams(references: Sequence[Sequence[str]]) -> Any:  # noqa: ANN401 (None is taken, but not in sacrebleu's types)
    """References as sacrebleu takes them: the first of every example, then the second, …; None where there is none."""
    most = max(map(len, references))
    return [[own[at] if at < len(own) else None for own in references] for at in range(most)]


def _nearest(output: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[int, int]:
    """The least edit distance to a reference, and that reference's length."""
    found = [(edit_distance(output, reference), len(reference)) for reference in references]
    return min(found, key=lambda pair: pair[0])


def _rate(pairs: Sequence[tuple[int, int]]) -> tuple[float, Interval]:
    """Σ errors / Σ lengths in per cent, with its bootstrap interval over examples."""
    errors, lengths = [error for error, _ in pairs], [length for _, length in pairs]
    return 100 * sum(errors) / max(1, sum(lengths)), bootstrap_ratio(errors, lengths).percent
