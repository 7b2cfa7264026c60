"""The model card of a shared model: Markdown, with the YAML header that the Hugging Face Hub reads."""

import json
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from pellucid.config.settings import Config, DataConfig, reads_features
from pellucid.data.validation_split import describe_overlap
from pellucid.data.vocabulary import Vocabulary
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.decoding.confidence import ConfidenceModel
from pellucid.decoding.model_sharing import CardOptions
from pellucid.decoding.trace import Trace
from pellucid.errors import replace_controls
from pellucid.evaluation.risk_control import MAX_ERRORS, conformal_threshold
from pellucid.model.network import parameter_count
from pellucid.reporting.display_text import visible_text
from pellucid.run_folder.identity import required_packages
from pellucid.runtime.support import unsupported_settings
from pellucid.sharing.manifest import PICTURE, ScoreFact, TrainingFacts
from pellucid.sharing.training_facts import accuracy_of_confidence
from pellucid.tasks.registry import get_task
from pellucid.tasks.task import Task
from pellucid.version import __version__

LIBRARY = "pellucid"
TAGS = (LIBRARY, "recurrent-neural-network", "attention", "encoder-decoder")
GREEDY = "greedy search, network alone"
"""Decoding method of the validations during training."""
VALIDATION_SET = "validation set of the training"


class CardContents(NamedTuple):
    """Model, facts and texts of a model card."""

    title: str
    name: str
    """Name of the repository or folder, in the commands of the card."""
    model: BasePredictor
    facts: TrainingFacts
    options: CardOptions
    example: Trace | None
    """Output of the example; None without one."""
    has_picture: bool


