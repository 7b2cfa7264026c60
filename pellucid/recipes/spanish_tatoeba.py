"""English to Spanish on 112,000 pairs of Tatoeba, with words and with subwords: BLEU, chrF, attention as alignment."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from pellucid.errors import InputError, quote, suggest
from pellucid.evaluation.alignment import mean_attention_map
from pellucid.files import make_folder, write_json
from pellucid.recipes.following import followed
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.recipes.spanish.tatoeba import BEAM, Outcome, System, Worth, asked_of, conduct, read_sentences, write_sets
from pellucid.reporting.figures import mean_weights_figure, to_svg
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.viewer.reports import run_report, write_report

NAME, TITLE = "spanish-tatoeba", "English to Spanish, with words and with subwords"
SYSTEMS = ("words", "subwords")
SHOWN = 12
INTRODUCTION = """Sentences of Tatoeba (manythings.org/anki, CC BY 2.0), split so that no English and no Spanish
sentence stands in two sets. Pellucid's own network, once with words and signs as symbols (those that stand five times
or more; the others are unknown to it), once with 4,000 subwords of either side, learned by byte-pair encoding from the
training file. All else is the same for both: sizes, passes, rate.

Judged with a beam of 5. Each different English sentence of a set is translated once and scored against all Spanish
sentences that the set has for it; BLEU and chrF are sacrebleu's, of the text as a person writes it. There is no
published number for this split.

