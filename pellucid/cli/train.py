"""pellucid train TRAIN --valid VALID --run DIR [--config FILE] [--ensemble N] [flags]"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from msgspec import Meta

from pellucid.cli.arguments import SettingFlags, config_from_flags, default_settings, parse_arguments
from pellucid.cli.messages import handle_sigint, say
from pellucid.config.settings import Config, Limit
from pellucid.config.validation import refuse_idle
from pellucid.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TrainArguments(SettingFlags):
    """Train a model on pairs of sequences, or go on with an unfinished training.

    Settings come from the preset of --size, then from the TOML file of --config, then from flags. A run folder that
    holds an unfinished training of the same configuration and data is resumed, to the very same bits.
    """

    train: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRAIN")]
    """Training pairs: TSV, CSV, JSON lines or Parquet (also .gz), or the sources of two parallel files."""
    valid: Path
    """Pairs to judge by, none of which is trained on."""
    run: Path
    """Folder of the run; created, or resumed."""
    train_target: Path | None = None
    """The targets of TRAIN, line by line, where they are in a file of their own."""
    valid_target: Path | None = None
    """The targets of --valid, likewise."""
    ensemble: Annotated[int, Meta(ge=0, le=1000)] = 0
    """Train so many runs that differ in their seed alone, in folders of their own in --run; 0 trains one run."""
    jobs: Limit = 0
    """Runs of an ensemble trained at once; 0 takes as many as the cores allow (one, on a GPU)."""


def main(arguments: list[str]) -> int:
    """Train, telling how it goes on standard error."""
    given = parse_train_arguments(arguments)
    config = config_from_flags(given)
    refuse_idle(config)
    if given.jobs and not given.ensemble:
        raise ConfigError("--jobs needs --ensemble: a single run is one training")
    return _train_ensemble(given, config) if given.ensemble else _train_run(given, config)


def _train_run(given: TrainArguments, config: Config) -> int:
    """One run."""
    # Only now, when the arguments are known to be right, what takes seconds to import.
    from pellucid.reporting.progress import shown
    from pellucid.training.loop import Started, Stopped
    from pellucid.training.session import Files, train_run

    with handle_sigint() as interruption, shown() as teller:
        events = train_run(Files(given.train, given.valid, given.train_target, given.valid_target), given.run, config)
        for event in events:
            teller.tell(event)
            interruption.training = interruption.training or isinstance(event, Started)
            if interruption.asked and not isinstance(event, Stopped):
                events.close()
                return report_interruption(given.run)
    return 0


def _train_ensemble(given: TrainArguments, config: Config) -> int:
    """Runs of several seeds, side by side."""
    from pellucid.reporting.progress import rows
    from pellucid.training.ensemble_training import jobs_at_once, plan_ensemble, train_ensemble
    from pellucid.training.run_folder import members
    from pellucid.training.session import Files

    files = Files(given.train, given.valid, given.train_target, given.valid_target)
    trainings = plan_ensemble(files, given.run, config, given.ensemble)
    kept = {given.run, *(training.folder for training in trainings)}
    left_out = [folder.name for folder in members(given.run) if folder not in kept]
    at_once = min(given.ensemble, jobs_at_once(given.jobs, config))
    with handle_sigint() as interruption, rows() as seen:
        last = trainings[-1].config.seed
        told = f"{given.ensemble} runs, seeds {config.seed} to {last}" if len(trainings) > 1 else f"1 run, seed {last}"
        seen.say(f"{told}, {at_once} at once")
        interruption.training = True
        events = train_ensemble(trainings, given.run, at_once)
        for heard in events:
            if heard is not None:
                seen.tell(heard.folder.name, heard.event)
            if interruption.asked:
                events.close()
                return report_interruption(given.run)
        seen.say(f"{given.run}: an ensemble of {given.ensemble}")
        if left_out:
            seen.say(f"{', '.join(left_out)}: no members any more; their folders stay")
    return 0


def report_interruption(folder: Path) -> int:
    """Say how to go on; the exit code."""
    say(f"interrupted; the same command goes on from here ({folder})")
    return 130


def parse_train_arguments(arguments: Sequence[str]) -> TrainArguments:
    """Flags over a TOML file over a preset."""
    required: Any = tyro.MISSING
    defaults = TrainArguments(train=required, valid=required, run=required, **default_settings(arguments))
    return parse_arguments(TrainArguments, "train", arguments, defaults)