def build_hub_card(contents: CardContents) -> str:
    """Return a model card: header, use, data, scores, confidence, attention, limits, license.

    Args:
        contents: Model and facts.
    """
    parts = [
        _header(contents),
        [f"# {_one_line(contents.title)}", "", _summary(contents)],
        _use(contents),
        _intended_use(contents),
        _data(contents),
        _scores(contents),
        _confidence(contents),
        _example(contents),
        _license(contents),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def _header(contents: CardContents) -> list[str]:
    """Return the YAML header. Every value is written as JSON, which YAML contains."""
    options, task = contents.options, _task(contents)
    fields: dict[str, Any] = {
        "license": options.license,
        "language": list(options.languages),
        "library_name": LIBRARY,
        "pipeline_tag": task.settings.pipeline_tag,
        "tags": list(TAGS),
        "datasets": list(options.datasets),
        "metrics": list(dict.fromkeys(score.key for score in _all_scores(contents))),
    }
    lines = [f"{name}: {_yaml(value)}" for name, value in fields.items() if value]
    return ["---", *lines, *_model_index(contents), "---"]


def _model_index(contents: CardContents) -> list[str]:
    """Return the scores as the header has them; none without a score."""
    scores, options = _all_scores(contents), contents.options
    if not scores:
        return []
    metrics = [
        {
            "type": score.key,
            "value": score.value,
            "name": f"{score.name} (%), {_score_method(contents, score)}{_pairs_and_interval(contents, score)}",
        }
        for score in scores
    ]
    dataset = {"name": VALIDATION_SET, "type": options.datasets[0] if options.datasets else "private"}
    task = {"type": _task(contents).settings.pipeline_tag or "other"}
    index = [{"name": contents.title, "results": [{"task": task, "dataset": dataset, "metrics": metrics}]}]
    return [f"model-index: {_yaml(index)}"]


def _yaml(value: Any) -> str:  # noqa: ANN401 (plain values)
    """Return a value as JSON on one line, which is YAML too; texts have no control characters."""
    if isinstance(value, str):
        value = _one_line(value)
    return replace_controls(json.dumps(value, ensure_ascii=False, allow_nan=False))


def _one_line(text: str) -> str:
    """Return a text without line breaks and other control characters."""
    return " ".join(replace_controls(" ".join(text.split())).split())


def _task(contents: CardContents) -> Task:
    """Return the task of the model."""
    return get_task(contents.model.config.task)


def _all_scores(contents: CardContents) -> list[ScoreFact]:
    """Return the scores for the header: of the search of the run if they are known, else of greedy search."""
    scores = {score.key: score for score in contents.facts.scores}
    if (best := _search_score(contents)) is not None:
        scores[best.key] = best
    return list(scores.values())


def _search_score(contents: CardContents) -> ScoreFact | None:
    """Return the share of correct outputs by the search of the model; None if it was not measured."""
    model = _confidence_model(contents)
    return None if model is None else accuracy_of_confidence(model, contents.model.config)


def _confidence_model(contents: CardContents) -> ConfidenceModel | None:
    """Return the fitted confidence; None if there is none, or if it was fitted to outputs of another search."""
    return None if contents.model.no_confidence_reason() else contents.model.confidence


def _pairs_and_interval(contents: CardContents, score: ScoreFact) -> str:
    """Return pairs and interval of a score, where known: ", on 556 pairs, 95 % interval 91.20 to 95.00"."""
    bounds, pairs = _bounds(score), _scored_pairs(contents, score)
    noun = "pair" if pairs == "1" else "pairs"
    return (f", on {pairs} {noun}" if pairs else "") + (f", 95 % interval {bounds}" if bounds else "")


def _summary(contents: CardContents) -> str:
    """Return the architecture and the numbers of networks and parameters."""
    model = contents.model
    members = f"Ensemble of {model.num_networks} networks. " if model.is_ensemble else ""
    each = " in each network" if model.is_ensemble else ""
    count = parameter_count(model.network)
    return f"{members}{_task(contents).describe_architecture(model.config)}. {count:,} parameters{each}."


def _use(contents: CardContents) -> list[str]:
    """Return the packages to install, three lines of Python, and the commands."""
    name = replace_controls(contents.name)
    shell_name = shlex.quote(f"./{name}" if name.startswith("-") else name)
    revision = ', revision="COMMIT"' if "/" in name else ""
    arguments = _python_list(contents.options.example or "TEXT")
    if reads_features(contents.model.config.data):
        arguments += f", {_python_list(contents.options.example_features or 'FEATURES')}"
    lines = [
        "## Use",
        "",
        _requirements(contents.model.config),
        "",
    ]
    lines += ["```python", "import pellucid", ""]
    lines += [f"model = pellucid.from_pretrained({json.dumps(name, ensure_ascii=False)}{revision})"]
    lines += [f"print(model.predict({arguments})[0].output)", "```", ""]
    commands = [f"pellucid predict {shell_name} FILE"]
    if revision:
        lines += ["COMMIT is the hash of a commit of this repository. "]
        commands = [f"pellucid download {shell_name} --revision COMMIT --out model", "pellucid predict model FILE"]
    lines[-1] += "On the command line:"
    return [*lines, "", "```sh", *commands, "```"]


def _requirements(config: Config) -> str:
    """Return the packages that the model needs, as sentences."""
    required = required_packages(config)
    packages = "".join(f" It also needs {text}." for text in required)
    torch = "PyTorch is not needed."
    if reasons := unsupported_settings(config):
        extra = "PyTorch is needed (`pip install 'pellucid[train]'`)"
        torch = f"{extra}: the runtime without PyTorch does not support `{'`, `'.join(reasons)}` of this model."
    return f"Requires the Python package `pellucid`, version {__version__} or later.{packages} {torch}"


def _python_list(text: str) -> str:
    """Return a list of one text in Python."""
    return json.dumps([text], ensure_ascii=False)


def _intended_use(contents: CardContents) -> list[str]:
    """Return intended use and limits."""
    model = contents.model
    default = "Sources like those of the training data. Other text gives outputs without meaning."
    limits = [
        f"* The model knows {len(model.vocabularies.source.symbols):,} source symbols (`vocabulary.json`) and reads "
        "others as unknown.",
        f"* The longest training source has {model.vocabularies.longest_source:,} symbols; longer ones are less "
        "reliable.",
        "* The scores hold only for data like the validation set, which also chose the checkpoint.",
        "* Attention weights show which source positions the model used, not why.",
    ]
    facts = contents.facts
    if overlap := describe_overlap(facts.shared_examples, facts.validation_examples or 0, "the training set"):
        limits.append(f"* {overlap}.")
    if not facts.finished:
        limits.append("* The model was shared before the end of its training.")
    return ["## Intended use and limits", "", contents.options.intended_use.strip() or default, "", *limits]


def _data(contents: CardContents) -> list[str]:
    """Return statistics of the data and of the training."""
    facts, vocabularies, data = contents.facts, contents.model.vocabularies, contents.model.config.data
    rows: list[tuple[str, str]] = [
        ("training pairs", _count(facts.training_examples)),
        ("synthetic pairs", _count(facts.synthetic_examples or None)),
        ("validation pairs", _count(facts.validation_examples)),
        ("columns", _columns(data)),
        ("source symbols", _describe_symbols(vocabularies.source, data.source_symbols)),
        ("target symbols", _describe_symbols(vocabularies.target, data.target_symbols)),
        ("longest source, longest target", f"{vocabularies.longest_source:,}, {vocabularies.longest_target:,}"),
        ("updates until the best validation", _count(facts.updates)),
        ("seed", str(contents.model.config.seed)),
        ("date", _one_line(facts.date)),
        ("software", _one_line(facts.versions)),
    ]
    sets = "".join(
        f"\n* data set: [{name}](https://huggingface.co/datasets/{name})" for name in contents.options.datasets
    )
    table = _table(("quantity", "value"), [row for row in rows if row[1]])
    return ["## Training data", "", *table, *([sets] if sets else [])]


def _columns(data: DataConfig) -> str:
    """Return the names of the columns of sources and targets: "word → pronunciation"; "" if they have numbers only."""
    names = data.source_column, data.target_column
    return "" if any(name.isdecimal() for name in names) else _one_line(" → ".join(names))


def _describe_symbols(vocabulary: Vocabulary, kind: str) -> str:
    """Return the number and the kind of the symbols of one side: "39 (words, separated by spaces)"."""
    explanation = {"words": ", separated by spaces", "ipa": ", letters with their marks"}.get(kind, "")
    return f"{len(vocabulary.symbols):,} ({_one_line(kind)}{explanation})"


def _count(value: int | None) -> str:
    """Return a number with separators; "" for None."""
    return "" if value is None else f"{value:,}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *escaped)]


def _scores(contents: CardContents) -> list[str]:
    """Return the scores on the validation set with their intervals."""
    best = _search_score(contents)
    scores = [*([] if best is None else [best]), *contents.facts.scores]
    if not scores:
        return ["## Scores", "", "The run folder holds no scores."]
    rows = [
        (
            score.name,
            _score_method(contents, score),
            _scored_pairs(contents, score),
            f"{score.value:.2f} %",
            _bounds(score),
        )
        for score in scores
    ]
    head = ("score", "outputs", "pairs", "value", "95 % interval")
    is_measured = best is not None or _decoding_method(contents) == GREEDY
    note = [] if is_measured else ["", f"Not measured: {_decoding_method(contents)}, with which this model predicts."]
    return ["## Scores on the validation set", "", *_table(head, rows), *note]


def _score_method(contents: CardContents, score: ScoreFact) -> str:
    """Return the decoding method of the outputs of a score."""
    return _decoding_method(contents) if score == _search_score(contents) else GREEDY


def _scored_pairs(contents: CardContents, score: ScoreFact) -> str:
    """Return the number of validation pairs of a score: "1,004", or "556 of 1,004"; "" if it is not known."""
    total, model = contents.facts.validation_examples, _confidence_model(contents)
    if model is None or score != _search_score(contents):
        return _count(total)
    return f"{model.num_examples:,}" if total in (None, model.num_examples) else f"{model.num_examples:,} of {total:,}"


def _bounds(score: ScoreFact) -> str:
    """Return the interval of a score for a table."""
    return "" if score.low is None or score.high is None else f"{score.low:.2f} to {score.high:.2f}"


def _decoding_method(contents: CardContents) -> str:
    """Return the decoding method of `predict`."""
    model = contents.model
    if not model.autoregressive:
        return "all networks" if model.is_ensemble else "the network"
    if model.config.search.beam_size == 1 and not model.pair_ngram_weight:
        return GREEDY
    search = f"beam size {model.config.search.beam_size}"
    return f"{search}, with the pair n-gram model" if model.pair_ngram_weight else search


def _confidence(contents: CardContents) -> list[str]:
    """Return the calibration, and the thresholds for accepting outputs without review."""
    model, facts = _confidence_model(contents), contents.facts
    if model is None:
        return []
    lines = [
        "## Confidence",
        "",
        f"Each output has a confidence, the estimated probability that it is correct, fitted to {model.num_examples:,} "
        "validation outputs.",
    ]
    if facts.confidence_error is not None and facts.probability_error is not None:
        lines += [
            f"Expected calibration error on them: {facts.confidence_error:.2f} % for the confidence, "
            f"{facts.probability_error:.2f} % for the probability of the network.",
        ]
    rows = [
        (f"{100 * bound:g} %", "none" if threshold is None else f"{threshold:.5f}")
        for bound in MAX_ERRORS
        for threshold in [conformal_threshold(model, bound)]
    ]
    head = ("share of all outputs that are accepted and wrong, at most", "`--min-confidence`")
    return [*lines, "", *_table(head, rows), "", "The bounds hold on average, for data like the validation set."]


def _example(contents: CardContents) -> list[str]:
    """Return the example with its attention weights."""
    trace = contents.example
    if trace is None:
        return []
    confidence = "" if trace.confidence is None else f"  (confidence {100 * trace.confidence:.1f} %)"
    features = contents.options.example_features
    source = f"{trace.text} ({features})" if features else trace.text
    text = f"{visible_text(source)} → {visible_text(trace.output)}{confidence}"
    lines = ["## Example", "", f"    {_one_line(text)}"]
    if contents.has_picture:
        lines += ["", f"![Attention weights: source horizontally, output vertically]({PICTURE})"]
    return lines


def _license(contents: CardContents) -> list[str]:
    """Return the license of the model."""
    license_id = contents.options.license
    text = f"`{license_id}`" if license_id else "The author names no license; ask before you use the model."
    return ["## License", "", f"{text}", "", "The software, Pellucid, has the license Apache-2.0."]
