"""What the tests of the page share: contents of a trained run, made once."""

from functools import cache
from pathlib import Path

from trained_runs import digits_run, train_to_end

from pellucid.viewer.assembling import Assembled, assemble
from pellucid.viewer.models import open_model
from pellucid.viewer.sources import read_file


@cache
def digits_shown(served: bool = True, beam: int | None = None) -> Assembled:
    """The digits run on its own development file, with itself as a rival."""
    trained = digits_run()
    models = [open_model(trained.run, name, "cpu", beam) for name in ("run", "rival")]
    sources = read_file(trained.files.dev, trained.config.data)
    return assemble(models, [sources], 30, served)


def begun_run(folder: Path) -> Path:
    """A run folder whose training was interrupted after its second validation."""
    from pellucid.training.loop import Validated
    from pellucid.training.session import train_run

    trained = digits_run()
    events, validations = train_run(trained.files, folder, trained.config), 0
    for event in events:
        validations += isinstance(event, Validated)
        if validations == 2:
            break
    events.close()
    return folder


def resume(folder: Path) -> None:
    """Train it to its end."""
    trained = digits_run()
    train_to_end(trained.files, folder, trained.config)