The budget is two hours on two cores; either system trains on one thread."""


def run(request: Request) -> Iterator[str]:
    """Train and judge both systems with every seed, side by side; then report.json and report.html."""
    jobs = [(f"{system.name}, seed {system.config.seed}", system) for system in _systems(request)]
    outcomes = []
    for outcome in followed(conduct, jobs, request):
        outcomes.append(outcome)
        title = f"{TITLE}: {_called(outcome)}"
        write_report(
            outcome.system.folder / "report.html",
            run_report(outcome.system.folder, outcome.judgement, title, INTRODUCTION),
        )
        yield _line(outcome)
    write_json(request.out / "report.json", {"name": NAME, "runs": [_told(outcome) for outcome in outcomes]})
    last = outcomes[-1]
    page = run_report(last.system.folder, last.judgement, TITLE, f"{INTRODUCTION}\n\nDrawn below: {_called(last)}.")
    summary = [(f"BLEU, {_called(each)}", f"{each.test.bleu.score:.2f} (test, beam {BEAM})") for each in outcomes]
    parts = [_table(outcomes), *(part for outcome in outcomes for part in _parts(outcome))]
    write_report(request.out / "report.html", replace(page, summary=[*summary, *page.summary], parts=parts))
    yield f"report: {request.out / 'report.html'}"


def _systems(request: Request) -> list[System]:
    """What is to be trained, its pairs written."""
    for name in request.only:
        if name not in SYSTEMS:
            known = ", ".join(SYSTEMS)
            raise InputError(f"{NAME} has no system {quote(name)}{suggest(name, SYSTEMS)} (there are: {known})")
    make_folder(request.out)
    sentences, systems = read_sentences(request.data, request.samples), []
    for name in (each for each in SYSTEMS if not request.only or each in request.only):
        folder, as_words = request.out / "data" / name, name == "words"
        seen = write_sets(sentences, folder, as_words)
        for seed in range(1, request.seeds + 1):
            settings: dict[str, Any] = {"seed": seed}
            if as_words:
                settings["data"] = {"source_symbols": "words", "target_symbols": "words"}
            systems.append(
                System(
                    name=name,
                    config=recipe_config(NAME, settings),
                    train=folder / "train.tsv",
                    dev=folder / "dev.tsv",
                    folder=request.out / "runs" / f"{name}-seed-{seed}",
                    as_words=as_words,
                    developed=seen.dev,
                    tested=seen.test,
                )
            )
    return systems


def _called(outcome: Outcome) -> str:
    """Symbols and seed."""
    return f"{outcome.system.name}, seed {outcome.system.config.seed}"


def _line(outcome: Outcome) -> str:
    """One line of a run."""
    test, seconds = outcome.test, outcome.stopped["seconds"]
    return (
        f"{_called(outcome)}: test BLEU {test.bleu.score:.2f}, chrF {test.chrf.score:.2f}, exact match "
        f"{test.evaluation.exact_match:.2f} % (greedy: BLEU {outcome.greedy.bleu.score:.2f}); dev BLEU "
        f"{outcome.dev.bleu.score:.2f}; {outcome.sizes[0]:,} and {outcome.sizes[1]:,} symbols, "
        f"{outcome.unknown[0]:.2f} % and {outcome.unknown[1]:.2f} % of the test set's unknown; {outcome.parameters:,} "
        f"parameters, {outcome.passes:.3g} passes in {seconds:,.0f} s"
    )


def _told(outcome: Outcome) -> dict[str, Any]:
    """All numbers of one run."""
    return {
        **{"system": outcome.system.name, "seed": outcome.system.config.seed, "beam": BEAM},
        **{"dev": outcome.dev.told(), "test": outcome.test.told(), "test_greedy": outcome.greedy.told()},
        **{"source_symbols": outcome.sizes[0], "target_symbols": outcome.sizes[1]},
        **{"unknown_source": outcome.unknown[0], "unknown_target": outcome.unknown[1]},
        "parameters": outcome.parameters,
        **{key: outcome.stopped[key] for key in ("seconds", "update", "samples")},
        "passes": outcome.passes,
        "attention": {each.name: [each.value, each.low, each.high] for each in outcome.statistics},
        "links": [link._asdict() for link in outcome.links],
        "config": msgspec.to_builtins(outcome.system.config),
    }


def _table(outcomes: Sequence[Outcome]) -> ReportTable:
    """Both systems side by side."""
    rows = []
    for outcome in outcomes:
        for which, worth in (("dev", outcome.dev), ("test", outcome.test), ("test, greedy", outcome.greedy)):
            rows.append([_called(outcome), which, *_scores(worth), *_costs(outcome)])
    heads = ["system", "set", "BLEU", "chrF", "exact match", "sentences", "translations"]
    more = ["symbols", "unknown in the test set", "parameters", "seconds"]
    signatures = f"{outcomes[0].test.bleu.signature}; {outcomes[0].test.chrf.signature}"
    return ReportTable(
        "Both systems", f"Of source and target where two numbers stand. {signatures}", [*heads, *more], rows
    )


def _scores(worth: Worth) -> list[str]:
    """What outputs are worth."""
    evaluation = worth.evaluation
    low, high = evaluation.exact_match_ci95
    return [
        f"{worth.bleu.score:.2f}",
        f"{worth.chrf.score:.2f}",
        f"{evaluation.exact_match:.2f} % ({low:.2f} to {high:.2f})",
        f"{worth.sentences:,}",
        f"{worth.references:,}",
    ]


def _costs(outcome: Outcome) -> list[str]:
    """What a system consists of, and took."""
    return [
        f"{outcome.sizes[0]:,}, {outcome.sizes[1]:,}",
        f"{outcome.unknown[0]:.2f} %, {outcome.unknown[1]:.2f} %",
        f"{outcome.parameters:,}",
        f"{outcome.stopped['seconds']:,.0f}",
    ]


def _parts(outcome: Outcome) -> Iterator[ReportPart]:
    """Attention read as alignment, and translations beside what the set has."""
    title = f"Attention as alignment: {_called(outcome)}"
    mean = mean_attention_map(outcome.judgement.traces)
    if mean is not None:
        caption = "Mean weights over the test set, every source and every target stretched to ten parts."
        yield ReportFigure(title, caption, to_svg(mean_weights_figure(mean)))
    told = [f"{each.name}: {each.value:.3f} {each.unit} ({each.low:.3f} to {each.high:.3f})" for each in _few(outcome)]
    yield ReportText(title, "; ".join(told) + ".")
    rows = [[each.written, f"{each.times:,}", each.read, f"{100 * each.share:.0f} %"] for each in outcome.links]
    caption = "The commonest written symbols, and the source symbol with the most weight, summed over the test set."
    yield ReportTable(title, caption, ["written", "times", "looked at", "share of the weight"], rows)
    asked = asked_of(outcome.system.tested)
    every = max(1, len(asked.sources) // SHOWN)
    judgement = outcome.judgement
    chosen = range(0, every * min(SHOWN, len(asked.sources)), every)
    lines = [[asked.sources[n], judgement.traces[n].output, " / ".join(judgement.references[n][:3])] for n in chosen]
    caption = f"Every {every}th sentence of the test set, and up to three of its translations."
    yield ReportTable(
        f"Translations: {_called(outcome)}", caption, ["English", "written", "translations of the set"], lines
    )


def _few(outcome: Outcome) -> list[Any]:
    """The statistics of attention that alignment is read from."""
    wanted = ("entropy", "monotonicity", "diagonality", "coverage deviation")
    return [each for each in outcome.statistics if each.name in wanted]
