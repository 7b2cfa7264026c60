"""Every experiment with every seed, and the report of them: tables, means, report.json and report.html."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pellucid.evaluation.metrics import ConfidenceInterval, Evaluation
from pellucid.evaluation.outcomes import MeanRates, macro_average
from pellucid.evaluation.significance import RunComparison, compare_outcomes
from pellucid.files import write_json
from pellucid.model.network import parameter_count
from pellucid.recipes.experiments import (
    BEAM,
    NAMES,
    Experiment,
    Measure,
    Reference,
    Run,
    Together,
    Training,
    Worth,
    Worths,
    judged,
    read_pairs,
    together_name,
    trainings,
)
from pellucid.recipes.following import followed, train_telling
from pellucid.recipes.recipe import Request
from pellucid.training.run_folder import load, read_log
from pellucid.training.session import Files
from pellucid.viewer.report_parts import example_parts
from pellucid.viewer.report_schema import ReportExamples, ReportTable
from pellucid.viewer.reports import Report, run_report, write_report
from pellucid.worker_pool import ProgressCallback


class Beside(NamedTuple):
    """The runs of one setting and seed against those on the same pairs that they are compared with."""

    setting: str
    other: str
    """The setting of those."""
    who: str
    sets: int
    dev: RunComparison
    test: RunComparison | None
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


def _comparison(worths: Sequence[tuple[Worth, Worth]]) -> RunComparison:
    """The comparison over some sets, each of the same weight."""
    return compare_outcomes([own.table for own, _ in worths], [other.table for _, other in worths])


def _cell(reference: Reference, comparison: RunComparison | None) -> str:
    """A difference, or a dash where there is none."""
    return _difference(reference.measure, comparison) if comparison is not None else "–"


def _difference(measure: Measure, comparison: RunComparison) -> str:
    """The difference of the score that is compared, its interval and its p."""
    found = comparison.exact_match.complement if measure == "wer" else comparison.exact_match
    low, high = found.ci95
    return f"{found.difference:+z.2f} ({low:+z.2f} to {high:+z.2f}), p {found.p:.3f}"


class Macro(NamedTuple):
    """Means over sets, each of the same weight."""

    setting: str
    who: str
    """Of which seed, or how many as an ensemble; before it the setting, where there is one."""
    dev: MeanRates
    developed: int
    """Development sets."""
    test: MeanRates | None
    tested: int
    """Test sets: those with a published number, where there are any."""
    published: float | None
    """The mean of the published numbers of the same sets."""

    @property
    def mean(self) -> bool:
        """Whether it says more than a row of its own does: but for settings, the mean of one set is told, too."""
        return self.developed > 1 or not self.setting

    def told(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = {"who": self.who, "dev_sets": self.developed, "dev": self.dev.to_dict(), "test_sets": self.tested}
        return {**values, "test": self.test.to_dict() if self.test else None, "published": self.published}


def row_of_run(reference: Reference, run: Run) -> str:
    """One line of a run."""
    trained = f"{run.epochs:.3g} epochs in {run.stopped['seconds']:,.0f} s"
    return f"{_row(reference, run)}; {run.parameters:,} parameters, {trained}"


def row_of_together(reference: Reference, together: Together) -> str:
    """One line of an ensemble."""
    return _row(reference, together)


def lines_told(
    reference: Reference, runs: Sequence[Run], ensembles: Sequence[Together], found: Sequence[Beside]
) -> Iterator[str]:
    """What the rows come to: the means, then the differences between settings."""
    yield from _lines_of_macros(reference, runs, ensembles)
    yield from lines_of_differences(reference, found)


def _lines_of_macros(reference: Reference, runs: Sequence[Run], ensembles: Sequence[Together]) -> Iterator[str]:
    """The means over a setting's experiments: of each seed, of all seeds, of the ensembles; none over one alone."""
    for macro in macros(reference, runs, ensembles):
        if macro.mean:
            yield _macro_line(reference, macro)
    singles = dict[str, list[Macro]]()
    for macro in macros(reference, runs, []):
        singles.setdefault(macro.setting, []).append(macro)
    for setting, own in singles.items():
        if len(own) > 1 and own[0].mean:
            values = [value_of(reference.measure, macro.test or macro.dev) for macro in own]
            which = "test" if own[0].test else "dev"
            spread = f"{min(values):.2f} to {max(values):.2f}"
            mean = f"{which} {_name(reference)} {statistics.mean(values):.2f} ({spread})"
            yield f"macro, {f'{setting}, ' if setting else ''}mean of {len(values)} seeds: {mean}"


