"""Page contents of trained runs, shared by the tests of the page."""

import shutil
from functools import cache
from pathlib import Path

import msgspec
from trained_runs import digits_run, train_to_end

from pellucid.viewer.handlers import decode_source
from pellucid.viewer.inputs import open_run, read_example_file
from pellucid.viewer.page_contents import PageData, assemble_page
from pellucid.viewer.schema import AttentionOverride, DecodeRequest


@cache
def digits_shown(served: bool = True, beam: int | None = None) -> PageData:
    """The digits run on its own development file, with itself as a rival."""
    trained = digits_run()
    models = [open_run(trained.run, name, "cpu", beam) for name in ("run", "rival")]
    sources = read_example_file(trained.files.valid, trained.config.data)
    return assemble_page(models, [sources], 30, served)


@cache
def chained() -> tuple[int, list[AttentionOverride]]:
    """An example of the digits run (its place) and rows of attention, each given to what the one before led to.

    The first makes the output longer, the second is given to its last step, and the third makes it short again.
    """
    shown = digits_shown(beam=3)
    for place, item in enumerate(shown.contents.examples):
        plain = DecodeRequest(text=item.text, beam_size=len(item.traces))
        steps, positions = len(item.traces[0].target), len(item.traces[0].source)
        hot = [[_alone(step, at, positions) for at in range(positions)] for step in range(steps)]
        for longer in (row for rows in hot for row in rows):
            last = len(_target(shown, plain, [longer])) - 1
            for shorter in (row for rows in hot for row in rows if last >= steps and row.step != longer.step):
                chain = [longer, _alone(last, 0, positions), shorter]
                if len(_target(shown, plain, chain)) <= last:
                    return place, chain
    raise AssertionError("no row makes an output longer and another short again")


def _alone(step: int, at: int, positions: int) -> AttentionOverride:
    """A row with all weight on one position."""
    return AttentionOverride(step=step, weights=[float(place == at) for place in range(positions)])


def _target(shown: PageData, asked: DecodeRequest, painted: list[AttentionOverride]) -> list[str]:
    """What is written under these rows."""
    return decode_source(shown, msgspec.structs.replace(asked, attention_overrides=painted)).traces[0].target


def begun_run(folder: Path) -> Path:
    """A run folder whose training was interrupted after its second validation."""
    from pellucid.training.events import ValidationCompleted
    from pellucid.training.session import train_run

    trained = digits_run()
    events, validations = train_run(trained.files, folder, trained.config), 0
    for event in events:
        validations += isinstance(event, ValidationCompleted)
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


def waiting(folder: Path) -> PageData:
    """All that a page shows of it on the digits run's development file: without a model the name of the file alone."""
    model, trained = open_run(folder, "run", "cpu", None), digits_run()
    sources = [read_example_file(trained.files.valid, trained.config.data)] if model.predictor else []
    return assemble_page([model], sources, 30, True, pending_file=trained.files.valid.name)


def resume(folder: Path) -> None:
    """Train it to its end."""
    trained = digits_run()
    train_to_end(trained.files, folder, trained.config)
