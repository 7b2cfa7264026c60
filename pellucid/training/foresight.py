"""What a person should know of a training before it begins: that nothing is to be learnt, or cannot be right."""

from collections.abc import Iterator, Sequence

from pellucid.data.examples import Example
from pellucid.errors import quote
from pellucid.search.predictor import Predictor
from pellucid.tasks.registry import task_of


def foreseen(transducer: Predictor, development: Sequence[Example]) -> Iterator[str]:
    """A sentence for each: one label alone where labels are told apart, and development targets out of reach.

    Out of reach is a target with a symbol that the vocabulary lacks, but where symbols of the source can be copied.
    """
    config, known = transducer.config, frozenset(transducer.vocabularies.target.symbols)
    if (what := task_of(config).labels.label) and len(known) == 1:
        yield f"every training example has the same {what}, {quote(next(iter(known)))}: there is nothing to tell apart"
    if not config.decoder.copying:
        cut, known = transducer.segmenters.target.split, known | {config.data.unscored}
        strange = [symbol for example in development for symbol in sorted(set(cut(example.target)) - known)[:1]]
        if strange:
            others = " or others" if len(set(strange)) > 1 else ""
            held = f"hold {quote(strange[0])}{others}, which training does not teach"
            yield f"{len(strange):,} of {len(development):,} development examples cannot be right: they {held}"