def macros(reference: Reference, runs: Sequence[Run], ensembles: Sequence[Together]) -> list[Macro]:
    """The means over the experiments of each setting: of each seed, and of the ensembles."""
    own: dict[tuple[str, str], list[Run | Together]] = {}
    every: list[Run | Together] = [*runs, *ensembles]
    for each in every:
        own.setdefault((reference.experiment(each.experiment).setting, each.who), []).append(each)
    return [_macro(reference, named, group) for named, group in own.items()]


def write_reports(
    reference: Reference,
    request: Request,
    runs: Sequence[Run],
    ensembles: Sequence[Together],
    found: Sequence[Beside],
) -> str:
    """Write report.json and report.html; the line that says where."""
    means = macros(reference, runs, ensembles)
    names = list(dict.fromkeys(run.experiment for run in runs))
    numbers = {
        **{"name": reference.name, "title": reference.title, "measure": reference.measure, "beam": BEAM},
        **{"seeds": request.seeds, "samples": request.samples},
        "experiments": [_told(reference.experiment(name), runs, ensembles) for name in names],
        "macro": [macro.told() for macro in means],
        "differences": [each.told() for each in found],
    }
    write_json(request.out / "report.json", numbers)
    write_report(request.out / "report.html", _page(reference, runs, ensembles, means, found))
    return f"report: {request.out / 'report.html'}"


def value_of(measure: Measure, scores: Evaluation | MeanRates) -> float:
    """The score that is compared."""
    value: float = getattr(scores, measure)
    return value


def _interval(measure: Measure, scores: Evaluation | MeanRates) -> str:
    """Its 95 % interval."""
    interval: ConfidenceInterval = getattr(scores, f"{measure}_ci95")
    return f"{interval.low:.2f} to {interval.high:.2f}"


def _name(reference: Reference) -> str:
    """How the score is called."""
    return NAMES[reference.measure]


def _row(reference: Reference, told: Run | Together) -> str:
    """Name, seed, scores on both sets, and what is published."""
    dev, test = told.worths
    parts = [_scores(reference, "dev", dev)]
    if test is not None:
        published = [
            f"{system} {value:.2f}" for system, value in reference.experiment(told.experiment).published.items()
        ]
        beside = f" [published: {', '.join(published)}]" if published else ""
        parts.insert(0, _scores(reference, "test", test) + beside)
    return f"{told.experiment}, {told.who}: {'; '.join(parts)}"


def _scores(reference: Reference, which: str, worth: Worth) -> str:
    """The scores on one set."""
    evaluation, measure = worth.evaluation, reference.measure
    among = "".join(f", {each.k}-best {each.accuracy:.2f}" for each in worth.among[1:])
    value, interval = value_of(measure, evaluation), _interval(measure, evaluation)
    return f"{which} {_name(reference)} {value:.2f} ({interval}){among}, SER {evaluation.symbol_error_rate:.2f}"


def _macro(reference: Reference, named: tuple[str, str], group: Sequence[Run | Together]) -> Macro:
    """The means over some experiments."""
    setting, who = named
    dev = macro_average([each.worths.dev.table for each in group])
    tested = [(reference.experiment(each.experiment), each.worths.test) for each in group if each.worths.test]
    compared = [(experiment, worth) for experiment, worth in tested if experiment.published]
    numbers = [next(iter(experiment.published.values())) for experiment, _ in compared]
    used = compared or tested
    return Macro(
        setting=setting,
        who=f"{setting}, {who}" if setting else who,
        dev=dev,
        developed=len(group),
        test=macro_average([worth.table for _, worth in used]) if used else None,
        tested=len(used),
        published=statistics.mean(numbers) if numbers else None,
    )


