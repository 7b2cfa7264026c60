"""Recipes that find the wrong letter of a word: typo-faithful, typo-attention and typo-foretold."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from pellucid.config.settings import Config
from pellucid.config.toml import to_toml
from pellucid.data.synthetic import VOWELS, Typo, WordList, read_words
from pellucid.decoding.predictor import Predictor
from pellucid.files import make_folder, write_json, write_text
from pellucid.inspection.state_space import Separation, isolation, separation
from pellucid.model.network import parameter_count
from pellucid.recipes.jobs import run_jobs, train_with_progress
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.typos.pointer import PointerJob, PointerSizes, PointerTrainingPlan, train_pointer
from pellucid.recipes.typos.report import (
    TypoRun,
    collect_runs,
    embedding_figure,
    film_svg,
    report_json,
    report_parts,
    run_lines,
    summary_entries,
)
from pellucid.recipes.typos.training import (
    ALPHABET,
    TypoData,
    TypoNetworkSizes,
    TypoResult,
    TypoStudy,
    TypoTrainingPlan,
    TypoValidation,
    make_typo_data,
    predict_positions,
    predict_post_words,
    run_study,
)
from pellucid.reporting.figures import to_svg
from pellucid.training.run_folder import load, read_log
from pellucid.training.session import TrainingFiles
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import Report, write_report
from pellucid.worker_pool import ProgressCallback

FAITHFUL_NAME, FAITHFUL_TITLE = "typo-faithful", "The wrong letter: the network of 2017"
FAITHFUL_SIZES, FAITHFUL_PLAN = TypoNetworkSizes(), TypoTrainingPlan()
FAITHFUL_INTRODUCTION = """\
A word with one wrong letter is read by three layers of LSTM, letter by letter, with two-dimensional letter
embeddings. A fixed linear read-out of all outputs yields one number, which the post calls attention and "sort of a
cheat". Three more layers of LSTM take one step on it, starting from the final states of the first three, and a
softmax predicts the wrong position.

Kept from the post: TensorFlow's LSTM; padding read like letters; the read-out is no softmax, independent of the
decoder, a single number. The post gives neither sizes nor training nor any accuracy. Chosen here: {hidden} units a
layer, words of 3 to {longest} letters, Adam with a learning rate of {rate:g} and cosine decay to zero, gradient norm
at most {norm:g}, {batch} typos an update, {samples:,} in all.

