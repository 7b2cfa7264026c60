"""pellucid tune TRAIN DEV --out DIR [--trials N] [--minutes M] [--jobs J] [--space FILE] [flags]"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from pellucid.cli.arguments import SettingFlags, config_from_flags, default_settings, parse_arguments
from pellucid.cli.messages import handle_sigint, say
from pellucid.cli.sources import count_noun
from pellucid.cli.train import report_interruption
from pellucid.config.settings import Amount, Config, Count, Limit
from pellucid.config.toml import flatten_config, preset
from pellucid.config.validation import unused_settings
from pellucid.errors import InputError

if TYPE_CHECKING:
    from pellucid.reporting.progress import MultiProgress
    from pellucid.tuning.search import StudyFinished, StudyRequest, TuneEvent

LISTED = 5
"""Trials and settings that are listed at the end."""


@dataclass(frozen=True, kw_only=True)
class TuneArguments(SettingFlags):
    """Search the settings that suit the data best, or go on with a search.

    Each trial trains with settings of its own and is judged on DEV by --training.metric. The first takes the settings
    that are given: preset, TOML file, flags, as for train. The same command goes on with a search that was stopped.
    """

    train: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRAIN")]
    """Training pairs, as for train."""
    valid: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="VALID")]
    """Pairs to judge the trials by."""
    out: Path
    """Folder of the search; created, or gone on with."""
    trials: Count = 30
    """Trials in all, those of earlier calls included."""
    minutes: Amount = 0.0
    """Stop after so many minutes, to go on at the next call; 0 goes on until all trials are made."""
    jobs: Limit = 0
    """Trials made at once; 0 takes as many as the cores allow (one, on a GPU)."""
    space: Path | None = None
    """TOML file that says what is searched."""
    prune: Literal["median", "halving", "none"] = "median"
    """What ends a hopeless trial early: the median of those before, successive halving, or nothing."""
    train_target: Path | None = None
    """The targets of TRAIN, line by line, where they are in a file of their own."""
    valid_target: Path | None = None
    """The targets of DEV, likewise."""


def main(arguments: list[str]) -> int:
    """Search, telling how it goes on standard error and what came of it on standard output."""
    given = parse_tune_arguments(arguments)
    config = config_from_flags(given)
    if find_spec("optuna") is None:
        raise InputError("tune needs Optuna, which is not installed: pip install 'pellucid[tune]'")
    from pellucid.reporting.progress import multi_progress
    from pellucid.tuning.search import StudyFinished, tune

    with handle_sigint() as interruption, multi_progress() as seen:
        request = _study_request(given, config, seen)
        interruption.training = True
        events = tune(request)
        for event in events:
            if event is not None:
                _report_event(seen, event, request)
            if isinstance(event, StudyFinished):
                over = event
            elif interruption.requested:
                events.close()
                return report_interruption(given.out)
    return _print_results(over, request)


def _study_request(given: TuneArguments, config: Config, seen: "MultiProgress") -> "StudyRequest":
    """What is asked of the search; the files are read to know it."""
    from pellucid.training.ensemble_training import jobs_at_once
    from pellucid.training.session import TrainingFiles
    from pellucid.tuning.search import StudyRequest, prepare_config
    from pellucid.tuning.space import default_space, load_space

    if given.space is not None:
        load_space(given.space, config)  # a mistake in it is told before the data are read
    files = TrainingFiles(given.train, given.valid, given.train_target, given.valid_target)
    base, reads = prepare_config(config, files)
    for read in reads:
        seen.print_line(f"{read.path}: {read.examples:,} examples{f' ({read.note})' if read.note else ''}")
    for need in unused_settings(config):
        seen.print_line(f"{need.message(config)}: trials without that go without it")
    space = load_space(given.space, base) if given.space else default_space(base, _explicit_settings(config))
    at_once = min(given.trials, jobs_at_once(given.jobs, config))
    return StudyRequest(files, given.out, base, space, given.trials, given.minutes * 60, at_once, given.prune)


def _report_event(seen: "MultiProgress", event: "TuneEvent", request: "StudyRequest") -> None:
    """Say what a person wants to know of the search."""
    from pellucid.tuning.search import StudyOpened, TrialProgress, TrialStarted, format_score
    from pellucid.tuning.study import EndedTrial

    match event:
        case StudyOpened():
            for line in event.space:
                seen.print_line(f"  {line}")
            gone_on = event.ended or event.unfinished or event.again
            went = f"{event.ended} ended, {event.unfinished} to go on with" if gone_on else "a new study"
            again = f", {event.again} failed and tried again" if event.again else ""
            in_all = count_noun(request.trials, "trial")
            seen.print_line(f"{request.out}: {went}{again}; {in_all} in all, {request.at_once} at once")
        case TrialStarted() if seen.is_live:
            seen.print_line(f"trial {event.number}: {_format_settings(event.values)}")
        case TrialProgress():
            seen.update_row(f"trial {event.number}", event.event)
        case EndedTrial():
            seen.remove_row(f"trial {event.number}")
            score = format_score(event.score, request.config.training.metric)
            why = f" ({event.why})" if event.why else ""
            seen.print_line(f"trial {event.number}: {event.state}{why}, {score}, {event.seconds:,.0f} s")


def _print_results(over: "StudyFinished", request: "StudyRequest") -> int:
    """The best trials, what mattered, and what to do with it; the exit code, which is 1 where all trials failed."""
    from pellucid.tuning.search import format_score, rank_trials

    metric = request.config.training.metric
    for trial in rank_trials(over.study.ended_trials(), metric)[:LISTED]:
        if trial.state == "finished":
            print(f"{format_score(trial.score, metric):>9}  trial {trial.number}: {_format_settings(trial.values)}")
    weights = list(over.study.importances().items())[:LISTED]
    if weights:
        print("what matters most: " + ", ".join(f"{key} {100 * weight:.0f} %" for key, weight in weights))
    if over.unfinished:
        print(f"{count_noun(over.unfinished, 'trial')} to go on with, where the same command is given again")
    if over.study.best_trial() is None:
        return _report_no_result(over)
    print(f"all trials: {request.out / 'report.html'}, {request.out / 'trials.json'}")
    print(f"the best settings: pellucid train … --config {request.out / 'best.toml'}")
    return 0


def _report_no_result(over: "StudyFinished") -> int:
    """Why there is nothing to train with; the exit code."""
    from pellucid.tuning.study import MAX_TRIES

    ended = over.study.ended_trials()
    if not ended or any(trial.state != "failed" for trial in ended):
        print("no trial has finished yet")
        return 0
    say(
        f"all of {count_noun(len(ended), 'trial')} failed; the first: {ended[0].why} (the same command tries each "
        f"again, {MAX_TRIES} times in all)"
    )
    return 1


def _format_settings(values: Mapping[str, object]) -> str:
    """Settings in one line."""
    return ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in values.items()
    )


def parse_tune_arguments(arguments: Sequence[str]) -> TuneArguments:
    """Flags over a TOML file over a preset."""
    required: Any = tyro.MISSING
    defaults = TuneArguments(train=required, valid=required, out=required, **default_settings(arguments))
    return parse_arguments(TuneArguments, "tune", arguments, defaults)


def _explicit_settings(config: Config) -> Collection[str]:
    """The settings that differ from the preset: a person chose them."""
    usual = flatten_config(preset(config.size))
    return {key for key, value in flatten_config(config).items() if value != usual[key]}
