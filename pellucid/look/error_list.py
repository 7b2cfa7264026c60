"""Lists of examples that unfold to their attention, and the script that searches, sorts and narrows them.

Without the script all of a list is there, in its order.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from pellucid.evaluation.assessment import Assessment
from pellucid.evaluation.confusion import paired
from pellucid.look.attention_html import attention_svg, notes_on
from pellucid.look.confusion_table import pair_name
from pellucid.look.page import text
from pellucid.look.report import Shown, compared
from pellucid.look.tagged import tagged_html
from pellucid.look.visible import probability
from pellucid.search.trace import Trace

SCRIPT = """
for (const box of document.querySelectorAll('.errors')) {
  const list = box.querySelector('.list'), rows = [...list.children];
  const [words, kind, order, count] = box.querySelectorAll('.filter > *');
  const show = () => {
    const wanted = words.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = wanted.every(word => row.dataset.text.includes(word)) &&
        (!kind.value || row.dataset.kinds.split(' ').includes(kind.value));
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = shown + ' of ' + rows.length;
  };
  const sort = () => {
    const key = order.value;
    const sorted = key ? [...rows].sort((a, b) => b.dataset[key] - a.dataset[key]) : rows;
    list.append(...sorted);
  };
  words.addEventListener('input', show);
  kind.addEventListener('change', show);
  order.addEventListener('change', sort);
  box.querySelector('.filter').hidden = false;
  show();
}
for (const button of document.querySelectorAll('button[data-find]')) {
  button.addEventListener('click', () => {
    const words = document.querySelector('.errors .filter > input');
    if (!words) return;
    words.value = button.dataset.find.toLowerCase();
    words.dispatchEvent(new Event('input'));
    words.scrollIntoView({block: 'start', behavior: 'smooth'});
  });
}
"""
"""It touches nothing but the lists, and takes nothing from outside."""


class Row(NamedTuple):
    """One line of a list: an example by its cells, already HTML, and what unfolds below."""

    cells: Sequence[str]
    numbers: Sequence[str]
    body: str
    words: str
    """What a search looks through."""
    kinds: Sequence[str]
    values: dict[str, float]
    """What can be sorted by: "edits", "p"."""


def error_rows(assessment: Assessment, places: Iterable[int]) -> list[Row]:
    """The outputs at these places as rows, with their differences marked, and their attention."""
    return [_error(assessment, at) for at in places]


def disagreement_rows(right: Assessment, wrong: Assessment, places: Iterable[int]) -> list[Row]:
    """Examples that one run has right and the other wrong: the one's output, the other's, and both attentions."""
    return [_disagreement(right, wrong, at) for at in places]


def list_html(heads: Sequence[str], numbers: Sequence[str], rows: Sequence[Row]) -> str:
    """The list, with what searches it above."""
    named = "".join(f"<span>{text(head)}</span>" for head in heads)
    named += "".join(f'<span class="n">{text(head)}</span>' for head in numbers)
    options = "".join(f'<option value="{kind}">{kind}s</option>' for kind in ("substitution", "insertion", "deletion"))
    return (
        '<div class="errors">\n<div class="filter" hidden>'
        '<input type="search" placeholder="Search: a word, or a confusion such as a→b" aria-label="search">'
        f'<select aria-label="kind of error"><option value="">all kinds</option>{options}</select>'
        '<select aria-label="order"><option value="">worst first</option><option value="p">surest first</option>'
        '<option value="edits">most edits first</option></select><output></output></div>\n'
        f'<div class="heads"><span></span>{named}</div>\n'
        f'<div class="list">\n{"".join(map(_row, rows))}</div>\n</div>\n'
    )


def _row(row: Row) -> str:
    """One line, closed."""
    cells = "".join(f"<span>{cell}</span>" for cell in row.cells)
    numbers = "".join(f'<span class="n">{number}</span>' for number in row.numbers)
    values = "".join(f' data-{name}="{value:.6g}"' for name, value in row.values.items())
    return (
        f'<details class="error" data-text="{text(row.words.lower())}" data-kinds="{" ".join(row.kinds)}"{values}>'
        f"<summary>{cells}{numbers}</summary><div>{row.body}</div></details>\n"
    )


def _error(assessment: Assessment, at: int) -> Row:
    """One wrong output."""
    trace, scored, references = assessment.traces[at], assessment.scored[at], assessment.answered.references[at]
    output, expected, edits = compared(Shown(trace, references, scored.errors))
    pairs = [pair for pair in paired(scored) if pair[0] != pair[1]]
    kinds = {"insertion" if a is None else "deletion" if b is None else "substitution" for a, b in pairs}
    named = " ".join(pair_name(*pair) for pair in pairs)
    group = assessment.answered.groups[at]
    words = " ".join([trace.text, trace.output, *references, group, named])
    source = _text(trace.text) + (f" <small>{text(group)}</small>" if group else "")
    others = assessment.answered.outputs[at][1:]
    body = f'<p class="note">{text(named)}</p>{_looked(assessment, at)}{_others(others, references)}'
    values = {"edits": float(scored.errors), "p": trace.score}
    return Row((source, output, expected), (edits, probability(trace.score)), body, words, sorted(kinds), values)


def _disagreement(right: Assessment, wrong: Assessment, at: int) -> Row:
    """One example of which one run is right."""
    good, bad, references = right.traces[at], wrong.traces[at], right.answered.references[at]
    row = _error(wrong, at)
    both = "".join(
        f"<div><h4>{text(run.name)}: {mark} {_text(trace.output)} (p = {probability(trace.score)})</h4>"
        f"{_looked(run, at)}</div>"
        for run, trace, mark in ((right, good, "✓"), (wrong, bad, "✗"))
    )
    source, output, _ = row.cells
    cells = (source, _text(good.output), output)
    words = " ".join([row.words, good.output, *references])
    return row._replace(cells=cells, body=f'<div class="two">{both}</div>', words=words)


def _looked(assessment: Assessment, at: int) -> str:
    """The heat map, or the words with their tags; and what it alone would not tell."""
    trace = assessment.traces[at]
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in notes_on(trace))
    if trace.task == "tag":  # the weights of tags say nothing
        return notes + tagged_html(trace, assessment.answered.references[at][0], assessment.unscored)
    return notes + (f'<div class="wide">{attention_svg(trace)}</div>' if trace.target else "")


def _others(traces: Sequence[Trace], references: Sequence[str]) -> str:
    """The further outputs in a line."""
    if not traces:
        return ""
    shown = (
        f"{_text(trace.output)} {'✓ ' if trace.output in references else ''}({probability(trace.score)})"
        for trace in traces
    )
    return f'<p class="note">Then: {" · ".join(shown)}</p>'


def _text(words: str) -> str:
    """A text in its own direction."""
    return f'<bdi dir="auto">{text(words)}</bdi>'