The typos are made from a word list: a random position, and a letter there that makes no word of the list. Test words,
one typo each, are not in the training set."""
CLAIMS_CAPTION = """\
The post says of its picture that the embedding separates the vowels, and the most frequent letter. Ratio: mean
distance from a vowel to a consonant divided by that between two vowels; p: of all 65,780 ways to choose five letters,
the share with at least that ratio. Nearest: share of vowels whose nearest letter is a vowel (by chance 16 %). Alone:
rank of the most frequent letter by the distance to its nearest neighbor; 1 of 26 is the most isolated."""


def run_faithful(request: RecipeRequest) -> Iterator[str]:
    """Train one network per seed and test the claims of the post."""
    words = read_words(request.words, max_length=FAITHFUL_SIZES.longest)
    make_folder(request.out)
    plan = FAITHFUL_PLAN._replace(samples=request.samples or FAITHFUL_PLAN.samples)
    studies = [TypoStudy(request.words, FAITHFUL_SIZES, plan, seed) for seed in range(1, request.seeds + 1)]
    outcomes = list[TypoResult]()
    for outcome in run_jobs(run_study, [(f"seed {study.seed}", study) for study in studies], request):
        outcomes.append(outcome)
        yield from run_lines("three layers of LSTM", collect_runs([_without_film(outcome)], words))
    every = collect_runs([_without_film(outcome) for outcome in outcomes], words)
    common = most_frequent_letter(words)
    measured = [_measure_claims(outcome, common) for outcome in outcomes]
    yield from (_claims_line(each) for each in measured)
    films = [film_svg(outcome.film, f"letters, seed {outcome.seed}") for outcome in outcomes]
    for outcome, film in zip(outcomes, films, strict=True):
        write_text(request.out / f"film-seed-{outcome.seed}.svg", film)
    parts = [*report_parts(every), *_embedding_parts(outcomes, measured, films)]
    introduction = FAITHFUL_INTRODUCTION.format(**FAITHFUL_SIZES._asdict(), **plan._asdict())
    report = Report(title=FAITHFUL_TITLE, introduction=introduction, summary=summary_entries(every), parts=parts)
    write_report(request.out / "report.html", report)
    numbers = {
        "name": FAITHFUL_NAME,
        "words": len(words.words),
        "sizes": FAITHFUL_SIZES._asdict(),
        "plan": plan._asdict(),
    }
    vectors = {f"seed {outcome.seed}": np.round(outcome.film[-1], 4).tolist() for outcome in outcomes}
    write_json(
        request.out / "report.json", {**numbers, **report_json(every), "embedding": measured, "vectors": vectors}
    )
    yield f"report: {request.out / 'report.html'}"


def most_frequent_letter(words: WordList) -> str:
    """Return the most frequent letter of a word list."""
    return Counter("".join(words.words)).most_common(1)[0][0]


def vowel_separation(vectors: Float[np.ndarray, "V 2"]) -> Separation:
    """Return the separation of the vowels among the letters a to z."""
    letters = vectors[: len(ALPHABET)]
    return separation(letters, np.array([letter in VOWELS for letter in ALPHABET]))


def _measure_claims(outcome: TypoResult, common: str) -> dict[str, Any]:
    """Return the claims of the post in numbers, before and after training."""
    claims: dict[str, Any] = {"seed": outcome.seed, "commonest": common}
    for when, vectors in (("before", outcome.film[0]), ("after", outcome.film[-1])):
        apart = vowel_separation(vectors)
        alone, ranks = isolation(vectors[: len(ALPHABET)])
        at = ALPHABET.index(common)
        claims[when] = {
            **{"ratio": apart.ratio, "p": apart.p, "nearest": apart.nearest},
            **{"alone": float(alone[at]), "rank_alone": int(ranks[at]), "median_alone": float(np.median(alone))},
            "most_alone": [ALPHABET[place] for place in np.argsort(-alone)[:3]],
        }
    return claims


def _claims_line(measured: dict[str, Any]) -> str:
    """Return the claims of one seed as a line."""
    after, before = measured["after"], measured["before"]
    return (
        f"seed {measured['seed']}: vowels apart by {after['ratio']:.2f} (p {after['p']:.5f}; before training "
        f"{before['ratio']:.2f}, p {before['p']:.3f}), {100 * after['nearest']:.0f} % next to a vowel; "
        f"{measured['commonest']} is number {after['rank_alone']} of 26 by how alone it lies"
    )


def _embedding_parts(
    outcomes: Sequence[TypoResult], measured: Sequence[dict[str, Any]], films: Sequence[str]
) -> list[ReportPart]:
    """Return pictures of the letter embedding and the table of the claims."""
    title = "Letter embedding"
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
        ReportFigure(title, "After training; vowels are red, pad is the padding.", to_svg(embedding_figure(ends))),
        ReportFigure(title, "From the first update to the last, seed 1; the bar below shows the time.", films[0]),
        ReportTable(title, " ".join(CLAIMS_CAPTION.split()), heads, rows),
    ]


def _without_film(outcome: TypoResult) -> TypoRun:
    """Return the result without its film."""
    return TypoRun(*outcome[:7])


ATTENTION_NAME, ATTENTION_TITLE = "typo-attention", "The wrong letter: pointer attention"
MAX_LETTERS = TypoNetworkSizes().longest
ATTENTION_INTRODUCTION = """\
The same words, typos and tables as in typo-faithful, for the network of pellucid train --task point: two layers of
bidirectional GRU read the word; a query computed from their last states is compared with the state at each letter
(additive attention, Bahdanau et al. 2015), and the softmax over the letters is the prediction itself: the weight of a
letter is the probability that it is wrong (Vinyals et al. 2015). Padding is masked, and each letter's state encodes
the letters before and after it.

