"""Subcommand tune: pellucid tune TRAIN [--valid VALID] --run DIR [--trials N] [--minutes M] [--space FILE] [flags]"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pellucid.cli.arguments import TrainingFlagParser, TrainingFlags, config_from_flags
from pellucid.cli.messages import handle_sigint, print_message
from pellucid.cli.sources import count_noun
from pellucid.cli.train import report_interruption
from pellucid.config.settings import Amount, Config, Count, Limit
from pellucid.config.toml import flatten_config, size_preset
from pellucid.config.validation import unused_settings
from pellucid.dependencies import require_package
from pellucid.errors import ConfigError

if TYPE_CHECKING:
    from pellucid.reporting.progress import MultiProgress
    from pellucid.tuning.search import StudyFinished, StudyRequest, TuneEvent
    from pellucid.tuning.space import SearchSpace

MAX_LISTED = 5
"""Maximum number of listed trials and settings."""


@dataclass(frozen=True, kw_only=True)
class TuneArguments(TrainingFlags):
    """Search hyperparameters, or resume a search.

    Each trial trains with different hyperparameters and is scored on the validation set by --metric. The first trial
    uses the given settings: preset, TOML file and flags, as for train; later ones take the searched settings from the
    search space. The built-in space leaves out settings that differ from the preset, and with --from those of the
    network. The same command resumes a search.
    """

    run: Path
    """Folder of the search; created, or resumed. It receives best.toml, trials.json and report.html."""
    trials: Count = 30
    """Total number of trials, including those of earlier calls."""
    minutes: Amount = 0.0
    """Time limit in minutes, after which running trials are stopped; the next call resumes them. 0: no limit."""
    jobs: Limit = 0
    """Number of trials trained in parallel; 0: the number of cores divided by --threads (one on a GPU)."""
    space: Path | None = None
    """TOML file with the search space: for each searched setting its choices, range or multiples. Default: built-in
    search space."""
    prune: Literal["median", "halving", "none"] = "median"
    """Early end of unpromising trials: those below the median of earlier trials (median), successive halving (halving),
    or none."""


def main(arguments: list[str]) -> int:
    """Search hyperparameters, with progress on standard error and results on standard output.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code: 0, 1 if all trials failed, or 130 after Ctrl-C.

    Raises:
        InputError: An argument or a file is invalid, the package optuna is missing, or the folder holds another search.
    """
    args = TrainingFlagParser(TuneArguments, "tune", arguments).parse()
    config = config_from_flags(args)
    require_package("optuna", "tune", "pellucid tune")
    from pellucid.reporting.progress import multi_progress
    from pellucid.tuning.search import StudyFinished, tune

    with handle_sigint() as interrupt, multi_progress() as progress:
        request = _study_request(args, config, progress)
        interrupt.is_training = True
        events = tune(request)
        for event in events:
            if event is not None:
                _report_event(progress, event, request)
            if isinstance(event, StudyFinished):
                finished = event
            elif interrupt.requested:
                events.close()
                return report_interruption(args.run)
    return _print_results(finished, request)


def _study_request(args: TuneArguments, config: Config, progress: "MultiProgress") -> "StudyRequest":
    """Return the specification of the search, after reading the files."""
    from pellucid.training.ensemble_training import num_parallel_trainings
    from pellucid.tuning.search import StudyRequest, resolve_config
    from pellucid.tuning.space import default_space, load_space

    if args.space is not None:
        load_space(args.space, config)  # report errors before reading the data
    files = args.training_files()
    base, file_reads = resolve_config(config, files)
    for file_read in file_reads:
        notes = "; ".join(filter(None, [file_read.texts, file_read.note]))
        progress.print_line(f"{file_read.path}: {file_read.examples:,} examples{f' ({notes})' if notes else ''}")
    for requirement in unused_settings(config):
        progress.print_line(f"{requirement.message(config)}: trials without it ignore that setting")
    space = load_space(args.space, base) if args.space else default_space(base, _explicit_settings(config))
    _check_space(space, base)
    num_parallel = min(args.trials, num_parallel_trainings(args.jobs, config))
    return StudyRequest(files, args.run, base, space, args.trials, args.minutes * 60, num_parallel, args.prune)


def _report_event(progress: "MultiProgress", event: "TuneEvent", request: "StudyRequest") -> None:
    """Report an event of the search."""
    from pellucid.tuning.search import StudyOpened, TrialProgress, TrialStarted, format_score
    from pellucid.tuning.study import EndedTrial

    match event:
        case StudyOpened():
            for line in event.space:
                progress.print_line(f"  {line}")
            resumed = event.ended or event.unfinished or event.num_retried
            status = f"{event.ended} ended, {event.unfinished} to resume" if resumed else "a new study"
            retried = f", {event.num_retried} failed and retried" if event.num_retried else ""
            num_trials = count_noun(request.trials, "trial")
            progress.print_line(
                f"{request.out}: {status}{retried}; {num_trials} in total, {request.max_parallel} in parallel"
            )
        case TrialStarted() if progress.is_live:
            progress.print_line(f"trial {event.number}: {_format_settings(event.values)}")
        case TrialProgress():
            progress.update_row(f"trial {event.number}", event.event)
        case EndedTrial():
            progress.remove_row(f"trial {event.number}")
            score = format_score(event.score, request.config.training.metric)
            reason = f" ({event.reason})" if event.reason else ""
            progress.print_line(f"trial {event.number}: {event.state}{reason}, {score}, {event.seconds:,.0f} s")


def _print_results(finished: "StudyFinished", request: "StudyRequest") -> int:
    """Print the best trials and the importance of hyperparameters; return 1 if all trials failed, else 0."""
    from pellucid.tuning.search import format_score, rank_trials

    metric = request.config.training.metric
    for trial in rank_trials(finished.study.ended_trials(), metric)[:MAX_LISTED]:
        if trial.state == "finished":
            print(f"{format_score(trial.score, metric):>9}  trial {trial.number}: {_format_settings(trial.values)}")
    weights = list(finished.study.importances().items())[:MAX_LISTED]
    if weights:
        print("hyperparameter importance: " + ", ".join(f"{key} {100 * weight:.0f} %" for key, weight in weights))
    if finished.unfinished:
        print(f"{count_noun(finished.unfinished, 'trial')} unfinished; the same command resumes them")
    if finished.study.best_trial() is None:
        return _report_no_result(finished)
    print(f"all trials: {request.out / 'report.html'}, {request.out / 'trials.json'}")
    print(f"the best settings: pellucid train … --config {request.out / 'best.toml'}")
    return 0


def _report_no_result(finished: "StudyFinished") -> int:
    """Report why there is no result; return the exit code."""
    from pellucid.tuning.study import MAX_TRIES

    ended = finished.study.ended_trials()
    if not ended or any(trial.state != "failed" for trial in ended):
        print("no trial has finished yet")
        return 0
    print_message(
        f"no result: {count_noun(len(ended), 'trial')} failed; the first: {ended[0].reason} (the same command "
        f"retries failed trials, each at most {MAX_TRIES} times)"
    )
    return 1


def _format_settings(values: Mapping[str, object]) -> str:
    """Return settings in one line."""
    return ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in values.items()
    )


def _explicit_settings(config: Config) -> Collection[str]:
    """Return the settings that differ from the preset, which the user chose, and those that an initial run fixes."""
    usual = flatten_config(size_preset(config.size))
    fixed = set[str]()
    if config.training.initial_run:
        from pellucid.run_folder.initial_run import LEARNING_RATE_FACTOR, is_inherited

        usual["training.learning_rate"] *= LEARNING_RATE_FACTOR
        fixed = {key for key in usual if is_inherited(key)}
    return fixed | {key for key, value in flatten_config(config).items() if value != usual[key]}


def _check_space(space: "SearchSpace", config: Config) -> None:
    """Raise `ConfigError` if a search space varies settings that an initial run fixes."""
    if not config.training.initial_run:
        return
    from pellucid.run_folder.initial_run import is_inherited

    varied = [dimension.key for dimension in (*space.searched, *space.linked) if is_inherited(dimension.key)]
    if varied:
        raise ConfigError(
            f"--space: {', '.join(varied)}: the network and symbols of {config.training.initial_run} (--from) do not "
            "change; leave these settings out of the space"
        )
