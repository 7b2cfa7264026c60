"""Recipes that find the wrong letter of a word: typo-faithful, typo-attention and typo-language-model.

N words, S source positions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from pellucid.config.settings import Config
from pellucid.config.toml import to_toml
from pellucid.data.synthetic import VOWELS, Typo, WordList, read_words
from pellucid.decoding.predictor import Predictor
from pellucid.files import make_folder, write_json, write_text
from pellucid.inspection.state_space import Separation, isolation, separation
from pellucid.model.network import parameter_count
from pellucid.recipes.jobs import run_jobs, train_with_progress
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.typos.pointer import PointerExperiment, PointerSizes, PointerTrainingPlan, train_pointer
from pellucid.recipes.typos.report import (
    TypoRun,
    collect_runs,
    embedding_animation_svg,
    embedding_figure,
    report_json,
    report_parts,
    run_lines,
    summary_entries,
)
from pellucid.recipes.typos.training import (
    ALPHABET,
    TypoData,
    TypoExperiment,
    TypoFaithfulResult,
    TypoNetworkSizes,
    TypoTrainingPlan,
    TypoValidation,
    make_typo_data,
    predict_positions,
    predict_post_words,
    run_experiment,
)
from pellucid.reporting.figures import to_svg
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.shapes import Float
from pellucid.training.training_data import TrainingFiles
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import Report, write_report
from pellucid.worker_pool import ProgressCallback

FAITHFUL_NAME, FAITHFUL_TITLE = "typo-faithful", "The wrong letter: the network of 2017"
FAITHFUL_SIZES, FAITHFUL_PLAN = TypoNetworkSizes(), TypoTrainingPlan()
FAITHFUL_INTRODUCTION = """\
Three LSTM layers encode a word with one wrong letter, with two-dimensional letter embeddings. A linear read-out of all
outputs gives one number, which the post calls attention and "sort of a cheat". Three more LSTM layers take one step on
this number, starting from the final states of the first three, and a softmax predicts the wrong position.

As in the post: TensorFlow's LSTM; padding is encoded like letters; the read-out is a single number, no softmax, and
does not depend on the decoder. The post gives neither sizes nor training nor any accuracy. Chosen here: {hidden} units
per layer, words of 3 to {max_length} letters, Adam with a learning rate of {learning_rate:g} and cosine decay to zero,
gradient norm at most {clip_norm:g}, batches of {batch_size} typos, {samples:,} typos in total.

