"""Words with their tags in a page: each tag below its word; of a wrong one what was wanted, and below it the answer.

n symbols of a source.
"""

from collections.abc import Iterable, Iterator

from pellucid.look.page import text
from pellucid.look.visible import probability
from pellucid.search.trace import Trace


def tagged_table(mistakes: Iterable[tuple[Trace, str]]) -> Iterator[str]:
    """A table of answers with what was wanted of each."""
    yield (
        '<p class="note">Below each word stands the tag that is wanted and, where the model answered another, that '
        "answer in colour. An underlined word was never seen in training; p is the probability the model gave all its "
        "tags together.</p>\n"
        '<div class="wide"><table class="mistakes tags">\n<thead><tr><th scope="col">words and tags</th>'
        '<th scope="col">wrong</th><th scope="col">p</th></tr></thead>\n<tbody>\n'
    )
    for trace, wanted in mistakes:
        wrong = sum(one != other for one, other in zip(tags_of(wanted, trace), trace.target, strict=False))
        yield (
            f'<tr><th scope="row">{tagged_html(trace, wanted)}</th><td>{wrong}</td>'
            f"<td>{probability(trace.score)}</td></tr>\n"
        )
    yield "</tbody></table></div>\n"


def tagged_html(trace: Trace, wanted: str = "", unscored: str = "") -> str:
    """The source's symbols with their tags, in lines as long as there is room; wrong tags marked.

    `wanted` is a text of n tags, or empty where nothing is known; of `unscored` ones no answer is wrong.
    """
    answers = trace.target
    tags = tags_of(wanted, trace) if wanted else list(answers)
    cells = (
        _cell(word, tag, answer, unscored) for word, tag, answer in zip(_words(trace), tags, answers, strict=False)
    )
    return f'<p class="tagged" dir="auto">{"".join(cells)}</p>'


def _words(trace: Trace) -> list[str]:
    """The symbols as HTML, those that were never seen in training underlined."""
    shown = [f"<bdi>{text(word)}</bdi>" for word in trace.source]
    for place in trace.unknown:
        shown[place] = f"<u>{shown[place]}</u>"
    return shown[trace.features :]


def tags_of(written: str, trace: Trace) -> list[str]:
    """The tags of a text, cut where the trace's are: what stands between its first two stands between all."""
    n = len(trace.target)
    if n < 2:
        return [written]
    first, breadth = len(trace.target[0]), (len(trace.output) - sum(map(len, trace.target))) // (n - 1)
    between = trace.output[first : first + breadth]
    return written.split(between if between.strip() else None) if between else list(written)


def _cell(word: str, wanted: str, answer: str, unscored: str) -> str:
    """One symbol, already HTML, and its tags."""
    wrong = wanted not in (answer, unscored)
    answered = f"<mark>{text(answer)}</mark>" if wrong else ""
    return f"<span>{word}<small>{text(wanted)}</small>{answered}</span> "
