"""The Python face of training."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pellucid.agreement import refuse_idle
from pellucid.config import Config
from pellucid.look.progress import shown
from pellucid.look.rows import rows
from pellucid.search.transducer import Transducer
from pellucid.toml import from_settings
from pellucid.training.members import jobs_at_once, plan_ensemble, train_ensemble
from pellucid.training.run import load
from pellucid.training.session import Files, train_run


def train(
    train: str | Path | tuple[str | Path, str | Path],
    dev: str | Path | tuple[str | Path, str | Path],
    run: str | Path,
    config: Config | Mapping[str, Any] | None = None,
    ensemble: int = 1,
) -> Transducer:
    """Train on a file of pairs (or two parallel files), keep everything in the folder `run`, return the best model.

    `config` is a `Config`, or settings as in a TOML file: {"size": "small", "data": {"target_symbols": "words"}}. A run
    that was interrupted goes on; a finished one is loaded. Errors are `InputError`s with a message for people.

    `ensemble` runs that differ in their seed alone are trained side by side, each in a folder of its own in `run`, and
    are returned as one. They train in processes of their own: a script calls this under `if __name__ == "__main__":`.
    """
    settings = config if isinstance(config, Config) else from_settings(config or {}, origin="config")
    refuse_idle(settings)
    files = Files(*_pair(train)[:1], *_pair(dev)[:1], _pair(train)[1], _pair(dev)[1])
    if ensemble != 1:
        _train_ensemble(files, Path(run), settings, ensemble)
        return load(run, settings.device)
    with shown() as teller:
        for event in train_run(files, Path(run), settings):
            teller.tell(event)
    return load(run, settings.device)


def _train_ensemble(files: Files, folder: Path, config: Config, size: int) -> None:
    """Runs of several seeds, side by side; a line for each validation."""
    trainings = plan_ensemble(files, folder, config, size)
    events = train_ensemble(trainings, folder, min(size, jobs_at_once(0, config)))
    with rows() as seen, closing(events):
        for heard in events:
            if heard is not None:
                seen.tell(heard.folder.name, heard.event)


def _pair(paths: str | Path | tuple[str | Path, str | Path]) -> tuple[Path, Path | None]:
    """One file, or a source and a target file."""
    if isinstance(paths, tuple):
        return Path(paths[0]), Path(paths[1])
    return Path(paths), None
