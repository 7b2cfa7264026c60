"""The model card: what a run's model is, in Markdown that a person reads first."""

from typing import Any

from pellucid.config import Config, Task
from pellucid.errors import quote
from pellucid.evaluation.metrics import FOLLOWED
from pellucid.model.network import parameter_count
from pellucid.training.loop import Session
from pellucid.version import __version__


def card(session: Session, log: list[dict[str, Any]]) -> str:
    """The card of a session, from its configuration, its vocabularies and its log."""
    best = max(
        (record for record in log if record["event"] == "validated" and record["best"]),
        key=lambda record: record["update"],
        default=None,
    )
    return "\n".join(
        [
            "# A Pellucid model",
            "",
            *_about(session, log),
            "",
            "## Scores on the development data",
            "",
            *(_scores(best, len(session.development), session.config.task) if best else ["No validation was made."]),
            "",
            "## What it cannot know",
            "",
            "It has seen only the symbols in `vocabulary.json`; others are read as unknown. Its attention shows where",
            "it looked, not why it decided. Scores hold for data like the development data and for no other.",
            "",
            "## Use",
            "",
            "`pellucid predict DIR FILE`, or `pellucid.load(DIR).predict([...])`, where DIR is this folder.",
            f"Every setting stands in `config.toml`. Written by Pellucid {__version__}.",
            "",
        ]
    )


def _about(session: Session, log: list[dict[str, Any]]) -> list[str]:
    """Sizes and data."""
    config, vocabularies, progress = session.config, session.transducer.vocabularies, session.progress
    made = next((record["made"] for record in log if record["event"] == "augmented"), 0)
    beside = f", {made:,} of them made up" if made else ""
    return [
        f"{architecture(config)}. {parameter_count(session.transducer.network):,} parameters.",
        "",
        f"* Trained on {session.training.source.sequences:,} examples{beside}: {progress.samples:,} samples in "
        f"{progress.update:,} updates, {progress.seconds:,.0f} seconds, seed {config.seed}.",
        f"* Stopped because {progress.finished}." if progress.finished else "* Training was interrupted.",
        f"* Source: {len(vocabularies.source.symbols)} symbols ({quote(config.data.source_symbols)}), "
        f"longest {vocabularies.longest_source}.",
        f"* Target: {len(vocabularies.target.symbols)} symbols ({quote(config.data.target_symbols)}), "
        f"longest {vocabularies.longest_target}.",
    ]


def architecture(config: Config) -> str:
    """The architecture in a sentence."""
    encoder, decoder = config.encoder, config.decoder
    if config.task != "transduce":
        return _answering(config)
    ways = "both-ways" if encoder.directions == "both" else "forward"
    attention = "without attention" if config.attention.score == "none" else f"with {config.attention.score} attention"
    return (
        f"A recurrent encoder-decoder {attention}: {ways} {encoder.cell.upper()} encoder of {encoder.layers} layer(s) "
        f"of {encoder.hidden_size} units a direction, {decoder.cell.upper()} decoder of {decoder.layers} layer(s) of "
        f"{decoder.hidden_size} units"
    )


def _answering(config: Config) -> str:
    """The same of a network that writes nothing symbol by symbol."""
    encoder, decoder = config.encoder, config.decoder
    widths = " and ".join(map(str, encoder.convolutions))
    before = f"convolutions of {widths} symbols ({encoder.filters} filters each), " if widths else ""
    ways = "both-ways" if encoder.directions == "both" else "forward"
    reads = (
        f"{before}{ways} {encoder.cell.upper()} of {encoder.layers} layer(s) of {encoder.hidden_size} units a direction"
    )
    match config.task:
        case "classify":
            looks = f"{config.attention.score} attention" if config.attention.score != "none" else "no attention"
            steps = f"{decoder.steps} step(s) of a {decoder.cell.upper()} of {decoder.hidden_size} units"
            return f"A classifier: {reads}, read with {looks} by {steps}"
        case "point":
            return f"A pointer: {reads}, one look of {config.attention.score} attention"
        case _:
            return f"A tagger: {reads}, each position tagged from its own state"


def _scores(best: dict[str, Any], examples: int, task: Task) -> list[str]:
    """The best validation."""
    found = [f"{each.name} {best[each.key]:.2f} %" for each in FOLLOWED[task] if each.key in best]
    how = ""
    if task == "transduce":
        found[0] += f" (word error rate {100 - best['exact_match']:.2f} %)"
        how = ", by greedy decoding"
    answer = {"transduce": "symbol", "tag": "tag", "classify": "class", "point": "position"}[task]
    lines = [*found, f"cross-entropy {best['loss']:.4f} a {answer}"]
    return [f"On {examples:,} examples{how}, at update {best['update']:,}:", "", *(f"* {line}" for line in lines)]
