"""Where each written symbol truly comes from, in files that tell it: digits spelled out as words."""

from collections.abc import Sequence

from pellucid.data.examples import Example
from pellucid.data.synthetic import digit_spans, spell
from pellucid.evaluation.confusion import aligned
from pellucid.search.trace import Trace

NOWHERE = (0, 0)
"""Of a symbol whose origin is not known, as that of the end."""


def spelled(examples: Sequence[Example]) -> bool:
    """Whether every source of a file is its target, spelled out in words."""
    digits = [each.target for each in examples]
    return bool(digits) and all(
        target.isascii() and target.isdigit() and each.source == spell(target)
        for each, target in zip(examples, digits, strict=True)
    )


def origins(trace: Trace, output: Sequence[str], reference: Sequence[str]) -> list[tuple[int, int]] | None:
    """The positions [first, stop) of each step of an output, aligned with its reference by the fewest edits.

    A wrong symbol comes from where the one that was wanted in its place does. None where the source is no such words.
    """
    spans = digit_spans(trace.source[trace.features :], "".join(reference))
    if spans is None or len(spans) != len(reference):
        return None
    found = [NOWHERE] * len(trace.target)
    step = place = 0
    for wanted, written in aligned(output, reference):
        if wanted is not None and written is not None and step < len(found):
            first, stop = spans[place]
            found[step] = (first + trace.features, stop + trace.features)
        step, place = step + (written is not None), place + (wanted is not None)
    return found