The post calls its own fixed read-out "sort of a cheat" and names real attention as the next step: this recipe takes
it."""


class TypoAttentionJob(NamedTuple):
    """One training, in a worker process."""

    words: Path
    folder: Path
    """Output folder of the recipe."""
    config: Config
    samples: int
    """Number of training typos; 0 takes all."""


def run_attention(request: RecipeRequest) -> Iterator[str]:
    """Train one model per seed and evaluate it as typo-faithful does; resume or reuse existing runs."""
    words = read_words(request.words, max_length=MAX_LETTERS)
    make_folder(request.out)
    seeds = range(1, request.seeds + 1)
    configs = [load_recipe_config(ATTENTION_NAME, {"seed": seed}) for seed in seeds]
    runs = list[TypoRun]()
    jobs = [
        (f"seed {each.seed}", TypoAttentionJob(request.words, request.out, each, request.samples)) for each in configs
    ]
    for done in run_jobs(train_attention_model, jobs, request):
        runs.append(done)
        yield from run_lines("attention", collect_runs([done], words))
    every = collect_runs(runs, words)
    report = Report(
        title=ATTENTION_TITLE,
        introduction=ATTENTION_INTRODUCTION,
        summary=summary_entries(every),
        config_toml=to_toml(configs[0]),
        parts=report_parts(every),
    )
    write_report(request.out / "report.html", report)
    numbers = {"name": ATTENTION_NAME, "words": len(words.words), "config": msgspec.to_builtins(configs[0])}
    write_json(request.out / "report.json", {**numbers, **report_json(every)})
    yield f"report: {request.out / 'report.html'}"


def train_attention_model(job: TypoAttentionJob, tell: ProgressCallback) -> TypoRun:
    """Train on one thread and evaluate; resume or reuse an existing run."""
    tag = f"seed-{job.config.seed}"
    data = _draw_data(read_words(job.words, max_length=MAX_LETTERS), job, tell)
    files, folder = _write_data(data, job.folder / "data" / tag), job.folder / "runs" / tag
    train_with_progress(files, folder, job.config, tell)
    tell("predicting for evaluation")
    predictor, log = load(folder), read_log(folder)
    chances = partial(attention_probabilities, predictor)
    return TypoRun(
        seed=job.config.seed,
        parameters=parameter_count(predictor.network),
        seconds=[record["seconds"] for record in log if record["event"] == "stopped"][-1],
        curve=[
            TypoValidation(record["samples"], record["loss"], record["exact_match"] / 100)
            for record in log
            if record["event"] == "validated"
        ],
        test=data.test,
        answers=predict_positions(chances, data.test),
        examples=predict_post_words(chances),
    )


def attention_probabilities(predictor: Predictor, words: Sequence[str]) -> Float[np.ndarray, "N S"]:
    """Return the attention weights of each word, which are the probabilities of its positions; zero on padding."""
    found = np.zeros((len(words), MAX_LETTERS))
    for row, trace in zip(found, predictor.predict(words), strict=True):
        row[: len(trace.source)] = trace.attention[0]
    return found


def _draw_data(words: WordList, job: TypoAttentionJob, tell: ProgressCallback) -> TypoData:
    """Make the typos of the job's seed; report a reduction."""
    data = make_typo_data(words, job.config.seed)
    if not 0 < job.samples < len(data.train):
        return data
    tell(f"{job.samples:,} of {len(data.train):,} typos to train on")
    return data._replace(train=data.train[: job.samples])


def _write_data(data: TypoData, folder: Path) -> TrainingFiles:
    """Write the typos as TSV (form, position, word; the word is not used) and return the files of training."""
    make_folder(folder)
    for name, part in zip(TypoData._fields, data, strict=True):
        write_text(folder / f"{name}.tsv", "".join(_typo_line(typo) for typo in part))
    return TrainingFiles(folder / "train.tsv", folder / "dev.tsv")


def _typo_line(typo: Typo) -> str:
    """Return one line of a file."""
    return f"{typo.wrong}\t{typo.position}\t{typo.right}\n"


FORETOLD_NAME, FORETOLD_TITLE = "typo-foretold", "The wrong letter: pointer attention over language models"
FORETOLD_SIZES, FORETOLD_PLAN = PointerSizes(), PointerTrainingPlan()
FORETOLD_INTRODUCTION = """\
The same words, typos and tables as in typo-faithful and typo-attention. Typos alone teach attention slowly: each says
of one letter that it is wrong, {samples:,} times in all. So the network first reads the words from which they are
made, for {passes} epochs, and learns two language models that predict each letter from those before it and from those
after it. Then it is trained on typos. The energy of a letter is that of additive attention over an LSTM that reads the
states of both language models, plus weighted log-probabilities of the language models: of the letters before it, of
the letters after it, of the letter itself, and of each candidate letter in its place.

The target of a typo is both its position and the right letter, among all letters at all positions; the attention
weight of a position is the sum over its letters. Test words are not in the training set of the language models."""


def run_foretold(request: RecipeRequest) -> Iterator[str]:
    """Train one network per seed and evaluate it as typo-faithful does."""
    words = read_words(request.words, max_length=FORETOLD_SIZES.longest)
    make_folder(request.out)
    course = FORETOLD_PLAN._replace(samples=request.samples or FORETOLD_PLAN.samples)
    runs = list[TypoRun]()
    jobs = [PointerJob(request.words, FORETOLD_SIZES, course, seed) for seed in range(1, request.seeds + 1)]
    for done in run_jobs(train_pointer, [(f"seed {job.seed}", job) for job in jobs], request):
        runs.append(done)
        yield from run_lines("foretold", collect_runs([done], words))
    every = collect_runs(runs, words)
    introduction = FORETOLD_INTRODUCTION.format(**course._asdict())
    report = Report(
        title=FORETOLD_TITLE, introduction=introduction, summary=summary_entries(every), parts=report_parts(every)
    )
    write_report(request.out / "report.html", report)
    numbers = {
        "name": FORETOLD_NAME,
        "words": len(words.words),
        "widths": FORETOLD_SIZES._asdict(),
        "course": course._asdict(),
    }
    write_json(request.out / "report.json", {**numbers, **report_json(every)})
    yield f"report: {request.out / 'report.html'}"