Typos are made from a word list: at a random position a random letter replaces the right one, so that the form is no
word of the list. Test words, one typo each, are not in the training set."""
CLAIMS_CAPTION = """\
According to the post the embedding separates the vowels, and the most frequent letter. Ratio: mean distance from a
vowel to a consonant divided by that between two vowels; p: fraction of all 65,780 sets of five letters with at least
this ratio. Nearest: fraction of vowels whose nearest letter is a vowel (by chance 16 %). Isolation: rank of the most
frequent letter by the distance to its nearest neighbor; rank 1 of 26 is the most isolated."""


def run_faithful(request: RecipeRequest) -> Iterator[str]:
    """Train the network of the blog post with every seed, and measure what the post claims about its letter embedding.

    Writes report.html, report.json and an animation of the embedding per seed to the output folder.

    Args:
        request: The recipe's request; `words` is the word list, and `samples` counts the training typos seen.

    Yields:
        A line per run, a line per seed on the claims, and the path of the report.

    Raises:
        DataError: The word list cannot be read, or has too few words.
        RunError: A file cannot be written.
    """
    words = read_words(request.words, max_length=FAITHFUL_SIZES.max_length)
    make_folder(request.out)
    plan = FAITHFUL_PLAN._replace(samples=request.samples or FAITHFUL_PLAN.samples)
    experiments = [TypoExperiment(request.words, FAITHFUL_SIZES, plan, seed) for seed in range(1, request.seeds + 1)]
    results = list[TypoFaithfulResult]()
    for result in run_jobs(
        run_experiment, [(f"seed {experiment.seed}", experiment) for experiment in experiments], request
    ):
        results.append(result)
        yield from run_lines("three layers of LSTM", collect_runs([_without_embeddings(result)], words))
    runs = collect_runs([_without_embeddings(result) for result in results], words)
    letter = most_frequent_letter(words)
    claims = [_measure_claims(result, letter) for result in results]
    yield from map(_claims_line, claims)
    animations = [embedding_animation_svg(result.embeddings, f"letters, seed {result.seed}") for result in results]
    for result, animation in zip(results, animations, strict=True):
        write_text(request.out / f"film-seed-{result.seed}.svg", animation)
    parts = [*report_parts(runs), *_embedding_parts(results, claims, animations)]
    introduction = FAITHFUL_INTRODUCTION.format(**FAITHFUL_SIZES._asdict(), **plan._asdict())
    report = Report(title=FAITHFUL_TITLE, introduction=introduction, summary=summary_entries(runs), parts=parts)
    write_report(request.out / "report.html", report)
    numbers = {
        "name": FAITHFUL_NAME,
        "words": len(words.words),
        "sizes": FAITHFUL_SIZES._asdict(),
        "plan": plan._asdict(),
    }
    vectors = {f"seed {result.seed}": np.round(result.embeddings[-1], 4).tolist() for result in results}
    write_json(request.out / "report.json", {**numbers, **report_json(runs), "embedding": claims, "vectors": vectors})
    yield f"report: {request.out / 'report.html'}"


def most_frequent_letter(words: WordList) -> str:
    """Return the most frequent letter of a word list; each word counts once.

    Args:
        words: Word list.
    """
    return Counter("".join(words.words)).most_common(1)[0][0]


def vowel_separation(vectors: Float[np.ndarray, "V 2"]) -> Separation:
    """Return the separation of the vowels (a, e, i, o, u) from the other letters a to z in an embedding.

    Args:
        vectors: Embedding of each symbol, in the order of `SYMBOLS`.
    """
    is_vowel = np.array([letter in VOWELS for letter in ALPHABET])
    return separation(vectors[: len(ALPHABET)], is_vowel)


def _measure_claims(result: TypoFaithfulResult, frequent_letter: str) -> dict[str, Any]:
    """Return the measurements of the claims of the post, before and after training."""
    claims: dict[str, Any] = {"seed": result.seed, "most_frequent_letter": frequent_letter}
    for when, vectors in (("before", result.embeddings[0]), ("after", result.embeddings[-1])):
        vowels = vowel_separation(vectors)
        distances, ranks = isolation(vectors[: len(ALPHABET)])
        index = ALPHABET.index(frequent_letter)
        claims[when] = {
            **{"ratio": vowels.ratio, "p": vowels.p, "nearest": vowels.nearest},
            **{"isolation": float(distances[index]), "isolation_rank": int(ranks[index])},
            "median_isolation": float(np.median(distances)),
            "most_isolated": [ALPHABET[letter] for letter in np.argsort(-distances)[:3]],
        }
    return claims


def _claims_line(claims: dict[str, Any]) -> str:
    """Return the line of the claims of one seed."""
    after, before = claims["after"], claims["before"]
    return (
        f"seed {claims['seed']}: vowel separation ratio {after['ratio']:.2f} (p {after['p']:.5f}; before training "
        f"{before['ratio']:.2f}, p {before['p']:.3f}), {100 * after['nearest']:.0f} % of the vowels next to a vowel; "
        f"isolation rank of {claims['most_frequent_letter']} {after['isolation_rank']} of 26"
    )


def _embedding_parts(
    results: Sequence[TypoFaithfulResult], claims: Sequence[dict[str, Any]], animations: Sequence[str]
) -> list[ReportPart]:
    """Return pictures of the letter embedding and the table of the claims."""
    title = "Letter embedding"
    heads = ("seed", "time", "ratio", "p", "nearest", "most frequent letter", "isolation rank", "most isolated")
    rows = [
        (
            *(str(claim["seed"]), f"{when} training", f"{claim[when]['ratio']:.2f}", f"{claim[when]['p']:.5f}"),
            *(f"{100 * claim[when]['nearest']:.0f} %", claim["most_frequent_letter"]),
            *(f"{claim[when]['isolation_rank']} of 26", ", ".join(claim[when]["most_isolated"])),
        )
        for claim in claims
        for when in ("before", "after")
    ]
    final_vectors = [(f"seed {result.seed}", result.embeddings[-1]) for result in results[:3]]
    return [
        ReportFigure(
            title, "After training; vowels are red, pad is the padding.", to_svg(embedding_figure(final_vectors))
        ),
        ReportFigure(
            title, "From the first update to the last, seed 1; the bar at the bottom shows the time.", animations[0]
        ),
        ReportTable(title, " ".join(CLAIMS_CAPTION.split()), heads, rows),
    ]


def _without_embeddings(result: TypoFaithfulResult) -> TypoRun:
    """Return the result without its embeddings."""
    return TypoRun(*(getattr(result, name) for name in TypoRun._fields))


ATTENTION_NAME, ATTENTION_TITLE = "typo-attention", "The wrong letter: pointer attention"
MAX_LETTERS = TypoNetworkSizes().max_length
ATTENTION_INTRODUCTION = """\
The words, typos and tables are those of typo-faithful; the network is that of pellucid train --task point. Two
bidirectional GRU layers encode the word. Additive attention (Bahdanau et al. 2015) compares a query computed from
their last states with the state at each letter, and the softmax over the letters is the prediction: the weight of a
letter is the probability that it is wrong (Vinyals et al. 2015). Padding is masked, and each letter's state encodes
the letters before and after it.

