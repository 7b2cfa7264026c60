"""Subcommand tune: pellucid tune TRAIN [--valid VALID] --run DIR [--trials N] [--study-time T] [--space FILE] [flags]

Several commands work on one search with --shared (one folder) or --storage (a database).
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from pellucid.cli.arguments import TrainingFlagParser, TrainingFlags, config_from_flags
from pellucid.cli.cluster_jobs import OnFlag, run_jobs_on
from pellucid.cli.messages import handle_stop_signals, print_message
from pellucid.cli.output_files import check_output_folder
from pellucid.cli.sources import print_result
from pellucid.cli.train import report_interruption
from pellucid.config.durations import parse_duration
from pellucid.config.settings import Config, Limit, PositiveInt
from pellucid.config.toml import flatten_config, size_preset
from pellucid.config.validation import unused_settings
from pellucid.dependencies import require_package
from pellucid.errors import ConfigError, count_noun, quote
from pellucid.files import check_folder_writable
from pellucid.tuning.journal import STUDY_FILES

if TYPE_CHECKING:
    from pellucid.reporting.progress import MultiProgress
    from pellucid.tuning.search import StudyFinished, StudyOpened, StudyRequest, TuneEvent
    from pellucid.tuning.space import SearchSpace
    from pellucid.tuning.storage import StudyStorage
    from pellucid.tuning.study import EndedTrial

MAX_LISTED_TRIALS = 5
"""Maximum number of listed trials."""
MAX_LISTED_SETTINGS = 5
"""Maximum number of hyperparameters whose importance is listed."""
STUDY_NAME = "pellucid"
"""Default name of a study in a database."""
MAX_STUDY_NAME_LENGTH = 512
"""Maximum length of the name of a study, that of Optuna's tables."""


