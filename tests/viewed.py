"""What the tests of the page share: contents of a trained run, made once."""

import shutil
from functools import cache
from pathlib import Path

import msgspec
from trained_runs import digits_run, train_to_end

from pellucid.viewer.handlers import decode
from pellucid.viewer.inputs import open_model, read_file
from pellucid.viewer.page_contents import Assembled, assemble
from pellucid.viewer.schema import Asked, Painted


@cache
def digits_shown(served: bool = True, beam: int | None = None) -> Assembled:
    """The digits run on its own development file, with itself as a rival."""
    trained = digits_run()
    models = [open_model(trained.run, name, "cpu", beam) for name in ("run", "rival")]
    sources = read_file(trained.files.valid, trained.config.data)
    return assemble(models, [sources], 30, served)


@cache
def chained() -> tuple[int, list[Painted]]:
    """An example of the digits run (its place) and rows of attention, each given to what the one before led to.

    The first makes the output longer, the second is given to its last step, and the third makes it short again.
    """
    shown = digits_shown(beam=3)
    for place, item in enumerate(shown.contents.items):
        plain = Asked(text=item.text, beam_size=len(item.traces))
        steps, positions = len(item.traces[0].target), len(item.traces[0].source)
        hot = [[_alone(step, at, positions) for at in range(positions)] for step in range(steps)]
        for longer in (row for rows in hot for row in rows):
            last = len(_target(shown, plain, [longer])) - 1
            for shorter in (row for rows in hot for row in rows if last >= steps and row.step != longer.step):
                chain = [longer, _alone(last, 0, positions), shorter]
                if len(_target(shown, plain, chain)) <= last:
                    return place, chain
    raise AssertionError("no row makes an output longer and another short again")


def _alone(step: int, at: int, positions: int) -> Painted:
    """A row with all weight on one position."""
    return Painted(step=step, weights=[float(place == at) for place in range(positions)])


def _target(shown: Assembled, asked: Asked, painted: list[Painted]) -> list[str]:
    """What is written under these rows."""
    return decode(shown, msgspec.structs.replace(asked, painted=painted)).traces[0].target


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


def bare_run(folder: Path, whole: Path) -> Path:
    """A run folder as it stands before the first validation of that training."""
    folder.mkdir()
    for name in ("config.toml", "vocabulary.json"):
        shutil.copy(whole / name, folder)
    return folder


def reach_model(folder: Path, whole: Path) -> None:
    """Bring it as far as that training."""
    shutil.copytree(whole / "snapshots", folder / "snapshots")
    shutil.copy(whole / "model.safetensors", folder)
    shutil.copy(whole / "log.jsonl", folder)


def waiting(folder: Path) -> Assembled:
    """All that a page shows of it on the digits run's development file: without a model the name of the file alone."""
    model, trained = open_model(folder, "run", "cpu", None), digits_run()
    sources = [read_file(trained.files.valid, trained.config.data)] if model.transducer else []
    return assemble([model], sources, 30, True, awaited=trained.files.valid.name)


def resume(folder: Path) -> None:
    """Train it to its end."""
    trained = digits_run()
    train_to_end(trained.files, folder, trained.config)
