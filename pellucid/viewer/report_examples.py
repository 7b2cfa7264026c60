"""Examples of reports: outputs drawn with their attention, and lists of errors."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from rapidfuzz.distance import Levenshtein

from pellucid.evaluation.assessment import Assessment
from pellucid.evaluation.confusion import Pair, paired
from pellucid.evaluation.metrics import Scored
from pellucid.look.terminal import NO_ATTENTION, caption_of
from pellucid.look.visible import clusters
from pellucid.search.trace import Trace
from pellucid.viewer.contents import Edit, Item
from pellucid.viewer.items import edits
from pellucid.viewer.report_schema import MarkedText, ReportExample, ReportExamples
from pellucid.viewer.traces import alone_told


@dataclass(frozen=True, eq=False)
class ExampleOutput:
    """Output chosen to be shown, with its references."""

    trace: Trace
    references: tuple[str, ...]
    """Outputs that count as correct; empty where none is known."""
    scored: Scored | None = None
    """Symbols of output and references; where not given, characters or words are compared."""
    others: Sequence[Trace] = ()
    """Further outputs for the same source."""
    group: str = ""
    unscored: str = ""
    """Tag at positions that are not scored."""

    @property
    def correct(self) -> bool:
        """Whether the output is one of the references."""
        if self.scored is not None:
            return self.scored.errors == 0
        return self.trace.output in self.references


def drawn_examples(title: str, outputs: Sequence[ExampleOutput]) -> list[ReportExamples]:
    """Return outputs whose attention is drawn at once, under one caption."""
    if not outputs:
        return []
    attending = [each.trace for each in outputs if each.trace.attention.any()]
    caption = caption_of(attending[0]) if attending else NO_ATTENTION
    return [ReportExamples(title, caption, [_example(each) for each in outputs], listed=False)]


def listed_errors(outputs: Sequence[ExampleOutput], omitted: int = 0) -> list[ReportExamples]:
    """Return wrong outputs as a list; `omitted` further ones are counted in its caption."""
    if not outputs:
        return []
    total = len(outputs) + omitted
    caption = f"The {len(outputs):,} worst of {total:,} (--worst)." if omitted else ""
    return [ReportExamples("Errors", caption, [_example(each) for each in outputs], listed=True)]


def listed_disagreements(
    correct: Assessment, wrong: Assessment, places: Sequence[int], omitted: int
) -> list[ReportExamples]:
    """Return the examples at `places`, of which only the first of two runs is correct."""
    if not places:
        return []
    examples = []
    for at in places:
        first, second = assessed_output(correct, at), _example(assessed_output(wrong, at))
        examples.append(
            ReportExample(
                items=[_item(first), *second.items],
                output=second.output,
                expected=[(first.trace.output, False)],
                edits=second.edits,
                errors=second.errors,
                group=second.group,
            )
        )
    caption = f"The first {len(places):,} of {len(places) + omitted:,}." if omitted else ""
    title = f"{correct.name} correct, {wrong.name} wrong"
    return [ReportExamples(title, caption, examples, True, (correct.name, wrong.name))]


def assessed_output(assessment: Assessment, at: int) -> ExampleOutput:
    """Return one example of an assessment with all of its outputs."""
    answered = assessment.answered
    return ExampleOutput(
        trace=assessment.traces[at],
        references=answered.references[at],
        scored=assessment.scored[at],
        others=answered.outputs[at][1:],
        group=answered.groups[at],
        unscored=assessment.unscored,
    )


def compared_texts(output: ExampleOutput) -> tuple[MarkedText, MarkedText, int | None]:
    """Return output and nearest reference, with their differences marked, and their edit distance.

    Words are compared where the model writes words or parts of words, else characters.
    """
    between = " " if _writes_words(output) else ""
    text, *references = (_cut(each, between) for each in (output.trace.output, *output.references))
    if not references:
        return [(output.trace.output, False)], [], None
    nearest = min(references, key=lambda reference: Levenshtein.distance(text, reference))
    steps = [step for step in Levenshtein.opcodes(text, nearest) if step.tag != "equal"]
    distance = Levenshtein.distance(text, nearest) if output.scored is None else output.scored.errors
    wrote = _marked(text, [(step.src_start, step.src_end) for step in steps], between)
    return wrote, _marked(nearest, [(step.dest_start, step.dest_end) for step in steps], between), distance


def split_tags(written: str, trace: Trace) -> list[str]:
    """Return the tags of a text, cut where the trace's are: what stands between its first two stands between all."""
    n = len(trace.target)
    if n < 2:
        return [written]
    first, breadth = len(trace.target[0]), (len(trace.output) - sum(map(len, trace.target))) // (n - 1)
    between = trace.output[first : first + breadth]
    return written.split(between if between.strip() else None) if between else list(written)


def _example(output: ExampleOutput) -> ReportExample:
    """Return an output as the schema has it."""
    text, reference, distance = compared_texts(output)
    pairs: Iterable[Pair] = paired(output.scored) if output.scored is not None else ()
    return ReportExample(
        items=[_item(output)],
        output=text,
        expected=reference,
        edits=distance,
        errors=[pair for pair in pairs if pair[0] != pair[1]],
        group=output.group,
    )


def _item(output: ExampleOutput) -> Item:
    """Return an output, and further ones of the same source, as the page lists examples."""
    trace, scored = output.trace, output.scored
    return Item(
        text=trace.text,
        features=list(trace.source[: trace.features]),
        traces=[alone_told(each) for each in (trace, *output.others)],
        references=list(output.references),
        edits=_edits(output),
        errors=None if scored is None else scored.errors,
        exact=output.correct if output.references else None,
    )


def _edits(output: ExampleOutput) -> list[Edit]:
    """Return the alignment of an output with its reference, where its steps are the symbols that are compared."""
    trace, scored = output.trace, output.scored
    if not output.references:
        return []
    if trace.per_position:
        return _tag_edits(trace, split_tags(output.references[0], trace), output.unscored)
    if scored is None or scored.output != trace.symbols:
        return []
    return edits(scored.output, scored.reference)


def _tag_edits(trace: Trace, expected: Sequence[str], unscored: str) -> list[Edit]:
    """Return the same of tags, each at its own position; at a tag that is not scored no answer is wrong."""
    found = list[Edit]()
    for at, (tag, predicted) in enumerate(zip(expected, trace.target, strict=False)):
        correct = tag in (predicted, unscored)
        kind: Literal["same", "substitution"] = "same" if correct else "substitution"
        found.append(Edit(kind=kind, written=at, wanted=predicted if correct else tag))
    return found


def _writes_words(output: ExampleOutput) -> bool:
    """Return whether symbols stand apart in the output, or are parts of words longer than a character."""
    symbols, text = output.trace.symbols, output.trace.output
    if not any(" " in each for each in (text, *output.references)):
        return False
    return text == " ".join(symbols) or any(len(clusters(symbol)) > 1 for symbol in symbols)


def _cut(text: str, between: str) -> list[str]:
    """Return the words, or the characters, of a text."""
    return text.split(between) if between and text else list(clusters(text))


def _marked(pieces: Sequence[str], spans: Sequence[tuple[int, int]], between: str) -> MarkedText:
    """Return a text in pieces, those within a span marked."""
    inside = {at for start, stop in spans for at in range(start, stop)}
    marked = list[tuple[str, bool]]()
    for differs, places in groupby(range(len(pieces)), lambda at: at in inside):
        if marked and between:
            marked.append((between, False))
        marked.append((between.join(pieces[at] for at in places), differs))
    return marked