The post calls its own fixed read-out "sort of a cheat" and names real attention as the next step, which this recipe
implements."""


class TypoAttentionJob(NamedTuple):
    """Word list, configuration and output folder of one training of typo-attention."""

    words: Path
    """Word list."""
    folder: Path
    """Output folder of the recipe."""
    config: Config
    samples: int
    """Number of training typos; 0 takes all."""


def run_attention(request: RecipeRequest) -> Iterator[str]:
    """Train one model of `--task point` per seed and evaluate it as typo-faithful does; resume or reuse existing runs.

    Args:
        request: The recipe's request; `words` is the word list, and `samples` the number of training typos.

    Yields:
        A line per run and the path of the report.

    Raises:
        DataError: The word list cannot be read, or has too few words.
        RunError: A run folder holds other files or another run, is in use, or cannot be written; or a training
            diverges.
    """
    words = read_words(request.words, max_length=MAX_LETTERS)
    make_folder(request.out)
    seeds = range(1, request.seeds + 1)
    configs = [load_recipe_config(ATTENTION_NAME, {"seed": seed}) for seed in seeds]
    runs = list[TypoRun]()
    jobs = [
        (f"seed {config.seed}", TypoAttentionJob(request.words, request.out, config, request.samples))
        for config in configs
    ]
    for run in run_jobs(train_attention_model, jobs, request):
        runs.append(run)
        yield from run_lines("attention", collect_runs([run], words))
    typo_runs = collect_runs(runs, words)
    report = Report(
        title=ATTENTION_TITLE,
        introduction=ATTENTION_INTRODUCTION,
        summary=summary_entries(typo_runs),
        config_toml=to_toml(configs[0]),
        parts=report_parts(typo_runs),
    )
    write_report(request.out / "report.html", report)
    numbers = {"name": ATTENTION_NAME, "words": len(words.words), "config": msgspec.to_builtins(configs[0])}
    write_json(request.out / "report.json", {**numbers, **report_json(typo_runs)})
    yield f"report: {request.out / 'report.html'}"


def train_attention_model(job: TypoAttentionJob, on_progress: ProgressCallback) -> TypoRun:
    """Write the typos to files, train a run, or resume or reuse an existing one, and evaluate it; runs in a worker
    process.

    Args:
        job: The training.
        on_progress: Progress callback.

    Returns:
        The training with its predictions.

    Raises:
        DataError: The word list cannot be read, or has too few words.
        RunError: The run folder holds other files or another run, is in use, or cannot be written; or the training
            diverges.
    """
    name = f"seed-{job.config.seed}"
    data = _draw_data(read_words(job.words, max_length=MAX_LETTERS), job, on_progress)
    files, folder = _write_data(data, job.folder / "data" / name), job.folder / "runs" / name
    train_with_progress(files, folder, job.config, on_progress)
    on_progress("predicting for evaluation")
    predictor, log = load(folder), read_log(folder)
    model = partial(attention_probabilities, predictor)
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
        predictions=predict_positions(model, data.test),
        post_probabilities=predict_post_words(model),
    )


def attention_probabilities(predictor: Predictor, words: Sequence[str]) -> Float[np.ndarray, "N S"]:
    """Return the attention weights of each word, which are the probabilities of its positions; zero on padding.

    Args:
        predictor: Predictor of a model of the task point.
        words: The words, each of at most `MAX_LETTERS` letters.
    """
    probabilities = np.zeros((len(words), MAX_LETTERS))
    for row, trace in zip(probabilities, predictor.predict(words), strict=True):
        row[: len(trace.source)] = trace.attention[0]
    return probabilities


def _draw_data(words: WordList, job: TypoAttentionJob, on_progress: ProgressCallback) -> TypoData:
    """Make the typos of the job's seed; report a reduction."""
    data = make_typo_data(words, job.config.seed)
    if not 0 < job.samples < len(data.train):
        return data
    on_progress(f"{job.samples:,} of {len(data.train):,} training typos")
    return data._replace(train=data.train[: job.samples])


