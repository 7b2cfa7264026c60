"""Settings side by side: what one changes against another, on the same examples and with the same seed."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pellucid.evaluation.comparing import Comparison, compare
from pellucid.recipes.reference.experiment import NAMES, Measure, Reference
from pellucid.recipes.reference.judging import Worth
from pellucid.recipes.reference.run import Run
from pellucid.viewer.report_schema import ReportTable


class Beside(NamedTuple):
    """The runs of one setting and seed against those on the same pairs that they are compared with."""

    setting: str
    other: str
    """The setting of those."""
    who: str
    sets: int
    dev: Comparison
    test: Comparison | None
    """Where every experiment has a test set."""

    def told(self) -> dict[str, Any]:
        """Plain values for JSON; differences are the setting's exact match less the other's."""
        values = {"setting": self.setting, "beside": self.other, "who": self.who, "sets": self.sets}
        return {**values, "dev": self.dev.to_dict(), "test": self.test.to_dict() if self.test else None}


def differences(reference: Reference, runs: Sequence[Run]) -> list[Beside]:
    """Every setting that is compared with another, seed by seed; each set of examples has the same weight."""
    known = {(run.experiment, run.who): run for run in runs}
    pairs = dict[tuple[str, str, str], list[tuple[Run, Run]]]()
    for run in runs:
        experiment = reference.experiment(run.experiment)
        other = known.get((experiment.beside, run.who))
        if other is not None:
            settings = experiment.setting, reference.experiment(other.experiment).setting
            pairs.setdefault((*settings, run.who), []).append((run, other))
    return [_beside(names, own) for names, own in pairs.items()]


def lines_of_differences(reference: Reference, found: Sequence[Beside]) -> Iterator[str]:
    """One line each."""
    for each in found:
        sets = f"{each.sets} set" + "s" * (each.sets > 1)
        told = "; ".join(
            f"{which} {NAMES[reference.measure]} {_difference(reference.measure, comparison)}"
            for which, comparison in (("test", each.test), ("dev", each.dev))
            if comparison is not None
        )
        yield f"{each.setting} against {each.other}, {each.who}, {sets}: {told}"


def table_of_differences(reference: Reference, found: Sequence[Beside]) -> ReportTable:
    """All of them, for the page."""
    name = NAMES[reference.measure]
    caption = (
        f"What a setting adds to the {name} of the other, in points, on the same examples with the same seed: the mean "
        "over the sets, its 95 % interval (paired bootstrap), and how often chance alone does as much (p, paired "
        "permutations). Neither knows of other seeds."
    )
    heads = ["setting", "against", "of", "sets", f"dev {name}", f"test {name}"]
    rows = [
        [
            each.setting,
            each.other,
            each.who,
            f"{each.sets}",
            *(_cell(reference, part) for part in (each.dev, each.test)),
        ]
        for each in found
    ]
    return ReportTable("Setting against setting", caption, heads, rows)


def _beside(names: tuple[str, str, str], pairs: Sequence[tuple[Run, Run]]) -> Beside:
    """The comparison over some pairs of runs."""
    dev = [(run.worths.dev, other.worths.dev) for run, other in pairs]
    tests = [(run.worths.test, other.worths.test) for run, other in pairs]
    tested = [(own, other) for own, other in tests if own is not None and other is not None]
    return Beside(*names, len(pairs), _comparison(dev), _comparison(tested) if len(tested) == len(pairs) else None)


def _comparison(worths: Sequence[tuple[Worth, Worth]]) -> Comparison:
    """The comparison over some sets, each of the same weight."""
    return compare([own.table for own, _ in worths], [other.table for _, other in worths])


def _cell(reference: Reference, comparison: Comparison | None) -> str:
    """A difference, or a dash where there is none."""
    return _difference(reference.measure, comparison) if comparison is not None else "–"


def _difference(measure: Measure, comparison: Comparison) -> str:
    """The difference of the score that is compared, its interval and its p."""
    found = comparison.exact_match.rest if measure == "wer" else comparison.exact_match
    low, high = found.ci95
    return f"{found.difference:+z.2f} ({low:+z.2f} to {high:+z.2f}), p {found.p:.3f}"
