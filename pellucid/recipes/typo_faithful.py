"""Where a word has its wrong letter, by the network of the typo post of 2017."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from pellucid.data.synthetic import VOWELS, WordList, read_words
from pellucid.files import make_folder, write_json, write_text
from pellucid.inspection.state_space import Separation, isolation, separation
from pellucid.recipes.following import followed
from pellucid.recipes.recipe import Request
from pellucid.recipes.typos.networks import LETTER_ROWS, Sizes
from pellucid.recipes.typos.report import (
    Run,
    embedding_figure,
    film_svg,
    lines_of,
    numbers_of,
    parts_of,
    summary_of,
    told,
)
from pellucid.recipes.typos.study import Outcome, Plan, Study, conduct
from pellucid.reporting.figures import to_svg
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import Report, write_report

NAME, TITLE = "typo-faithful", "The wrong letter, as the post of 2017 finds it"
SIZES, PLAN = Sizes(), Plan()
INTRODUCTION = """A word with one wrong letter is read by three layers of LSTM, letter by letter, each letter two
numbers. A fixed linear read-out of all their outputs makes one number, which the post calls attention and "sort of a
cheat"; three more layers of LSTM take one step on it from the state in which the first three ended, and a softmax
says which position is wrong.

Kept as they were: TensorFlow's LSTM; padding read like letters; the read-out not a softmax, not dependent on the
decoder, a single number. The post tells neither sizes nor training nor any accuracy. Chosen here: {hidden} units a
layer, words of 3 to {longest} letters, Adam with a rate of {rate:g} that falls along half a cosine to zero, gradients
shortened to a length of {norm:g}, {batch} typos an update, {samples:,} in all.

The typos are made from a list of words: a position, and a letter there that makes no word of the list. Words that are
tested, one typo each, were not trained on."""
CLAIMS = """The post says of its picture that the embedding separates the vowels, and the commonest letter. Ratio:
the mean distance from a vowel to a consonant over that between two vowels; p: of all 65,780 ways to
choose five letters, the share with at least that ratio. Nearest: vowels whose nearest letter is a vowel
(by chance 16 %). Alone: the rank of the commonest letter by the distance to its nearest neighbour, 1 of
26 being the most alone."""


def run(request: Request) -> Iterator[str]:
    """Train one network a seed, and test what the post says of it."""
    words = read_words(request.words, max_length=SIZES.longest)
    make_folder(request.out)
    plan = PLAN._replace(samples=request.samples or PLAN.samples)
    studies = [Study(request.words, SIZES, plan, seed) for seed in range(1, request.seeds + 1)]
    outcomes = list[Outcome]()
    for outcome in followed(conduct, [(f"seed {study.seed}", study) for study in studies], request):
        outcomes.append(outcome)
        yield from lines_of("three layers of LSTM", told([_run(outcome)], words))
    every = told([_run(outcome) for outcome in outcomes], words)
    common = commonest(words)
    measured = [_measured(outcome, common) for outcome in outcomes]
    yield from (_words(each) for each in measured)
    films = [film_svg(outcome.film, f"letters, seed {outcome.seed}") for outcome in outcomes]
    for outcome, film in zip(outcomes, films, strict=True):
        write_text(request.out / f"film-seed-{outcome.seed}.svg", film)
    parts = [*parts_of(every), *_embedding(outcomes, measured, films)]
    introduction = INTRODUCTION.format(**SIZES._asdict(), **plan._asdict())
    report = Report(title=TITLE, introduction=introduction, summary=summary_of(every), parts=parts)
    write_report(request.out / "report.html", report)
    numbers = {"name": NAME, "words": len(words.words), "sizes": SIZES._asdict(), "plan": plan._asdict()}
    vectors = {f"seed {outcome.seed}": np.round(outcome.film[-1], 4).tolist() for outcome in outcomes}
    write_json(request.out / "report.json", {**numbers, **numbers_of(every), "embedding": measured, "vectors": vectors})
    yield f"report: {request.out / 'report.html'}"


def commonest(words: WordList) -> str:
    """The letter that stands most often in the list."""
    return Counter("".join(words.words)).most_common(1)[0][0]


def vowels_apart(vectors: Float[np.ndarray, "V 2"]) -> Separation:
    """How far the vowels lie apart among the letters a to z."""
    letters = vectors[: len(LETTER_ROWS)]
    return separation(letters, np.array([letter in VOWELS for letter in LETTER_ROWS]))


def _measured(outcome: Outcome, common: str) -> dict[str, Any]:
    """The post's claims in numbers, before training and after."""
    told: dict[str, Any] = {"seed": outcome.seed, "commonest": common}
    for when, vectors in (("before", outcome.film[0]), ("after", outcome.film[-1])):
        apart = vowels_apart(vectors)
        alone, ranks = isolation(vectors[: len(LETTER_ROWS)])
        at = LETTER_ROWS.index(common)
        told[when] = {
            **{"ratio": apart.ratio, "p": apart.p, "nearest": apart.nearest},
            **{"alone": float(alone[at]), "rank_alone": int(ranks[at]), "median_alone": float(np.median(alone))},
            "most_alone": [LETTER_ROWS[place] for place in np.argsort(-alone)[:3]],
        }
    return told


def _words(measured: dict[str, Any]) -> str:
    """One seed's answer to the post's claims."""
    after, before = measured["after"], measured["before"]
    return (
        f"seed {measured['seed']}: vowels apart by {after['ratio']:.2f} (p {after['p']:.5f}; before training "
        f"{before['ratio']:.2f}, p {before['p']:.3f}), {100 * after['nearest']:.0f} % next to a vowel; "
        f"{measured['commonest']} is number {after['rank_alone']} of 26 by how alone it lies"
    )


def _embedding(
    outcomes: Sequence[Outcome], measured: Sequence[dict[str, Any]], films: Sequence[str]
) -> list[ReportPart]:
    """Pictures of the two numbers of each symbol, and what they are worth as evidence."""
    title = "The two numbers of each letter"
    heads = ("seed", "when", "ratio", "p", "nearest", "commonest", "alone: rank", "most alone")
    rows = [
        (
            *(str(each["seed"]), "after training" if when == "after" else "before", f"{each[when]['ratio']:.2f}"),
            *(f"{each[when]['p']:.5f}", f"{100 * each[when]['nearest']:.0f} %", each["commonest"]),
            *(f"{each[when]['rank_alone']} of 26", ", ".join(each[when]["most_alone"])),
        )
        for each in measured
        for when in ("before", "after")
    ]
    ends = [(f"seed {outcome.seed}", outcome.film[-1]) for outcome in outcomes[:3]]
    return [
        ReportFigure(title, "After training; vowels red, pad the padding.", to_svg(embedding_figure(ends))),
        ReportFigure(title, "From the first update to the last, seed 1; the bar below is the time.", films[0]),
        ReportTable(title, " ".join(CLAIMS.split()), heads, rows),
    ]


def _run(outcome: Outcome) -> Run:
    """The outcome without its film."""
    return Run(*outcome[:7])