@dataclass(frozen=True, kw_only=True)
class TuneArguments(TrainingFlags):
    """Search hyperparameters, or resume a search.

    Each trial trains with different hyperparameters and is scored on the validation set by --metric. The first trial
    uses the given settings: preset, TOML file and flags, as for train; later ones take the searched settings from the
    search space. The built-in space leaves out settings that differ from the preset, and with --init-from those of the
    network. The same command resumes a search.
    """

    run: Path
    """Folder of the search; created, or resumed. It receives best.toml, trials.json and report.html."""
    trials: PositiveInt = 30
    """Total number of trials, including those of earlier calls and of other commands that work on the same search."""
    study_time: str = ""
    """Maximum time of this call: 90s, 10m, 2h; empty for no limit. Running trials are then stopped, and the next call
    resumes them. --time is the maximum time of each trial."""
    shared: bool = False
    """Work on the search together with other commands with the same --run, on this machine or on others that share the
    folder; all of them have this flag."""
    storage: Annotated[str | None, arg(metavar="URL")] = None
    """PostgreSQL database of the search, such as postgresql://USER@HOST/DATABASE, with which commands on any machines
    work on it together. Each keeps its trials in its own --run."""
    study_name: str = STUDY_NAME
    """Name of the search in the database of --storage."""
    jobs: Limit = 0
    """Number of trials trained in parallel; 0: the number of cores divided by --threads (one on a GPU)."""
    on: OnFlag = None
    """Train the trials on the machines of a Ray cluster, as many at once as it has CPUs for. --run must be in a folder
    that all machines share."""
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
        Exit code: 0, 1 if all trials failed, 130 after Ctrl-C, 143 after SIGTERM, or 129 after
            SIGHUP.

    Raises:
        InputError: An argument or a file is invalid, the package optuna is missing, or the folder holds another search.
    """
    args = TrainingFlagParser(TuneArguments, "tune", arguments).parse()
    parse_duration("--study-time", args.study_time)  # report an error before reading the data
    config = config_from_flags(args)
    check_output_folder(args, "run", STUDY_FILES)
    check_folder_writable(args.run)  # first: the files may take minutes to read
    require_package("optuna", "tune", "pellucid tune")
    storage = _open_storage(args)
    from pellucid.reporting.progress import multi_progress
    from pellucid.tuning.search import StudyFinished, tune

    with (
        run_jobs_on(args.on, args.run, config.threads, config.device) as cluster,
        handle_stop_signals() as interrupt,
        multi_progress() as progress,
    ):
        request = _study_request(args, config, progress)._replace(shared=args.shared, storage=storage)
        interrupt.is_training = True
        events = tune(request)
        for event in events:
            if event is not None:
                _report_event(progress, event, request, cluster)
            if isinstance(event, StudyFinished):
                finished = event
            elif interrupt.requested:
                events.close()
                return report_interruption(args.run, interrupt.signal_number)
    return _print_results(finished, request)


def _open_storage(args: TuneArguments) -> "StudyStorage | None":
    """Return the storage of --storage, without a connection; None for the journal in the folder."""
    if args.shared and args.on is not None:
        raise ConfigError("--on ray lets one command use all machines of the cluster: leave out --shared")
    if args.storage is None:
        if args.study_name != STUDY_NAME:
            raise ConfigError("--study-name names a search in a database: give --storage, too")
        if args.shared and os.name == "nt":
            raise ConfigError("--shared needs shared locks of files, which Windows does not have: give --storage")
        return None
    if args.shared:
        raise ConfigError("--storage is for several commands already: leave out --shared")
    if not 0 < len(args.study_name) <= MAX_STUDY_NAME_LENGTH:
        raise ConfigError(
            f"--study-name: expected 1 to {MAX_STUDY_NAME_LENGTH} characters, got {quote(args.study_name)}"
        )
    require_package("psycopg", "postgresql", "--storage")
    from pellucid.tuning.database import DatabaseStorage, parse_database_url

    return DatabaseStorage(parse_database_url(args.storage), args.study_name)


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
        notes = "; ".join(filter(None, [file_read.text_note, file_read.note]))
        progress.print_line(f"{file_read.path}: {file_read.num_examples:,} examples{f' ({notes})' if notes else ''}")
    for requirement in unused_settings(config):
        progress.print_line(f"{requirement.message(config)}: trials without it ignore that setting")
    space = load_space(args.space, base) if args.space else default_space(base, _explicit_settings(config))
    _check_space(space, base)
    num_parallel = args.jobs if args.on else min(args.trials, num_parallel_trainings(args.jobs, config))
    seconds = parse_duration("--study-time", args.study_time)
    return StudyRequest(files, args.run, base, space, args.trials, seconds, num_parallel, args.prune)


def _report_event(progress: "MultiProgress", event: "TuneEvent", request: "StudyRequest", cluster: str) -> None:
    """Report an event of the search; `cluster` describes the machines of a cluster."""
    from pellucid.tuning.results import format_score
    from pellucid.tuning.search import (
        StudyOpened,
        StudyUnreachable,
        TrialLost,
        TrialProgress,
        TrialsAwaited,
        TrialStarted,
    )
    from pellucid.tuning.study import EndedTrial

    match event:
        case StudyOpened():
            _report_opened(progress, event, request, cluster)
        case TrialStarted() if progress.is_live:
            progress.print_line(f"trial {event.number}: {_format_settings(event.values)}")
        case TrialProgress():
            progress.update_row(f"trial {event.number}", event.event)
        case EndedTrial():
            progress.remove_row(f"trial {event.number}")
            score = format_score(event.score, request.config.training.metric)
            reason = f" ({event.reason})" if event.reason else ""
            progress.print_line(f"trial {event.number}: {event.state}{reason}, {score}, {event.seconds:,.0f} s")
        case TrialLost():
            progress.remove_row(f"trial {event.number}")
            progress.print_line(f"trial {event.number}: another command has taken it over; it is stopped here")
        case TrialsAwaited():
            progress.print_line(f"waiting for {count_noun(event.num_trials, 'trial')} of other commands")
        case StudyUnreachable():
            progress.print_line(f"{event.reason}; the trials continue, and this command tries again")


def _report_opened(progress: "MultiProgress", event: "StudyOpened", request: "StudyRequest", cluster: str) -> None:
    """Report the state of the study that a command opens."""
    for line in event.space:
        progress.print_line(f"  {line}")
    resumed = event.num_ended or event.num_unfinished or event.num_retried or event.num_elsewhere
    status = f"{event.num_ended} ended, {event.num_unfinished} to resume" if resumed else "a new study"
    retried = f", {event.num_retried} failed and retried" if event.num_retried else ""
    elsewhere = f", {event.num_elsewhere} running in other commands" if event.num_elsewhere else ""
    num_trials = count_noun(request.trials, "trial")
    parallel = f", {request.max_parallel} in parallel" if request.max_parallel else ""
    place = f" on {cluster}" if cluster else ""
    progress.print_line(f"{request.out}: {status}{retried}{elsewhere}; {num_trials} in total{parallel}{place}")


def _print_results(finished: "StudyFinished", request: "StudyRequest") -> int:
    """Print the best trials and the importance of hyperparameters; return 1 if all trials failed, else 0."""
    from pellucid.tuning.results import format_score, rank_trials

    metric = request.config.training.metric
    results = finished.results
    for trial in rank_trials(results.ended, metric)[:MAX_LISTED_TRIALS]:
        if trial.state == "finished":
            print(f"{format_score(trial.score, metric):>9}  trial {trial.number}: {_format_settings(trial.values)}")
    weights = list(results.importances.items())[:MAX_LISTED_SETTINGS]
    if weights:
        print("hyperparameter importance: " + ", ".join(f"{key} {100 * weight:.0f} %" for key, weight in weights))
    if finished.num_unfinished:
        print(f"{count_noun(finished.num_unfinished, 'trial')} unfinished; the same command resumes them")
    if finished.num_elsewhere:
        print(f"{count_noun(finished.num_elsewhere, 'trial')} running in other commands")
    if results.best is None:
        return _report_no_result(results.ended)
    print_result(
        f"all trials: {request.out / 'report.html'}, {request.out / 'trials.json'}",
        f"the best settings: pellucid train … --config {request.out / 'best.toml'}",
    )
    return 0


def _report_no_result(ended: Sequence["EndedTrial"]) -> int:
    """Report why there is no result; return the exit code."""
    from pellucid.tuning.study import MAX_TRIES

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
    if config.training.init_from:
        from pellucid.run_folder.initial_run import LEARNING_RATE_FACTOR, is_inherited

        usual["training.learning_rate"] *= LEARNING_RATE_FACTOR
        fixed = {key for key in usual if is_inherited(key)}
    return fixed | {key for key, value in flatten_config(config).items() if value != usual[key]}


def _check_space(space: "SearchSpace", config: Config) -> None:
    """Raise `ConfigError` if a search space varies settings that an initial run fixes."""
    if not config.training.init_from:
        return
    from pellucid.run_folder.initial_run import is_inherited

    varied = [dimension.key for dimension in (*space.searched, *space.linked) if is_inherited(dimension.key)]
    if varied:
        raise ConfigError(
            f"--space: {', '.join(varied)}: the network and symbols of {config.training.init_from} (--init-from) do "
            "not change; leave these settings out of the space"
        )