def _macro_line(reference: Reference, macro: Macro) -> str:
    """One line of means."""
    measure, parts = reference.measure, list[str]()
    if macro.test is not None:
        beside = f" [published: {macro.published:.2f}]" if macro.published is not None else ""
        sets = f"{macro.tested} test set" + "s" * (macro.tested > 1)
        value = f"{_name(reference)} {value_of(measure, macro.test):.2f} ({_interval(measure, macro.test)})"
        parts.append(f"{value} over {sets}{beside}")
    sets = f"{macro.developed} dev set" + "s" * (macro.developed > 1)
    parts.append(f"{value_of(measure, macro.dev):.2f} ({_interval(measure, macro.dev)}) over {sets}")
    return f"macro, {macro.who}: {'; '.join(parts)}"


def _told(experiment: Experiment, runs: Sequence[Run], ensembles: Sequence[Together]) -> dict[str, Any]:
    """All numbers of one experiment."""
    own = [run for run in runs if run.experiment == experiment.name]
    together = [each for each in ensembles if each.experiment == experiment.name]
    told: dict[str, Any] = {"name": experiment.name, "published": dict(experiment.published)}
    told["runs"] = [_told_run(run) for run in own]
    told["ensemble"] = {"members": together[0].members, **_told_worths(together[0].worths)} if together else None
    return told


def _told_run(run: Run) -> dict[str, Any]:
    """All numbers of one run."""
    counted = {"seconds": run.stopped["seconds"], "updates": run.stopped["update"], "samples": run.stopped["samples"]}
    settings = {"epochs": run.epochs, "parameters": run.parameters, "config": msgspec.to_builtins(run.config)}
    return {"seed": run.config.seed, **_told_worths(run.worths), **counted, **settings}


def _told_worths(worths: Worths) -> dict[str, Any]:
    """The scores on both sets."""
    return {"dev": worths.dev.told(), "test": worths.test.told() if worths.test is not None else None}


def _page(
    reference: Reference,
    runs: Sequence[Run],
    ensembles: Sequence[Together],
    means: Sequence[Macro],
    found: Sequence[Beside],
) -> Report:
    """The table beside what is published; decodings and mistakes of the first run."""
    every: list[Run | Together] = [*runs, *ensembles]
    rows = [row for each in every for row in _cells(reference, each)]
    candidates = [f"{k}-best" for k in range(2, reference.candidates + 1)]
    heads = ["experiment", "of", "set", _name(reference), "95 %", *candidates, "SER", "seconds", "published"]
    lines = [f"{_macro_line(reference, macro)}." for macro in means if macro.mean]
    beside = [table_of_differences(reference, found)] if found else []
    first = runs[0]
    introduction = f"{reference.introduction}\n\nDrawn below: {first.experiment}, {first.who}."
    summary = [_summary(reference, macro) for macro in means]
    return replace(
        first.report,
        title=reference.title,
        introduction=introduction,
        summary=summary,
        log=(),
        parts=[ReportTable("All runs", " ".join(lines), heads, rows), *beside, *_drawn(reference, runs)],
    )


def _drawn(reference: Reference, runs: Sequence[Run]) -> Iterator[ReportExamples]:
    """The decodings of the first run of each further experiment that is drawn, with their attention."""
    firsts = dict[str, Run]()
    for run in runs:
        firsts.setdefault(run.experiment, run)
    for name, run in firsts.items():
        if reference.drawn and name != runs[0].experiment:
            yield from example_parts(f"Attention: {name}, {run.who}", run.report.examples)