def _write_data(data: TypoData, folder: Path) -> TrainingFiles:
    """Write the typos as TSV (form, position, word; the word is not used) and return the files of training."""
    make_folder(folder)
    for split, typos in zip(TypoData._fields, data, strict=True):
        write_text(folder / f"{split}.tsv", "".join(_typo_line(typo) for typo in typos))
    return TrainingFiles(folder / "train.tsv", folder / "dev.tsv")


def _typo_line(typo: Typo) -> str:
    """Return one line of a file."""
    return f"{typo.wrong}\t{typo.position}\t{typo.right}\n"


LANGUAGE_MODEL_NAME, LANGUAGE_MODEL_TITLE = (
    "typo-language-model",
    "The wrong letter: pointer attention over language models",
)
LANGUAGE_MODEL_SIZES, LANGUAGE_MODEL_PLAN = PointerSizes(), PointerTrainingPlan()
LANGUAGE_MODEL_INTRODUCTION = """\
The words, typos and tables are those of typo-faithful and typo-attention. Training has two stages. First, two letter
language models are trained for {language_model_epochs} epochs on the words from which the typos are made; they predict
each letter from the letters before it and from the letters after it. Then the whole network is trained on {samples:,}
typos. The energy of a letter is that of additive attention over an LSTM on the states of both language models, plus
weighted log-probabilities of the language models: of the letters before it, of the letters after it, of the letter
itself, and of each candidate letter in its place.

The target of a typo is both its position and the right letter, among all letters at all positions; the attention
weight of a position is the sum over its letters. Test words are not in the training set of the language models."""


def run_language_model(request: RecipeRequest) -> Iterator[str]:
    """Train one pointer network over two letter language models per seed, and evaluate it as typo-faithful does.

    Args:
        request: The recipe's request; `words` is the word list, and `samples` counts the typos of the second stage.

    Yields:
        A line per run and the path of the report.

    Raises:
        DataError: The word list cannot be read, or has too few words.
        RunError: A file cannot be written.
    """
    words = read_words(request.words, max_length=LANGUAGE_MODEL_SIZES.max_length)
    make_folder(request.out)
    plan = LANGUAGE_MODEL_PLAN._replace(samples=request.samples or LANGUAGE_MODEL_PLAN.samples)
    runs = list[TypoRun]()
    experiments = [
        PointerExperiment(request.words, LANGUAGE_MODEL_SIZES, plan, seed) for seed in range(1, request.seeds + 1)
    ]
    for run in run_jobs(
        train_pointer, [(f"seed {experiment.seed}", experiment) for experiment in experiments], request
    ):
        runs.append(run)
        yield from run_lines("language models", collect_runs([run], words))
    typo_runs = collect_runs(runs, words)
    introduction = LANGUAGE_MODEL_INTRODUCTION.format(**plan._asdict())
    report = Report(
        title=LANGUAGE_MODEL_TITLE,
        introduction=introduction,
        summary=summary_entries(typo_runs),
        parts=report_parts(typo_runs),
    )
    write_report(request.out / "report.html", report)
    numbers = {
        "name": LANGUAGE_MODEL_NAME,
        "words": len(words.words),
        "sizes": LANGUAGE_MODEL_SIZES._asdict(),
        "plan": plan._asdict(),
    }
    write_json(request.out / "report.json", {**numbers, **report_json(typo_runs)})
    yield f"report: {request.out / 'report.html'}"