def _summary(reference: Reference, macro: Macro) -> tuple[str, str]:
    """The mean of one seed or of the ensembles, large."""
    scores, which = (macro.test, "test") if macro.test else (macro.dev, "dev")
    beside = f"; published {macro.published:.2f}" if macro.published is not None else ""
    value = f"{value_of(reference.measure, scores):.2f} %"
    return f"{'macro ' if macro.mean else ''}{which} {_name(reference)}", f"{value} ({macro.who}{beside})"


def _cells(reference: Reference, told: Run | Together) -> Iterator[list[str]]:
    """A row of the table for each set."""
    seconds = f"{told.stopped['seconds']:,.0f}" if isinstance(told, Run) else "–"
    for which, worth in zip(("dev", "test"), told.worths, strict=True):
        if worth is None:
            continue
        published = reference.experiment(told.experiment).published if which == "test" else {}
        beside = ", ".join(f"{system} {value:.2f}" for system, value in published.items()) or "–"
        value, interval = value_of(reference.measure, worth.evaluation), _interval(reference.measure, worth.evaluation)
        among = [f"{each.accuracy:.2f}" for each in worth.among[1:]]
        error = f"{worth.evaluation.symbol_error_rate:.2f}"
        yield [told.experiment, told.who, which, f"{value:.2f}", interval, *among, error, seconds, beside]


class Job(NamedTuple):
    """One training and its judgement, for a process of its own."""

    training: Training
    candidates: int
    title: str
    introduction: str


def run_reference(reference: Reference, request: Request) -> Iterator[str]:
    """Train and judge what is asked for; a line as each is done, then the means, report.json and report.html."""
    asked = [[_job(reference, each) for each in of_seed] for of_seed in trainings(reference, request)]
    named = [(job.training.name, job) for of_seed in asked for job in of_seed]
    runs, ensembles = [], []
    for run in followed(conduct, named, request):
        yield row_of_run(reference, run)
        runs.append(run)
    if request.seeds > 1:
        members = [(together_name([job.training for job in jobs]), jobs) for jobs in zip(*asked, strict=True)]
        for together in followed(conduct_together, members, request):
            yield row_of_together(reference, together)
            ensembles.append(together)
    found = differences(reference, runs)
    yield from lines_told(reference, runs, ensembles, found)
    yield write_reports(reference, request, runs, ensembles, found)


def conduct(job: Job, tell: ProgressCallback) -> Run:
    """Train on one thread, or go on, or find it finished; and judge. The run folder gets a page of its own."""
    experiment, config, paths, folder = job.training
    train_telling(Files(paths.train, paths.dev), folder, config, tell)
    tell("decoding, to judge it")
    transducer = load(folder)
    judgement, dev = judged(transducer, read_pairs(paths.dev, config), job.candidates)
    test = None
    if paths.test is not None:
        judgement, test = judged(transducer, read_pairs(paths.test, config), job.candidates)
    report = run_report(folder, judgement, job.title, job.introduction)
    write_report(folder / "report.html", report)
    log = read_log(folder)
    stopped = [record for record in log if record["event"] == "stopped"][-1]
    examples = next(record["examples"] for record in log if record["event"] == "read")  # the training file comes first
    return Run(
        experiment=experiment,
        config=config,
        worths=Worths(dev, test),
        stopped=stopped,
        epochs=stopped["samples"] / examples,
        parameters=parameter_count(transducer.network),
        report=report,
    )


def conduct_together(jobs: Sequence[Job], tell: ProgressCallback) -> Together:
    """The runs of one experiment as an ensemble, judged."""
    first = jobs[0].training
    tell("decoding, to judge it")
    transducer = load([job.training.folder for job in jobs])

    def worth(path: Path) -> Worth:
        """On one set."""
        return judged(transducer, read_pairs(path, first.config), jobs[0].candidates)[1]

    test = worth(first.paths.test) if first.paths.test is not None else None
    return Together(first.experiment, len(jobs), Worths(worth(first.paths.dev), test))


def _job(reference: Reference, training: Training) -> Job:
    """A training, and what its page says of it."""
    title = f"{reference.title}: {training.name}"
    return Job(training, reference.candidates, title, reference.introduction)
